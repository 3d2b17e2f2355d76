"""Filters, resampling, morphology, histograms and colour."""

operator(
    "Box blur",
    """
    h[y,x] = (g[y,x] + g[y,x+1] + g[y,x+2]) / 3
    b[y,x] = (h[y,x] + h[y+1,x] + h[y+2,x]) / 3
    """,
    "scipy.ndimage.uniform_filter(g, 3)[1:-1, 1:-1]",
    g=unit(37, 41), returns="b", schedule=".compute_at('h', 'b.y').vectorize('b.x', 8)",
)  # fmt: skip
operator(
    "Separable Gaussian blur, nearest pixels beyond the border",
    """
    gauss(g: [H, W], w: [7]) -> b:
        t[y,x] = sum(g.edge[y,x+k-3] * w[k]) where x in 0:W
        b[y,x] = sum(t.edge[y+k-3,x] * w[k]) where y in 0:H
    """,
    "scipy.ndimage.correlate1d(scipy.ndimage.correlate1d(g, w, 1, mode='nearest'), w, 0,"
    " mode='nearest')",
    g=unit(33, 45), w=made(lambda rng: np.exp(-0.5 * np.arange(-3.0, 4) ** 2)),
)  # fmt: skip
operator(
    "Magnitude of the Sobel gradient",
    """
    gx[y,x] = (g[y,x+2] - g[y,x]) + 2 * (g[y+1,x+2] - g[y+1,x]) + (g[y+2,x+2] - g[y+2,x])
    gy[y,x] = (g[y+2,x] - g[y,x]) + 2 * (g[y+2,x+1] - g[y,x+1]) + (g[y+2,x+2] - g[y,x+2])
    m[y,x] = sqrt(gx[y,x] ** 2 + gy[y,x] ** 2)
    """,
    "np.hypot(scipy.ndimage.sobel(g, 0), scipy.ndimage.sobel(g, 1))[1:-1, 1:-1]",
    g=unit(29, 35), returns="m", schedule=".inline('gx').vectorize('m.x', 8)",
)  # fmt: skip
operator(
    "Median of 3 x 3, by a network of minima and maxima",
    """
    lo[y,x] = min(min(g[y,x], g[y+1,x]), g[y+2,x])
    hi[y,x] = max(max(g[y,x], g[y+1,x]), g[y+2,x])
    mid[y,x] = max(min(g[y,x], g[y+1,x]), min(max(g[y,x], g[y+1,x]), g[y+2,x]))
    a[y,x] = max(max(lo[y,x], lo[y,x+1]), lo[y,x+2])
    b[y,x] = max(min(mid[y,x], mid[y,x+1]), min(max(mid[y,x], mid[y,x+1]), mid[y,x+2]))
    c[y,x] = min(min(hi[y,x], hi[y,x+1]), hi[y,x+2])
    m[y,x] = max(min(a[y,x], b[y,x]), min(max(a[y,x], b[y,x]), c[y,x]))
    """,
    "scipy.ndimage.median_filter(g, 3)[1:-1, 1:-1]",
    g=whole(256, 31, 43, dtype="uint8"), returns="m",
    schedule=".compute_at('a', 'm.y').compute_at('lo', 'm.y').vectorize('m.x', 16)",
)  # fmt: skip
operator(
    "Bilateral filter, 5 x 5",
    """
    w[y,x,r,s] = exp(-0.5 * ((r-2) ** 2 + (s-2) ** 2) - 8 * (g[y+r,x+s] - g[y+2,x+2]) ** 2)
        where r in 0:5, s in 0:5
    b[y,x] = sum(w[y,x,r,s] * g[y+r,x+s]) / sum(w[y,x,p,q])
    """,
    "bilateral(g)",
    g=unit(19, 23), returns="b",
)  # fmt: skip
operator(
    "Dilation, erosion and their difference",
    """
    d[y,x] = max(g[y+r,x+s], over=(r in 0:3, s in 0:3))
    e[y,x] = min(g[y+r,x+s], over=(r in 0:3, s in 0:3))
    gradient[y,x] = d[y,x] - e[y,x]
    """,
    "(d := scipy.ndimage.grey_dilation(g, (3, 3)))[1:-1, 1:-1],"
    " (e := scipy.ndimage.grey_erosion(g, (3, 3)))[1:-1, 1:-1], (d - e)[1:-1, 1:-1]",
    g=whole(99, 23, 31, dtype="int32"), returns=("d", "e", "gradient"),
)  # fmt: skip
operator(
    "Integral image",
    """
    integral(g: [H, W]) -> s:
        r[y,0] = g[y,0]
        r[y,x] = r[y,x-1] + g[y,x] where x in 1:W
        s[0,x] = r[0,x]
        s[y,x] = s[y-1,x] + r[y,x] where y in 1:H
    """,
    "g.cumsum(0).cumsum(1)",
    g=unit(33, 27), schedule=".parallel('r.1.y').vectorize('s.1.x', 8)",
)  # fmt: skip
operator(
    "Histogram equalisation",
    """
    equalise(g: u8[H, W]) -> y:
        n: [256]
        n[g[i,j]] += 1
        c[0] = n[0]
        c[v] = c[v-1] + n[v] where v in 1:256
        y[i,j] = u8(255 * c[g[i,j]] // (H*W))
    """,
    "(255 * np.bincount(g.ravel(), minlength=256).cumsum()[g] // g.size).astype(np.uint8)",
    g=whole(256, 29, 37, dtype="uint8"),
)  # fmt: skip
operator(
    "Grey value, gamma and threshold of a colour image",
    """
    tone(rgb: [H, W, 3], t: []) -> g, over:
        g[y,x] = exp(log(0.299 * rgb[y,x,0] + 0.587 * rgb[y,x,1] + 0.114 * rgb[y,x,2]) / 2.2)
        over[y,x] = g[y,x] > t
    """,
    "(g := (rgb @ [0.299, 0.587, 0.114]) ** (1 / 2.2)), g > t",
    rgb=unit(17, 23, 3, low=0.1), t=number(0.7),
)  # fmt: skip
operator(
    "Colour conversion by a matrix, planes last",
    "y[p,q,d] = sum(M[d,c] * x[p,q,c]) + b[d]",
    "x @ M.T + b",
    M=floats(3, 3), x=unit(19, 25, 3), b=floats(3), schedule=".unroll('d').unroll('c')",
)  # fmt: skip
operator(
    "Resizing to the nearest pixel",
    """
    nearest(x: [27, 36]) -> y:
        y[i,j] = x[3*i//2,3*j//2] where i in 0:18, j in 0:24
    """,
    "x[np.ix_(3 * np.arange(18) // 2, 3 * np.arange(24) // 2)]",
    x=floats(27, 36), schedule=".vectorize('j', 8)",
)  # fmt: skip
operator(
    "Bilinear resizing to twice the size",
    """
    upsample(x: [H, W]) -> y:
        r[i,x_] = 0.75 * x[i//2,x_] + 0.25 * x.edge[(i-1)//2 + i%2,x_] where i in 0:2*H
        y[i,j] = 0.75 * r[i,j//2] + 0.25 * r.edge[i,(j-1)//2 + j%2] where i in 0:2*H, j in 0:2*W
    """,
    "upsample(upsample(x).T).T",
    x=floats(11, 13),
)  # fmt: skip
operator(
    "Warping: bilinear sampling at given places",
    """
    warp(g: [H, W], u: [P, Q], v: [P, Q]) -> y:
        i[p,q] = i64(floor(u[p,q]))
        j[p,q] = i64(floor(v[p,q]))
        a[p,q] = u[p,q] - floor(u[p,q])
        b[p,q] = v[p,q] - floor(v[p,q])
        y[p,q] = ((1 - a[p,q]) * ((1 - b[p,q]) * g[i[p,q],j[p,q]] + b[p,q] * g[i[p,q],j[p,q]+1])
                 + a[p,q] * ((1 - b[p,q]) * g[i[p,q]+1,j[p,q]] + b[p,q] * g[i[p,q]+1,j[p,q]+1]))
    """,
    "scipy.ndimage.map_coordinates(g, [u, v], order=1)",
    g=floats(21, 27), u=made(lambda rng: 19.9 * rng.random((13, 15))),
    v=made(lambda rng: 25.9 * rng.random((13, 15))), within=512,
)  # fmt: skip
operator(
    "Padding by the edge, by reflection and around",
    """
    pad(x: [23]) -> e, r, w:
        e[i] = x.edge[i-4] where i in 0:31
        r[i] = x.reflect[i-4] where i in 0:31
        w[i] = x.wrap[i-4] where i in 0:31
    """,
    "np.pad(x, 4, 'edge'), np.pad(x, 4, 'reflect'), np.pad(x, 4, 'wrap')",
    x=floats(23),
)  # fmt: skip
operator(
    "Sharpening by an unsharp mask",
    """
    sharpen(g: [H, W]) -> u:
        b[y,x] = sum(g.reflect[y+r-1,x+s-1], over=(r in 0:3, s in 0:3)) / 9 where y in 0:H, x in 0:W
        u[y,x] = min(max(g[y,x] + 0.8 * (g[y,x] - b[y,x]), 0), 1)
    """,
    "np.clip(g + 0.8 * (g - scipy.ndimage.uniform_filter(g, 3, mode='mirror')), 0, 1)",
    g=unit(25, 31),
)  # fmt: skip
operator(
    "Flips and quarter turns",
    """
    turn(x: [H, W]) -> flip, turned:
        flip[i,j] = x[i,W-1-j] where j in 0:W
        turned[i,j] = x[j,W-1-i] where i in 0:W
    """,
    "x[:, ::-1], np.rot90(x)",
    x=floats(13, 17),
)  # fmt: skip


def bilateral(g):
    out = np.empty((g.shape[0] - 4, g.shape[1] - 4))
    near = np.exp(-0.5 * np.add.outer(np.arange(-2.0, 3) ** 2, np.arange(-2.0, 3) ** 2))
    for y in range(out.shape[0]):
        for x in range(out.shape[1]):
            part = g[y : y + 5, x : x + 5]
            w = near * np.exp(-8 * (part - part[2, 2]) ** 2)
            out[y, x] = (w * part).sum() / w.sum()
    return out


def upsample(x):
    """Rows at quarters between those of x, the first and last repeated."""
    padded = np.pad(x, ((1, 1), (0, 0)), "edge")
    out = np.empty((2 * x.shape[0], x.shape[1]))
    out[::2] = 0.75 * x + 0.25 * padded[:-2]
    out[1::2] = 0.75 * x + 0.25 * padded[2:]
    return out
