"""A run in this process, which remembers what pytest's own plugins have, is as one in a process of its own."""

from __future__ import annotations

import re

import fresh
import pytest

pytestmark = pytest.mark.any_torch

ASKING = """
import pytest

@pytest.fixture
def ours():
    pass

def pytest_terminal_summary(terminalreporter):
    manager = terminalreporter.config.pluginmanager
    for name, hook in sorted(vars(manager.hook).items()):
        if name.startswith("pytest_"):
            plugins = [one.plugin_name for one in hook.get_hookimpls() if not one.plugin_name.isdigit()]
            print("hook", name, *sorted(plugins))
"""


@pytest.mark.parametrize(
    ("words", "known", "wanted"),
    [
        (["--fixtures", "-v"], r"(\w+)(?: \[\w+ scope\])? -- .*:\d+$", {"tmp_path", "tmpdir", "caplog", "ours"}),
        (["-s"], r"hook (\w+) .*", {"pytest_runtest_setup", "pytest_warning_recorded"}),
    ],
    ids=["fixtures", "hooks"],
)
def test_a_run_has_the_fixtures_and_hooks_of_one_in_a_process_of_its_own(pytester, words, known, wanted):
    pytester.makeconftest(ASKING)
    pytester.makepyfile(test_it="def test_it(): pass")
    runs = [pytester.runpytest_inprocess(*words), pytester.runpytest_inprocess(*words), fresh.run_pytest(*words)]
    first, second, alone = ([line for line in run.outlines if re.match(known, line)] for run in runs)
    assert wanted <= {re.match(known, line)[1] for line in first}
    assert first == second == alone
