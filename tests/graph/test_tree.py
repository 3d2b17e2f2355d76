"""Trees of containers: flatten, unflatten, names, map."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from diptych.algo.errors import GraphError
from diptych.algo.graph.tree import LEAF, flatten, leaf_count, map_tree, paths, unflatten
from hypothesis import given, settings
from hypothesis import strategies as st


class Layer(NamedTuple):
    w: Any
    b: Any


TREES = st.recursive(
    st.integers() | st.none() | st.text(max_size=2),
    lambda part: (
        st.lists(part, max_size=3)
        | st.lists(part, max_size=3).map(tuple)
        | st.dictionaries(st.text("ab", min_size=1, max_size=2), part, max_size=3)
        | st.tuples(part, part).map(lambda pair: Layer(*pair))
    ),
    max_leaves=12,
)


@given(TREES)
@settings(max_examples=60, derandomize=True)
def test_flatten_is_undone(tree: Any) -> None:
    leaves, structure = flatten(tree)
    back = unflatten(structure, leaves)
    assert back == tree
    assert type(back) is type(tree)
    assert leaf_count(structure) == len(leaves) == len(paths(structure, "x"))


@given(TREES, TREES)
@settings(max_examples=60, derandomize=True)
def test_structures_are_the_same_object_exactly_if_the_containers_are_equal(a: Any, b: Any) -> None:
    stars = [unflatten(flatten(t)[1], ["*"] * leaf_count(flatten(t)[1])) for t in (a, b)]
    order = [repr(star) for star in stars]  # dicts of another order are other structures
    assert (flatten(a)[1] is flatten(b)[1]) == (order[0] == order[1])


def test_paths_name_leaves() -> None:
    _, structure = flatten({"conv": Layer(1, None), "rest": [2, (3,)]})
    assert paths(structure, "p") == ["p.conv.w", "p.rest.0", "p.rest.1.0"]
    assert paths(LEAF, "x") == ["x"]


def test_paths_are_distinct_and_plain() -> None:
    _, structure = flatten({"a.b": 1, "a": {"b": 2}, "x y": 3, "x_y": 4})
    assert paths(structure, "p") == ["p.a.b", "p.a.b_2", "p.x_y", "p.x_y_2"]


def test_map_tree() -> None:
    trees = {"a": 1, "b": [2, 3]}, {"a": 10, "b": [20, 30]}
    assert map_tree(lambda x, y: y - x, *trees) == {"a": 9, "b": [18, 27]}


def test_map_tree_of_different_structures() -> None:
    with pytest.raises(GraphError) as error:
        map_tree(lambda x, y: x, {"a": 1}, {"b": (1, None)})
    assert str(error.value) == (
        "tree_map: tree 1 is {'a': *}, tree 2 is {'b': (*, None)}; give trees of one structure "
        "(the same keys in the same order)"
    )
