"""Gradient operators read as a person would write them: their whole text."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from diptych.algo.tensor_expr.expr import children
from diptych.algo.tensor_expr.interpret import interpret
from diptych.algo.tensor_expr.parse import parse
from diptych.algo.tensor_expr.printer import print_expr
from diptych.autodiff.decided import decided, known, verdict
from diptych.autodiff.reverse import adjoint

EXPECTED = {
    ("matmul", "A"): """
C_dA(B: [K, J], dC: [I, J]) -> dA:
    dA[i,k] = sum(dC[i,j] * B[k,j])
""",
    ("matmul", "B"): """
C_dB(A: [I, K], dC: [I, J]) -> dB:
    dB[k,j] = sum(A[i,k] * dC[i,j])
""",
    ("a_bt", "B"): """
C_dB(A: [I, K], dC: [I, J]) -> dB:
    dB[j,k] = sum(A[i,k] * dC[i,j])
""",
    ("bias_relu", "b"): """
y_db(x: [I, J], b: [J], dy: [I, J]) -> db:
    db[j] = sum(where(x[i,j] + b[j] > 0, dy[i,j], where(x[i,j] + b[j] == 0, dy[i,j] / 2, 0)))
""",
    ("conv2d", "X"): """
O_dX(X: [N, C, X_2, X_3], W: [K, C, R, S], dO) -> dX:
    dO: [N, K, (X_2-R)//2+1, (X_3-S)//2+1]
    dX[n,c,y,x] = sum(dO[n,k,h,w] * W[k,c,r,s], where=(2 * h + r == y) & (2 * w + s == x))\
 where y in 0:X_2, x in 0:X_3
""",
    ("conv2d", "W"): """
O_dW(X: [N, C, X_2, X_3], W: [K, C, R, S], dO) -> dW:
    dO: [N, K, (X_2-R)//2+1, (X_3-S)//2+1]
    dW[k,c,r,s] = sum(X[n,c,2*h+r,2*w+s] * dO[n,k,h,w]) where r in 0:R, s in 0:S
""",
    ("conv1d", "X"): """
O_dX(X: [N, C, X_2], W: [K, C, R], dO) -> dX:
    dO: [N, K, X_2-R+1]
    dX[n,c,y] = sum(where(0 <= y - r < X_2 - R + 1, dO[n,k,y-r] * W[k,c,r], 0), over=(k, r))\
 where y in 0:X_2, r in 0:R
""",
    ("softmax", "x"): """
softmax_dx(x: [I, J], dy: [I, J]) -> dx:
    m[i] = max(x[i,j])
    e[i,j] = exp(x[i,j] - m[i])
    y[i,j] = e[i,j] / sum(e[i,l])
    dx[i,j] = y[i,j] * (dy[i,j] - sum(dy[i,k] * y[i,k]))
""",
    ("layernorm", "x"): """
layernorm_dx(x: [I, J], g: [J], dy: [I, J]) -> dx:
    m[i] = sum(x[i,j]) / J
    v[i] = sum((x[i,j] - m[i])**2) / J
    dx[i,j] = rsqrt(v[i] + 1e-05) * (dy[i,j] * g[j] - (x[i,j] - m[i])\
 * sum(dy[i,k] * (x[i,k] - m[i]) * g[k]) / (v[i] + 1e-05) / J - sum(dy[i,k] * g[k]) / J)
""",
    ("max_pool", "X"): """
Y_dX(X: [X_0, X_1], dY) -> dX:
    dY: [X_0//2, X_1//2]
    Y[y,x] = max(X[2*y+p,2*x+q]) where y in 0:X_0//2, x in 0:X_1//2, p in 0:2, q in 0:2
    Y_ties[y,x] = sum(where(X[2*y+p,2*x+q] == Y[y,x], ones_like(Y[y,x]), 0))\
 where p in 0:2, q in 0:2
    dX[z,u] = sum(where(X[z,u] < Y[y,x], 0, dY[y,x] / Y_ties[y,x]),\
 where=(2 * y + p == z) & (2 * x + q == u)) where p in 0:2, q in 0:2
""",
    ("embedding", "W"): """
o_dW(W: [W_0, D], idx: [B, T], do: [B, T, D]) -> dW:
    dW: [W_0, D]
    dW[idx[b,t],d] += do[b,t,d]
""",
    ("cumsum", "x"): """
cumsum_dx(dy: [N]) -> dx:
    dx[N-1] = dy[N-1]
    dx[i] = dy[i] + dx[i+1] where i in 0:N-1
""",
    ("rnn", "h0"): """
rnn_dh0(x: [T, D], U: [D, D], h0: [D], dh: [T, D]) -> dh0:
    h[0,d] = h0[d]
    h[t,d] = tanh(x[t,d] + sum(U[d,e] * h[t-1,e])) where t in 1:T
    dh_total[T-1,e] = dh[T-1,e]
    dh_total[t,e] = dh[t,e] + sum(dh_total[t+1,d] * (1 - h[t+1,d]**2) * U[d,e]) where t in 0:T-1
    dh0[d] = dh_total[0,d]
""",
    ("prod", "x"): """
y_dx(x: [I, J], dy: [I]) -> dx:
    dx[i,j] = dy[i] * prod(where(k != j, x[i,k], 1)) where j in 0:J, k in 0:J
""",
    ("cross_entropy", "z"): """
cross_entropy_dz(z: [B, O], label: [B], dloss: []) -> dz:
    dz_scattered: [B, O]
    m[n] = max(z[n,o])
    l_sum[n] = sum(exp(z[n,o] - m[n]))
    dloss_sum[] = dloss[] / B
    dl_sum[n] = dloss_sum[] / l_sum[n]
    dz_scattered[n,label[n]] += -dloss_sum[]
    dz[n,o] = dl_sum[n] * exp(z[n,o] - m[n]) + dz_scattered[n,o]
""",
    ("histogram", "w"): """
histogram_dw(bin: [N], w: [N], dH: [M]) -> dw:
    dw[n] = 2 * dH[bin[n]] * w[n]
""",
    ("upsample", "x"): """
up_dx(x: [N], z: [M], dy) -> dx:
    dy: [min(M, 2*N)]
    dx[y] = sum(where(2 * y + i < min(M, 2 * N), dy[2*y+i] * z[2*y+i], 0)) where y in 0:N, i in 0:2
""",
    ("guarded", "x"): """
pad_dx(x: [N], z: [M], dy: [M]) -> dx:
    dx[i] = where(i < M, dy[i] * z[i], 0) where i in 0:N
""",
    ("max_of_triangle", "x"): """
f_dx(x: [N, N], dy: [N]) -> dx:
    y[i] = max(x[i,k]) where k in i:N
    y_ties[i] = sum(where(x[i,k] == y[i], ones_like(y[i]), 0), where=k >= i)
    dx[i,k] = where(k >= i, where(x[i,k] < y[i], 0, dy[i] / y_ties[i]), 0)\
 where i in 0:N, k in 0:N
""",
    ("unread", "a"): """
u_da(a: [N], dy: [N]) -> da:
    da[y] = zeros_like(a[y])
""",
}  # fmt: skip


@pytest.mark.parametrize(("name", "wrt"), EXPECTED)
def test_text(texts: dict[str, str], name: str, wrt: str) -> None:
    assert adjoint(parse(texts[name]), wrt).text == EXPECTED[name, wrt].strip()


WHOLE = {
    """
lse(x: [I, J]) -> y:
    m[i] = max(x[i,j])
    y[i] = log(sum(exp(x[i,j] - m[i]))) + m[i]
""": """
lse_dx(x: [I, J], dy: [I]) -> dx:
    m[i] = max(x[i,j])
    y_sum[i] = sum(exp(x[i,j] - m[i]))
    dx[i,j] = dy[i] * exp(x[i,j] - m[i]) / y_sum[i]
""",
    """
attention(q: [T, D], k: [S, D], v: [S, E]) -> o:
    s[t,u] = sum(q[t,d] * k[u,d]) / sqrt(D)
    m[t] = max(s[t,u])
    e[t,u] = exp(s[t,u] - m[t])
    p[t,u] = e[t,u] / sum(e[t,w])
    o[t,f] = sum(p[t,u] * v[u,f])
""": """
attention_dq_dk_dv(q: [T, D], k: [S, D], v: [S, E], do: [T, E]) -> dq, dk, dv:
    s[t,u] = sum(q[t,d] * k[u,d]) / sqrt(D)
    m[t] = max(s[t,u])
    e[t,u] = exp(s[t,u] - m[t])
    p[t,u] = e[t,u] / sum(e[t,w])
    dp[t,u] = sum(do[t,f] * v[u,f])
    ds_sum[t,u] = p[t,u] / sqrt(D) * (dp[t,u] - sum(dp[t,w] * p[t,w]))
    dq[t,d] = sum(ds_sum[t,u] * k[u,d])
    dk[u,d] = sum(q[t,d] * ds_sum[t,u])
    dv[u,f] = sum(p[t,u] * do[t,f])
""",
    """
cell(i: [B, D], f: [B, D], g: [B, D], o: [B, D], c0: [B, D]) -> h, c:
    c[b,d] = sigmoid(f[b,d]) * c0[b,d] + sigmoid(i[b,d]) * tanh(g[b,d])
    h[b,d] = sigmoid(o[b,d]) * tanh(c[b,d])
""": """
cell_di_df_dg_do_dc0(i: [B, D], f: [B, D], g: [B, D], o: [B, D], c0: [B, D], dh: [B, D],\
 dc: [B, D]) -> di, df, dg, do, dc0:
    c[b,d] = sigmoid(f[b,d]) * c0[b,d] + sigmoid(i[b,d]) * tanh(g[b,d])
    dc_total[b,d] = dc[b,d] + sigmoid(o[b,d]) * dh[b,d] * (1 - tanh(c[b,d])**2)
    di[b,d] = dc_total[b,d] * sigmoid(i[b,d]) * (1 - sigmoid(i[b,d])) * tanh(g[b,d])
    df[b,d] = c0[b,d] * dc_total[b,d] * sigmoid(f[b,d]) * (1 - sigmoid(f[b,d]))
    dg[b,d] = sigmoid(i[b,d]) * dc_total[b,d] * (1 - tanh(g[b,d])**2)
    do[b,d] = dh[b,d] * sigmoid(o[b,d]) * (1 - sigmoid(o[b,d])) * tanh(c[b,d])
    dc0[b,d] = sigmoid(f[b,d]) * dc_total[b,d]
""",
}  # fmt: skip


@pytest.mark.parametrize("text", WHOLE, ids=["logsumexp", "attention", "LSTM cell"])
def test_by_all_parameters(text: str) -> None:
    op = parse(text)
    assert adjoint(op, tuple(p.name for p in op.params)).text == WHOLE[text].strip()


def test_a_result_that_is_given_is_all_that_a_softmax_needs(texts: dict[str, str]) -> None:
    assert (
        adjoint(parse(texts["softmax"]), "x", saved=("y",)).text
        == """
softmax_dx(y: [I, J], dy: [I, J]) -> dx:
    dx[i,j] = y[i,j] * (dy[i,j] - sum(dy[i,k] * y[i,k]))
""".strip()
    )


SECOND = {
    ("conv1d", "X", "dO"): """
O_dX_ddO(W: [K, C, R], ddX: [N, C, X_2]) -> ddO:
    ddO[n,k,y] = sum(ddX[n,c,r+y] * W[k,c,r]) where y in 0:X_2-R+1
""",
    ("matmul", "A", "dC"): """
C_dA_ddC(B: [K, J], ddA: [I, K]) -> ddC:
    ddC[i,j] = sum(ddA[i,k] * B[k,j])
""",
    ("conv2d", "X", "dO"): """
O_dX_ddO(W: [K, C, R, S], ddX: [N, C, X_2, X_3]) -> ddO:
    ddO[n,k,h,w] = sum(ddX[n,c,2*h+r,2*w+s] * W[k,c,r,s])\
 where h in 0:(X_2-R)//2+1, w in 0:(X_3-S)//2+1
""",
    ("conv2d", "X", "W"): """
O_dX_dW(W: [K, C, R, S], dO, ddX: [N, C, X_2, X_3]) -> dW:
    dO: [N, K, (X_2-R)//2+1, (X_3-S)//2+1]
    dW[k,c,r,s] = sum(dO[n,k,h,w] * ddX[n,c,2*h+r,2*w+s]) where r in 0:R, s in 0:S
""",
    ("cumsum", "x", "dy"): """
cumsum_dx_ddy(ddx: [N]) -> ddy:
    ddy[0] = ddx[0]
    ddy[i] = ddx[i] + ddy[i-1] where i in 1:N
""",
    ("embedding", "W", "do"): """
o_dW_ddo(idx: [B, T], ddW: [W_0, D]) -> ddo:
    ddo[b,t,d] = ddW[idx[b,t],d]
""",
}  # fmt: skip


@pytest.mark.parametrize(("name", "wrt", "again"), SECOND)
def test_the_adjoint_of_an_adjoint(texts: dict[str, str], name: str, wrt: str, again: str) -> None:
    found = adjoint(adjoint(parse(texts[name]), wrt), again)
    assert found.text == SECOND[name, wrt, again].strip()


def test_a_gradient_reads_another_that_it_sums() -> None:
    op = parse("y[n,f] = max(x[n,f] + b[f], 0)", name="dense")
    assert (
        adjoint(op, ("x", "b")).text
        == """
dense_dx_db(x: [N, F], b: [F], dy: [N, F]) -> dx, db:
    dx[n,f] = where(x[n,f] + b[f] > 0, dy[n,f], where(x[n,f] + b[f] == 0, dy[n,f] / 2, 0))
    db[f] = sum(dx[n,f])
""".strip()
    )
    part = parse("y[n,f] = max(x[n,f] + b[f], 0) where n in 0:N\nz[] = sum(y[n,f], where=n < 3)")
    assert "db[f] = sum(dx[n,f])" in adjoint(part, ("x", "b")).text


def test_numbers_take_the_type_that_is_annotated() -> None:
    op = parse("f(x: f32[I, J]) -> m:\n m[i] = max(x[i,j])")
    assert (
        adjoint(op, "x").text
        == """
f_dx(x: f32[I, J], dm: f32[I]) -> dx:
    m[i] = max(x[i,j])
    m_ties[i] = sum(where(x[i,j] == m[i], f32(1), 0))
    dx[i,j] = where(x[i,j] < m[i], 0, dm[i] / m_ties[i])
""".strip()
    )
    unread = parse("f(x: f16[I]) -> y:\n y[i] = floor(x[i])")
    assert (
        adjoint(unread, "x").text
        == """
f_dx(dy: f16[I]) -> dx:
    dx[i] = f16(0) where i in 0:I
""".strip()
    )


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_ties_are_counted_in_the_type_of_the_maximum(dtype: type[np.floating[Any]]) -> None:
    op = parse("m[i] = max(x[i,j])")
    x = np.array([[1, 3, 3], [np.inf, np.inf, np.inf], [0, 0, -1]], dtype)
    found = interpret(adjoint(op, "x"), x, np.array([1, 3, 5], dtype))
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, [[0, 0.5, 0.5], [1, 1, 1], [2.5, 2.5, 0]])


def test_what_ranges_decide_is_not_printed() -> None:
    """At the first step nothing is read of a step before, at the others nothing is asked."""
    op = parse(
        "rnn(x: f64[T], u: f64[]) -> h:\n h[t] = tanh(x[t] + u[] * h.zero[t-1]) where t in 0:T"
    )
    second = adjoint(adjoint(op, ("x", "u")), "u")
    lines = [line.strip() for line in second.text.splitlines()]
    assert lines[1] == "h[t] = tanh(x[t] + u[] * where(t - 1 >= 0, h[t-1], 0))"
    assert [line for line in lines if line.startswith("ddh_total[")] == [
        "ddh_total[0] = ddx[0] * (1 - h[0]**2) where T > 0",
        "ddh_total[t] = ddu[] * h[t-1] * (1 - h[t]**2) + ddx[t] * (1 - h[t]**2)"
        " + ddh_total[t-1] * (1 - h[t]**2) * u[] where t in 1:T",
    ]


def test_recurrences_in_both_directions_read_alike() -> None:
    text = "f(x: [N], u: []) -> h:\n h[i] = x[i] + u[] * sin(h.zero[i-2]) where i in 0:N"
    up, down = (parse(t).gradient("x").text for t in (text, text.replace("i-2", "i+2")))
    assert [line.strip() for line in up.splitlines()] == [
        "f_dx(x: [N], u: [], dh: [N]) -> dx:",
        "h[i] = x[i] + u[] * sin(where(i - 2 >= 0, h[i-2], 0))",
        "dx[i] = dh[i] + where(i < N - 2, u[] * dx[i+2] * cos(h[i]), 0)",
    ]
    assert [line.strip() for line in down.splitlines()] == [
        "f_dx(x: [N], u: [], dh: [N]) -> dx:",
        "h[i] = x[i] + u[] * sin(where(i + 2 < N, h[i+2], 0))",
        "dx[i] = dh[i] + where(i >= 2, u[] * dx[i-2] * cos(h[i]), 0)",
    ]


@pytest.mark.parametrize(
    ("text", "partial", "wanted"),
    [
        ("y[t] = where(t >= 0, x[t], 0) where t in 0:T-1", False, "x[t]"),
        (
            "y[t] = where((t >= 0) & (t < K), x[t], 0) where t in 0:T",
            False,
            "where(t < K, x[t], 0)",
        ),
        ("y[t] = x[t] - u[] * where(t < 0, x[t], 0) / v[] where t in 0:T", True, "x[t]"),
        ("y[t] = where(t < 0, x[t], 0) - u[] where t in 0:T", True, "-u[]"),
        ("y[t] = -u[] * where(t < 0, x[t], 0) where t in 0:T", True, "0"),
        ("y[t] = where(t < T, x[t], 0) where t in 0:T", False, "x[t]"),
        (
            "y[t] = where((t < T - 1) & (t <= T), x[t], 0) where t in 0:T",
            False,
            "where(t < T - 1, x[t], 0)",
        ),
        ("y[t] = u[] - where(t + 1 > K, x[t], 0) where t in 0:K", True, "u[]"),
        (
            "y[t] = sum(where(s <= t, x[s], 0) * x[t], over=s) where t in 0:T, s in 0:t+1",
            False,
            "sum(x[s] * x[t])",
        ),
        # Elsewhere than in sums, or where no other equation says the type, it stays.
        ("y[t] = exp(where(t < 0, x[t], 0)) where t in 0:T", True, "exp(where(t < 0, x[t], 0))"),
        ("y[t] = where(t < 0, x[t], 0) where t in 0:T", False, "where(t < 0, x[t], 0)"),
        ("y[t] = where(t < 4, x[t], 0) where t in 0:T", True, "where(t < 4, x[t], 0)"),
        ("y[t] = where(t >= 0, x[t], 0.5) where t in 0:T", False, "where(t >= 0, x[t], 0.5)"),
    ],
)
def test_choices_that_ranges_decide(text: str, partial: bool, wanted: str) -> None:
    op = parse("f(x: [T], z: [K], u: [], v: []) -> y:\n " + text)
    assert print_expr(decided(op.equations[0], partial).rhs) == wanted


@pytest.mark.parametrize("first", ["0", "1", "N - 2", "M"])
@pytest.mark.parametrize("last", ["N", "M - 1", "i + 2", "min(N, M)"])
def test_a_verdict_holds_wherever_ranges_say(first: str, last: str) -> None:
    """All sizes, 0 too, against conditions on indices and sizes; and many verdicts are found."""
    sides = ["i", "j", "j - i", "2 * j - i", "j // 2", "i - j % 2"]
    verdicts = 0
    for a, op, b in product(sides, ["<", "<=", ">", ">=", "==", "!="], ["0", "N", "M - 1", "-3"]):
        text = f"y[i,j] = where({a} {op} {b}, x[i], z[0]) where i in 0:N, j in {first}:{last}"
        (eq,) = parse(f"f(x: [N], z: [M]) -> y:\n {text}").equations
        found = verdict(children(eq.rhs)[0], known(eq.ranges))
        if found is None:
            continue
        verdicts += 1
        for N, M in product(range(5), repeat=2):
            for i in range(N):
                lo, hi = (eval(end, None, {"N": N, "M": M, "i": i}) for end in (first, last))
                for j in range(lo, hi):
                    env = {"N": N, "M": M, "i": i, "j": j}
                    assert eval(f"{a} {op} {b}", None, env) is found, (text, env)
    assert verdicts >= 20
