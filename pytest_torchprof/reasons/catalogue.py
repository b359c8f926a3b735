"""The catalogue of reasons: all kinds, the type of a field that holds any of them, and how they are kept as values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import ValidationError, convert
from msgspec.json import encode

from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.composed import KINDS, AnyReason
from pytest_torchprof.reasons.reason import Reason, Verbatim

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["KINDS", "OF_CODE", "AnyReason", "from_plain", "from_stored", "portable", "to_stored"]


OF_CODE: Final[Mapping[Code, tuple[str, str]]] = {
    Code.ANOTHER_PROFILER: (
        "a torch.profiler ran before, during or after the measured code",
        "take it out of the test; `--torchprof=off` runs the test plainly, for example under nsys",
    ),
    Code.MIXED_JOBS: (
        (
            "two are of the same rank or the same recording; or they are of jobs of different sizes, tests or process "
            "groups; or one tells its rank and another does not"
        ),
        "one call of `adopt`, or of a command with `--ranks`, for each job, each with a folder of its own",
    ),
    Code.RAN_UNCOMPILED: (
        (
            "a stance or `torch._dynamo.config.disable` was in force for a part of the measured code, about which "
            "breaks and recompiles say nothing"
        ),
        "set the stance around other code, or measure the parts by themselves",
    ),
    Code.NO_COMPILE_EVIDENCE: (
        "the limit is on compiled code, and there was none, or an earlier test had compiled it",
        "compile in the measured code (the warm-up counts)",
    ),
    Code.LAUNCHES_WAIT: (
        "times and ratios then mean nothing; counts are still judged",
        "unset it",
    ),
    Code.NOT_RECORDED: (
        (
            "what the limit, the finding or the baseline needs is not in the file: it was recorded by another program, "
            "by another version, or without the option that the sentence names"
        ),
        "record it again with what is missing, or do without the limit",
    ),
    Code.MATCH_UNKNOWN: (
        (
            "neither the names of the listed kernels nor the inputs of their operators say it, for instance the dtype "
            "of a Triton kernel; one of them may match"
        ),
        (
            'ask for what is known: a name, a family, an operator (`op="mul"`); or record the inputs of operators '
            "(recordings of others: `record_shapes=True`)"
        ),
    ),
    Code.OTHER_RANK: (
        "the measured code has ended there, so nothing is known of all ranks together",
        "that rank's own failure says where",
    ),
    Code.NO_RANK: (
        "the job has more ranks than there are recordings, so limits may be missed where nobody looks",
        "add the missing recordings, or check those you have one by one; in a test, say how many to expect (`files=2`)",
    ),
}
"""What the kinds of a code mean that do not say it themselves, and what to do: for docs/messages.md."""


def from_plain(plain: Mapping[str, Any] | str) -> Reason:
    """Return the reason of which ``Reason.to_plain`` made these values.

    A text is what earlier versions wrote. A kind that only a later version knows, or one that somebody has edited, is
    told as it stands: that there is a reason must not be lost.
    """
    if isinstance(plain, str):
        return Verbatim(plain)
    try:
        reason: Reason = convert(plain, AnyReason)
        str(reason), reason.code
    except (IndexError, ValidationError):
        return Verbatim(f"for a reason that this version does not know: {encode(plain).decode()}")
    return reason


def portable(reason: Reason) -> Reason:
    """Return a reason that other processes can read: one of a kind that only another plugin knows, in its words."""
    return reason if type(reason) in KINDS else Verbatim.of(reason.text, reason.code)


def to_stored(reason: Reason | None) -> dict[str, Any] | None:
    """Return what is kept of a reason where there may be none."""
    return None if reason is None else reason.to_plain()


def from_stored(stored: Mapping[str, Any] | str | None) -> Reason | None:
    """Return the reason that was kept, None where there was none."""
    return None if stored is None else from_plain(stored)
