"""What became of each test, of what it told while it ran: a run that was ended has told of all tests but one."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

PASSED, FAILED, SKIPPED, RUNNING, NOT_REACHED = "passed", "failed", "skipped", "running", "not reached"


@dataclass
class Test:
    """A test, or what could not be collected, and its outcome so far."""

    name: str
    outcome: str = NOT_REACHED
    took_s: float = 0.0
    why: str = ""
    """Of what has failed or was skipped: the last line of its own words."""
    report: str = ""
    facts: list[list[str]] = field(default_factory=list)

    @property
    def file(self) -> str:
        """The file that it is in."""
        return self.name.partition("::")[0]

    def hear(self, told: dict[str, Any]) -> None:
        """Take in what one of its phases has told: the first that did not pass decides, else its end."""
        self.took_s = round(self.took_s + told.get("duration_s", 0.0), 2)
        self.facts = told.get("facts") or self.facts
        if self.outcome in (FAILED, SKIPPED):
            return
        if told["when"] == "start":
            self.outcome = RUNNING
        elif told["outcome"] != PASSED:
            self.outcome, self.why, self.report = told["outcome"], reason(told["said"]), told.get("report", "")
        elif told["when"] == "teardown":
            self.outcome = PASSED


def heard(path: Path) -> list[Test]:
    """Return the tests in the order in which they were collected; a line that was cut is left out."""
    tests: dict[str, Test] = {}
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else ():
        try:
            told = json.loads(line)
        except ValueError:
            continue
        for name in told.get("collected", ()):
            tests.setdefault(name, Test(name))
        if "test" in told:
            tests.setdefault(told["test"], Test(told["test"])).hear(told)
    return list(tests.values())


def reason(message: str) -> str:
    """Return the last line of an error's own words; what pytest adds of an assertion is none of them."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    at = next((index for index, line in enumerate(lines) if line.startswith("assert ")), len(lines))
    own = lines[:at] or lines[:1]
    return own[-1][:600] if own else ""


def said(tests: list[Test]) -> list[dict[str, Any]]:
    """Return what is to be said of a run: how many tests came to which end, those that did not pass, and the facts."""
    found = [{"says": _counted(tests), "figures": None}]
    for outcome in (FAILED, RUNNING):
        found += [
            {"says": f"{outcome} {_short(one)}{one.why and ': '}{one.why}", "figures": one.report or None}
            for one in tests
            if one.outcome == outcome
        ]
    skipped = [one for one in tests if one.outcome == SKIPPED]
    for why in dict.fromkeys(one.why for one in skipped):
        names = [_short(one) for one in skipped if one.why == why]
        found.append({"says": f"skipped: {why.removeprefix('Skipped: ')}: {', '.join(names)}", "figures": None})
    facts = ((one, name, value) for one in tests for name, value in one.facts)
    found += [{"says": f"fact of {_short(one)}: {name} = {value}", "figures": None} for one, name, value in facts]
    return found


def noted(tests: list[Test]) -> list[dict[str, Any]]:
    """Return them as they are kept; what their reports say stands beside the sentence about them."""
    return [{**asdict(one), "report": "", "file": one.file} for one in tests]


def by_file(tests: Iterable[dict[str, Any]]) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """Return the tests that were kept by their files and outcomes."""
    found: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for one in tests:
        found.setdefault(one["file"], {}).setdefault(one["outcome"], []).append(one)
    return found


def _counted(tests: list[Test]) -> str:
    counts = Counter(one.outcome for one in tests)
    others = [f"{counts[name]} {name}" for name in (FAILED, SKIPPED, RUNNING, NOT_REACHED) if counts[name]]
    return ", ".join([f"{counts[PASSED]} of {len(tests)} passed", *others])


def _short(test: Test) -> str:
    return test.name.rpartition("::")[2]
