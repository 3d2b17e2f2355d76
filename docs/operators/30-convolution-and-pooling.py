"""Convolutions of every kind, as cross-correlations, and pooling."""

operator(
    "Convolution in one dimension",
    "y[n,f,p] = sum(x[n,c,p+r] * w[f,c,r])",
    "correlate(x, w)",
    x=floats(3, 5, 31), w=floats(7, 5, 3), schedule=".vectorize('p', 8).parallel('n')",
)  # fmt: skip
operator(
    "Convolution with stride 2 and zero padding 1",
    "y[n,f,p,q] = sum(x.zero[n,c,2*p+r-1,2*q+s-1] * w[f,c,r,s]) where p in 0:7, q in 0:9",
    "correlate(np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1))), w)[:, :, ::2, ::2]",
    x=floats(2, 3, 13, 17), w=floats(5, 3, 3, 3),
)  # fmt: skip
operator(
    "Dilated convolution",
    "y[n,f,p,q] = sum(x[n,c,p+2*r,q+2*s] * w[f,c,r,s])",
    "correlate(x, dilate(w))",
    x=floats(2, 3, 13, 15), w=floats(4, 3, 3, 3), schedule=".vectorize('q', 8)",
)  # fmt: skip
operator(
    "Convolution in three dimensions",
    "y[n,f,p,q,o] = sum(x[n,c,p+r,q+s,o+t] * w[f,c,r,s,t])",
    "correlate(x, w)",
    x=floats(1, 2, 7, 9, 11), w=floats(3, 2, 3, 3, 3), schedule=".parallel('f')",
)  # fmt: skip
operator(
    "Depthwise convolution",
    "y[n,c,p,q] = sum(x[n,c,p+r,q+s] * w[c,r,s])",
    "np.stack([correlate(x[:, c:c+1], w[None, c:c+1])[:, 0] for c in range(5)], 1)",
    x=floats(2, 5, 11, 13), w=floats(5, 3, 3), schedule=".parallel('c')",
)  # fmt: skip
operator(
    "Grouped convolution",
    "y[n,g,f,p] = sum(x[n,g,c,p+r] * w[g,f,c,r])",
    "np.stack([correlate(x[:, g], w[g]) for g in range(3)], 1)",
    x=floats(2, 3, 4, 19), w=floats(3, 5, 4, 3),
)  # fmt: skip
operator(
    "Transposed convolution with stride 2",
    """
    deconv(x: [N, C, 9], w: [C, F, 3]) -> y:
        y: [N, F, 19]
        y[n,f,2*p+r] += x[n,c,p] * w[c,f,r]
    """,
    "correlate(stretch(x), np.swapaxes(w, 0, 1)[..., ::-1])",
    x=floats(2, 4, 9), w=floats(4, 5, 3),
)  # fmt: skip
operator(
    "Pointwise convolution, channels last",
    "y[n,p,q,f] = sum(x[n,p,q,c] * w[c,f])",
    "x @ w",
    x=floats(2, 7, 9, 13), w=floats(13, 11),
    schedule=".reorder('p', 'q', 'c', 'f').vectorize('f', 8)",
)  # fmt: skip
operator(
    "Maximum pooling",
    "y[n,c,p,q] = max(x[n,c,2*p+r,2*q+s], over=(r in 0:3, s in 0:3))",
    "np.lib.stride_tricks.sliding_window_view(x, (3, 3), (2, 3))[:, :, ::2, ::2].max((4, 5))",
    x=floats(2, 3, 13, 15), schedule=".parallel('c')",
)  # fmt: skip
operator(
    "Average pooling",
    "y[n,c,p,q] = sum(x[n,c,2*p+r,2*q+s], over=(r in 0:2, s in 0:2)) / 4",
    "x.reshape(2, 3, 7, 2, 9, 2).mean((3, 5))",
    x=floats(2, 3, 14, 18),
)  # fmt: skip
operator(
    "Global average pooling",
    """
    pool(x: [N, C, H, W]) -> y:
        y[n,c] = sum(x[n,c,h,w]) / (H*W)
    """,
    "x.mean((2, 3))",
    x=floats(3, 7, 9, 11), schedule=".parallel('n')",
)  # fmt: skip
operator(
    "Adaptive average pooling, 13 to 5",
    """
    adaptive(x: [C, 13]) -> y:
        n[p] = sum(1.0, over=(i in 13*p//5 : (13*p + 17)//5)) where p in 0:5
        y[c,p] = sum(x[c,i], over=(i in 13*p//5 : (13*p + 17)//5)) / n[p] where p in 0:5
    """,
    "np.stack([x[:, 13 * p // 5 : -(-13 * (p + 1) // 5)].mean(1) for p in range(5)], 1)",
    x=floats(7, 13),
)  # fmt: skip
operator(
    "Patches of an image as rows (im2col)",
    "y[p,q,c,r,s] = x[c,p+r,q+s] where r in 0:3, s in 0:3",
    "np.moveaxis(np.lib.stride_tricks.sliding_window_view(x, (3, 3), (1, 2)), 0, 2)",
    x=floats(3, 11, 9), schedule=".parallel('p')",
)  # fmt: skip
operator(
    "Pixel shuffle by 2",
    """
    shuffle(x: [N, C, 2, 2, H, W]) -> y:
        y[n,c,p,q] = x[n,c,p%2,q%2,p//2,q//2] where p in 0:2*H, q in 0:2*W
    """,
    "np.transpose(x, (0, 1, 4, 2, 5, 3)).reshape(2, 3, 10, 14)",
    x=floats(2, 3, 2, 2, 5, 7),
)  # fmt: skip


def correlate(x, w):
    """x[n,c,...] with w[f,c,...] where the kernel fits."""
    every = [[sum(scipy.signal.correlate(a[c], b[c], "valid") for c in range(len(b))) for b in w]
             for a in x]  # fmt: skip
    return np.array(every)


def dilate(w):
    out = np.zeros((*w.shape[:2], *(2 * n - 1 for n in w.shape[2:])))
    out[:, :, ::2, ::2] = w
    return out


def stretch(x):
    """Zeros between the elements, and two around."""
    out = np.zeros((*x.shape[:2], 2 * x.shape[2] + 3))
    out[:, :, 2:-2:2] = x
    return out
