"""What operator text means: the structure of the operator it gives."""

from __future__ import annotations

import pytest
from diptych.algo.dtypes import TensorType, f32, f64, i32
from diptych.algo.location import Loc
from diptych.algo.tensor_expr.expr import (
    Access,
    Call,
    Cast,
    Const,
    Expr,
    Index,
    Range,
    Reduce,
    Size,
)
from diptych.algo.tensor_expr.op import Equation, Op, Param
from diptych.algo.tensor_expr.parse import parse

i, j, k, m, n = map(Index, "ijkmn")


def rhs(text: str) -> Expr:
    """The right side of `y[i] = text`."""
    return parse(f"y[i] = {text}").equations[0].rhs


def x(*at: Expr) -> Access:
    return Access("x", at)


def test_matmul() -> None:
    op = parse("C[i,j] = sum(A[i,k] * B[k,j])")
    product = Call("mul", (Access("A", (i, k)), Access("B", (k, j))))
    assert op.equations == (Equation("C", (i, j), Reduce("sum", ("k",), product)),)
    assert op.params == (Param("A"), Param("B"))
    assert op.returns == ("C",)
    assert op.name == "C"


@pytest.mark.parametrize(
    ("text", "python"),
    [
        ("x[i] + 1 * 2", "x[i] + (1 * 2)"),
        ("x[i] - 1 - 2", "(x[i] - 1) - 2"),
        ("x[i] / 2 // 3 % 4", "((x[i] / 2) // 3) % 4"),
        ("-x[i] ** 2", "-(x[i] ** 2)"),
        ("2 ** -x[i] ** 2", "2 ** (-(x[i] ** 2))"),
        ("2 ** 3 ** x[i]", "2 ** (3 ** x[i])"),
        ("~x[i] & x[i] | x[i]", "((~x[i]) & x[i]) | x[i]"),
        ("x[i] | x[i] < 2", "(x[i] | x[i]) < 2"),
        ("x[i] < x[i] & x[i]", "x[i] < (x[i] & x[i])"),
        ("x[i] < 2 <= x[i]", "(x[i] < 2) & (2 <= x[i])"),
        ("+x[i]", "x[i]"),
        ("- - x[i]", "-(-x[i])"),
    ],
)
def test_precedence_is_pythons(text: str, python: str) -> None:
    assert rhs(text) is rhs(python)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("-1", Const(-1)),
        ("-0.0", Const(-0.0)),
        ("1e-3", Const(0.001)),
        (".5", Const(0.5)),
        ("1_000", Const(1000)),
        ("0x1F", Const(31)),
        ("123456789012345678901234567890", Const(123456789012345678901234567890)),
        ("inf", Const(float("inf"))),
        ("-inf", Const(float("-inf"))),
        ("True", Const(True)),
        ("f32(0.5)", Const(0.5, f32)),
        ("f32(-2)", Const(-2, f32)),
        ("i32(0.5)", Cast(i32, Const(0.5))),
        ("f64(x[i])", Cast(f64, x(i))),
        ("lr[]", Access("lr", ())),
        ("where(i < 2, x[i], 0)", Call("where", (Call("lt", (i, Const(2))), x(i), Const(0)))),
        ("max(x[i], 1, 2)", Call("max", (Call("max", (x(i), Const(1))), Const(2)))),
        ("minimum(x[i], 1)", Call("min", (x(i), Const(1)))),
    ],
)
def test_atoms_and_functions(text: str, expected: Expr) -> None:
    assert rhs(text) is expected


def bindings(text: str) -> list[tuple[str, tuple[str, ...]]]:
    """Reducers and what they bind, outermost first."""
    found: list[tuple[str, tuple[str, ...]]] = []

    def visit(expr: Expr) -> None:
        from diptych.algo.tensor_expr.expr import children

        if isinstance(expr, Reduce):
            found.append((expr.reducer, expr.indices))
        for child in children(expr):
            visit(child)

    visit(rhs(text))
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("sum(x[i,k,l])", [("sum", ("k", "l"))]),
        ("sum(x[i,k] * max(z[k,l]))", [("sum", ("k",)), ("max", ("l",))]),
        ("sum(x[i,k]) / max(z[k])", [("sum", ("k",)), ("max", ("k",))]),
        ("sum(max(z[k,l]) * 2, over=l)", [("sum", ("l",)), ("max", ("k",))]),
        ("sum(max(z[k,l], over=k))", [("sum", ("l",)), ("max", ("k",))]),
        ("sum(max(x[k,l]) * max(z[k,m]))", [("sum", ("k",)), ("max", ("l",)), ("max", ("m",))]),
        ("sum(min(max(z[k,l]), x[k]))", [("sum", ("k",)), ("max", ("l",))]),
        ("sum(z[i], over=())", [("sum", ())]),
    ],
)
def test_which_reducer_binds_an_index(
    text: str, expected: list[tuple[str, tuple[str, ...]]]
) -> None:
    assert bindings(text) == expected


def test_an_accumulating_equation_takes_the_indices_outside_reducers() -> None:
    (eq,) = parse("C[i] += A[i,k] * sum(B[k,l])").equations
    assert eq.reducer == "sum"
    assert eq.rhs is Call(
        "mul", (Access("A", (i, k)), Reduce("sum", ("l",), Access("B", (k, Index("l")))))
    )


@pytest.mark.parametrize(
    ("sign", "reducer"),
    [("=", None), ("+=", "sum"), ("*=", "prod"), ("max=", "max"), ("min=", "min"), ("any=", "any")],
)
def test_assignments(sign: str, reducer: str | None) -> None:
    assert parse(f"y[i] {sign} x[i]").equations[0].reducer == reducer


def test_where_gives_ranges_and_conditions_to_those_that_bind_the_indices() -> None:
    (eq,) = parse("y[i] = sum(x[i+k]) where i in 0:N, k in 1:K, k < i, i < 5").equations
    assert eq.ranges == (Range("i", Const(0), Size("N")),)
    assert eq.where is Call("lt", (i, Const(5)))
    assert eq.rhs is Reduce(
        "sum", ("k",), x(Call("add", (i, k))), (Range("k", Const(1), Size("K")),),
        Call("lt", (k, i)),
    )  # fmt: skip


def test_a_range_goes_to_every_reduction_over_its_index() -> None:
    (eq,) = parse("y = sum(x[k]) + max(z[k]) where k in 0:3").equations
    limit = (Range("k", Const(0), Const(3)),)
    assert eq.rhs is Call(
        "add",
        (
            Reduce("sum", ("k",), Access("x", (k,)), limit),
            Reduce("max", ("k",), Access("z", (k,)), limit),
        ),
    )


def test_where_may_stand_on_the_next_line() -> None:
    assert parse("y[i] = x[i-1]\n    where i in 1:N") == parse("y[i] = x[i-1] where i in 1:N")


def test_brackets_continue_lines_and_comments_end_them() -> None:
    op = parse("# twice\ny[i] = (x[i]   # once\n   + x[i]) ; z[i] = y[i]  # and again\n\n")
    assert op == parse("y[i] = x[i] + x[i]\nz[i] = y[i]")


class TestBareNames:
    def test_a_parameter_of_rank_0(self) -> None:
        op = parse("f(x, lr) -> y: y[i] = x[i] * lr")
        assert op.equations[0].rhs is Call("mul", (x(i), Access("lr", ())))
        assert parse("y[i] = x[i] * lr").params == (Param("x"), Param("lr"))
        assert parse("y[i] = x[i] * lr[] + lr").equations[0].rhs is Call(
            "add", (Call("mul", (x(i), Access("lr", ()))), Access("lr", ()))
        )

    def test_a_tensor_of_rank_0(self) -> None:
        op = parse("m = max(x[k]); y[i] = x[i] - m")
        assert op.equations[1].rhs is Call("sub", (x(i), Access("m", ())))
        assert op.equations[0].lhs == ()

    def test_a_size_of_the_header(self) -> None:
        op = parse("f(x: f32[N]) -> y: y[i] = x[N-1-i] / N")
        at = Call("sub", (Call("sub", (Size("N"), Const(1))), i))
        assert op.equations[0].rhs is Call("div", (x(at), Size("N")))
        assert op.params[0].type is TensorType(f32, ("N",))

    def test_a_size_of_where(self) -> None:
        op = parse("y[i] = x[N-1-i] where i in 0:N")
        assert op.equations[0].rhs is x(Call("sub", (Call("sub", (Size("N"), Const(1))), i)))
        assert parse("y[i] = x[i] where i < M").equations[0].where is Call("lt", (i, Size("M")))

    def test_the_size_that_an_index_implies(self) -> None:
        op = parse("mean[i] = sum(x[i,j]) / J")
        assert op.equations[0].rhs is Call("div", (Reduce("sum", ("j",), x(i, j)), Size("J")))

    def test_the_size_of_a_dimension(self) -> None:
        assert rhs("x[2*i] / x_0") is Call("div", (x(Call("mul", (Const(2), i))), Size("x_0")))

    def test_an_index_in_the_bound_of_another(self) -> None:
        op = parse("y[i] = sum(x[i,k]) where k in 0:i+1")
        (limit,) = op.equations[0].rhs.ranges  # type: ignore[attr-defined]
        assert limit is Range("k", Const(0), Call("add", (i, Const(1))))

    def test_declarations_win(self) -> None:
        op = parse("size N\ny[i] = x[N]")
        assert op.equations[0].rhs is x(Size("N"))
        op = parse("index K\ny[i] += x[i+K,k]")
        assert op.equations[0].rhs is x(Call("add", (i, Index("K"))), k)


def test_recurrence() -> None:
    op = parse("c[0] = x[0]\nc[i] = c[i-1] + x[i] where i in 1:N")
    assert [eq.tensor for eq in op.equations] == ["c", "c"]
    assert op.equations[0].lhs == (Const(0),)
    assert op.params == (Param("x"),)


def test_scatter_declares_its_shape() -> None:
    op = parse("H: [B, 2*D]\nH[bin[n], d] += w[n, d]")
    assert dict(op.shapes) == {"H": (Size("B"), Call("mul", (Const(2), Size("D"))))}
    assert op.params == (Param("bin"), Param("w"))


def test_defaults_of_the_interface() -> None:
    op = parse("s[i] = a[i] + b[i]; t[i] = s[i] * a[i]; u[i] = s[i]")
    assert op.params == (Param("a"), Param("b"))
    assert op.returns == ("t", "u")
    assert parse("s[i] = a[i]; t[i] = s[i]", returns="s").returns == ("s",)
    assert parse("g(b, a) -> s: s[i] = a[i] + b[i]").params == (Param("b"), Param("a"))
    assert parse("g(b, a) -> s: s[i] = a[i] + b[i]", name="h").name == "h"


def test_locations_are_lines_of_the_file() -> None:
    op = parse("\na[i] = x[i]\n\nb[i] = a[i]", loc=Loc("/m.py", 10))
    assert [(loc.file, loc.line) for loc in op.locations] == [("/m.py", 11), ("/m.py", 13)]
    assert str(op.locations[0]) == "m.py:11"


def test_equality_is_that_of_the_printed_text() -> None:
    a: Op = parse("y[i] = x[i]+1")
    assert a == parse("y[i] = (x[ i ] + 1)  # same")
    assert a != parse("y[i] = x[i]+2")
    assert hash(a) == hash(parse("y[i] = x[i] + 1"))
