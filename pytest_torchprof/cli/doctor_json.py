"""The answers of ``torchprof doctor`` as it prints them with ``--json``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, Literal

from msgspec import Struct, to_builtins

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pytest_torchprof.cli.doctor_checks import Answer

SCHEMA: Final = 1


class AnswerRow(Struct, frozen=True, kw_only=True):
    """One answer of a check, with the remedy where there is one."""

    check: str
    # As an answer has it, whose type is not imported: where a wheel is built, the checks cannot be.
    status: Literal["ok", "wrong", "not known"]
    text: str
    do: str | None


class DoctorReport(Struct, frozen=True, kw_only=True):
    """The versions that are installed, and the answers of all checks."""

    schema: int = SCHEMA
    versions: dict[str, str]
    answers: tuple[AnswerRow, ...]


def doctor_text(versions: Mapping[str, str], answers: Iterable[Answer]) -> str:
    """Return the answers as JSON."""
    rows = (
        AnswerRow(check=answer.check, status=answer.status, text=answer.text, do=answer.do or None)
        for answer in answers
    )
    report = DoctorReport(versions=dict(versions), answers=tuple(rows))
    return json.dumps(to_builtins(report), indent=2) + "\n"
