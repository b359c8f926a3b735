"""``forbid``: findings that must not occur."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

from pytest_torchprof.errors import UnknownLimit
from pytest_torchprof.limits.bearing import said
from pytest_torchprof.limits.limit import Limit, as_list
from pytest_torchprof.limits.verdict import HOLDS, MISSED, NOT_MEASURED, Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_torchprof.findings import Rule
    from pytest_torchprof.profile import Profile


def forbid_limit(known: Mapping[str, Rule]) -> Limit:
    """Return the limit ``forbid`` that takes the finding codes in ``known`` and refuses others."""

    def read(value: object) -> tuple[str, ...]:
        for code in (codes := as_list(value)):
            if code not in known:
                close = get_close_matches(str(code), known, n=1, cutoff=0.5)
                advice = f"did you mean {close[0]!r}?" if close else f"known are: {', '.join(sorted(known))}"
                raise UnknownLimit(f"{code!r} is no finding; {advice}")
        return tuple(str(code) for code in codes)

    def check(profile: Profile, codes: tuple[str, ...]) -> Verdict:
        blind = {code: reason for code in codes if (reason := known[code].blind(profile)) is not None}
        return _check(profile, codes, blind)

    return Limit(name="forbid", read=read, check=check)


def _check(profile: Profile, codes: tuple[str, ...], blind: Mapping[str, str]) -> Verdict:
    found = [finding for finding in profile.findings if finding.code in codes]
    if not found and blind:
        code, reason = next(iter(blind.items()))
        said_of = f"{code} cannot be told from this recording: {reason}"
        return Verdict(limit="forbid", expected="", measured=said_of, status=NOT_MEASURED)
    if not found:
        return Verdict(limit="forbid", expected="", measured="none of them occurs", number=0, status=HOLDS)
    return Verdict(
        limit="forbid",
        expected="",
        measured=", ".join(dict.fromkeys(finding.code for finding in found)),
        number=len(found),
        status=MISSED,
        details=tuple(map(said, found)),
    )
