"""A failure against a baseline names the line that launched what the baseline does not have."""

from __future__ import annotations

import sys

import pytest

from pytest_torchprof.compare.new_kernels import NewKernels, NewWork

pytestmark = pytest.mark.any_torch

NET = """
def forward(x, w):
    x = x * 2
    x = x @ w
    x = x * 3
    x = x @ w
    x = x * 4
    return x @ w
"""
TEST = """
import net

@pytest.mark.torchprof(device="cpu", warmup=1, steps=2)
def test_net():
    net.forward(x, x)
"""
CANNOT_BE_TOLD = "or another of these {}, which cannot be told apart"


@pytest.fixture
def lines_after_change(run_tests, pytester, monkeypatch):
    """Return what the failure says about places after ``net.py`` was changed."""

    monkeypatch.setenv("COLUMNS", "200")
    # A file that is written twice in a second is imported anew.
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    pytester.syspathinsert()

    def run(after: str, before: str = NET) -> list[str]:
        sys.modules.pop("net", None)
        (pytester.path / "net.py").write_text(before)
        run_tests(TEST, "--torchprof-baseline=update").assert_outcomes(passed=1)
        (pytester.path / "net.py").write_text(after)
        sys.modules.pop("net", None)
        result = run_tests(TEST)
        result.assert_outcomes(failed=1)
        shown = [line for line in result.outlines if not line.startswith("FAILED ")]
        lines = [line.removeprefix("E").strip() for line in shown]
        places = [line for line in lines if "net.py:" in line and not line.startswith("do: ")]
        (advice,) = (line for line in lines if line.startswith("do: "))
        sure = [line.split(" from: ")[1].split(" in ")[0] for line in places if " from: " in line]
        apart = any("cannot be told apart" in line or "from one of" in line for line in lines)
        assert apart or f"at {sure[0]}" in advice, "what to do names the first place that is sure"
        assert " at " not in advice or advice.split(" at ")[1].split(" (")[0] in sure
        return places

    return run


def test_the_line_that_was_inserted_is_named_and_no_other(lines_after_change):
    # The same operator as in three lines before it.
    assert lines_after_change(NET.replace("return x @ w", "return (x @ w) * 5")) == [
        "pointwise mul from: net.py:8 in forward"
    ]
    assert lines_after_change(NET.replace("x = x * 2", "x = x * 2 + 1")) == ["pointwise add from: net.py:3 in forward"]


@pytest.mark.parametrize(
    ("line", "work"),
    [
        ("return (x @ w) * 5", NewWork.ADDED),
        ("return x + w", NewWork.FORMERLY_FUSED_OR_ADDED),
    ],
)
def test_new_kernels_may_be_what_was_fused_only_where_a_kernel_is_gone(line, work, run_tests, pytester):
    pytester.syspathinsert()
    (pytester.path / "net.py").write_text(NET)
    run_tests(TEST, "--torchprof-baseline=update", in_process=False).assert_outcomes(passed=1)
    (pytester.path / "net.py").write_text(NET.replace("return x @ w", line))
    new = NewKernels(1, "pointwise", work)
    run_tests(TEST, in_process=False).stdout.fnmatch_lines([f"*do: * at net.py:8 ({new})*"])


def test_a_line_that_calls_another_operator_now_is_named(lines_after_change):
    assert lines_after_change(NET.replace("x * 3", "x / 3")) == ["pointwise div from: net.py:5 in forward"]


def test_a_line_that_launches_all_new_kernels_is_named_once_for_all(lines_after_change):
    calls = ["sin", "cos", "tan", "exp", "erf", "neg", "abs"]
    last = NET.replace("return x @ w", f"return (x @ w).{'().'.join(calls)}()")
    assert lines_after_change(last) == ["pointwise sin and 6 more from: net.py:8 in forward"]


def test_of_alike_kernels_in_a_row_all_are_named(lines_after_change):
    after = NET.replace("x = x * 3", "x = x * 3\n    x = x * 4\n    x = x * 5")
    assert lines_after_change(after) == [
        "pointwise mul from: net.py:6 in forward; net.py:7 in forward",
        f"{CANNOT_BE_TOLD.format(3)}: net.py:5 in forward; net.py:6 in forward; net.py:7 in forward",
    ]


def test_of_a_sequence_that_is_repeated_once_more_all_are_named(lines_after_change):
    assert lines_after_change(NET.replace("x = x * 3", "x = x * 3 @ w\n    x = x * 6")) == [
        "pointwise mul from: net.py:8 in forward",
        f"{CANNOT_BE_TOLD.format(4)}: net.py:3 in forward; net.py:5 in forward; net.py:6 in forward; net.py:8 in forward",
        "gemm fp32 nn mm from: net.py:9 in forward",
        f"{CANNOT_BE_TOLD.format(4)}: net.py:4 in forward; net.py:5 in forward; net.py:7 in forward; net.py:9 in forward",
    ]


def test_one_line_in_the_script_around_a_model_of_many_layers_is_named(lines_after_change):
    before = "def layer(x, w):\n    return (x * 2 @ w) * 3\n\ndef forward(x, w):\n    for _ in range(30):\n        x = layer(x, w)\n    return x.sum()\n"
    assert lines_after_change(before.replace("x.sum()", "(x * 4).sum()"), before)[0].startswith(
        "pointwise mul from: net.py:7"
    )


def test_of_a_kernel_that_came_and_one_that_moved_both_are_named(lines_after_change):
    before = "def forward(x, w):\n    x = x.exp()\n    x = x.sin()\n    return x.cos()\n"
    after = "def forward(x, w):\n    x = x.sin()\n    x = x.exp()\n    x = x.cos()\n    return x.exp()\n"
    assert lines_after_change(after, before)[-1].endswith("net.py:3 in forward; net.py:5 in forward")


def test_where_steps_run_in_turn_in_another_order_no_line_is_named_for_sure(lines_after_change):
    turns = "calls = []\n\ndef forward(x, w):\n    calls.append(None)\n    return b(a(x).sigmoid()).tanh() if len(calls) % 2 else a(b(x.tanh()).sigmoid())\n\ndef a(x):\n    return x.sin().exp()\n\ndef b(x):\n    return x.cos()\n"
    lines = lines_after_change(turns.replace("x.cos()", "x.cos().exp()"), turns)
    assert all("from one of" in line or "cannot be told apart" in line for line in lines if "net.py:8" in line)
    assert any("net.py:11" in line for line in lines)
