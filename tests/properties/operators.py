"""Random operators: families of small ones, and one that adds terms of every kind of access.

A new family is a method listed in `FAMILIES`, a new kind of access a line of `terms.TERMS`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from guard import Array
from properties.grammar import Source
from properties.terms import TERMS


@dataclass
class Case:
    """An operator's text, the inputs it is called with, and which kinds of access it has."""

    text: str
    inputs: dict[str, Array]
    kinds: set[str]


class Grammar(Source):
    """Draws operators."""

    def draw(self) -> Case:
        return self.rng.choice(FAMILIES)(self)

    def mixed(self) -> Case:
        """Two to four terms, each with a kind of access of its own."""
        m, n, inputs = self.size(), self.size(), dict[str, Array]()
        temps: list[str] = []
        kinds = self.rng.sample(sorted(TERMS), self.rng.randint(2, 4))
        terms = [TERMS[kind](self, m, n, inputs, temps) for kind in kinds]
        header = ", ".join(f"{k}: [{', '.join(map(str, a.shape))}]" for k, a in inputs.items())
        lines = [*temps, f"y[i,j] = {' + '.join(terms)} where i in 0:{m}, j in 0:{n}"]
        text = "\n".join([f"mixed({header}) -> y:", *(f"  {line}" for line in lines)])
        return Case(text, inputs, set(kinds))

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
        stride, dilation = self.rng.choice([1, 2, 3]), self.rng.choice([1, 2])
        taps = min(self.size(), 3)
        length = stride * min(6, self.sizes[-1] - 2) + dilation * taps + self.rng.randrange(4)
        r = self.rng.choice(["sum", "max", "min"])
        text = f"y[b,i] = {r}(x[b,{stride}*i+{dilation}*k] * w[k])"
        inputs = {"x": self.array(self.size(), length), "w": self.array(taps)}
        return Case(text, inputs, {"strided", "reduction"})

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
        inputs = {"w": self.array(v, d), "at": self.index(v, n)}
        return Case("y[n,d] = w[at[n],d]", inputs, {"gather"})

    def scan(self) -> Case:
        m, n = self.size(), self.size(2)
        text = (
            "scan(x: [B, N]) -> c:\n  c[b,0] = x[b,0]\n  c[b,i] = c[b,i-1] + x[b,i] where i in 1:N"
        )
        return Case(text, {"x": self.array(m, n, dtype=self.dtype())}, {"recurrence"})

    def stepped(self) -> Case:
        """A stencil in time, whose borders stay as they are."""
        n, steps = self.size(3), self.rng.choice([2, 3, 5])
        text = (
            f"heat(x: [{n}]) -> u:\n  u[0,i] = x[i]\n  u[t,0] = x[0] where t in 1:{steps}\n"
            f"  u[t,{n - 1}] = x[{n - 1}] where t in 1:{steps}\n"
            f"  u[t,i] = u[t-1,i-1] + u[t-1,i+1] - u[t-1,i] where t in 1:{steps}, i in 1:{n - 1}"
        )
        return Case(text, {"x": self.array(n)}, {"recurrence", "stencil"})

    def species(self) -> Case:
        """Two tensors over time that read each other, one of them with a border."""
        n, steps = self.size(3), self.rng.choice([2, 3, 5])
        text = (
            f"species(x: [{n}], y: [{n}]) -> v, u:\n  u[0,i] = x[i]\n  v[0,i] = y[i]\n"
            f"  u[t,i] = v.zero[t-1,i+1] - u[t-1,i] where t in 1:{steps}\n"
            f"  v[t,i] = u[t,i] + v[t-1,i] where t in 1:{steps}"
        )
        return Case(text, {"x": self.array(n), "y": self.array(n)}, {"recurrence", "stencil"})

    def cells(self) -> Case:
        """A recurrent layer with gates that are reductions over the last state."""
        d, steps, gates = self.size(), self.rng.choice([1, 2, 4]), self.rng.choice([2, 3])
        text = (
            f"cells(x: [{steps}, {d}], w: [{gates}, {d}, {d}], h0: [{d}]) -> h:\n"
            f"  g[t,q,i] = max(-8, min(8, x[t,i] + sum(w[q,i,e] * h[t,e])))\n"
            f"  h[0,i] = h0[i]\n  c[0,i] = h0[i] - 1\n"
            f"  c[t,i] = max(g[t-1,0,i], c[t-1,i] - max(h[t-1,e])) where t in 1:{steps + 1}\n"
            f"  h[t,i] = min(c[t,i], g[t-1,{gates - 1},i]) where t in 1:{steps + 1}"
        )
        inputs = {"x": self.array(steps, d), "w": self.array(gates, d, d), "h0": self.array(d)}
        return Case(text, inputs, {"recurrence", "reduction", "temporary"})

    def distance(self) -> Case:
        """Dynamic programming over a table, downwards along one of its dimensions."""
        m, n = self.size(), self.size()
        text = (
            f"distance(a: [{m}], b: [{n}]) -> d:\n"
            f"  d[{m},j] = j where j in 0:{n + 1}\n  d[i,0] = {m} - i where i in 0:{m}\n"
            f"  d[i,j] = min(d[i+1,j-1] + where(a[i] == b[j-1], 0, 1), d[i+1,j] + 1, d[i,j-1] + 1)"
            f" where i in 0:{m}, j in 1:{n + 1}"
        )
        return Case(text, {"a": self.array(m), "b": self.array(n)}, {"recurrence", "guard"})

    def waves(self) -> Case:
        """A recurrence that only a skewed order computes."""
        m, n = self.size(3), self.size(3)
        text = (
            (
                f"waves(x: [{m}, {n}]) -> w:\n"
                "  w[i,j] = where((i > 0) & (j + 2 < M) & (j > 0) & (i + 1 < N),"
                " w[i-1,j+2] - w[i+1,j-1], x[i,j]) where i in 0:N, j in 0:M"
            )
            .replace("M", str(n))
            .replace("N", str(m))
        )
        return Case(text, {"x": self.array(m, n)}, {"recurrence", "guard"})

    def padded(self) -> Case:
        text = (
            "pad(x: [N], w: [K]) -> y:\n"
            "  y[i] = sum(where((i + k >= 1) & (i + k < N + 1), x[i+k-1], 0) * w[k]) where i in 0:N"
        )
        inputs = {"x": self.array(self.size(3)), "w": self.array(3)}
        return Case(text, inputs, {"guard", "reduction"})

    def scatter(self) -> Case:
        n, bins = self.size(), self.size()
        text = f"hist(at: [N], x: [N]) -> h:\n  h: [{bins}]\n  h[at[n]] += x[n]"
        return Case(text, {"at": self.index(bins, n), "x": self.array(n)}, {"scatter"})

    def rows_of_bins(self) -> Case:
        """A scatter of rows, as the gradient of an embedding is."""
        n, bins, d = self.size(), self.size(), self.size()
        text = f"rows(at: [N], x: [N, D]) -> h:\n  h: [{bins}, D]\n  h[at[n],d] += x[n,d]"
        inputs = {"at": self.index(bins, n), "x": self.array(n, d)}
        return Case(text, inputs, {"scatter"})

    def triangle(self) -> Case:
        text = "tri(a: [N, M]) -> c:\n  c[i,j] = sum(a[k,j], where=k <= i) where i in 0:N"
        return Case(text, {"a": self.array(self.size(), self.size())}, {"reduction", "triangle"})

    def quotient(self) -> Case:
        x = self.array(self.size(), dtype="int32")
        return Case("y[i] = x[i//2] + i % 3", {"x": x}, {"quotient"})

    def extreme(self) -> Case:
        m, n = self.size(), self.size()
        name, body = self.rng.choice(["argmax", "argmin"]), self.rng.choice(["", " * x[i,j]"])
        a = self.array(m, n, dtype=self.dtype())
        return Case(f"y[i] = {name}(x[i,j]{body})", {"x": a}, {"index of extreme", "reduction"})

    def fold(self) -> Case:
        """A reducer of three components, one of them wider, at times with a lift."""
        m, n, d = self.size(), self.size(), self.size()
        lines = ["reducer sym(m, s, o; n, t, r) = m + n, s + t + m * n, o + r - m * n from 0, 0, 0"]
        if self.rng.random() < 0.5:
            lines += [
                "lift sym: block(x: [K], w: [K], v: [K, D]) -> m, s, o:",
                "lift sym: m = sum(x[k])",
                "lift sym: q = sum(x[k] * x[l], where=k < l)",
                "lift sym: s = sum(w[k]) + q",
                "lift sym: o[d] = sum(v[k,d]) - q",
            ]
        where = self.rng.choice(["", ", where=j <= i", ", where=x[i,j] > 0"])
        lines.append(f"m[i], s[i], o[i,d] = sym(x[i,j], 1, v[j,d]{where})")
        t = self.dtype()
        inputs = {"x": self.array(m, n, dtype=t), "v": self.array(n, d, dtype=t)}
        if self.rng.random() < 0.5:
            lines.append("y[i,d] = o[i,d] - s[i]")
        return Case("\n".join(lines), inputs, {"fold", "reduction"})

    def ordered_fold(self) -> Case:
        """Affine maps one after the other, in two indices; or, which is exact too, of max and +."""
        m, n = self.size(), min(5, self.size())
        combine, one = ("a * e + b, c * e", "1") if self.payload else ("max(a + e, b), c + e", "0")
        text = f"reducer map(a, c; b, e) = {combine} from {'0' if self.payload else '-inf'}, {one} "
        text += "ordered\nu[i], v[i] = map(x[i,j,k], x[i,k,j])"
        return Case(text, {"x": self.array(m, n, n, dtype="float64")}, {"ordered fold"})

    def path(self) -> Case:
        """The best way through a table, downwards at times, with what a step of it came from."""
        steps, n, down = self.rng.choice([1, 2, 4]), self.size(), self.rng.random() < 0.5
        first, before, run = (steps, "t+1", f"0:{steps}") if down else (0, "t-1", f"1:{steps + 1}")
        where = self.rng.choice(["", ", where=r <= s", ", where=w[s,r] > 0"])
        text = (
            f"path(x: [{n}], w: [{n}, {n}]) -> v, at:\n"
            "  reducer best(m, i; n, j) = max(m, n), where(m >= n, i, j) from -1000, -1 ordered\n"
            f"  v[{first},s] = x[s]\n  at[{first},s] = 0 where s in 0:{n}\n"
            f"  v[t,s], at[t,s] = best(v[{before},r] + w[s,r], r{where}) where t in {run}"
        )
        inputs = {"x": self.array(n), "w": self.array(n, n)}
        return Case(text, inputs, {"ordered fold", "recurrence"})

    def chained_fold(self) -> Case:
        """A joint reduction of one wider component, and another that reads it, over steps."""
        n, d, steps = self.size(), self.size(), self.rng.choice([1, 2, 3])
        later = f" where t in 1:{steps + 1}"
        text = (
            f"chained(x: [{n}, {d}]) -> m, o, q:\n"
            "  reducer pair(m, o; n, r) = max(m, n), max(o, r) from -1000, -1000\n"
            f"  m[0] = 1\n  o[0,e] = x[0,e]\n  q[0,e] = x[0,e]\n"
            f"  m[t], o[t,e] = pair(x[i,0] + max(q[t-1,e]), x[i,e] - m[t-1], over=i){later}\n"
            f"  q[t,e] = o[t,e] - m[t]{later}"
        )
        return Case(text, {"x": self.array(n, d)}, {"fold", "recurrence", "reduction"})

    def total(self) -> Case:
        m, n = self.size(), self.size()
        one, other = self.rng.choices(["edge", "zero", "fill(3)", "reflect", "wrap"], k=2)
        text = (
            f"total(x: [{m}, {n}]) -> y:\n  y[i,j] = x.{one}[i-1,j+2] - x.{other}[i+1,j] * x[i,j]"
        )
        return Case(text, {"x": self.array(m, n, dtype=self.dtype())}, {"boundary", "guard"})

    def gradient(self) -> Case:
        stride, taps = self.rng.choice([1, 2, 3]), self.rng.choice([1, 2, 3])
        length = stride * min(5, self.sizes[-1] - 2) + taps + self.rng.randrange(3)
        out = (length - taps) // stride + 1
        text = (
            "back(x: [N], w: [K], dy: [H]) -> dx:\n"
            f"  dx[i] = sum(w[k] * dy[h], over=(h,k), where={stride}*h + k == i) where i in 0:N"
        )
        inputs = {"x": self.array(length), "w": self.array(taps), "dy": self.array(out)}
        return Case(text, inputs, {"equality", "reduction"})


FAMILIES: tuple[Callable[[Grammar], Case], ...] = (
    *[Grammar.mixed] * 12,
    *[Grammar.fold] * 2,
    *[Grammar.ordered_fold] * 2,
    Grammar.pointwise,
    Grammar.matmul,
    Grammar.transposed,
    Grammar.conv,
    Grammar.stencil,
    Grammar.chain,
    Grammar.rows,
    Grammar.gather,
    Grammar.scan,
    Grammar.stepped,
    Grammar.species,
    Grammar.cells,
    Grammar.distance,
    Grammar.waves,
    Grammar.padded,
    Grammar.scatter,
    Grammar.rows_of_bins,
    Grammar.triangle,
    Grammar.quotient,
    Grammar.extreme,
    Grammar.chained_fold,
    Grammar.path,
    Grammar.total,
    Grammar.gradient,
)
