"""The text of a plan: block 0, where; block 1, what."""

from __future__ import annotations

import base64

from .plan import AllGather, AllReduce, Copy, Launch, Plan, Slice, Step


def print_plan(plan: Plan) -> str:
    """Two blocks. `name@offset` is a value in an arena."""
    return "\n".join(
        [f"plan {plan.name}", "block 0: where", *_where(plan), "block 1: what", *_what(plan)]
    )


def plan_text(plan: Plan) -> str:
    """The two blocks, then the kernels' operators and the constants: `plan_parse` reads it back."""
    lines = [print_plan(plan), "kernels"]
    for kernel in plan.kernels.values():
        lines.append(f"  {kernel.id}")
        if kernel.schedule is not None:
            lines.append(f"    schedule {' '.join(kernel.schedule.split())}")
        lines += [f"    {line}" for line in kernel.op.text.splitlines()]
    lines.append("constants")
    for slot in plan.slots.values():
        if slot.home == "const":
            data = base64.b64encode(plan.literals[slot.index].data).decode()
            lines.append(f"  {slot.name}: {data}")
    return "\n".join(lines) + "\n"


def _where(plan: Plan) -> list[str]:
    lines = []
    if plan.replicas > 1:
        devices = ", ".join(f"cpu:{r}" for r in range(plan.replicas))
        lines.append(f"  devices {devices}")
        lines.append(f"  {plan.mesh}: every replica runs block 1 on its part")
        members = ", ".join(str(r) for r in range(plan.replicas))
        lines.append(f"  communicator all = {{{members}}}")
    else:
        lines.append(f"  devices {', '.join(plan.arenas)}")
    each = " a replica" if plan.replicas > 1 else ""
    lines += [f"  arena {device}: {size} bytes{each}" for device, size in plan.arenas.items()]
    return lines


def _what(plan: Plan) -> list[str]:
    lines = []
    for given in plan.inputs:
        held = plan.slots[given.name].type if given.name in plan.slots else given.type
        part = f", axis {given.split} of {given.type} split" if given.split is not None else ""
        lines.append(f"  input {given.name}: {held}{part}")
    lines += [
        f"  const {slot.name}: {slot.type}" for slot in plan.slots.values() if slot.home == "const"
    ]
    regions = dict.fromkeys(step.region for step in plan.steps if isinstance(step, Launch))
    region = ""
    for step in plan.steps:
        if isinstance(step, Launch) and step.region != region and len(regions) > 1:
            region = step.region
            lines.append(f"  # {region}")
        lines.append(f"  {_step(plan, step)}")
    for output in plan.outputs:
        part = f", parts along axis {output.split}" if output.split is not None else ""
        lines.append(f"  output {output.name}: {output.type} = {plan.slots[output.slot]}{part}")
    return lines


def _step(plan: Plan, step: Step) -> str:
    slots = plan.slots
    match step:
        case Launch(kernel, args, results, device, again, _):
            left = ", ".join(f"{slots[r]}: {slots[r].type}" for r in results)
            right = ", ".join(str(slots[a]) for a in args)
            name = kernel if plan.kernels[kernel].schedule is None else f"{kernel} (scheduled)"
            where = f" on {device}" if device != "cpu" else ""
            return f"{'recompute' if again else 'launch'} {left} = {name}({right}){where}"
        case Copy(source, target, device):
            return f"copy {slots[target]} = {slots[source]} to {device}"
        case Slice(source, target, dim):
            return f"slice {slots[target]} = part of {slots[source]} along axis {dim}"
        case AllReduce(values, reducer, _, length):
            names = ", ".join(str(slots[v]) for v in values)
            return f"all_reduce {reducer} over all ({length} elements): {names}"
        case AllGather(source, target, dim, reason):
            why = f"  # {reason}" if reason else ""
            return f"all_gather {slots[target]} = {slots[source]} along axis {dim} over all{why}"
