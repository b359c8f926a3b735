"""Which kernels of a recording Triton has made, if their names do not show it: read from this process and the trace.

Triton's hooks on launches would say so too, but while one is in place Inductor compiles other launchers.
"""

from __future__ import annotations

import re
import sys
from functools import cache
from mmap import ACCESS_READ, mmap
from typing import TYPE_CHECKING, Final

from pytest_torchprof.capture.living_objects import living_holders
from pytest_torchprof.kernels.names import decode
from pytest_torchprof.kernels.operands import is_plain_name

if TYPE_CHECKING:
    from pathlib import Path

_KERNEL: Final = re.compile(rb'"cat": "kernel",\s*"name": "([^"\\]+)"')
# Inductor marks the ranges of its launches; those of hand-written kernels have a number after the kernel's name.
_RANGE: Final = re.compile(rb'"cat": "cpu_op",\s*"name": "([^"\\]+)",[^{}]*\{[^{}]*"kernel_backend": "triton"')
_COMPILER: Final = "triton.compiler.compiler"
_NUMBER: Final = re.compile(r"_\d+$")


def triton_kernels(recording: Path) -> tuple[str, ...]:
    """Return the names of an exported recording's Triton kernels, except those whose names say so."""
    if _COMPILER not in sys.modules:
        return ()
    with recording.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as text:
        names = {match[1].decode(errors="replace") for match in _KERNEL.finditer(text)}
        open_names = frozenset(name for name in names if is_plain_name(name) and decode(name).triton is None)
        if not open_names:
            return ()
        ranges = {match[1].decode(errors="replace") for match in _RANGE.finditer(text)}
    ranged = open_names & {_NUMBER.sub("", name) for name in ranges}
    return tuple(sorted(ranged | _compiled_here(open_names - ranged)))


@cache
def _compiled_here(names: frozenset[str]) -> frozenset[str]:
    """Return those of the names that belong to kernels that Triton compiled in this process; they stay after a run."""
    kind = getattr(sys.modules[_COMPILER], "CompiledKernel", None)
    if kind is None or not names:
        return frozenset()
    return names & {getattr(kernel, "name", None) for kernel in living_holders(kind, kind)}
