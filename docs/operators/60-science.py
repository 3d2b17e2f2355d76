"""Simulations, geometry, graphs, statistics."""

operator(
    "Heat equation, a step in two dimensions",
    """
    v[y,x] = u[y+1,x+1] + 0.1 * (
        u[y,x+1] + u[y+2,x+1] + u[y+1,x] + u[y+1,x+2] - 4 * u[y+1,x+1])
    """,
    "(u + 0.1 * scipy.ndimage.laplace(u))[1:-1, 1:-1]",
    u=unit(35, 29), schedule=".tile(y=8, x=8).parallel('yo').vectorize('xi')",
)  # fmt: skip
operator(
    "Heat equation, 12 steps in time",
    """
    heat(u0: [N]) -> u:
        u[0,i] = u0[i]
        u[t,i] = u[t-1,i] + 0.2 * (where(i > 0, u[t-1,i-1], u[t-1,i]) - 2 * u[t-1,i]
                 + where(i < N-1, u[t-1,i+1], u[t-1,i])) where t in 1:13, i in 0:N
    """,
    "heat(u0)",
    u0=unit(41),
)  # fmt: skip
operator(
    "Wave equation",
    """
    wave(a: [N], b: [N]) -> u:
        u[0,i] = a[i]
        u[1,i] = b[i]
        u[t,i] = 2 * u[t-1,i] - u[t-2,i] + where(0 < i < N-1,
                 0.25 * (u[t-1,i-1] - 2 * u[t-1,i] + u[t-1,i+1]), 0) where t in 2:11, i in 0:N
    """,
    "wave(a, b)",
    a=floats(37), b=floats(37), within=256,
)  # fmt: skip
operator(
    "Jacobi iteration of a linear system",
    "y[i] = (b[i] - sum(A[i,j] * x[j], where=i != j)) / A[i,i]",
    "(b - A @ x + np.diag(A) * x) / np.diag(A)",
    A=made(lambda rng: rng.standard_normal((31, 31)) + 31 * np.eye(31)), x=floats(31), b=floats(31),
    within=64,
)  # fmt: skip
operator(
    "Game of life on a torus",
    """
    life(c: bool[19, 23]) -> d:
        n[y,x] = sum(c.wrap[y+r-1,x+s-1], over=(r in 0:3, s in 0:3)) where y in 0:19, x in 0:23
        d[y,x] = (n[y,x] == 3) | c[y,x] & (n[y,x] == 4)
    """,
    "((n := scipy.ndimage.correlate(c.astype(int), np.ones((3, 3)), mode='wrap')) == 3)"
    " | c & (n == 4)",
    c=made(lambda rng: rng.random((19, 23)) < 0.4),
)  # fmt: skip
operator(
    "Gravity between bodies",
    """
    nbody(x: [N, 3], m: [N]) -> a:
        r[i,j] = sum((x[j,c] - x[i,c]) ** 2) + 0.01
        a[i,c] = sum(m[j] * (x[j,c] - x[i,c]) * rsqrt(r[i,j]) ** 3)
    """,
    "nbody(x, m)",
    x=floats(23, 3), m=unit(23), within=512,
)  # fmt: skip
operator(
    "Lennard-Jones forces",
    """
    forces(x: [N, 3]) -> f:
        r[i,j] = sum((x[i,c] - x[j,c]) ** 2)
        s[i,j] = where(i == j, 0.0, 1 / max(r[i,j], 0.0001)) where i in 0:N, j in 0:N
        f[i,c] = sum((48 * s[i,j] ** 7 - 24 * s[i,j] ** 4) * (x[i,c] - x[j,c]), over=j)
    """,
    "forces(x)",
    x=made(lambda rng: np.argwhere(np.ones((3, 3, 3))) + 0.1 * rng.random((27, 3))), within=512,
)  # fmt: skip
operator(
    "Pairwise distances",
    "d[i,j] = sqrt(sum((x[i,c] - y[j,c]) ** 2))",
    "scipy.spatial.distance.cdist(x, y)",
    x=floats(31, 5), y=floats(23, 5), schedule=".parallel('d.i')",
)  # fmt: skip
operator(
    "Assignment of points to the nearest centre, and new centres",
    """
    kmeans(x: [N, D], c: [7, D]) -> near, moved:
        near[n] = argmin(sum((x[n,d] - c[k,d]) ** 2, over=d), over=k)
        total: [7, D]
        total[near[n],d] += x[n,d]
        count: [7]
        count[near[n]] += 1.0
        moved[k,d] = total[k,d] / max(count[k], 1)
    """,
    "kmeans(x, c)",
    x=floats(101, 3), c=floats(7, 3),
)  # fmt: skip
operator(
    "Chamfer distance",
    """
    chamfer(x: [N, D], y: [M, D]) -> loss:
        d[i,j] = sum((x[i,c] - y[j,c]) ** 2)
        a[i] = min(d[i,j])
        b[j] = min(d[i,j])
        loss[] = sum(a[i]) / N + sum(b[j]) / M
    """,
    "((d := scipy.spatial.distance.cdist(x, y) ** 2).min(1).mean() + d.min(0).mean())",
    x=floats(33, 3), y=floats(27, 3),
)  # fmt: skip
operator(
    "Shortest paths (Floyd-Warshall)",
    """
    paths(w: [N, N]) -> d:
        D[0,i,j] = w[i,j]
        D[k,i,j] = min(D[k-1,i,j], D[k-1,i,k-1] + D[k-1,k-1,j])
                   where k in 1:N+1, i in 0:N, j in 0:N
        d[i,j] = D[N,i,j]
    """,
    "scipy.sparse.csgraph.floyd_warshall(w)",
    w=made(lambda rng: rng.random((17, 17)) * (1 - np.eye(17))),
)  # fmt: skip
operator(
    "Mandelbrot counts",
    """
    mandelbrot(a: [N], b: [N]) -> n:
        x[0,i] = 0 * a[i]
        y[0,i] = 0 * b[i]
        x[t,i] = min(x[t-1,i] ** 2 - y[t-1,i] ** 2 + a[i], 100) where t in 1:17
        y[t,i] = min(2 * x[t-1,i] * y[t-1,i] + b[i], 100) where t in 1:17
        n[i] = sum(where(x[t,i] ** 2 + y[t,i] ** 2 <= 4, 1, 0), over=(t in 1:17))
    """,
    "mandelbrot(a, b)",
    # far from the border, where rounding would decide
    a=made(lambda rng: np.r_[rng.uniform(-0.2, 0.2, 31), rng.uniform(0.4, 1.5, 66)]),
    b=made(lambda rng: np.r_[rng.uniform(-0.2, 0.2, 31), rng.uniform(0.4, 1, 66)]),
)  # fmt: skip
operator(
    "Predators and prey (Lotka-Volterra)",
    """
    predators(x0: [N], y0: [N]) -> x, y:
        x[0,i] = x0[i]
        y[0,i] = y0[i]
        x[t,i] = x[t-1,i] + 0.05 * (x[t-1,i] - x[t-1,i] * y[t-1,i]) where t in 1:31
        y[t,i] = y[t-1,i] + 0.05 * (x[t-1,i] * y[t-1,i] - y[t-1,i]) where t in 1:31
    """,
    "predators(x0, y0)",
    x0=unit(19), y0=unit(19), within=256,
)  # fmt: skip
operator(
    "Polynomial by Horner's rule",
    """
    horner(c: [K], x: [N]) -> y:
        p[0,i] = 0 * x[i] + c[K-1]
        p[k,i] = p[k-1,i] * x[i] + c[K-1-k] where k in 1:K
        y[i] = p[K-1,i]
    """,
    "np.polynomial.polynomial.polyval(x, c)",
    c=floats(9), x=unit(71), within=64,
)  # fmt: skip
operator(
    "Logistic map",
    """
    logistic(r: [N], x0: [N]) -> x:
        x[0,i] = x0[i]
        x[t,i] = r[i] * x[t-1,i] * (1 - x[t-1,i]) where t in 1:9
    """,
    "logistic(r, x0)",
    r=made(lambda rng: 2 + rng.random(53)), x0=unit(53), within=256,
)  # fmt: skip
operator(
    "Sums of segments",
    """
    segments(x: [N, D], s: i64[N]) -> y:
        y: [9, D]
        y[s[n],d] += x[n,d]
    """,
    "np.add.reduceat(x, np.searchsorted(s, range(9)))",
    x=floats(103, 5), s=made(lambda rng: np.sort(np.r_[:9, rng.integers(0, 9, 94)])),
)  # fmt: skip
operator(
    "Counts of coincidence (histogram of two variables)",
    """
    joint(a: i64[N], b: i64[N]) -> h:
        h: [7, 5]
        h[a[n],b[n]] += 1
    """,
    "np.histogram2d(a, b, (np.arange(8), np.arange(6)))[0].astype(int)",
    a=whole(7, 301), b=whole(5, 301),
)  # fmt: skip
operator(
    "Mean, variance and extremes of columns",
    """
    moments(x: [N, C]) -> mean, var, lo, hi:
        mean[c] = sum(x[n,c]) / N
        var[c] = sum((x[n,c] - mean[c]) ** 2) / N
        lo[c] = min(x[n,c])
        hi[c] = max(x[n,c])
    """,
    "x.mean(0), x.var(0), x.min(0), x.max(0)",
    x=floats(83, 7),
)  # fmt: skip
operator(
    "Mean and variance in one pass, by a tuple reducer",
    """
    moments(x: [N, C]) -> mean, var:
        reducer welford(n, m, s; k, d, q) = n + k, m + (d - m) * k / max(n + k, 0.000001), s + q + (d - m) * (d - m) * n * k / max(n + k, 0.000001) from 0.0, 0.0, 0.0
        n[c], mean[c], s[c] = welford(1.0, x[i,c], 0.0)
        var[c] = s[c] / n[c]
    """,  # noqa: E501
    "x.mean(0), x.var(0)",
    x=floats(83, 7), within=64,
)  # fmt: skip
operator(
    "Covariance matrix",
    """
    covariance(x: [N, C]) -> s:
        m[c] = sum(x[n,c]) / N
        s[c,d] = sum((x[n,c] - m[c]) * (x[n,d] - m[d])) / (N - 1)
    """,
    "np.cov(x.T)",
    x=floats(61, 9), schedule=".parallel('s.c')",
)  # fmt: skip
operator(
    "Energy of an Ising lattice",
    """
    ising(s: i32[17, 23]) -> e:
        e[] = -sum(s[y,x] * (s.wrap[y+1,x] + s.wrap[y,x+1]), over=(y in 0:17, x in 0:23))
    """,
    "-(s * np.roll(s, -1, 0) + s * np.roll(s, -1, 1)).sum()",
    s=made(lambda rng: rng.choice([-1, 1], (17, 23)).astype(np.int32)),
)  # fmt: skip
operator(
    "Radial basis interpolation",
    "y[i] = sum(w[j] * exp(-sum((x[i,c] - p[j,c]) ** 2, over=c)), over=j)",
    "np.exp(-scipy.spatial.distance.cdist(x, p) ** 2) @ w",
    w=floats(19), x=floats(29, 2), p=floats(19, 2),
)  # fmt: skip


def heat(u):
    out = [u]
    for _ in range(12):
        out.append(out[-1] + 0.2 * scipy.ndimage.laplace(out[-1], mode="nearest"))
    return np.array(out)


def wave(a, b):
    out = [a, b]
    for _ in range(9):
        bend = np.r_[0, np.diff(out[-1], 2), 0]
        out.append(2 * out[-1] - out[-2] + 0.25 * bend)
    return np.array(out)


def nbody(x, m):
    d = x[None] - x[:, None]
    return (m[None, :, None] * d / ((d**2).sum(2, keepdims=True) + 0.01) ** 1.5).sum(1)


def forces(x):
    d = x[:, None] - x[None]
    r = (d**2).sum(2) + np.eye(len(x))
    s = (1 - np.eye(len(x))) / r
    return ((48 * s**7 - 24 * s**4)[..., None] * d).sum(1)


def kmeans(x, c):
    near = scipy.spatial.distance.cdist(x, c).argmin(1)
    return near, np.array([x[near == k].mean(0) for k in range(len(c))])


def mandelbrot(a, b):
    z, n = 0 * (a + 1j * b), np.zeros(len(a), int)
    alive = np.ones(len(a), bool)
    for _ in range(16):
        z = np.where(alive, z * z + a + 1j * b, z)
        alive &= abs(z) <= 2
        n += alive
    return n


def predators(x, y):
    xs, ys = [x], [y]
    for _ in range(30):
        x, y = x + 0.05 * (x - x * y), y + 0.05 * (x * y - y)
        xs.append(x)
        ys.append(y)
    return np.array(xs), np.array(ys)


def logistic(r, x):
    out = [x]
    for _ in range(8):
        out.append(r * out[-1] * (1 - out[-1]))
    return np.array(out)
