"""Gradients of what users write, each as it reads: whole texts.

Numbers stand first and once, squares are powers where they were or are bounded, sums are one sum,
elements that have a formula of their own have an equation, and nothing is said twice.
"""

from __future__ import annotations

import math

import diptych as dt
import pytest
from diptych.algo.tensor_expr.parse import parse
from diptych.autodiff.reverse import adjoint

READS = {
    "rmsnorm": ("x,g", """
rms(x: [I, J], g: [J]) -> y:
    s[i] = sum(x[i,j]**2) / J
    y[i,j] = x[i,j] * rsqrt(s[i] + 1e-6) * g[j]
""", """
rms_dx_dg(x: [I, J], g: [J], dy: [I, J]) -> dx, dg:
    s[i] = sum(x[i,j]**2) / J
    dx[i,j] = rsqrt(s[i] + 1e-06) * (dy[i,j] * g[j] - x[i,j] * sum(dy[i,k] * g[k] * x[i,k]) /\
 (s[i] + 1e-06) / J)
    dg[j] = sum(x[i,j] * rsqrt(s[i] + 1e-06) * dy[i,j])
"""),
    "groupnorm": ("x,a,b", """
gn(x: [N, G, C, H, W], a: [G, C], b: [G, C]) -> y:
    m[n,g] = sum(x[n,g,c,h,w]) / (C * H * W)
    v[n,g] = sum((x[n,g,c,h,w] - m[n,g])**2) / (C * H * W)
    y[n,g,c,h,w] = (x[n,g,c,h,w] - m[n,g]) * rsqrt(v[n,g] + 1e-5) * a[g,c] + b[g,c]
""", """
gn_dx_da_db(x: [N, G, C, H, W], a: [G, C], dy: [N, G, C, H, W]) -> dx, da, db:
    m[n,g] = sum(x[n,g,c,h,w]) / (C * H * W)
    v[n,g] = sum((x[n,g,c,h,w] - m[n,g])**2) / (C * H * W)
    dx[n,g,c,h,w] = rsqrt(v[n,g] + 1e-05) * (a[g,c] * dy[n,g,c,h,w] - (x[n,g,c,h,w] - m[n,g]) *\
 sum(a[g,d] * dy[n,g,d,i,y] * (x[n,g,d,i,y] - m[n,g])) / (v[n,g] + 1e-05) / (C * H * W) -\
 sum(a[g,d] * dy[n,g,d,i,y]) / (C * H * W))
    da[g,c] = sum((x[n,g,c,h,w] - m[n,g]) * rsqrt(v[n,g] + 1e-05) * dy[n,g,c,h,w])
    db[g,c] = sum(dy[n,g,c,h,w])
"""),
    "gru": ("r,z,n,hn,h", """
gru(r: [B, D], z: [B, D], n: [B, D], hn: [B, D], h: [B, D]) -> y:
    c[b,d] = tanh(n[b,d] + sigmoid(r[b,d]) * hn[b,d])
    y[b,d] = (1 - sigmoid(z[b,d])) * c[b,d] + sigmoid(z[b,d]) * h[b,d]
""", """
gru_dr_dz_dn_dhn_dh(r: [B, D], z: [B, D], n: [B, D], hn: [B, D], h: [B, D], dy: [B, D]) -> dr,\
 dz, dn, dhn, dh:
    c[b,d] = tanh(n[b,d] + sigmoid(r[b,d]) * hn[b,d])
    dc[b,d] = (1 - sigmoid(z[b,d])) * dy[b,d]
    dr[b,d] = dc[b,d] * hn[b,d] * sigmoid(r[b,d]) * (1 - c[b,d]**2) * (1 - sigmoid(r[b,d]))
    dz[b,d] = dy[b,d] * sigmoid(z[b,d]) * (1 - sigmoid(z[b,d])) * (h[b,d] - c[b,d])
    dn[b,d] = dc[b,d] * (1 - c[b,d]**2)
    dhn[b,d] = dc[b,d] * sigmoid(r[b,d]) * (1 - c[b,d]**2)
    dh[b,d] = sigmoid(z[b,d]) * dy[b,d]
"""),
    "huber": ("x,y", """
huber(x: [N], y: [N]) -> l:
    d[n] = x[n] - y[n]
    l[] = sum(where(abs(d[n]) < 1, 0.5 * d[n]**2, abs(d[n]) - 0.5)) / N
""", """
huber_dx_dy(x: [N], y: [N], dl: []) -> dx, dy:
    d[n] = x[n] - y[n]
    dl_sum[] = dl[] / N
    dx[n] = where(abs(d[n]) < 1, d[n] * dl_sum[], dl_sum[] * sign(d[n]))
    dy[n] = -dx[n]
"""),
    "kl": ("p,q", """
kl(p: [N], q: [N]) -> l:
    l[] = sum(p[n] * (log(p[n]) - log(q[n])))
""", """
kl_dp_dq(p: [N], q: [N], dl: []) -> dp, dq:
    dp[n] = dl[] * (log(p[n]) - log(q[n]) + 1)
    dq[n] = -p[n] * dl[] / q[n]
"""),
    "cosine": ("a,b", """
cosine(a: [N, D], b: [N, D]) -> s:
    s[n] = sum(a[n,d] * b[n,d]) / (sqrt(sum(a[n,d]**2)) * sqrt(sum(b[n,d]**2)))
""", """
cosine_da_db(a: [N, D], b: [N, D], ds: [N]) -> da, db:
    s_sum[n] = sum(a[n,d] * b[n,d])
    s_sum_1[n] = sum(a[n,d]**2)
    s_sum_2[n] = sum(b[n,d]**2)
    s[n] = s_sum[n] / (sqrt(s_sum_1[n]) * sqrt(s_sum_2[n]))
    ds_sum[n] = ds[n] / sqrt(s_sum_1[n]) / sqrt(s_sum_2[n])
    da[n,d] = b[n,d] * ds_sum[n] - a[n,d] * ds[n] * s[n] / s_sum_1[n]
    db[n,d] = a[n,d] * ds_sum[n] - b[n,d] * ds[n] * s[n] / s_sum_2[n]
"""),
    "unit vectors": ("x", """
y[i,j] = x[i,j] / sqrt(sum(x[i,k]**2))
""", """
y_dx(x: [I, J], dy: [I, J]) -> dx:
    y_sum[i] = sum(x[i,k]**2)
    y[i,j] = x[i,j] / sqrt(y_sum[i])
    dx[i,j] = (dy[i,j] - y[i,j] * sum(dy[i,k] * y[i,k])) / sqrt(y_sum[i])
"""),
    "rope": ("x,c,s", """
rope(x: [T, D], c: [T, D], s: [T, D]) -> y:
    y[t,2*i] = x[t,2*i] * c[t,i] - x[t,2*i+1] * s[t,i] where i in 0:D//2
    y[t,2*i+1] = x[t,2*i] * s[t,i] + x[t,2*i+1] * c[t,i] where i in 0:D//2
""", """
rope_dx_dc_ds(x: [T, D], c: [T, D], s: [T, D], dy) -> dx, dc, ds:
    dy: [T, 2*(D//2)]
    dx[t,y] = sum(dy[t,2*i] * c[t,i] + dy[t,2*i+1] * s[t,i], where=2 * i == y) +\
 sum(dy[t,2*i+1] * c[t,i] - dy[t,2*i] * s[t,i], where=2 * i + 1 == y) where y in 0:D, i in\
 0:D//2
    dc[t,i] = where(i < D // 2, x[t,2*i] * dy[t,2*i] + x[t,2*i+1] * dy[t,2*i+1], 0) where i in\
 0:D
    ds[t,i] = where(i < D // 2, x[t,2*i] * dy[t,2*i+1] - x[t,2*i+1] * dy[t,2*i], 0) where i in\
 0:D
"""),
    "gaussian mixture": ("x,w,mu,ls", """
gmm(x: [N], w: [K], mu: [K], ls: [K]) -> l:
    a[n,k] = w[k] - ls[k] - 0.5 * ((x[n] - mu[k]) / exp(ls[k]))**2
    m[n] = max(a[n,k])
    l[] = sum(m[n] + log(sum(exp(a[n,k] - m[n]))))
""", """
gmm_dx_dw_dmu_dls(x: [N], w: [K], mu: [K], ls: [K], dl: []) -> dx, dw, dmu, dls:
    a[n,k] = w[k] - ls[k] - 0.5 * ((x[n] - mu[k]) / exp(ls[k]))**2
    m[n] = max(a[n,k])
    l_sum[n] = sum(exp(a[n,k] - m[n]))
    da[n,k] = dl[] * exp(a[n,k] - m[n]) / l_sum[n]
    dx[n] = -sum(da[n,k] * ((x[n] - mu[k]) / exp(ls[k])) / exp(ls[k]))
    dw[k] = sum(da[n,k])
    dmu[k] = sum(da[n,k] * ((x[n] - mu[k]) / exp(ls[k]))) / exp(ls[k])
    dls[k] = sum(da[n,k] * ((x[n] - mu[k]) / exp(ls[k])) * ((x[n] - mu[k]) / exp(ls[k]))) -\
 sum(da[n,k])
"""),
    "cumprod": ("x", """
c[0] = x[0]
c[i] = c[i-1] * x[i] where i in 1:N
""", """
c_dx(x: [N], dc: [N]) -> dx:
    c[0] = x[0]
    c[i] = c[i-1] * x[i] where i in 1:N
    dc_total[N-1] = dc[N-1]
    dc_total[i] = dc[i] + dc_total[i+1] * x[i+1] where i in 0:N-1
    dx[0] = dc_total[0]
    dx[i] = c[i-1] * dc_total[i] where i in 1:N
"""),
    "held value": ("x", """
h[0] = x[0]
h[t] = where(b[t], h[t-1], x[t]) where t in 1:T
y = h[T-1]
""", """
y_dx(b: [T], dy: []) -> dx:
    dh[t] = where(b[t+1], dh[t+1], 0) where t in 0:T-1
    dh[T-1] = dy[]
    dx[0] = dh[0]
    dx[t] = where(b[t], 0, dh[t]) where t in 1:T
"""),
    "state space": ("x,A,B,C", """
ssm(x: [T], A: [N], B: [N], C: [N]) -> y:
    h[0,n] = B[n] * x[0]
    h[t,n] = A[n] * h[t-1,n] + B[n] * x[t] where t in 1:T
    y[t] = sum(C[n] * h[t,n])
""", """
ssm_dx_dA_dB_dC(x: [T], A: [N], B: [N], C: [N], dy: [T]) -> dx, dA, dB, dC:
    h[0,n] = B[n] * x[0]
    h[t,n] = A[n] * h[t-1,n] + B[n] * x[t] where t in 1:T
    dh[T-1,n] = C[n] * dy[T-1]
    dh[t,n] = C[n] * dy[t] + A[n] * dh[t+1,n] where t in 0:T-1
    dx[t] = sum(B[n] * dh[t,n])
    dA[n] = sum(dh[t,n] * h[t-1,n]) where t in 1:T
    dB[n] = dh[0,n] * x[0] + sum(dh[t,n] * x[t]) where t in 1:T
    dC[n] = sum(dy[t] * h[t,n])
"""),
    "masked softmax": ("x", """
msm(x: [I, J], b: bool[I, J]) -> y:
    m[i] = max(x[i,j], where=b[i,j])
    e[i,j] = where(b[i,j], exp(x[i,j] - m[i]), 0)
    y[i,j] = e[i,j] / sum(e[i,l])
""", """
msm_dx(x: [I, J], b: bool[I, J], dy: [I, J]) -> dx:
    m[i] = max(x[i,j], where=b[i,j])
    e[i,j] = where(b[i,j], exp(x[i,j] - m[i]), 0)
    y_sum[i] = sum(e[i,l])
    y[i,j] = e[i,j] / y_sum[i]
    de[i,j] = (dy[i,j] - sum(dy[i,k] * y[i,k])) / y_sum[i]
    dx[i,j] = where(b[i,j], de[i,j] * exp(x[i,j] - m[i]), 0)
"""),
    "logsoftmax": ("x", """
ls(x: [I, J]) -> y:
    m[i] = max(x[i,j])
    l[i] = log(sum(exp(x[i,j] - m[i])))
    y[i,j] = x[i,j] - m[i] - l[i]
""", """
ls_dx(x: [I, J], dy: [I, J]) -> dx:
    m[i] = max(x[i,j])
    l_sum[i] = sum(exp(x[i,j] - m[i]))
    dx[i,j] = dy[i,j] - exp(x[i,j] - m[i]) * sum(dy[i,k]) / l_sum[i]
"""),
    "dice loss": ("p,t", """
d = 1 - 2 * sum(p[i] * t[i]) / (sum(p[i]) + sum(t[i]))
""", """
d_dp_dt(p: [I], t: [I], dd: []) -> dp, dt:
    d_sum[] = sum(p[i] * t[i])
    d_sum_1[] = sum(p[i])
    d_sum_2[] = sum(t[i])
    dd_sum_2[] = dd[] * (2 * d_sum[] / (d_sum_1[] + d_sum_2[])) / (d_sum_1[] + d_sum_2[])
    dd_sum[] = -2 * (dd[] / (d_sum_1[] + d_sum_2[]))
    dp[i] = dd_sum_2[] + dd_sum[] * t[i]
    dt[i] = dd_sum_2[] + p[i] * dd_sum[]
"""),
    "squared error": ("x,y", """
l[] = sum((x[i] - y[i])**2) / N where i in 0:N
""", """
l_dx_dy(x: [N], y: [N], dl: []) -> dx, dy:
    dl_sum[] = dl[] / N
    dx[i] = 2 * dl_sum[] * (x[i] - y[i])
    dy[i] = -dx[i]
"""),
    "absolute norm": ("x,r", """
y[i,j] = (x[i,j] + r[i,j]) / sum(abs(x[i,k] + r[i,k]))
""", """
y_dx_dr(x: [I, J], r: [I, J], dy: [I, J]) -> dx, dr:
    y_sum[i] = sum(abs(x[i,k] + r[i,k]))
    y[i,j] = (x[i,j] + r[i,j]) / y_sum[i]
    dy_sum[i] = sum(-dy[i,j] * y[i,j] / y_sum[i])
    dx[i,j] = dy[i,j] / y_sum[i] + dy_sum[i] * sign(x[i,j] + r[i,j])
    dr[i,j] = dx[i,j]
"""),
    "silu": ("x", """
y[i] = x[i] * sigmoid(x[i])
""", """
y_dx(x: [I], dy: [I]) -> dx:
    dx[i] = dy[i] * sigmoid(x[i]) * (1 + x[i] * (1 - sigmoid(x[i])))
"""),
    "gelu": ("x", """
y[i] = 0.5 * x[i] * (1 + erf(x[i] / sqrt(2)))
""", """
y_dx(x: [I], dy: [I]) -> dx:
    dx[i] = dy[i] * (1.1283791670955126 * x[i] * exp(-(x[i] / sqrt(2))**2) / (2 * sqrt(2)) + (1\
 + erf(x[i] / sqrt(2))) / 2)
"""),
    "polynomial": ("a,x,b,c,d", """
y[i] = a * x[i]**3 + b * x[i]**2 + c * x[i] + d
""", """
y_da_dx_db_dc_dd(a: [], x: [I], b: [], c: [], dy: [I]) -> da, dx, db, dc, dd:
    da[] = sum(dy[i] * x[i]**3)
    dx[i] = dy[i] * (3 * a[] * x[i]**2 + 2 * b[] * x[i] + c[])
    db[] = sum(dy[i] * x[i]**2)
    dc[] = sum(dy[i] * x[i])
    dd[] = sum(dy[i])
"""),
    "kernel regression": ("x,z,y", """
kr(x: [N, D], z: [M, D], y: [M]) -> f:
    w[n,m] = exp(-sum((x[n,d] - z[m,d])**2) / 2)
    f[n] = sum(w[n,m] * y[m]) / sum(w[n,m])
""", """
kr_dx_dz_dy(x: [N, D], z: [M, D], y: [M], df: [N]) -> dx, dz, dy:
    w[n,m] = exp(-sum((x[n,d] - z[m,d])**2) / 2)
    f_sum[n] = sum(w[n,m] * y[m])
    f_sum_1[n] = sum(w[n,m])
    f[n] = f_sum[n] / f_sum_1[n]
    df_sum[n] = df[n] / f_sum_1[n]
    dw_sum[n,m] = w[n,m] * (df[n] * f[n] / (2 * f_sum_1[n]) - df_sum[n] * y[m] / 2)
    dx[n,d] = 2 * sum(dw_sum[n,m] * (x[n,d] - z[m,d]))
    dz[m,d] = -2 * sum(dw_sum[n,m] * (x[n,d] - z[m,d]))
    dy[m] = sum(w[n,m] * df_sum[n])
"""),
    "constant": ("x", """
y[i] = 3.5 + 0 * floor(x[i])
""", """
y_dx(x: [I], dy: [I]) -> dx:
    dx[i] = zeros_like(x[i])
"""),
    "maximum": ("x", """
m[i] = max(x[i,j])
""", """
m_dx(x: [I, J], dm: [I]) -> dx:
    m[i] = max(x[i,j])
    m_ties[i] = sum(where(x[i,j] == m[i], ones_like(m[i]), 0))
    dx[i,j] = where(x[i,j] < m[i], 0, dm[i] / m_ties[i])
"""),
    "x log x": ("x", """
y[i] = x[i] * log(x[i])
""", """
y_dx(x: [I], dy: [I]) -> dx:
    dx[i] = dy[i] * (1 + log(x[i]))
"""),
    "second difference": ("x", """
y[i] = x.zero[i-1] + x.zero[i+1] - 2.0 * x[i]
""", """
y_dx(dy: [I]) -> dx:
    dx[i] = where(i < I - 1, dy[i+1], 0) + where(i >= 1, dy[i-1], 0) - 2 * dy[i]
"""),
    "difference": ("x", """
y[i] = x[i] - x.zero[i-1]
""", """
y_dx(dy: [I]) -> dx:
    dx[i] = dy[i] - where(i < I - 1, dy[i+1], 0)
"""),
    "chosen by an index": ("x", """
f(x: [4, N]) -> y:
    y[c,i,j] = where(c == 0, x[0,i] * x[1,j], where(c == 1, x[2,i], x[3,j])) where c in 0:3
""", """
f_dx(x: [4, N], dy: [3, N, N]) -> dx:
    dx[0,i] = sum(dy[0,i,j] * x[1,j])
    dx[1,i] = sum(x[0,j] * dy[0,j,i])
    dx[2,i] = sum(dy[1,i,j])
    dx[3,i] = sum(dy[2,j,i])
"""),
}  # fmt: skip


@pytest.mark.parametrize("name", READS)
def test_gradients_read_as_people_write_them(name: str) -> None:
    wrt, text, wanted = READS[name]
    assert adjoint(parse(text), tuple(wrt.split(","))).text == wanted.strip()


def test_what_a_long_gradient_repeats_is_named() -> None:
    lse = dt.reducer(
        lambda a, b: dt.max(a, b) + dt.log(dt.exp(a - dt.max(a, b)) + dt.exp(b - dt.max(a, b))),
        identity=-math.inf,
        name="lse",
    )
    op = dt.op("y[i] = lse(x[i,j] * w[j])", reducers={"lse": lse})
    lines = adjoint(op, "x").text.splitlines()
    assert "    let e1 = max(y_prefix[i,j], x[i,j] * w[j])" in lines
    assert max(map(len, lines)) < 200
