"""``torchprof export FILE``: a recording for other tools."""

from __future__ import annotations

import gzip
import os
import sys
from typing import TYPE_CHECKING

from pytest_torchprof.analysis.stacks import StackKind, stack_kinds, stacks_of
from pytest_torchprof.cli import DEVICE_OPTION, UsageError, parse
from pytest_torchprof.codes import Code
from pytest_torchprof.errors import TorchprofError
from pytest_torchprof.profiles import load_file
from pytest_torchprof.report import flamegraphs
from pytest_torchprof.report.flamegraphs import WEIGHTS
from pytest_torchprof.text import counted, enumerated

if TYPE_CHECKING:
    from pytest_torchprof.analysis.stacks import StackTree
    from pytest_torchprof.cli import Arguments

USAGE = """usage: torchprof export FILE --lanes [-o OUT]
       torchprof export FILE --collapsed [--by WHAT] [--weight gpu|cpu] [-o OUT] [--device cpu|cuda]
       torchprof export FILE --speedscope [--by WHAT] [-o OUT] [--device cpu|cuda]

Writes a recording for other tools.

  --lanes         a trace for Perfetto, in which kernels that overlap have lanes of their own; Perfetto leaves
                  them out otherwise
  --collapsed     folded stacks, a line each, with their own time in ns over all steps (flamegraph.pl, inferno)
  --speedscope    a file for https://www.speedscope.app
  --by WHAT       what the frames are: module, stack (Python's) or operator; without it the first of these that is
                  recorded. Operators and kernels are always the innermost ones
  --weight gpu    what makes a frame wide: gpu (where there is any GPU work), or cpu
  -o OUT          where to write; packed if the name ends in .gz. Without it: on the screen
  --device D      as for torchprof analyze

exit status: 0, or 2 if a file cannot be read or written or the usage is bad
"""
_FORMATS = ("--lanes", "--collapsed", "--speedscope")
_KINDS = ", ".join(StackKind)
_OPTIONS = {"-o": "a file", "--by": f"one of {_KINDS}", "--weight": "gpu or cpu", **DEVICE_OPTION}


def run(words: list[str]) -> int:
    """Run the command; return its exit status."""
    arguments = parse(words, flags=_FORMATS, options=_OPTIONS)
    if len(arguments.files) != 1:
        raise UsageError(f"expected one recording, got {len(arguments.files)}")
    if len(arguments.flags) != 1:
        raise UsageError(f"expected one of {enumerated(_FORMATS)}")
    (chosen,), (path,), out = arguments.flags, arguments.files, arguments.last("-o")
    meant = {"--lanes": (), "--speedscope": ("--by", "--device")}.get(chosen, ("--by", "--weight", "--device"))
    for option in set(_OPTIONS) - {"-o", *meant}:
        if arguments.options[option]:
            raise UsageError(f"{chosen} does not go with {option}")
    content, said = _lanes(path) if chosen == "--lanes" else _stacks(path, chosen, arguments)
    if out is None:
        sys.stdout.write(content.decode())
        return 0
    _write(out, content)
    sys.stdout.write(f"{out}: {said}\n")
    return 0


def _lanes(path: str) -> tuple[bytes, str]:
    from pytest_torchprof.report.perfetto import with_lanes  # noqa: PLC0415 - flame graphs need none of it

    found = with_lanes(path)
    return found.content, found.summary


def _stacks(path: str, chosen: str, arguments: Arguments) -> tuple[bytes, str]:
    profile = load_file(path, device=arguments.last("--device"))
    recorded = stack_kinds(profile.trace)
    by = arguments.last("--by") or recorded[0].value
    if by not in recorded:
        said = "that is not in the recording" if by in set(StackKind) else "there is no such thing"
        raise UsageError(f"--by {by}: {said}; expected {enumerated([kind.value for kind in recorded])}")
    tree = stacks_of(profile, StackKind(by))
    said = f"{counted(len(tree.names), 'frame')} by {by}"
    if chosen == "--speedscope":
        return flamegraphs.speedscope(tree, os.path.basename(path)).encode(), said  # noqa: PTH119 - see recording
    weight = _weight(arguments, tree)
    return flamegraphs.collapsed(tree, weight).encode(), f"{said}, {WEIGHTS[weight]}"


def _weight(arguments: Arguments, tree: StackTree) -> str:
    weight = arguments.last("--weight") or ("gpu" if any(tree.gpu_ns) else "cpu")
    if weight not in WEIGHTS:
        raise UsageError(f"--weight takes {_OPTIONS['--weight']}; got {weight!r}")
    if weight == "gpu" and not any(tree.gpu_ns):
        raise TorchprofError("--weight gpu: nothing in the steps ran on a GPU; use --weight cpu", Code.NOT_IN_RECORDING)
    return weight


def _write(path: str, content: bytes) -> None:
    packed = gzip.compress(content, 6, mtime=0) if path.endswith(".gz") else content
    try:
        with open(path, "wb") as file:  # noqa: PTH123 - see recording
            file.write(packed)
    except OSError as error:
        raise TorchprofError(f"{path} cannot be written: {error.strerror}.", Code.REPORT_NOT_WRITTEN) from None
