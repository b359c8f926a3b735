"""What of a run stays in the folder of its recordings: figures of all of it, whole recordings of what failed or changed."""

from __future__ import annotations

import pytest

from pytest_torchprof.history.record import read

pytestmark = pytest.mark.any_torch

TESTS = """
import os

@pytest.mark.torchprof(device="cpu", max_kernels=9)
def test_steady():
    torch.mm(x, x)

@pytest.mark.torchprof(device="cpu", max_kernels=9)
def test_grows():
    torch.mm(x, x)
    if "GROWN" in os.environ:
        x + x

@pytest.mark.torchprof(device="cpu", max_kernels=0)
def test_fails():
    torch.mm(x, x)
"""


@pytest.fixture
def kept(pytester, run_tests):
    """Return a function that runs the tests, and returns whose recordings are new in the folder afterwards."""
    folder = pytester.path / "kept"

    def run(*options):
        for old in folder.glob("*.json.gz"):
            old.unlink()
        run_tests(TESTS, "--torchprof-save=kept", *options)
        return {path.name.split(".")[1] for path in folder.glob("*.json.gz") if ".stacks." not in path.name}

    run.records = lambda: [read(path) for path in sorted((folder / "figures").glob("*.run.json.gz"))]
    return run


EVERY = {"test_steady", "test_grows", "test_fails"}


def test_without_a_word_every_recording_stays_and_no_record(kept):
    assert kept() == EVERY
    assert kept.records() == []


def test_all_keeps_every_recording_and_the_record_of_the_run(kept):
    assert kept("--torchprof-keep=all") == EVERY
    (record,) = kept.records()
    assert {measured.test.rpartition(":")[2] for measured in record.measurements} == EVERY
    assert {measured.counts["kernels"] for measured in record.measurements} == {1}


def test_figures_keeps_the_record_alone(kept, pytester):
    assert kept("--torchprof-keep=figures") == set()
    (record,) = kept.records()
    assert len(record.measurements) == 3
    # As in every run without a folder of its own.
    assert [path.name.split(".")[1] for path in (pytester.path / ".torchprof").glob("*.json.gz")][:1] == ["test_fails"]


def test_the_figures_of_a_measurement_are_a_fraction_of_a_kilobyte(pytester, run_tests):
    source = """
@pytest.mark.parametrize("n", range(20))
@pytest.mark.torchprof(device="cpu", max_kernels=90)
def test_many(n):
    for _ in range(n):
        torch.nn.functional.layer_norm(x @ x, (x.shape[-1],)).softmax(-1)
"""
    run_tests(source, "--torchprof-save=kept", "--torchprof-keep=all")
    (record,) = (pytester.path / "kept" / "figures").glob("*.run.json.gz")
    recordings = list((pytester.path / "kept").glob("*.json.gz"))
    assert record.stat().st_size < 20 * 1000
    assert record.stat().st_size * 5 < sum(path.stat().st_size for path in recordings)


def test_changed_keeps_what_has_no_figures_yet_then_what_failed_and_then_what_changed_too(kept, monkeypatch):
    assert kept("--torchprof-keep=changed") == EVERY
    assert kept("--torchprof-keep=changed") == {"test_fails"}
    monkeypatch.setenv("GROWN", "1")
    assert kept("--torchprof-keep=changed") == {"test_fails", "test_grows"}
    assert kept("--torchprof-keep=changed") == {"test_fails"}
    assert len(kept.records()) == 4


def test_changed_goes_by_the_baseline_where_there_is_one(kept, monkeypatch):
    kept("--torchprof-baseline=update", "--torchprof-keep=figures")
    assert kept("--torchprof-keep=changed") == {"test_fails"}
    monkeypatch.setenv("GROWN", "1")
    assert kept("--torchprof-keep=changed") == {"test_fails", "test_grows"}
    # It is as in the run before, and still not as its baseline says.
    assert kept("--torchprof-keep=changed") == {"test_fails", "test_grows"}


def test_workers_leave_one_record(kept):
    pytest.importorskip("xdist")
    assert kept("--torchprof-keep=figures", "-n2") == set()
    (record,) = kept.records()
    assert len(record.measurements) == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--torchprof-keep=changed"], "*--torchprof-save=DIR*"),
        (["--torchprof-save=kept", "--torchprof-keep=some"], "*--torchprof-keep: expected figures, changed*'some'*"),
    ],
)
def test_what_cannot_be_kept_is_refused(run_tests, options, message):
    result = run_tests(TESTS, *options)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([message])
