"""Graph schedules as users hold them: a program and the primitives applied to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from ...algo.errors import GraphError, UnsupportedError
from ...algo.graph.graph import Graph
from ...algo.tensor_expr.op import Op
from ...algo.upward import open_upward
from ...autodiff.share import shared
from ..loop.schedule import Schedule
from ..loop.text import calls
from .default import fuse_by_default
from .file import check_origin
from .fuse import Fuse
from .kernel import Kernel
from .parallel import ParallelDo
from .place import Place, with_copies
from .primitive import Primitive
from .recompute import Recompute
from .tasks import Tasks, select, tasks_of


@open_upward
class GraphSchedule:
    """An immutable graph schedule; every method returns a new one.

    `program` is a `Graph`, for which a primitive is checked when it is added, or a program whose
    graph follows from the arguments of a call, for which all are checked at the first call with
    new types. Nodes are selected by id ("dense[0]"), by the id of the kernel they are in, or by
    the name of their operator where that is unique. Raises `GraphError`.
    """

    __slots__ = ("_memo", "origin", "primitives", "program")
    program: Any
    primitives: tuple[Primitive, ...]
    origin: tuple[str, str] | None  # the file it is from, and the program's fingerprint there
    _memo: dict[str, Any]  # what the layers above derive from it

    def __init__(
        self,
        program: Any,
        primitives: tuple[Primitive, ...] = (),
        origin: tuple[str, str] | None = None,
    ) -> None:
        object.__setattr__(self, "program", program)
        object.__setattr__(self, "primitives", tuple(primitives))
        object.__setattr__(self, "origin", origin)
        object.__setattr__(self, "_memo", {})
        if self.graph is not None:
            self.tasks(self.graph)

    if TYPE_CHECKING:
        # What reaches upward is bound by the root; here stand the types only.
        def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
        def plan(self, *args: Any, **kwargs: Any) -> Any: ...

    def __reduce__(self) -> tuple[Any, ...]:
        return GraphSchedule, (self.program, self.primitives, self.origin)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError("a GraphSchedule is immutable; its methods return new ones")

    def then(self, primitive: Primitive) -> GraphSchedule:
        """The schedule with one more primitive."""
        return GraphSchedule(self.program, (*self.primitives, primitive), self.origin)

    @property
    def graph(self) -> Graph | None:
        """The program's graph, the last one traced; None before its types are known."""
        if isinstance(self.program, Graph):
            return self.program
        found: Graph | None = next(reversed(getattr(self.program, "traced", ())), None)
        return found

    def tasks(self, graph: Graph) -> Tasks:
        """The tasks of a graph under this schedule, every primitive checked."""
        known: tuple[Graph, Tasks] | None = self._memo.get("tasks")
        if known is None or known[0] is not graph:
            known = self._memo["tasks"] = (graph, with_copies(self._applied(graph)))
        return known[1]

    def _applied(self, graph: Graph) -> Tasks:
        if self.origin is not None:
            check_origin(graph, *self.origin)
        scheduled = [p.selector for p in self.primitives if isinstance(p, Kernel)]
        tasks = tasks_of(shared(graph, _named(graph, scheduled)))
        for phase in sorted({kind.phase for kind in PRIMITIVES.values()}):
            here = [primitive for primitive in self.primitives if primitive.phase == phase]
            for _, primitive in sorted(
                [(primitive.rank(tasks), primitive) for primitive in here], key=lambda p: p[0]
            ):
                tasks = primitive.step(tasks)
            if phase == Fuse.phase:
                tasks = self._fused_by_default(tasks)
        return tasks

    def _fused_by_default(self, tasks: Tasks) -> Tasks:
        fusions = [primitive for primitive in self.primitives if isinstance(primitive, Fuse)]
        if not all(fusion.selectors for fusion in fusions):
            return tasks
        named = [selector for fusion in fusions for selector in fusion.selectors]
        return fuse_by_default(tasks, {select(tasks, name, "fuse").id for name in named})

    # The primitives. What each does stands at its class.

    def fuse(self, *selectors: str) -> GraphSchedule:
        """Nodes as one kernel; one node: apart; none: no default fusion. See `Fuse`."""
        return self.then(Fuse(selectors))

    def place(self, selector: str, device: str) -> GraphSchedule:
        """A node on a device, "cpu" or "cpu:n". See `Place`."""
        return self.then(Place(selector, device))

    def parallel_do(
        self, *sizes: str | Mapping[str, int], devices: int, **axes: int
    ) -> GraphSchedule:
        """The program on replicas that share out arguments: `x=0`, a declared size "B", or
        `{"params.w": 1}` for one leaf of an argument. See `ParallelDo`."""
        for given in sizes:
            if not isinstance(given, (str, Mapping)):
                raise GraphError(
                    "parallel_do: expected the name of a declared size, as in "
                    'parallel_do("B", devices=2), or arguments and axes, as in '
                    f"parallel_do(x=0, devices=2); {given!r} came"
                )
        named = [item for given in sizes if isinstance(given, Mapping) for item in given.items()]
        names = tuple(given for given in sizes if isinstance(given, str))
        return self.then(ParallelDo((*named, *axes.items()), names, devices))

    def recompute(self, *selectors: str, budget: str | None = None) -> GraphSchedule:
        """Nodes computed again for the backward pass, not kept. See `Recompute`."""
        if budget is not None:
            raise UnsupportedError(
                f"recompute(budget={budget}): choosing nodes by a memory budget is not supported "
                'by this version; name the nodes, as in recompute("relu[0]")'
            )
        if not selectors:
            raise GraphError('recompute: name the nodes, as in recompute("relu[0]")')
        schedule = self
        for selector in selectors:
            schedule = schedule.then(Recompute(selector))
        return schedule

    @overload
    def kernel(self, selector: str) -> Schedule: ...
    @overload
    def kernel(
        self, selector: str, schedule: str | Schedule | Callable[[Schedule], Schedule]
    ) -> GraphSchedule: ...

    def kernel(
        self,
        selector: str,
        schedule: str | Schedule | Callable[[Schedule], Schedule] | None = None,
    ) -> GraphSchedule | Schedule:
        """A loop schedule for a kernel: text, a schedule, or a function of the kernel's plain
        schedule. Without one, the schedule that the kernel has, plain where it runs by default;
        this form and functions need the types to be known. See `Kernel`."""
        if isinstance(schedule, Schedule):
            return self.then(Kernel(selector, schedule.text))
        if isinstance(schedule, str):
            return self.then(Kernel(selector, schedule))
        who = f"kernel({selector})"
        tasks = self.tasks(self._graph(who))
        if select(tasks, selector, who).schedule is None:  # as it is where it has a schedule
            tasks = self.then(Kernel(selector, "")).tasks(self._graph(who))
        task = select(tasks, selector, who)
        assert task.op is not None
        if schedule is None:
            return Schedule.parse(task.op, task.schedule or "")
        return self.then(Kernel(selector, schedule(Schedule(task.op)).text))

    def attached(self, graph: Graph, find: Callable[[Op], Schedule | None]) -> GraphSchedule:
        """This schedule of `graph`, in which nodes whose operators have a loop schedule of their
        own (`find`) are kernels of their own under it, unless a primitive names them."""
        schedule = GraphSchedule(graph, self.primitives, self.origin)
        tasks = schedule.tasks(graph)
        spoken_for = {
            node
            for primitive in self.primitives
            for selector in primitive.kernels
            for node in select(tasks, selector, primitive.who).nodes
        }
        for node, label in graph.ids.items():
            found = None if label in spoken_for else find(node.op)
            if found is not None:
                schedule = schedule.fuse(label).kernel(label, found)
        return schedule

    def _graph(self, who: str) -> Graph:
        if self.graph is None:
            raise GraphError(
                f"{who}: the types of {self.program.name} are not known yet; call it once, or give "
                "the text of a loop schedule"
            )
        return self.graph

    # Text, files, comparison.

    @property
    def text(self) -> str:
        """The calls that made it, one a line."""
        return "\n".join(f".{primitive.text}" for primitive in self.primitives)

    def replay(self, text: str) -> GraphSchedule:
        """This schedule with the calls of `text` (or of the text of a schedule file) after it."""
        from .file import is_file, replayed

        if is_file(text):
            return replayed(self, text, "schedule")
        schedule = self
        for name, args, keywords in calls(text):
            schedule = schedule.call(name, *args, **keywords)
        return schedule

    @staticmethod
    def parse(program: Any, text: str) -> GraphSchedule:
        """The schedule that `text` makes."""
        return GraphSchedule(program).replay(text)

    def call(self, name: str, *args: Any, **keywords: Any) -> GraphSchedule:
        """One more primitive by its name, as replaying does."""
        if name not in PRIMITIVES:
            known = ", ".join(sorted(PRIMITIVES))
            raise GraphError(f"there is no graph primitive {name}; this version has {known}")
        try:
            made: GraphSchedule = getattr(self, name)(*args, **keywords)
        except TypeError as error:
            said = str(error).replace("GraphSchedule.", "").removeprefix(f"{name}() ")
            raise GraphError(f"{name}: {said}") from None
        return made

    def save(self, path: str | Path, figures: Mapping[str, str] | None = None) -> None:
        """Writes a schedule file; `figures` (such as milliseconds) stand in its header."""
        from .file import write

        write(self, Path(path), figures or {})

    @staticmethod
    def load(program: Any, path: str | Path) -> GraphSchedule:
        """The schedule in a file; `FileFormatError` where the file does not fit."""
        from .file import read

        return read(program, Path(path))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        known = ", ".join(sorted(PRIMITIVES))
        raise AttributeError(f"a graph schedule has no {name}; its primitives are {known}")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, GraphSchedule):
            return NotImplemented
        return self.program is other.program and self.primitives == other.primitives

    def __hash__(self) -> int:
        return hash((id(self.program), self.primitives))

    def __str__(self) -> str:
        return f"{self.program.name}.schedule()" + "".join(
            f"\n    .{primitive.text}" for primitive in self.primitives
        )

    def __repr__(self) -> str:
        return f"<schedule of {self.program.name}: {self.text or 'the default'}>"

    def _repr_html_(self) -> str:
        import html

        return f"<pre>{html.escape(str(self))}</pre>"


PRIMITIVES = {p.called: p for p in (ParallelDo, Recompute, Place, Fuse, Kernel)}
"""Every primitive by the name of its method; names that are not here are refused."""


def _named(graph: Graph, selectors: Iterable[str]) -> set[str]:
    """The ids of the nodes in kernels that have a loop schedule: these run as they are written."""
    parts = {part for selector in selectors for part in selector.split("+")}
    return {label for label in graph.ids.values() if {label, label.split("[")[0]} & parts}
