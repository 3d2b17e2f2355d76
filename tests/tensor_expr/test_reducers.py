"""Users' reducers: how they are written, printed and refused, and what the interpreter gives."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from math import inf
from typing import Any

import diptych as dt
import numpy as np
import pytest
from diptych.algo.tensor_expr.parse import parse

i, j, k, d = dt.indices("i j k d")


def softmax_of(a: Any, b: Any) -> Any:
    m = dt.max(a[0], b[0])
    x, y = dt.exp(a[0] - m), dt.exp(b[0] - m)
    return m, a[1] * x + b[1] * y, a[2] * x + b[2] * y


ONLINE = dt.reducer(softmax_of, (-inf, 0.0, 0.0), name="online")
CHAIN = dt.reducer(
    lambda a, b: tuple(
        a[2 * (n // 2)] * b[n % 2] + a[2 * (n // 2) + 1] * b[2 + n % 2] for n in range(4)
    ),
    (1.0, 0.0, 0.0, 1.0),
    commutative=False,
    name="chain",
)


@dt.op
def attention(S: Any, V: Any) -> Any:
    m, s, o, y = map(dt.tensor, ["m", "s", "o", "y"])
    m[i], s[i], o[i, d] = ONLINE(S[i, j], 1.0, V[j, d])
    y[i, d] = o[i, d] / s[i]
    return y


TEXT = """attention(S, V) -> y:
    reducer online(a0, a1, a2; b0, b1, b2) = max(a0, b0), a1 * exp(a0 - max(a0, b0)) + \
b1 * exp(b0 - max(a0, b0)), a2 * exp(a0 - max(a0, b0)) + b2 * exp(b0 - max(a0, b0)) \
from -inf, 0.0, 0.0
    m[i], s[i], o[i,d] = online(S[i,j], 1.0, V[j,d])
    y[i,d] = o[i,d] / s[i]"""


def test_the_text_spells_its_reducers_out() -> None:
    assert attention.text == TEXT
    again = parse(TEXT)
    assert again == attention and again.text == TEXT and again.fingerprint == attention.fingerprint
    assert pickle.loads(pickle.dumps(attention)) == attention


TEXTS = [
    "reducer absmax(a; b) = max(abs(a), abs(b)) from 0.0\ny[i] = absmax(x[i,j]) + 1",
    "reducer f(a; b) = a + b from 0.0\ny[i] = f(x[i,j], where=j < i) * f(z[k]) where j in 1:J",
    "reducer p(a, c; b, e) = a * b, c + e from 1.0, 0.0 ordered\n"
    "u[i], v[i] = p(x[i,j], sum(w[j,k]))",
    "reducer p(a, c; b, e) = a * b, c + e from 1, 0\nu[], v[] = p(2, k, over=(k in 0:4))",
    "reducer p(a, c; b, e) = a * b, c + e from 1, 0\n"
    "u[i], v[i] = p(x[j], j, where=j <= i) where i in 0:J",
    "reducer f(a; b) = a + b from 0.0\nlift f: f(x: [K]) -> y:\nlift f:     y[] = sum(x[k])\n"
    "y[i] = f(x[i,j])",
]


@pytest.mark.parametrize("text", TEXTS)
def test_text_prints_as_it_is_written(text: str) -> None:
    op = parse(text)
    assert op.text == text
    dt.op(text)  # checks


def test_reducers_of_one_name_are_told_apart() -> None:
    low = dt.reducer(lambda a, b: a + b, 0.0, name="f")
    high = dt.reducer(lambda a, b: a * b, 1.0, name="f")

    @dt.op
    def op(x: Any) -> Any:
        z = dt.tensor("z")
        z[i] = low(x[i, j]) + high(x[i, j])
        return z

    assert op.text == (
        "reducer f(a; b) = a + b from 0.0\n"
        "reducer f_1(a; b) = a * b from 1.0\n"
        "z[i] = f(x[i,j]) + f_1(x[i,j])"
    )
    assert parse(op.text).text == op.text


def test_a_name_of_the_language_is_no_name_of_a_reducer_in_text() -> None:
    def max(a: Any, b: Any) -> Any:
        return dt.maximum(a, b)

    greatest = dt.reducer(max, -inf)

    @dt.op
    def op(x: Any) -> Any:
        y = dt.tensor("y")
        y[i] = greatest(x[i, j])
        return y

    assert op.text == "reducer max_1(a; b) = max(a, b) from -inf\ny[i] = max_1(x[i,j])"


# -- what the interpreter gives


def rng() -> np.random.Generator:
    return np.random.default_rng(3)


def test_online_softmax_attention() -> None:
    s, v = rng().normal(size=(5, 7)), rng().normal(size=(7, 4))
    e = np.exp(s - s.max(1, keepdims=True))
    np.testing.assert_allclose(dt.interpret(attention, s, v), e / e.sum(1, keepdims=True) @ v)


def test_instances_keep_their_order() -> None:
    op = dt.op("a[i], b[i], c[i], d[i] = chain(w[k,i], x[k,i], y[k,i], z[k,i])",
               reducers={"chain": CHAIN})  # fmt: skip
    m = rng().normal(size=(4, 6, 3))
    got = np.stack(dt.interpret(op, *m))
    for n in range(3):
        want = np.linalg.multi_dot(list(m[:, :, n].T.reshape(6, 2, 2)))
        np.testing.assert_allclose(got[:, n], want.ravel())


def test_two_indices_are_in_lexicographic_order() -> None:
    digits = dt.reducer(
        lambda a, b: ((a[0] * b[1] + b[0]) % 9973, a[1] * b[1] % 9973), (0, 1), commutative=False
    )
    op = dt.op("v[], p[] = digits(x[i,j], 10)", reducers={"digits": digits})
    x = rng().integers(0, 10, (5, 6))
    value, power = dt.interpret(op, x)
    assert value == int("".join(map(str, x.ravel()))) % 9973 and power == 10**30 % 9973


def welford(a: Any, b: Any) -> Any:
    n = a[0] + b[0]
    step = b[1] - a[1]
    part = dt.where(n > 0, b[0] / dt.where(n > 0, n, 1), 0.0)
    return n, a[1] + step * part, a[2] + b[2] + step * step * a[0] * part


def test_conditions_choose_instances_for_all_components() -> None:
    moments = dt.reducer(welford, (0.0, 0.0, 0.0))
    op = dt.op("n[i], m[i], q[i] = moments(1.0, x[i,j], 0.0, where=(j <= i) & (x[i,j] > 0))",
               reducers={"moments": moments})  # fmt: skip
    x = rng().normal(size=(4, 6))
    n, m, q = dt.interpret(op, x)
    for row in range(4):
        some = x[row, : row + 1][x[row, : row + 1] > 0]
        assert n[row] == len(some)
        np.testing.assert_allclose(m[row], some.mean() if len(some) else 0.0)
        np.testing.assert_allclose(q[row], ((some - some.mean()) ** 2).sum() if len(some) else 0.0)


def test_nothing_gives_the_identity() -> None:
    s, v = np.zeros((2, 0)), np.zeros((0, 3))
    op = dt.op("m[i], s[i], o[i,d] = online(S[i,j], 1.0, V[j,d])", reducers={"online": ONLINE})
    m, total, o = dt.interpret(op, s, v)
    assert (m == -inf).all() and (total == 0).all() and o.shape == (2, 3) and (o == 0).all()


def test_types_are_those_of_a_sum() -> None:
    add = dt.reducer(lambda a, b: a + b, 0.0)
    op = dt.op("y[i] = add(x[i,j])", reducers={"add": add})
    for given, wanted in (("f2", "f2"), ("f4", "f4"), ("f8", "f8"), ("i1", "i4"), ("u2", "i4")):
        x = np.full((1, 3000), 1, given)
        got = dt.interpret(op, x)
        assert got.dtype == np.dtype(wanted) and got[0] == 3000
    greatest = dt.op(
        "y[i] = top(x[i,j])", reducers={"top": dt.reducer(lambda a, b: dt.max(a, b), -inf)}
    )
    got = dt.interpret(greatest, np.full((1, 2), -7, "i4"))
    assert got.dtype == np.int32 and got[0] == -7


def test_a_literal_takes_the_type_of_what_it_is_combined_with() -> None:
    op = dt.op("m[i], s[i], o[i,d] = online(S[i,j], 1.0, V[j,d])", reducers={"online": ONLINE})
    results = dt.interpret(op, np.zeros((2, 3), "f"), np.zeros((3, 4), "f"))
    assert [r.dtype for r in results] == [np.float32] * 3


# -- errors, whole


def message(text: str) -> str:
    with pytest.raises(dt.Error) as caught:
        dt.op(text)
    return str(caught.value).split(": ", 1)[1].split("\n")[0]


PAIR = "reducer p(a, c; b, e) = a * b, c + e from 1.0, 0.0\n"
ONE = "reducer f(a; b) = a + b from 0.0\n"
NEEDY = "reducer p(a, c; b, e) = a * e + b, c * e from 0.0, 1.0 ordered\n"
ERRORS = {
    PAIR + "y[i] = p(x[i,j], 1.0)": "p gives 2 results together; write a[...], c[...] = p(...)",
    PAIR + "y[i] = p(x[i,j])": "p combines 2 at a time, got 1",
    ONE + "y[i] = f(x[i,j], 1.0)": "f combines 1 at a time, got 2",
    PAIR + "u[i], v[i], w[i] = p(x[i,j], 1.0)": (
        "p has 2 components, and there are 3 tensors on the left"
    ),
    PAIR + "u[i], v[i] = p(x[i,j])": "p has 2 components, and there are 1 arguments",
    PAIR + "u[i], v[i] = q(x[i,j], 1)": (
        "several tensors are defined at once by a reducer of as many components, which q is not"
    ),
    PAIR + "u[i], u[i] = p(x[i,j], 1.0)": (
        "u stands twice on the left; p gives 2 results, each a tensor of its own"
    ),
    PAIR + "u[i], v[i,j] = p(x[i,j], 1.0, over=j)": (
        "p reduces over j, which the equation itself runs over; use another name"
    ),
    PAIR + "u[i], v[i] = p(x[i], 1.0)": (
        "p reduces over nothing: its indices are on the left; name its index with over="
    ),
    PAIR + "u[i], v[i,d] = p(x[i,j], y[j,d], where=d < j)": (
        "p combines the same instances into each of u, v, and index d, which chooses them, is not "
        "an index of all"
    ),
    PAIR + "u[i], v[i] = p(x[i,j], y[j,d], over=j)": (
        "index d is not on the left, and p reduces over (j) only; add it to over="
    ),
    PAIR + "u[i], v[i] = p(x[i,j], u[i])": (
        "u is read by the reduction that defines it; read it in a later equation"
    ),
    PAIR + "u[i], v[i] = p(x[i,j], 1.0, dtype=f32)": (
        "p keeps the types of what it combines; to have another type cast that: f32(...)"
    ),
    ONE + ONE + "y[i] = f(x[i,j])": "reducer f is defined twice",
    "reducer f(a; b, c) = a + b from 0.0\ny[i] = f(x[i,j])": (
        "f has 1 value before ';' and 2 after; expected as many, each of another name"
    ),
    "reducer f(a; b) = a + b, a from 0.0\ny[i] = f(x[i,j])": (
        "f has 1 component, 2 results and 1 in its identity"
    ),
    "reducer f(a; b) = a + c from 0.0\ny[i] = f(x[i,j])": (
        "f combines scalars: it may use a, b and numbers only"
    ),
    "reducer f(a; b) = a + b from x\ny[i] = f(x[i,j])": "the identity of f is made of numbers",
    "reducer f(a; b) = a - b from 0.0\ny[i] = f(x[i,j])": (
        "f: combine(0, 3) is -3; with the identity 0 it should be 3"
    ),
}


@pytest.mark.parametrize("text", ERRORS)
def test_errors(text: str) -> None:
    assert message(text) == ERRORS[text]


def test_a_component_may_need_only_what_has_its_indices() -> None:
    assert message(NEEDY + "u[i], v[i,d] = p(x[i,j], y[j,d])") == (
        "u is combined from v, which has index d and u has not; a component of p may need only "
        "components whose indices it has"
    )


def test_laws_are_tried() -> None:
    assert message("reducer f(a; b) = a + b + a * a * b * b from 0.0\ny[i] = f(x[i,j])") == (
        "f: combine is not associative: combine(combine(3, 2), 2) is 6767, "
        "combine(3, combine(2, 2)) is 3623; what depends on all before it in order is a recurrence"
    )
    text = "reducer p(a, c; b, e) = a * e + b, c * e from 0.0, 1.0{}\nu[i], v[i] = p(x[i,j], 2.0)"
    assert message(text.format("")) == (
        "p: combine is not commutative: combine((3, 2), (2, 2)) is (8, 4), combine((2, 2), (3, 2)) "
        "is (7, 4); say commutative=False (in text: ordered, at the end of its line)"
    )
    assert dt.op(text.format(" ordered"))


WRONG: dict[str, Callable[[], Any]] = {
    "combine is 3; expected a function of two values, lambda a, b: ...": lambda: dt.reducer(
        3,  # type: ignore[arg-type]
        0.0,
    ),
    "fold: combine takes the two values that it combines: lambda a, b: ...": lambda: dt.reducer(
        lambda a: a,  # type: ignore[arg-type, misc]
        0.0,
    ),
    "reducers= has 3 for f; expected dt.reducer(...)": lambda: dt.op(
        "y[i] = f(x[i,j])", reducers={"f": 3}
    ),
}


@pytest.mark.parametrize("text", WRONG)
def test_what_is_no_reducer(text: str) -> None:
    with pytest.raises(dt.OpError) as caught:
        WRONG[text]()
    assert str(caught.value).split(": ", 1)[1].split("\n")[0] == text
