"""Random operator x random legal schedule must agree with the interpreter, on integers exactly.

The operators are drawn from a small grammar over every kind of access that the language has now;
the schedules by applying random primitives to whatever loops there are. Outputs are poisoned.
Floats carry small integers, so that sums are exact and any legal order gives the same bits.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from dataclasses import dataclass
from typing import Any

import diptych as dt
import numpy as np
import pytest

MODE = os.environ.get("DIPTYCH_TEST", "sample")
PAIRS = {"sample": 500, "full": 3000, "fuzz": 10**9}[MODE]
CHUNK = 25
SEED = int(os.environ.get("DIPTYCH_SEED", "0"))


@dataclass
class Case:
    """An operator's text, the inputs it is called with, and which kinds of access it has."""

    text: str
    inputs: dict[str, np.ndarray[Any, Any]]
    kinds: set[str]


class Grammar:
    """Draws operators. Sizes are small and mostly odd, so that factors rarely divide."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.np = np.random.default_rng(rng.randrange(1 << 30))

    def size(self, low: int = 1) -> int:
        return self.rng.choice([n for n in (1, 2, 3, 5, 7, 8, 11, 13, 16, 19) if n >= low])

    def array(self, *shape: int, dtype: str = "float32") -> np.ndarray[Any, Any]:
        return self.np.integers(-4, 5, shape).astype(dtype)

    def dtype(self) -> str:
        return self.rng.choice(["float32", "float32", "float64", "int32", "int16", "uint8"])

    def draw(self) -> Case:
        return self.rng.choice(
            [
                self.pointwise, self.matmul, self.transposed, self.conv, self.stencil, self.chain,
                self.rows, self.gather, self.scan, self.padded, self.scatter, self.triangle,
                self.quotient, self.gradient, self.extreme, self.total,
            ]
        )()  # fmt: skip

    def pointwise(self) -> Case:
        m, n = self.size(), self.size()
        a, b = self.array(m, n, dtype=self.dtype()), self.array(n)
        body = self.rng.choice(
            ["a[i,j] * 2 + b[j]", "max(a[i,j], b[j]) - 1", "where(a[i,j] > 0, b[j], a[i,j])"]
        )
        return Case(f"y[i,j] = {body}", {"a": a, "b": b}, {"broadcast"})

    def matmul(self) -> Case:
        m, n, k = self.size(), self.size(), self.size()
        t = self.dtype()
        tail = self.rng.choice(["", " + d[j]"])
        inputs = {"a": self.array(m, k, dtype=t), "b": self.array(k, n, dtype=t)}
        if tail:
            inputs["d"] = self.array(n, dtype=t)
        return Case(f"c[i,j] = sum(a[i,k] * b[k,j]){tail}", inputs, {"reduction", "broadcast"})

    def transposed(self) -> Case:
        m, n, k = self.size(), self.size(), self.size()
        t = self.dtype()
        inputs = {"a": self.array(k, m, dtype=t), "b": self.array(n, k, dtype=t)}
        return Case("c[i,j] = sum(a[k,i] * b[j,k])", inputs, {"reduction", "transposed"})

    def conv(self) -> Case:
        stride, dilation, taps = self.rng.choice([1, 2, 3]), self.rng.choice([1, 2]), self.size(1)
        taps = min(taps, 3)
        length = stride * 6 + dilation * taps + self.rng.randrange(4)
        rows = self.size()
        r = self.rng.choice(["sum", "max", "min"])
        text = f"y[b,i] = {r}(x[b,{stride}*i+{dilation}*k] * w[k])"
        return Case(text, {"x": self.array(rows, length), "w": self.array(taps)}, {"strided"})

    def stencil(self) -> Case:
        m, n = self.size(3), self.size(3)
        text = "t[i,j] = x[i,j] + x[i,j+1] + x[i,j+2]\ny[i,j] = t[i,j] - t[i+1,j] + t[i+2,j]"
        return Case(text, {"x": self.array(m, n, dtype=self.dtype())}, {"stencil", "temporary"})

    def chain(self) -> Case:
        m, n = self.size(), self.size()
        text = "s[i,j] = x[i,j] + 1\nt[i,j] = s[i,j] * x[i,j]\ny[j,i] = t[i,j] - s[i,j]"
        return Case(text, {"x": self.array(m, n, dtype=self.dtype())}, {"temporary", "transposed"})

    def rows(self) -> Case:
        m, n = self.size(), self.size()
        text = "m[i] = max(x[i,j])\ny[i,j] = (x[i,j] - m[i]) * sum(x[i,l] - m[i])"
        return Case(text, {"x": self.array(m, n)}, {"reduction", "temporary"})

    def gather(self) -> Case:
        n, v, d = self.size(), self.size(), self.size()
        index = self.np.integers(0, v, n).astype(self.rng.choice(["int32", "int64"]))
        return Case("y[n,d] = w[at[n],d]", {"w": self.array(v, d), "at": index}, {"gather"})

    def scan(self) -> Case:
        m, n = self.size(), self.size(2)
        text = "c[b,0] = x[b,0]\nc[b,i] = c[b,i-1] + x[b,i] where i in 1:N"
        text = f"scan(x: [B, N]) -> c:\n  {text.replace(chr(10), chr(10) + '  ')}"
        return Case(text, {"x": self.array(m, n, dtype=self.dtype())}, {"recurrence"})

    def padded(self) -> Case:
        n, taps = self.size(3), 3
        text = (
            "pad(x: [N], w: [K]) -> y:\n"
            "  y[i] = sum(where((i + k >= 1) & (i + k < N + 1), x[i+k-1], 0) * w[k]) where i in 0:N"
        )
        return Case(text, {"x": self.array(n), "w": self.array(taps)}, {"guard", "reduction"})

    def scatter(self) -> Case:
        n, bins = self.size(), self.size()
        index = self.np.integers(0, bins, n).astype("int32")
        text = f"hist(at: [N], x: [N]) -> h:\n  h: [{bins}]\n  h[at[n]] += x[n]"
        return Case(text, {"at": index, "x": self.array(n)}, {"scatter"})

    def triangle(self) -> Case:
        n, m = self.size(), self.size()
        text = "tri(a: [N, M]) -> c:\n  c[i,j] = sum(a[k,j], where=k <= i) where i in 0:N"
        return Case(text, {"a": self.array(n, m)}, {"reduction", "triangle"})

    def quotient(self) -> Case:
        n = self.size()
        return Case("y[i] = x[i//2] + i % 3", {"x": self.array(n, dtype="int32")}, {"quotient"})

    def extreme(self) -> Case:
        m, n = self.size(), self.size()
        name, body = self.rng.choice(["argmax", "argmin"]), self.rng.choice(["", " * x[i,j]"])
        a = self.array(m, n, dtype=self.dtype())
        return Case(f"y[i] = {name}(x[i,j]{body})", {"x": a}, {"index of extreme", "reduction"})

    def total(self) -> Case:
        m, n = self.size(), self.size()
        one, other = self.rng.choices(["edge", "zero", "fill(3)", "reflect", "wrap"], k=2)
        text = (
            f"total(x: [{m}, {n}]) -> y:\n  y[i,j] = x.{one}[i-1,j+2] - x.{other}[i+1,j] * x[i,j]"
        )
        return Case(text, {"x": self.array(m, n, dtype=self.dtype())}, {"boundary", "guard"})

    def gradient(self) -> Case:
        stride, taps = self.rng.choice([1, 2, 3]), self.rng.choice([1, 2, 3])
        length = stride * 5 + taps + self.rng.randrange(3)
        out = (length - taps) // stride + 1
        text = (
            "back(x: [N], w: [K], dy: [H]) -> dx:\n"
            f"  dx[i] = sum(w[k] * dy[h], over=(h,k), where={stride}*h + k == i) where i in 0:N"
        )
        inputs = {"x": self.array(length), "w": self.array(taps), "dy": self.array(out)}
        return Case(text, inputs, {"equality", "reduction"})


FACTORS = (2, 3, 4, 5, 8)


def propose(rng: random.Random, schedule: Any) -> tuple[str, str]:
    """A random primitive on random loops of the schedule, as (name, call text)."""
    from diptych.sched.loop.nest import loops

    nest = schedule.nest()
    all_loops = list(loops(nest.tree))
    names = [loop.name for loop in all_loops]
    leafs = [loop.name for loop in all_loops if not list(loops(loop.body))]
    kind = rng.choice(
        [
            "split", "split", "tile", "fuse", "reorder", "vectorize", "unroll", "parallel", "stage",
            "compute_at", "rfactor", "rfactor", "reverse", "skew", "shift", "inline",
        ]
    )  # fmt: skip
    one = rng.choice(names) if names else "none"
    temps = [b for b, s in nest.buffers.items() if nest.kernel.tensors[s.tensor].role == "temp"]
    if temps and rng.random() < 0.3:
        kind = rng.choice(["compute_at", "compute_at", "inline"])
    if kind == "split":
        tail = rng.choice(["", ', tail="separate"'])
        return kind, f'split("{one}", {rng.choice(FACTORS)}{tail})'
    if kind == "tile":
        bare = sorted({n.rsplit(".", 1)[-1] for n in names})
        pick = [b for b in rng.sample(bare, min(2, len(bare))) if b.isidentifier()]
        return kind, f"tile({', '.join(f'{b}={rng.choice(FACTORS)}' for b in pick)})"
    if kind == "fuse":
        chain = _chain(rng, nest.tree)
        at = rng.randrange(max(1, len(chain) - 1))
        return kind, f"fuse({', '.join(repr(c) for c in chain[at : at + 2])})"
    if kind == "reorder":
        chain = _chain(rng, nest.tree)
        rng.shuffle(chain)
        return kind, f"reorder({', '.join(repr(c) for c in chain)})"
    if kind == "vectorize":
        return kind, f'vectorize("{rng.choice(leafs) if leafs else one}")'
    if kind in ("unroll", "parallel"):
        return kind, f'{kind}("{one if kind == "unroll" else names[0] if names else one}")'
    if kind == "stage":
        tensor = rng.choice([b for b, s in nest.buffers.items() if s.scope in ("param", "heap")])
        return kind, f'stage("{tensor}", at="{one}", scope="stack")'
    if kind in ("rfactor", "reverse"):
        return kind, f'{kind}("{one}")'
    if kind == "skew":
        outer = rng.choice(_chain(rng, nest.tree) or ["none"])
        return kind, f'skew("{one}", "{outer}", {rng.choice([-1, 1, 2])})'
    if kind == "shift":
        return kind, f'shift("{rng.choice(list(nest.stmts))}", "{one}", {rng.choice([-1, 1, 3])})'
    if kind == "inline":
        return kind, f'inline("{rng.choice(temps) if temps else "none"}")'
    return kind, f'compute_at("{rng.choice(temps) if temps else "none"}", "{one}")'


def _chain(rng: random.Random, tree: Any) -> list[str]:
    from diptych.sched.loop.nest import Loop, Seq

    chain: list[str] = []
    while True:
        if isinstance(tree, Loop):
            chain.append(tree.name)
            tree = tree.body
        elif isinstance(tree, Seq):
            tree = rng.choice(tree.parts)
        else:
            return chain


def apply(schedule: Any, call: str) -> Any:
    """One more primitive, through the replay text, as a user's file would have it."""
    from diptych.sched.loop.schedule import Schedule

    return Schedule.parse(schedule.op, f"{schedule.text}.{call}")


counts: Counter[str] = Counter()
primitives: Counter[str] = Counter()


def chunk_of_pairs(seed: int) -> None:
    rng = random.Random(seed)
    done = 0
    while done < CHUNK:
        case = Grammar(rng).draw()
        op = dt.op(case.text)
        schedule, used = op.schedule(), []
        for _ in range(rng.choice([2, 4, 6, 8])):
            name, call = propose(rng, schedule)
            counts["proposed"] += 1
            try:
                schedule = apply(schedule, call)
            except dt.ScheduleError:
                continue
            counts["taken"] += 1
            used.append(name)
        done += 1
        arrays = [case.inputs[p.name] for p in op.params]
        want = dt.interpret(op, *arrays)
        out = np.empty_like(want)
        out.view(np.uint8).fill(0xAB)
        try:
            got = op.with_schedule(schedule, strict=True)(*arrays, out=out)
        except dt.ScheduleError:
            counts["refused at sizes"] += 1
            continue
        except Exception as error:
            raise AssertionError(f"seed {seed}: {case.text}\n{schedule.text}") from error
        np.testing.assert_array_equal(
            got, want, err_msg=f"seed {seed}: {case.text}\n{schedule.text}"
        )
        counts["pairs"] += 1
        counts["length"] += len(used)
        for name in set(used):
            primitives[name] += 1
        for kind in case.kinds:
            primitives[f"access {kind}"] += 1


@pytest.mark.parametrize("chunk", range(min(PAIRS, 10**6) // CHUNK))
def test_pairs_agree(chunk: int) -> None:
    chunk_of_pairs(SEED * 1_000_003 + chunk)


def test_the_pairs_cover_the_space() -> None:
    """Runs last: what was drawn is varied enough to mean something."""
    if counts["pairs"] < PAIRS // 2:
        pytest.skip("needs the pairs of this file in the same run")
    assert counts["pairs"] >= 0.6 * (counts["pairs"] + counts["refused at sizes"])
    assert counts["length"] >= 2 * counts["pairs"]
    rare = {k: n for k, n in primitives.items() if n < 0.02 * counts["pairs"]}
    assert not rare, (rare, primitives)
