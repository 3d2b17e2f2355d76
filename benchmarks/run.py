"""Ours beside the peers, in one process run: `make bench`, or some cases by name.

    python -P benchmarks/run.py [NAMES or GLOBS] [--threads 1,2] [--peers numpy,torch,jax]
                                [--only default,hand,tuned] [--rounds 3] [--write] [--list]
                                [--near]

Ours runs by the default schedule, by the hand-written one (`schedules/NAME.sched`) and by what the
tuner found (`schedules/NAME.tuned.sched`), where they lie there. Results are compared first. Each
number of threads is a process of its own, kept to so many processors. `calls` and `tuning` are two
parts by themselves, which run too where no name is given: first and later calls, and what a short
search finds. `--write` keeps the rows in `RESULTS.md`. `--near` measures instead what hand-written
schedules keep of their rate at extents nearby (`near.py`).
"""

from __future__ import annotations

import argparse
import importlib
import os
import subprocess
import sys

PARTS = ("calls", "tuning")
"""Parts by themselves, each a module with a `main`."""


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks/run.py", description="Ours beside the peers.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="names or globs; all if none")
    parser.add_argument("--threads", default="1,2", help="numbers of threads")
    parser.add_argument("--peers", default="numpy,torch,torch.compile,jax")
    parser.add_argument("--only", default="default,hand,tuned", help="which schedules of ours")
    parser.add_argument("--rounds", type=int, default=3, help="turns that each call takes")
    parser.add_argument("--write", action="store_true", help="keep the rows in RESULTS.md")
    parser.add_argument("--near", action="store_true", help="hand-written ones at other extents")
    parser.add_argument("--list", action="store_true", help="the names of the cases")
    return parser.parse_args()


def _confine(threads: int) -> None:
    """Keeps this process, whatever its libraries, to so many processors."""
    for name in ("DIPTYCH", "OMP", "OPENBLAS", "MKL"):
        os.environ[f"{name}_NUM_THREADS"] = str(threads)
    for name in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"):  # they slow NumPy's kernels
        os.environ.pop(name, None)
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])


def _cases(given: argparse.Namespace, names: list[str], threads: int) -> None:
    from case import chosen
    from cases import CASES
    from diptych.codegen.host import machine
    from diptych.codegen.peaks import peaks as measured
    from measure import medians
    from peers import check, ours, peers
    from table import Row, heading, line, means, write

    rows, host, limits = [], machine(), measured(again=True)
    print(heading())
    for case in chosen(CASES, names):
        arrays = case.drawn()
        mine = ours(case, arrays, given.only.split(","))
        others = peers(case, arrays, given.peers.split(","))
        check(case, arrays, mine, next(iter(others.values()), None))
        seconds = medians(mine | others, given.rounds, threads)
        moved = case.moved or sum(a.nbytes for a in arrays) + _size(next(iter(mine.values()))())
        # Integers but bytes have no peak of ours to compare with.
        kinds = {"float32": "f32", "float64": "f64", "int8": "i8", "uint8": "i8"}
        name = next((kinds[a.dtype.name] for a in arrays if a.dtype.name in kinds), "")
        work = case.operations if name in limits.operations else 0
        floor = limits.floor(work, moved, name, host, threads)
        rows.append(Row(case.name, threads, seconds, case.operations, moved, floor))
        print(line(rows[-1]), flush=True)
        if given.write:
            write(rows[-1:], [c.name for c in CASES])
    print(means(rows))


def _size(results: object) -> int:
    """Bytes of results."""
    arrays = results if isinstance(results, tuple) else (results,)
    return sum(a.nbytes for a in arrays)


def main() -> int:
    given = _arguments()
    if given.list:
        from cases import CASES

        print("\n".join(case.name for case in CASES))
        return 0
    given.names = given.names or ([] if given.near else [*PARTS]) + ["*"]
    for part in PARTS:
        if part in given.names:
            importlib.import_module(part).main()
    names = [name for name in given.names if name not in PARTS]
    counts = given.threads.split(",") if names else []
    if len(counts) == 1:
        _confine(int(counts[0]))
        if given.near:
            from case import chosen
            from cases import CASES
            from near import near

            for line in near(chosen(CASES, names), int(counts[0]), given.rounds):
                print(line, flush=True)
            return 0
        _cases(given, names, int(counts[0]))
        return 0
    # A library counts the processors when it is loaded.
    options = [a for a in sys.argv[1:] if a not in given.names]
    again = [sys.executable, "-P", __file__, *names, *options, "--threads"]
    return max((subprocess.run([*again, n]).returncode for n in counts), default=0)


if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    sys.exit(main())
