"""Which GPUs a process sees: a worker of pytest-xdist one of its own, where that is asked for, a job all of them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

from pytest_torchprof import capture

if TYPE_CHECKING:
    from collections.abc import Iterable

_VISIBLE: Final = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")
"""Variables that say which GPUs a process sees: of any vendor's, and of ROCm's alone."""
_OF_RUN: Final = "TORCHPROF_GPUS"
"""Tells a worker what the variable was in the process that started it, where it has a GPU of its own."""


def give_each_its_own(specs: Iterable[Any]) -> None:
    """Let each worker to be started on this host see one GPU, in turn, from the moment that it starts.

    ``specs`` are what pytest-xdist starts workers by. Without a GPU nothing is changed.
    """
    variable, seen = _seen()
    for number, spec in enumerate(spec for spec in specs if spec.popen):
        if seen:
            spec.env |= {variable: seen[number % len(seen)], _OF_RUN: ",".join(seen)}


def count_of_run() -> int:
    """Return how many GPUs the run sees, all of its workers together."""
    listed = os.environ.get(_OF_RUN)
    return len(listed.split(",")) if listed else capture.count_gpus()


def seeing_all() -> dict[str, str]:
    """Return the variables with which a process that a worker starts sees all GPUs of the run."""
    listed = os.environ.get(_OF_RUN)
    return {_seen_by(): listed} if listed else {}


def _seen_by() -> str:
    return next((name for name in reversed(_VISIBLE) if name in os.environ), _VISIBLE[0])


def _seen() -> tuple[str, list[str]]:
    """Return the variable and the GPUs in it that there are: by number or UUID, as the user has written them."""
    variable = _seen_by()
    named = [name.strip() for name in os.environ.get(variable, "").split(",") if name.strip()]
    if any(name.startswith("MIG-") for name in named):
        return variable, named  # A process sees one part of a GPU at most, so torch counts one.
    count = capture.count_gpus()
    return variable, (named or [str(number) for number in range(count)])[:count]
