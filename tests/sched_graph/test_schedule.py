"""Graph schedules: selectors, text, replay, files, and every refusal."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from diptych.algo.dtypes import f32
from diptych.algo.errors import FileFormatError, GraphError, ScheduleError, UnsupportedError
from diptych.algo.graph import build
from diptych.algo.graph.fingerprint import fingerprint
from diptych.algo.graph.graph import ArrayType, Graph
from diptych.algo.graph.program import Program
from diptych.algo.graph.trace import trace
from diptych.algo.tensor_expr.op import Op
from diptych.algo.tensor_expr.parse import parse
from diptych.sched.graph.fuse import _composition
from diptych.sched.graph.schedule import GraphSchedule
from diptych.sched.graph.tasks import Task
from diptych.sched.loop.schedule import Schedule

DENSE = parse("dense(x: f32[N, K], w: f32[K, M]) -> y:\n  y[n,m] = sum(x[n,k] * w[k,m])")
RELU = parse("relu(x) -> y:\n  y[i,j] = max(x[i,j], 0)")


def launches(schedule: GraphSchedule, graph: Graph) -> list[str]:
    return [task.id for task in schedule.tasks(graph).tasks]


def by_id(schedule: GraphSchedule, graph: Graph) -> dict[str, Task]:
    return {task.id: task for task in schedule.tasks(graph).tasks}


def test_default_fusion(net: Graph, training: Graph) -> None:
    assert launches(GraphSchedule(net), net) == ["dense[0]+relu[0]", "dense[1]", "softmax[0]"]
    found = launches(GraphSchedule(training), training)
    assert len(found) <= len(training.nodes) // 2
    assert found[0] == "dense[0]+relu[0]"


def test_layers_of_a_deep_network_ask_for_one_composition() -> None:
    def deep(params: list[Any], x: Any) -> Any:
        for w in params:
            x = build.call(RELU, build.call(DENSE, x, w))
        return x

    square = ArrayType((6, 6), f32)
    graph = trace(deep, ([square] * 30, ArrayType((8, 6), f32)))
    before = _composition.cache_info().misses
    assert len(launches(GraphSchedule(graph), graph)) == 30
    assert _composition.cache_info().misses - before <= 2


def test_operators_with_a_schedule_of_their_own_keep_it(net: Graph) -> None:
    own = Schedule(DENSE).split("y.k", 2)

    def find(op: Op) -> Schedule | None:
        return own if op == DENSE else None

    plain = GraphSchedule(net)
    tasks = by_id(plain.attached(net, find), net)
    assert list(tasks) == ["dense[0]", "relu[0]", "dense[1]", "softmax[0]"]
    assert [task.schedule for task in tasks.values()] == [own.text, None, own.text, None]
    spoken = plain.fuse("dense[0]", "relu[0]").kernel("dense[1]", "")
    assert spoken.attached(net, find) == spoken
    assert plain.attached(net, lambda op: None) == plain


def test_fuse_by_hand(net: Graph) -> None:
    plain = GraphSchedule(net)
    assert launches(plain.fuse(), net) == ["dense[0]", "relu[0]", "dense[1]", "softmax[0]"]
    assert launches(plain.fuse("relu[0]"), net) == ["dense[0]", "relu[0]", "dense[1]", "softmax[0]"]
    two = plain.fuse("dense[1]", "softmax[0]")
    assert launches(two, net) == ["dense[0]+relu[0]", "dense[1]+softmax[0]"]
    one = two.fuse("relu[0]", "dense[1]")  # its kernel
    assert launches(one, net) == ["dense[0]", "relu[0]+dense[1]+softmax[0]"]


def test_fused_kernels_keep_what_others_read(training: Graph) -> None:
    task = by_id(GraphSchedule(training).fuse().fuse("dense[0]", "relu[0]"), training)
    fused = task["dense[0]+relu[0]"]
    assert fused.op is not None
    assert fused.results == ("dense[0]", "relu[0]")  # the gradient of relu reads dense[0]
    assert fused.op.name == "dense_relu"


def test_recompute_repeats_a_node_before_its_first_backward_reader(training: Graph) -> None:
    tasks = by_id(GraphSchedule(training).fuse().recompute("relu[0]"), training)
    order = list(tasks)
    again = tasks["relu[0]'"]
    assert again.again
    assert again.op is tasks["relu[0]"].op
    assert tasks["dense[1]"].args[0] == "relu[0]"
    readers = [task.id for task in tasks.values() if "relu[0]'" in task.args]
    assert readers
    assert order.index("relu[0]'") + 1 == order.index(readers[0])


def test_recompute_of_a_chain(training: Graph) -> None:
    schedule = GraphSchedule(training).fuse().recompute("relu[0]").recompute("dense[0]")
    tasks = by_id(schedule, training)
    assert tasks["relu[0]'"].args == ("dense[0]'",)
    assert tasks["relu[0]"].args == ("dense[0]",)
    late = [t for t in tasks.values() if t.region != "forward"]
    assert not any("dense[0]" in t.args for t in late)
    swapped = GraphSchedule(training).fuse().recompute("dense[0]").recompute("relu[0]")
    assert {t.id: t.args for t in swapped.tasks(training).tasks} == {
        t.id: t.args for t in tasks.values()
    }


def test_copies_stand_where_the_other_device_first_needs_a_value(net: Graph) -> None:
    schedule = GraphSchedule(net).fuse().place("dense[1]", "cpu:1")
    assert launches(schedule, net) == [
        "dense[0]",
        "relu[0]",
        "copy relu[0]@cpu:1",
        "copy params.w2@cpu:1",
        "dense[1]",
        "copy dense[1]@cpu",
        "softmax[0]",
    ]


def test_fusion_stays_on_one_device(net: Graph) -> None:
    found = launches(GraphSchedule(net).place("relu[0]", "cpu:1"), net)
    assert "relu[0]" in found
    assert "dense[0]" in found


def test_parallel_do_sums_what_is_partial_once(training: Graph) -> None:
    schedule = GraphSchedule(training).parallel_do(x=0, t=0, devices=2)
    tasks = schedule.tasks(training)
    collectives = [task for task in tasks.tasks if task.kind != "launch"]
    assert [task.kind for task in collectives] == ["all_reduce"]
    assert len(collectives[0].args) == 3  # the loss and two gradients
    assert [output.split for output in tasks.outputs] == [None, None, None]
    assert [argument.split for argument in tasks.arguments] == [None, None, 0, 0]
    assert tasks.types["x"].shape == (4, 6)


def test_parallel_do_by_a_declared_size(net: Graph) -> None:
    schedule = GraphSchedule(net).parallel_do("B", devices=4)
    tasks = schedule.tasks(net)
    assert [argument.split for argument in tasks.arguments] == [None, None, 0]
    assert all(task.kind == "launch" for task in tasks.tasks)
    assert tasks.outputs[0].split == 0


def test_parallel_do_gathers_only_what_must_be_whole(net: Graph) -> None:
    schedule = GraphSchedule(net).parallel_do({"params.w2": 1}, devices=2)
    assert schedule.text == '.parallel_do({"params.w2": 1}, devices=2)'
    assert GraphSchedule.parse(net, schedule.text) == schedule
    tasks = schedule.tasks(net)
    (gather,) = [task for task in tasks.tasks if task.kind == "all_gather"]
    assert gather.args == ("dense[1]",)  # softmax normalises over the split index
    assert "sub of a partial max over M" in gather.reason


def test_text_replays(training: Graph) -> None:
    schedule = (
        GraphSchedule(training)
        .parallel_do(x=0, t=0, devices=2)
        .recompute("relu[0]")
        .fuse("dense[0]", "relu[0]")
        .kernel("dense[0]+relu[0]", "")
    )
    assert schedule.text == (
        '.parallel_do(x=0, t=0, devices=2)\n.recompute("relu[0]")\n.fuse("dense[0]", "relu[0]")\n'
        '.kernel("dense[0]+relu[0]", "")'
    )
    assert GraphSchedule.parse(training, schedule.text) == schedule
    assert hash(GraphSchedule.parse(training, schedule.text)) == hash(schedule)
    assert str(schedule).startswith("step.schedule()\n    .parallel_do(")
    assert repr(GraphSchedule(training)) == "<schedule of step: the default>"
    assert "step.schedule()" in schedule._repr_html_()
    with pytest.raises(AttributeError):
        schedule.primitives = ()


def test_a_schedule_of_a_program_is_checked_when_types_are_known(net: Graph) -> None:
    def scaled(x: Any) -> Any:
        return x * 2 + 1

    program = Program(scaled)
    schedule = GraphSchedule(program).fuse("mul[0]", "sub[0]")  # no types yet
    import numpy as np

    graph = program.graph(np.ones(3, np.float32))
    with pytest.raises(GraphError):
        schedule.tasks(graph)
    with pytest.raises(GraphError):
        GraphSchedule(program).fuse("mul[0]", "sub[0]")


def test_files(training: Graph, tmp_path: Path) -> None:
    schedule = (
        GraphSchedule(training)
        .fuse("dense[0]", "relu[0]")
        .kernel("dense[0]+relu[0]", "")
        .recompute("relu[0]")
    )
    file = tmp_path / "step.sched"
    schedule.save(file, {"ms": "1.5"})
    text = file.read_text()
    assert text.splitlines()[0] == "# diptych graph schedule, format 1"
    assert text.splitlines()[2:] == [
        "# program: step",
        f"# graph: {fingerprint(training)}",
        "# ms: 1.5",
        'fuse("dense[0]", "relu[0]")',
        'recompute("relu[0]")',
        "# kernel: dense[0]+relu[0]",
        "# end",
    ]
    loaded = GraphSchedule.load(training, file)
    assert set(loaded.primitives) == set(schedule.primitives)
    assert GraphSchedule(training).replay(text) == loaded
    assert not list(tmp_path.glob(".*"))


def test_a_file_knows_its_program_at_all_sizes(tmp_path: Path) -> None:
    def layers(first: Op, second: Op) -> Program:
        def step(x: Any, w: Any) -> Any:
            return build.call(second, build.call(first, build.call(DENSE, x, w)))

        return Program(step)

    leaky = parse("relu(x) -> y:\n  y[i,j] = max(x[i,j], 0.01 * x[i,j])")
    x, w = ArrayType((4, 8), f32), ArrayType((8, 6), f32)
    program, other = layers(RELU, RELU), layers(RELU, leaky)
    untyped = tmp_path / "untyped.sched"
    GraphSchedule(program).fuse("relu[0]").save(untyped)
    assert "# graph:" not in untyped.read_text()
    graph = program.graph(x, w)
    file = tmp_path / "step.sched"
    GraphSchedule(program).fuse("relu[0]").save(file)
    assert fingerprint(graph) in file.read_text()
    larger = program.graph(ArrayType((40, 80), f32), ArrayType((80, 60), f32))
    assert fingerprint(larger) == fingerprint(graph)
    assert (
        GraphSchedule.load(larger, file).primitives == GraphSchedule.load(program, file).primitives
    )

    late = GraphSchedule.load(other, file)  # nothing is known of its graph yet
    late.save(tmp_path / "again.sched")
    assert (tmp_path / "again.sched").read_text() == file.read_text()
    graph = other.graph(x, w)
    want = (
        f"{file}: made for another program called step: its operators, connections or element "
        f"types have the fingerprint {fingerprint(larger)}, this program's {fingerprint(graph)}; "
        f"make the file anew, or delete its line '# graph: {fingerprint(larger)}' to apply what "
        "fits"
    )
    for attempt in (
        lambda: late.tasks(graph),
        lambda: late.fuse("relu[1]"),
        lambda: GraphSchedule.load(other, file),
    ):
        with pytest.raises(FileFormatError) as error:
            attempt()
        assert str(error.value) == want
    assert GraphSchedule.load(other, untyped).primitives == late.primitives


def test_a_loop_schedule_for_a_kernel(net: Graph, tmp_path: Path) -> None:
    plain = GraphSchedule(net)
    loops = plain.kernel("dense[1]").split("y.k", 2)
    for given in (loops, loops.text, lambda kernel: kernel.split("y.k", 2)):
        schedule = plain.kernel("dense[1]", given)
        assert by_id(schedule, net)["dense[1]"].schedule == loops.text
        assert schedule.kernel("dense[1]") == loops
    schedule.save(tmp_path / "a.sched")
    assert GraphSchedule.load(net, tmp_path / "a.sched") == schedule


def refusal(make: Callable[[], Any]) -> str:
    with pytest.raises(GraphError) as error:
        make()
    return str(error.value)


def test_selector_errors(net: Graph) -> None:
    plain = GraphSchedule(net)
    assert refusal(lambda: plain.place("dense", "cpu:1")) == (
        "place(dense, cpu:1): dense is ambiguous; it matches dense[0], dense[1]"
    )
    assert refusal(lambda: plain.recompute("tanh")) == (
        "recompute(tanh): no node is called tanh; there are dense[0], relu[0], dense[1], softmax[0]"
    )


def test_fuse_errors(net: Graph, training: Graph) -> None:
    plain = GraphSchedule(net)
    assert refusal(lambda: plain.fuse("dense[0]", "dense[1]")) == (
        "fuse(dense[0], dense[1]): relu[0] stands between: it needs dense[0] and the fused kernel "
        "needs it; fuse relu[0] too, or leave one out"
    )
    assert refusal(lambda: plain.fuse("relu[0]", "relu")) == (
        "fuse(relu[0], relu): relu[0] is named twice"
    )
    assert refusal(lambda: plain.place("relu[0]", "cpu:1").fuse("dense[0]", "relu[0]")) == (
        "fuse(dense[0], relu[0]): the nodes are on cpu and cpu:1; place them on one device"
    )
    split = GraphSchedule(training).parallel_do(x=0, t=0, devices=2)
    assert refusal(lambda: split.fuse("mul[0]", "sub[0]")) == (
        "fuse(mul[0], sub[0]): all_reduce[0] stands between: mul[0] is summed or gathered over all "
        "replicas before its next reader; leave one out"
    )


def test_recompute_errors(net: Graph, training: Graph) -> None:
    assert refusal(lambda: GraphSchedule(net).recompute("relu[0]")) == (
        "recompute(relu[0]): nothing in the backward part reads relu[0], so it is not kept as it is"
    )
    assert refusal(lambda: GraphSchedule(training).recompute("sub[0]")) == (
        "recompute(sub[0]): sub[0] is not in the forward part, so nothing would be saved"
    )


def test_several_nodes_are_recomputed_by_one_call(training: Graph) -> None:
    plain = GraphSchedule(training).fuse()
    both = plain.recompute("relu[0]", "dense[0]")
    assert both == plain.recompute("relu[0]").recompute("dense[0]")
    assert refusal(lambda: both.recompute("relu[0]")) == (
        "recompute(relu[0]): relu[0] is computed again already"
    )
    assert refusal(lambda: plain.recompute()) == (
        'recompute: name the nodes, as in recompute("relu[0]")'
    )


def test_parallel_do_of_what_is_no_number(training: Graph) -> None:
    plain = GraphSchedule(training)
    assert refusal(lambda: plain.parallel_do(x=0, devices=["cpu:0"])) == (  # type: ignore[arg-type]
        "parallel_do(x=0, devices=['cpu:0']): expected a number of devices of at least 1, got "
        "['cpu:0']"
    )
    assert refusal(lambda: plain.parallel_do(x=0.5, devices=2)) == (  # type: ignore[arg-type]
        "parallel_do(x=0.5, devices=2): expected the axis along which x is split, 0 for its "
        "first, got 0.5"
    )
    assert refusal(lambda: plain.parallel_do(3, devices=2)) == (  # type: ignore[arg-type]
        'parallel_do: expected the name of a declared size, as in parallel_do("B", devices=2), or '
        "arguments and axes, as in parallel_do(x=0, devices=2); 3 came"
    )


def test_what_is_not_supported_yet_is_refused(training: Graph) -> None:
    with pytest.raises(UnsupportedError) as error:
        GraphSchedule(training).recompute(budget="64MiB")
    assert str(error.value) == (
        "recompute(budget=64MiB): choosing nodes by a memory budget is not supported by this "
        'version; name the nodes, as in recompute("relu[0]")'
    )
    with pytest.raises(AttributeError) as missing:
        GraphSchedule(training).pipeline(2)
    assert str(missing.value) == (
        "a graph schedule has no pipeline; its primitives are fuse, kernel, parallel_do, place, "
        "recompute"
    )


def test_place_errors(net: Graph) -> None:
    plain = GraphSchedule(net)
    assert refusal(lambda: plain.place("relu[0]", "gpu")) == (
        "place(relu[0], gpu): no device is called gpu; expected cpu or cpu:n, a group of threads"
    )
    split = plain.parallel_do(x=0, devices=2)
    assert refusal(lambda: split.place("relu[0]", "cpu:1")) == (
        "place(relu[0], cpu:1): the program is split by parallel_do(x=0, devices=2), whose "
        "replicas have a device each; use one of the two"
    )


def test_parallel_do_errors(net: Graph) -> None:
    plain = GraphSchedule(net)
    assert refusal(lambda: plain.parallel_do(x=0, devices=3)) == (
        "parallel_do(x=0, devices=3): axis 0 of x has extent 8, which 3 devices do not divide; "
        "give a multiple of 3 (drop or pad the rest)"
    )
    assert refusal(lambda: plain.parallel_do(x=2, devices=2)) == (
        "parallel_do(x=2, devices=2): x is f32[8,6] and has no axis 2"
    )
    assert refusal(lambda: plain.parallel_do(z=0, devices=2)) == (
        "parallel_do(z=0, devices=2): forward has no argument z; it has params, x"
    )
    assert refusal(lambda: plain.parallel_do("Q", devices=2)) == (
        "parallel_do(Q, devices=2): no argument of forward declares a size Q (declared: B, D); "
        'annotate one, x: f32["Q", ...], or give an axis'
    )
    assert refusal(lambda: plain.parallel_do(devices=2)) == (
        "parallel_do(devices=2): nothing is split; say which argument along which axis (x=0), or "
        "name a declared size"
    )
    assert refusal(lambda: plain.parallel_do(x=0, devices=0)) == (
        "parallel_do(x=0, devices=0): expected a number of devices of at least 1, got 0"
    )
    assert refusal(lambda: plain.parallel_do(x=0, devices=2).parallel_do(x=1, devices=2)) == (
        "parallel_do(x=1, devices=2): the program is split already by parallel_do(x=0, devices=2)"
    )


def test_kernel_errors(net: Graph) -> None:
    plain = GraphSchedule(net)
    assert refusal(lambda: plain.kernel("dense[1]", '.split("q", 2)')).startswith(
        "kernel(dense[1]): split(q, 2): "
    )

    def plain_program(x: Any) -> Any:
        return x

    program = GraphSchedule(Program(plain_program))
    assert refusal(lambda: program.kernel("dense", lambda kernel: kernel)) == (
        "kernel(dense): the types of plain_program are not known yet; call it once, or give the "
        "text of a loop schedule"
    )


def test_replay_errors(net: Graph) -> None:
    plain = GraphSchedule(net)
    assert refusal(lambda: plain.replay('.pipeline("a")')) == (
        "there is no graph primitive pipeline; this version has fuse, kernel, parallel_do, place, "
        "recompute"
    )
    assert refusal(lambda: plain.replay(".place(1, 2, 3)")) == (
        "place: takes 3 positional arguments but 4 were given"
    )
    with pytest.raises(ScheduleError):
        plain.replay(".fuse(")


GOOD = "# diptych graph schedule, format 1\n# program: forward\n{}\n# end\n"


def damaged(net: Graph, tmp_path: Path, text: str, kind: type[Exception] = FileFormatError) -> str:
    file = tmp_path / "a.sched"
    file.write_text(text)
    with pytest.raises(kind) as error:
        GraphSchedule.load(net, file)
    return str(error.value).replace(f"{file}", "a.sched")


def test_file_errors(net: Graph, tmp_path: Path) -> None:
    good = GOOD.format("fuse()")
    assert damaged(net, tmp_path, "fuse()\n") == (
        "a.sched: not a schedule file of a program: its first line is not '# diptych graph "
        "schedule, format 1'"
    )
    assert damaged(net, tmp_path, good.replace("format 1", "format 9")) == (
        "a.sched: written in format 9; this version reads format 1; a newer Diptych reads it"
    )
    assert damaged(net, tmp_path, good.replace("# end\n", "")) == (
        "a.sched: cut off: its last line is not '# end'"
    )
    assert damaged(net, tmp_path, good.replace("# program: forward\n", "")) == (
        "a.sched: damaged: its header has no line '# program: ...'"
    )
    assert damaged(net, tmp_path, good.replace("forward", "step")) == (
        "a.sched: made for the program step, not for forward"
    )
    assert damaged(net, tmp_path, GOOD.format("fuse(")).startswith("a.sched:3: not the text of a")
    assert damaged(net, tmp_path, GOOD.format('recompute("tanh")'), GraphError) == (
        "a.sched:3: recompute(tanh): no node is called tanh; there are dense[0], relu[0], "
        "dense[1], softmax[0]"
    )
    unknown = GOOD.format('# kernel: tanh[0]\nsplit("i", 2)')
    assert damaged(net, tmp_path, unknown, GraphError) == (
        "a.sched:3: kernel(tanh[0]): no node is called tanh[0]; there are dense[0]+relu[0], "
        "dense[1], softmax[0]"
    )
    (tmp_path / "a.sched").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(FileFormatError) as error:
        GraphSchedule.load(net, tmp_path / "a.sched")
    assert str(error.value).endswith("a.sched: not a schedule file: it is not text")
