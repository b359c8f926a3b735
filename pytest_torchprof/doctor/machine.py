"""What several checks want to know of this machine, found out once."""

from __future__ import annotations

import warnings
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any

from pytest_torchprof.doctor import gpu
from pytest_torchprof.doctor.answer import first_line
from pytest_torchprof.doctor.child import ChildFailed, ask

if TYPE_CHECKING:
    from collections.abc import Mapping


class Machine:
    """This process's torch, and the GPU as a process of its own finds it."""

    profiler_fails: str | None = None
    """Why nothing more can be measured on the GPU, once a check has found that out."""

    @cached_property
    def no_torch(self) -> str | None:
        """Why torch cannot be imported, None where it can."""
        try:
            with warnings.catch_warnings():
                # Without NumPy, which nothing here needs, torch warns at its import.
                warnings.simplefilter("ignore")
                import_module("torch")
        except Exception as problem:  # noqa: BLE001 - a library that is missing or of a wrong kind raises many things
            return first_line(problem)
        return None

    @cached_property
    def gpu(self) -> Mapping[str, Any]:
        """What `gpu.work` tells; only "problem" where it cannot."""
        try:
            return ask(gpu.work).facts
        except ChildFailed as failed:
            return {"problem": str(failed)}

    @property
    def gpu_works(self) -> bool:
        """Whether there is a GPU that torch can compute on."""
        return self.no_torch is None and "name" in self.gpu

    @property
    def has_none(self) -> bool:
        """Whether there is no GPU, and nobody would expect one."""
        return self.no_torch is None and not self.gpu.get("surprising", True)
