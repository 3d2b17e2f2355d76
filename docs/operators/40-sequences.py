"""Attention, recurrent cells, scans, filters, transforms, dynamic programming."""

operator(
    "Attention",
    """
    attention(Q: [B, M, D], K: [B, N, D], V: [B, N, E]) -> O:
        s[b,i,j] = sum(Q[b,i,d] * K[b,j,d]) * rsqrt(D)
        m[b,i] = max(s[b,i,j])
        p[b,i,j] = exp(s[b,i,j] - m[b,i])
        z[b,i] = sum(p[b,i,j])
        O[b,i,e] = sum(p[b,i,j] * V[b,j,e]) / z[b,i]
    """,
    "scipy.special.softmax(Q @ np.swapaxes(K, 1, 2) / np.sqrt(16), 2) @ V",
    Q=floats(3, 13, 16), K=floats(3, 17, 16), V=floats(3, 17, 11),
    schedule=".compute_at('z', 'O.i').vectorize('O.e', 8)",
)  # fmt: skip
operator(
    "Causal attention of several heads",
    """
    causal(Q: [H, N, D], K: [H, N, D], V: [H, N, D]) -> O:
        s[h,i,j] = where(j <= i, sum(Q[h,i,d] * K[h,j,d]) * rsqrt(D), -1000000)
                   where i in 0:N, j in 0:N
        m[h,i] = max(s[h,i,j])
        p[h,i,j] = exp(s[h,i,j] - m[h,i])
        O[h,i,d] = sum(p[h,i,j] * V[h,j,d]) / sum(p[h,i,l])
    """,
    "scipy.special.softmax(np.where(np.tri(19) > 0, Q @ np.swapaxes(K, 1, 2) / 4, -np.inf), 2) @ V",
    Q=floats(4, 19, 16), K=floats(4, 19, 16), V=floats(4, 19, 16),
)  # fmt: skip
operator(
    "Attention within a window of 7",
    """
    window(Q: [N, D], K: [N, D], V: [N, D]) -> O:
        e[i,w] = exp(sum(Q[i,d] * K.zero[i+w-3,d]) / 4) where w in 0:7
        p[i,w] = where(0 <= i + w - 3 < N, e[i,w], 0) where i in 0:N, w in 0:7
        O[i,d] = sum(p[i,w] * V.zero[i+w-3,d]) / sum(p[i,u])
    """,
    "banded(Q, K, V)",
    Q=floats(23, 16), K=floats(23, 16), V=floats(23, 16),
)  # fmt: skip
operator(
    "Rotary position embedding",
    """
    rotary(x: [T, 2, D], freq: [D]) -> y:
        turned[t,c,d] = where(c == 0, -x[t,1,d], x[t,0,d]) where c in 0:2
        y[t,c,d] = x[t,c,d] * cos(t * freq[d]) + turned[t,c,d] * sin(t * freq[d])
    """,
    "np.stack([(z := (x[:, 0] + 1j * x[:, 1]) * np.exp(1j * np.arange(31)[:, None] * freq)).real,"
    " z.imag], 1)",
    x=floats(31, 2, 9), freq=made(lambda rng: 2.0 ** -np.arange(9)), within=128,
)  # fmt: skip
operator(
    "Recurrent network over time",
    """
    rnn(x: [T, D], U: [D, D], h0: [D]) -> h:
        h[0,d] = h0[d]
        h[t,d] = tanh(x[t,d] + sum(U[d,e] * h[t-1,e])) where t in 1:T
    """,
    "rnn(x, U, h0)",
    x=floats(17, 11), U=made(lambda rng: rng.standard_normal((11, 11)) / 4), h0=floats(11),
    within=256,
)  # fmt: skip
operator(
    "LSTM cell",
    """
    lstm(x: [B, I], h: [B, D], c: [B, D], W: [I, 4, D], U: [D, 4, D], b: [4, D]) -> y, s:
        g[n,q,d] = sum(x[n,i] * W[i,q,d]) + sum(h[n,e] * U[e,q,d]) + b[q,d]
        s[n,d] = sigmoid(g[n,1,d]) * c[n,d] + sigmoid(g[n,0,d]) * tanh(g[n,2,d])
        y[n,d] = sigmoid(g[n,3,d]) * tanh(s[n,d])
    """,
    "lstm(np.einsum('ni,iqd->qnd', x, W) + np.einsum('ne,eqd->qnd', h, U) + b[:, None], c)",
    x=floats(5, 13), h=floats(5, 11), c=floats(5, 11), W=floats(13, 4, 11), U=floats(11, 4, 11),
    b=floats(4, 11), schedule=".compute_with('s', 'y', 'd')",
)  # fmt: skip
operator(
    "LSTM over time",
    """
    lstm(x: [T, 4, D], U: [4, D, D], h0: [D], c0: [D]) -> h, c:
        h[0,d] = h0[d]
        c[0,d] = c0[d]
        g[t,q,d] = x[t,q,d] + sum(U[q,d,e] * h[t,e])
        c[t,d] = sigmoid(g[t-1,1,d]) * c[t-1,d] + sigmoid(g[t-1,0,d]) * tanh(g[t-1,2,d])
            where t in 1:T+1
        h[t,d] = sigmoid(g[t-1,3,d]) * tanh(c[t,d]) where t in 1:T+1
    """,
    "lstm_over_time(x, U, h0, c0)",
    x=floats(13, 4, 11), U=made(lambda rng: rng.standard_normal((4, 11, 11)) / 4), h0=floats(11),
    c0=floats(11), within=256,
)  # fmt: skip
operator(
    "GRU cell",
    """
    gru(x: [B, I], h: [B, D], W: [3, I, D], U: [3, D, D]) -> y:
        r[n,d] = sigmoid(sum(x[n,i] * W[0,i,d]) + sum(h[n,e] * U[0,e,d]))
        z[n,d] = sigmoid(sum(x[n,i] * W[1,i,d]) + sum(h[n,e] * U[1,e,d]))
        c[n,d] = tanh(sum(x[n,i] * W[2,i,d]) + r[n,d] * sum(h[n,e] * U[2,e,d]))
        y[n,d] = (1 - z[n,d]) * c[n,d] + z[n,d] * h[n,d]
    """,
    "gru(x @ W, h @ U, h)",
    x=floats(5, 13), h=floats(5, 11), W=floats(3, 13, 11), U=floats(3, 11, 11),
)  # fmt: skip
operator(
    "Cumulative sum",
    """
    cumsum(x: [N, M]) -> c:
        c[0,j] = x[0,j]
        c[i,j] = c[i-1,j] + x[i,j] where i in 1:N
    """,
    "np.cumsum(x, 0)",
    x=floats(71, 13), schedule=".vectorize('c.1.j', 8)",
)  # fmt: skip
operator(
    "Cumulative product and maximum",
    """
    scans(x: [N]) -> p, m:
        p[0] = x[0]
        p[i] = p[i-1] * x[i] where i in 1:N
        m[0] = x[0]
        m[i] = max(m[i-1], x[i]) where i in 1:N
    """,
    "np.cumprod(x), np.maximum.accumulate(x)",
    x=unit(61, low=0.8), within=128,
)  # fmt: skip
operator(
    "Exponential moving average",
    """
    ema(x: [N, C], a: []) -> y:
        y[0,c] = x[0,c]
        y[t,c] = a * x[t,c] + (1 - a) * y[t-1,c] where t in 1:N
    """,
    "scipy.signal.lfilter([a], [1, a - 1], x, 0, (1 - a) * x[:1])[0]",
    x=floats(53, 7), a=number(0.25),
)  # fmt: skip
operator(
    "Biquad filter (IIR)",
    """
    biquad(x: [N], b: [3], a: [3]) -> y:
        u[n] = b[0] * x[n] + b[1] * x.zero[n-1] + b[2] * x.zero[n-2]
        y[n] = u[n] - a[1] * where(n >= 1, y[n-1], 0) - a[2] * where(n >= 2, y[n-2], 0)
    """,
    "scipy.signal.lfilter(b, a, x)",
    x=floats(97), b=floats(3), a=made(lambda rng: np.array([1.0, -0.5, 0.25])), within=64,
)  # fmt: skip
operator(
    "Finite impulse response filter",
    """
    fir(x: [N], h: [K]) -> y:
        y[i] = sum(x[i+k] * h[K-1-k], over=(k in 0:K))
    """,
    "np.convolve(x, h, 'valid')",
    x=floats(113), h=floats(9), schedule=".vectorize('i', 8)",
)  # fmt: skip
operator(
    "Autocorrelation",
    """
    autocorrelation(x: [97]) -> r:
        r[l] = sum(x[i] * x[i+l], over=(i in 0:97-l)) where l in 0:11
    """,
    "np.correlate(x, x, 'full')[96:107]",
    x=floats(97),
)  # fmt: skip
operator(
    "Discrete Fourier transform by its definition",
    """
    dft(x: [N]) -> re, im:
        re[k] = sum(x[n] * cos(6.283185307179586 * (k*n % 64) / 64)) where k in 0:N
        im[k] = -sum(x[n] * sin(6.283185307179586 * (k*n % 64) / 64)) where k in 0:N
    """,
    "(z := np.fft.fft(x)).real, z.imag",
    x=floats(64), within=128,
)  # fmt: skip
operator(
    "Haar wavelet step",
    """
    haar(x: [N]) -> a, d:
        a[i] = (x[2*i] + x[2*i+1]) * 0.7071067811865476 where i in 0:N//2
        d[i] = (x[2*i] - x[2*i+1]) * 0.7071067811865476 where i in 0:N//2
    """,
    "(x[::2] + x[1::2]) / np.sqrt(2), (x[::2] - x[1::2]) / np.sqrt(2)",
    x=floats(94),
)  # fmt: skip
operator(
    "Edit distance",
    """
    edit(a: u8[M], b: u8[N]) -> D:
        D[i,j] = i + j where i in 0:M+1, j in 0:1
        D[i,j] = i + j where i in 0:1, j in 1:N+1
        D[i,j] = min(min(D[i-1,j], D[i,j-1]) + 1, D[i-1,j-1] + where(a[i-1] == b[j-1], 0, 1))
                 where i in 1:M+1, j in 1:N+1
    """,
    "edit(a, b)",
    a=whole(4, 23, dtype="uint8"), b=whole(4, 19, dtype="uint8"),
)  # fmt: skip
operator(
    "Soft dynamic time warping",
    """
    softdtw(C: [M, N], gamma: []) -> R:
        R[0,0] = C[0,0]
        R[i,0] = R[i-1,0] + C[i,0] where i in 1:M
        R[0,j] = R[0,j-1] + C[0,j] where j in 1:N
        R[i,j] = C[i,j] - gamma * log(exp(-R[i-1,j] / gamma) + exp(-R[i,j-1] / gamma)
                 + exp(-R[i-1,j-1] / gamma)) where i in 1:M, j in 1:N
    """,
    "softdtw(C, gamma)",
    C=unit(13, 17), gamma=number(1.0), within=64,
)  # fmt: skip
operator(
    "Viterbi scores",
    """
    viterbi(e: [T, S], A: [S, S]) -> v:
        v[0,s] = e[0,s]
        v[t,s] = e[t,s] + max(v[t-1,r] + A[r,s], over=r) where t in 1:T
    """,
    "viterbi(e, A)",
    e=floats(19, 7), A=floats(7, 7),
)  # fmt: skip


def banded(Q, K, V):
    n = len(Q)
    s = Q @ K.T / 4
    s[abs(np.arange(n)[:, None] - np.arange(n)) > 3] = -np.inf
    return scipy.special.softmax(s, 1) @ V


def rnn(x, U, h):
    out = [h]
    for now in x[1:]:
        out.append(np.tanh(now + U @ out[-1]))
    return np.array(out)


def lstm(g, c):
    i, f, z, o = scipy.special.expit(g[0]), scipy.special.expit(g[1]), np.tanh(g[2]), g[3]
    s = f * c + i * z
    return scipy.special.expit(o) * np.tanh(s), s


def lstm_over_time(x, U, h, c):
    hs, cs = [h], [c]
    for now in x:
        h, c = lstm((now + U @ hs[-1])[:, None], cs[-1][None])
        hs.append(h[0])
        cs.append(c[0])
    return np.array(hs), np.array(cs)


def gru(x, u, h):
    r, z = scipy.special.expit(x[:2] + u[:2])
    return (1 - z) * np.tanh(x[2] + r * u[2]) + z * h


def edit(a, b):
    D = np.add.outer(np.arange(len(a) + 1), np.arange(len(b) + 1))
    for i in range(1, len(a) + 1):
        for j in range(1, len(b) + 1):
            D[i, j] = min(
                D[i - 1, j] + 1, D[i, j - 1] + 1, D[i - 1, j - 1] + (a[i - 1] != b[j - 1])
            )
    return D


def softdtw(C, gamma):
    R = np.full(np.add(C.shape, 1), np.inf)
    R[0, 0] = 0
    for i in range(C.shape[0]):
        for j in range(C.shape[1]):
            before = np.array([R[i, j], R[i, j + 1], R[i + 1, j]])
            R[i + 1, j + 1] = C[i, j] - gamma * scipy.special.logsumexp(-before / gamma)
    return R[1:, 1:]


def viterbi(e, A):
    out = [e[0]]
    for now in e[1:]:
        out.append(now + (out[-1][:, None] + A).max(0))
    return np.array(out)
