"""Which versions of a history are compared: each row of a schedule is a version, and has its kernels commit by commit."""

from __future__ import annotations

import contextlib
import io
import json
import tempfile
from pathlib import Path

import pytest
from histories import H100, launched, run_of, sha, write
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from test_history import TEST

from pytest_torchprof.cli import main

pytestmark = pytest.mark.any_torch


def versions(name):
    """Return the environment of a version: of Python where it is named, and of torch with the triton that it brings."""
    *python, torch = name.split()
    return replace(H100, torch=torch, triton=f"{torch}.1", python=python[0] if python else "3.12")


def told(schedule):
    """Return the exit status of a gate, and its events: before and after which commit, from how many kernels to how
    many, of which versions, and the state."""
    runs = [
        run_of(commit, launched(TEST, {"gemm": int(kernels)}), environment=versions(name))
        for name, line in schedule.items()
        for commit, kernels in enumerate(line)
        if kernels != "."
    ]
    out = io.StringIO()
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(out):
        status = main(["history", "changes", str(write(Path(folder), runs)), "--json", "--fail-on", "counts"])
    number = {sha(commit): commit for commit in range(100)}
    events = [
        (
            number[change["before"]],
            number[change["after"]],
            "{:.0f} -> {:.0f}".format(*change["numbers"]["kernels"]),
            ", ".join(f"{' -> '.join(event['moved'][name])}" for name in ("python", "torch") if name in event["moved"]),
            change["state"],
        )
        for event in json.loads(out.getvalue())["events"]
        for change in event["tests"]
    ]
    return status, events


def nightly(first, last, step=1, changed=None):
    """Return a nightly build for each of some commits, with another version each time."""
    return {
        f"2.16.0.dev{at}": "." * at + ("7" if changed is not None and at >= changed else "6")
        for at in range(first, last, step)
    }


UPGRADE = "2.10 -> 2.11"
NEXT = "2.11 -> 2.12"
BACK = "2.11 -> 2.10"
COMPARED = {
    "upgrade": ({"2.10": "5555", "2.11": "....6666"}, [(3, 4, "5 -> 6", UPGRADE, "confirmed")]),
    "upgrade-after-which-the-old-is-tried-each-week": (
        {"2.10": "55555555......5......5......5", "2.11": "........666666666666666666666"},
        [(7, 8, "5 -> 6", UPGRADE, "confirmed")],
    ),
    "upgrade-of-the-newest-run": ({"2.10": "5555", "2.11": "....6"}, [(3, 4, "5 -> 6", UPGRADE, "latest")]),
    "upgrade-with-both-at-a-commit": (
        {"2.10": "55555", "2.11": "....6666"},
        [(4, 4, "5 -> 6", UPGRADE, "confirmed")],
    ),
    "upgrade-with-both-at-several-commits": (
        {"2.10": "5555555", "2.11": "....66666666"},
        [(6, 6, "5 -> 6", UPGRADE, "confirmed")],
    ),
    "upgrade-and-a-change-of-one-version-beside-the-other": (
        {"2.10": "555555555", "2.11": "....66555555555"},
        [(5, 6, "6 -> 5", "", "confirmed")],
    ),
    "rolled-back": (
        {"2.10": "5555..5555", "2.11": "....66"},
        [(3, 4, "5 -> 6", UPGRADE, "undone"), (5, 6, "6 -> 5", BACK, "confirmed")],
    ),
    "rolled-back-at-a-commit-of-both": (
        {"2.10": "5555..5555", "2.11": "....666"},
        [(3, 4, "5 -> 6", UPGRADE, "undone"), (6, 6, "6 -> 5", BACK, "confirmed")],
    ),
    "rolled-back-once-and-landed": (
        {"2.10": "5555..55", "2.11": "....66..66666"},
        [
            (3, 4, "5 -> 6", UPGRADE, "undone"),
            (5, 6, "6 -> 5", BACK, "undone"),
            (7, 8, "5 -> 6", UPGRADE, "confirmed"),
        ],
    ),
    "rolled-back-twice-and-landed": (
        {"2.10": "5555..55..55", "2.11": "....66..66..66666"},
        [
            (3, 4, "5 -> 6", UPGRADE, "undone"),
            (5, 6, "6 -> 5", BACK, "undone"),
            (7, 8, "5 -> 6", UPGRADE, "undone"),
            (9, 10, "6 -> 5", BACK, "undone"),
            (11, 12, "5 -> 6", UPGRADE, "confirmed"),
        ],
    ),
    "rolled-back-three-times-and-landed": (
        {"2.10": "5555..55..55..55", "2.11": "....66..66..66..666666"},
        [
            *((at, at + 1, "5 -> 6", UPGRADE, "undone") for at in range(3, 15, 4)),
            (15, 16, "5 -> 6", UPGRADE, "confirmed"),
            *((at, at + 1, "6 -> 5", BACK, "undone") for at in range(5, 15, 4)),
        ],
    ),
    "a-run-of-each-by-turns-and-landed": (
        {"2.10": "5555.5.5", "2.11": "....6.6.66666"},
        [(7, 8, "5 -> 6", UPGRADE, "confirmed")],
    ),
    "matrix-that-moves-on-in-one-step": (
        {"3.11 2.10": "5555", "3.12 2.10": "6666", "3.11 2.11": "....5555", "3.12 2.11": "....7777"},
        [(3, 4, "6 -> 7", UPGRADE, "confirmed")],
    ),
    "matrix-that-moves-on-in-two-steps": (
        {"3.11 2.10": "5555", "3.12 2.10": "666666", "3.11 2.11": "....55555", "3.12 2.11": "......777"},
        [(5, 6, "6 -> 7", UPGRADE, "confirmed")],
    ),
    "matrix-that-moves-on-with-different-pauses": (
        {"3.11 2.10": "5555", "3.12 2.10": "6666", "3.11 2.11": "....555555", "3.12 2.11": ".......777"},
        [(3, 7, "6 -> 7", UPGRADE, "confirmed")],
    ),
    "matrix-that-moves-on-with-overlaps": (
        {"3.11 2.10": "5555555", "3.12 2.10": "666666666", "3.11 2.11": "." * 5 + "5" * 11, "3.12 2.11": "." * 7 + "7" * 9},
        [(8, 8, "6 -> 7", UPGRADE, "confirmed")],
    ),
    "matrix-of-which-one-moves-on-twice": (
        {"3.11 2.10": "5" * 12, "3.12 2.10": "6666", "3.12 2.11": "....6666", "3.12 2.12": "........7777"},
        [(7, 8, "6 -> 7", NEXT, "confirmed")],
    ),
    "window-that-moves-on": (
        {"2.10": "5555", "2.11": "66666666", "2.12": "....5555"},
        [(4, 4, "6 -> 5", NEXT, "confirmed")],
    ),
    "window-that-moves-on-often": (
        {"2.9": "6666", "2.10": "66666666", "2.11": "....66666666", "2.12": "........777777"},
        [(8, 8, "6 -> 7", NEXT, "confirmed")],
    ),
    "matrix-whose-window-moves-on": (
        {
            "3.11 2.10": "5555", "3.11 2.11": "66666666", "3.11 2.12": "....6666",
            "3.12 2.10": "77777", "3.12 2.11": "77777777", "3.12 2.12": ".....888",
        },
        [(5, 5, "7 -> 8", NEXT, "confirmed")],
    ),
    "matrix-that-begins": (
        {"2.10": "5555", "2.11": "....6666", "2.12": "....7777"},
        [(3, 4, "5 -> 6", UPGRADE, "confirmed"), (3, 4, "5 -> 7", "2.10 -> 2.12", "confirmed")],
    ),
    "nightly-builds": (
        {"2.10": "5" * 10, **nightly(0, 10, changed=6)},
        [(5, 6, "6 -> 7", "2.16.0.dev5 -> 2.16.0.dev6", "confirmed")],
    ),
    "nightly-builds-that-joined": (
        {"2.10": "5" * 10, **nightly(3, 10, changed=6)},
        [(5, 6, "6 -> 7", "2.16.0.dev5 -> 2.16.0.dev6", "confirmed")],
    ),
    "nightly-builds-of-few-commits": (
        {"2.10": "5" * 20, **nightly(1, 20, 3, changed=10)},
        [(7, 10, "6 -> 7", "2.16.0.dev7 -> 2.16.0.dev10", "confirmed")],
    ),
    "upgrade-beside-nightly-builds": (
        {"2.10": "55555", "2.11": ".....88888", **nightly(0, 10)},
        [(4, 5, "5 -> 8", UPGRADE, "confirmed")],
    ),
    "upgrade-beside-a-newer-version": (
        {"2.10": "555555555", "2.11": ".........88888", "2.12": "....6666666666"},
        [(8, 9, "5 -> 8", UPGRADE, "confirmed")],
    ),
    "upgrade-after-a-trial-of-its-candidate": (
        {"2.10": "555555555", "2.11": ".........88888", "2.11.0rc1": ".......6"},
        [(8, 9, "5 -> 8", UPGRADE, "confirmed")],
    ),
    "upgrade-to-what-was-tried-before": (
        {"2.10": "5" * 10, "2.11": "..66......66666"},
        [(9, 10, "5 -> 6", UPGRADE, "confirmed")],
    ),
    "upgrade-of-one-after-the-other-was-rolled-back": (
        {"2.10": "5555..555", "2.11": "....55", "2.12": ".........666"},
        [(8, 9, "5 -> 6", "2.10 -> 2.12", "confirmed")],
    ),
    "rolled-back-after-a-trial-of-another": (
        {"2.10": "555555..5555", "2.11": "......66", "2.12": "...6"},
        [(5, 6, "5 -> 6", UPGRADE, "undone"), (7, 8, "6 -> 5", BACK, "confirmed")],
    ),
    "matrix-that-moves-on-with-pauses-of-all": (
        {
            "3.11 2.10": "555", "3.12 2.10": "66666", "3.13 2.10": "7777",
            "3.11 2.11": ".....55555", "3.12 2.11": ".......666", "3.13 2.11": "....888888",
        },
        [(3, 4, "7 -> 8", UPGRADE, "confirmed")],
    ),
    "change-of-one-version-where-the-other-ends": (
        {"2.10": "5555555", "2.11": "....66555555"},
        [(5, 6, "6 -> 5", "", "confirmed")],
    ),
    "upgrade-to-the-release-of-nightly-builds": (
        {"2.10": "55555", "2.16.0": ".....88888", **nightly(0, 10, 2, changed=6)},
        [
            (4, 5, "5 -> 8", "2.10 -> 2.16.0", "confirmed"),
            (4, 6, "6 -> 7", "2.16.0.dev4 -> 2.16.0.dev6", "confirmed"),
        ],
    ),
    "matrix-of-which-one-moves-on-to-what-the-other-has": (
        {"3.11 2.10": "5555", "3.12 2.9": "666", "3.12 2.10": "...7"},
        [(2, 3, "6 -> 7", "2.9 -> 2.10", "latest")],
    ),
    "matrix-of-which-the-other-moved-on-a-commit-before": (
        {"3.11 2.10": "55", "3.11 2.11": "..66", "3.12 2.10": "7777", "3.12 2.11": "...8"},
        [(1, 2, "5 -> 6", UPGRADE, "confirmed"), (3, 3, "7 -> 8", UPGRADE, "latest")],
    ),
    "matrix-that-moves-on-and-grows": (
        {"3.11 2.9": "55", "3.11 2.10": "..66", "3.12 2.10": "7777", "3.12 2.11": "..88"},
        [(1, 2, "5 -> 6", "2.9 -> 2.10", "confirmed")],
    ),
    "nightly-build-of-one-python-of-a-matrix": (
        {"3.11 2.10": "5555", "3.12 2.9": "6666", "3.12 2.16.0.dev3": "...7"},
        [(3, 3, "6 -> 7", "2.9 -> 2.16.0.dev3", "latest")],
    ),
    "nightly-builds-beside-two-pythons": (
        {"3.11 2.10": "55555", "3.12 2.10": "66666", **nightly(1, 5, changed=4)},
        [(3, 4, "6 -> 7", "2.16.0.dev3 -> 2.16.0.dev4", "latest")],
    ),
    "nightly-builds-that-begin-with-an-upgrade": (
        {"3.11 2.10": "55", "3.11 2.11": "..666", **nightly(2, 5, changed=9)},
        [
            (1, 2, "5 -> 6", UPGRADE, "confirmed"),
            (1, 2, "5 -> 6", "3.11 -> 3.12, 2.10 -> 2.16.0.dev2", "confirmed"),
        ],
    ),
    "trial-that-begins-with-an-upgrade": (
        {"3.11 2.10": "555555", "3.11 2.11": "......777", "3.12 2.16.0.dev1": "......6"},
        [(5, 6, "5 -> 7", UPGRADE, "confirmed")],
    ),
    "upgrade-after-an-overlap-and-a-nightly-build": (
        {"2.9": "55555555", "2.10": "......66666", "2.11": "...........7", "2.16.0.dev1": "...........8"},
        [
            (7, 7, "5 -> 6", "2.9 -> 2.10", "confirmed"),
            (10, 11, "6 -> 7", "2.10 -> 2.11", "latest"),
            (10, 11, "6 -> 8", "2.10 -> 2.16.0.dev1", "latest"),
        ],
    ),
    "upgrade-of-what-ended-with-the-version-beside-it": (
        {"2.10": "5555", "2.11": "..66", "2.12": "....7"},
        [(3, 4, "6 -> 7", NEXT, "latest")],
    ),
    "change-of-the-code-in-a-matrix": (
        {"3.11 2.10": "5566", "3.12 2.10": "7788", "3.11 2.11": "....6666", "3.12 2.11": "....8888"},
        [(1, 2, "5 -> 6", "", "confirmed"), (1, 2, "7 -> 8", "", "confirmed")],
    ),
}  # fmt: skip
ALONE = {
    "run-of-a-developer": {"2.10": "5" * 8, "2.16.0.dev1": "...6"},
    "runs-of-a-developer": {"2.10": "5" * 8, "2.16.0.dev1": "...6.6"},
    "runs-of-a-developer-between-the-others": {"2.10": "555.5.55", "2.16.0.dev1": "...6.6"},
    "nightly-build-that-is-given-up": {"2.10": "5" * 12, "2.16.0.dev1": "...66666"},
    "nightly-builds-that-are-given-up": {"2.10": "5" * 12, **nightly(3, 8)},
    "trial-while-the-others-are-upgraded": {"2.10": "5555", "2.11": "....55555", "2.16.0.dev1": "....66"},
    "matrix-of-which-one-is-dropped": {"2.10": "5555", "2.11": "66666666"},
    "matrix-that-grows": {"2.10": "5" * 10, "2.11": "....666666"},
    "matrix-of-which-one-is-dropped-that-grows": {"2.10": "5555", "2.11": "6" * 20, "2.12": "." * 15 + "7" * 5},
    "matrix-that-moves-on": {"3.11 2.10": "55", "3.12 2.10": "66", "3.11 2.11": "..55", "3.12 2.11": "..66"},
    "matrix-that-is-about-to-move-on": {
        "3.11 2.10": "5" * 18, "3.12 2.10": "6" * 14, "3.13 2.10": "7" * 17,
        "3.11 2.11": "." * 16 + "55", "3.12 2.11": "." * 14 + "6666", "3.13 2.11": "." * 14 + "7777",
    },
    "trial-before-a-matrix-grows": {"3.11 2.10": "55555", "3.11 2.11": "...66", "3.12 2.16.0.dev1": "..7"},
    "trial-at-a-commit-that-a-nightly-build-lacks": {"2.9": "...6", "2.12": "55555555", "2.16.0.dev2": "777.7777"},
    "by-turns": {"2.10": "5.5.5.5.5.", "2.11": ".6.6.6.6.6"},
}  # fmt: skip


@pytest.mark.parametrize(("schedule", "expected"), COMPARED.values(), ids=COMPARED)
def test_a_version_is_compared_with_the_one_that_it_replaces(schedule, expected):
    status, events = told(schedule)
    assert sorted(events) == sorted(expected)
    assert status == 1


@pytest.mark.parametrize("schedule", [schedule for schedule, _ in COMPARED.values()], ids=COMPARED)
def test_versions_that_launch_alike_are_no_change(schedule):
    alike = {name: "".join(own if own == "." else "5" for own in line) for name, line in schedule.items()}
    assert told(alike) == (0, [])


@pytest.mark.parametrize("schedule", ALONE.values(), ids=ALONE)
def test_a_version_beside_those_that_go_on_is_compared_with_none(schedule):
    assert told(schedule) == (0, [])


TORCH = ["2.9", "2.10", "2.11", "2.12"]


@st.composite
def matrices(draw):
    """Return when each Python of a matrix moved on to each next torch, and how many commits there are."""
    length = st.integers(3, 6)
    moves = draw(st.lists(length, min_size=1, max_size=3))
    lags = draw(st.lists(st.lists(st.integers(0, 2), min_size=len(moves), max_size=len(moves)), min_size=1, max_size=3))
    commits = sum(moves) + 4
    begins = [[0, *(sum(moves[: at + 1]) + own[at] for at in range(len(moves)))] for own in lags]
    return begins, commits


def scheduled(begins, commits, kernels):
    """Return the schedule of a matrix in which each commit is measured with each Python."""
    schedule = {}
    for python, own in enumerate(begins):
        for torch, (begin, end) in enumerate(zip(own, [*own[1:], commits], strict=True)):
            line = [str(kernels(python, torch, at)) for at in range(begin, min(end, commits))]
            if line:
                schedule[f"3.{11 + python} {TORCH[torch]}"] = "." * begin + "".join(line)
    return schedule


@settings(max_examples=40)
@given(matrices(), st.data())
def test_a_matrix_whose_versions_move_on_is_quiet_at_each_of_its_commits(matrix, data):
    begins, commits = matrix
    # Of one commit alone nobody knows whether a version replaced another.
    until = data.draw(st.integers(2, commits))
    assert told(scheduled(begins, until, lambda python, *_: 5 + python)) == (0, [])


@settings(max_examples=40)
@given(matrices(), st.data())
def test_what_one_version_of_a_matrix_launches_is_named_where_it_came(matrix, data):
    begins, commits = matrix
    own = data.draw(st.integers(0, len(begins) - 1))
    since = data.draw(st.integers(1, len(begins[own]) - 1))
    schedule = scheduled(begins, commits, lambda python, torch, _: 5 + python + (python == own and torch >= since))
    begin = begins[own][since]
    status, ((before, after, numbers, moved, _),) = told(schedule)
    assert (status, before, after, numbers) == (1, begin - 1, begin, f"{5 + own} -> {6 + own}")
    assert moved == f"{TORCH[since - 1]} -> {TORCH[since]}"


@settings(max_examples=40)
@given(matrices(), st.data())
def test_a_change_of_the_code_is_named_with_each_version_that_was_measured_on_both_sides(matrix, data):
    begins, commits = matrix
    moved = {begin for own in begins for begin in own}
    changed = data.draw(st.sampled_from([at for at in range(1, commits) if at not in moved]))
    schedule = scheduled(begins, commits, lambda python, _, at: 5 + python + (at >= changed))
    status, events = told(schedule)
    assert status == 1
    assert {event[:4] for event in events} == {
        (changed - 1, changed, f"{5 + own} -> {6 + own}", "") for own in range(len(begins))
    }
