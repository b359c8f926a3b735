"""Each case of the truth table says the same alone, after other tests in any order, and names the place."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from pathlib import Path

import filelock
import fresh
import pytest

SCRIPT = Path(__file__).with_name("compile_cases.py")
RUN = (
    "import runpy, sys, warnings; warnings.simplefilter('ignore'); runpy.run_path(sys.argv.pop(1), run_name='__main__')"
)


def _table():
    spec = importlib.util.spec_from_file_location("compile_cases", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    # Dataclasses look their module up.
    sys.modules["compile_cases"] = module
    spec.loader.exec_module(module)
    return module


TABLE = _table()
MODES = ("alone", *(f"seed {seed}" for seed in TABLE.SEEDS))


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """Measure all cases, which takes a minute, once, by whichever worker of pytest-xdist comes first."""
    base = tmp_path_factory.getbasetemp()
    kept = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "compile_cases.json"
    with filelock.FileLock(kept.with_suffix(".lock")):
        if not kept.exists():
            run = fresh.run_code(RUN, str(SCRIPT))
            assert run.returncode == 0, run.stderr[-4000:]
            kept.write_text(run.stdout)
    return json.loads(kept.read_text())


@pytest.mark.parametrize("name", TABLE.CASES)
@pytest.mark.parametrize("mode", MODES)
def test_every_case_gets_its_verdict_in_every_order(outcomes, mode, name):
    expected, found = TABLE.CASES[name], outcomes[mode][name]
    if expected.raises:
        assert found["raised"].startswith(expected.raises)
        return
    assert found["raised"] == ""
    assert (found["breaks"], found["recompiles"]) == (expected.breaks, expected.recompiles)
    assert found["nothing"] == expected.nothing
    for fact, value in expected.told.items():
        said = found["told"][fact]
        assert value in said if isinstance(value, str) else value == said
    assert expected.guard in found["recompiles_text"]


@pytest.mark.parametrize("name", [name for name, case in TABLE.CASES.items() if case.at])
@pytest.mark.parametrize("mode", MODES)
def test_a_break_is_named_by_its_line_and_no_other(outcomes, mode, name):
    source = SCRIPT.read_text().splitlines()
    marked = [
        next(i for i, line in enumerate(source, 1) if line.endswith(f"# break: {at}")) for at in TABLE.CASES[name].at
    ]
    assert outcomes[mode][name]["lines"] == marked


@pytest.mark.parametrize("name", [name for name, case in TABLE.CASES.items() if not case.raises])
def test_the_trace_alone_says_the_same_wherever_it_can(outcomes, name):
    verdicts = {outcomes[mode][name]["trace_alone"] for mode in MODES}
    assert verdicts == {TABLE.CASES[name].trace_alone}
    # What it can tell it tells right: it never calls a break what is none.
    assert TABLE.CASES[name].trace_alone != "missed" or TABLE.CASES[name].breaks == "missed"


@pytest.mark.parametrize("mode", MODES)
def test_only_too_short_a_warm_up_compiles_in_the_window(outcomes, mode):
    in_window = {name for name, found in outcomes[mode].items() if found["window"]}
    assert "a_clean_function" not in in_window
    assert mode != "alone" or "a_warm_up_that_is_too_short" in in_window
