"""Checking derivatives by numbers: central differences, and the adjoint identity.

Everything is in float64. Central differences of step h err by about h**2 + 1e-16/h; the identity
<J v, g> = <v, J' g> holds to rounding. Where they do not agree with a derivative, those of half the
step are asked too: the two together, (4 D(h/2) - D(h)) / 3, err by h**4 (Richardson, 1911), so that
a function with a large third derivative is not called wrong. Each element of the results is
differenced by itself, and what rounding may put its slope off by is granted last, where it depends
on what is moved. Where a function has a kink, differences say nothing of its derivative, so the
slopes to both sides are compared as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..algo.errors import GradientError, ShapeError
from .differentiable import Array, Arrays, Differentiable

STEP = 1e-5
"""About the cube root of the rounding error, where differences are best."""
DIRECTIONS = 3
"""So many random ones show, for a large argument, what element by element would."""
IDENTITY = 1e-10
ROUNDING = 4 * float(np.finfo(np.float64).eps)
"""By what a result may be off, relatively."""


@dataclass
class Check:
    """How derivatives are checked: by which modes, with what step, and how closely.

    Arguments of at most `elements` elements are moved element by element, larger ones in random
    directions.
    """

    modes: Sequence[str] = ("reverse", "forward")
    step: float = STEP
    tolerance: float = 1e-6
    elements: int = 64
    seed: int = 0
    rng: np.random.Generator = field(init=False)

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)

    def run(self, function: Differentiable, order: int) -> None:
        """Raises `GradientError` unless the derivatives up to `order` are right."""
        for name in function.wrt:
            wrong = np.argwhere(~np.isfinite(function.values[name]))
            if len(wrong):
                at = tuple(wrong[0].tolist())
                raise GradientError(
                    f"check_grads of {function.name} by {name}: "
                    f"{float(function.values[name][at])!r} at {_element(name, at)}; differences "
                    "need finite numbers: check at another point"
                )
        for left in reversed(range(order)):
            results = function(function.values)
            cotangents = {name: self._random(a) for name, a in results.items()}
            self._first(function, results, cotangents)
            if left:
                function = function.gradient(cotangents)

    def _first(self, f: Differentiable, results: Arrays, cotangents: Arrays) -> None:
        moves = {name: self._random(f.values[name]) for name in f.wrt}
        if "reverse" in self.modes:
            gradients = f.pull(f.values, cotangents)
            self._reverse(f, results, cotangents, gradients)
        if "forward" in self.modes:
            tangents = f.push(f.values, moves)
            self._forward(f, results, moves, tangents)
        if "reverse" in self.modes and "forward" in self.modes:
            left = sum(float(np.sum(tangents[r] * cotangents[r])) for r in results)
            right = sum(float(np.sum(moves[name] * gradients[name])) for name in f.wrt)
            size = max(1.0, *(float(np.sum(np.abs(moves[n] * gradients[n]))) for n in f.wrt))
            if not abs(left - right) <= IDENTITY * size:
                raise GradientError(
                    f"gradient of {f.name} by {', '.join(f.wrt)}: <J v, g> is {left!r} by its "
                    f"tangent, <v, J' g> is {right!r}\n{f.backward}\n{f.forward}"
                )

    def _reverse(
        self, f: Differentiable, results: Arrays, cotangents: Arrays, gradients: Arrays
    ) -> None:
        def total(up: Arrays, down: Arrays) -> float:
            return sum(float(np.sum(cotangents[r] * _difference(up[r], down[r]))) for r in results)

        moves = {name: list(self._directions(name, f.values[name])) for name in f.wrt}
        found = f.each(
            self._moved(f, {name: sign * direction})
            for name, directions in moves.items()
            for _, direction in directions
            for sign in (1, -1)
        )
        for name, directions in moves.items():
            value, gradient = f.values[name], gradients[name]
            if gradient.shape != value.shape:
                raise GradientError(
                    f"gradient of {f.name} by {name}: its shape is {gradient.shape}, that of "
                    f"{name} is {value.shape}\n{f.backward}"
                )
            for where, direction in directions:
                up, down = next(found), next(found)
                got, wanted = float(np.sum(gradient * direction)), total(up, down) / (2 * self.step)
                if self._close(got, wanted):
                    continue
                move = {name: direction}
                half = total(*self._halves(f, move)) / self.step
                lost = self._lost(f, move, up, down)
                noise = sum(float(np.sum(np.abs(cotangents[r]) * lost[r])) for r in results)
                if not self._close(got, (4 * half - wanted) / 3, noise):
                    kink = self._kink(total(results, down), total(up, results))
                    raise GradientError(
                        f"gradient of {f.name} by {name}: {got!r} {where}, central differences "
                        f"give {wanted!r}{kink}\n{f.backward}"
                    )

    def _forward(self, f: Differentiable, results: Arrays, moves: Arrays, found: Arrays) -> None:
        up, down = (f(self._moved(f, {n: s * v for n, v in moves.items()})) for s in (1, -1))
        for name, value in results.items():
            if found[name].shape != value.shape:
                raise GradientError(
                    f"tangent of {f.name}: the shape of that of {name} is {found[name].shape}, "
                    f"that of {name} is {value.shape}\n{f.forward}"
                )
            slopes = _difference(up[name], down[name]) / (2 * self.step)
            far = ~self._close(found[name], slopes)
            if far.any():
                up_half, down_half = self._halves(f, moves)
                half = _difference(up_half[name], down_half[name]) / self.step
                lost = self._lost(f, moves, up, down)[name]
                far &= ~self._close(found[name], (4 * half - slopes) / 3, lost)
            if far.any():
                at = tuple(np.argwhere(far)[0].tolist())
                raise GradientError(
                    f"tangent of {f.name}: {float(found[name][at])!r} at {_element(name, at)} "
                    f"along a random direction of {', '.join(f.wrt)}, central differences give "
                    f"{float(slopes[at])!r}"
                    f"{self._kink(value[at] - down[name][at], up[name][at] - value[at])}"
                    f"\n{f.forward}"
                )

    def _directions(self, name: str, value: Array) -> Iterator[tuple[str, Array]]:
        if value.size > self.elements:
            for _ in range(DIRECTIONS):
                yield "along a random direction", self._random(value)
            return
        for at in np.ndindex(value.shape):
            unit = np.zeros(value.shape)
            unit[at] = 1.0
            yield f"at {_element(name, at)}", unit

    def _halves(self, f: Differentiable, moves: Arrays) -> tuple[Arrays, Arrays]:
        """The results half a step away, upwards and downwards."""
        up, down = (f(self._moved(f, {n: s * v for n, v in moves.items()})) for s in (0.5, -0.5))
        return up, down

    def _moved(self, f: Differentiable, moves: Arrays) -> Arrays:
        return {**f.values, **{n: f.values[n] + self.step * move for n, move in moves.items()}}

    def _random(self, like: Array) -> Array:
        return np.asarray(self.rng.standard_normal(np.shape(like)))

    def _lost(self, f: Differentiable, moves: Arrays, up: Arrays, down: Arrays) -> Arrays:
        """What rounding of the results may put extrapolated slopes off by: of one that does not
        depend on what is moved (it is the same on both sides, and no NaN where that is NaN)
        nothing, and nothing of what is not finite."""
        nowhere = {n: np.where(move, np.nan, f.values[n]) for n, move in moves.items()}
        found = {name: np.zeros(np.shape(value)) for name, value in up.items()}
        with suppress(ShapeError):  # a read by data may be outside there
            found = f({**f.values, **nowhere})
        lost = {}
        for name in found:
            size = np.maximum(np.abs(up[name]), np.abs(down[name]))
            depends = np.isfinite(size) & ((up[name] != down[name]) | np.isnan(found[name]))
            # (4 D(h/2) - D(h)) / 3 has 3 times the error of D(h), which is that of one result by h.
            lost[name] = np.where(depends, 3 * ROUNDING * size / self.step, 0.0)
        return lost

    def _close(self, got: Any, wanted: Any, noise: Any = 0.0) -> Any:
        """False for NaN, too."""
        return np.abs(got - wanted) <= self.tolerance * np.maximum(1.0, np.abs(wanted)) + noise

    def _kink(self, left: Any, right: Any) -> str:
        """What to say where the slopes to both sides, given as differences, are apart as no smooth
        function's are."""
        left, right = float(left) / self.step, float(right) / self.step
        if abs(left - right) <= 1e-3 * max(1.0, abs(left), abs(right)):
            return ""
        return (
            f"; the slopes to both sides, {left:.6g} and {right:.6g}, differ, so this may be a "
            "kink: check at another point"
        )


def _element(name: str, at: Sequence[int]) -> str:
    return f"{name}[{','.join(map(str, at))}]"


def _difference(up: Array, down: Array) -> Array:
    """Nothing where both are the same infinity."""
    return np.subtract(up, down, out=np.zeros(np.shape(up)), where=up != down)
