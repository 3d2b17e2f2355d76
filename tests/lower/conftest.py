"""Nests written by hand, so that lowering is tested without the primitives that make them."""

from types import SimpleNamespace

import numpy as np
import pytest
from diptych.algo.dtypes import from_numpy
from diptych.algo.tensor_expr.build import compare
from diptych.algo.tensor_expr.expr import Access, Const, Index
from diptych.algo.tensor_expr.op import Checked, Kernel, Op, Tensor
from diptych.lower import passes
from diptych.lower.ir import Function
from diptych.lower.ir_parse import parse_expr, parse_function
from diptych.lower.ir_print import print_function
from diptych.lower.kernel import translate
from diptych.lower.run import run
from diptych.lower.verify import verify
from diptych.sched.loop.machine import Machine
from diptych.sched.loop.nest import Buffer, Leaf, Loop, Nest, Seq, Stmt, leaves


def stmt(name, dims, cell, value, reducer=None, where=()):
    """`dims` maps a dimension to its (lo, hi)."""
    target = parse_expr(cell)
    assert isinstance(target, Access)
    domain = []
    for dim, (lo, hi) in dims.items():
        domain += [compare("le", Const(lo), Index(dim)), compare("lt", Index(dim), Const(hi))]
    domain += [parse_expr(cond) for cond in where]
    names = tuple(dims)
    return Stmt(
        name, names, tuple(domain), target.tensor, target.indices, parse_expr(value), reducer,
        (name, tuple(map(Index, names))),
    )  # fmt: skip


def loop(name, value, *body, kind="serial"):
    """`value` is text for all statements below, or a dictionary for each."""
    parts = tuple(Leaf(part) if isinstance(part, str) else part for part in body)
    tree = parts[0] if len(parts) == 1 else Seq(parts)
    values = {s: parse_expr(value if isinstance(value, str) else value[s]) for s in leaves(tree)}
    return Loop(name, values, tree, kind)


def nest(tensors, stmts, tree, buffers=()):
    """`tensors` maps a name to (role, NumPy dtype, shape); temporaries are on the heap unless
    `buffers` says (name, tensor, scope, at, layout)."""
    made = {
        name: Tensor(name, from_numpy(dtype), tuple(map(Const, shape)), role)
        for name, (role, dtype, shape) in tensors.items()
    }
    returns = tuple(name for name, tensor in made.items() if tensor.role == "output")
    checked = Checked(Op("test", (), (), returns), (), {}, (), ())
    held = {
        t.name: Buffer(t.name, t.name, t.dtype, len(t.shape), "param")
        for t in made.values()
        if t.role != "temp"
    }
    given = {tensor for _, tensor, *_ in buffers}
    buffers = [
        *((t.name, t.name, "heap", None, None) for t in made.values()
          if t.role == "temp" and t.name not in given),
        *buffers,
    ]  # fmt: skip
    for name, tensor, scope, at, layout in buffers:
        axes = None if layout is None else tuple(map(parse_expr, layout))
        held[name] = Buffer(
            name, tensor, made[tensor].dtype, len(made[tensor].shape), scope, at, axes
        )
    tree = Leaf(tree) if isinstance(tree, str) else tree
    return Nest(Kernel(checked, made, (), {}), {s.name: s for s in stmts}, tree, held)


def outputs(function: Function, nest: Nest, arrays):
    """Runs the function on named arrays; returns its output arrays by name."""
    made = {}
    args = []
    for param in function.params:
        if param.name in arrays:
            args.append(arrays[param.name])
        else:
            made[param.name] = np.full(param.shape, 77, param.dtype.numpy)
            args.append(made[param.name])
    run(function, *args)
    return made


def agrees(nest: Nest, arrays, expected, machine=None, every_pass=True):
    """Lowers with all passes; after each the verifier passes, the text parses back, and the
    result is the expected one. Returns the function."""
    first = translate(nest, "kernel")

    def check(name, function, final=False):
        verify(function, final=final)
        assert parse_function(print_function(function)) is function
        try:
            found = outputs(function, nest, arrays)
            for tensor, array in expected.items():
                np.testing.assert_allclose(found[tensor], array, rtol=1e-5, err_msg=name)
        except Exception as error:
            raise AssertionError(f"after {name}:\n{print_function(function)}") from error

    check("translate", first)
    observe = check if every_pass else None
    last = passes.run(first, machine or Machine(), check=True, observe=observe)
    check("all", last, final=True)
    return last


def whole(rng, shape, dtype=np.float32):
    """Small integers, whose sums are exact in any order."""
    return rng.integers(-4, 5, shape).astype(dtype)


@pytest.fixture
def make():
    """The builders above, for test modules."""
    return SimpleNamespace(
        stmt=stmt, loop=loop, nest=nest, agrees=agrees, outputs=outputs, whole=whole,
        rng=np.random.default_rng(0), matmul=matmul,
    )  # fmt: skip


def matmul(m, n, k, mi=8, nj=48, kb=None, dtype="float32"):
    """C = A B: tiles of mi x nj in registers, a panel of B packed for each jo, rows in parallel."""
    word = {"float32": "f32", "float64": "f64", "int32": "i32"}[dtype]
    zero = "0:i32" if word == "i32" else f"0.0:{word}"
    ij, ijk = {"i": (0, m), "j": (0, n)}, {"i": (0, m), "j": (0, n), "k": (0, k)}
    stmts = [
        stmt("C.init", ij, "C.acc[i, j]", zero),
        stmt("C.update", ijk, "C.acc[i, j]", "A[i, k] * B.pack[k, j]", "sum"),
        stmt("C.store", ij, "C[i, j]", "C.acc[i, j]"),
        stmt("B.pack", {"jo": (0, -(-n // nj)), "k": (0, k), "j": (0, n)},
             "B.pack[k, j]", "B[k, j]", where=[f"j // {nj} == jo"]),
    ]  # fmt: skip

    def tile(prefix, name):
        inner = loop(f"{prefix}ji", f"j % {nj}", name, kind="vector")
        return loop(f"{prefix}ii", f"i % {mi}", inner, kind="unroll")

    update = loop("k", "k", tile("", "C.update"))
    io = loop("io", f"i // {mi}", tile("C.init.", "C.init"), update, tile("C.store.", "C.store"),
              kind="parallel")  # fmt: skip
    pack = loop("B.pack.k", "k", loop("B.pack.j", f"j % {nj}", "B.pack", kind="vector"))
    jo = dict.fromkeys(("C.init", "C.update", "C.store"), f"j // {nj}") | {"B.pack": "jo"}
    return nest(
        {
            "A": ("input", dtype, (m, k)),
            "B": ("input", dtype, (k, n)),
            "C": ("output", dtype, (m, n)),
        },
        stmts,
        loop("jo", jo, pack, io),
        [
            ("B.pack", "B", "stack", "jo", (f"d1 // {nj}", "d0", f"d1 % {nj}")),
            ("C.acc", "C", "register", "io", None),
        ],
    )
