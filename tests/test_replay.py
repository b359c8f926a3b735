"""Recordings that are kept, and judged again without running the measured code."""

from __future__ import annotations

import gzip
import json

import pytest
from facts import reasons_in, says

from pytest_torchprof.reasons.adopting import NothingToReplay
from pytest_torchprof.reasons.run_options import SaveAndReplay
from pytest_torchprof.reasons.skips import LookedAtNumber, ReplayHasNoResult
from pytest_torchprof.reasons.unreadable import InPerfettosFormat
from pytest_torchprof.reasons.whole_runs import NoRecordingJudged

MEASURED = """
@pytest.mark.torchprof(device="cpu", max_kernels=2)
def test_body():
    torch.add(torch.mm(x, x), x)

@pytest.mark.torchprof(device="cpu")
def test_fixture(torchprof):
    profile = torchprof(torch.mm, x, x)
    with torchprof.measure("block") as m:
        for _ in m.steps():
            torch.sin(x)
    assert m.profile.kernels.names == ["aten::sin"]
    assert profile.kernels.names == ["aten::mm"]
"""
FORBIDDEN = (
    MEASURED.replace("torch.add(", "pytest.exit(")
    .replace("torch.sin(x)", "pytest.exit('ran')")
    .replace("torch.mm, x", "pytest.exit, x")
)


def numbers(path):
    report = json.loads(path.read_text())
    return [(entry["nodeid"], entry["label"], entry["outcome"], entry["summary"]) for entry in report["results"]]


def test_live_saved_and_replayed_numbers_agree_and_the_code_is_not_run(run_tests, pytester):
    live = run_tests(MEASURED, "--torchprof-save=kept", "--torchprof-report=live.json")
    live.assert_outcomes(passed=2)
    assert len(list((pytester.path / "kept").glob("*.json.gz"))) == 3
    replayed = run_tests(FORBIDDEN, "--torchprof-replay=kept", "--torchprof-report=replayed.json")
    replayed.assert_outcomes(passed=2)
    assert numbers(pytester.path / "live.json") == numbers(pytester.path / "replayed.json")


def test_a_changed_limit_is_tried_against_a_recording(run_tests):
    run_tests(MEASURED, "--torchprof-save=kept").assert_outcomes(passed=2)
    result = run_tests(FORBIDDEN.replace("max_kernels=2", "max_kernels=1"), "--torchprof-replay=kept")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*max_kernels=1*2 kernels*", "*recording: kept*test_it.test_body*"])


def test_saved_recordings_open_as_ordinary_traces(run_tests, pytester):
    run_tests(MEASURED, "--torchprof-save=kept")
    for path in (pytester.path / "kept").iterdir():
        with gzip.open(path, "rt") as file:
            recording = json.load(file)
        assert recording["traceEvents"]
        assert recording["torchprof"]["nodeid"].startswith("test_it.py::test_")
        assert recording["torchprof"]["calls"] == 8


def test_a_missing_recording_is_an_error_that_says_how_to_make_it(run_tests, pytester):
    run_tests(MEASURED, "--torchprof-save=kept")
    for path in (pytester.path / "kept").glob("*test_body*"):
        path.unlink()
    result = run_tests(FORBIDDEN, "--torchprof-replay=kept", "--torchprof-report=out.json")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*--torchprof-save=*[[]replay-missing[]]*"])
    (reason,) = reasons_in(pytester.path / "out.json")
    folder = str(pytester.path / "kept")
    assert says(reason, NothingToReplay, test="test_it.py::test_body", label=None, folder=folder, ranks=())


def test_a_recording_of_another_test_is_an_error(run_tests, pytester):
    run_tests(MEASURED, "--torchprof-save=kept")
    kept = pytester.path / "kept"
    body, other = next(kept.glob("*test_body*")), next(kept.glob("*test_fixture*"))
    other.replace(body)
    result = run_tests(FORBIDDEN, "--torchprof-replay=kept", "-k", "test_body")
    result.assert_outcomes(failed=1, deselected=1)
    result.stdout.fnmatch_lines(["*test_it.py::test_fixture*test_it.py::test_body*replay-mismatch*"])


def test_a_recording_in_perfettos_own_format_is_not_measured_and_says_what_to_do(run_tests, pytester):
    run_tests(MEASURED, "--torchprof-save=out")
    for kept in pytester.path.glob("out/*.gz"):
        # A packet of Perfetto's, as torch 2.14 writes it where its name asks for it.
        kept.write_bytes(b"\n\x02\x50\x01")
    result = run_tests(FORBIDDEN, "--torchprof-replay=out")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert InPerfettosFormat().sentence in " ".join(result.stdout.str().split())


def test_recordings_that_no_test_judged_are_listed(run_tests):
    run_tests(MEASURED, "--torchprof-save=kept")
    result = run_tests(FORBIDDEN, "--torchprof-replay=kept", "-k", "test_body")
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["recordings that no test judged: *test_fixture*"])


def test_a_replay_that_judged_nothing_does_not_exit_with_zero(run_tests, pytester):
    (pytester.path / "kept").mkdir()
    result = run_tests(
        "def test_other(): pass\n@cpu\n@pytest.mark.skip\ndef test_a(): pass\n", "--torchprof-replay=kept"
    )
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert str(NoRecordingJudged(str(pytester.path / "kept"))) in result.stdout.str()


def test_a_replay_without_any_torchprof_test_does_not_exit_with_zero(run_tests, pytester):
    (pytester.path / "kept").mkdir()
    result = run_tests("def test_other(): pass\n", "--torchprof-replay=kept")
    assert result.ret == pytest.ExitCode.TESTS_FAILED


def test_the_result_of_a_replay_skips_the_rest(run_tests):
    source = """
@cpu
def test_result(torchprof):
    profile = torchprof(torch.mm, x, x)
    assert profile.kernels.count == 1
    assert profile.result.sum() == 512
"""
    run_tests(source, "--torchprof-save=kept").assert_outcomes(passed=1)
    result = run_tests(source, "--torchprof-replay=kept", "-rs")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines([f"*{LookedAtNumber(ReplayHasNoResult(), 'result')}*"])


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--torchprof-save=a", "--torchprof-replay=."], str(SaveAndReplay())),
        (["--torchprof-replay=nowhere"], "nowhere is no folder"),
        (
            ["--torchprof-baseline=updat"],
            "--torchprof-baseline: expected compare, update, add, strict, off or update,times, got 'updat'",
        ),
        (["--torchprof-steps=0"], "from 1, got '0' [bad-option]"),
        (["--torchprof-device=gpu"], "--torchprof-device: expected auto, cpu, cuda or cuda:N, got 'gpu'"),
        (["--torchprof=maybe"], "--torchprof: expected on or off"),
        (
            ["--torchprof-report=report.pdf"],
            "; known are: .benchmark.json, .bmf.json, .csv, .html, .json, .jsonl, .md, .pytorch.json [bad-option]",
        ),
    ],
)
def test_options_that_cannot_be_meant_are_usage_errors(run_tests, args, words):
    result = run_tests("@cpu\ndef test_a(): torch.add(x, x)\n", *args)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert words in result.stderr.str() + result.stdout.str()


@pytest.mark.parametrize("args", [["--torchprof-report=x.xml"], ["-o", "torchprof_thresholds=nothing=1"]])
def test_they_are_usage_errors_of_a_run_with_workers_too(run_tests, args):
    result = run_tests("@cpu\ndef test_a(): torch.add(x, x)\n", "-n1", *args)
    said = result.stderr.str() + result.stdout.str()
    assert result.ret == pytest.ExitCode.USAGE_ERROR, said
    assert "[bad-option]" in said
    assert "INTERNALERROR" not in said


def test_failed_measurements_are_kept_and_replaced_at_the_next_run(run_tests, pytester):
    kept = pytester.path / ".torchprof"
    failing = "@pytest.mark.torchprof(device='cpu', max_kernels=0)\ndef test_{}(): torch.add(x, x)\n"
    run_tests(failing.format("first")).assert_outcomes(failed=1)
    assert [path.name.split(".")[1] for path in kept.glob("*.json.gz")] == ["test_first"] * 2
    assert (kept / ".gitignore").read_text() == "*\n"
    run_tests(failing.format("second")).assert_outcomes(failed=1)
    assert [path.name.split(".")[1] for path in kept.glob("*.json.gz")] == ["test_second"] * 2
    run_tests(failing.format("third").replace("max_kernels=0", "max_kernels=1")).assert_outcomes(passed=1)
    assert not list(kept.glob("*.json.gz"))


def test_test_ids_of_any_shape_stay_inside_the_folder(run_tests, pytester):
    source = """
IDS = ["../../up", "a/b", "x" * 300, "\\u00fc\\u4e2d", "a b", "A B", "a-b", "con:*?", "-rf", "..", "\\x1b[31m"]
@pytest.mark.torchprof(device="cpu", max_kernels=1, steps=1, warmup=0)
@pytest.mark.parametrize("n", IDS, ids=IDS)
def test_id(n):
    torch.add(x, x)
"""
    run_tests(source, "--torchprof-save=deep/kept").assert_outcomes(passed=11)
    files = set(pytester.path.rglob("*.json.gz"))
    assert len(files) == 11
    assert {path.parent for path in files} == {pytester.path / "deep" / "kept"}
    run_tests(source, "--torchprof-replay=deep/kept").assert_outcomes(passed=11)


def test_in_a_replay_the_device_is_what_this_machine_has(run_tests, pytester):
    source = """
@pytest.mark.torchprof(device={!r})
def test_device(torchprof):
    torchprof(torch.mm, x.to(torchprof.device), x)
"""
    run_tests(source.format("cpu"), "--torchprof-save=kept").assert_outcomes(passed=1)
    run_tests(source.format("auto"), "--torchprof-replay=kept").assert_outcomes(passed=1)
    result = run_tests(source.format("cuda"), "--torchprof-replay=kept")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*not measured: *on the cpu*cuda*[[]replay-mismatch]*"])


def test_a_recording_of_the_cpu_as_device_is_judged_so_wherever_it_is_replayed(run_tests):
    source = "@pytest.mark.torchprof(max_kernels={})\ndef test_a(): torch.sin(x)\n"
    run_tests(source.format(1), "--torchprof-device=cpu", "--torchprof-save=kept").assert_outcomes(passed=1)
    run_tests(source.format(1), "--torchprof-replay=kept").assert_outcomes(passed=1)
    run_tests(source.format(0), "--torchprof-replay=kept").assert_outcomes(failed=1)


def test_a_replay_that_could_only_skip_does_not_exit_with_zero(run_tests):
    if __import__("torch").cuda.is_available():
        pytest.skip("needs a machine without a GPU")
    source = "@pytest.mark.torchprof(max_kernels=1)\ndef test_a(): torch.sin(x)\n"
    run_tests(source, "--torchprof-save=kept").assert_outcomes(skipped=1)
    result = run_tests(source, "--torchprof-replay=kept")
    result.assert_outcomes(skipped=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED


def test_saving_into_a_file_is_a_usage_error(run_tests, pytester):
    (pytester.path / "file").write_text("")
    result = run_tests("@cpu\ndef test_a(): torch.sin(x)\n", "--torchprof-save=file/kept")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "file is a file;" in result.stderr.str() + result.stdout.str()


STOPPED = """
import os
@cpu
def test_it(torchprof):
    for label in os.environ["LABELS"].split():
        assert label != "stop"
        with torchprof.measure(label, max_kernels=1) as m:
            for _ in m.steps(): torch.add(x, x)

@cpu
def test_it_too(torchprof):
    torchprof(torch.add, x, x)
"""


def test_a_run_that_saves_leaves_no_earlier_recording_of_a_test_that_failed_in_it(run_tests, pytester, monkeypatch):
    monkeypatch.setenv("LABELS", "a b")
    run_tests(STOPPED, "--torchprof-save=kept").assert_outcomes(passed=2)
    monkeypatch.setenv("LABELS", "a stop b")
    run_tests(STOPPED, "--torchprof-save=kept", "-k", "not too").assert_outcomes(failed=1)
    assert sorted(path.name.split(".")[1] for path in pytester.path.glob("kept/*")) == ["test_it-a", "test_it_too"]


def test_a_run_that_saves_leaves_the_recordings_of_a_test_that_is_skipped(run_tests, pytester):
    source = "@cpu\ndef test_it():\n    torch.add(x, x)\n"
    run_tests(source, "--torchprof-save=kept").assert_outcomes(passed=1)
    run_tests('@pytest.mark.skip("no GPU")\n' + source, "--torchprof-save=kept").assert_outcomes(skipped=1)
    assert len(list(pytester.path.glob("kept/*"))) == 1


MISSED = """
@pytest.mark.torchprof(device="cpu", max_kernels=0)
def test_it():
    torch.sin(x)
"""


def test_nothing_is_written_or_removed_through_links_of_a_checkout(run_tests, pytester):
    outside = pytester.mkdir("outside")
    (outside / "mine.json.gz").write_text("kept")
    (pytester.path / ".torchprof").symlink_to(outside)
    (pytester.path / "torchprof-recordings").symlink_to(outside)
    (pytester.path / "r.md").symlink_to(outside / "mine.json.gz")
    result = run_tests(MISSED, "--torchprof-report=r.md")
    result.assert_outcomes(failed=1)
    assert {path.name: path.read_text() for path in outside.iterdir()} == {"mine.json.gz": "kept"}
    result.stdout.fnmatch_lines(["*.torchprof*[[]recording-not-written]"])


def test_a_link_in_the_folder_of_failures_is_not_written_through(run_tests, pytester):
    victim = pytester.path / "victim"
    victim.write_text("kept")
    pytester.mkdir(".torchprof").joinpath(".gitignore").symlink_to(victim)
    run_tests(MISSED).assert_outcomes(failed=1)
    assert victim.read_text() == "kept"
