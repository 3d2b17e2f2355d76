"""dt.check_grads: it accepts right derivatives of anything, and says what is wrong of others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import diptych as dt
import numpy as np
import pytest
from diptych import gradient_check
from diptych.autodiff import differentiable

RNG = np.random.default_rng(0)
DENSE = dt.op("y[n,f] = sum(x[n,d] * w[d,f])", name="dense")
SOFTMAX = dt.op("""
softmax(x: f32[I, J]) -> m, y:
    m[i]   = argmax(x[i,j])
    y[i,j] = f32(exp(x[i,j])) / sum(exp(x[i,l]))
""")
W, X = (np.float32(RNG.standard_normal(shape)) for shape in ((3, 4), (2, 3)))


def model(params: dict[str, Any], x: Any) -> Any:
    best, y = SOFTMAX(DENSE(x, params["w"]))
    return {"y": y * y + params["b"], "best": best, "b": params["b"]}


ARGS = ({"w": W, "b": np.float32(RNG.standard_normal((2, 4)))}, X)


@pytest.mark.parametrize("interpreted", [False, True])
@pytest.mark.parametrize("order", [1, 2])
def test_right_derivatives(interpreted: bool, order: int) -> None:
    dt.check_grads(DENSE, (X, W), order=order, interpreted=interpreted)
    dt.check_grads(SOFTMAX, (W,), "x", order=order, interpreted=interpreted)
    for function in (model, dt.program(model)):
        dt.check_grads(function, ARGS, order=order, interpreted=interpreted)
        dt.check_grads(function, ARGS, "params", order=order, interpreted=interpreted)


def test_large_arguments_move_along_random_directions() -> None:
    calls = []
    op = dt.op("y[] = sum(x[i] * x[i] * x[i])")
    check = dt.check_grads

    def counted(x: Any) -> Any:
        calls.append(x)
        return op(x)

    check(counted, (RNG.standard_normal(10_000),))
    assert len(calls) == 1  # the trace
    check(op, (RNG.standard_normal(10_000),), interpreted=True)


def test_every_float_type_is_made_f64() -> None:
    """An f32 operator cannot be right to 1e-6 in f32, nor one that rounds to bf16 on its way."""
    op = dt.op("f(x: f32[N], b: bf16[N]) -> y:\n y[i] = bf16(exp(x[i])) * b[i] + f16(x[i])")
    bits = np.array([0x3F80, 0x4000, 0xC040], np.uint16)
    dt.check_grads(op, (np.float32([0.1, -0.7, 1.3]), bits), order=2)


def wrong(text: str, of: str) -> Callable[..., Any]:
    """`adjoint` or `tangent`, with a wrong operator for the first it is asked for."""
    found = dt.op(text)
    return lambda op, wrt: found


SQUARE = dt.op("y[i] = x[i] * x[i]")
AT = (np.array([1.0, 2.0]),)


def refused(function: Any, args: Any, *more: Any, **options: Any) -> str:
    with pytest.raises(dt.GradientError) as caught:
        dt.check_grads(function, args, *more, **options)
    return str(caught.value)


def near(text: str, start: str, got: float, middle: str, wanted: float, end: str) -> None:
    """The text is these parts, with numbers near these between them."""
    assert text.startswith(start)
    first, rest = text[len(start) :].split(middle)
    second, tail = rest[: len(rest) - len(end)], rest[len(rest) - len(end) :]
    assert tail == end
    assert float(first) == pytest.approx(got, abs=1e-6)
    assert float(second) == pytest.approx(wanted, abs=1e-6)


def test_a_wrong_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    op = dt.op("wrong(x: [N], dy: [N]) -> dx:\n dx[i] = dy[i] * x[i]")
    monkeypatch.setattr(differentiable, "adjoint", lambda *_: op)
    g = np.random.default_rng(0).standard_normal(2)
    near(refused(SQUARE, AT), "gradient of y by x: ", g[0],
         " at x[0], central differences give ", 2 * g[0], f"\n{op.text}")  # fmt: skip


def test_a_wrong_gradient_of_a_large_argument(monkeypatch: pytest.MonkeyPatch) -> None:
    op = dt.op("wrong(x: [N], dy: [N]) -> dx:\n dx[i] = dy[i] * x[i]")
    monkeypatch.setattr(differentiable, "adjoint", lambda *_: op)
    rng = np.random.default_rng(0)
    g, _, v = rng.standard_normal(100), rng.standard_normal(100), rng.standard_normal(100)
    near(refused(SQUARE, (np.ones(100),)), "gradient of y by x: ", g @ v,
         " along a random direction, central differences give ", 2 * g @ v,
         f"\n{op.text}")  # fmt: skip


@pytest.mark.parametrize(("elements", "parts"), [(0, []), (40, [5, 3]), (1 << 16, [8])])
def test_the_interpreter_is_given_many_arguments_at_once(
    monkeypatch: pytest.MonkeyPatch, elements: int, parts: list[int]
) -> None:
    """Each element of x and y is moved up and down; v depends on neither."""
    op = dt.op("f(x: [2], y: [2], z: [4]) -> u, v:\n u[i] = x[i] * y[i] * z[i+1]\n v[i] = z[i] / 2")
    args = (np.array([1.0, 2.0]), np.array([3.0, 4.0]), np.arange(1, 5))
    given: list[tuple[int, ...]] = []
    interpret = gradient_check.interpret

    def counted(op: Any, *arrays: Any) -> Any:
        given.append(arrays[1].shape)
        return interpret(op, *arrays)

    monkeypatch.setattr(gradient_check, "AT_ONCE", elements)
    monkeypatch.setattr(gradient_check, "interpret", counted)
    dt.check_grads(op, args, modes="reverse", interpreted=True)
    assert given[3:] == ([(n, 2) for n in parts] or [(2,)] * 8)
    bad = dt.op("f(x: [2], y: [2], z: [4], du: [2], dv: [4]) -> dx, dy:\n"
                " dx[i] = du[i] * y[i] * z[i+1]\n dy[i] = du[i] * x[i] * z[1]")  # fmt: skip
    monkeypatch.setattr(differentiable, "adjoint", lambda *_: bad)
    du = np.random.default_rng(0).standard_normal(2)[1]
    near(refused(op, args, modes="reverse", interpreted=True), "gradient of f by y: ", 4 * du,
         " at y[1], central differences give ", 6 * du, f"\n{bad.text}")  # fmt: skip


def test_a_wrong_tangent(monkeypatch: pytest.MonkeyPatch) -> None:
    op = dt.op("wrong(x: [N], dx: [N]) -> dy:\n dy[i] = where(i < 1, 2, 3) * x[i] * dx[i]")
    monkeypatch.setattr(differentiable, "tangent", lambda *_: op)
    rng = np.random.default_rng(0)
    _, v = rng.standard_normal(2), rng.standard_normal(2)
    near(refused(SQUARE, AT, modes="forward"), "tangent of y: ", 6 * v[1],
         " at y[1] along a random direction of x, central differences give ", 4 * v[1],
         f"\n{op.text}")  # fmt: skip


def test_modes_that_do_not_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is near the differences, to the tolerance, but they are not of one function."""
    op = dt.op("off(x: [N], dx: [N]) -> dy:\n dy[i] = 2.0000002 * x[i] * dx[i]")
    monkeypatch.setattr(differentiable, "tangent", lambda *_: op)
    text = refused(SQUARE, AT)
    assert text.startswith("gradient of y by x: <J v, g> is ")
    assert " by its tangent, <v, J' g> is " in text
    assert text.split("\n", 1)[1] == f"{SQUARE.gradient('x').text}\n{op.text}"


def test_wrong_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    op = dt.op("wrong(x: [N], dy: [N]) -> dx:\n dx[] = sum(dy[i] * x[i])")
    with monkeypatch.context() as patched:
        patched.setattr(differentiable, "adjoint", lambda *_: op)
        assert refused(SQUARE, AT) == (
            f"gradient of y by x: its shape is (), that of x is (2,)\n{op.text}"
        )
    op = dt.op("wrong(x: [N], dx: [N]) -> dy:\n dy[] = sum(dx[i] * x[i])")
    monkeypatch.setattr(differentiable, "tangent", lambda *_: op)
    assert refused(SQUARE, AT) == (
        f"tangent of y: the shape of that of y is (), that of y is (2,)\n{op.text}"
    )


@pytest.mark.parametrize("mode", ["reverse", "forward"])
def test_large_third_derivatives_are_no_mistake(mode: str) -> None:
    """Central differences err by 4.5e-4 here, and may by 3e-4; extrapolated ones by 1e-9."""
    dt.check_grads(dt.op("y[i] = sin(300 * x[i])"), [np.linspace(0, 0.02, 9)], modes=mode)


LARGE = [
    "y[i] = exp(30 * x[i])",
    "y[] = sum(exp(30 * x[i]))",
    "y[] = sum(x[i]) + 1e20",
    "y[i] = x[i] + 1e7",
    "y[i] = 1e10 * x[i]**2 + x[0]",
]


@pytest.mark.parametrize("interpreted", [False, True])
@pytest.mark.parametrize("text", LARGE)
def test_large_results_are_no_mistake_of_small_ones(text: str, interpreted: bool) -> None:
    """Of x[0] differences of what x[1] makes large say nothing, or little."""
    dt.check_grads(dt.op(text), (np.array([-0.4, 0.9]),), order=2, interpreted=interpreted)


@pytest.mark.parametrize("mode", ["reverse", "forward"])
def test_an_infinite_result_that_stays_is_no_mistake(mode: str) -> None:
    op = dt.op("f(x: [N], z: [N]) -> y, v:\n y[i] = x[i]**2\n v[i] = log(z[i])")
    dt.check_grads(op, (np.ones(2), np.array([0.5, 0.0])), "x", modes=mode)


def test_beside_large_results_mistakes_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """dy[1] in dx[0] is less than what rounding takes of y[1], which x[0] does not move."""
    op = dt.op("wrong(x: [2], dy: [2]) -> dx:\n"
               " dx[i] = 30 * dy[i] * exp(30 * x[i]) + where(i < 1, 0.001 * dy[1], 0)")  # fmt: skip
    monkeypatch.setattr(differentiable, "adjoint", lambda *_: op)
    g = np.random.default_rng(0).standard_normal(2)
    slope = 30 * g[0] * np.exp(-9)
    near(refused(dt.op("y[i] = exp(30 * x[i])"), (np.array([-0.3, 0.9]),)),
         "gradient of y by x: ", slope + 0.001 * g[1],
         " at x[0], central differences give ", slope, f"\n{op.text}")  # fmt: skip


def test_a_mistake_by_what_data_places(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounding is asked for where v is NaN, and x is read outside there."""
    op = dt.op("wrong(x: f64[N], v: f64[M], dy: f64[M]) -> dv:\n dv[i] = 0 * v[i] * dy[i] * x[0]")
    monkeypatch.setattr(differentiable, "adjoint", lambda *_: op)
    read = dt.op("f(x: f64[N], v: f64[M]) -> y:\n y[i] = x[i64(v[i])-2] * v[i]")
    text = refused(read, (np.ones(3), np.array([2.5])), "v", modes="reverse")
    g = np.random.default_rng(0).standard_normal()
    near(text, "gradient of f by v: ", 0.0,
         " at v[0], central differences give ", g, f"\n{op.text}")  # fmt: skip


def test_a_kink_is_named() -> None:
    op = dt.op("y[i] = max(x[i], 0) + max(0.5 * x[i], 0)")
    text = refused(op, (np.array([1.0, 4e-6]),))
    assert text.split("\n", 1) == [
        text.split("\n", 1)[0], op.gradient("x").text
    ]  # fmt: skip
    assert "gradient of y by x: " in text and " at x[1], central differences give " in text
    assert text.split("\n")[0].endswith("differ, so this may be a kink: check at another point")


def test_of_a_program(monkeypatch: pytest.MonkeyPatch) -> None:
    real = differentiable.pulled

    def doubled(pairs: Any, wrt: Any) -> Any:
        return [2 * value for value in real(pairs, wrt)]

    monkeypatch.setattr(differentiable, "pulled", doubled)
    text = refused(lambda x: x * x, AT)
    assert text.startswith("gradient of <lambda> by x: ")
    assert " at x[0], central differences give " in text
    assert "program <lambda>" in text


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"order": 1.5}, "an order of at least 1, 1.5 came"),
        ({"order": "2"}, "an order of at least 1, '2' came"),
        ({"step": -1}, "a step greater than 0, -1 came"),
        ({"tolerance": "a"}, "a tolerance greater than 0, 'a' came"),
        ({"elements": 1.5}, "elements of at least 0, 1.5 came"),
    ],
)
def test_options_that_are_none(options: dict[str, Any], text: str) -> None:
    assert refused(SQUARE, AT, **options) == f"check_grads: expected {text}"


@pytest.mark.parametrize("sizes", [(3, 2), (2, 3), (0, 2), (2, 0), (1, 4)])
@pytest.mark.parametrize(
    "text",
    [
        "q[] = sum(sin(x[i] * z.zero[i]), over=(i in 0:T))",
        "q[] = prod(x[i] * where(i < S, z[i], 0), over=(i in 0:T))",
        "q[e] = sum(tanh(x[r] + z.zero[e]), over=(r in 0:T)) where e in 0:T",
    ],
)
def test_reads_beyond_the_end_of_what_has_another_size(text: str, sizes: tuple[int, int]) -> None:
    op = dt.op(f"f(x: [T], z: [S]) -> q:\n {text}")
    x, z = (np.linspace(0.2, 0.9, size) for size in sizes)
    dt.check_grads(op, (x, z), order=2)
