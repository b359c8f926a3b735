"""``forbid``: findings that must not occur."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

from pytest_torchprof.errors import UnknownLimit
from pytest_torchprof.findings import find
from pytest_torchprof.limits.limit import HOLDS, MISSED, NOT_MEASURED, Limit, Verdict, as_list

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_torchprof.analysis.analysis import Analysis
    from pytest_torchprof.findings import Finding, Rule


def forbid_limit(known: Mapping[str, Rule]) -> Limit:
    """Return the limit ``forbid`` that takes the finding codes in ``known`` and refuses others."""

    def read(value: object) -> tuple[str, ...]:
        for code in (codes := as_list(value)):
            if code not in known:
                close = get_close_matches(str(code), known, n=1, cutoff=0.5)
                advice = f"did you mean {close[0]!r}?" if close else f"known are: {', '.join(sorted(known))}"
                raise UnknownLimit(f"{code!r} is no finding; {advice}")
        return tuple(str(code) for code in codes)

    def check(analysis: Analysis, codes: tuple[str, ...]) -> Verdict:
        rules = [known[code] for code in dict.fromkeys(codes)]
        blind = {rule.code: reason for rule in rules if (reason := rule.blind(analysis)) is not None}
        return _verdict(find(analysis, rules), blind)

    return Limit(name="forbid", read=read, check=check)


def _verdict(found: Sequence[Finding], blind: Mapping[str, str]) -> Verdict:
    if not found and blind:
        code, reason = next(iter(blind.items()))
        said_of = f"{code} cannot be told from this recording: {reason}"
        return Verdict(measured=said_of, status=NOT_MEASURED)
    if not found:
        return Verdict(measured="none of them occurs", number=0, status=HOLDS)
    return Verdict(
        measured=", ".join(dict.fromkeys(finding.code for finding in found)),
        number=len(found),
        status=MISSED,
        details=tuple(finding.in_one_line for finding in found),
    )
