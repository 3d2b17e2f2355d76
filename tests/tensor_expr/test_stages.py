"""Stages: their form, and that running them one after the other is the operator."""

from __future__ import annotations

import numpy as np
import pytest
from diptych.algo.dtypes import f16, f32, i8, i64
from diptych.algo.tensor_expr.check import check
from diptych.algo.tensor_expr.expr import (
    Access,
    Call,
    Cast,
    Const,
    Expr,
    Index,
    Reduce,
    Size,
    walk,
)  # fmt: skip
from diptych.algo.tensor_expr.interpret import interpret
from diptych.algo.tensor_expr.joined import parts
from diptych.algo.tensor_expr.op import Equation, Kernel, Op, Param
from diptych.algo.tensor_expr.operations import OPERATIONS
from diptych.algo.tensor_expr.parse import parse
from diptych.algo.tensor_expr.printer import print_expr
from diptych.algo.tensor_expr.reducers import REDUCERS
from diptych.algo.tensor_expr.sizes import bind_sizes
from diptych.algo.tensor_expr.stages import kernel


def lines(made: Kernel) -> list[str]:
    """One line a stage: `C.update[i in 0:I, k in 0:K]: C[i] sum= A[i,k]`."""
    out = []
    for s in made.stages:
        ranges = ", ".join(f"{r.index} in {print_expr(r.lo)}:{print_expr(r.hi)}" for r in s.ranges)
        where = "" if s.where is None else f" where {print_expr(s.where)}"
        cell = print_expr(Access(s.tensor, s.lhs))
        out.append(f"{s.name}[{ranges}]{where}: {cell} {s.reducer or ''}= {print_expr(s.value)}")
    return out


def made(text: str, sizes=None, **dtypes) -> list[str]:
    return lines(kernel(check(parse(text)), dtypes, sizes))


def test_a_reduction_alone():
    assert made("C[i,j] = sum(A[i,k] * B[k,j])") == [
        "C.init[i in 0:I, j in 0:J]: C[i,j] = f32(0.0)",
        "C.update[i in 0:I, j in 0:J, k in 0:K]: C[i,j] sum= A[i,k] * B[k,j]",
    ]


def test_a_cast_is_a_final_stage():
    text = "C[i,j] = sum(A[i,k] * B[k,j])"
    assert made(text, {"I": 4, "J": 5, "K": 6}, A=f16, B=f16) == [
        "C.init[i in 0:4, j in 0:5]: C.acc[i,j] = f32(0.0)",
        "C.update[i in 0:4, j in 0:5, k in 0:6]: C.acc[i,j] sum= f32(A[i,k]) * f32(B[k,j])",
        "C.final[i in 0:4, j in 0:5]: C[i,j] = f16(C.acc[i,j])",
    ]


def test_an_epilogue_is_a_final_stage():
    assert made("y[i] = max(sum(x[i,k]) + b[i], 0)")[2] == (
        "y.final[i in 0:I]: y[i] = max(y.acc[i] + b[i], f32(0.0))"
    )


def test_a_reduction_over_fewer_indices_is_a_temporary():
    text = "m[i] = max(x[i,j])\ne[i,j] = exp(x[i,j] - m[i])\ny[i,j] = e[i,j] / sum(e[i,l])"
    assert made(text) == [
        "m.init[i in 0:I]: m[i] = f32(-inf)",
        "m.update[i in 0:I, j in 0:J]: m[i] max= x[i,j]",
        "e[i in 0:I, j in 0:J]: e[i,j] = exp(x[i,j] - m[i])",
        "y_sum.init[i in 0:I]: y_sum[i] = f32(0.0)",
        "y_sum.update[i in 0:I, l in 0:J]: y_sum[i] sum= e[i,l]",
        "y[i in 0:I, j in 0:J]: y[i,j] = e[i,j] / y_sum[i]",
    ]


def test_equal_reductions_are_shared_and_names_are_unique():
    text = "y_sum[i] = x[i,0]\ny[i] = sum(x[i,k]) * sum(x[i,k]) + max(x[i,k]) + y_sum[i]"
    assert made(text) == [
        "y_sum[i in 0:I]: y_sum[i] = x[i,0]",
        "y_sum_2.init[i in 0:I]: y_sum_2[i] = f32(0.0)",
        "y_sum_2.update[i in 0:I, k in 0:K]: y_sum_2[i] sum= x[i,k]",
        "y_max.init[i in 0:I]: y_max[i] = f32(-inf)",
        "y_max.update[i in 0:I, k_1 in 0:K]: y_max[i] max= x[i,k_1]",
        "y[i in 0:I]: y[i] = y_sum_2[i] * y_sum_2[i] + y_max[i] + y_sum[i]",
    ]


def test_nested_reductions():
    assert made("s = sum(A[i,k] * max(B[k,l]))") == [
        "s_max.init[k in 0:K]: s_max[k] = f32(-inf)",
        "s_max.update[k in 0:K, l in 0:L]: s_max[k] max= B[k,l]",
        "s.init[]: s[] = f32(0.0)",
        "s.update[i in 0:I, k in 0:K]: s[] sum= A[i,k] * s_max[k]",
    ]


def test_guards_go_with_what_they_guard():
    text = (
        "f(x: f32[N], w: f32[K]) -> y:\n"
        "    y[i] = where(i >= 1, sum(x[i-1] * w[k]), 0.0) where i in 0:N"
    )
    assert made(text) == [
        "y_sum.init[i in 0:N]: y_sum[i] = f32(0.0)",
        "y_sum.update[i in 0:N, k in 0:K] where i >= 1: y_sum[i] sum= x[i-1] * w[k]",
        "y[i in 0:N]: y[i] = where(i >= 1, y_sum[i], f32(0.0))",
    ]


def test_conditions_on_data_are_in_the_value():
    assert made("y = max(x[k] * w[k], where=w[k] > 0)") == [
        "y.init[]: y[] = f32(-inf)",
        "y.update[k in 0:K]: y[] max= where(w[k] > f32(0.0), x[k] * w[k], f32(-inf))",
    ]


def test_equalities_are_conditions_of_the_update():
    text = (
        "f(x: f32[N], g, w) -> q:\n"
        "    q[y] = sum(g[h] * w[r], over=(h, r), where=2*h + 3*r == y) where y in 0:N"
    )
    assert made(text, {"N": 10, "H": 3, "R": 2})[1] == (
        "q.update[y in 0:10, h in 0:3, r in 0:2] where 3 * r + 2 * h == y: q[y] sum= g[h] * w[r]"
    )


def test_scattering():
    assert made("H: [10]\nH[bin[n]] += x[n]", x=f16) == [
        "H.init[d0 in 0:10]: H.acc[d0] = f32(0.0)",
        "H.update[n in 0:N]: H.acc[bin[n]] sum= f32(x[n])",
        "H.final[d0 in 0:10]: H[d0] = f16(H.acc[d0])",
    ]
    assert made("H: [10, 3]\nH[bin[n], d] += x[n,d]", {"N": 4})[:2] == [
        "H.init[d0 in 0:10, d in 0:3]: H[d0,d] = f32(0.0)",
        "H.update[n in 0:4, d in 0:3]: H[bin[n],d] sum= x[n,d]",
    ]


def test_equations_of_one_tensor_are_numbered():
    assert made("c[0] = x[0]\nc[t] = c[t-1] + x[t]", {"T": 8}) == [
        "c.0[]: c[0] = x[0]",
        "c.1[t in 1:8]: c[t] = c[t-1] + x[t]",
    ]
    assert made("h[0,d] = h0[d]\nh[t,d] = tanh(x[t,d] + sum(U[d,e] * h[t-1,e]))")[1:] == [
        "h.1.init[t in 1:T, d in 0:D]: h.1.acc[t,d] = f32(0.0)",
        "h.1.update[t in 1:T, d in 0:D, e in 0:D]: h.1.acc[t,d] sum= U[d,e] * h[t-1,e]",
        "h.1.final[t in 1:T, d in 0:D]: h[t,d] = tanh(x[t,d] + h.1.acc[t,d])",
    ]


def test_two_reductions_of_a_recurrence_are_computed_in_its_loops():
    text = "h[0,d] = h0[d]\nh[t,d] = sum(U[d,e] * h[t-1,e]) * sum(V[d,e] * x[t,e])"
    made = kernel(check(parse(text)), {})
    assert [(s.name, s.joined) for s in made.stages] == [
        ("h.0", 0),
        ("h_sum_2.init", 0),  # needs nothing of h
        ("h_sum_2.update", 2),
        ("h_sum.init", 0),
        ("h_sum.update", 2),
        ("h.1", 1),
    ]


def test_tensors_have_roles_and_shapes():
    tensors = kernel(check(parse("y[i] = max(sum(x[i,k]) + b[i], 0)")), {}, {"K": 7}).tensors
    seen = {t.name: (t.role, [print_expr(e) for e in t.shape]) for t in tensors.values()}
    assert seen == {
        "y": ("output", ["I"]), "x": ("input", ["I", "7"]), "b": ("input", ["I"]),
        "y.acc": ("temp", ["I"]),
    }  # fmt: skip


def test_temporaries_of_shifted_indices_start_at_zero():
    text = "f(x: f32[N], w) -> s:\n s = sum(max(x[k+2] * w[l], over=l) * x[k+2])"
    rows = made(text, {"N": 5, "L": 2})
    assert rows[0] == "s_max.init[k in -2:3]: s_max[k+2] = f32(-inf)"


def value(expr: Expr, at: dict[str, int], arrays: dict[str, np.ndarray]):
    """One instance of a typed expression, in NumPy scalars."""
    match expr:
        case Const(v, None):
            return v
        case Const(v, dtype):
            return dtype.numpy.type(v)
        case Index(name):
            return at[name]
        case Access(tensor, indices):
            return arrays[tensor][tuple(int(value(i, at, arrays)) for i in indices)]
        case Cast(dtype, arg):
            return dtype.numpy.type(value(arg, at, arrays))
        case Call("where", (cond, yes, no)):
            return value(yes if value(cond, at, arrays) else no, at, arrays)
        case Call(op, args):
            return OPERATIONS[op].numpy(*(value(a, at, arrays) for a in args))
    raise AssertionError(expr)


def keys(stages, depth=0, before=lambda loops: []):
    """When the instances of each stage run, as lists of places and values of loops."""
    for place, part in enumerate(parts(stages, depth)):
        shared = min((s.joined for s in part[1:]), default=len(part[0].values))

        def key(loops, place=place, end=shared):
            return [*before(loops), place, *loops[depth:end]]

        if len(part) == 1:
            yield part[0], key
        else:
            yield from keys(part, shared, key)


def run(made: Kernel, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The stages one after the other, their instances in order."""
    arrays = dict(inputs)
    for t in made.tensors.values():
        if t.role != "input":
            shape = [e.value for e in t.shape]
            poison = np.nan if t.dtype.is_float else 77
            arrays[t.name] = np.full(shape, poison).astype(t.dtype.numpy)

    def instances(ranges, at):
        if not ranges:
            yield dict(at)
            return
        lo, hi = (int(value(e, at, arrays)) for e in (ranges[0].lo, ranges[0].hi))
        for v in range(lo, hi):
            yield from instances(ranges[1:], {**at, ranges[0].index: v})

    todo = []
    for stage, key in keys(made.stages):
        for at in instances(stage.ranges, {}):
            loops = [int(value(e, at, arrays)) for e in stage.values]
            todo.append((key(loops), len(todo), stage, at))
    for _, _, stage, at in sorted(todo, key=lambda t: t[:2]):
        if stage.where is not None and not value(stage.where, at, arrays):
            continue
        cell = tuple(int(value(i, at, arrays)) for i in stage.lhs)
        new = value(stage.value, at, arrays)
        if stage.reducer is not None:
            combine = OPERATIONS[REDUCERS[stage.reducer].combine].numpy
            new = combine(arrays[stage.tensor][cell], new)
        arrays[stage.tensor][cell] = new
    return arrays


AGREE = [
    ("C[i,j] = sum(A[i,k] * B[k,j])", {"A": (3, 4), "B": (4, 2)}, {}),
    ("C[i,j] = sum(A[i,k] * B[k,j])", {"A": (3, 4), "B": (4, 2)}, {"A": i8, "B": i8}),
    ("C[i,j] = sum(A[i,k] * B[k,j])", {"A": (3, 9), "B": (9, 2)}, {"A": f16, "B": f16}),
    ("C[i,j] = sum(A[i,k] * B[k,j])", {"A": (3, 0), "B": (0, 2)}, {}),
    ("m[i] = max(x[i,j])\ne[i,j] = exp(x[i,j] - m[i])\ny[i,j] = e[i,j] / sum(e[i,l])",
     {"x": (3, 5)}, {}),
    ("mu[i] = sum(x[i,j]) / J\nv[i] = sum((x[i,j] - mu[i]) ** 2) / J\n"
     "y[i,j] = (x[i,j] - mu[i]) / sqrt(v[i] + 1e-5) * g[j] + b[j]",
     {"x": (2, 6), "g": (6,), "b": (6,)}, {}),
    ("O[n,f,y,x] = sum(I[n,c,2*y+r,2*x+s] * W[f,c,r,s])", {"I": (1, 2, 7, 6), "W": (2, 2, 3, 2)},
     {}),
    ("O[y,x] = max(I[2*y+r,2*x+s]) where r in 0:2, s in 0:2", {"I": (5, 4)}, {}),
    ("y[b,d] = W[idx[b],d]", {"W": (4, 2), "idx": (5,)}, {}),
    ("H: [4]\nH[bin[n]] += 1", {"bin": (9,)}, {}),
    ("c[0] = x[0]\nc[t] = c[t-1] + x[t]", {"x": (9,)}, {}),
    ("f(g: f32[N]) -> d:\n d[N-1] = g[N-1]\n d[t] = g[t] + d[t+1] where t in 0:N-1",
     {"g": (6,)}, {}),
    ("h[0,d] = h0[d]\nh[t,d] = tanh(x[t,d] + sum(U[d,e] * h[t-1,e]))",
     {"h0": (3,), "x": (4, 3), "U": (3, 3)}, {}),
    ("f(x: f32[N], w: f32[K]) -> y:\n y[i] = where(i >= 1, sum(x[i-1] * w[k]), 0.0) where i in 0:N",
     {"x": (4,), "w": (3,)}, {}),
    ("y[i] = where(m[i] > 0, sum(x[k], where=k <= i), x[i] / 2)", {"m": (4,), "x": (4,)}, {}),
    ("f(x: f32[N], g: f32[H], w: f32[R]) -> q:\n"
     " q[y] = sum(g[h] * w[r], over=(h, r), where=2*h + 3*r == y) where y in 0:N",
     {"x": (11,), "g": (3,), "w": (3,)}, {}),
    ("y[i+k] += x[i] * w[k]", {"x": (4,), "w": (3,)}, {}),
    ("y[i] = sum(x[i,k]) * sum(x[i,k] * x[i,k]) + max(x[i,k])", {"x": (3, 4)}, {}),
    ("s = sum(A[i,k] * max(B[k,l]))", {"A": (2, 3), "B": (3, 4)}, {}),
    ("n = sum(x[i] > 0)\na = any(x[i] > 2)\nb = all(x[i] > -9)\np = prod(x[i])", {"x": (5,)}, {}),
]  # fmt: skip


@pytest.mark.parametrize(("text", "shapes", "dtypes"), AGREE)
def test_stages_agree_with_the_interpreter(text, shapes, dtypes):
    op, rng = parse(text), np.random.default_rng(5)
    checked = check(op)
    inputs = {}
    for p in op.params:
        given = i64 if p.name in ("idx", "bin") else dtypes.get(p.name, f32)
        drawn = (
            rng.integers(0, 4, shapes[p.name]) if given is i64 else rng.normal(0, 3, shapes[p.name])
        )
        inputs[p.name] = drawn.astype(given.numpy)
    types = {
        p.name: i64 if p.name in ("idx", "bin") else dtypes.get(p.name, f32) for p in op.params
    }
    sizes = bind_sizes(checked, {n: a.shape for n, a in inputs.items()})
    bound = kernel(checked, types, sizes)
    for stage in bound.stages:
        for e in (stage.value, *stage.lhs, *stage.ranges):
            assert not any(isinstance(item, (Reduce, Size)) for item in walk(e))
    got = run(bound, inputs)
    wanted = interpret(op, *inputs.values())
    for name, expected in zip(
        op.returns, wanted if isinstance(wanted, tuple) else (wanted,), strict=True
    ):
        assert got[name].dtype == expected.dtype
        np.testing.assert_allclose(
            got[name], expected, rtol=2e-3 if f16 in dtypes.values() else 1e-5
        )


def test_shared_parts_do_not_multiply_the_work():
    x = Access("x", (Index("i"),))
    squares, nested = x, x
    for _ in range(400):
        squares = Call("mul", (squares, squares))
        nested = Call("where", (Call("gt", (nested, Const(0.0))), nested, Call("neg", (nested,))))
    for rhs in (squares, nested):
        op = Op("f", (Param("x"),), (Equation("y", (Index("i"),), rhs),), ("y",))
        assert len(kernel(check(op), {}, {"I": 5}).stages) == 1


def test_long_sums_do_not_run_out_of_stack():
    rhs: Expr = Access("x", (Index("i"),))
    for n in range(3000):
        rhs = Call("add", (rhs, Access("x", (Call("add", (Index("i"), Const(n % 5))),))))
    op = Op("f", (Param("x"),), (Equation("y", (Index("i"),), rhs),), ("y",))
    made = kernel(check(op), {})
    assert made.tensors["y"].shape == (Call("sub", (Size("I"), Const(4))),)
