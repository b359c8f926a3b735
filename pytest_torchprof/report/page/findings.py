"""Findings and the headline, as the page shows them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from pytest_torchprof.findings.catalogue.headlines import NotMeasuredHeadline

if TYPE_CHECKING:
    from pytest_torchprof.findings import Finding
    from pytest_torchprof.findings.catalogue.headlines import Headline
    from pytest_torchprof.findings.finding import Severity


class FindingOnPage(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A finding in words."""

    code: str
    title: str
    message: str
    remedy: str
    severity: Severity
    saves_us: float
    source: str | None = None
    mark: int | None = None
    """The index of its events among the marks of the recording, if it has events."""
    in_job: bool = False
    """Whether the message says what all ranks of the job show of its causes."""
    command: str = ""
    """What compares the ranks that it is about."""


def finding_on_page(
    finding: Finding, *, mark: int | None = None, in_job: bool = False, command: str = ""
) -> FindingOnPage:
    """Return a finding in words, with what is known beside it."""
    return FindingOnPage(
        code=finding.code,
        title=finding.title,
        message=finding.message,
        remedy=finding.remedy,
        severity=finding.severity,
        saves_us=finding.saves_us,
        source=finding.source,
        mark=mark,
        in_job=in_job,
        command=command,
    )


class HeadlineOnPage(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A recording's headline in words."""

    what: str
    where: str
    of_all: bool
    """Whether its numbers are of all steps together."""
    mark: int | None = None
    """The index of its events among the marks of the recording, if it has events."""


def headline_on_page(headline: Headline) -> HeadlineOnPage:
    """Return a headline in words."""
    return HeadlineOnPage(
        what=headline.what,
        where=headline.where,
        of_all=not isinstance(headline, NotMeasuredHeadline),
        mark=None if headline.events is None else 0,
    )
