"""Versions in a history: an upgrade is a step, however it came about, and a matrix of versions is none."""

from __future__ import annotations

import pytest
from histories import H100, UPGRADED, launched, run_of, sha, write
from msgspec.structs import replace
from test_history import FIVE, SIX, TEST, changes

from pytest_torchprof.cli import main

pytestmark = pytest.mark.any_torch
SEVEN = {**SIX, "copy": 1}
NIGHTLY = [replace(H100, torch=f"2.16.0.dev{number}") for number in range(10)]


def old(commit, kernels=FIVE, **facts):
    return run_of(commit, launched(TEST, kernels), **facts)


def new(commit, kernels=SIX, **facts):
    return run_of(commit, launched(TEST, kernels), environment=UPGRADED, **facts)


def steps(capsys, folder, status):
    """Return of each change at which commit it is, from how many kernels to how many, and its state."""
    listed = changes(capsys, folder, "--fail-on", "counts", status=status)["events"]
    numbers = {sha(number): number for number in range(100)}
    return [
        (numbers[event["after"]], *change["numbers"]["kernels"], change["state"])
        for event in listed
        for change in event["tests"]
    ]


UPGRADE = (10, 5, 6, "confirmed")
ROLLED_OUT = [(new if at >= 10 + 3 * (at % 2) else old)(at) for at in range(20)]
"""Two machines take turns, and the second gets the new version three commits later."""
SLOWLY_ROLLED_OUT = [(new if at >= 10 + 11 * (at % 2) else old)(at) for at in range(40)]


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        (ROLLED_OUT, [UPGRADE]),
        (SLOWLY_ROLLED_OUT, [(20, 5, 6, "confirmed")]),
        ([*map(old, range(10)), *map(new, range(10, 20)), old(12)], [UPGRADE]),
        ([*map(old, range(5)), *map(new, range(5, 8)), *map(old, range(8, 12))], [(5, 5, 6, "undone"), (8, 6, 5, "confirmed")]),
        (
            [*map(old, range(5)), *map(new, range(5, 8)), *map(old, range(8, 10)), *map(new, range(10, 14))],
            [(5, 5, 6, "undone"), (8, 6, 5, "undone"), UPGRADE],
        ),
        (
            [*map(old, range(5)), *map(new, range(5, 8)), *map(old, range(8, 10)), *(new(at, SEVEN) for at in range(10, 14))],
            [(5, 5, 6, "undone"), (8, 6, 5, "confirmed"), (10, 5, 7, "confirmed")],
        ),
    ],
    ids=["rolled-out", "slowly-rolled-out", "straggler", "rolled-back", "landed-again", "landed-again-with-a-change"],
)  # fmt: skip
def test_an_upgrade_is_a_step_however_it_came_about(tmp_path, capsys, runs, expected):
    assert steps(capsys, write(tmp_path, runs), status=1) == expected


@pytest.mark.parametrize(
    "runs",
    [
        [run for at in range(8) for run in (old(at), new(at))],
        [(new if at % 2 else old)(at) for at in range(12)],
        [run for at in range(10) for run in (old(at), *([new(at)] if at >= 5 else []))],
        [run for at in range(12) for run in (new(at), *([old(at)] if at % 4 == 0 else []))],
        [run for at, own in enumerate(NIGHTLY) for run in (old(at), run_of(at, launched(TEST, SIX), environment=own))],
    ],
    ids=["each-commit", "in-turn", "joined-later", "every-fourth-commit", "each-night-another"],
)
def test_versions_that_are_measured_side_by_side_are_not_compared(tmp_path, capsys, runs):
    assert steps(capsys, write(tmp_path, runs), status=0) == []


def test_a_version_that_leaves_a_matrix_is_compared_with_what_joined_it_later_and_with_no_other(tmp_path, capsys):
    joined = [run for at in range(6) for run in (old(at), *([new(at)] if at >= 3 else []))]
    runs = [*joined, *map(new, range(6, 9))]
    assert steps(capsys, write(tmp_path / "joined", runs), status=1) == [(5, 5, 6, "confirmed")]
    runs = [run for at in range(6) for run in (old(at), new(at))] + [new(at) for at in range(6, 9)]
    assert steps(capsys, write(tmp_path / "there", runs), status=0) == []


def test_a_version_that_lacks_the_newest_commit_alone_has_not_left_the_matrix(tmp_path, capsys):
    runs = [run for at in range(6) for run in (old(at), new(at))] + [new(6)]
    assert steps(capsys, write(tmp_path, runs), status=0) == []


def asked(capsys, folder):
    assert main(["history", "when", str(folder), TEST, "kernels >= 6"]) == 0
    return [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()[2:]]


def test_since_when_a_condition_holds_is_said_for_each_of_the_versions_that_are_side_by_side(tmp_path, capsys):
    runs = [run for at in range(6) for run in (old(at), new(at, SIX if at >= 3 else FIVE))]
    assert asked(capsys, write(tmp_path, runs)) == [
        "kernels >= 6, torch 2.14.0: never, in 6 runs",
        f"kernels >= 6, torch 2.15.0: since {sha(3)[:7]} (2026-01-04); {sha(2)[:7]} before it had 5",
    ]


def test_since_when_a_condition_holds_is_what_the_changes_say_also_where_a_machine_was_late(tmp_path, capsys):
    (line,) = asked(capsys, write(tmp_path, ROLLED_OUT))
    assert line == f"kernels >= 6: since {sha(10)[:7]} (2026-01-11); {sha(9)[:7]} before it had 5"
