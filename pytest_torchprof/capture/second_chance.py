"""Frames that Dynamo gave up before a measurement, and that run in a step of it but did not while they were watched."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_torchprof.capture import torch_compile

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import CodeType


class SecondChance:
    """Hands frames to Dynamo again: should one run, Dynamo gives it up once more and keeps a record of that.

    To watch the calls of the steps themselves would slow them; a frame that does not run costs nothing.
    """

    def __init__(self) -> None:
        self._codes: list[CodeType] = []

    def offer(self, codes: Iterable[CodeType]) -> None:
        """Let Dynamo try these when they run next; they have not been compiled so far."""
        self._codes += [code for code in codes if torch_compile.forget_code(code)]

    def withdraw(self) -> None:
        """Leave those that have not run as they were; what Dynamo has forgotten meanwhile (a reset) it may try."""
        known = {id(code) for code in torch_compile.considered_codes() or ()} if self._codes else set()
        for code in self._codes:
            if id(code) in known and not torch_compile.compiled_codes(code):
                torch_compile.keep_from_dynamo(code)
        self._codes.clear()
