"""A ranker of candidates, learned from those measured so far: gradient-boosted trees (lightgbm)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

ENOUGH = 16  # measurements before the ranker is asked


class Ranker:
    """Predicts the logarithm of a candidate's time from its features."""

    def __init__(self) -> None:
        self._x: list[Sequence[float]] = []
        self._y: list[float] = []
        self._model: Any = None
        self._fitted = 0

    def add(self, features: Sequence[float], seconds: float) -> None:
        """One measurement."""
        self._x.append(features)
        self._y.append(math.log(seconds))

    @property
    def ready(self) -> bool:
        """Are there enough measurements to learn from?"""
        return len(self._x) >= ENOUGH

    def predict(self, features: Sequence[Sequence[float]]) -> list[float]:
        """Predicted log-seconds; learns again when a quarter more has been measured."""
        if self._model is None or len(self._x) > 1.25 * self._fitted:
            import lightgbm

            data = lightgbm.Dataset(np.asarray(self._x, np.float64), np.asarray(self._y))
            settings = {
                "objective": "regression", "num_leaves": 15, "min_data_in_leaf": 3,
                "learning_rate": 0.1, "verbosity": -1, "num_threads": 1, "seed": 0,
            }  # fmt: skip
            self._model = lightgbm.train(settings, data, num_boost_round=60)
            self._fitted = len(self._x)
        return [float(p) for p in self._model.predict(np.asarray(features, np.float64))]
