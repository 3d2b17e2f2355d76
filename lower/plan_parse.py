"""Plans from their text: what `Plan.text` printed, it reads back, with nothing of planning.

The text is the two blocks that people read, then the kernels' operators and the constants' bytes.
The containers in which the program returned its results are not part of it.
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass, field

from ..algo.dtypes import BY_NAME
from ..algo.errors import FileFormatError
from ..algo.graph.graph import ArrayType, Literal
from ..algo.tensor_expr.parse import parse
from .plan import (
    AllGather,
    AllReduce,
    Copy,
    KernelSpec,
    Launch,
    Plan,
    PlanInput,
    PlanOutput,
    Slice,
    Slot,
    Step,
)

_TYPE = r"(\w+\[[\d,]*\])"
_INPUT = re.compile(rf"input (\S+): {_TYPE}(?:, axis (\d+) of {_TYPE} split)?")
_CONST = re.compile(rf"const (\S+): {_TYPE}")
_OUTPUT = re.compile(rf"output (\S+): {_TYPE} = (\S+?)(?:, parts along axis (\d+))?")
_LAUNCH = re.compile(r"(launch|recompute) (.+) = (\S+?)(?: \(scheduled\))?\((.*)\)(?: on (\S+))?")
_RESULT = re.compile(rf"(\S+): {_TYPE}")
_COPY = re.compile(r"copy (\S+) = (\S+) to (\S+)")
_SLICE = re.compile(r"slice (\S+) = part of (\S+) along axis (\d+)")
_REDUCE = re.compile(r"all_reduce (\w+) over all \((\d+) elements\): (.+)")
_GATHER = re.compile(r"all_gather (\S+) = (\S+) along axis (\d+) over all(?:  # (.*))?")


def parse_plan(text: str) -> Plan:
    """The plan that `text` describes; `FileFormatError`, with the line, where it is not one."""
    reader = _Reader()
    lines = text.splitlines()
    number = 0
    try:
        while number < len(lines):
            number = reader.line(lines, number)
    except (AttributeError, KeyError, IndexError, ValueError):
        bad = lines[number] if number < len(lines) else "the end"
        raise FileFormatError(f"line {number + 1} is not of a plan's text: {bad.strip()}") from None
    return reader.plan()


@dataclass(slots=True)
class _Reader:
    name: str = ""
    section: str = ""
    replicas: int = 1
    mesh: str = ""
    region: str = "forward"
    arenas: dict[str, int] = field(default_factory=dict)
    inputs: list[PlanInput] = field(default_factory=list)
    outputs: list[PlanOutput] = field(default_factory=list)
    slots: dict[str, Slot] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    kernels: dict[str, KernelSpec] = field(default_factory=dict)
    literals: dict[str, Literal] = field(default_factory=dict)

    def line(self, lines: list[str], at: int) -> int:
        """Reads line `at`, with the lines that belong to it; the number of the next one."""
        line = lines[at]
        if not line.startswith(" "):
            self.section = line.split(" ", 1)[0] if line.startswith("plan ") else line
            if line.startswith("plan "):
                self.name = line.removeprefix("plan ")
            elif line not in ("block 0: where", "block 1: what", "kernels", "constants"):
                raise ValueError
            return at + 1
        body = line.strip()
        match self.section:
            case "block 0: where":
                self._where(body)
            case "block 1: what":
                self._what(body)
            case "kernels":
                return self._kernel(lines, at)
            case "constants":
                name, data = body.split(": ", 1)
                slot = self.slots[name]
                self.literals[name] = Literal(base64.b64decode(data), slot.type)
            case _:
                raise ValueError
        return at + 1

    def plan(self) -> Plan:
        """What was read."""
        return Plan(
            self.name,
            self.replicas,
            self.mesh,
            self.arenas,
            tuple(self.inputs),
            tuple(self.literals.values()),
            tuple(self.outputs),
            self.slots,
            self.kernels,
            tuple(self.steps),
        )

    def _where(self, body: str) -> None:
        if body.startswith("arena "):
            device, size = body.removeprefix("arena ").split(": ")
            self.arenas[device] = int(size.split(" ")[0])
        elif body.startswith("communicator "):
            self.replicas = body.count(",") + 1
        elif ": every replica" in body:
            self.mesh = body.split(": every replica")[0]
        elif not body.startswith("devices "):
            raise ValueError

    def _what(self, body: str) -> None:
        if body.startswith("# "):
            self.region = body.removeprefix("# ")
        elif found := _INPUT.fullmatch(body):
            name, held, axis, whole = found.groups()
            split = None if axis is None else int(axis)
            self.inputs.append(PlanInput(name, _type(whole or held), split))
            self.slots[name] = Slot(name, _type(held), "input", len(self.inputs) - 1)
        elif found := _CONST.fullmatch(body):
            index = sum(slot.home == "const" for slot in self.slots.values())
            self.slots[found[1]] = Slot(found[1], _type(found[2]), "const", index)
        elif found := _OUTPUT.fullmatch(body):
            self._output(*found.groups())
        else:
            self._step(body)

    def _output(self, name: str, type_: str, value: str, axis: str | None) -> None:
        slot = self._known(value)
        index = len(self.outputs)
        if self.slots[slot].home == "":  # a result without a place: the first output that gives it
            old = self.slots[slot]
            self.slots[slot] = Slot(slot, old.type, "output", index)
        split = None if axis is None else int(axis)
        self.outputs.append(PlanOutput(name, slot, _type(type_), split))

    def _step(self, body: str) -> None:
        if found := _LAUNCH.fullmatch(body):
            verb, left, kernel, right, device = found.groups()
            device = device or "cpu"
            results = tuple(
                self._new(name, _type(type_), device) for name, type_ in _RESULT.findall(left)
            )
            args = tuple(self._known(arg) for arg in right.split(", ")) if right else ()
            again = verb == "recompute"
            self.steps.append(Launch(kernel, args, results, device, again, self.region))
        elif found := _COPY.fullmatch(body):
            source = self._known(found[2])
            target = self._new(found[1], self.slots[source].type, found[3])
            self.steps.append(Copy(source, target, found[3]))
        elif found := _SLICE.fullmatch(body):
            source, dim = self._known(found[2]), int(found[3])
            part = _resized(self.slots[source].type, dim, 1, self.replicas)
            self.steps.append(Slice(source, self._new(found[1], part, "cpu"), dim))
        elif found := _GATHER.fullmatch(body):
            source, dim = self._known(found[2]), int(found[3])
            whole = _resized(self.slots[source].type, dim, self.replicas, 1)
            target = self._new(found[1], whole, "cpu")
            self.steps.append(AllGather(source, target, dim, found[4] or ""))
        elif found := _REDUCE.fullmatch(body):
            values = tuple(self._known(value) for value in found[3].split(", "))
            offset = self.slots[values[0]].offset
            self.steps.append(AllReduce(values, found[1], offset, int(found[2])))
        else:
            raise ValueError

    def _kernel(self, lines: list[str], at: int) -> int:
        name = lines[at].strip()
        at += 1
        schedule = None
        if lines[at].startswith("    schedule "):
            schedule = lines[at].removeprefix("    schedule ")
            at += 1
        body = []
        while at < len(lines) and lines[at].startswith("    "):
            body.append(lines[at].removeprefix("    "))
            at += 1
        launch = next(s for s in self.steps if isinstance(s, Launch) and s.kernel == name)
        types = tuple(self.slots[arg].type for arg in launch.args)
        self.kernels[name] = KernelSpec(name, parse("\n".join(body)), types, schedule)
        return at

    def _known(self, shown: str) -> str:
        return shown if shown in self.slots else shown.rsplit("@", 1)[0]

    def _new(self, shown: str, type_: ArrayType, device: str) -> str:
        name, _, offset = shown.rpartition("@")
        if name and offset.isdigit():
            self.slots[name] = Slot(name, type_, "arena", offset=int(offset), device=device)
            return name
        self.slots[shown] = Slot(shown, type_, "")
        return shown


def _type(text: str) -> ArrayType:
    dtype, dims = text.rstrip("]").split("[")
    return ArrayType(tuple(int(n) for n in dims.split(",") if n), BY_NAME[dtype])


def _resized(type_: ArrayType, dim: int, times: int, by: int) -> ArrayType:
    shape = list(type_.shape)
    shape[dim] = shape[dim] * times // by
    return ArrayType(tuple(shape), type_.dtype)
