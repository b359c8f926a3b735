"""What can be measured with the CPU as device, and whether Inductor can compile for it."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

from pytest_torchprof.doctor.answer import OK, WRONG, Answer, first_line
from pytest_torchprof.doctor.child import ChildFailed, ask
from pytest_torchprof.doctor.launches import measure
from pytest_torchprof.text import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_torchprof.doctor.machine import Machine

_OPERATORS = ("aten::mul", "aten::add")
_ONLY_OF_A_GPU = "only a GPU has launches, copies, waits and memory of its own"
_COMPILER = re.compile(r"C\+\+ compiler|cl is not found|\bg\+\+|\bclang", re.IGNORECASE)


def eager() -> dict[str, Any]:
    """Measure two operators with the CPU as device."""
    import torch

    x = torch.ones(8)
    return measure(lambda: x * 2 + 1, "cpu")


def compiled(cache: str) -> dict[str, Any]:
    """Compile a function for the CPU, nothing of it from a cache, and run it."""
    # Read when Inductor is imported.
    os.environ.update(TORCHINDUCTOR_CACHE_DIR=cache, TORCHINDUCTOR_FORCE_DISABLE_CACHES="1")
    import torch

    x = torch.ones(8)
    found = torch.compile(lambda a: a * 2 + 1)(x)
    return {"right": bool((found == 3).all())}


def of_cpu(_: Machine) -> Iterator[Answer]:
    """Say what the CPU as device shows of two operators."""
    try:
        told = ask(eager).facts
    except ChildFailed as failed:
        yield Answer("CPU as device", WRONG, str(failed), "no GPU is asked for it: this line belongs into a bug report")
        return
    if told["why"] is not None:
        yield Answer("CPU as device", WRONG, f"not measured: {told['why']}", "see kineto")
        return
    names = ", ".join(told["names"])
    seen = counted(told["kernels"][0], "kernel")
    text = f"{seen} seen of {len(_OPERATORS)} operators ({names}); {_ONLY_OF_A_GPU}"
    if tuple(told["names"]) == _OPERATORS:
        yield Answer("CPU as device", OK, text)
    else:
        yield Answer(
            "CPU as device", WRONG, text, "kernels on the CPU are not counted right with this torch: report it"
        )


def of_compiler(_: Machine) -> Iterator[Answer]:
    """Say whether torch.compile works for the CPU."""
    from tempfile import TemporaryDirectory

    check = "torch.compile"
    with TemporaryDirectory(prefix="torchprof-doctor-") as cache:
        try:
            told = ask(compiled, cache).facts
        except ChildFailed as failed:
            missing = _COMPILER.search(str(failed))
            do = (
                "tests that compile for the CPU need a C++ compiler: install g++ or clang++, or set CXX"
                if missing
                else "tests that compile for the CPU fail here: try it by itself, torch.compile(lambda a: a * 2 + 1)"
            )
            yield Answer(check, WRONG, f"Inductor compiles nothing for the CPU: {first_line(failed)}", do)
            return
    if told["right"]:
        yield Answer(check, OK, "Inductor compiles for the CPU")
    else:
        yield Answer(
            check, WRONG, "what Inductor compiled for the CPU computes wrong numbers", "check the C++ compiler"
        )
