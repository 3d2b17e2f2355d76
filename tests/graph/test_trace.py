"""Programs become graphs: nodes, ids, literals, static arguments, errors."""

from __future__ import annotations

import operator
import re
from typing import Any

import numpy as np
import pytest
from diptych.algo.dtypes import f32, f64, i64
from diptych.algo.errors import DTypeError, GraphError, ShapeError
from diptych.algo.graph import build
from diptych.algo.graph.elementwise import compare
from diptych.algo.graph.graph import ArrayType, Input, Literal
from diptych.algo.graph.interpret import interpret, interpret_tree
from diptych.algo.graph.print import print_graph
from diptych.algo.graph.program import Program
from diptych.algo.graph.trace import trace
from diptych.algo.tensor_expr.parse import parse

DENSE = parse("dense(x: f32[N, K], w: f32[K, M]) -> y:\n  y[n,m] = sum(x[n,k] * w[k,m])")
RELU = parse("relu(x) -> y:\n  y[i,j] = max(x[i,j], 0)")
SCALE = parse("scale(x, c) -> y:\n  y[i] = x[i] * c[]")
PAIR = parse("pair(x) -> s, d:\n  s[i] = x[i] + 1\n  d[i] = x[i] * 2")

X = ArrayType((2, 3), f32)
W = ArrayType((3, 3), f32)


def dense(x: Any, w: Any) -> Any:
    return build.call(DENSE, x, w)


def relu(x: Any) -> Any:
    return build.call(RELU, x)


def two_layers(params: dict[str, Any], x: Any) -> Any:
    h = relu(dense(x, params["a"]))
    return {"out": dense(h, params["b"]), "hidden": h}


def test_the_text_of_a_graph() -> None:
    graph = trace(two_layers, ({"a": W, "b": W}, X))
    assert print_graph(graph) == (
        "program two_layers\n"
        "  input params.a: f32[3,3]\n"
        "  input params.b: f32[3,3]\n"
        "  input x: f32[2,3]\n"
        "  dense[0]: f32[2,3] = dense(x, params.a)\n"
        "  relu[0]: f32[2,3] = relu(dense[0])\n"
        "  dense[1]: f32[2,3] = dense(relu[0], params.b)\n"
        "  result.out = dense[1]\n"
        "  result.hidden = relu[0]"
    )
    assert "test_trace.py" in print_graph(graph, locations=True)
    assert str(graph) == print_graph(graph)
    assert repr(graph) == "<graph two_layers: 3 inputs, 3 nodes>"
    assert "relu[0]: f32[2,3]" in graph._repr_html_()


def test_it_means_what_the_function_means() -> None:
    rng = np.random.default_rng(0)
    a, b, x = (rng.standard_normal(s).astype(np.float32) for s in ((3, 3), (3, 3), (2, 3)))
    graph = trace(two_layers, ({"a": a, "b": b}, x))
    found = interpret_tree(graph, [a, b, x])
    hidden = np.maximum(x @ a, 0)
    np.testing.assert_allclose(found["hidden"], hidden, rtol=1e-5)
    np.testing.assert_allclose(found["out"], hidden @ b, rtol=1e-5, atol=1e-6)


def test_equal_work_is_one_node_and_unused_work_is_none() -> None:
    def f(x: Any, w: Any) -> Any:
        relu(relu(dense(x, w)))
        return dense(x, w) + dense(x, w)

    graph = trace(f, (X, W))
    assert list(graph.ids.values()) == ["dense[0]", "add[0]"]


def test_python_runs_while_tracing() -> None:
    def repeat(body: Any, times: int, x: Any) -> Any:
        for _ in range(times):
            x = body(x)
        return x if times > 1 else relu(x)

    graph = trace(repeat, (lambda x: dense(x, np.eye(3, dtype=np.float32)), 3, X))
    assert [name.split("[")[0] for name in graph.ids.values()] == ["dense"] * 3
    assert [value.name for value in graph.inputs] == ["x"]


def test_arrays_become_literals() -> None:
    graph = trace(lambda x: dense(x, np.ones((3, 3), np.float32)), (X,))
    weight = graph.nodes[0].args[1]
    assert isinstance(weight, Literal)
    assert weight.type == ArrayType((3, 3), f32)
    np.testing.assert_array_equal(build.literal_array(weight), np.ones((3, 3)))


@pytest.mark.parametrize(
    ("dtype", "scalar", "expected"),
    [(f32, 0.5, f32), (f64, 0.5, f64), (f32, 2, f32), (i64, 2, i64), (i64, 0.5, f64)],
)
def test_python_numbers_take_the_type_of_their_partners(
    dtype: Any, scalar: Any, expected: Any
) -> None:
    value = Input("x", ArrayType((4,), dtype))
    scaled = build.call(SCALE, value, c=scalar)
    literal = scaled.apply.args[1]
    assert literal.type == ArrayType((), expected)


def test_a_number_that_is_an_index_is_an_integer() -> None:
    pick = parse("pick(x, k) -> y:\n  y[j] = x[k[],j]")
    value = build.call(pick, Input("x", X), 1)
    assert value.apply.args[1].type == ArrayType((), i64)


def test_several_results() -> None:
    s, d = build.call(PAIR, Input("x", ArrayType((4,), f32)))
    graph = build.graph_of("g", [Input("x", ArrayType((4,), f32))], [d, s])
    assert "result.0 = pair[0].d" in print_graph(graph)
    out = interpret(graph, [np.arange(4, dtype=np.float32)])
    np.testing.assert_array_equal(out[0], [0, 2, 4, 6])


@pytest.mark.parametrize("op", [operator.add, operator.sub, operator.mul, operator.truediv])
def test_arithmetic_on_values(op: Any) -> None:
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((2, 3, 4)).astype(np.float32)
    s = np.float32(1.5)
    forms = [
        lambda a, b, s: op(a, b),
        lambda a, b, s: op(a, s),
        lambda a, b, s: op(s, a),
        lambda a, b, s: op(a, 2),
        lambda a, b, s: op(2.5, a),
        lambda a, b, s: op(s, 3),
        lambda a, b, s: op(a, np.float32(0.5)),
        lambda a, b, s: op(np.ones((3, 4), np.float32), a),
        lambda a, b, s: -op(a, b),
    ]
    for form in forms:
        graph = trace(form, (a, b, s))
        (found,) = interpret(graph, [a, b, s])
        want = form(a, b, s)
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, want, rtol=1e-6)


def test_comparison() -> None:
    a = np.array([1, 2, 3], np.float32)
    graph = trace(lambda x: compare("gt", x, 1.5), (a,))
    np.testing.assert_array_equal(interpret(graph, [a])[0], [False, True, True])


def test_a_program_traces_once_a_type_and_a_static_value() -> None:
    calls = []

    @Program
    def f(x: Any, flag: bool = False) -> Any:
        calls.append(flag)
        return relu(x) if flag else x * 2

    x = np.ones((2, 3), np.float32)
    for _ in range(2):
        np.testing.assert_array_equal(f.interpret(x), 2 * x)
        np.testing.assert_array_equal(f.interpret(x, flag=True), x)
    f.interpret(np.ones((4, 3), np.float32))
    assert calls == [False, True, False]
    assert len(f.traced) == 3


def test_declared_sizes() -> None:
    def f(x: f32["B", 3], y: f32["B"]) -> Any:
        return x * 2, y

    graph = trace(f, (X, ArrayType((2,), f32)))
    assert graph.notes["dims"] == {"x": ("B", None), "y": ("B",)}
    with pytest.raises(ShapeError) as error:
        trace(f, (X, ArrayType((5,), f32)))
    assert str(error.value) == "program f: size B: 2 from x dim 0, 5 from y dim 0"
    with pytest.raises(ShapeError) as error:
        trace(f, (ArrayType((2, 4), f32), ArrayType((2,), f32)))
    assert str(error.value) == "program f: size 3: 3 declared, 4 from x dim 1"
    with pytest.raises(ShapeError) as error:
        trace(f, (ArrayType((2,), f32), ArrayType((2,), f32)))
    assert str(error.value) == "program f: x is declared with 2 dimensions, got f32[2]"
    with pytest.raises(DTypeError) as error:
        trace(f, (ArrayType((2, 3), f64), ArrayType((2,), f32)))
    assert str(error.value) == "program f: x is declared f32, got f64[2,3]"


LEAKED: list[Any] = []


def leak(x: Any) -> Any:
    LEAKED.append(x)
    return x * 2


def text(function: Any, *args: Any) -> str:
    """The message without the line of the function, which `test_errors_say_the_line` is about."""
    with pytest.raises((GraphError, ShapeError, DTypeError)) as error:
        trace(function, args)
    return re.sub(r"^test_trace\.py:\d+: (.*)\n.*$", r"\1", str(error.value))


def step(x: Any) -> Any:
    y = x + x
    return twice(y.T)


def twice(x: Any) -> Any:
    return x @ x


def test_errors_say_the_line() -> None:
    line = step.__code__.co_firstlineno
    with pytest.raises(GraphError) as error:
        trace(step, (X,))
    assert str(error.value) == (
        f"test_trace.py:{line + 2}: a traced value of type f32[2,3] has no attribute T, only "
        'shape, dtype and ndim; write an operator, such as dt.op("y[j,i] = x[i,j]")\n'
        "    return twice(y.T)"
    )
    with pytest.raises(GraphError) as error:
        trace(lambda x: np.sum(twice(x)), (X,))
    assert str(error.value) == (
        f"test_trace.py:{twice.__code__.co_firstlineno + 1}: a traced value of type f32[2,3] knows "
        "no matrix product of its own; write it as an operator, such as "
        'dt.op("C[i,j] = sum(A[i,k] * B[k,j])")\n'
        "    return x @ x"
    )


def test_arguments_that_the_function_does_not_take() -> None:
    program = Program(lambda x, *, scale=1: x * scale, "step")
    for args, kwargs, want in [
        ((X, X), {}, "too many positional arguments: 1 expected, 2 given"),
        ((), {}, "missing a required argument: 'x'"),
        ((X,), {"lr": 1}, "got an unexpected keyword argument 'lr'"),
    ]:
        with pytest.raises(GraphError) as error:
            program.graph(*args, **kwargs)
        assert str(error.value) == f"step(x, *, scale=1): {want}"


def test_operators_of_python_and_functions_of_numpy() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.uniform(1, 3, (2, 2, 3)).astype("f")

    def f(x: Any, y: Any) -> Any:
        return {
            "arithmetic": x**2 // 1 + 7 % y - abs(-x) / y,
            "order": ((x > y) | (x <= 1.5)) & ~(x < 2) & (y <= 2),
            "NumPy": np.maximum(np.exp(x), np.ones((2, 3), "f") - np.sqrt(y)) * np.float32(2),
            "length": len(x) * x,
        }

    graph = trace(f, (x, y))
    want = f(x, y)
    for got, name in zip(interpret(graph, [x, y]), want, strict=True):
        assert got.dtype == want[name].dtype
        np.testing.assert_allclose(got, want[name], rtol=1e-6)
    assert not hasattr(graph.inputs[0], "T")


def test_errors() -> None:
    def branch(x: Any) -> Any:
        return x if x else -x

    assert text(branch, X) == (
        "a traced value of type f32[2,3] was used as a Python condition, but it is known only when "
        "the program runs; use where(condition, a, b) inside an operator, or decide by a Python "
        "argument, which is static"
    )
    assert text(lambda x: x[0], X) == (
        "a traced value of type f32[2,3] cannot be indexed in a program; write an operator that "
        'reads the elements, such as dt.op("y[j] = x[0,j]")'
    )
    assert text(lambda x: np.arctan(x), X) == (
        "NumPy's arctan cannot take a traced value of type f32[2,3]; write an operator"
    )
    assert text(lambda x: np.sum(x), X) == (
        "NumPy's add.reduce with axis, dtype cannot take a traced value of type f32[2,3]; write an "
        "operator"
    )
    assert text(lambda x: len(x), ArrayType((), f32)) == (
        "a traced value of type f32[] has no dimension, so no length"
    )
    assert text(lambda x: list(x), X) == (
        "a traced value of type f32[2,3] cannot be iterated over in Python; write an operator over "
        "its indices"
    )
    assert text(lambda x: np.exp(np.asarray(x)), X) == (
        "a traced value of type f32[2,3] has no elements yet, so NumPy cannot take it; write an "
        "operator, or return the value from the program"
    )
    assert text(lambda x: range(x), X) == (
        "a traced value of type f32[2,3] was converted to a Python number, but it is known only "
        "when the program runs; keep it as a value, or return it from the program"
    )
    assert text(lambda x, w: x + w, X, W) == (
        "add of f32[2,3] and f32[3,3]: the shapes differ and only scalars broadcast; write an "
        "operator that says which index each operand has"
    )
    assert text(lambda x: x + "a", X) == (
        "add: a str cannot be combined with a traced value; expected a value, an array or a number"
    )
    assert text(lambda x: None, X) == ("program <lambda> returns no value; return what it computes")
    assert text(lambda x: {"a": x, "b": "text"}, X) == (
        "program <lambda> returns a str at result.b; expected values, arrays or numbers in dicts, "
        "lists and tuples"
    )
    assert text(lambda x, y: x, X, {"a": {1, 2}}) == (
        "argument y.a is a set; expected arrays in dicts, lists and tuples, or static values that "
        "can be hashed"
    )
    assert text(lambda x: dense(x, 2.0), X) == (
        "dense: w has 2 dimensions, got the number 2.0; give an array"
    )
    assert text(lambda x: dense(x, "w"), X) == (
        "dense: w is a str; expected a value of the program, an array, or a number"
    )
    assert text(lambda x: dense(x, np.ones((3, 3))), X) == (
        "dense: w is declared f32, got f64[3,3]; cast it with an operator"
    )
    assert text(lambda x: build.call(DENSE, x), X) == "dense(x, w) misses w"
    assert text(lambda x: build.call(DENSE, x, x, x), X) == "dense(x, w) does not take 3 arguments"
    assert text(lambda x: build.call(DENSE, x, b=x), X) == "dense(x, w) does not take argument b"
    assert text(lambda x: build.call(DENSE, x, x=x), X) == (
        "dense(x, w) got x by position and by name"
    )
    found = text(lambda x: build.apply(DENSE, [x])[0], X)
    assert found == "dense(x, w) takes 2 arguments, 1 given"
    trace(leak, (ArrayType((7, 7), f32),))
    assert text(lambda y: y + LEAKED[0], ArrayType((7, 7), f32)) == (
        "program <lambda>: input x belongs to another program; a value may be used only in the "
        "trace that made it, so pass it in as an argument"
    )
    with pytest.raises(GraphError) as error:
        compare("add", Input("x", X), 1)
    assert str(error.value) == ("add is not a comparison; expected one of lt, le, gt, ge, eq, ne")
