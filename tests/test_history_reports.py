"""The record of a run is the one value that its reports come from: a history writes them again, byte for byte."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path

import pytest
from histories import launched, run_of, sha, write
from msgspec.structs import replace
from pages import Page

from pytest_torchprof.cli import main
from pytest_torchprof.cli.report_file import read_report
from pytest_torchprof.history.machines import machine_of
from pytest_torchprof.history.record import SUFFIX, decode, encode, read, unpacked_figures
from pytest_torchprof.history.reported import ReportedResult, ReportedRun
from pytest_torchprof.history.results import results_in, with_results
from pytest_torchprof.history.run_record import environments_of, measurements_of, structures_of, varying_of
from pytest_torchprof.report import RunResults, reporters

pytestmark = pytest.mark.any_torch

FORMS = tuple(reporters())
TEXTS = [form for form in FORMS if form != ".html"]
"""A page has the timelines of recordings besides, which no record holds."""
WRITTEN = [f"--torchprof-report=run{form}" for form in FORMS]
RUN = """
import torch
from pytest_torchprof import mark

@cpu
@pytest.mark.torchprof(max_kernels=2, max_syncs=0, forbid_ops=["aten::relu"])
def test_missed(): torch.relu(torch.mm(torch.ones(64, 64), torch.ones(64, 64))).sum()

@cpu
@pytest.mark.torchprof(max_kernels=900, warmup=1, steps=3)
def test_many():
    x = torch.ones(8)
    for _ in range(200):
        x = x + 1

@cpu
@pytest.mark.torchprof(tolerance={"time": 0.5})
def test_labels(torchprof):
    torchprof(torch.softmax, torch.ones(4, 4), 0)

@cpu
@pytest.mark.xfail
@pytest.mark.torchprof(max_kernels=0)
def test_expected(): torch.ones(4)

@cpu
def test_raises(): raise ValueError("no \\x1b[31m, no <script>")

@cpu
def test_skips(): pytest.skip("later")
"""
BEFORE = Path(__file__).parent / "records_before"


def only_result(**told):
    return ReportedRun(results=(ReportedResult(of=0, differing=told),))


def export(where, form, capsys, *words, status=0):
    capsys.readouterr()
    assert main(["history", "export", str(where), "--as", form, *words]) == status
    written = capsys.readouterr()
    return written.err if status else written.out


def record_of(where):
    (file,) = Path(where).glob(f"*{SUFFIX}")
    return read(file)


def written(pytester, form):
    return (pytester.path / f"run{form}").read_bytes().decode()


def test_a_form_that_nothing_writes_is_refused_with_those_that_there_are(tmp_path, capsys):
    write(tmp_path, [run_of(1, launched("t.py::test", {"a": 1}))])
    refused = export(tmp_path, ".xml", capsys, status=2)
    assert all(form in refused for form in FORMS)


@pytest.fixture(params=["folder", "sqlite"])
def where(request, tmp_path):
    """Where a history is to be."""
    if request.param == "sqlite":
        pytest.importorskip("sqlalchemy")
    return str(tmp_path / ("runs.db" if request.param == "sqlite" else "history"))


def test_a_history_writes_every_report_of_a_run_that_is_past_as_the_run_wrote_it(run_tests, pytester, where, capsys):
    run_tests(RUN, f"--torchprof-history={where}", *WRITTEN).assert_outcomes(passed=2, failed=2, xfailed=1, skipped=1)
    first = json.loads(written(pytester, ".jsonl").splitlines()[0])
    assert first["began"]
    for form in TEXTS:
        assert export(where, form, capsys, "--run", first["run"][:8]) == written(pytester, form), form
    told = {result["nodeid"]: result for result in json.loads(written(pytester, ".json"))["results"]}
    missed = told["test_it.py::test_missed"]
    assert [limit["status"] for limit in missed["limits"]].count("missed") == 2
    assert missed["message"]
    assert missed["kernels"]
    assert told["test_it.py::test_many"]["findings"]


@pytest.mark.parametrize("form", [".json", ".csv", ".md"])
def test_what_differs_from_a_baseline_is_in_the_record_too(run_tests, pytester, tmp_path, capsys, form):
    source = "import torch\n@cpu\ndef test_it(): torch.ones(4){}"
    run_tests(source.format(""), "--torchprof-baseline=update")
    words = (f"--torchprof-history={tmp_path / 'h'}", f"--torchprof-report=run{form}")
    run_tests(source.format(".mul(2).add(1)"), *words, in_process=False).assert_outcomes(failed=1)
    assert "worse" in written(pytester, form)
    run = record_of(tmp_path / "h").uuid
    assert export(tmp_path / "h", form, capsys, "--run", run) == written(pytester, form)


def test_a_record_gives_back_every_result_that_was_put_into_it():
    """Verdicts with their evidence, comparisons, times of two commits, findings, kernels: nothing is lost or added."""
    results, _ = read_report(Path(__file__).parent / "reports_before" / "schema_1.json")
    assert any(result.comparison for result in results)
    assert any(result.against_time for result in results)
    assert any(result.kernels for result in results)
    assert any(evidence for result in results for verdict in result.limits for evidence in verdict.evidence)
    environments = environments_of(results)
    varying, orders = varying_of(results)
    record = replace(
        run_of(1),
        environments=environments,
        machine=machine_of(environments),
        measurements=measurements_of(results, environments),
        structures=structures_of(results),
        varying=varying,
        launched=orders,
    )
    stored = decode(encode(with_results(record, RunResults(results=results, gone=("t.py::test",)))), "record")
    back = results_in(stored)
    assert back.gone == ("t.py::test",)
    for before, after in zip(results, back.results, strict=True):
        assert after == before


def test_workers_write_the_reports_that_one_process_writes(run_tests, pytester, tmp_path, capsys):
    pytest.importorskip("xdist")
    run_tests(RUN, f"--torchprof-history={tmp_path / 'h'}", *WRITTEN, "-n2", in_process=False)
    run = record_of(tmp_path / "h").uuid
    for form in TEXTS:
        assert export(tmp_path / "h", form, capsys, "--run", run) == written(pytester, form), form


def test_without_a_run_a_report_is_that_of_the_branchs_newest_complete_one(tmp_path, capsys):
    reported = [replace(run_of(at, launched("t.py::test", {"a": at + 1})), reported=only_result()) for at in range(3)]
    stopped = replace(run_of(3, launched("t.py::test", {"a": 9}), complete=False), reported=only_result())
    write(tmp_path, [*reported, stopped])
    (result,) = json.loads(export(tmp_path, ".json", capsys))["results"]
    assert result["summary"]["kernels"] == 3


def test_a_run_is_named_by_its_id_or_its_commit_and_never_guessed(tmp_path, capsys):
    runs = [run_of(at, launched("t.py::test", {"a": at + 1})) for at in range(3)]
    again = run_of(1, launched("t.py::test", {"a": 7}), version="2.0")
    write(tmp_path, [*runs, again])
    (row,) = map(json.loads, export(tmp_path, ".jsonl", capsys, "--run", sha(2)[:10].upper()).splitlines())
    assert (row["commit"], row["numbers"]["kernels"]) == (sha(2), 3)
    both = export(tmp_path, ".csv", capsys, "--run", sha(1), status=2)
    assert runs[1].uuid in both
    assert again.uuid in both
    assert "[no-history]" in export(tmp_path, ".csv", capsys, "--run", "0" * 32, status=2)
    assert "[bad-usage]" in export(tmp_path, ".csv", capsys, "--run", "abc", status=2)


def test_a_page_of_the_past_says_where_the_recording_was_kept_and_reads_no_file(run_tests, pytester, tmp_path, capsys):
    """A record comes from elsewhere: what it names may be any file of this machine."""
    source = "import torch\n@cpu\n@pytest.mark.torchprof(max_kernels=0)\ndef test_it(): torch.ones(4)"
    words = (f"--torchprof-history={tmp_path / 'h'}", "--torchprof-save=kept", "--torchprof-report=run.html")
    run_tests(source, *words).assert_outcomes(failed=1)
    record = record_of(tmp_path / "h")
    then = Page(written(pytester, ".html"))
    now = Page(export(tmp_path / "h", ".html", capsys, "--run", record.uuid))
    kept = Path(results_in(record).results[0].recording)
    assert kept.is_file()
    assert "missing" not in then.details[0]
    assert kept.name in now.details[0]["missing"]
    assert [then.details[0][name] for name in ("message", "limits")] == [
        now.details[0][name] for name in ("message", "limits")
    ]


def test_a_page_without_recordings_is_written_again_as_it_was(run_tests, pytester, tmp_path, capsys):
    source = "import torch\n@cpu\n@pytest.mark.torchprof(max_kernels=5)\ndef test_it(): torch.ones(4).add(1)"
    run_tests(source, f"--torchprof-history={tmp_path / 'h'}", "--torchprof-report=run.html")
    page = export(tmp_path / "h", ".html", capsys, "--run", record_of(tmp_path / "h").uuid)
    assert page == written(pytester, ".html")


def test_a_renamed_test_has_its_name_of_now_in_tables_and_that_of_then_in_a_report(tmp_path, capsys):
    run = replace(run_of(1, launched("t.py::test_old", {"a": 1})), reported=only_result())
    write(tmp_path, [run, run_of(2, launched("t.py::test_new", {"a": 1}))])
    assert main(["history", "alias", str(tmp_path), "t.py::test_old", "t.py::test_new"]) == 0
    assert "t.py::test_new" in export(tmp_path, ".bmf.json", capsys, "--run", run.uuid)
    (result,) = json.loads(export(tmp_path, ".json", capsys, "--run", run.uuid))["results"]
    assert result["nodeid"] == "t.py::test_old"


JOB = """
import os
import torch

@pytest.mark.torchprof(device="cpu", ranks=2, warmup=1, steps=2, max_kernels=3)
def test_job(torchprof):
    def step():
        for _ in range(2 + 3 * int(os.environ["RANK"])): torch.ones(4).mul(2)
    torchprof(step)
"""


@pytest.mark.parametrize("form", [".json", ".md"])
def test_the_report_of_a_job_is_made_from_the_measurements_of_its_ranks(run_tests, pytester, tmp_path, capsys, form):
    run_tests(JOB, f"--torchprof-history={tmp_path / 'h'}", f"--torchprof-report=run{form}", in_process=False)
    record = record_of(tmp_path / "h")
    assert [measured.rank for measured in record.measurements] == [0, 1]
    assert export(tmp_path / "h", form, capsys, "--run", record.uuid) == written(pytester, form)


# ------------------------------------------------------------------------------------------------------ other versions


def take(file, folder):
    shutil.copy(file, folder / f"{read(file).uuid}{SUFFIX}")


def test_a_record_that_an_earlier_version_wrote_has_its_figures_and_no_report(tmp_path, capsys):
    take(BEFORE / "figures.run.json.gz", tmp_path)
    rows = [*map(json.loads, export(tmp_path, ".jsonl", capsys).splitlines())]
    assert [(row["test"], row["verdict"], row["numbers"].get("kernels")) for row in rows] == [
        ("test_old.py::test_block", "passed", 4),
        ("test_old.py::test_missed", "failed", 4),
        ("test_old.py::test_lost", "not measured", None),
    ]
    assert json.loads(export(tmp_path, ".bmf.json", capsys))["test_old.py::test_block"]["kernels"] == {"value": 4}
    refused = export(tmp_path, ".json", capsys, status=2)
    assert refused.count("\n") == 1
    assert refused.endswith("[no-history]\n")


WORDS = {"title", "message", "remedy", "action"}
"""What each version says in words of its own."""


def as_far_as_before(now, before):
    """Return what is there now, without what has come to stand beside what was there before, and in its words."""
    if isinstance(before, dict):
        return {
            name: as_far_as_before(now[name], value) if name not in WORDS else value for name, value in before.items()
        }
    if isinstance(before, list) and len(now) == len(before):
        return [as_far_as_before(*both) for both in zip(now, before, strict=True)]
    return now


def test_a_report_of_a_record_is_written_as_it_was_when_records_began_to_hold_it(tmp_path, capsys):
    """What later versions add to a report may stand beside; what stood there has to stay."""
    take(BEFORE / "reported.run.json.gz", tmp_path)
    then = json.loads((BEFORE / "reported.json").read_text())
    now = json.loads(export(tmp_path, ".json", capsys))
    for before, after in zip(then["results"], now["results"], strict=True):
        assert as_far_as_before(after, before) == before


@pytest.mark.parametrize(
    "told",
    [
        {"outcome": "splendid"},
        {"findings": [{"finding": "of-tomorrow"}]},
        {"limits": 5},
        {"summary": {"kernels": "many"}},
    ],
)
def test_what_no_result_can_be_made_of_is_refused_by_name_and_the_figures_are_read(tmp_path, capsys, told):
    run = run_of(1, launched("t.py::test", {"a": 1}))
    write(tmp_path, [replace(run, reported=only_result(**told))])
    refused = export(tmp_path, ".json", capsys, status=2)
    assert run.uuid in refused
    assert refused.endswith("[bad-record]\n")
    assert run.uuid in export(tmp_path, ".csv", capsys)


@pytest.mark.parametrize("of", [1, -1])
def test_a_result_of_no_measurement_is_refused(tmp_path, capsys, of):
    run = run_of(1, launched("t.py::test", {"a": 1}))
    write(tmp_path, [replace(run, reported=ReportedRun(results=(ReportedResult(of=of),)))])
    assert "[bad-record]" in export(tmp_path, ".json", capsys, status=2)


# --------------------------------------------------------------------------------------------------------------- size


def test_readers_of_many_runs_do_not_unpack_what_reports_tell(run_tests, tmp_path):
    run_tests(RUN, f"--torchprof-history={tmp_path / 'h'}")
    record = record_of(tmp_path / "h")
    figures = json.loads(unpacked_figures(encode(record), "record"))
    assert "reported" not in figures
    whole = json.loads(gzip.decompress(encode(record)))
    assert {name: whole[name] for name in figures} == figures
    assert results_in(record)


KERNELS = """
import torch
NAMES = ["relu", "sin", "cos", "exp", "neg", "sigmoid", "tanh", "abs", "sqrt", "floor"]

@cpu
@pytest.mark.parametrize("kernels", [{}])
@pytest.mark.torchprof(max_kernels=2000, warmup=1, steps=2)
def test_it(kernels):
    x = torch.ones(4)
    for number in range(kernels):
        x = getattr(torch, NAMES[number % 10])(x)
"""


@pytest.mark.parametrize("kernels", [10, 100, 1000])
def test_a_record_has_a_few_kilobytes_for_a_measurement_whatever_it_launches(run_tests, tmp_path, kernels):
    run_tests(KERNELS.format(kernels), f"--torchprof-history={tmp_path}").assert_outcomes(passed=1)
    (file,) = tmp_path.glob(f"*{SUFFIX}")
    assert file.stat().st_size < 3000
