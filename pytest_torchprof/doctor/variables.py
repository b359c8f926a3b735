"""Variables of the environment that change what is measured, and where that is wrong."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from pytest_torchprof.doctor.answer import OK, WRONG, Answer, public
from pytest_torchprof.text.escape import printable_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_torchprof.doctor.machine import Machine

_LONGEST = 120
_WAITING = "every launch waits for its kernel: times and ratios are not measured, counts are"
_ATTACHED = "another profiling tool is attached, and CUPTI serves one"
_RUN_WITHOUT = "run the tests without it, or with --torchprof=off"

# Name, what it does, what to do where that is wrong on a machine with a GPU ("": it is not).
_KNOWN: tuple[tuple[str, str, str], ...] = (
    (r"(CUDA|HIP|ROCR)_VISIBLE_DEVICES", "chooses the GPUs that torch sees", ""),
    (r"NSYS_PROFILING_SESSION_ID", _ATTACHED, _RUN_WITHOUT),
    (r"CUDA_INJECTION(64|32)_PATH", "loads a profiling tool into each process", _RUN_WITHOUT),
    (r"NSYS_\w+", "a setting of nsys", ""),
    (r"CUDA_LAUNCH_BLOCKING|HIP_LAUNCH_BLOCKING|AMD_SERIALIZE_KERNEL", _WAITING, "unset it"),
    (r"TEARDOWN_CUPTI", "1 shuts CUPTI down after each session: graphs and first records may suffer", ""),
    (r"DISABLE_CUPTI_LAZY_REINIT|CUPTI_\w+", "a setting of CUPTI", ""),
    (r"KINETO_CONFIG", "kineto takes settings from this file, its activities and buffers too", ""),
    (r"KINETO_USE_DAEMON", "a daemon may start profilers in this process", ""),
    (r"KINETO_\w+", "a setting of kineto", ""),
    (r"PYTORCH_NO_(CUDA|HIP)_MEMORY_CACHING", "peak memory is not measured without the cache", "unset it"),
    (r"PYTORCH_\w*ALLOC\w*", "settings of torch's allocator", ""),
    (r"LD_LIBRARY_PATH", "folders searched for libraries first", ""),
    (r"LD_PRELOAD", "libraries put before all others", ""),
)
_OFF = ("", "0")
# 0 means none of these is in force.
_SWITCHES = re.compile(r"\w+_LAUNCH_BLOCKING|AMD_SERIALIZE_KERNEL|PYTORCH_NO_\w+_MEMORY_CACHING")


def of_variables(machine: Machine) -> Iterator[Answer]:
    """Say of each variable that is set what it does."""
    there = machine.no_torch is None and machine.gpu_works
    found = [one for name, value in sorted(os.environ.items()) if (one := _of(name, value, gpu=there))]
    yield from found or [Answer("environment", OK, "no variable is set that changes what is measured")]


def _of(name: str, value: str, *, gpu: bool) -> Answer | None:
    meaning = next(((what, do) for pattern, what, do in _KNOWN if re.fullmatch(pattern, name)), None)
    if meaning is None or (_SWITCHES.fullmatch(name) and value in _OFF):
        return None
    what, do = meaning
    text = f"{name}={printable_line(public(value), _LONGEST)}: {what}"
    return (
        Answer("environment", WRONG, text, do.replace("unset it", f"unset {name}"))
        if do and gpu
        else Answer("environment", OK, text)
    )
