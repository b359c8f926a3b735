"""The record that a real run leaves: each fact in it is what the run, git, the CI service and torch say."""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import textwrap
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from msgspec.structs import replace

from pytest_torchprof.history.machines import machine_of
from pytest_torchprof.history.record import SUFFIX, read
from pytest_torchprof.reasons.disturbances import Brake, SlowedDown
from pytest_torchprof.report.outcome import BaselineState, Outcome
from pytest_torchprof.trace.metadata import Environment

pytestmark = pytest.mark.any_torch

MEASURED = "import torch\n@cpu\ndef test_it(): torch.mm(torch.ones(4, 4), torch.ones(4, 4))"
HISTORY = "--torchprof-history=kept"


def only_record(folder="kept"):
    (file,) = Path(folder).glob(f"*{SUFFIX}")
    return read(file)


def content_of(folder="kept"):
    (file,) = Path(folder).glob(f"*{SUFFIX}")
    return gzip.decompress(file.read_bytes()).decode()


def git(folder, *words, told=None, **variables):
    settings = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "init.defaultBranch=main")
    done = subprocess.run(
        ["git", *settings, *words],
        cwd=folder,
        env={**os.environ, **variables},
        input=told,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


# --------------------------------------------------------------------------------------------- the run and its CI job


@pytest.mark.parametrize(
    ("variables", "event", "job"),
    [
        pytest.param(
            {
                "GITHUB_ACTIONS": "true",
                "GITHUB_EVENT_NAME": "push",
                "GITHUB_RUN_ID": "771",
                "GITHUB_RUN_ATTEMPT": "3",
                "GITHUB_JOB": "gate",
            },
            "push",
            ("github", "771", "3", "gate"),
            id="push",
        ),
        pytest.param(
            {
                "GITLAB_CI": "true",
                "CI_PIPELINE_SOURCE": "merge_request_event",
                "CI_PIPELINE_ID": "88",
                "CI_JOB_ID": "9",
            },
            "pr",
            ("gitlab", "88", None, "9"),
            id="pull request",
        ),
        pytest.param(
            {
                "BUILDKITE": "true",
                "BUILDKITE_SOURCE": "schedule",
                "BUILDKITE_BUILD_ID": "b",
                "BUILDKITE_RETRY_COUNT": "1",
                "BUILDKITE_JOB_ID": "j",
            },
            "schedule",
            ("buildkite", "b", "1", "j"),
            id="schedule",
        ),
        pytest.param({}, "local", None, id="local"),
    ],
)
def test_a_run_records_what_started_it_and_the_job_that_it_is(run_tests, monkeypatch, variables, event, job):
    for name in ("GITLAB_CI", "BUILDKITE", "TF_BUILD", "CIRCLECI", "JENKINS_URL"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    run_tests(MEASURED, HISTORY).assert_outcomes(passed=1)
    record = only_record()
    assert record.event == event
    own = record.ci
    assert job == (None if own is None else (own.provider, own.run, own.attempt, own.job))


STAMPED = """
import time
from pathlib import Path

@cpu
def test_it(torchprof):
    stamps = [time.time()]
    torchprof(torch.sin, x)
    Path("ran").write_text(f"{stamps[0]} {time.time()}")
"""


def test_a_run_began_before_its_tests_and_ended_after_them(run_tests):
    before = datetime.now(UTC)
    run_tests(STAMPED, HISTORY).assert_outcomes(passed=1)
    after = datetime.now(UTC)
    record = only_record()
    ran = [datetime.fromtimestamp(float(moment), UTC) for moment in Path("ran").read_text().split()]
    assert before <= record.began <= min(ran)
    assert max(ran) <= record.ended <= after


# ------------------------------------------------------------------------------------------------------- the commit


def stream_of_commits(count):
    """Return a history for ``git fast-import``: ``main`` with a commit a day, of which the last merges ``side``."""
    yield "reset refs/heads/main\n"
    for at in range(count):
        merged = ""
        if at == count - 1:
            # Younger than nearly all of main.
            who = f"committer a <a@b.c> {1_700_000_000 + at * 86400 - 50} +0000"
            yield f"commit refs/heads/side\nmark :9000\n{who}\ndata 4\nside\nfrom :3\n"
            merged = f"from :{at}\nmerge :9000\n"
        who = f"author a <a@b.c> 5 +0000\ncommitter a <a@b.c> {1_700_000_000 + at * 86400} +0200\n"
        yield f"commit refs/heads/main\nmark :{at + 1}\n{who}data 1\n{at % 10}\n{merged}"


def test_a_commit_has_its_date_both_parents_of_a_merge_and_200_first_parents_before_it(run_tests, pytester):
    git(pytester.path, "init", "-q")
    git(pytester.path, "fast-import", "--quiet", told="".join(stream_of_commits(205)))
    git(pytester.path, "symbolic-ref", "HEAD", "refs/heads/main")
    run_tests(MEASURED, HISTORY).assert_outcomes(passed=1)
    own = only_record().commit
    first = git(pytester.path, "rev-list", "--first-parent", "HEAD").split()
    assert own.sha == first[0]
    assert own.date == datetime.fromtimestamp(1_700_000_000 + 204 * 86400, timezone(timedelta(hours=2)))
    assert own.parents == (first[1], git(pytester.path, "rev-parse", "side"))
    assert own.ancestors == tuple(first[1:201])
    assert len(first) == 205
    assert own.parents[1] not in own.ancestors
    assert not own.shallow


def test_a_shallow_clone_says_so_and_knows_what_it_has(run_tests, pytester, tmp_path_factory):
    whole = tmp_path_factory.mktemp("whole")
    git(whole, "init", "-q")
    git(whole, "fast-import", "--quiet", told="".join(stream_of_commits(9)))
    git(pytester.path, "init", "-q")
    git(pytester.path, "fetch", "-q", "--depth=3", f"file://{whole}", "main")
    git(pytester.path, "checkout", "-q", "-b", "main", "FETCH_HEAD")
    run_tests(MEASURED, HISTORY).assert_outcomes(passed=1)
    own = only_record().commit
    assert own.shallow
    assert own.ancestors == tuple(git(whole, "rev-list", "--first-parent", "-n3", "main").split()[1:])


# ------------------------------------------------------------------------------------------------------ the machine


def test_a_machine_is_a_digest_of_its_hardware_and_no_record_names_the_host(run_tests, monkeypatch):
    host = os.uname().nodename
    monkeypatch.setenv("HOSTNAME", "build-host-4711")
    monkeypatch.setattr("socket.gethostname", lambda: "build-host-4711")
    run_tests(MEASURED, HISTORY).assert_outcomes(passed=1)
    record, content = only_record(), content_of()
    assert "build-host-4711" not in content
    assert not re.search(rf"(?<![\w-]){re.escape(host)}(?![\w-])", content)
    assert record.machine.cpu
    assert record.machine == machine_of(record.environments)


def test_machines_differ_where_gpu_cpu_or_driver_do_and_versions_do_not_matter():
    own = Environment(gpu="H100", cpu="EPYC", driver="580", torch="2.14.0")
    others = [replace(own, gpu="B200"), replace(own, cpu="Xeon"), replace(own, driver="590"), replace(own, gpu=None)]
    assert len({machine_of([environment]).digest for environment in (own, *others)}) == 5
    assert machine_of([replace(own, torch="2.15.0", python="3.13")]) == machine_of([own])


# -------------------------------------------------------------------------------------------------- the measurements

FIGURES = """
import torch

@cpu
@pytest.mark.torchprof(warmup=1, steps=3, tolerance={"time": 0.9})
def test_slow():
    x = torch.ones(8)
    for _ in range(ADDS):
        x = x + 1
"""


def test_figures_have_times_with_their_quartiles_the_baselines_state_and_the_codes_of_findings(run_tests, pytester):
    def run(adds, *words):
        run_tests(FIGURES.replace("ADDS", str(adds)), *words)

    run(2, "--torchprof-baseline=update")
    run(40, HISTORY, "--torchprof-report=run.json")
    record = only_record()
    (figures,) = record.varying
    (told,) = json.loads((pytester.path / "run.json").read_text())["results"]
    assert (told["baseline_state"], record.measurements[0].outcome) == ("worse", Outcome.FAILED)
    assert figures.baseline is BaselineState.WORSE
    assert set(figures.findings) == {finding["code"] for finding in told["findings"]} != set()
    time = figures.time
    assert time.samples == told["time"]["samples"] > 0
    quarter = len(time.quantiles_us) // 4
    assert quarter > 0
    assert list(time.quantiles_us) == sorted(time.quantiles_us)
    assert time.quantiles_us[quarter] <= time.median_us <= time.quantiles_us[-quarter - 1]
    assert list(time.quantiles_us) == told["time"]["quantiles_us"]


COMPILED = """
import torch

@cpu
@pytest.mark.torchprof(warmup=1, steps=1)
def test_compiled():
    compiled(x)

compiled = torch.compile(lambda a: torch.sin(a) + 1, backend=BACKEND)

@cpu
def test_compiled_before():
    compiled(x)

@cpu
def test_plain():
    torch.sin(x)
"""


def test_a_measurement_has_the_phases_of_a_compilation_that_took_place_in_it_and_no_others(run_tests, pytester):
    run_tests(COMPILED.replace("BACKEND", "'aot_eager'"), HISTORY, "--torchprof-report=run.json", in_process=False)
    record = only_record()
    phases = {
        own.test.partition("::")[2]: varying.compile_us
        for own, varying in zip(record.measurements, record.varying, strict=True)
    }
    # AOTAutograd hands its graph to nobody who generates code, and there is no backward.
    assert phases["test_compiled"].keys() == {"tracing", "aot_autograd"}
    assert min(phases["test_compiled"].values()) > 0
    assert phases["test_compiled_before"] == phases["test_plain"] == {}
    told = json.loads((pytester.path / "run.json").read_text())["results"]
    assert {result["nodeid"].partition("::")[2]: result["compile_us"] for result in told} == phases


def test_compilations_whose_records_were_removed_have_no_phases(run_tests):
    source = COMPILED.replace("BACKEND", "'eager'").replace(
        "    compiled(x)", "    compiled(x)\n    torch._dynamo.utils.clear_compilation_metrics()", 1
    )
    run_tests(source, HISTORY, in_process=False)
    record = only_record()
    assert record.varying[0].compile_us == {}


SOURCE = """
import torch

@cpu
def test_it():
    torch.mm(x, x)

@cpu
def test_other():
    torch.sin(x)
"""


@pytest.mark.parametrize(
    ("old", "new", "is_edited"),
    [
        pytest.param("torch.mm(x, x)", "torch.mm(x, 2 * x)", True, id="its code"),
        pytest.param("@cpu\ndef test_it", "@cpu(max_kernels=9)\ndef test_it", True, id="its marker"),
        pytest.param("    torch.mm", "    # as before\n\n    torch.mm", False, id="a comment and a blank line"),
        pytest.param("torch.sin(x)", "torch.cos(x)", False, id="another test"),
        pytest.param("import torch", "import torch\nunused = 1", False, id="its place"),
    ],
)
def test_the_hash_of_a_test_changes_with_its_source_and_with_nothing_else(run_tests, old, new, is_edited):
    assert old in SOURCE
    hashes = []
    for number, text in enumerate((SOURCE, SOURCE.replace(old, new, 1))):
        run_tests(text, f"--torchprof-history=kept{number}").assert_outcomes(passed=2)
        hashes.append({own.test: own.source for own in only_record(f"kept{number}").measurements})
    assert None not in hashes[0].values()
    assert len(set(hashes[0].values())) == 2
    assert (hashes[0]["test_it.py::test_it"] != hashes[1]["test_it.py::test_it"]) is is_edited


def test_the_precision_flags_are_those_that_held_while_the_test_was_measured(run_tests):
    tests = """
        import torch

        @pytest.fixture
        def fast():
            torch.set_float32_matmul_precision("high")
            torch.backends.cudnn.allow_tf32 = False
            yield
            torch.set_float32_matmul_precision("highest")
            torch.backends.cudnn.allow_tf32 = True

        @cpu
        def test_exact(): torch.mm(x, x)

        @cpu
        def test_fast(fast): torch.mm(x, x)
    """
    run_tests(textwrap.dedent(tests), HISTORY, in_process=False).assert_outcomes(passed=2)
    record = only_record()
    flags = {}
    for own in record.measurements:
        environment = record.environments[own.environment]
        flags[own.test.partition("::")[2]] = (
            environment.matmul_precision,
            environment.tf32_matmul,
            environment.tf32_cudnn,
        )
    assert flags == {"test_exact": ("highest", False, True), "test_fast": ("high", True, False)}


TIMED = """
@pytest.mark.torchprof(device="cpu", warmup=1, steps=2, tolerance={"time": 9.0})
def test_it(torchprof): torchprof(torch.mm, x, x)
"""
# Stands for a GPU that was slowed down: nobody watches a CPU.
SLOWED = """
from contextlib import contextmanager
from pytest_torchprof.capture.devices import LiveDevice
from pytest_torchprof.reasons.disturbances import Brake, SlowedDown

@contextmanager
def slowed(self):
    yield lambda: [SlowedDown(Brake.TEMPERATURE)]

LiveDevice.disturbances = slowed
"""


@pytest.mark.parametrize(("conftest", "disturbed"), [("", ()), (SLOWED, (SlowedDown(Brake.TEMPERATURE),))])
def test_a_time_says_what_disturbed_the_machine_while_it_was_taken(run_tests, pytester, conftest, disturbed):
    pytester.makeconftest(conftest)
    run_tests(TIMED, HISTORY, in_process=False).assert_outcomes(passed=1)
    time = only_record().varying[0].time
    assert time.disturbed == disturbed


RERUN = """
import torch
tries = []

@pytest.fixture
def number():
    tries.append(1)
    return len(tries)

@cpu
@pytest.mark.torchprof(max_kernels=1)
def test_it(number):
    for _ in range(2 if number == 1 else 1):
        torch.mm(x, x)

@cpu
@pytest.mark.torchprof(max_kernels=1)
def test_never():
    for _ in range(2):
        torch.mm(x, x)
"""


def test_a_test_that_is_run_again_is_one_measurement_and_its_last_try_counts(run_tests):
    pytest.importorskip("pytest_rerunfailures")
    result = run_tests(RERUN, HISTORY, "--reruns=1", "-p", "rerunfailures", in_process=False)
    result.stdout.fnmatch_lines(["*2 rerun*"])
    record = only_record()
    assert [(own.test, own.outcome, own.counts["kernels"]) for own in record.measurements] == [
        ("test_it.py::test_it", Outcome.PASSED, 1),
        ("test_it.py::test_never", Outcome.FAILED, 2),
    ]


# ------------------------------------------------------------------------------------------------------ how it is kept


def test_a_record_is_on_the_disk_before_it_gets_its_name_and_its_name_is_after_it(run_tests, monkeypatch, pytester):
    events = []
    fsync, link = os.fsync, os.link

    def synced(descriptor):
        fsync(descriptor)
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        events.append(("synced", path.name, path.stat().st_size if path.is_file() else None))

    def named(source, target, **how):
        events.append(("named", Path(source).name, Path(target).name))
        link(source, target, **how)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "link", named)
    run_tests(MEASURED, HISTORY).assert_outcomes(passed=1)
    (file,) = (pytester.path / "kept").iterdir()
    at = next(number for number, event in enumerate(events) if event[2] == file.name)
    assert events[at - 1] == ("synced", events[at][1], file.stat().st_size)
    assert events[at + 1] == ("synced", "kept", None)
