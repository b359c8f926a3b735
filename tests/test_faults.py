"""What goes wrong in measured code: the test's own outcome says so, never a pass, and the next tests are judged as ever.

Faults of the profiler and of the device are in tests/fakegpu, tests/gpu and tests/test_capture_*.py; docs/trust.md lists them all.
"""

from __future__ import annotations

import re
import textwrap

import pytest

from pytest_torchprof.limits.seen import NumberSeen
from pytest_torchprof.reasons.step_title import StepTitle

HEAD = """
import os, subprocess, sys, threading, warnings
y = torch.ones(8, 8)
calls = []
"""
# Two tests behind each fault: what holds passes, what is missed fails, with the numbers of an undisturbed run.
TESTS = """
@pytest.mark.torchprof(device="cpu", max_kernels=1, warmup=1, steps=2)
def test_fault_{name}():
    calls.append(None)
    torch.mm(y, y)
{fault}

@pytest.mark.torchprof(device="cpu", max_kernels=1, warmup=1, steps=2)
def test_holds_{name}():
    calls.clear()
    torch.mm(y, y)

@pytest.mark.torchprof(device="cpu", max_kernels=1, warmup=1, steps=2)
def test_misses_{name}():
    torch.mm(y, y) + y
"""
TESTS_OWN = {
    "an exception": ("raise ValueError('its own')", "*ValueError: its own"),
    "an exception while warming up": ("if len(calls) == 1: raise ValueError('its own')", "*ValueError: its own"),
    "an exception in the last step": ("if len(calls) == 3: raise ValueError('its own')", "*ValueError: its own"),
    "an assertion": ("assert y.sum() == 1", "*assert tensor(64.) == 1*"),
    "a failure": ("pytest.fail('its own')", "*its own"),
    "an exit of Python": ("sys.exit(3)", "*SystemExit: 3"),
    "memory that is not there": ("torch.empty(2**50)", "*can't allocate memory*"),
    "a warning that is an error": ("warnings.simplefilter('error'); warnings.warn('its own')", "*UserWarning: its own"),
    "a generator that is left early": ("next(iter(()))", "*StopIteration*"),
}
HARMLESS = {
    "a process": "subprocess.run([sys.executable, '-c', ''], check=True)",
    "a fork": "pid = os.fork()\nif not pid: os._exit(0)\nos.waitpid(pid, 0)",
    "a warning": "warnings.warn('a warning')",
    "grad mode left off": "torch.set_grad_enabled(False)",
    "a default type left": "torch.set_default_dtype(torch.float64)",
    "a default device left": "torch.set_default_device('meta')",
    "fewer threads": "torch.set_num_threads(1)",
    "Dynamo reset": "torch._dynamo.reset()",
    "a stance left": "torch.compiler.set_stance('force_eager')",
    "deterministic algorithms": "torch.use_deterministic_algorithms(True)",
    "garbage collected": "import gc; gc.collect()",
    "standard streams closed": "sys.stdout = sys.stderr = open(os.devnull, 'w')",
    "the folder changed": "os.chdir('/')",
}


MISSED = f"{NumberSeen('kernels', 2)} in {StepTitle(step=1, steps=2)}"
"""What the one of each three says that misses its limit."""


def three_tests(name: str, fault: str) -> str:
    return TESTS.format(name=name.replace(" ", "_"), fault=textwrap.indent(fault, "    "))


@pytest.fixture
def run_fault(run_tests):
    """Run one fault, and the tests behind it, in a process of its own."""

    def run(fault: str, *arguments: str) -> pytest.RunResult:
        return run_tests(HEAD + three_tests("it", fault), *arguments, in_process=False)

    return run


@pytest.fixture
def run_all(run_tests):
    """Run faults one after the other in one process, which keeps what each leaves behind; return what came of each."""

    def run(faults: dict[str, str], *arguments: str) -> tuple[pytest.RunResult, dict[str, list[str]]]:
        source = HEAD + "".join(three_tests(name, fault) for name, fault in faults.items())
        result = run_tests(source, "-v", *arguments, in_process=False)
        outcomes = dict(re.findall(r"^test_it\.py::(\w+) (\w+)", "\n".join(result.outlines), re.MULTILINE))
        names = {name: name.replace(" ", "_") for name in faults}
        kinds = ("fault", "holds", "misses")
        return result, {name: [outcomes[f"test_{kind}_{slug}"] for kind in kinds] for name, slug in names.items()}

    return run


def test_an_error_of_the_code_is_the_tests_own(run_all):
    result, outcomes = run_all({name: code for name, (code, _) in TESTS_OWN.items()})
    assert outcomes == {key: ["FAILED", "PASSED", "FAILED"] for key in TESTS_OWN}
    for _, text in TESTS_OWN.values():
        result.stdout.fnmatch_lines([text])
    assert result.stdout.str().count(MISSED) == len(TESTS_OWN)


def test_what_code_may_do_disturbs_neither_it_nor_the_next(run_all):
    result, outcomes = run_all(HARMLESS, "-W", "ignore")
    assert outcomes == {key: ["PASSED", "PASSED", "FAILED"] for key in HARMLESS}
    assert result.stdout.str().count(MISSED) == len(HARMLESS)


def test_a_skip_in_measured_code_is_a_skip(run_fault):
    result = run_fault("pytest.skip('its own')")
    result.assert_outcomes(skipped=1, passed=1, failed=1)
    result.stdout.fnmatch_lines([f"*{MISSED}*"])


@pytest.mark.parametrize("code", ["raise KeyboardInterrupt", "pytest.exit('its own')"])
def test_an_interrupt_ends_the_run_and_nothing_has_passed(run_fault, code):
    result = run_fault(code)
    assert result.ret == pytest.ExitCode.INTERRUPTED
    assert "passed" not in result.parseoutcomes()


def test_a_process_that_dies_has_passed_nothing(run_fault):
    result = run_fault("os._exit(0)", "-n", "1", "-p", "xdist")
    result.assert_outcomes(failed=2, passed=1)
    result.stdout.fnmatch_lines(["*crashed while running 'test_it.py::test_fault_it'*"])


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("thread = threading.Thread(target=torch.mm, args=(y, y))\nthread.start()\nthread.join()", "*thread*"),
        ("with torch.profiler.profile(): torch.mm(y, y)", "*another profiler*"),
    ],
    ids=["a thread that computes", "a profiler inside"],
)
def test_what_hides_work_is_not_measured(run_fault, code, text):
    result = run_fault(code)
    result.assert_outcomes(failed=2, passed=1)
    result.stdout.fnmatch_lines([f"*not measured: {text}"])
    result.stdout.fnmatch_lines([f"*{MISSED}*"])


def test_work_that_differs_from_call_to_call_is_judged_by_its_worst_step(run_fault):
    result = run_fault("if len(calls) == 3: torch.mm(y, y)")
    result.assert_outcomes(failed=2, passed=1)
    result.stdout.fnmatch_lines([f"*max_kernels=1 *{NumberSeen('kernels', 2)} in {StepTitle(step=2, steps=2)}*"])
