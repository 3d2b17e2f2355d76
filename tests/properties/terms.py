"""Kinds of access: each is a term over the indices i and j that reads inputs of its own.

A new kind is a line of `TERMS`: it adds what it reads to the inputs and equations of temporaries
to `temps`. Names of inputs and temporaries are its own.
"""

from __future__ import annotations

from collections.abc import Callable

from guard import Array
from properties.grammar import Source

Term = Callable[[Source, int, int, dict[str, Array], list[str]], str]


def _read(text: str, name: str, shape: Callable[[int, int], tuple[int, ...]]) -> Term:
    """A term that reads one more input, of a shape that follows from the output's."""

    def term(g: Source, m: int, n: int, inputs: dict[str, Array], temps: list[str]) -> str:
        inputs[name] = g.array(*shape(m, n))
        return text

    return term


def _gather(g: Source, m: int, n: int, inputs: dict[str, Array], temps: list[str]) -> str:
    rows = g.size()
    inputs["w"], inputs["at"] = g.array(rows, n), g.index(rows, m)
    return "w[at[i],j]"


def _temporary(g: Source, m: int, n: int, inputs: dict[str, Array], temps: list[str]) -> str:
    inputs["p"] = g.array(m, n)
    temps.append("v[i,j] = p[i,j] * 3")
    return "v[i,j]"


def _boundary(g: Source, m: int, n: int, inputs: dict[str, Array], temps: list[str]) -> str:
    inputs["u"] = g.array(m, n)
    kind = g.rng.choice(["edge", "zero", "fill(3)", "reflect", "wrap"])
    return f"u.{kind}[i-1,j+1]"


def _scan(g: Source, m: int, n: int, inputs: dict[str, Array], temps: list[str]) -> str:
    inputs["q"] = g.array(m, n)
    temps.append(f"c[i,0] = q[i,0] where i in 0:{m}")
    temps.append(f"c[i,j] = c[i,j-1] + q[i,j] where i in 0:{m}, j in 1:{n}")
    return "c[i,j]"


def _scatter(g: Source, m: int, n: int, inputs: dict[str, Array], temps: list[str]) -> str:
    inputs["bin"], inputs["z"] = g.index(n, m), g.array(m)
    temps += [f"h: [{n}]", "h[bin[l]] += z[l]"]
    return "h[j]"


def _equality(g: Source, m: int, n: int, inputs: dict[str, Array], temps: list[str]) -> str:
    inputs["e"] = g.array(m)
    return "sum(e[l], where=2*l + 1 == i)"


TERMS: dict[str, Term] = {
    "broadcast": _read("b[j]", "b", lambda m, n: (n,)),
    "transposed": _read("t[j,i]", "t", lambda m, n: (n, m)),
    "stencil": _read("s[i,j] * s[i,j+1]", "s", lambda m, n: (m, n + 1)),
    "strided": _read("d[2*i+1,j]", "d", lambda m, n: (2 * m, n)),
    "quotient": _read("f[(i+j)//2]", "f", lambda m, n: ((m + n) // 2 + 1,)),
    "guard": _read("where(i >= 1, g[i-1,j], 2)", "g", lambda m, n: (m, n)),
    "reduction": _read("sum(r[i,k])", "r", lambda m, n: (m, 5)),
    "triangle": _read("max(o[k,j], where=k <= i)", "o", lambda m, n: (m, n)),
    "index of extreme": _read("argmax(x[i,k])", "x", lambda m, n: (m, n)),
    "gather": _gather,
    "temporary": _temporary,
    "boundary": _boundary,
    "recurrence": _scan,
    "scatter": _scatter,
    "equality": _equality,
}
