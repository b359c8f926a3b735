"""A run under the rules of a suite: which tests they reach, and what is left of rules and exceptions at its end."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from pytest_torchprof.limits import NOT_MEASURED, read_limits
from pytest_torchprof.limits.evidence import AllowedNothing
from pytest_torchprof.limits.operators_asked import refuse_unknown_operators
from pytest_torchprof.reasons.composed import OfRule
from pytest_torchprof.reasons.errors import UnknownLimit
from pytest_torchprof.report import Disuse, UnusedEntries
from pytest_torchprof.testing.allow_list import ALLOW_FILE, SETTING_OF, with_allowed
from pytest_torchprof.testing.marker_options import check_ways
from pytest_torchprof.testing.rule_key import RULE
from pytest_torchprof.testing.suite_rules import (
    Mode,
    SuiteSeen,
    folder_of,
    is_sampled,
    joined,
    matches,
)
from pytest_torchprof.testing.workers import HAND_OVER, nodeid_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_torchprof.limits import Limit
    from pytest_torchprof.reasons.reason import Reason
    from pytest_torchprof.report.result import Result
    from pytest_torchprof.testing.allow_list import AllowEntry
    from pytest_torchprof.testing.options import RunOptions
    from pytest_torchprof.testing.session import RunState
    from pytest_torchprof.testing.suite_file import Suite
    from pytest_torchprof.testing.suite_rules import SuiteRule


def check_rules(rules: Iterable[SuiteRule], known: Sequence[Limit], options: RunOptions) -> None:
    """Raise pytest.UsageError for a rule with a limit that there is not, or a value that it cannot have."""
    problems = []
    for rule in rules:
        try:
            check_ways(rule.ways)
            asked = read_limits(rule.limits, known=known, defaults=options.settings)
            if options.replay is None:
                refuse_unknown_operators(asked)
        except UnknownLimit as problem:
            problems.append(str(OfRule(rule.shown, problem.reason)))
    if problems:
        raise pytest.UsageError("\n".join(problems))


def apply_rules(suite: Suite, state: RunState, items: list[pytest.Item], collected: Sequence[pytest.Item]) -> None:
    """Give each test the rules that match it, and the run what was seen of them.

    ``collected`` are all tests, ``items`` those of them that are left to run.
    """
    check_rules(suite.rules, state.limits, state.options)
    settings = {limit.name: frozenset(own.name for own in limit.settings) for limit in state.limits if limit.settings}
    unmeasurable: list[str] = []
    fails = False
    for item in items:
        nodeid = nodeid_of(item)
        rules = [rule for rule in suite.rules if matches(rule.tests, nodeid)]
        if not rules or not is_sampled(nodeid, suite.share):
            continue
        rule = joined(rules, settings)
        if isinstance(item, pytest.Function):
            item.stash[RULE] = replace(rule, limits=with_allowed(rule.limits, suite.allowed, nodeid))
        else:
            unmeasurable.append(nodeid)
            fails |= rule.mode is Mode.FAIL
    if collected and HAND_OVER not in collected[0].config.stash:
        state.note_suite(
            SuiteSeen(
                reached=sum(RULE in item.stash for item in items),
                idle=tuple(_idle(suite, collected)),
                unmeasurable=tuple(unmeasurable),
                fails=fails,
                tests_of=_tests_of_entries(suite, items, collected),
            )
        )


def _idle(suite: Suite, collected: Sequence[pytest.Item]) -> list[str]:
    ids = [nodeid_of(item) for item in collected]
    session = collected[0].session
    return [
        rule.shown
        for rule in suite.rules
        if not any(matches(rule.tests, nodeid) for nodeid in ids) and _all_collected(rule.tests, session)
    ]


def _tests_of_entries(
    suite: Suite, items: Sequence[pytest.Item], collected: Sequence[pytest.Item]
) -> tuple[tuple[str, ...], ...] | None:
    """Return the tests of each entry; None where a part of the suite was sampled, selected or left out."""
    session = collected[0].session
    whole = suite.share == 1 and len(items) == len(collected)
    if not whole or not all(_all_collected(entry.test, session) for entry in suite.allowed):
        return None
    ids = [nodeid_of(item) for item in items]
    return tuple(tuple(nodeid for nodeid in ids if matches(entry.test, nodeid)) for entry in suite.allowed)


def _all_collected(pattern: str, session: pytest.Session) -> bool:
    """Return whether every test was collected that a pattern can match."""
    config = session.config
    if session.testsfailed or any(config.getoption(name, None) for name in ("lf", "ignore", "ignore_glob", "pyargs")):
        return False
    if config.args_source is pytest.Config.ArgsSource.TESTPATHS:
        return True  # The project says that its tests are there and nowhere else.
    below = config.rootpath / folder_of(pattern)
    named = [Path(config.invocation_params.dir, argument) for argument in config.args if "::" not in argument]
    return any(below.is_relative_to(path) for path in named)


def suite_problems(seen: SuiteSeen) -> list[Reason]:
    """Return why a run fails although no test did: rules that match no test, or match what cannot be measured."""
    from pytest_torchprof.reasons.whole_runs import RuleOfNoFunction, RuleWithoutTest  # noqa: PLC0415 - seldom needed

    problems: list[Reason] = [RuleWithoutTest(rule) for rule in seen.idle]
    return [*problems, RuleOfNoFunction(seen.unmeasurable)] if seen.unmeasurable and seen.fails else problems


def unneeded(suite: Suite, seen: SuiteSeen, results: Iterable[Result]) -> list[UnusedEntries]:
    """Return the entries of the allow list that no test has needed, each of whose tests was measured by it."""
    if seen.tests_of is None:
        return []
    by_test: dict[str, list[Result]] = {}
    for result in results:
        by_test.setdefault(result.nodeid, []).append(result)
    keys = [
        entry.shown
        for entry, tests in zip(suite.allowed, seen.tests_of, strict=True)
        if all(_did_without(entry, by_test.get(nodeid, ())) for nodeid in tests)
    ]
    return [UnusedEntries(file=ALLOW_FILE, why=Disuse.UNNEEDED, keys=tuple(keys))] if keys else []


def _did_without(entry: AllowEntry, results: Sequence[Result]) -> bool:
    """Return whether a test was judged by all the limits that have exceptions, and nothing was allowed by this one."""
    verdicts = [verdict for result in results for verdict in result.limits if verdict.limit in SETTING_OF]
    if not verdicts or any(verdict.status == NOT_MEASURED for verdict in verdicts):
        return False
    return all(
        any(isinstance(fact, AllowedNothing) and entry.allowance in fact.allowances for fact in verdict.evidence)
        for verdict in verdicts
        if verdict.limit != "forbid_ops" or entry.range is None
    )
