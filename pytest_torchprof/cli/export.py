"""``torchprof export FILE``: a recording for other tools."""

from __future__ import annotations

import gzip
import os
import sys
from typing import TYPE_CHECKING, Final

from pytest_torchprof.analysis.stacks import StackKind, stack_kinds, stacks_of
from pytest_torchprof.cli import UsageError, add_device
from pytest_torchprof.profiles import load_file
from pytest_torchprof.reasons.errors import TorchprofError
from pytest_torchprof.report import flamegraphs
from pytest_torchprof.report.flamegraphs import WEIGHTS
from pytest_torchprof.text import counted

if TYPE_CHECKING:
    from argparse import Namespace

    from pytest_torchprof.analysis.stacks import StackTree
    from pytest_torchprof.cli import Parser

_EPILOG: Final = """\
examples:
  torchprof export trace.json.gz --collapsed -o stacks.txt
  torchprof export trace.json.gz --speedscope --by module -o trace.json

exit status: 0, or 2 if a file cannot be read or written or the usage is bad"""
_LANES, _COLLAPSED, _SPEEDSCOPE = "--lanes", "--collapsed", "--speedscope"
_FORMS: Final = {
    _LANES: "a trace for Perfetto, in which kernels that overlap have lanes of their own; Perfetto leaves them out "
    "otherwise",
    _COLLAPSED: "folded stacks, a line each, with their own time in ns over all steps (flamegraph.pl, inferno)",
    _SPEEDSCOPE: "a file for https://www.speedscope.app",
}
_WITHOUT: Final = {_LANES: ("--by", "--weight", "--device"), _COLLAPSED: (), _SPEEDSCOPE: ("--weight",)}
"""The options that have no meaning for a form."""


def add_arguments(parser: Parser) -> None:
    """Declare the command's arguments."""
    parser.epilog = _EPILOG
    parser.add_argument("path", metavar="FILE", help="the recording")
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="where to write, packed if the name ends in .gz (the screen)",
    )
    forms = parser.add_argument_group("what is written, one of").add_mutually_exclusive_group(required=True)
    for form, purpose in _FORMS.items():
        forms.add_argument(form, dest="form", action="store_const", const=form, help=purpose)
    drawn = parser.add_argument_group("what is drawn")
    drawn.add_argument(
        "--by",
        choices=list(StackKind),
        metavar="WHAT",
        help="what the frames are: module, stack (Python's) or operator; without it the first of these that is "
        "recorded. Operators and kernels are always the innermost ones",
    )
    drawn.add_argument(
        "--weight",
        choices=list(WEIGHTS),
        metavar="gpu|cpu",
        help="what makes a frame wide: gpu (where there is any GPU work), or cpu",
    )
    add_device(drawn)


def run(arguments: Namespace) -> int:
    """Run the command; return its exit status."""
    form, path, out = arguments.form, arguments.path, arguments.output
    given = {"--by": arguments.by, "--weight": arguments.weight, "--device": arguments.device}
    for option in _WITHOUT[form]:
        if given[option] is not None:
            from pytest_torchprof.reasons.command_line import OptionsExclude  # noqa: PLC0415 - only a mistake needs it

            raise UsageError.because(OptionsExclude(form, option))
    content, summary = _lanes(path) if form == _LANES else _stacks(arguments)
    if out is None:
        sys.stdout.write(content.decode())
        return 0
    _write(out, content)
    sys.stdout.write(f"{out}: {summary}\n")
    return 0


def _lanes(path: str) -> tuple[bytes, str]:
    from pytest_torchprof.report.perfetto import with_lanes  # noqa: PLC0415 - flame graphs do not need it

    drawn = with_lanes(path)
    return drawn.content, drawn.summary


def _stacks(arguments: Namespace) -> tuple[bytes, str]:
    path = arguments.path
    profile = load_file(path, device=arguments.device)
    recorded = stack_kinds(profile.trace)
    by = arguments.by or recorded[0].value
    if by not in recorded:
        from pytest_torchprof.reasons.files_asked import StacksNotRecorded  # noqa: PLC0415 - only a mistake needs it

        raise UsageError.because(StacksNotRecorded(by, tuple(kind.value for kind in recorded)))
    tree = stacks_of(profile, StackKind(by))
    summary = f"{counted(len(tree.names), 'frame')} by {by}"
    if arguments.form == _SPEEDSCOPE:
        return flamegraphs.speedscope(tree, os.path.basename(path)).encode(), summary  # noqa: PTH119 - see recording
    weight = _weight(arguments.weight, tree)
    return flamegraphs.collapsed(tree, weight).encode(), f"{summary}, {WEIGHTS[weight]}"


def _weight(asked: str | None, tree: StackTree) -> str:
    weight = asked or ("gpu" if any(tree.gpu_ns) else "cpu")
    if weight == "gpu" and not any(tree.gpu_ns):
        from pytest_torchprof.reasons.files_asked import NoGpuWorkToDraw  # noqa: PLC0415 - only a mistake needs it

        raise TorchprofError.because(NoGpuWorkToDraw())
    return weight


def _write(path: str, content: bytes) -> None:
    packed = gzip.compress(content, 6, mtime=0) if path.endswith(".gz") else content
    try:
        with open(path, "wb") as file:  # noqa: PTH123 - see recording
            file.write(packed)
    except OSError as error:
        from pytest_torchprof.reasons.reports import FileNotWritten  # noqa: PLC0415 - only a failure needs it

        raise TorchprofError.because(FileNotWritten.of(path, error)) from None
