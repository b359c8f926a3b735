"""What the newest run was to measure and did not: the gate names it, and people can say that it need not be."""

from __future__ import annotations

import pytest
from histories import H100, launched, run_of, sha, write
from msgspec.structs import replace
from test_history import EVERYWHERE, FIVE, SIX, TEST, changes
from test_history_stopped import said

from pytest_torchprof.cli import main
from pytest_torchprof.history.record import AllTests

pytestmark = pytest.mark.any_torch

OTHER = "test_model.py::test_other"
WITHOUT = AllTests(below=("",), unmeasured=(TEST,))
EPYC, XEON = (replace(H100, gpu=None, cpu=name) for name in ("AMD EPYC 7763", "Intel Xeon 8370C"))


def with_both(at, **facts):
    return run_of(at, launched(TEST, FIVE), launched(OTHER, FIVE), **facts)


def with_other(at, **facts):
    return run_of(at, launched(OTHER, FIVE), **facts)


def gate(capsys, folder, status):
    return changes(capsys, folder, "--fail-on=counts", status=status)


@pytest.mark.parametrize("cpu", [EPYC, XEON], ids=["the same CPU", "another CPU"])
def test_a_test_that_was_lost_on_cpus_lacks_whichever_cpu_the_newest_run_had(tmp_path, capsys, cpu):
    runs = [with_both(at, environment=EPYC) for at in range(4)]
    lost = [with_other(at, environment=cpu, all_tests=WITHOUT) for at in range(4, 9)]
    told = gate(capsys, write(tmp_path, [*runs, *lost]), 3)
    (lacking,) = told["lacking"]
    assert (lacking["test"], lacking["hardware"], lacking["last"]) == (TEST, EPYC.cpu, sha(3))
    assert sum(series["missing"] for series in told["series"]) == 5


def test_a_test_that_runs_on_one_cpu_or_another_lacks_nowhere(tmp_path, capsys):
    runs = [with_both(at, environment=(EPYC, XEON)[at % 3 == 1]) for at in range(9)]
    assert gate(capsys, write(tmp_path, runs), 0)["lacking"] == []


@pytest.mark.parametrize(
    "renamed",
    [
        pytest.param(({"label": "prefill"}, {"label": "decode"}), id="a label"),
        pytest.param(({"rank": 0, "ranks": 2}, {"rank": 0, "ranks": 4}), id="a number of ranks"),
        pytest.param(({"device": "auto"}, {"device": "cuda"}), id="a device"),
    ],
)
def test_what_is_measured_under_another_name_now_is_accepted_by_its_id(tmp_path, capsys, renamed):
    before, now = renamed
    runs = [run_of(at, launched(TEST, FIVE, **(before if at < 4 else now)), all_tests=EVERYWHERE) for at in range(8)]
    folder = write(tmp_path, runs)
    (lacking,) = gate(capsys, folder, 3)["lacking"]
    assert (lacking["last"], lacking["accepted"]) == (sha(3), None)
    shown = said(capsys, 0, "changes", folder)
    assert f"last at {sha(3)[:7]}" in shown
    assert f"[{lacking['id'][:8]}]" in shown
    said(capsys, 0, "accept", folder, lacking["id"][:8], "it has another name now")
    assert gate(capsys, folder, 0)["lacking"][0]["accepted"] == "it has another name now"
    assert "known: it has another name now" in said(capsys, 0, "changes", folder)
    # Once it is measured again, and lacks again, it is another loss.
    again = [run_of(8, launched(TEST, FIVE, **before), all_tests=EVERYWHERE)]
    again.append(run_of(9, launched(TEST, FIVE, **now), all_tests=EVERYWHERE))
    (lacking,) = gate(capsys, write(folder, again), 3)["lacking"]
    assert (lacking["last"], lacking["accepted"]) == (sha(8), None)


def test_of_many_series_that_lack_ten_are_named_and_the_rest_is_counted(tmp_path, capsys):
    many = [launched(f"test_m.py::test_{number:02}", SIX) for number in range(13)]
    folder = write(tmp_path, [run_of(0, *many, launched(OTHER, FIVE)), run_of(1, launched(OTHER, FIVE))])
    assert len(gate(capsys, folder, 3)["lacking"]) == 13
    main(["history", "changes", str(folder)])
    shown = capsys.readouterr().out
    assert [f"::test_{number:02} " in shown for number in (0, 9, 10)] == [True, True, False]
    assert "and 3 more (--json)" in " ".join(shown.split())
