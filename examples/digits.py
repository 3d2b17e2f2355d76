"""A small convolutional network on scikit-learn's handwritten digits: one training step, one graph.

Nothing here says where or how anything runs. `example()` gives inputs to tune with:
autotune examples/digits.py:step --inputs examples/digits.py:example --both -o digits.sched
"""

from __future__ import annotations

from typing import Any

import diptych as dt
import numpy as np

FILTERS, BATCH = 16, 64

conv = dt.op(
    """
    conv(x: f32[B, H, W], w: f32[F, R, S], b: f32[F]) -> y:
        y[n,f,h,v] = sum(x[n,h+r,v+s] * w[f,r,s]) + b[f]
    """
)
relu = dt.op("relu(x: f32[B, F, H, W]) -> y:\n  y[n,f,h,v] = max(x[n,f,h,v], 0)")
pool = dt.op(
    """
    pool(x: f32[B, F, H, W]) -> y:
        y[n,f,h,v] = max(x[n,f,2*h+p,2*v+q]) where p in 0:2, q in 0:2
    """
)
dense = dt.op(
    """
    dense(x: f32[B, F, H, W], w: f32[F, H, W, O], b: f32[O]) -> y:
        y[n,o] = sum(x[n,f,h,v] * w[f,h,v,o]) + b[o]
    """
)
cross_entropy = dt.op(
    """
    cross_entropy(z: f32[B, O], label: i64[B]) -> loss:
        m[n]   = max(z[n,o])
        l[n]   = log(sum(exp(z[n,o] - m[n]))) + m[n]
        loss[] = sum(l[n] - z[n,label[n]]) / B
    """
)


def logits(params: dict[str, Any], x: Any) -> Any:
    """Class scores of images x: f32[B, 8, 8]."""
    h = relu(conv(x, params["w1"], params["b1"]))
    return dense(pool(h), params["w2"], params["b2"])


@dt.program
def step(params: dict[str, Any], x: Any, y: Any, lr: Any) -> Any:
    """Forward, backward and update; returns the loss and the new parameters."""
    loss = cross_entropy(logits(params, x), y)
    grads = dt.grad(loss, params)
    return loss, {name: params[name] - lr * grads[name] for name in params}


@dt.program
def predict(params: dict[str, Any], x: Any) -> Any:
    """Class scores."""
    return logits(params, x)


def initial(seed: int = 0) -> dict[str, Any]:
    """He initialisation."""
    rng = np.random.default_rng(seed)

    def normal(*shape: int, fan_in: int) -> Any:
        return (rng.standard_normal(shape) * np.sqrt(2 / fan_in)).astype(np.float32)

    return {
        "w1": normal(FILTERS, 3, 3, fan_in=9),
        "b1": np.zeros(FILTERS, np.float32),
        "w2": normal(FILTERS, 3, 3, 10, fan_in=9 * FILTERS),
        "b2": np.zeros(10, np.float32),
    }


def data() -> tuple[Any, Any, Any, Any]:
    """Training images and labels, held-out images and labels (a fifth); images in 0..1."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise ImportError("the digits come with scikit-learn: pip install scikit-learn") from None
    digits = load_digits()
    images = (digits.images / 16).astype(np.float32)
    order = np.random.default_rng(0).permutation(len(images))
    held = len(images) // 5
    test, train = order[:held], order[held:]
    labels = digits.target.astype(np.int64)
    return images[train], labels[train], images[test], labels[test]


def example() -> tuple[Any, ...]:
    """One batch to tune with."""
    images, labels, _, _ = data()
    return initial(), images[:BATCH], labels[:BATCH], np.float32(0.1)


def train(run: Any, epochs: int = 30, lr: float = 0.3, seed: int = 0) -> tuple[Any, list[float]]:
    """Trains with `run`, the step under any schedule; returns parameters and losses by epoch."""
    images, labels, _, _ = data()
    rng, params, losses = np.random.default_rng(seed), initial(seed), []
    for epoch in range(epochs):
        order = rng.permutation(len(images))
        total, rate = 0.0, np.float32(lr * (1 - epoch / epochs) + 0.01)
        batches = len(images) // BATCH
        for n in range(batches):
            pick = order[n * BATCH : (n + 1) * BATCH]
            loss, params = run(params, images[pick], labels[pick], rate)
            total += float(loss)
        losses.append(total / batches)
    return params, losses


def accuracy(params: Any) -> float:
    """The part of the held-out fifth that is classified rightly."""
    _, _, images, labels = data()
    return float(np.mean(np.argmax(predict(params, images), axis=1) == labels))
