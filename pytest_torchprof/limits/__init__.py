"""Limits: the catalogue, how a test asks for them, and whether a measurement keeps each of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_torchprof.findings import RULES, find_or_fail
from pytest_torchprof.kernels.own_kernels import NOTHING_DECLARED, OWN_KERNELS, OwnKernels, read_own_kernels
from pytest_torchprof.limits import asked
from pytest_torchprof.limits.asked import (
    Asked,
    check_limits,
    needs_flops,
    nothing_known,
    of_events_alone,
    refuse_none,
    settings_of,
    something_ran,
)
from pytest_torchprof.limits.communication_limits import COMMUNICATION_LIMITS
from pytest_torchprof.limits.compile_limits import COMPILE_LIMITS
from pytest_torchprof.limits.evidence import FindingLine, LineInWords
from pytest_torchprof.limits.failure import Failure, failure_of
from pytest_torchprof.limits.failure_lines import FailureLine, moved_lines
from pytest_torchprof.limits.failure_text import error_for, failure_text
from pytest_torchprof.limits.fusion_limits import FUSION_LIMITS
from pytest_torchprof.limits.kernel_limits import KERNEL_LIMITS
from pytest_torchprof.limits.limit import (
    COMPILE,
    GPU,
    HOLDS,
    MISSED,
    NOT_MEASURED,
    Limit,
    Setting,
    Status,
    Verdict,
    as_list,
    unmeasured,
)
from pytest_torchprof.limits.number_limits import NUMBER_LIMITS
from pytest_torchprof.limits.one_line import in_one_line
from pytest_torchprof.limits.operator_limits import OPERATOR_LIMITS
from pytest_torchprof.limits.range_limit import range_limit
from pytest_torchprof.limits.rank_limits import RANK_LIMITS
from pytest_torchprof.limits.screen import DEFAULT, Screen
from pytest_torchprof.limits.seen import FindingsSeen, InWords, NoFinding
from pytest_torchprof.reasons.composed import FindingUntold
from pytest_torchprof.reasons.errors import NotMeasured, UnknownLimit
from pytest_torchprof.reasons.errors import hide_our_frames as __tracebackhide__  # noqa: F401  (read by pytest)
from pytest_torchprof.reasons.wrong_values import NameOf, UnknownName
from pytest_torchprof.text.suggestions import choices_like

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_torchprof.analysis.analysis import Analysis
    from pytest_torchprof.findings import Finding, Rule
    from pytest_torchprof.reasons.reason import Reason

__all__ = [
    "COMPILE",
    "DEFAULT",
    "GPU",
    "HOLDS",
    "LIMITS",
    "MISSED",
    "NOT_MEASURED",
    "Asked",
    "Failure",
    "FailureLine",
    "InWords",
    "Limit",
    "LineInWords",
    "Screen",
    "Setting",
    "Status",
    "Verdict",
    "catalogue",
    "check_limits",
    "divided",
    "error_for",
    "failure_of",
    "failure_text",
    "in_one_line",
    "moved_lines",
    "needs_flops",
    "nothing_known",
    "of_compiling",
    "of_events_alone",
    "read_limits",
    "refuse_none",
    "settings_of",
    "something_ran",
]


def forbid_limit(known: Mapping[str, Rule]) -> Limit:
    """Return the limit ``forbid``, which takes the finding codes in ``known`` and refuses others."""

    def read(value: object) -> tuple[str, ...]:
        for code in (codes := as_list(value)):
            if code not in known:
                raise UnknownLimit.because(UnknownName(NameOf.FINDING, repr(code), *choices_like(str(code), known)))
        return tuple(str(code) for code in codes)

    def check(analysis: Analysis, codes: tuple[str, ...]) -> Verdict:
        rules = [known[code] for code in dict.fromkeys(codes)]
        blind = {rule.code: reason for rule in rules if (reason := _blindness(rule, analysis)) is not None}
        findings, failures = find_or_fail(analysis, rules)
        return _forbid_verdict(findings, {**blind, **failures})

    # A finding is about what is recorded; that something seems to be missing is one itself.
    return Limit(name="forbid", read=read, check=check, missed_by_more=False)


def _blindness(rule: Rule, analysis: Analysis) -> Reason | None:
    try:
        return rule.blind(analysis)
    except NotMeasured as problem:  # Of another plugin's rule.
        return problem.reason


def _forbid_verdict(findings: Sequence[Finding], blind: Mapping[str, Reason]) -> Verdict:
    if not findings and blind:
        code, reason = next(iter(blind.items()))
        return unmeasured(FindingUntold(code, reason))
    if not findings:
        return Verdict(seen=(NoFinding(),), number=0, status=HOLDS)
    return Verdict(
        seen=(FindingsSeen(tuple(dict.fromkeys(finding.code for finding in findings))),),
        number=len(findings),
        status=MISSED,
        evidence=tuple(FindingLine(finding) for finding in findings),
    )


def catalogue(rules: Iterable[Rule] = RULES, others: Iterable[Limit] = ()) -> tuple[Limit, ...]:
    """Return every limit: our own, ``forbid`` over the codes of ``rules``, those of other plugins, and ``ranges``."""
    forbid = forbid_limit({rule.code: rule for rule in rules})
    limits = (
        *NUMBER_LIMITS,
        *KERNEL_LIMITS,
        *OPERATOR_LIMITS,
        *FUSION_LIMITS,
        *COMMUNICATION_LIMITS,
        *RANK_LIMITS,
        *COMPILE_LIMITS,
        forbid,
        *others,
    )
    return (*limits, range_limit(limits))


LIMITS = catalogue()


def read_limits(
    given: Mapping[str, object],
    *,
    known: Iterable[Limit] = LIMITS,
    defaults: Mapping[str, object] | None = None,
    more_to_come: bool = False,
) -> tuple[Asked, ...]:
    """Return the limits in ``given`` with their values and settings read; by default all of our own are known."""
    return asked.read_limits(given, known=known, defaults=defaults, more_to_come=more_to_come)


def divided(given: Mapping[str, object]) -> tuple[OwnKernels, dict[str, object]]:
    """Return the kernels that ``own_kernels`` declares, and the other keywords; UnknownLimit if it is invalid."""
    others = {name: value for name, value in given.items() if name != OWN_KERNELS}
    if OWN_KERNELS not in given:
        return NOTHING_DECLARED, others
    try:
        return read_own_kernels(given[OWN_KERNELS]), others
    except UnknownLimit as problem:
        raise problem.of_keyword(OWN_KERNELS) from None


def of_compiling(given: Iterable[str]) -> bool:
    """Return whether limits of these names are all about what the compiler did, which every device shows."""
    limits = [limit for limit in LIMITS if limit.needs == COMPILE]
    return bool(names := set(given)) and names <= {limit.name for limit in limits} | settings_of(limits).keys()
