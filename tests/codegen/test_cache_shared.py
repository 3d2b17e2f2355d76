"""What many threads and processes compile at once: right results, one object a key, no debris."""

from __future__ import annotations

import gc
import multiprocessing
import os
import random
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import diptych as dt
import numpy as np
import pytest
from diptych.codegen import specialize
from diptych.codegen.cache import ObjectCache, default_cache
from diptych.codegen.specialize import counts

FULL = os.environ.get("DIPTYCH_TEST", "sample") == "full"


def test_r76_threads_compile_at_once() -> None:
    """Sixteen operators from as many threads, then one from all of them, collected meanwhile."""
    x = np.arange(8, dtype=np.float32)
    threshold = gc.get_threshold()
    gc.set_threshold(50)
    try:
        for round_ in range(50 if FULL else 1):
            before = counts["compiled"]
            ops = [dt.op(f"y[i] = x[i] * {n + 2} + {round_}") for n in range(16)]
            shared = dt.op(f"y[i] = x[i] - {round_ + 0.5}")
            wrong: list[str] = []
            gate = threading.Barrier(16)

            def work(n: int, gate: Any, ops: Any, shared: Any, round_: int, wrong: Any) -> None:
                gate.wait()
                if not np.array_equal(ops[n](x), x * (n + 2) + round_):
                    wrong.append(ops[n].text)
                gate.wait()
                if not np.array_equal(shared(x), x - np.float32(round_ + 0.5)):
                    wrong.append(shared.text)

            callers = [
                threading.Thread(target=work, args=(n, gate, ops, shared, round_, wrong))
                for n in range(16)
            ]
            for caller in callers:
                caller.start()
            for caller in callers:
                caller.join()
            assert wrong == []
            assert counts["compiled"] - before == 17
    finally:
        gc.set_threshold(*threshold)


def job(seed: int) -> None:
    """Calls an operator on arrays that lie in different ways; ends the process with 1 if wrong."""
    rng = random.Random(seed)
    specialize.codes.clear()  # what the parent had in memory
    raw = np.frombuffer(bytes(range(64)) * 8, np.uint8)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(6):
            skip, step = rng.choice([(0, 1), (0, 2), (1, 1), (3, 2)]), rng.choice([1, -1])
            x = raw[skip[0] : skip[0] + 256].view(np.uint32)[:: skip[1] * step]
            op = dt.op(f"y[i] = x[i] * 3 + {rng.choice([1, 2])}")
            added = int(op.text.rsplit(" ", 1)[1])
            if not np.array_equal(op(x), x.copy() * np.uint32(3) + np.uint32(added)):
                os._exit(1)
    os._exit(0)


def test_r78_processes_share_a_folder_and_are_killed(tmp_path: Path) -> None:
    processes, rounds = (32, 20) if FULL else (6, 2)
    fork = multiprocessing.get_context("fork")
    for round_ in range(rounds):
        os.environ["DIPTYCH_CACHE_DIR"] = str(tmp_path / str(round_))  # the fixture restores it
        rng = random.Random(round_)
        workers = [fork.Process(target=job, args=(round_ * 100 + n,)) for n in range(processes)]
        for worker in workers:
            worker.start()
        doomed = rng.sample(workers, processes // 3)
        for worker in doomed:
            time.sleep(rng.random() * 0.1)
            worker.kill()
        for worker in workers:
            worker.join(120)
        codes = {worker.exitcode for worker in workers if worker not in doomed}
        assert codes == {0}
        assert {worker.exitcode for worker in doomed} <= {0, -9}
        last = fork.Process(target=job, args=(7,))
        last.start()
        last.join(120)
        assert last.exitcode == 0
        cache = default_cache()
        names = [p.name for p in cache.folder.iterdir()]
        assert names and all(n.endswith(".o") or n.startswith(".new-") for n in names)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert all(cache.get(n.removesuffix(".o")) for n in names if n.endswith(".o"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_r78_a_folder_that_is_read_only_serves_and_keeps_nothing(tmp_path: Path) -> None:
    ObjectCache(tmp_path, 1 << 20).put("a", {}, b"code")
    tmp_path.chmod(0o500)
    try:
        cache = ObjectCache(tmp_path, 1 << 20)
        assert cache.get("a") == ({}, b"code")
        with pytest.warns(RuntimeWarning, match="cannot be written") as caught:
            cache.put("b", {}, b"code")
            cache.put("c", {}, b"code")
        assert len(caught) == 1 and cache.get("b") is None
    finally:
        tmp_path.chmod(0o700)


def test_r78_calls_work_where_nothing_can_be_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("DIPTYCH_CACHE_DIR", str(tmp_path / "file" / "cache"))
    x = np.arange(5)
    with pytest.warns(RuntimeWarning, match="is not kept") as caught:
        for n in range(3):
            np.testing.assert_array_equal(dt.op(f"y[i] = x[i] + {n}")(x), x + n)
    assert len(caught) == 1


def test_r80_names_and_orders_are_told_apart() -> None:
    a, b = np.arange(25.0).reshape(5, 5), np.arange(25.0).reshape(5, 5) ** 2
    p = dt.op("P[i,j] = A[i,j] - B[j,i]")(a, b)
    q = dt.op("Q[j,i] = A[i,j] - B[j,i]")(a, b)
    np.testing.assert_array_equal(p, a - b.T)
    np.testing.assert_array_equal(q, p.T)
    x = np.arange(32.0).reshape(4, 8)
    for text in ("Y[i,j] = x[i,j] * 2", "Y[j,i] = x[j,i] * 2"):
        op = dt.op(text)
        np.testing.assert_array_equal(op(x), x * 2)
        for loop in ("i", "j"):
            np.testing.assert_array_equal(
                op.schedule().split(loop, 3).vectorize(f"{loop}i")(x), x * 2
            )


def test_r80_an_operator_made_again_is_found_again() -> None:
    x = np.arange(9.0)
    first = dt.op("y[i] = x[i] * 7 - 1")
    first(x)
    before = counts["compiled"]
    dt.op("y[i] = x[i]*7 - 1")(x)
    assert counts["compiled"] == before


def test_r80_inputs_in_another_order_share_an_object() -> None:
    body = "    dynamic N <= 40\n    C[i,j] = sum(A[i,k] * B[k,j]) - s"
    one = dt.op(f"f(A: f32[N, K], B: f64[K, M], s: f32[]) -> C:\n{body}")
    two = dt.op(f"f(s: f32[], B: f64[K, M], A: f32[N, K]) -> C:\n{body}")
    rng = np.random.default_rng(0)
    before = None
    for n in (5, 9):
        a, b = rng.random((n, 3), np.float32), rng.random((3, 7))
        first = one(a, b, 2)
        np.testing.assert_allclose(first, a @ b - 2)
        before = before or counts["compiled"]
        np.testing.assert_array_equal(two(2, b, a), first)
    assert counts["compiled"] == before


def test_r81_lengths_and_scalars_compile_little() -> None:
    op = dt.op("f(A: f32[N], s: f32[]) -> Y:\n    dynamic N <= 256\n    Y[i] = A[i] * s")
    lengths = list(range(100, 200))
    random.Random(3).shuffle(lengths)
    before = dt.cache_info().compiled
    for n in lengths:
        a = np.arange(n, dtype=np.float32)
        np.testing.assert_array_equal(op(a, n), a * np.float32(n))
        np.testing.assert_array_equal(op(a, n / 4), a * np.float32(n / 4))
    first = dt.cache_info().compiled
    assert first - before <= 3
    for n in reversed(lengths):
        op(np.ones(n, np.float32), 0.5)
    assert dt.cache_info().compiled == first


def test_r81_shapes_are_kept_up_to_a_bound_and_counted() -> None:
    op = dt.op("y[i] = x[i] * 2 + 11")
    for n in (3, 4, 5):
        op(np.ones(n))
    info = dt.cache_info()
    for n in (5, 3, 4):
        op(np.ones(n))
    assert dt.cache_info() == info
