"""The table of results, printed row by row and kept in `RESULTS.md`."""

from __future__ import annotations

import datetime
import math
import platform
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from peers import KINDS, PEERS

FILE = Path(__file__).parent / "RESULTS.md"
TIMES = (*KINDS, *PEERS)
COLUMNS = ("case", "threads", *TIMES, "default/peer", "hand/peer", "tuned/peer", "GF/s", "GB/s",
           "floor", "of floor")  # fmt: skip
HEAD = """# Results of the benchmark

Made by `make bench`, or row by row by `python -P benchmarks/run.py NAMES --write`. Times are
milliseconds, medians of runs taken in turn in one process; `default`, `hand` and `tuned` are ours.
Ratios are the time of the best peer over ours: above 1 we are faster. Rates are those of our best;
`floor` is the time that the roofline of this machine allows at least, by its measured peaks, and
`of floor` that time over our best.
"""


@dataclass(frozen=True)
class Row:
    """Seconds of each call of a case, and what it has to do at least."""

    case: str
    threads: int
    seconds: Mapping[str, float]
    operations: float
    moved: float
    floor: float

    def ratio(self, kind: str) -> float | None:
        """The best peer's time over ours, where both are known."""
        best = min((self.seconds[p] for p in PEERS if p in self.seconds), default=None)
        return best / self.seconds[kind] if best and kind in self.seconds else None

    def cells(self) -> list[str]:
        """The row as text, a cell a column."""
        best = min((self.seconds[k] for k in KINDS if k in self.seconds), default=math.inf)
        ratios = (self.ratio(kind) for kind in KINDS)
        return [
            self.case,
            str(self.threads),
            *(_number(self.seconds[t] * 1e3) if t in self.seconds else "" for t in TIMES),
            *("" if r is None else f"{r:.2f}" for r in ratios),
            _number(self.operations / best / 1e9),
            _number(self.moved / best / 1e9),
            _number(self.floor * 1e3),
            f"{self.floor / best:.2f}",
        ]


def _number(value: float) -> str:
    """Three digits."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def heading() -> str:
    """The names of the columns, as wide as the cells under them."""
    return _line(COLUMNS)


def line(row: Row) -> str:
    return _line(row.cells())


def _line(cells: Iterable[str]) -> str:
    first, *rest = cells
    names = COLUMNS[1:]
    return f"{first:26s}" + "".join(
        f"{cell:>{max(8, len(name) + 1)}}" for cell, name in zip(rest, names, strict=True)
    )


def means(rows: Iterable[Row]) -> str:
    """The geometric means of the ratios, and the least one, by kind and threads."""
    rows, lines = list(rows), []
    for threads in sorted({row.threads for row in rows}):
        for kind in KINDS:
            of = {r.case: x for r in rows if r.threads == threads and (x := r.ratio(kind))}
            if of:
                mean = math.exp(sum(map(math.log, of.values())) / len(of))
                worst = min(of, key=of.__getitem__)
                lines.append(
                    f"{threads} thread{'s' if threads > 1 else ''}, {kind}: geometric mean "
                    f"{mean:.2f} of {len(of)} cases, least {of[worst]:.2f} ({worst})"
                )
    return "\n".join(lines)


def write(rows: Iterable[Row], order: Iterable[str], file: Path = FILE) -> None:
    """Puts rows into the file, in the place of those for the same case and threads."""
    kept = _read(file) | {(row.case, str(row.threads)): row.cells() for row in rows}
    place = {name: n for n, name in enumerate(order)}
    kept = {key: cells for key, cells in kept.items() if key[0] in place}
    table = [
        "| " + " | ".join(cells) + " |"
        for cells in (
            COLUMNS,
            ["---"] + ["---:"] * (len(COLUMNS) - 1),
            *(kept[key] for key in sorted(kept, key=lambda key: (key[1], place[key[0]]))),
        )
    ]
    machine = f"Last on {_processor()}, {datetime.date.today()}."
    file.write_text("\n".join([HEAD, machine, "", *table, ""]))


def _read(file: Path) -> dict[tuple[str, str], list[str]]:
    if not file.exists():
        return {}
    lines = [text for text in file.read_text().splitlines() if text.startswith("| ")]
    cells = [[cell.strip() for cell in text[1:-1].split("|")] for text in lines]
    if not cells or tuple(cells[0]) != COLUMNS:
        return {}  # of another shape: made anew
    return {(row[0], row[1]): row for row in cells[2:]}


def _processor() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor() or platform.machine()
    found = dict(part.split(":", 1) for part in text.splitlines() if ":" in part)
    return next((v.strip() for k, v in found.items() if k.strip() == "model name"), "?")
