"""Nodes: interned, immutable, keyed by type as well as value, equal after pickling."""

from __future__ import annotations

import copy
import gc
import pickle
import threading
import weakref

import pytest
from diptych.algo.dtypes import f32, i32
from diptych.algo.node import node
from diptych.algo.tensor_expr.build import add, const
from diptych.algo.tensor_expr.expr import Access, Call, Cast, Const, Index, Range, Reduce, Size


@node
class Pair:
    a: object
    b: object = 7


@node
class Positive:
    value: int

    def _check(self) -> None:
        if self.value <= 0:
            raise ValueError(f"{self.value} is not positive")


def test_equal_fields_are_one_object():
    assert Pair(1, 2) is Pair(1, 2) is Pair(a=1, b=2) is Pair(1, b=2)
    assert Pair(1) is Pair(1, 7)
    assert Pair(1, 2) is not Pair(2, 1)
    assert Access("A", (Index("i"), const(1))) is Access("A", (Index("i"), Const(1)))


@pytest.mark.parametrize(
    ("a", "b"),
    [(1, 1.0), (1, True), (0.0, -0.0), (0, False), (1.0, True), ((1,), (1.0,)), (1, "1")],
)
def test_keys_know_types_and_signs(a, b):
    assert Pair(a, a) is not Pair(b, b)
    assert type(Pair(a).a) is type(a)


def test_equal_nans_are_one_object():
    assert Const(float("nan")) is Const(float("nan"))
    assert Const(float("inf")) is not Const(float("-inf"))


def test_types_take_part():
    assert Const(1, f32) is not Const(1, i32)
    assert Index("n") is not Size("n")


def test_nodes_are_immutable_and_slotted():
    pair = Pair(1, 2)
    with pytest.raises(AttributeError) as err:
        pair.a = 3
    assert str(err.value) == "Pair is immutable"
    assert not hasattr(pair, "__dict__")


def test_wrong_fields_are_refused():
    for make in (lambda: Pair(), lambda: Pair(1, 2, 3), lambda: Pair(1, c=2)):
        with pytest.raises(TypeError):
            make()


def test_checks_run_and_what_fails_is_not_kept():
    assert Positive(3) is Positive(3)
    for _ in range(2):
        with pytest.raises(ValueError, match="-1 is not positive"):
            Positive(-1)


def test_nodes_pickle_and_copy_to_themselves():
    expr = Reduce(
        "sum", ("k",), Cast(f32, Call("mul", (Access("A", (Index("k"),)), Const(-0.0, f32)))),
        (Range("k", const(0), Size("K")),), Call("lt", (Index("k"), Size("K"))),
    )  # fmt: skip
    assert pickle.loads(pickle.dumps(expr)) is expr
    assert copy.copy(expr) is expr
    assert copy.deepcopy([expr])[0] is expr


def test_deep_chains_are_fine():
    expr = Index("i")
    for n in range(5000):
        expr = add(expr, Index(f"i{n % 3}"))
    assert expr is add(expr.args[0], expr.args[1])


def test_nothing_is_kept_alive():
    pair = Pair("kept", "alive")
    gone = weakref.ref(pair)
    del pair
    gc.collect()
    assert gone() is None


def test_patterns_and_printing():
    match Pair(1, (2,)):
        case Pair(a, b):
            assert (a, b) == (1, (2,))
    assert repr(Pair(1, (2,))) == "Pair(1, (2,))"


def test_threads_agree_on_the_object():
    made: list[list[Pair]] = []

    def work() -> None:
        made.append([Pair("thread", n) for n in range(300)])

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(p is q for row in made for p, q in zip(row, made[0], strict=True))
