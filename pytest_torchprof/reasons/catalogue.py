"""The catalogue of reasons: all kinds, the type of a field that holds any of them, and how they are kept as values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Union

from msgspec import ValidationError, convert
from msgspec.json import encode
from msgspec.structs import asdict, replace

from pytest_torchprof.reasons import (  # noqa: F401 - their kinds
    adopting,
    asked_wrongly,
    baseline_renames,
    baselines,
    branch,
    caches,
    capturing,
    command_line,
    command_line_fleet,
    commits_asked,
    commits_measured,
    comparing,
    compiling,
    composed,
    contradictions,
    devices,
    files_asked,
    findings,
    fleet,
    fleet_engines,
    fleet_folders,
    fleet_rules,
    fleet_sources,
    fleet_stores,
    git_refusals,
    gpu_trouble,
    history_asked,
    history_asked_notes,
    history_branches,
    job_limits,
    limits,
    lines,
    lost_ranks,
    lost_work,
    measuring,
    misuse,
    mixed_jobs,
    names_asked,
    not_written,
    operators_untold,
    other_ranks,
    own_steps,
    plugins,
    ranks_started,
    recordings,
    records,
    refused_tests,
    reports,
    run_options,
    starting,
    stores,
    suite_files,
    testing,
    thresholds,
    throughput,
    timing,
    unittests,
    whole_runs,
    wrong_patterns,
    wrong_values,
)
from pytest_torchprof.reasons.reason import Reason, Verbatim

if TYPE_CHECKING:
    from collections.abc import Mapping

KINDS: Final[tuple[type[Reason], ...]] = tuple(
    kind for kind in Reason.__subclasses__() if kind.__module__.startswith(f"{__package__}.")
)
"""Those of this folder; another plugin's may have been made before."""

if TYPE_CHECKING:
    AnyReason = Reason
else:
    # A field of this type is decoded to the kind whose tag it has.
    AnyReason = Union[KINDS]  # noqa: UP007 - of as many as there are


def from_plain(plain: Mapping[str, Any] | str) -> Reason:
    """Return the reason of which ``Reason.to_plain`` made these values.

    A text is what earlier versions wrote. A kind that only another version knows, or knows with other facts, is told by
    its name, its facts and, where the kind is known, its code: that there is a reason must not be lost.
    """
    if isinstance(plain, str):
        return Verbatim(plain)
    try:
        reason: Reason = convert(plain, AnyReason)
        str(reason), reason.code
    except (IndexError, ValidationError):
        return of_another_version(plain)
    return reason


def of_another_version(plain: Mapping[str, Any], tagged: str = "reason") -> Verbatim:
    """Return name and facts of a kind that this version does not know; ``tagged`` is the entry with its name."""
    tag, facts = plain.get(tagged, ""), {name: fact for name, fact in plain.items() if name != tagged}
    shown = "; ".join(f"{name.replace('_', ' ')}: {_value(fact)}" for name, fact in facts.items() if fact is not None)
    known = next((kind.CODE for kind in KINDS if kind.__struct_config__.tag == tag and hasattr(kind, "CODE")), None)
    named = " ".join(filter(None, [_value(tag), f"({shown})" if shown else ""]))
    return Verbatim(f"for a reason that this version does not know in this form: {named}".rstrip(": "), known)


def _value(fact: object) -> str:
    return fact if isinstance(fact, str) else encode(fact).decode()


def portable(reason: Reason) -> Reason:
    """Return a reason that other processes can read: one of a kind that only another plugin knows, in its words.

    The same goes for the reasons that it holds.
    """
    if type(reason) not in KINDS:
        return Verbatim.of(reason.text, reason.code)
    held = asdict(reason)
    changed = {name: made for name, value in held.items() if (made := _portable_field(value)) != value}
    # Most hold none, or known ones alone, and stay what they are.
    return replace(reason, **changed) if changed else reason


def _portable_field(value: object) -> object:
    match value:
        case Reason():
            return portable(value)
        case tuple():
            return tuple(map(_portable_field, value))
        case _:
            return value
