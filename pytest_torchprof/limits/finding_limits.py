"""``forbid``: findings that must not occur."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_torchprof.errors import UnknownLimit
from pytest_torchprof.limits.limit import Limit, as_list
from pytest_torchprof.limits.verdict import HOLDS, MISSED, Verdict

if TYPE_CHECKING:
    from pytest_torchprof.profile import Profile


def _read(value: object) -> tuple[str, ...]:
    codes = as_list(value)
    if not all(isinstance(code, str) for code in codes):
        raise UnknownLimit(f'expected finding codes such as "implicit-sync", got {value!r}')
    return tuple(str(code) for code in codes)


def _check(profile: Profile, codes: tuple[str, ...]) -> Verdict:
    unknown = sorted(set(codes) - set(profile.finding_codes))
    if unknown:
        raise UnknownLimit(f"forbid={unknown[0]!r} is no finding; known are: {', '.join(sorted(profile.finding_codes))}")
    found = [finding for finding in profile.findings if finding.code in codes]
    if not found:
        return Verdict(limit="forbid", expected="", measured="none of them occurs", status=HOLDS)
    return Verdict(
        limit="forbid",
        expected="",
        measured=", ".join(dict.fromkeys(finding.code for finding in found)),
        number=len(found),
        status=MISSED,
        details=tuple(f"{finding.code}: {finding.message}" for finding in found),
    )


FINDING_LIMITS = (Limit(name="forbid", read=_read, check=_check),)
