"""Operators as functions of torch tensors; nothing here runs where torch is absent."""

from __future__ import annotations

import copy
import gc
import pickle
import subprocess
import sys
import weakref
from dataclasses import replace
from typing import Any

import diptych as dt
import numpy as np
import pytest

torch = pytest.importorskip("torch")

SOFTMAX = dt.op(
    "m[i] = max(x[i,j])\ne[i,j] = exp(x[i,j] - m[i])\ny[i,j] = e[i,j] / sum(e[i,l])",
    name="softmax",
    returns="y",
)
SEVERAL = dt.op(
    "several(x, w, n) -> a, c, b:\n  a[i] = sum(x[i,k] * w[k]) * n[i]\n  c[i] = n[i] * 2\n"
    "  b[] = sum(x[i,k] * x[i,k] * w[k])"
)
WAVE = dt.op("y[i] = sin(x[i]) * x[i]", name="wave")
DENSE = dt.op("y[n,f] = sum(x[n,d] * w[d,f])", name="dense")
FLAT = dt.op("flat(x: [H, W]) -> y:\n  y[n] = x[n//W, n%W] ** 3 where n in 0:H*W")
N = torch.tensor([1, 2, 3], dtype=torch.int32)


def rand(*shape: int, dtype: Any = torch.float64) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=dtype)


def wanted(*shape: int) -> Any:
    return rand(*shape).requires_grad_()


SEVERALLY = dt.torch(SEVERAL)
CASES = {
    "one result": (dt.torch(SOFTMAX), lambda: (wanted(3, 4),)),
    "several results": (lambda x, w: SEVERALLY(x, w, N)[::2], lambda: (wanted(3, 4), wanted(4))),
    "one of several": (lambda x, w: SEVERALLY(x, w, N)[2], lambda: (wanted(3, 4), wanted(4))),
    "by some inputs": (lambda x, w: SEVERALLY(x, w, N)[::2], lambda: (rand(3, 4), wanted(4))),
    "strides": (lambda x: dt.torch(SOFTMAX)(x.t()[:, ::2]), lambda: (wanted(5, 3),)),
    "expanded": (lambda x: dt.torch(SOFTMAX)(x.expand(3, 4)), lambda: (wanted(1, 4),)),
    "sizes as numbers": (dt.torch(FLAT), lambda: (wanted(2, 3),)),
    "dynamic": (dt.torch(SOFTMAX.dynamic(I=8)), lambda: (wanted(3, 4),)),
    "scheduled": (dt.torch(WAVE.schedule().vectorize("i", 4)), lambda: (wanted(6),)),
    "with a schedule": (dt.torch(WAVE.with_schedule(WAVE.schedule())), lambda: (wanted(6),)),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_gradients_of_both_modes_and_orders(case: Any) -> None:
    function, inputs = case
    assert torch.autograd.gradcheck(function, inputs(), check_forward_ad=True)
    assert torch.autograd.gradgradcheck(function, inputs(), check_fwd_over_rev=True)


def test_values_are_torchs() -> None:
    x = rand(3, 4)
    torch.testing.assert_close(dt.torch(SOFTMAX)(x), torch.softmax(x, 1))
    a, c, b = dt.torch(SEVERAL)(x, n=N, w=wanted(4))
    assert a.requires_grad and b.requires_grad and not c.requires_grad
    assert c.dtype is torch.int32 and c.tolist() == [2, 4, 6] and b.shape == ()
    with torch.no_grad():
        assert not dt.torch(WAVE)(wanted(3)).requires_grad


def test_third_derivatives() -> None:
    x = wanted(5)
    y = dt.torch(WAVE)(x).sum()
    for _ in range(3):
        (y,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    torch.testing.assert_close(y, -3 * torch.sin(x) - x * torch.cos(x))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_other_floats(dtype: Any) -> None:
    x = rand(3, 4, dtype=torch.float32).to(dtype).requires_grad_()
    y = dt.torch(SOFTMAX)(x)
    (y * y).sum().backward()
    like = x.detach().double().requires_grad_()
    (torch.softmax(like, 1) ** 2).sum().backward()
    assert y.dtype is dtype and x.grad.dtype is dtype
    error = 4 * torch.finfo(dtype).eps
    torch.testing.assert_close(y.double(), torch.softmax(like, 1), rtol=error, atol=0)
    torch.testing.assert_close(x.grad.double(), like.grad, rtol=0, atol=error)


def test_bf16_under_a_schedule() -> None:
    x = rand(9).to(torch.bfloat16)
    for function in (schedule := WAVE.schedule().vectorize("i", 8), WAVE.with_schedule(schedule)):
        assert dt.torch(function)(x).equal(dt.torch(WAVE)(x))


def test_memory_is_shared() -> None:
    seen: list[Any] = []

    class Watched(type(WAVE.with_schedule(WAVE.schedule()))):  # type: ignore[misc]
        def __call__(self, *arrays: Any, out: Any = None, **named: Any) -> Any:
            found = super().__call__(*arrays, out=out, **named)
            seen.extend((*arrays, found))
            return found

    x = rand(6)
    y = dt.torch(Watched(WAVE, None))(x)
    assert [a.ctypes.data for a in seen] == [x.data_ptr(), y.data_ptr()]


def test_numbers_and_arrays_beside_tensors() -> None:
    scale = dt.torch(dt.op("y[i] = x[i] * s", name="scale"))
    x = torch.ones(3, requires_grad=True)
    y = scale(x, 2.0)
    y.sum().backward()
    assert y.dtype is torch.float32 and x.grad.tolist() == [2, 2, 2]
    assert scale(np.ones(3), s=torch.tensor(3.0, dtype=torch.float64)).tolist() == [3, 3, 3]
    assert scale(x.detach(), x.detach().conj().sum()).tolist() == [3, 3, 3]


class Layer(torch.nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self) -> None:
        super().__init__()
        self.w = torch.nn.Parameter(rand(4, 3))
        self.dense = dt.torch(DENSE)

    def forward(self, x: Any) -> Any:
        return self.dense(x, w=self.w)


def test_inside_a_module_that_trains_and_is_copied() -> None:
    layer, x, y = Layer(), rand(8, 4), rand(8, 3)
    for twin in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert twin(x).equal(layer(x))
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        loss = ((layer(x) - y) ** 2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 2


def test_functional_transforms() -> None:
    wave, x = dt.torch(WAVE), rand(4)
    by_x = torch.func.grad(lambda x: wave(x).sum())
    torch.testing.assert_close(by_x(x), torch.sin(x) + x * torch.cos(x))
    _, second = torch.func.jvp(by_x, (x,), (torch.ones_like(x),))
    torch.testing.assert_close(second, 2 * torch.cos(x) - x * torch.sin(x))


RNN = dt.op(
    "h[0,d] = h0[d]\nh[t,d] = tanh(x[t,d] + sum(U[d,e] * h[t-1,e])) where t in 1:T",
    name="rnn",
    returns="h",
)
SQUARE = dt.op("square(x: [N]) -> y:\n  y[i] = x[i] * x[i]")
SQUARE.defvjp("dx[i] = 3 * x[i] * dy[i]")  # of no function, so that it is seen where it is used

BATCHES = {
    "one index more": (WAVE, (rand(3, 5),), (0,)),
    "some batched": (DENSE, (rand(3, 4), rand(2, 4, 5)), (None, 0)),
    "others batched": (DENSE, (rand(3, 4, 2), rand(4, 5)), (2, None)),
    "temporaries": (SOFTMAX, (rand(2, 3, 4),), (0,)),
    "recurrence": (RNN, (rand(3), rand(2, 4, 3), rand(3, 3)), (None, 0, None)),
    "several results": (SEVERAL, (rand(3, 4, 2), rand(4), N), (2, None, None)),
    "sizes as numbers": (FLAT, (rand(2, 4, 3),), (0,)),
    "dynamic": (SOFTMAX.dynamic(I=8), (rand(2, 3, 4),), (0,)),
    "scheduled": (WAVE.schedule().vectorize("i", 4), (rand(3, 6),), (0,)),
    "rules": (SQUARE, (rand(3, 6),), (0,)),
    "no element": (WAVE, (rand(0, 5),), (0,)),
}  # fmt: skip


@pytest.mark.parametrize(("function", "args", "dims"), BATCHES.values(), ids=BATCHES.keys())
def test_batches_are_what_their_elements_are(function: Any, args: Any, dims: Any) -> None:
    f = dt.torch(function)
    found = torch.vmap(f, dims)(*args)
    found = found if isinstance(found, tuple) else (found,)
    along = next(n for n, d in enumerate(dims) if d is not None)
    for n in range(args[along].shape[dims[along]]):
        each = [x if d is None else x.select(d, n) for x, d in zip(args, dims, strict=True)]
        wanted = f(*each)
        wanted = wanted if isinstance(wanted, tuple) else (wanted,)
        for have, want in zip(found, wanted, strict=True):
            torch.testing.assert_close(have[n], want)


def test_batches_of_batches_and_their_gradients() -> None:
    dense, x, w = dt.torch(DENSE), rand(2, 3, 4, 5), rand(5, 2)
    twice = torch.vmap(torch.vmap(dense, (0, None)), (0, None))
    torch.testing.assert_close(twice(x, w), x @ w)
    (found,) = torch.autograd.grad(twice(x, w.requires_grad_()).sum(), w)
    torch.testing.assert_close(found, x.sum((0, 1, 2))[:, None].expand(5, 2))
    each = torch.vmap(torch.func.grad(lambda w, x: (dense(x, w) ** 2).sum()), (None, 0))
    torch.testing.assert_close(each(w.detach(), x[0]), 2 * x[0].mT @ (x[0] @ w.detach()))


def test_jacobians_and_hessians() -> None:
    wave, dense, x, w = dt.torch(WAVE), dt.torch(DENSE), rand(3, 4), rand(4, 5)
    for jacobian in (torch.func.jacrev, torch.func.jacfwd):
        torch.testing.assert_close(
            jacobian(dense, argnums=1)(x, w), jacobian(torch.matmul, argnums=1)(x, w)
        )
        torch.testing.assert_close(
            jacobian(dt.torch(SOFTMAX))(x), jacobian(lambda x: x.softmax(1))(x)
        )
    torch.testing.assert_close(
        torch.func.hessian(lambda x: (wave(x) ** 3).sum())(x[0]),
        torch.func.hessian(lambda x: ((x.sin() * x) ** 3).sum())(x[0]),
    )


def test_rules_hold_for_each_element_of_a_batch() -> None:
    f, x = dt.torch(SQUARE), rand(3, 6)
    for by in (lambda x: torch.vmap(f)(x).sum(), lambda x: sum(f(row).sum() for row in x)):
        torch.testing.assert_close(torch.func.grad(by)(x), 3 * x)
    each = torch.vmap(torch.func.grad(lambda x: f(x).sum()))
    torch.testing.assert_close(each(x), 3 * x)


def test_a_rule_that_is_given_later_counts_from_then_on() -> None:
    f, x = dt.op("f(x: [N]) -> y:\n  y[i] = x[i] ** 2"), wanted(3)
    run = dt.torch(f)
    for factor in (5, 7):
        f.defvjp(f"dx[i] = {factor} * x[i] * dy[i]")
        (found,) = torch.autograd.grad(run(x).sum(), x)
        torch.testing.assert_close(found, factor * x.detach())
        torch.testing.assert_close(torch.func.jacfwd(run)(x), torch.diag(factor * x.detach()))


def test_batches_as_before_torch_func_are_refused() -> None:
    y = dt.torch(WAVE)(x := wanted(3))
    with pytest.raises(dt.UnsupportedError) as error:
        torch.autograd.grad(y, x, torch.eye(3, dtype=x.dtype), is_grads_batched=True)
    assert str(error.value) == (
        "wave_dx: torch calls it for a batch in the way that preceded torch.func; instead of "
        "is_grads_batched, check_batched_grad or vectorize use torch.vmap, torch.func.jacrev or "
        "torch.func.jacfwd"
    )


@pytest.mark.parametrize("keep", [(), "h", {"h": 2}, None])
def test_what_is_kept_is_chosen(keep: Any) -> None:
    """Of every choice the results and all derivatives are the same."""
    f = dt.torch(RNN, keep=keep)
    f = pickle.loads(pickle.dumps(f))
    inputs = (wanted(3), wanted(4, 3), wanted(3, 3))
    assert torch.autograd.gradcheck(f, inputs, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(f, inputs)
    assert f(*inputs).shape == (4, 3)


LSTM = dt.op(
    "g[t,n,j] = sum(W[n,j,d] * x[t,d]) + sum(U[n,j,k] * h.zero[t-1,k]) where n in 0:4\n"
    "c[t,j] = sigmoid(g[t,0,j]) * c.zero[t-1,j] + sigmoid(g[t,1,j]) * tanh(g[t,2,j])\n"
    "h[t,j] = sigmoid(g[t,3,j]) * tanh(c[t,j])\ny[j] = sum(h[t,j]**2)",
    name="lstm",
    returns="y",
)


def test_some_steps_of_an_lstm_are_kept() -> None:
    T, H = 33, 4
    inputs = (wanted(4, H, 3), wanted(T, 3), wanted(4, H, H))
    found = []
    for keep, states in [({"h": 8, "c": 8}, 2 * 5), (("h", "c"), 2 * T)]:
        y = dt.torch(LSTM, keep=keep)(*inputs)
        saved = sum(x.numel() for x in y.grad_fn.saved_tensors if x is not None)
        assert saved == sum(x.numel() for x in inputs) + H * states
        found.append(torch.autograd.grad(y.sin().sum(), inputs))
    for one, two in zip(*found, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-10, atol=1e-12)


def test_of_what_is_kept_the_backward_pass_is_given_that() -> None:
    deep = dt.op("e[i] = exp(x[i])\ny[i] = sin(e[i]) * e[i]", name="deep", returns="y")
    x = wanted(4)
    saved = {keep: len(dt.torch(deep, keep=keep)(x).grad_fn.saved_tensors) for keep in ((), ("e",))}
    assert saved == {(): 2, ("e",): 3}


def test_inside_what_torch_compiles() -> None:
    wave, x = dt.torch(WAVE), wanted(4)
    compiled = torch.compile(lambda x: torch.relu(wave(x * 2)), backend="eager")
    torch.testing.assert_close(compiled(x), torch.relu(wave(x * 2)))
    (found,) = torch.autograd.grad(compiled(x).sum(), x)
    torch.testing.assert_close(found, *torch.autograd.grad(torch.relu(wave(x * 2)).sum(), x))


ERRORS: list[tuple[Any, type[Exception], str]] = [
    (torch.ones(3, device="meta"), dt.DeviceError,
     "wave: x is a tensor on meta; expected a dense tensor on the CPU; convert it with .cpu()"),
    (torch.ones(3).to_sparse(), dt.DeviceError,
     "wave: x is a tensor of layout torch.sparse_coo; expected a dense tensor on the CPU; convert "
     "it with .to_dense()"),
    (torch.ones(3).to(torch.float8_e5m2), dt.DTypeError,
     "tensors of float8_e5m2 are not supported; expected one of bool, i8, i16, i32, i64, "
     "u8, u16, u32, u64, f16, bf16, f32, f64"),
    (torch.ones(3, dtype=torch.complex64), dt.DTypeError,
     "wave: x: arrays of complex64 are not supported; expected one of bool, i8, i16, i32, i64, u8, "
     "u16, u32, u64, f16, bf16, f32, f64; pass its .real and .imag as two arrays"),
]  # fmt: skip


@pytest.mark.parametrize(("given", "kind", "text"), ERRORS)
def test_errors(given: Any, kind: type[Exception], text: str) -> None:
    with pytest.raises(kind) as error:
        dt.torch(WAVE)(given)
    assert str(error.value) == text


def test_torch_is_imported_when_it_is_used() -> None:
    code = (
        "import sys, numpy as np, diptych as dt; f = dt.op('y[i] = sin(x[i])'); f(np.ones(3));"
        "dt.vjp(f, np.ones(3)); dt.torch; print('torch' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True)
    assert run.stdout == "False\n", run.stderr


def test_a_function_is_what_it_was_whatever_it_was_called_for_before() -> None:
    """Calls are remembered by types; what is asked of each is looked at anew."""
    f, x = dt.torch(WAVE), rand(5)
    plain, slope = x.sin() * x, x.cos() * x + x.sin()
    for _ in range(2):
        assert not f(x).requires_grad
        leaf = x.clone().requires_grad_()
        with torch.no_grad():
            assert not f(leaf).requires_grad
        y = f(leaf)
        assert torch.allclose(y, plain)
        (found,) = torch.autograd.grad(y.sum(), leaf)
        assert torch.allclose(found, slope)
        with torch.autograd.forward_ad.dual_level():
            dual = f(torch.autograd.forward_ad.make_dual(x, torch.ones(5, dtype=x.dtype)))
            assert torch.allclose(torch.autograd.forward_ad.unpack_dual(dual).tangent, slope)
        assert torch.allclose(torch.func.grad(lambda v: f(v).sum())(x), slope)
        assert torch.allclose(f(torch.view_as_complex(torch.stack([x, -x], 1)).conj().imag), plain)
        assert f(x.float()).dtype is torch.float32 and f(x[:3]).shape == (3,)


def test_gradients_are_remembered_by_what_needs_them_and_by_shapes() -> None:
    f = dt.torch(DENSE)
    for n in (2, 3, 2):
        for by_x, by_w in ((True, False), (False, True), (True, True)):
            x, w = rand(n, 4).requires_grad_(by_x), rand(4, 5).requires_grad_(by_w)
            f(x, w).sum().backward()
            ones = torch.ones(n, 5, dtype=x.dtype)
            assert torch.allclose(x.grad, ones @ w.T) if by_x else x.grad is None
            assert torch.allclose(w.grad, x.T @ ones) if by_w else w.grad is None


PAIR = dt.op("f(x: [N], w: [N]) -> y, z:\n y[i] = exp(x[i])\n z[i] = exp(x[i]) * w[i]")


def test_what_no_gradient_reads_may_change_and_is_not_kept_alive() -> None:
    x, w = wanted(3, 4), wanted(4, 5)
    y = dt.torch(DENSE)(x, w)
    gone = weakref.ref(y)
    y += 1
    total = y.sum()
    del y
    gc.collect()
    assert gone() is None
    total.backward()
    assert torch.allclose(w.grad, x.detach().T @ torch.ones(3, 5, dtype=w.dtype))
    kept = dt.torch(SOFTMAX)(x)
    kept += 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        kept.sum().backward()


def test_second_derivatives_of_what_keeps_steps_and_changes_results() -> None:
    """The cotangents of what is kept read no result that is gone."""
    inputs = (wanted(4, 3, 2), wanted(7, 2), wanted(4, 3, 3))
    found = []
    for keep in (None, ("h", "c"), {"h": 3, "c": 3}):
        y = dt.torch(LSTM, keep=keep)(*inputs)
        y *= 2
        first = torch.autograd.grad(y.sum(), inputs, create_graph=True)
        found.append(torch.autograd.grad(sum(g.square().sum() for g in first), inputs))
    for second in found[1:]:
        for one, two in zip(found[0], second, strict=True):
            torch.testing.assert_close(one, two, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("results", [(0,), (1,), (0, 1)])
@pytest.mark.parametrize("by", [(0,), (1,), (0, 1)])
def test_some_cotangents_by_some_arguments(results: Any, by: Any) -> None:
    """What is kept is what all of them by all arguments read."""
    args = wanted(5), wanted(5) + 2
    ours = dt.torch(PAIR)(*args)
    theirs = torch.exp(args[0]), torch.exp(args[0]) * args[1]
    found, expected = (
        torch.autograd.grad(
            sum((y[n] ** 2).sum() for n in results), [args[n] for n in by],
            allow_unused=True, materialize_grads=True,
        )
        for y in (ours, theirs)
    )  # fmt: skip
    for a, b in zip(found, expected, strict=True):
        assert torch.allclose(a, b)


def test_less_that_comes_may_read_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then the gradient of all results by all arguments runs, and the rest is 0."""
    from diptych import torch_step

    plain = torch_step.Step._backward

    def reading_all(self: Any, saved: Any, came: Any, *rest: Any) -> Any:
        found = plain(self, saved, came, *rest)
        return found if all(came) else replace(found, read=frozenset(range(len(saved))))

    monkeypatch.setattr(torch_step.Step, "_backward", reading_all)
    x, w = wanted(5), wanted(5)
    dt.torch(dt.op(PAIR.text))(x, w)[1].sum().backward()
    assert torch.allclose(x.grad, torch.exp(x) * w) and torch.allclose(w.grad, torch.exp(x))


KEEPS = [
    (WAVE.schedule().vectorize("i", 4), "x",
     "torch of a schedule of wave: keep='x' is for operators alone; to keep more is to compute "
     "more, which the schedule does not know; give the operator, or leave keep out"),
    (FLAT, "y", "torch of flat: what keep='y' may name is known where W is a number; give "
     "flat.at(W=...)"),
    (RNN, "z", "gradient of rnn: it cannot keep z; expected some of h_sum"),
    (RNN, {"h": 0}, "keep={'h': 0}: expected names of tensors, or a dict from names to the number "
     "of steps of which one is kept, as {\"h\": 16}"),
]  # fmt: skip


@pytest.mark.parametrize(("function", "keep", "text"), KEEPS)
def test_what_cannot_be_kept(function: Any, keep: Any, text: str) -> None:
    with pytest.raises(dt.GradientError) as error:
        dt.torch(function, keep=keep)
    assert str(error.value) == text
