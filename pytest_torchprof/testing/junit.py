"""The text of a failure in JUnit's file, which outlives the terminal: it is as wide as it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_torchprof.testing.workers import WHOLE

if TYPE_CHECKING:
    from collections.abc import Generator


class WholeTexts:
    """A plugin for runs that write such a file: whoever is handed a report has what no terminal has cut."""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> Generator[None, object, object]:
        """Hand over the report with its failure whole, and leave the terminal, which shows it later, its own."""
        if not hasattr(report, WHOLE):
            return (yield)
        from pytest_torchprof.testing.pytest_report import BriefFailure  # noqa: PLC0415 - only failures of ours need it

        shown = report.longrepr
        report.longrepr = BriefFailure(getattr(report, WHOLE), getattr(shown, "reprcrash", None))  # type: ignore[assignment]
        try:
            return (yield)
        finally:
            report.longrepr = shown
