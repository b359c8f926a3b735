"""Which GPUs a process sees: a worker of pytest-xdist one of its own, if that is asked for; a job all of them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

from pytest_torchprof import capture

if TYPE_CHECKING:
    from collections.abc import Iterable

_VISIBLE: Final = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")
"""Variables that say which GPUs a process sees: those of any vendor, and ROCm's alone."""
_OF_RUN: Final = "TORCHPROF_GPUS"
"""The variable that tells a worker with a GPU of its own which ones the process that started it sees."""


def give_each_its_own(specs: Iterable[Any]) -> None:
    """Let each worker to be started on this host see one GPU, in turn, from the moment that it starts.

    ``specs`` are what pytest-xdist starts workers by. Without a GPU nothing is changed.
    """
    variable, seen = _visible_gpus()
    for number, spec in enumerate(spec for spec in specs if spec.popen):
        if seen:
            spec.env |= {variable: seen[number % len(seen)], _OF_RUN: ",".join(seen)}


def count_of_run() -> int:
    """Return how many GPUs the run sees, all of its workers together."""
    listed = os.environ.get(_OF_RUN)
    return len(listed.split(",")) if listed else capture.count_gpus()


def seeing_all() -> dict[str, str]:
    """Return the environment variables that let a process started by a worker see all GPUs of the run."""
    listed = os.environ.get(_OF_RUN)
    return {_visible_variable(): listed} if listed else {}


def _visible_variable() -> str:
    return next((name for name in reversed(_VISIBLE) if name in os.environ), _VISIBLE[0])


def _visible_gpus() -> tuple[str, list[str]]:
    """Return the variable, and those GPUs in it that exist: by number or UUID, as the user has written them."""
    variable = _visible_variable()
    named = [name.strip() for name in os.environ.get(variable, "").split(",") if name.strip()]
    if any(name.startswith("MIG-") for name in named):
        return variable, named  # A process sees one part of a GPU at most, so torch counts one.
    count = capture.count_gpus()
    return variable, (named or [str(number) for number in range(count)])[:count]
