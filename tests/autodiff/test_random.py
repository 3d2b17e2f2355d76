"""Random small operators against central differences and the adjoint identity."""

from __future__ import annotations

from typing import Any

import diptych as dt
import numpy as np
from diptych.algo.tensor_expr.parse import parse
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

EXTENT = 3  # of every index; a parameter has dimensions of 9, enough for 2*i + k + 1
PARAMS = {"A": 2, "B": 1, "C": 2}
AFFINE = ["{}", "{}", "{}+1", "2*{}", "{}+{}", "2*{}+{}", "8-{}", "({}+{})//2"]


@st.composite
def access(draw: Any, scope: tuple[str, ...], temporaries: dict[str, int]) -> str:
    """An element of a parameter at a random affine place, or of an earlier tensor."""
    name = draw(st.sampled_from([*PARAMS, *temporaries]))
    index = st.sampled_from(scope)
    if name in temporaries:
        places = [draw(index) for _ in range(temporaries[name])]
    else:
        forms = [draw(st.sampled_from(AFFINE)) for _ in range(PARAMS[name])]
        places = [f.format(*(draw(index) for _ in range(f.count("{}")))) for f in forms]
    return f"{name}[{','.join(places)}]"


@st.composite
def expression(draw: Any, scope: tuple[str, ...], temporaries: dict[str, int], depth: int) -> str:
    """A smooth or piecewise smooth expression; reductions bind k, then l."""
    kinds = ["access"] if depth == 0 else ["access", "unary", "binary", "where", "reduce"]
    kind = draw(st.sampled_from(kinds))
    inner = lambda within=scope: draw(expression(within, temporaries, depth - 1))  # noqa: E731
    if kind == "access":
        return draw(access(scope, temporaries))
    if kind == "unary":
        return f"{draw(st.sampled_from(['tanh', 'sin', 'sigmoid', 'abs', '-']))}({inner()})"
    if kind == "binary":
        op = draw(st.sampled_from(["+", "-", "*", "max", "min"]))
        a, b = inner(), inner()
        return f"{op}({a}, {b})" if op in ("max", "min") else f"({a} {op} {b})"
    if kind == "where":
        index = draw(st.sampled_from(scope))
        condition = draw(st.sampled_from([f"{index} < 2", f"{index} == 1", "A[0,0] > B[1]"]))
        return f"where({condition}, {inner()}, {inner()})"
    fresh = next((name for name in "kl" if name not in scope), None)
    if fresh is None:
        return inner()
    reducer = draw(st.sampled_from(["sum", "sum", "max", "min", "prod"]))
    condition = draw(st.sampled_from(["", f", where={fresh} <= {scope[0]}"]))
    condition = condition if reducer == "sum" else ""
    return f"{reducer}({inner((*scope, fresh))}, over=({fresh} in 0:{EXTENT},){condition})"


@st.composite
def operator(draw: Any) -> str:
    """The text of an operator of one to three equations."""
    lines: list[str] = []
    made: dict[str, int] = {}
    for name in "TUV"[: draw(st.integers(1, 3))]:
        left = ("i", "j")[: draw(st.integers(1, 2))]
        body = draw(expression(left, made, 3))
        ranges = ", ".join(f"{i} in 0:{EXTENT}" for i in left)
        lines.append(f"    {name}[{','.join(left)}] = {body} where {ranges}")
        made[name] = len(left)
    dims = ", ".join(f"{p}: [{', '.join(['9'] * rank)}]" for p, rank in PARAMS.items())
    return f"f({dims}) -> {', '.join(made)}:\n" + "\n".join(lines)


@settings(
    max_examples=50,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(operator(), st.integers(0, 99))
def test_random_operator(text: str, seed: int) -> None:
    op = parse(text)
    rng = np.random.default_rng(seed)
    arrays = [rng.standard_normal((9,) * rank) for rank in PARAMS.values()]
    dt.check_grads(op, arrays, interpreted=True, elements=0, step=1e-6)
