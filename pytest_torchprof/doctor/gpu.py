"""Whether there is a GPU, whether torch can compute on it, and what it is."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from pytest_torchprof.doctor.answer import OK, WRONG, Answer
from pytest_torchprof.text.plural import counted
from pytest_torchprof.text.units import show_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_torchprof.doctor.machine import Machine

_FIRST = "nothing can be measured on a GPU until this is put right"


def of_gpu(machine: Machine) -> Iterator[Answer]:
    """Say which GPU is measured, or why none is."""
    found = machine.gpu
    if "name" in found:
        what = f"{found['name']} ({found['kind']}, {show_bytes(found['memory'])})"
        which = f"{found['device']} of {counted(found['count'], 'GPU')}"
        text = f"{what}, {which}" + (f", driver for CUDA {found['driver']}" if found["driver"] else "")
        yield Answer("GPU", OK, text)
        yield _allocator(found)
    elif "problem" in found:
        yield Answer("GPU", WRONG, found["problem"], _FIRST)
    elif found["surprising"]:
        yield Answer("GPU", WRONG, f"torch sees no GPU: {found['none']}", _FIRST)
    else:
        yield Answer("GPU", OK, f"no GPU ({found['none']}); the CPU is measured as the device")


def _allocator(found: Mapping[str, Any]) -> Answer:
    if os.environ.get("PYTORCH_NO_CUDA_MEMORY_CACHING", "0") not in ("", "0"):
        return Answer("allocator", OK, "torch's, without its cache: see environment")
    return Answer("allocator", OK, f"torch's, backend {found['allocator']}")
