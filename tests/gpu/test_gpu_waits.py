"""Waits that a test allows, where the code really waits for a GPU: by operator, by range, by the line of the user's code."""

from __future__ import annotations

import pytest
import torch
from facts import reasons_in, says

from pytest_torchprof.reasons.composed import AllowanceUntold

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA or ROCm device; torch sees none"),
]

CODE = """
import sampler

x = torch.ones(64, device="cuda")

def decode():
    y = x.nonzero()
    with torch.profiler.record_function("log"):
        y.sum().item()
    return sampler.pick(x * 2)
"""
SAMPLER = "def pick(y):\n    return y.sum().item()\n"
ALLOWED = 'max_syncs=0, allow_syncs=["aten::nonzero", "range:log", "sampler.py"]'


@pytest.fixture
def run(run_tests, pytester):
    pytester.makepyfile(sampler=SAMPLER)
    pytester.syspathinsert()

    def run(test, *options):
        return run_tests(CODE + test, *options, in_process=False)

    return run


TEST = f"@pytest.mark.torchprof({ALLOWED})\ndef test_it(): decode()\n"


def test_waits_are_allowed_by_operator_by_range_and_by_the_file_that_a_repeat_tells(run):
    result = run(TEST, "-v")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines_random(
        [
            "*test_it: max_syncs=0: * blocking calls, * allowed",
            "*allowed: aten::nonzero*",
            "*allowed: range:log*",
            "*allowed: sampler.py*sampler.py:2 in pick*",
        ]
    )


def test_another_wait_is_missed_with_its_line(run, pytester):
    result = run(f"@pytest.mark.torchprof({ALLOWED})\ndef test_it():\n    decode()\n    x.sum().item()\n")
    result.assert_outcomes(failed=1)
    lines = (pytester.path / "test_it.py").read_text().splitlines()
    result.stdout.fnmatch_lines(["*max_syncs=0 * 4 blocking calls, 3 allowed in step 1 of 5", "*1 x *Synchronize*"])
    result.stdout.fnmatch_lines([f"*test_it.py:{lines.index('    x.sum().item()') + 1} in test_it"])


def test_a_line_allows_that_line_alone(run):
    run(TEST.replace("sampler.py", "sampler.py:2")).assert_outcomes(passed=1)
    result = run(TEST.replace("sampler.py", "sampler.py:1"))
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*allowed nothing: 'sampler.py:1'*"])


def test_in_a_replay_the_lines_are_those_that_were_found(run):
    run(TEST, "--torchprof-save=kept").assert_outcomes(passed=1)
    run(TEST, "--torchprof-replay=kept").assert_outcomes(passed=1)


def test_a_limit_of_the_body_itself_has_the_lines_too(run):
    run(f"def test_it(torchprof):\n    torchprof(decode).expect({ALLOWED})\n").assert_outcomes(passed=1)


def test_where_the_code_cannot_run_again_a_path_allows_nothing(run, pytester):
    result = run(
        f"""
def test_it(torchprof):
    with torchprof.measure("a") as m:
        for _ in m.steps():
            decode()
    m.profile.expect({ALLOWED})
""",
        "--torchprof-report=told.json",
    )
    result.assert_outcomes(failed=1)
    assert any(
        says(reason, AllowanceUntold, allowed=("sampler.py",)) for reason in reasons_in(pytester.path / "told.json")
    )


ALTERNATING = """
calls = []

@pytest.mark.torchprof(record="stacks")
def test_it(torchprof):
    def decode():
        calls.append(1)
        if len(calls) % 9:
            x.sum().item()
        else:
            x.sum().item()
    torchprof(decode).expect(max_syncs=0, allow_syncs="test_it.py:LINE")
"""


def test_with_stacks_the_lines_are_those_of_the_steps_themselves(run, pytester):
    """The ninth call would be the repeat, whose line is the other one."""
    run(ALTERNATING)
    lines = (pytester.path / "test_it.py").read_text().splitlines()
    steps, repeat = (number for number, line in enumerate(lines, 1) if line.strip() == "x.sum().item()")
    run(ALTERNATING.replace("LINE", str(steps))).assert_outcomes(passed=1)
    run(ALTERNATING.replace("LINE", str(repeat))).assert_outcomes(failed=1)


def test_memory_that_goes_back_to_the_device_is_waited_for(run):
    freeing = 'torch.empty(64 << 20, dtype=torch.uint8, device="cuda"); torch.cuda.empty_cache()'
    result = run(f"@pytest.mark.torchprof(max_syncs=0)\ndef test_it():\n    x.add_(1)\n    {freeing}\n")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*1 limit missed: max_syncs*", "*1 x cudaFree*"])


def test_a_loop_that_asks_an_event_is_not_measured(run):
    body = "    x.add_(1)\n    event = torch.cuda.Event()\n    event.record()\n    for _ in range(50): event.query()\n"
    result = run(f"@pytest.mark.torchprof(max_syncs=0)\ndef test_it():\n{body}")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*asked 50 times *", "*[[]polled]"])
