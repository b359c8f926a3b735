"""A GPU model on which nothing is measured any more: a gap that keeps the gate open until somebody says that it may be."""

from __future__ import annotations

import pytest
from histories import H100, launched, run_of, sha, write
from msgspec.structs import replace
from test_history import FIVE, SIX, TEST, changes

from pytest_torchprof.cli import main

pytestmark = pytest.mark.any_torch
A100 = replace(H100, gpu="NVIDIA A100-SXM4-80GB")


def on_h100(commit, kernels=FIVE):
    return run_of(commit, launched(TEST, kernels))


def on_a100(commit, kernels=FIVE):
    return run_of(commit, launched(TEST, kernels), environment=A100)


@pytest.fixture
def lost(tmp_path):
    """The H100 measured five commits, the A100 these and fifteen more."""
    return write(tmp_path, [*map(on_h100, range(5)), *map(on_a100, range(20))])


def said(capsys, status, *words):
    assert main(["history", *map(str, words)]) == status
    return " ".join(capsys.readouterr().out.split())


def test_a_gpu_that_is_measured_no_more_is_named_and_leaves_the_gate_open(lost, capsys):
    (stopped,) = changes(capsys, lost, "--fail-on=counts", status=3)["stopped"]
    assert (stopped["hardware"], stopped["until"], stopped["runs"]) == (H100.gpu, sha(4), 15)
    named = f"not measured any more: {H100.gpu}, last at {sha(4)[:7]} (2026-01-05); 15 runs of this branch"
    assert named in said(capsys, 3, "changes", lost, "--fail-on=times")
    assert named in said(capsys, 3, "when", lost, TEST, "kernels >= 5")
    assert named in said(capsys, 0, "log", lost, TEST)


def test_a_gpu_that_was_given_up_is_accepted_and_shown_with_the_reason(lost, capsys):
    (stopped,) = changes(capsys, lost)["stopped"]
    assert "in 1 test" in said(capsys, 0, "accept", lost, stopped["id"][:8], "returned to the vendor")
    assert changes(capsys, lost, "--fail-on=counts", status=0)["stopped"][0]["accepted"] == "returned to the vendor"
    assert "known: returned to the vendor" in said(capsys, 0, "when", lost, TEST, "kernels >= 5")
    # Measured once more, and lost again, it is another loss.
    write(lost, [on_h100(19), *map(on_a100, range(20, 40))])
    assert changes(capsys, lost, "--fail-on=counts", status=3)["stopped"][0]["accepted"] is None


def test_what_was_given_up_before_the_day_that_is_asked_for_is_not_missed(lost, capsys):
    changes(capsys, lost, "--fail-on=counts", "--since=2026-01-05", status=3)
    changes(capsys, lost, "--fail-on=counts", "--since=2026-01-06", status=0)


@pytest.mark.parametrize(
    "runs",
    [
        [*map(on_a100, range(20)), *map(on_h100, range(19))],
        [*map(on_a100, range(20)), *map(on_h100, range(0, 20, 6))],
        [*map(on_a100, range(20)), on_h100(3)],
    ],
    ids=["still-to-come", "each-sixth-commit", "tried-once"],
)
def test_a_gpu_that_keeps_its_pace_or_never_had_one_is_not_missed(tmp_path, capsys, runs):
    assert changes(capsys, write(tmp_path, runs), "--fail-on=counts", status=0)["stopped"] == []


def test_a_change_goes_before_what_is_not_measured_any_more(tmp_path, capsys):
    runs = [*map(on_h100, range(5)), *(on_a100(at, FIVE if at < 9 else SIX) for at in range(20))]
    assert len(changes(capsys, write(tmp_path, runs), "--fail-on=counts", status=1)["stopped"]) == 1
