"""The whole text of every error of `check` and `bind_sizes`."""

from __future__ import annotations

import pytest
from diptych.algo.dtypes import TensorType
from diptych.algo.errors import OpError, ShapeError
from diptych.algo.tensor_expr.build import add, const
from diptych.algo.tensor_expr.check import check
from diptych.algo.tensor_expr.expr import Access, Call, Expr, Index, Range, Reduce, Size
from diptych.algo.tensor_expr.op import Equation, Op, Param
from diptych.algo.tensor_expr.parse import parse
from diptych.algo.tensor_expr.sizes import bind_sizes, evaluate, shape_of

i, j, n = Index("i"), Index("j"), Index("n")


def get(tensor: str, *indices: Expr) -> Access:
    return Access(tensor, indices)


def op(*equations: Equation, params: str = "x", returns: str = "y", dims=None, shapes=None) -> Op:
    made = tuple(Param(p, TensorType(None, dims)) for p in params.split())
    return Op("f", made, equations, tuple(returns.split()), shapes or {})


TEXT = [
    (
        "A[i] = B[i-1]",
        "output index i of A starts at 1, not at 0; shift it, or define the elements before by "
        "another equation\n    in A[i] = B[i-1] (<text>:1)",
    ),
    (
        "y[i] = where(i >= 1, x[i-1], 0)",
        "index i is used only where a condition guards the access; give it a range, as in "
        "`where i in 0:I`\n    in y[i] = where(i >= 1, x[i-1], 0) (<text>:1)",
    ),
    (
        "f(x: f32[N]) -> y:\n y[i] = where(i >= 1, x[i-1], 0) where i in 0:N+2",
        "x[i-1] reads outside x at i=2 at N=1: i - 1 is 1, and dim 0 of x has extent N = 1\n"
        "    in y[i] = where(i >= 1, x[i-1], 0) where i in 0:N+2 (<text>:2)",
    ),
    (
        "y[i] = 1.0",
        "nothing says how far index i goes; give it a range, as in `where i in 0:8`, or in 0:I "
        "where a header says that I is a size, as in `f(x: [I])`\n"
        "    in y[i] = 1.0 (<text>:1)",
    ),
    (
        "y[i,j] = x[i+j]",
        "no access determines one of the indices i, j alone; give it a range, as in "
        "`where i in 0:I`\n    in y[i,j] = x[i+j] (<text>:1)",
    ),
    (
        "y[i] = x[i%4]",
        "x[i%4] allows index i values that are not a range; give it one, as in `where i in 0:I`\n"
        "    in y[i] = x[i%4] (<text>:1)",
    ),
    (
        "f(x: f32[9]) -> y:\n y[i] = x[i%4]",
        "x[i%4] leaves index i unbounded; give it a range, as in `where i in 0:I`\n"
        "    in y[i] = x[i%4] (<text>:2)",
    ),
    (
        "f(x: f32[N], v: f32[W, R]) -> y:\n y[c,r] = x[r*W+c] * v[c,r]",
        "r * W is not affine while its sizes are symbols; it is an index into x; use f.at(W=...), "
        "the operator with a number there\n"
        "    in y[c,r] = x[r*W+c] * v[c,r] (<text>:2)",
    ),
    (
        "y[i] = sum(x[i,k], over=(k in 0:n[i],))",
        "n[i] depends on data, so it is not affine; it bounds index k\n"
        "    in y[i] = sum(x[i,k]) where k in 0:n[i] (<text>:1)",
    ),
    (
        "f(x: f32[3], z: f32[4]) -> y:\n y[i] = x[i] * z[i]",
        "index i: 3 from x dim 0, 4 from z dim 0\n    in y[i] = x[i] * z[i] (<text>:2)",
    ),
    (
        "y[2*i] = x[i]\ny[2*i+1] = z[i]",
        "y[3] at z_0=1, I=3 is never written\n    in y[2*i] = x[i] (<text>:1)",
    ),
    ("y[i//2] = x[i]", "y[0] at I=2 is written more than once\n    in y[i//2] = x[i] (<text>:1)"),
    (
        "y[i] = x[i]\ny[i] = z[i]",
        "y[0] at I=1 is written here and by equation 1 too\n    in y[i] = z[i] (<text>:2)",
    ),
    (
        "f(x: f32[N]) -> y:\n y[i] = x[i] where x[i] > 0",
        "the condition x[i] > 0 on which elements are written is not affine; put it on the right, "
        "as in where(condition, a, b)\n    in y[i] = x[i] where x[i] > 0 (<text>:2)",
    ),
    (
        "f(x: f32[N]) -> y:\n y[i] = x[i] where i < 3",
        "y[3] at N=4 is never written\n    in y[i] = x[i] where i < 3 (<text>:2)",
    ),
    (
        "H[bin[n]] += 1",
        "where bin[n] lies depends on data, so H needs declared extents, as in a line `H: [N]`\n"
        "    in H[bin[n]] += 1 (<text>:1)",
    ),
    (
        "H: [V]\nH[bin[n]] += 1",
        "size V is the extent of no input dimension; annotate an input with it",
    ),
    (
        "y[i] = x[i+1] where i in 0:Q",
        "size Q is the extent of no input dimension; annotate an input with it\n"
        "    in y[i] = x[i+1] where i in 0:Q (<text>:1)",
    ),
    (
        "f(x: f32[Y], g, w) -> d:\n d: [Y]\n d[2*h+3*r] += g[h] * w[r]",
        "d[2*h+3*r] writes outside d at h=0, r=1 at H=1, R=2, Y=1: 2 * h + 3 * r is 3, and dim 0 "
        "of d has extent Y = 1\n    in d[2*h+3*r] += g[h] * w[r] (<text>:3)",
    ),
    (
        "c[0] = x[0]\nc[t] = c[t-1] + c[t+1] + x[t]",
        "c[t+1] reads outside c at t=1 at T=2: t + 1 is 2, and dim 0 of c has extent T = 2\n"
        "    in c[t] = c[t-1] + c[t+1] + x[t] (<text>:2)",
    ),
    (
        "f(x: f32[N]) -> c:\n c[i] = c[N-1-i] + x[i]",
        "c[0] needs itself at N=1, so nothing can compute it\n"
        "    in c[i] = c[N-1-i] + x[i] (<text>:2)",
    ),
    (
        "c[i] = c[idx[i]] + x[i]",
        "c[idx[i]] reads its own tensor at a place that depends on data, so no order of "
        "computation is known\n    in c[i] = c[idx[i]] + x[i] (<text>:1)",
    ),
]


@pytest.mark.parametrize(("text", "message"), TEXT)
def test_operators_refused(text, message):
    with pytest.raises(OpError) as err:
        check(parse(text))
    assert str(err.value) == message


BUILT = [
    (
        op(Equation("y", (i,), get("x", i)), Equation("y", (i,), get("x", i), reducer="sum")),
        "y is accumulated, so a single equation may define it\n    in y[i] += x[i]",
    ),
    (
        op(Equation("y", (i,), add(get("y", i), get("x", i)), reducer="sum")),
        "y is accumulated, so its equation may not read it\n    in y[i] += y[i] + x[i]",
    ),
    (
        op(Equation("y", (get("x", i),), get("x", i)), shapes={"y": (const(4),)}),
        "where x[i] lies depends on data, so an element may be written twice or never; accumulate "
        "with +=, max= or min= instead\n    in y[x[i]] = x[i]",
    ),
    (
        op(Equation("y", (i,), get("x", i)), returns="z"),
        "f returns z, which no equation defines",
    ),
    (op(Equation("y", (i,), get("x", i)), params="x x"), "f has two inputs called x"),
    (
        op(Equation("x", (i,), get("x", i)), returns="x"),
        "x is an input, so no equation may define it\n    in x[i] = x[i]",
    ),
    (
        op(Equation("y", (i,), get("z", i))),
        "z is neither an input nor defined\n    in y[i] = z[i]",
    ),
    (
        op(Equation("y", (i,), get("z", i)), Equation("z", (i,), get("x", i))),
        "z is read here before its last equation; define it first\n    in y[i] = z[i]",
    ),
    (
        op(Equation("y", (i,), get("x", i, j))),
        "index j is not on the left and no reduction binds it; put it on the left, or reduce over "
        "it: sum(...)\n    in y[i] = x[i,j]",
    ),
    (
        op(Equation("y", (i,), Call("mul", (get("x", i), get("x", i, i))))),
        "x[i,i] has 2 indices, but x has 1 dimension\n    in y[i] = x[i] * x[i,i]",
    ),
    (
        op(Equation("y", (i,), get("x", i)), dims=("i",)),
        "i is both an index and a size; rename one",
    ),
]


@pytest.mark.parametrize(("made", "message"), BUILT)
def test_built_operators_refused(made, message):
    with pytest.raises(OpError) as err:
        check(made)
    assert str(err.value) == message


def test_a_largest_index_that_is_no_single_formula():
    far = Call("max", (i, Call("mul", (const(2), j))))
    made = op(
        Equation("y", (far,), get("x", i, j), reducer="sum"),
    )
    with pytest.raises(OpError) as err:
        check(made)
    assert str(err.value) == (
        "the largest max(i, 2 * j) is not one formula; declare the extents of y, as in a line "
        "`y: [N]`\n    in y[max(i, 2*j)] += x[i,j]"
    )


def test_given_ranges_of_a_reduction_are_used():
    body = Reduce("sum", ("k",), get("x", add(i, Index("k"))), (Range("k", const(0), const(3)),))
    checked = check(op(Equation("y", (i,), body)))
    assert checked.shapes["y"] == (Call("sub", (Size("x_0"), const(2))),)


SHAPES = [
    (
        "O[b,o,x] = sum(F[b,i,x]*W[i,o,x])",
        {"F": (12, 8192, 2), "W": (12, 8192, 2)},
        "index i: 8192 from F dim 1, 12 from W dim 0\n"
        "    in O[b,o,x] = sum(F[b,i,x] * W[i,o,x]) (<text>:1)",
    ),
    (
        "C[a] = A[a] * B[a]",
        {"A": (3,), "B": (3, 4)},
        "B has 2 dimensions (3, 4), but 1 dimension expected\n    in C[a] = A[a] * B[a] (<text>:1)",
    ),
    (
        "Q[a] = sum(X[a,a,b,c,b])",
        {"X": (3, 3, 4, 5, 6)},
        "index b: 4 from X dim 2, 6 from X dim 4\n    in Q[a] = sum(X[a,a,b,c,b]) (<text>:1)",
    ),
    (
        "D[i] = X[i,i]",
        {"X": (3, 4)},
        "index i: 3 from X dim 0, 4 from X dim 1\n    in D[i] = X[i,i] (<text>:1)",
    ),
    (
        "h[p] = sum(x[p+k] * w[k])\ny[p] = h[p] + res[p]",
        {"x": (10,), "w": (3,), "res": (9,)},
        "index p: 9 from res dim 0, but 8 = x_0 - K + 1 expected\n"
        "    in y[p] = h[p] + res[p] (<text>:2)",
    ),
    (
        "f(x: f32[3, N]) -> y:\n y[i] = x[1,i]",
        {"x": (4, 2)},
        "x dim 0 is 4, but 3 expected\n    in y[i] = x[1,i] (<text>:2)",
    ),
    (
        "f(x: f32[N], z: f32[N]) -> y:\n y[i] = x[i]",
        {"x": (4,), "z": (5,)},
        "index i: 4 from x dim 0, 5 from z dim 0",
    ),
    ("y[i] = x[i]", {"x": (1,), "q": (3,)}, "y has no input q; its inputs are x"),
    ("y[i] = x[i] + z[i]", {"x": (1,)}, "y needs the shape of its input z"),
    (
        "y[i] = x[0] + z[i]",
        {"x": (0,), "z": (3,)},
        "at x_0=0, x[0] lies outside x, whose dim 0 has extent 0\n"
        "    in y[i] = x[0] + z[i] (<text>:1)",
    ),
    (
        "c[0] = x[0]\nc[i] = c[i-1] + x[i]",
        {"x": (0,)},
        "at I=0, c[0] lies outside c, whose dim 0 has extent 0\n    in c[0] = x[0] (<text>:1)",
    ),
]


@pytest.mark.parametrize(("text", "shapes", "message"), SHAPES)
def test_shapes_refused(text, shapes, message):
    with pytest.raises(ShapeError) as err:
        bind_sizes(check(parse(text)), shapes)
    assert str(err.value) == message


def test_sizes_are_bound():
    checked = check(parse("O[n,f,y,x] = sum(I[n,c,2*y+r,2*x+s] * W[f,c,r,s])"))
    sizes = bind_sizes(checked, {"I": (2, 3, 9, 12), "W": (5, 3, 3, 4)})
    assert sizes == {"N": 2, "C": 3, "I_2": 9, "I_3": 12, "F": 5, "R": 3, "S": 4}
    assert shape_of(checked, "O", sizes) == (2, 5, 4, 5)


def test_formulas_clamp_at_zero_and_empty_arrays_are_fine():
    checked = check(parse("y[i] = sum(x[i+k] * w[k])"))
    sizes = bind_sizes(checked, {"x": (2,), "w": (5,)})
    assert evaluate(checked.shapes["y"][0], sizes) == -2
    assert shape_of(checked, "y", sizes) == (0,)
    matmul = check(parse("C[i,j] = sum(A[i,k] * B[k,j])"))
    sizes = bind_sizes(matmul, {"A": (0, 3), "B": (3, 0)})
    assert shape_of(matmul, "C", sizes) == (0, 0)


def test_unread_inputs_bind_sizes():
    checked = check(parse("f(x: f32[N], z: f32[M], free) -> y:\n y[i] = x[i] * M"))
    assert bind_sizes(checked, {"x": (2,), "z": (7,), "free": (1, 2, 3)}) == {"N": 2, "M": 7}
