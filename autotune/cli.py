"""The commands `autotune` and `diptych`.

    autotune FILE.py:OP -s M=512 -s N=512 -s K=512 --time 30 -o matmul.sched
    autotune "C[i,j] = sum(A[i,k]*B[k,j])" -i "A=f32[512,512]" -i "B=f32[512,512]" -o mm.sched
    autotune FILE.py:PROGRAM --inputs FILE.py:FUNCTION --both -o step.sched
    diptych explain FILE.py:OP -s M=512 -s N=512 -s K=512
    diptych show|verify FILE ; diptych doctor

Exit codes: 0 done, 1 a failure, 2 a mistake in the command line or a file, 130 interrupted (the
best so far is on disk).
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from ..algo import debug
from ..algo.errors import Error, InternalError, OpError
from ..algo.tensor_expr.op import Op
from ..sched.loop.text import short
from .doctor import doctor, versions
from .operands import explained, named, op_types
from .tasks import split_target


def autotune(argv: list[str] | None = None) -> int:
    """The `autotune` command."""
    args = _parser().parse_args(argv)
    before = _written(args.output)
    try:
        return _reporting("autotune", lambda: _tune(args))
    except KeyboardInterrupt:
        measured = _written(args.output) != before
        said = f"the best so far is in {args.output}" if measured else "nothing was measured yet"
        print(f"autotune: interrupted; {said}", file=sys.stderr)
        return 130


def _written(path: str) -> int | None:
    """When a file was written, None where there is none."""
    try:
        return Path(path).stat().st_mtime_ns
    except OSError:
        return None


def _reporting(command: str, act: Callable[[], int]) -> int:
    """The exit code of `act`; what it raises as a message. A bug of ours keeps its traceback where
    the debug level is 1 or more."""
    try:
        return act()
    except InternalError as error:
        code, message = 1, str(error)
    except Error as error:
        code, message = 2, str(error)
    except MemoryError as error:
        code, message = 2, f"{error or 'out of memory'}; give smaller sizes"
    except OSError as error:
        code, message = 2, f"{error.filename or 'the system'}: {error.strerror or error}"
    except Exception as error:
        if debug.level():
            raise
        kind = type(error).__name__
        code, message = 1, f"{kind}: {error} (a bug; DIPTYCH_DEBUG=1 shows where)"
    print(f"{command}: {message}", file=sys.stderr)
    return code


class _Parser(argparse.ArgumentParser):
    """Mistakes are one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message} ({self.prog} --help tells more)\n")


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text} came; expected a number of seconds above 0")
    return value


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} came; expected an integer of at least 1")
    return int(text)


def _writable(text: str) -> Path:
    """A path at which a file can be written, tried before the search begins."""
    path = Path(text)
    if path.is_dir():
        raise argparse.ArgumentTypeError(f"{text} is a folder; expected the name of a file")
    try:
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}."):
            pass
    except OSError as error:
        raise argparse.ArgumentTypeError(
            f"{text} cannot be written: {path.parent}: {error.strerror}"
        ) from None
    return path


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="autotune", description="Searches schedules and writes the best one to a file."
    )
    parser.add_argument("target", help="file.py:name, or an operator's text")
    _sized(parser)
    parser.add_argument("--inputs", metavar="file.py:function", help="example inputs of a program")
    parser.add_argument("--both", action="store_true", help="graph and loop schedules together")
    parser.add_argument("-o", "--output", required=True, type=_writable, metavar="FILE")
    parser.add_argument("--time", type=_seconds, default=60.0, metavar="SECONDS")
    parser.add_argument("--trials", type=_count, default=None, help="stop after so many candidates")
    parser.add_argument("--threads", type=_count, default=None)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--records", type=_writable, metavar="FILE", help="keep measurements here, and resume"
    )
    return parser


def _sized(parser: argparse.ArgumentParser) -> None:
    """The options that give an operator its sizes and types."""
    parser.add_argument("-s", "--size", action="append", default=[], metavar="M=1024")
    parser.add_argument("-i", "--input", action="append", default=[], metavar="A=f32[64,64]")


def _tune(args: argparse.Namespace) -> int:
    from ..algo.graph.program import Program
    from .tune import tune_op, tune_program

    found = named(args.target)
    settings: dict[str, Any] = {
        "output": args.output, "seconds": args.time, "trials": args.trials,
        "threads": args.threads, "seed": args.seed,
        "records": args.records,
    }  # fmt: skip
    if isinstance(found, Op):
        if args.both:
            raise OpError(f"{args.target} is an operator: --both is for programs")
        found, found_types = op_types(found, args.size, args.input)
        result = tune_op(found, found_types, **settings)
    elif isinstance(found, Program):
        if args.inputs is None:
            raise OpError("a program needs --inputs file.py:function, which returns its arguments")
        inputs = split_target(args.inputs)
        result = tune_program(split_target(args.target), inputs, loops=args.both, **settings)
    else:
        raise OpError(f"{args.target} is a {type(found).__name__}, not an operator or a program")
    gain = result.default_seconds / result.seconds
    print(
        f"{args.output}: {result.seconds * 1e3:.3f} ms, {gain:.2f} x the default schedule "
        f"when measured again, after {result.trials} trials ({dropped(result.failures)})"
    )
    return 0


def dropped(failures: list[str]) -> str:
    """How many candidates were dropped, and why the first of them."""
    why = f", the first because: {short(failures[0], 120)}" if failures else ""
    return f"{len(failures)} dropped{why}"


def diptych(argv: list[str] | None = None) -> int:
    """The `diptych` command: show, explain, verify, doctor."""
    parser = _Parser(prog="diptych", description="Schedule files and the system.")
    parser.add_argument("--version", action=_Version, nargs=0, help="versions, as doctor says them")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("show", help="print a schedule file").add_argument("file")
    checking = commands.add_parser("verify", help="check that a schedule file applies")
    checking.add_argument("file")
    checking.add_argument(
        "target", nargs="?", help="file.py:name of the operator or program that it is for"
    )
    checking.add_argument("--inputs", metavar="file.py:function", help="arguments of the program")
    explaining = commands.add_parser("explain", help="why a default schedule is what it is")
    explaining.add_argument("target", help="file.py:name, or an operator's text")
    _sized(explaining)
    explaining.add_argument("--threads", type=_count, default=None)
    commands.add_parser("doctor", help="versions, devices and settings")
    args = parser.parse_args(argv)
    return _reporting("diptych", lambda: _say(_command(args)))


def _say(text: str) -> int:
    """Prints an answer, to a reader who may, as head does, see enough of it and go."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # flushed again at the end
    return 0


class _Version(argparse.Action):
    """Prints the versions and exits. They are looked up only then."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        print("\n".join(versions()))
        parser.exit()


def _command(args: argparse.Namespace) -> str:
    from .files import show, verify

    if args.command == "doctor":
        return doctor()
    if args.command == "explain":
        return explained(args.target, args.size, args.input, args.threads)
    path = Path(args.file)
    return show(path) if args.command == "show" else verify(path, args.target, args.inputs)
