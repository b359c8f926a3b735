"""What tests ask of a reason or a verdict: its kind and its facts. How it reads is asked in tests/test_messages.py alone."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING
from unittest.mock import patch

import pytest

from pytest_torchprof import LimitsMissed, NotMeasured, TorchprofError, UnreadableRecording, cli
from pytest_torchprof.baseline.entry import KernelRecord
from pytest_torchprof.cli import UNUSABLE
from pytest_torchprof.cli.report_file import read_report
from pytest_torchprof.compare.change import Change
from pytest_torchprof.compare.change_words import change_words
from pytest_torchprof.limits import check_limits, read_limits
from pytest_torchprof.limits.limit import MISSED
from pytest_torchprof.reasons.catalogue import from_plain
from pytest_torchprof.report import EntriesDisused
from pytest_torchprof.report.baseline_failure import WorseThanBaseline

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pytest_torchprof.analysis.analysis import Analysis
    from pytest_torchprof.limits.limit import Verdict
    from pytest_torchprof.reasons.reason import Reason
    from pytest_torchprof.reasons.unreadable import WhyUnreadable
    from pytest_torchprof.report import Disuse

LARGEST = ("a100_sam_eager_large", "a100_sam_fast_large", "a100_graphs_nccl_orphans")
"""Shared recordings 20 to 30 times as large as most."""
LEFT_OUT = () if os.environ.get("CASES_RECORDINGS") == "all" else LARGEST
"""Those that are left out where size is not asked, and where other tests hold the same code to them."""
WORSE = WorseThanBaseline.GIST
"""How a failure by a baseline begins, where the screen is what a test is about."""


def says(reason: Reason | None, kind: type[Reason], **facts: object) -> bool:
    """Whether a reason, or one of those that it is composed of, is of this kind and has these facts."""
    if reason is None:
        return False
    if isinstance(reason, kind) and facts.items() <= {name: getattr(reason, name) for name in facts}.items():
        return True
    return any(says(part, kind, **facts) for part in (*getattr(reason, "whys", ()), getattr(reason, "why", None)))


def why_not(judge: Callable[[], object]) -> Reason:
    """Return for which reason nothing is judged."""
    with pytest.raises(NotMeasured) as raised:
        judge()
    return raised.value.reason


def why_refused(read: Callable[[], object]) -> Reason:
    """Return for which reason what is asked for cannot be had."""
    with pytest.raises(TorchprofError) as raised:
        read()
    return raised.value.reason


def why_command_refused(*words: str) -> Reason:
    """Return for which reason a command does not do what it is asked."""
    problems: list[TorchprofError | Reason] = []

    def keep(command: str | None, problem: TorchprofError | Reason) -> int:
        problems.append(problem)
        return UNUSABLE

    with patch.object(cli, "refuse", keep):
        assert cli.main([*words]) == UNUSABLE
    (problem,) = problems
    return problem.reason if isinstance(problem, TorchprofError) else problem


def why_unreadable(read: Callable[[], object]) -> WhyUnreadable:
    """Return for which reason a file is refused."""
    with pytest.raises(UnreadableRecording) as raised:
        read()
    assert raised.value.cause is not None
    return raised.value.cause


def reasons_in(report: Path) -> list[Reason]:
    """Return the reasons for which measurements of a report, which is JSON, and their limits are not measured."""
    results = json.loads(report.read_text())["results"]
    told = [one.get("reason") for result in results for one in (result, *result["limits"])]
    return [from_plain(plain) for plain in told if plain is not None]


def misses(found: Analysis, **limits: object) -> Verdict:
    """Return the verdict on the one limit of these by which a measurement fails."""
    with pytest.raises(LimitsMissed):
        found.expect(**limits)
    (verdict,) = [verdict for verdict in check_limits(found, read_limits(limits)) if verdict.status == MISSED]
    return verdict


def verdicts_in(report: Path) -> list[Verdict]:
    """Return the verdicts on all limits in a report, which is JSON, in its order."""
    return [verdict for result in read_report(report)[0] for verdict in result.limits]


def came(op: str, *, family: str | None = "pointwise", name: str | None = None) -> str:
    """Return what a screen says of a kernel that came, once per step: for a test that is about the screen."""
    kernel = KernelRecord(name=name or op, family=family, op=op)
    return f"+ {change_words(Change(kind='added', what=kernel.short, after=(kernel,)))}"


def of_no_use(why: Disuse, *keys: str, became: tuple[str, ...] = ()) -> str:
    """Return what a run says of such entries, or of any: for a test that is about the screen."""
    return EntriesDisused(why, keys, became).sentence.removesuffix(": ")
