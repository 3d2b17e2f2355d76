"""The fence around isl: the only module that imports islpy. isl decides questions about integers.

How to use it. Objects are made from expressions by `tensor_expr.points`, from text by `parse_set`,
`make_set` and so on, or by methods of other isl objects; `raw` is islpy itself, for its types and
constants. Work is done inside `with quota():`, which bounds isl's operations and holds the lock;
yes/no questions go through `ask` (or `is_empty`, `is_subset`, ...) and have three answers. Running
out of operations is not an error of anybody: it is `Answer.UNKNOWN`, or the exception `Exhausted`,
and a caller who needs a proof refuses. Operations are counted, not timed, so answers are the same
on every machine.

Names. Dimensions go by name: isl compares by position and calls `{[i]: ..}` and `{[j]: ..}` equal,
so combine only sets that were made with the same list of dims. `ident` turns any name into one
that isl's parser reads as a name (`mod`, `MAX` and `é` are not), and `name` turns it back.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, TypeVar

import islpy

from .errors import InternalError, UnsupportedError
from .forked import fork_lock

raw = islpy
T = TypeVar("T")
QUOTA = 200_000
"""Operations that a question may take unless its asker says otherwise: some tens of ms to 1 s."""
FIRST = 2_000
"""Operations for the first element of a set rather than some element: large sets of pairs of
instances take a millisecond an operation."""

_context = raw.DEFAULT_CONTEXT
_lock = fork_lock()  # what another thread was doing to isl's objects no child could end
_active: list[int] = []


class Answer(enum.Enum):
    """What isl says to a yes/no question."""

    YES = "proved"
    NO = "refuted"
    UNKNOWN = "could not prove"


class Exhausted(UnsupportedError):
    """A question took more operations than its quota."""


@contextmanager
def quota(operations: int = QUOTA) -> Iterator[None]:
    """Bounds the isl work done inside, and keeps other threads out of isl meanwhile.

    Raises `Exhausted` where isl ran out, `InternalError` where it failed otherwise. A quota inside
    a quota changes nothing: the outer one bounds the whole.
    """
    with _lock:
        if _active:
            yield
            return
        _active.append(operations)
        _context.reset_operations()
        _context.set_max_operations(operations)
        try:
            yield
        except raw.Error as err:
            if _is_spent():
                raise Exhausted(f"isl could not answer within {operations} operations") from None
            raise InternalError(f"isl failed: {err}") from None
        finally:
            _context.set_max_operations(0)
            _context.reset_operations()
            _active.clear()


def call(work: Callable[[], T], operations: int = QUOTA) -> T:
    """The result of `work` under a quota; `Exhausted` where it ran out."""
    with quota(operations):
        return work()


def ask(query: Callable[[], bool], operations: int = QUOTA) -> Answer:
    """The answer to a yes/no question under a quota."""
    try:
        with quota(operations):
            return Answer.YES if query() else Answer.NO
    except Exhausted:
        return Answer.UNKNOWN


def is_empty(items: Any, operations: int = QUOTA) -> Answer:
    """Has a set, map or union no element, for any value of its parameters?"""
    return ask(items.is_empty, operations)


def is_subset(a: Any, b: Any, operations: int = QUOTA) -> Answer:
    """Is every element of `a` one of `b`?"""
    return ask(lambda: a.is_subset(b), operations)


def is_equal(a: Any, b: Any, operations: int = QUOTA) -> Answer:
    """Have `a` and `b` the same elements?"""
    return ask(lambda: a.is_equal(b), operations)


def is_disjoint(a: Any, b: Any, operations: int = QUOTA) -> Answer:
    """Have `a` and `b` no element in common?"""
    return ask(lambda: a.intersect(b).is_empty(), operations)


def parse_set(text: str) -> raw.Set:
    """A set from isl text, for example `[N] -> { S[i] : 0 <= i < N }`."""
    return _parse(raw.Set, text)


def parse_map(text: str) -> raw.Map:
    """A map from isl text."""
    return _parse(raw.Map, text)


def parse_union_set(text: str) -> raw.UnionSet:
    """A union of sets in several spaces."""
    return _parse(raw.UnionSet, text)


def parse_union_map(text: str) -> raw.UnionMap:
    """A union of maps between several spaces."""
    return _parse(raw.UnionMap, text)


def make_set(
    dims: Sequence[str], conditions: Iterable[str] = (), params: Sequence[str] = (), space: str = ""
) -> raw.Set:
    """`[params] -> { space[dims] : conditions }`; the conditions are isl text, joined by and."""
    return parse_set(f"{prefix(params)}{{ {tuple_text(dims, space)}{_such_that(conditions)} }}")


def make_map(
    dims: Sequence[str],
    images: Sequence[str],
    conditions: Iterable[str] = (),
    params: Sequence[str] = (),
    spaces: tuple[str, str] = ("", ""),
) -> raw.Map:
    """`[params] -> { a[dims] -> b[images] : conditions }`, the images being isl text."""
    source = tuple_text(dims, spaces[0])
    target = f"{ident(spaces[1]) if spaces[1] else ''}[{', '.join(images)}]"
    return parse_map(f"{prefix(params)}{{ {source} -> {target}{_such_that(conditions)} }}")


def tuple_text(dims: Sequence[str], space: str = "") -> str:
    """`space[i, j]` as isl text."""
    return f"{ident(space) if space else ''}[{', '.join(map(ident, dims))}]"


def first_point(items: raw.Set, operations: int = QUOTA) -> dict[str, int] | None:
    """The lexicographically first element under the smallest parameters, by name; None if empty.

    A witness for messages: it holds a value for every parameter and dimension. `Exhausted` may be
    raised; a set that is not bounded below, or whose first element takes long to find, gives some
    element instead.
    """
    with quota(operations):
        if items.is_empty():
            return None
        names = dim_names(items, raw.dim_type.param) + dim_names(items, raw.dim_type.set)
        flat = items.move_dims(raw.dim_type.set, 0, raw.dim_type.param, 0, items.n_param())
        point = _lexmin(flat).sample_point()
        values = [
            point.get_coordinate_val(raw.dim_type.set, n).to_python() for n in range(len(names))
        ]
        return dict(zip(names, values, strict=True))


def dim_names(items: Any, kind: raw.dim_type) -> list[str]:
    """The names of an object's dimensions of one kind (`raw.dim_type.set`, `param`, `in_` ...)."""
    return [name(items.get_dim_name(kind, n)) for n in range(items.dim(kind))]


def named(items: raw.Set, dims: Iterable[str]) -> raw.Set:
    """A set with its dimensions called so, in order."""
    for n, dim in enumerate(dims):
        items = items.set_dim_name(raw.dim_type.set, n, ident(dim))
    return items


_KEYWORDS = frozenset(
    re.findall(
        r"\w+",
        "exists and or implies not infty infinity nan min max rat true false "
        "ceild floord mod ceil floor",
    )
)
_PLAIN = re.compile(r"(?!x__)[A-Za-z_][A-Za-z0-9_]*")
_ESCAPED = re.compile(r"_x([0-9a-f]+)_")


def number(value: int) -> raw.Val:
    """An integer of any size."""
    return raw.Val(value) if abs(value) < 1 << 62 else raw.Val(str(value))


def ident(text: str) -> str:
    """`text` as an identifier for isl: unchanged, or escaped behind `x__`."""
    if _PLAIN.fullmatch(text) and text.lower() not in _KEYWORDS:  # isl's keywords have no case
        return text
    return "x__" + re.sub(r"[^A-Za-z0-9]", lambda m: f"_x{ord(m[0]):x}_", text)


def name(identifier: str) -> str:
    """The name that `ident` turned into `identifier`."""
    if not identifier.startswith("x__"):
        return identifier
    return _ESCAPED.sub(lambda m: chr(int(m[1], 16)), identifier[3:])


def prefix(params: Sequence[str]) -> str:
    """`[N, M] -> `, as text about parameters begins; nothing without any."""
    return f"[{', '.join(map(ident, params))}] -> " if params else ""


def _such_that(conditions: Iterable[str]) -> str:
    text = " and ".join(f"({c})" for c in conditions)
    return f" : {text}" if text else ""


def _parse(kind: Callable[[str], T], text: str) -> T:
    made: T = _read(kind, text)
    return made


@contextmanager
def building() -> Iterator[None]:
    """Work on small objects that no quota bounds, inside or outside of one; others keep out."""
    with _lock:
        _context.set_max_operations(0)
        try:
            yield
        except raw.Error as err:
            raise InternalError(f"isl failed: {err}") from None
        finally:
            _context.set_max_operations(_active[0] if _active else 0)


@lru_cache(maxsize=4096)
def _read(kind: Callable[[str], Any], text: str) -> Any:
    # Remembered, because isl objects never change and schedules ask for the same ones again.
    # Lifted, because a quota that runs out inside the parser reads "syntax error".
    with building():
        try:
            return kind(text)
        except raw.Error:
            raise InternalError(f"isl cannot read: {text}") from None


def _is_spent() -> bool:
    """While the quota is spent even a trivial operation fails, and only then."""
    try:
        raw.Set.universe(raw.Space.set_alloc(_context, 0, 1)).is_empty()
    except raw.Error:
        return True
    return False


def _lexmin(items: raw.Set) -> raw.Set:
    """The first element alone; all of them where there is none, or none is found soon."""
    _context.reset_operations()
    _context.set_max_operations(FIRST)
    try:
        return items.lexmin()
    except raw.Error:
        return items  # unbounded below, or too much work
    finally:
        _context.reset_operations()
        _context.set_max_operations(_active[0])
