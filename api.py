"""What reaches upward: methods of L1's to L4's classes that need the layers above them.

The lower layers know nothing of this file. `Op.__call__` and its kin are assigned at the end, so
that an operator is a plain value below and a callable thing for users.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from . import calls, programs
from .algo.dtypes import DType, f32, from_numpy
from .algo.errors import ScheduleError, ShapeError
from .algo.graph.program import Program
from .algo.tensor_expr.check import check
from .algo.tensor_expr.dynamic import carried
from .algo.tensor_expr.op import Op
from .algo.tensor_expr.settle import numbered, sizes_named
from .algo.tensor_expr.sizes import evaluate
from .algo.upward import give
from .arguments import arguments
from .attached import attached

if TYPE_CHECKING:
    from .algo.tensor_expr.fold_terms import Reducer
    from .autodiff.keep import Keep
    from .sched.graph.schedule import GraphSchedule
    from .sched.loop.schedule import Schedule


def _schedule(self: Op) -> Schedule:
    """A schedule of the operator without primitives: loops as the equations are written."""
    from .sched.loop.schedule import Schedule

    check(self)  # sizes that have to be numbers are no matter of any primitive
    return Schedule(self)


def _gradient(self: Op, wrt: str | tuple[str, ...], keep: Keep = (), *, ties: str = "even") -> Op:
    """The operator that gives the gradients by these parameters, `dA` for every A.

    It takes the parameters that it reads, those of the tensors `keep` that it reads (results, and
    temporaries that `.keeping` returns; {"h": 16} is every 16th step of h), then a cotangent for
    each result (`dC`, of C's shape); all else of the forward computation it computes again. Sizes
    that are dynamic stay so. What a tie of max or min gets is shared evenly; with `ties` "first" it
    goes to the first instance, in the order of the loops as they are written, or the first
    argument, whatever the schedule is. Raises `GradientError` for names that are no parameters or
    no tensors, and for integers.
    """
    from .autodiff.keep import gradient

    return carried(self, gradient(self, wrt, keep, ties))


def _keeping(self: Op, *names: Keep, **steps: int) -> Op:
    """The operator that returns these of its temporaries too, after its results: what a gradient
    is given by `.gradient(wrt, keep=names)`. A reduction inside an equation of y is called `y_sum`,
    as gradients print it. `h=16` (or {"h": 16}) returns every 16th step of the recurrence h, as
    `h_kept`. Raises `GradientError` for other names."""
    from .autodiff.keep import keeping, kept

    what = [pair for item in names for pair in kept(item)]
    return carried(self, keeping(self, kept({**dict(what), **steps})))


def _defvjp(self: Op, rule: Any) -> Op:
    """Gives the operator a rule for its gradients, and returns it; also a decorator.

    The rule is an operator: a function as for `dt.op`, a text, or an `Op`. Of `f(A, B) -> C` it
    takes what it reads of A, B and C, by these names, and `dC`, the cotangent of C, of C's shape
    and type; it returns `dA` and `dB`, or some of them, of the shapes and types of A and B. (Where
    a tensor has the name `dC` itself, the cotangent is `dC_1`.) All derivatives follow from it:
    `gradient`, `vjp`, `grad`, programs, `dt.torch`, and, transposed, forward mode. Those of higher
    order differentiate the rule. A rule that is given again replaces the one before.

    Raises `GradientError` where names, shapes or types do not fit, where a term is surely not
    linear in the cotangents (clips are taken), or where a program was traced that uses the
    operator, and would not know of the rule.
    """
    from .autodiff.rules import defvjp

    return defvjp(self, rule)


def _defjvp(self: Op, rule: Any) -> Op:
    """Gives the operator a rule for its tangents, and returns it; also a decorator.

    The rule is an operator, as for `defvjp`. It takes what it reads of parameters and results, and
    `dA`, the tangents of those parameters A that may move, and returns `dC` for every result C,
    linear in the tangents. Without a vjp rule gradients are its transpose.

    Raises `GradientError` as `defvjp` does, and where the rule is not linear.
    """
    from .autodiff.rules import defjvp

    return defjvp(self, rule)


def _reducer_defvjp(self: Reducer, rule: Any) -> Reducer:
    """Gives the reducer a rule for gradients of reductions by it, and returns it.

    As `Op.defvjp`, of the operator that a whole reduction is: the lift's parameters and results if
    there is one (so that a rule says which indices components have), else `x[i]` and `y`, or
    `x0[i]`, `x1[i]` .. and `y0`, `y1` .. of several components: the rule returns `dx[i]` of `dy`.
    It names instances by bare indices. A rule is no part of the text of an operator.

        logsumexp.defvjp("dx[i] = exp(x[i] - y[]) * dy[]")

    Raises `GradientError` as `Op.defvjp` does, and where an operator uses the reducer already.
    """
    from .autodiff.reducer_rules import defvjp

    return defvjp(self, rule)


def _reducer_defjvp(self: Reducer, rule: Any) -> Reducer:
    """Gives the reducer a rule for tangents of reductions by it, and returns it.

    As `Op.defjvp`, in the names of `defvjp`: it takes `dx[i]` and returns `dy`.
    """
    from .autodiff.reducer_rules import defjvp

    return defjvp(self, rule)


def _graph_schedule(self: Program) -> GraphSchedule:
    """A schedule of the program without primitives."""
    from .sched.graph.schedule import GraphSchedule

    return GraphSchedule(self)


def _call(self: Schedule, *arrays: Any, out: Any = None) -> Any:
    """The operator under this schedule: results as arrays, a tuple if it returns several; `out`
    takes them. Raises `ShapeError` and `DTypeError` for arguments that do not fit."""
    return calls.runner_of(self)(*arrays, out=out)


def _on(self: Schedule, device: str) -> Callable[..., Any]:
    """The operator under this schedule on a GPU: "cuda:n", or "simt", one emulated on the host,
    which finds races. Takes and returns arrays of the host. Raises `DeviceError` for other names,
    and when called, where the device is missing."""
    from .codegen.gpu import parse_device, run_on

    parse_device(device)

    def call(*arrays: Any) -> Any:
        given = arguments(self.op, arrays)
        runner = calls.runner_of(self)
        runner.dispatch.used(None)
        runner.types = [(from_numpy(a.dtype), a.shape) for a in given]
        return run_on(self.op, given, self, device)

    return call


SOURCES = {"llvm": "llvm", "asm": "asm", "ir": "loop_ir", "ptx": ""}


def _source(self: Any, kind: str = "llvm", *, target: str = "sm_80", **sizes: int) -> str:
    """Generated code: kind is llvm, asm, ir (loop IR) or ptx (for `target`); at the last call's
    sizes, or at those given by name (types that are not annotated are taken as f32). Raises
    `ScheduleError` for other kinds and `ShapeError` where sizes are missing or unknown."""
    from .codegen.kernels import compile_op
    from .runner import Runner

    if kind not in SOURCES:
        raise ScheduleError(f"source({kind!r}): expected {', '.join(SOURCES)}")
    operator, schedule = (self, attached.get(self)) if isinstance(self, Op) else (self.op, self)
    runner = calls.runner_of(schedule) if schedule else Runner(operator, None)
    compiled = runner.last if not sizes else None
    if compiled is None and isinstance(self, Op) and not sizes:
        compiled = getattr(operator._memo.get("runner", (0, None))[1], "last", None)
    types = None if sizes else runner.types
    if compiled is not None:
        types = compiled.signature.types
    if types is None and not sizes:
        raise ShapeError(
            f"{operator.name}: call it first, or give sizes: source({kind!r}, "
            + ", ".join(f"{s}=64" for s in sizes_named(operator))
            + ")"
        )
    if types is None:
        operator, sizes = numbered(operator, sizes)
        types = _types_at(operator, sizes)
    if kind == "ptx":
        from .codegen.gpu import ptx_of
        from .sched.loop.schedule import Schedule

        return ptx_of(operator, types, schedule or Schedule(operator), target)
    compiled = compiled or compile_op(operator, types, schedule)
    return str(getattr(compiled, SOURCES[kind]))


def _explain(self: Op, **sizes: int) -> str:
    """Why the default schedule at these sizes is what it is: work, bytes and the roofline's time of
    each loop nest, what was chosen and what speaks for it; types that are not annotated are taken
    as f32. Raises `ShapeError` where sizes are missing or unknown."""
    from .codegen.host import machine
    from .codegen.peaks import peaks
    from .sched.loop.explain import explain

    operator, sizes = numbered(self, sizes)
    types = _types_at(operator, sizes)
    dtypes = {p.name: dtype for p, (dtype, _) in zip(operator.params, types, strict=True)}
    return explain(operator, dtypes, sizes, machine(), peaks())


def _types_at(operator: Op, sizes: dict[str, int]) -> list[tuple[DType, tuple[int, ...]]]:
    checked = check(operator)
    unknown = [s for s in sizes if s not in checked.sizes]
    if unknown:
        known = ", ".join(checked.sizes) or "none"
        raise ShapeError(f"{operator.name} has no size {unknown[0]}; its sizes are {known}")
    missing = [s for s in checked.sizes if s not in sizes]
    if missing:
        raise ShapeError(f"{operator.name}: give all sizes, {', '.join(missing)} missing")
    return [
        (p.type.dtype or f32, tuple(evaluate(e, sizes) for e in checked.shapes[p.name]))
        for p in operator.params
    ]


def bind() -> None:
    """Gives the classes of the lower layers what reaches upward."""
    give(
        "Op",
        {
            "__call__": calls.call,
            "schedule": _schedule,
            "with_schedule": calls.with_schedule,
            "gradient": _gradient,
            "keeping": _keeping,
            "defvjp": _defvjp,
            "defjvp": _defjvp,
            "source": _source,
            "explain": _explain,
        },
    )
    give("Reducer", {"defvjp": _reducer_defvjp, "defjvp": _reducer_defjvp})
    give(
        "Schedule",
        {
            "__call__": _call,
            "attach": calls.attach,
            "detach": calls.detach,
            "on": _on,
            "source": _source,
        },
    )
    give(
        "Program",
        {
            "__call__": programs.call_program,
            "schedule": _graph_schedule,
            "with_schedule": programs.with_graph_schedule,
            "plan": programs.plan_program,
        },
    )
    give("GraphSchedule", {"__call__": programs.call_schedule, "plan": programs.plan_schedule})
