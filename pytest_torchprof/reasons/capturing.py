"""Reasons of capturing: the profiler, the device, and who else uses them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_torchprof.reasons.reason import Reason
from pytest_torchprof.text import enumerated

if TYPE_CHECKING:
    from pytest_torchprof.codes import Code


class WithOthersInCupti(Reason, frozen=True):
    """The GPU's side is missing, and others in the process may have CUPTI, which serves one profiler at a time."""

    why: Reason
    users: tuple[str, ...]

    @property
    def code(self) -> Code | None:
        return self.why.code

    @property
    def text(self) -> str:
        serves = f"CUPTI serves one profiler at a time, and may serve {enumerated(self.users)} in this process"
        return f"{self.why.text}. {serves}"
