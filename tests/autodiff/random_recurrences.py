"""Random recurrences: each kind as lines of text, with gaps for random expressions.

`@` stands for the tensor. A gap is filled by an expression in the indices that are named, or by
`x` (in i) or `y` (in i and j), which are drawn first. Costs of paths are distinct powers of two.
"""

from __future__ import annotations

Line = tuple[str, list[str]]
"""A line, and what fills its gaps."""

RECURRENCES: dict[str, tuple[dict[str, tuple[int, ...]], list[Line]]] = {
    "along": (
        {"@": (3,)},
        [
            ("@[0] = {}", [""]),
            ("@[i] = sin({}) * @[i-1] + {} where i in 1:3", ["i", "x"]),
        ],
    ),
    "backwards": (
        {"@": (3,)},
        [
            ("@[2] = {}", [""]),
            ("@[i] = tanh(@[i+1] * B[i]) + {} where i in 0:2", ["x"]),
        ],
    ),
    "second order": (
        {"@": (5,)},
        [
            ("@[i] = {} where i in 0:2", ["i"]),
            ("@[i] = 0.5 * @[i-1] - B[i] * @[i-2] + B[i+1] * {} where i in 2:5", [""]),
        ],
    ),
    "cells": (
        {"@": (3, 2)},
        [
            ("@[0,j] = {} where j in 0:2", ["j"]),
            (
                "@[i,j] = tanh({} + sum(A[j,l] * @[i-1,l], over=(l in 0:2,)))"
                " where i in 1:3, j in 0:2",
                ["y"],
            ),
        ],
    ),
    "from zero": (
        {"@": (3, 2)},
        [("@[i,j] = sin({} + C[i,j] * @.zero[i-1,j]) where i in 0:3, j in 0:2", ["y"])],
    ),
    "two tensors": (
        {"@c": (3, 2), "@": (3, 2)},
        [
            ("@c[0,j] = A[j,0] where j in 0:2", []),
            ("@[0,j] = 0 where j in 0:2", []),
            ("@c[i,j] = sigmoid({}) * @c[i-1,j] + @[i-1,j] where i in 1:3, j in 0:2", ["y"]),
            ("@[i,j] = B[j] * tanh(@c[i,j]) where i in 1:3, j in 0:2", []),
        ],
    ),
    "table": (
        {"@": (3, 2)},
        [
            ("@[0,j] = {} where j in 0:2", ["j"]),
            ("@[i,0] = {} where i in 1:3", ["i"]),
            (
                "@[i,j] = 0.5 * @[i-1,j] * @[i,j-1] - @[i-1,j-1] + {} where i in 1:3, j in 1:2",
                ["y"],
            ),
        ],
    ),
    "shortest path": (
        {"@": (3, 3)},
        [
            ("@[0,0] = cost[0,0]", []),
            ("@[0,j] = @[0,j-1] + cost[0,j] where j in 1:3", []),
            ("@[i,0] = @[i-1,0] + cost[i,0] + 0.01 * tanh({}) where i in 1:3", ["i"]),
            (
                "@[i,j] = min(min(@[i-1,j], @[i,j-1]), @[i-1,j-1]) + cost[i,j]"
                " where i in 1:3, j in 1:3",
                [],
            ),
        ],
    ),
    "in time": (
        {"@": (4, 3)},
        [
            ("@[0,i] = {} where i in 0:3", ["x"]),
            (
                "@[t,i] = @[t-1,i] + 0.3 * (@.zero[t-1,i-1] - @.zero[t-1,i+1] * B[i])"
                " where t in 1:4, i in 0:3",
                [],
            ),
        ],
    ),
}
