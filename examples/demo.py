"""The main job on real data: write, schedule, be refused, tune, save, replay, differentiate, train.

Runs in under three minutes on two cores. `make demo` installs what it needs and starts it.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

for variable in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"):
    os.environ.pop(variable, None)  # numpy is measured at its full speed

import diptych as dt
import numpy as np
from threadpoolctl import threadpool_limits

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import digits
from blur import blur
from matmul import matmul
from timing import interleaved


def heading(text: str) -> None:
    print(f"\n== {text}")


def photograph() -> Any:
    """One of scikit-learn's sample photographs: f32[427, 640, 3], values 0 to 1."""
    from sklearn.datasets import load_sample_image

    return np.ascontiguousarray(load_sample_image("china.jpg"), np.float32) / 255


def patches(image: Any) -> Any:
    """1024 overlapping 32 x 32 patches of a photograph's grey values, centred: f32[1024, 1024]."""
    grey = image.mean(axis=2)
    windows = np.lib.stride_tricks.sliding_window_view(grey, (32, 32))[::12, ::19]
    rows = windows.reshape(-1, 1024)[:1024]
    return np.ascontiguousarray(rows - rows.mean(axis=0), np.float32)


def products(image: Any) -> None:
    heading("a matrix product, scheduled: the covariance of 1024 image patches, 1024^3")
    rows = patches(image)
    left, right = np.ascontiguousarray(rows.T), rows
    fast = matmul.with_schedule(HERE / "matmul.sched")
    print(matmul.schedule())
    print("\n... under examples/matmul.sched becomes\n")
    print(fast.schedule)
    for threads, target in ((1, 0.9), (2, 0.85)):
        dt.threads(threads)
        run = matmul.with_schedule(HERE / "matmul.sched", strict=True)
        start = time.perf_counter()
        result = run(left, right)
        first = time.perf_counter() - start
        out = np.empty_like(result)
        with threadpool_limits(threads):
            ours, numpys = interleaved(
                15, lambda run=run, out=out: run(left, right, out=out), lambda: left @ right
            )
            error = float(np.max(np.abs(result - left @ right)))
        print(
            f"{threads} thread(s): {ours * 1e3:.2f} ms, numpy {numpys * 1e3:.2f} ms: "
            f"{numpys / ours:.2f} of numpy's speed (target {target}); "
            f"first call {first * 1e3:.0f} ms; largest difference {error:.1e}"
        )
    heading("an illegal schedule is refused, with the pair of instances that it would break")
    try:
        matmul.schedule().parallel("k")
    except dt.ScheduleError as error:
        print(error)


def blurred(image: Any) -> None:
    heading(f"a blur of a photograph, {image.shape}: tuned for 20 s, saved, replayed")
    from diptych.autotune.tune import tune_op

    types = {"image": (dt.f32, image.shape)}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "blur.sched"
        tune_op(blur, types, output=file, seconds=20)
        print(file.read_text())
        tuned = blur.with_schedule(file, strict=True)
        result = tuned(image)

    def by_numpy() -> Any:
        rows = (image[:, :-2] + image[:, 1:-1] + image[:, 2:]) / np.float32(3)
        return (rows[:-2] + rows[1:-1] + rows[2:]) / np.float32(3)

    assert np.allclose(result, by_numpy(), atol=1e-6)
    out = np.empty_like(result)
    default, best, numpys = interleaved(
        15, lambda: blur(image, out=out), lambda: tuned(image, out=out), by_numpy
    )
    print(
        f"default {default * 1e3:.3f} ms, tuned {best * 1e3:.3f} ms, "
        f"numpy {numpys * 1e3:.3f} ms ({numpys / best:.1f} x)"
    )
    heading("its gradient, an operator again")
    print(blur.gradient("image"))
    print()
    print(matmul.gradient("A"))


def training() -> None:
    heading("a training step as one graph: a small convolutional net on handwritten digits")
    images, labels, _, _ = digits.data()
    batch = images[: digits.BATCH], labels[: digits.BATCH], np.float32(0.1)
    replicas = digits.step.schedule().parallel_do(x=0, y=0, devices=2)
    params = digits.initial()
    (loss, _), (split_loss, _) = digits.step(params, *batch), replicas(params, *batch)
    print(replicas.plan())
    print(f"loss of one batch: {float(loss):.6f} unsplit, {float(split_loss):.6f} on two replicas")
    start = time.perf_counter()
    trained, losses = digits.train(replicas)
    spent = time.perf_counter() - start
    found = digits.accuracy(trained)
    print(
        f"{len(losses)} epochs in {spent:.1f} s on two replicas; loss {losses[0]:.3f} to "
        f"{losses[-1]:.3f}; {100 * found:.1f} % of the held-out fifth right (target 97 %)"
    )
    assert found >= 0.97


def main() -> None:
    start = time.perf_counter()
    image = photograph()
    products(image)
    blurred(image)
    training()
    print(f"\nAll done in {time.perf_counter() - start:.0f} s.")


if __name__ == "__main__":
    main()
