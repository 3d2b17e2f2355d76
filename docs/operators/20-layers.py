"""Layers of neural networks that work on features: normalisations, activations, losses, tables."""

operator(
    "Dense layer with ReLU",
    "y[n,o] = max(sum(x[n,i] * w[i,o]) + b[o], 0)",
    "np.maximum(x @ w + b, 0)",
    x=floats(33, 29), w=floats(29, 37), b=floats(37),
    schedule=".vectorize('o', 16).parallel('n')",
)  # fmt: skip
operator(
    "Batch normalisation, training",
    """
    batchnorm(x: [N, C, H, W], gamma: [C], beta: [C]) -> y, mean, var:
        mean[c] = sum(x[n,c,h,w]) / (N*H*W)
        var[c] = sum((x[n,c,h,w] - mean[c]) ** 2) / (N*H*W)
        y[n,c,h,w] = (x[n,c,h,w] - mean[c]) * rsqrt(var[c] + 0.00001) * gamma[c] + beta[c]
    """,
    "((x - (m := x.mean((0, 2, 3)))[:, None, None]) / np.sqrt((v := x.var((0, 2, 3))) + 1e-5)"
    "[:, None, None] * gamma[:, None, None] + beta[:, None, None], m, v)",
    x=floats(3, 5, 7, 9), gamma=floats(5), beta=floats(5),
)  # fmt: skip
operator(
    "Batch normalisation, inference",
    "y[n,c,h] = (x[n,c,h] - mean[c]) * rsqrt(var[c] + 0.00001) * gamma[c] + beta[c]",
    "(x - mean[:, None]) / np.sqrt(var + 1e-5)[:, None] * gamma[:, None] + beta[:, None]",
    x=floats(5, 7, 23), mean=floats(7), var=unit(7), gamma=floats(7), beta=floats(7),
    schedule=".vectorize('h', 8).parallel('n')", within=512,
)  # fmt: skip
operator(
    "Layer normalisation",
    """
    layernorm(x: [N, D], gamma: [D], beta: [D]) -> y:
        mean[n] = sum(x[n,d]) / D
        var[n] = sum((x[n,d] - mean[n]) ** 2) / D
        y[n,d] = (x[n,d] - mean[n]) * rsqrt(var[n] + 0.00001) * gamma[d] + beta[d]
    """,
    "(x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5) * gamma + beta",
    x=floats(11, 77), gamma=floats(77), beta=floats(77),
    schedule=".parallel('y.n').vectorize('y.d', 8)",
)  # fmt: skip
operator(
    "Group normalisation, 4 groups of 3 channels",
    """
    groupnorm(x: [N, 12, L], gamma: [12], beta: [12]) -> y:
        mean[n,g] = sum(x[n,3*g+c,l], over=(c in 0:3, l)) / (3*L) where g in 0:4
        var[n,g] = sum((x[n,3*g+c,l] - mean[n,g]) ** 2, over=(c in 0:3, l)) / (3*L) where g in 0:4
        y[n,c,l] = (x[n,c,l] - mean[n,c//3]) * rsqrt(var[n,c//3] + 0.00001) * gamma[c] + beta[c]
    """,
    "groupnorm(x, 4) * gamma[:, None] + beta[:, None]",
    x=floats(3, 12, 19), gamma=floats(12), beta=floats(12),
)  # fmt: skip
operator(
    "Root-mean-square normalisation",
    """
    rmsnorm(x: [N, D], g: [D]) -> y:
        y[n,d] = x[n,d] * rsqrt(sum(x[n,k] ** 2) / D + 0.000001) * g[d]
    """,
    "x / np.sqrt((x ** 2).mean(1, keepdims=True) + 1e-6) * g",
    x=floats(13, 65), g=floats(65),
)  # fmt: skip
operator(
    "Softmax",
    """
    m[i] = max(x[i,j])
    e[i,j] = exp(x[i,j] - m[i])
    y[i,j] = e[i,j] / sum(e[i,l])
    """,
    "scipy.special.softmax(x, 1)",
    x=floats(9, 101), returns="y",
    schedule=".vectorize('e.j', 8).compute_at('m', 'e.i')",
)  # fmt: skip
operator(
    "Logarithm of softmax",
    """
    m[i] = max(x[i,j])
    y[i,j] = x[i,j] - m[i] - log(sum(exp(x[i,l] - m[i])))
    """,
    "scipy.special.log_softmax(x, 1)",
    x=floats(9, 101), returns="y",
)  # fmt: skip
operator(
    "Log-sum-exp",
    """
    m[i] = max(x[i,j])
    y[i] = m[i] + log(sum(exp(x[i,j] - m[i])))
    """,
    "scipy.special.logsumexp(x, 1)",
    x=floats(15, 87), returns="y",
    schedule=".parallel('y.i')",
)  # fmt: skip
operator(
    "Cross entropy of labels",
    """
    cross_entropy(z: [N, C], label: i64[N]) -> loss:
        m[n] = max(z[n,c])
        loss[] = sum(m[n] + log(sum(exp(z[n,c] - m[n]), over=c)) - z[n,label[n]]) / N
    """,
    "-np.take_along_axis(scipy.special.log_softmax(z, 1), label[:, None], 1).mean()",
    z=floats(27, 11), label=whole(11, 27),
)  # fmt: skip
operator(
    "Top-1 accuracy",
    """
    accuracy(z: [N, C], label: i64[N]) -> a:
        a[] = sum(where(argmax(z[n,c], over=c) == label[n], 1, 0), over=n) / f64(N)
    """,
    "(z.argmax(1) == label).mean()",
    z=floats(45, 3), label=whole(3, 45),
)  # fmt: skip
operator(
    "GELU",
    "y[i] = 0.5 * x[i] * (1 + erf(x[i] * 0.7071067811865476))",
    "x * scipy.special.ndtr(x)",
    x=floats(203), schedule=".vectorize('i', 8)",
)  # fmt: skip
operator(
    "SiLU",
    "y[i] = x[i] * sigmoid(x[i])",
    "x * scipy.special.expit(x)",
    x=floats(203), schedule=".split('i', 7).parallel('io')",
)  # fmt: skip
operator(
    "Mish",
    "y[i] = x[i] * tanh(max(x[i], 0) + log(1 + exp(-abs(x[i]))))",
    "x * np.tanh(np.logaddexp(0, x))",
    x=floats(203), schedule=".vectorize('i', 4)",
)  # fmt: skip
operator(
    "Leaky ReLU and its slope",
    """
    y[i] = where(x[i] > 0, x[i], 0.01 * x[i])
    slope[i] = where(x[i] > 0, 1.0, 0.01)
    """,
    "np.where(x > 0, x, 0.01 * x), np.where(x > 0, 1.0, 0.01)",
    x=floats(203), schedule=".compute_with('y', 'slope', 'i')",
)  # fmt: skip
operator(
    "Dropout with a given mask",
    "y[i,j] = where(keep[i,j], x[i,j] / (1 - p), 0)",
    "np.where(keep, x / (1 - p), 0)",
    keep=made(lambda rng: rng.random((13, 37)) > 0.3), x=floats(13, 37), p=number(0.25),
    schedule=".vectorize('j', 16)",
)  # fmt: skip
operator(
    "Embedding",
    "y[b,t,d] = W[token[b,t],d]",
    "W[token]",
    W=floats(57, 19), token=whole(57, 5, 13), schedule=".vectorize('d', 8)",
)  # fmt: skip
operator(
    "Mean of an embedding bag",
    """
    bag(W: [V, D], token: i64[B, T], weight: [B, T]) -> y:
        y[b,d] = sum(weight[b,t] * W[token[b,t],d]) / T
    """,
    "(weight[..., None] * W[token]).mean(1)",
    W=floats(57, 19), token=whole(57, 7, 11), weight=floats(7, 11),
)  # fmt: skip
operator(
    "Gradient of an embedding",
    """
    embedding_gradient(token: i64[N], dy: [N, D]) -> dW:
        dW: [57, D]
        dW[token[n],d] += dy[n,d]
    """,
    "np.stack([np.bincount(token, dy[:, d], 57) for d in range(19)], 1)",
    token=whole(57, 203), dy=floats(203, 19),
)  # fmt: skip
operator(
    "One-hot",
    "y[n,c] = where(label[n] == c, 1.0, 0.0) where c in 0:11",
    "np.eye(11)[label]",
    label=whole(11, 37),
)  # fmt: skip
operator(
    "Adam step",
    """
    adam(p: [N], g: [N], m: [N], v: [N], t: []) -> q, a, b:
        a[i] = 0.9 * m[i] + 0.1 * g[i]
        b[i] = 0.999 * v[i] + 0.001 * g[i] ** 2
        q[i] = p[i] - 0.001 * (a[i] / (1 - 0.9 ** t)) / (sqrt(b[i] / (1 - 0.999 ** t)) + 0.00000001)
    """,
    "adam(p, g, m, v, t)",
    p=floats(91), g=floats(91), m=floats(91), v=unit(91), t=number(7.0),
    within=128,
)  # fmt: skip
operator(
    "Squeeze and excite",
    """
    squeeze(x: [N, C, H, W], a: [C, S], b: [S, C]) -> y:
        s[n,c] = sum(x[n,c,h,w]) / (H*W)
        t[n,r] = max(sum(s[n,c] * a[c,r]), 0)
        y[n,c,h,w] = x[n,c,h,w] * sigmoid(sum(t[n,r] * b[r,c], over=r))
    """,
    "x * scipy.special.expit(np.maximum(x.mean((2, 3)) @ a, 0) @ b)[:, :, None, None]",
    x=floats(3, 11, 5, 7), a=floats(11, 4), b=floats(4, 11),
)  # fmt: skip
operator(
    "Cosine similarity",
    "s[i,j] = sum(x[i,d] * y[j,d]) * rsqrt(sum(x[i,d] ** 2) * sum(y[j,d] ** 2))",
    "1 - scipy.spatial.distance.cdist(x, y, 'cosine')",
    x=floats(13, 31), y=floats(17, 31),
)  # fmt: skip


def groupnorm(x, groups):
    y = x.reshape(x.shape[0], groups, -1)
    y = (y - y.mean(2, keepdims=True)) / np.sqrt(y.var(2, keepdims=True) + 1e-5)
    return y.reshape(x.shape)


def adam(p, g, m, v, t):
    a, b = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
    return p - 0.001 * (a / (1 - 0.9**t)) / (np.sqrt(b / (1 - 0.999**t)) + 1e-8), a, b
