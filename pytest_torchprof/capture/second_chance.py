"""Frames that Dynamo gave up before a measurement, and that run in one of its steps but did not while watched."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_torchprof.capture import torch_compile

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import CodeType


class SecondChance:
    """Hands frames to Dynamo again: if one runs, Dynamo gives it up once more and keeps a record of that.

    Watching the calls of the steps themselves would slow them; a frame that does not run costs nothing.
    """

    def __init__(self) -> None:
        self._codes: list[CodeType] = []

    def offer(self, codes: Iterable[CodeType]) -> None:
        """Let Dynamo try these code objects when they run next; they have not been compiled so far."""
        self._codes += [code for code in codes if torch_compile.forget_code(code)]

    def withdraw(self) -> None:
        """Restore those that have not run; those that Dynamo has forgotten meanwhile (a reset) it may try."""
        known = {id(code) for code in torch_compile.considered_codes() or ()} if self._codes else set()
        for code in self._codes:
            if id(code) in known and not torch_compile.compiled_codes(code):
                torch_compile.keep_from_dynamo(code)
        self._codes.clear()
