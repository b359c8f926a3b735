"""A comparison as commands and reports print it: its facts, and the words for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import asdict

from pytest_torchprof.compare.change import Change, OtherEnvironment, Sides
from pytest_torchprof.compare.change_words import change_words
from pytest_torchprof.compare.comparison import Verdict  # noqa: TC001 - msgspec reads the annotations
from pytest_torchprof.compare.cost import Cost, Shift  # noqa: TC001 - as above
from pytest_torchprof.reasons.disturbances import AnyDisturbance  # noqa: TC001 - as above

if TYPE_CHECKING:
    from pytest_torchprof.compare.comparison import Comparison


class ChangeJson(Change, frozen=True, kw_only=True):
    """One difference, and the words for it."""

    words: str


class ComparisonJson(Struct, frozen=True, kw_only=True):
    """The fields of a `Comparison`, in its order, and the words for them, which it makes of these."""

    verdict: Verdict
    kernels_differ: bool
    changes: tuple[ChangeJson, ...]
    stale: bool
    environment: OtherEnvironment | None
    exchanged: tuple[Shift, ...]
    families: tuple[Shift, ...]
    disturbed: tuple[tuple[AnyDisturbance | str, ...], tuple[AnyDisturbance | str, ...]]
    of_recordings: bool
    same: dict[str, int]
    cost: Cost | None
    steps: tuple[str | None, str | None] | None
    sides: Sides
    sampled: tuple[bool, bool]
    summary: str
    words: str
    exchange: str | None
    notes: tuple[str, ...]


def change_json(change: Change) -> ChangeJson:
    """Return a change with its words."""
    return ChangeJson(**asdict(change), words=change_words(change))


def comparison_json(comparison: Comparison, *, summary: str | None = None) -> ComparisonJson:
    """Return a comparison with its words; ``summary``: another one than its own."""
    facts = asdict(comparison) | {"changes": tuple(map(change_json, comparison.changes))}
    return ComparisonJson(
        **facts,
        summary=comparison.summary if summary is None else summary,
        words=comparison.words,
        exchange=comparison.exchange,
        notes=comparison.notes,
    )
