"""Products of matrices and tensors, solvers, sparse matrices."""

operator(
    "Matrix product",
    "C[i,j] = sum(A[i,k] * B[k,j])",
    "A @ B",
    A=floats(61, 43), B=floats(43, 57),
    schedule=".tile(i=4, j=16).reorder('io', 'jo', 'k', 'ii', 'ji').vectorize('ji').parallel('io')",
)  # fmt: skip
operator(
    "Batched matrix product",
    "C[b,i,j] = sum(A[b,i,k] * B[b,k,j])",
    "A @ B",
    A=floats(5, 17, 23), B=floats(5, 23, 19),
    schedule=".parallel('b').reorder('i', 'k', 'j').vectorize('j', 8)",
)  # fmt: skip
operator(
    "Product with a transposed matrix",
    "C[i,j] = sum(A[i,k] * B[j,k])",
    "A @ B.T",
    A=floats(31, 67), B=floats(29, 67),
    schedule=".vectorize('k', 16).parallel('i')",
)  # fmt: skip
operator(
    "Matrix times vector",
    "y[i] = sum(A[i,j] * x[j])",
    "A @ x",
    A=floats(53, 71), x=floats(71),
    schedule=".split('i', 8).parallel('io')",
)  # fmt: skip
operator(
    "Outer product, added to a matrix",
    "B[i,j] = A[i,j] + alpha * x[i] * y[j]",
    "A + alpha * np.outer(x, y)",
    A=floats(37, 41), alpha=number(0.5), x=floats(37), y=floats(41),
    schedule=".vectorize('j', 8)",
)  # fmt: skip
operator(
    "Bilinear layer",
    "y[n,o] = sum(x[n,i] * W[o,i,j] * z[n,j])",
    "np.einsum('ni,oij,nj->no', x, W, z)",
    x=floats(9, 13), W=floats(7, 13, 11), z=floats(9, 11),
    schedule=".parallel('n')",
)  # fmt: skip
operator(
    "Kronecker product",
    """
    kron(A: [M, N], B: [5, 3]) -> K:
        K[i,j] = A[i//5,j//3] * B[i%5,j%3] where i in 0:5*M, j in 0:3*N
    """,
    "np.kron(A, B)",
    A=floats(7, 9), B=floats(5, 3),
    schedule=".tile(i=5, j=3).unroll('ji')",
)  # fmt: skip
operator(
    "Matricised tensor times Khatri-Rao product",
    "M[i,r] = sum(X[i,j,k] * B[j,r] * C[k,r])",
    "np.einsum('ijk,jr,kr->ir', X, B, C)",
    X=floats(11, 13, 7), B=floats(13, 5), C=floats(7, 5),
    schedule=".reorder('i', 'j', 'k', 'r').parallel('i')",
)  # fmt: skip
operator(
    "Trace and diagonal",
    """
    d[i] = A[i,i]
    t[] = sum(A[i,i])
    """,
    "np.diag(A), np.trace(A)",
    A=floats(33, 33),
)  # fmt: skip
operator(
    "Forward substitution",
    """
    solve(L: [N, N], b: [N]) -> x:
        x[0] = b[0] / L[0,0]
        x[i] = (b[i] - sum(L[i,j] * x[j], over=(j in 0:i))) / L[i,i] where i in 1:N
    """,
    "scipy.linalg.solve_triangular(L, b, lower=True)",
    L=made(lambda rng: np.tril(rng.standard_normal((39, 39))) / 39 + np.eye(39)), b=floats(39),
)  # fmt: skip
operator(
    "Cholesky factorisation",
    """
    cholesky(A: [N, N]) -> L:
        L[j,j] = sqrt(A[j,j] - sum(L[j,k] ** 2, over=(k in 0:j))) where j in 0:N
        L[i,j] = (A[i,j] - sum(L[i,k] * L[j,k], over=(k in 0:j))) / L[j,j]
            where j in 0:N, i in j+1:N
        L[i,j] = 0 where j in 0:N, i in 0:j
    """,
    "np.linalg.cholesky(A)",
    A=made(lambda rng: spd(rng, 23)),
)  # fmt: skip
operator(
    "Gauss-Seidel iterations",
    """
    seidel(A: [N, N], b: [N], x0: [N]) -> x:
        x[0,i] = x0[i]
        x[t,i] = (b[i] - sum(A[i,j] * x[t,j], over=(j in 0:i))
                  - sum(A[i,j] * x[t-1,j], over=(j in i+1:N))) / A[i,i] where t in 1:7, i in 0:N
    """,
    "seidel(A, b, x0)",
    A=made(lambda rng: spd(rng, 17)), b=floats(17), x0=floats(17), within=64,
)  # fmt: skip
operator(
    "Tridiagonal solve (Thomas)",
    """
    thomas(a: [N], b: [N], c: [N], d: [N]) -> x:
        p[0] = c[0] / b[0]
        p[i] = c[i] / (b[i] - a[i] * p[i-1]) where i in 1:N
        q[0] = d[0] / b[0]
        q[i] = (d[i] - a[i] * q[i-1]) / (b[i] - a[i] * p[i-1]) where i in 1:N
        x[i] = q[i] where i in N-1:N
        x[i] = q[i] - p[i] * x[i+1] where i in 0:N-1
    """,
    "scipy.linalg.solve_banded((1, 1), np.stack([np.roll(c, 1), b, np.roll(a, -1)]), d)",
    a=unit(47), b=unit(47, low=3.0), c=unit(47), d=floats(47),
)  # fmt: skip
operator(
    "Sparse matrix (coordinates) times vector",
    """
    spmv(row: i64[E], col: i64[E], val: [E], x: [N]) -> y:
        y: [N]
        y[row[e]] += val[e] * x[col[e]]
    """,
    "scipy.sparse.coo_array((val, (row, col)), (57, 57)) @ x",
    row=whole(57, 301), col=whole(57, 301), val=floats(301), x=floats(57),
)  # fmt: skip
operator(
    "Sparse matrix (ELLPACK) times vector",
    "y[i] = sum(val[i,k] * x[col[i,k]])",
    "(val * x[col]).sum(1)",
    val=floats(45, 7), x=floats(61), col=whole(61, 45, 7),
    schedule=".vectorize('i', 8)",
)  # fmt: skip
operator(
    "PageRank step",
    """
    pagerank(src: i64[E], dst: i64[E], degree: i64[N], r: [N]) -> y:
        p: [N]
        p[dst[e]] += r[src[e]] / max(degree[src[e]], 1)
        y[i] = 0.15 / N + 0.85 * p[i]
    """,
    "0.15 / 43 + 0.85 * np.bincount(dst, (r / np.maximum(degree, 1))[src], 43)",
    src=whole(43, 211), dst=whole(43, 211), degree=whole(9, 43), r=unit(43),
)  # fmt: skip
operator(
    "Quantised matrix product",
    """
    qmm(A: i8[M, K], B: i8[K, N], scale: f32[N]) -> C:
        C[i,j] = f32(sum(A[i,k] * B[k,j])) * scale[j]
    """,
    "(A.astype(int) @ B.astype(int)) * scale",
    A=whole(127, 19, 83, dtype="int8"), B=whole(127, 83, 21, dtype="int8"),
    scale=made(lambda rng: rng.random(21).astype(np.float32)),
    schedule=".vectorize('j', 8)",
)  # fmt: skip


def seidel(A, b, x):
    out = [x]
    for _ in range(6):
        out.append(scipy.linalg.solve_triangular(A, b - np.triu(A, 1) @ out[-1], lower=True))
    return np.array(out)


def spd(rng, n):
    a = rng.standard_normal((n, n))
    return a @ a.T / n + np.eye(n)
