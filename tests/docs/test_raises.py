"""Every place of the package that raises a user's error is reached by a case of the page.

Which places a case reaches is read from the traceback of its error and of those it arose from.
"""

from __future__ import annotations

import ast
import builtins
import runpy
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import diptych

ROOT = Path(diptych.__file__).parent
MAKE = runpy.run_path(str(ROOT / "docs" / "errors.py"))
LAYERS = ("algo", "autodiff", "sched", "lower", "codegen", "autotune")
INNER = {"InternalError", "Race", "Exhausted", "Unwritten", "Refused", "Misfit", "_fail"}
"""Raised for us: a bug of ours, or caught by the package itself. Python's own are left out too."""

ELSEWHERE: dict[str, str] = {
    # What a machine or a driver must have.
    "codegen/cuda.py ": "needs a GPU or a driver; asserted in tests/gpu/test_cuda.py",
    "codegen/gpu_limits.py target_for": "needs an old GPU; asserted in tests/gpu/test_cuda.py",
    "codegen/ptxas.py ": "needs a machine without ptxas, or an old one",
    "codegen/symbols.py ": "needs another kind of object; tests/codegen/test_symbols.py",
    "codegen/nvptx.py _ptx": "LLVM's own refusal; asserted in tests/gpu/test_nvptx.py",
    "codegen/emit_update.py _into": "memory that is not aligned; tests/codegen/test_atomic.py",
    "codegen/thread_count.py ": "read once a process; asserted in tests/codegen/test_pool.py",
    "torch_tensors.py torch_module": "needs torch to be absent; tests/api/test_torch_absent.py",
    "torch_tensors.py array_of": "needs torch; asserted in tests/api/test_torch.py",
    "torch_tensors.py array_like": "needs torch; asserted in tests/api/test_torch.py",
    # The command line, whose errors are lines on stderr.
    "autotune/cli.py ": "the command line; asserted in tests/autotune/test_command.py",
    "autotune/operands.py ": "the command line; asserted in tests/autotune/test_command.py",
    "autotune/files.py ": "the command line; asserted in tests/autotune/test_files.py",
    "autotune/tasks.py ": "the command line; asserted in tests/autotune/test_command.py",
    # What only those meet who use a layer by itself.
    "lower/ir_parse.py ": "loop IR as text; asserted in tests/lower/test_ir.py",
    "lower/run.py ": "the executor of loop IR that tests use",
    "lower/plan_parse.py ": "plans as text; asserted in tests/plan/test_plan.py",
    "codegen/executor.py ": "an executor called by itself; programs check before",
    "codegen/kernels.py __init__": "a kernel compiled by itself",
    "codegen/kernels.py _check_inputs": "a kernel called by itself; tests/codegen/test_kernels.py",
    "codegen/replicas.py ": "raises what a replica raised",
    "algo/graph/build.py ": "calls of graphs by themselves; asserted in tests/graph/test_trace.py",
    "algo/graph/elementwise.py compare": "comparisons by themselves; tests/graph/test_trace.py",
    "algo/graph/tree.py ": "trees by themselves; asserted in tests/graph/test_tree.py",
    "algo/tensor_expr/defined.py ": "operators built as nodes; test_check_errors.py",
    "algo/tensor_expr/extents.py _declare": "operators built as nodes; test_check_errors.py",
    "algo/tensor_expr/check.py _shape": "operators built as nodes; test_check_errors.py",
    "algo/tensor_expr/check.py _check_free": "operators built as nodes; test_check_errors.py",
    "algo/tensor_expr/coverage.py check_writes: where ": "built as nodes; test_check_errors.py",
    "algo/tensor_expr/joint.py unified": "joint reductions built as drafts",
    "algo/tensor_expr/surface.py make_op": "operators built from drafts",
    "algo/tensor_expr/surface.py _returns": "operators built from drafts",
    "algo/tensor_expr/sizes.py _check_ranks": "shapes by name; test_check_errors.py",
    "algo/tensor_expr/types.py _inputs": "types by name; test_types.py",
    "algo/tensor_expr/points.py ": "a condition that is not affine; its callers ask before",
    "autodiff/check.py ": "a wrong derivative; asserted in tests/api/test_check_grads.py",
    "autodiff/graph.py _check: the seed": "tests/autodiff/test_program_gradients.py",
    # "Could not prove": whatever isl answers within its quota, these are reached by tests that
    # take it away, or by none.
    "algo/tensor_expr/bounds.py _blame: could not prove": "out of quota",
    "algo/tensor_expr/coverage.py check_writes: could not prove": "out of quota",
    "lower/kernel.py ": "isl's own limits; asserted in tests/lower/test_kernel.py",
    "sched/loop/flow.py _check_reader: : could not prove": "out of quota",
    "sched/loop/flow.py _check_end: : could not prove": "out of quota",
    "sched/loop/fold.py _check: : could not prove": "out of quota",
    "sched/loop/moments.py ": "out of quota",
    "sched/loop/regions.py ": "out of quota; asserted in tests/sched_loop/test_errors.py",
    "sched/loop/repeated.py _check: : could not prove": "out of quota",
    "sched/loop/witness.py ": "out of quota; asserted in tests/sched_loop/test_errors.py",
    # Passes that look once more at what primitives have checked.
    "lower/passes/axes.py ": "asserted in tests/gpu/test_axes.py",
    "lower/passes/barriers.py ": "asserted in tests/gpu/test_barriers.py",
    "lower/passes/private.py ": "asserted in tests/gpu/test_axes.py",
    "lower/passes/unroll.py ": "asserted in tests/lower/test_passes.py",
    "lower/storage.py ": "asserted in tests/lower/test_kernel.py",
    "algo/tensor_expr/boundary.py _total": "no short case is known",
    "algo/tensor_expr/tensors.py temporary": "no short case is known",
    "sched/graph/fuse.py legal: : the nodes do not make": "no short case is known",
    "sched/loop/factored.py check": "no short case is known",
    "sched/loop/flow.py _check_end: [": "no short case is known",
    "sched/loop/flow.py _check_tensor": "no short case is known",
    "sched/loop/fold.py _check: : which elements": "no short case is known",
    "sched/loop/lift.py _sizes": "no short case is known",
    "sched/loop/placing.py _valued": "no short case is known",
}
"""Places without a case, by how they begin, and why."""


@dataclass(frozen=True)
class Place:
    """A `raise` statement: its file, lines, function and the beginning of its text."""

    file: str
    lines: range
    function: str
    text: str

    def __str__(self) -> str:
        return f"{self.file} {self.function}: {self.text}"


def places() -> Iterator[Place]:
    """Every `raise` of a user's error in the package."""
    files = [*ROOT.glob("*.py"), *(file for d in LAYERS for file in (ROOT / d).rglob("*.py"))]
    for file in sorted(files):
        stack: list[tuple[ast.AST, str]] = [(ast.parse(file.read_text()), "")]
        while stack:
            node, function = stack.pop()
            if isinstance(node, ast.FunctionDef):
                function = node.name
            if isinstance(node, ast.Raise) and (raised := _users(node.exc)):
                lines = range(node.lineno, (node.end_lineno or node.lineno) + 1)
                yield Place(str(file.relative_to(ROOT)), lines, function, _beginning(raised))
            stack += [(child, function) for child in ast.iter_child_nodes(node)]


def _users(raised: ast.expr | None) -> ast.Call | None:
    """What is raised, unless it is an error raised once more, or no error of users."""
    if not isinstance(raised, ast.Call):
        return None
    name = ast.unparse(raised.func).rpartition(".")[2]
    return None if name in INNER or hasattr(builtins, name) else raised


def _beginning(raised: ast.Call) -> str:
    literals = (n.value for n in ast.walk(raised) if isinstance(n, ast.Constant))
    return next((text for text in literals if isinstance(text, str) and text.strip(" :")), "")


def reached() -> set[tuple[str, int]]:
    """The lines, by file, in which the errors of all cases were raised."""
    found = set()
    for case in MAKE["cases"]():
        seen: list[BaseException | None] = [case.error()]
        while seen:
            error = seen.pop()
            if error is None:
                continue
            seen += [error.__context__]
            at = error.__traceback__
            while at is not None:
                file = at.tb_frame.f_code.co_filename
                if file.startswith(str(ROOT)):
                    found.add((str(Path(file).relative_to(ROOT)), at.tb_lineno))
                at = at.tb_next
    return found


def test_every_error_is_on_the_page() -> None:
    lines = reached()
    without = [p for p in places() if not any((p.file, line) in lines for line in p.lines)]
    listed = [p for p in without if any(str(p).startswith(begin) for begin in ELSEWHERE)]
    missing = [f"{p.file}:{p.lines[0]} {p.function}: {p.text}" for p in without if p not in listed]
    assert not missing, "no case of docs/errors raises these:\n" + "\n".join(missing)
    for begin in ELSEWHERE:
        assert any(str(p).startswith(begin) for p in listed), f"{begin}: not needed in the list"
