"""``torchprof fleet status|report|retry``, and what a run leaves to histories and to other tools."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections import Counter
from itertools import combinations
from pathlib import Path

import msgspec
import pytest
from browser import CHROMIUM
from builder import TraceBuilder, own_recording
from colours import BLINDNESS, distance
from pages import HOSTILE
from schema_checks import errors
from test_page import AXE, NO_AXE

from pytest_torchprof.cli import main
from pytest_torchprof.fleet.listed import Listed
from pytest_torchprof.fleet.names import names_of
from pytest_torchprof.fleet.page import fleet_page
from pytest_torchprof.fleet.progress import Progress
from pytest_torchprof.fleet.report import FleetReport
from pytest_torchprof.reasons.decoding import from_plain
from pytest_torchprof.text.cutting import width_of

pytestmark = [pytest.mark.any_torch, pytest.mark.usefixtures("forked_judges")]
PAGE = Path(__file__).parents[1] / "docs" / "fleet.md"


@pytest.fixture
def traces(tmp_path):
    """Return recordings of two models: five and one that launch as many kernels as most of their model; one does not."""
    folder = tmp_path / "nightly"
    for name, kernels in {"bert/a": 2, "bert/b": 2, "bert/c": 2, "bert/other": 3, "gpt/a": 5, "gpt/b": 5}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        own_recording({"one": kernels}).write(folder / f"{name}.json.gz")
    (folder / "gpt" / "no.json").write_text('{"models": []}')
    TraceBuilder().write(folder / "bert" / "empty.json")
    return folder


@pytest.fixture
def judged(traces, tmp_path, capsys):
    """Return the folder of a run in which three recordings launch too many kernels."""
    assert fleet("run", traces, "--into", tmp_path / "out", "--limit", "max_kernels=2", "--jobs", 2) == 1
    capsys.readouterr()
    return tmp_path / "out"


def fleet(*words):
    return main(["fleet", *map(str, words)])


def answered(capsys, *words, status=1):
    assert fleet(*words, "--json") == status
    return json.loads(capsys.readouterr().out)


def names(rows):
    return [row["name"] for row in rows]


def test_the_report_groups_by_model_gpu_and_torch(judged, capsys):
    report = answered(capsys, "report", judged)
    assert list(report["groups"]) == ["model", "gpu", "torch"]
    models = {row["value"]: row for row in report["groups"]["model"]}
    assert models.keys() == {"bert", "gpt"}
    counts = ("listed", "judged", "hold", "missed", "not_measured", "quarantined")
    assert [models["bert"][name] for name in counts] == [5, 4, 3, 1, 1, 0]
    assert [models["gpt"][name] for name in counts] == [3, 2, 0, 2, 0, 1]
    kernels = models["bert"]["numbers"]["kernels"]
    assert (kernels["count"], kernels["p10"], kernels["median"], kernels["highest"]) == (4, 2, 2, 3)
    assert kernels["p90"] == pytest.approx(2.7)
    assert report["summary"] == json.loads((judged / "summary.json").read_text())
    assert errors("fleet", report) == []


def test_files_unlike_most_of_their_group_are_named_with_what_shows_the_difference(judged, traces, capsys):
    (other,) = answered(capsys, "report", judged)["other_structures"]
    assert (other["name"], other["of_majority"]) == ("bert/other.json.gz", "bert/a.json.gz")
    assert (other["majority"], other["group"]) == (3, 4)
    assert other["command"] == f"torchprof diff {traces}/bert/a.json.gz {traces}/bert/other.json.gz"
    assert main(other["command"].split()[1:]) == 1


def test_without_a_majority_nothing_is_unlike_it(tmp_path, capsys):
    for number in (1, 2):
        own_recording({"one": number}).write(tmp_path / f"{number}.json")
    assert fleet("run", tmp_path, "--into", tmp_path / "out") == 0
    capsys.readouterr()
    report = answered(capsys, "report", tmp_path / "out", status=0)
    assert errors("fleet", report) == []
    assert (report["other_structures"], report["without_majority"]) == ([], 1)
    (group,) = report["divided"]
    assert (group["gpu"], group["files"], group["structures"]) == ("Test GPU", 2, 2)
    assert fleet("report", tmp_path / "out") == 0
    assert " GPU Test GPU, torch not known: 2 files, 2 structures\n" in capsys.readouterr().out


def test_the_worst_files_come_first_each_with_the_command_that_opens_it(judged, traces, capsys):
    report = answered(capsys, "report", judged)
    assert set(names(report["worst"])[:3]) == {"gpt/a.json.gz", "gpt/b.json.gz", "bert/other.json.gz"}
    for like in (report["worst"][:3], report["worst"][3:]):
        assert like == sorted(like, key=lambda file: (-file["saves_us"], file["name"]))
    first = report["worst"][0]
    assert first["limits_missed"] == ["max_kernels"]
    assert first["command"] == f"torchprof open {traces}/{first['name']}"
    assert answered(capsys, "report", judged, "--top", 1)["worst"] == [first]


def test_what_lies_in_an_archive_is_unpacked_by_the_command_that_opens_it(traces, tmp_path, capsys, monkeypatch):
    archive = tmp_path / "night ly.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        packed.write(traces / "gpt" / "a.json.gz", "deep/a.json.gz")
    assert fleet("run", archive, "--into", tmp_path / "out", "--limit", "max_kernels=2") == 1
    capsys.readouterr()
    (worst,) = answered(capsys, "report", tmp_path / "out")["worst"]
    assert worst["name"] == "deep/a.json.gz"
    assert worst["command"] == f"unzip -p '{archive}' deep/a.json.gz > a.json.gz && torchprof open a.json.gz"
    if shutil.which("unzip"):
        monkeypatch.chdir(tmp_path)
        unpacking = worst["command"].partition(" && ")[0]
        subprocess.run(unpacking, shell=True, check=True, capture_output=True)
        assert (tmp_path / "a.json.gz").read_bytes() == (traces / "gpt" / "a.json.gz").read_bytes()


def test_every_file_that_was_not_judged_is_in_the_report(judged, capsys):
    rows = answered(capsys, "report", judged)["not_judged"]
    assert all(str(from_plain(row["reason"])) == row["why"] for row in rows)
    assert {row["name"]: (row["quarantined"], row["code"]) for row in rows} == {
        "bert/empty.json": (False, "no-gpu-side"),
        "gpt/no.json": (True, "no-recording"),
    }


def test_a_manifest_says_what_files_are_grouped_by(traces, tmp_path, capsys):
    manifest = tmp_path / "list.jsonl"
    rows = [
        {"url": "nightly/bert/a.json.gz", "model": "bert-large", "team": "a"},
        {"url": "nightly/gpt/a.json.gz", "model": "gpt", "team": "b"},
        {"url": "nightly/gpt/b.json.gz", "team": "b"},
    ]
    manifest.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    assert fleet("run", manifest, "--into", tmp_path / "out") == 0
    capsys.readouterr()
    groups = answered(capsys, "report", tmp_path / "out", "--by", "team", "--by", "model", status=0)["groups"]
    assert {row["value"]: row["listed"] for row in groups["team"]} == {"a": 1, "b": 2}
    assert {row["value"] for row in groups["model"]} == {"bert-large", "gpt", "nightly/gpt"}
    assert fleet("report", tmp_path / "out", "--by", "teem") == 2
    assert "'team'" in capsys.readouterr().err


@pytest.mark.parametrize("columns", [60, 80, 132])
def test_the_report_keeps_within_the_screen(judged, capsys, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    assert fleet("report", judged) == 1
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].startswith("8 files listed")
    # Paths and commands, which can be pasted, stay whole.
    lines = [line for line in shown if "torchprof " not in line and str(judged.parent) not in line]
    assert max(map(width_of, lines)) <= columns
    assert any("bert/other.json.gz" in line for line in shown)


def test_the_status_adds_up_while_a_run_is_on_its_way(traces, tmp_path, capsys):
    words = ["run", traces, "--into", tmp_path / "out", "--limit", "max_kernels=2"]
    assert fleet(*words, "--shard", "2/3") in (0, 1, 3)
    capsys.readouterr()
    status = answered(capsys, "status", tmp_path / "out")
    assert errors("fleet-status", status) == []
    counts = ("listed", "judged", "not_measured", "quarantined", "left")
    files = status["files"]
    assert files["listed"] == sum(files[name] for name in counts[1:])
    assert [(row["shard"], row["among"], row["listed"], row["left"]) for row in status["shards"]] == [
        (1, 3, 3, 3), (2, 3, 3, 0), (3, 3, 2, 2)
    ]  # fmt: skip
    assert fleet("status", tmp_path / "out") == 1
    assert re.search(r"^3 of 3 +2 ", capsys.readouterr().out, re.MULTILINE)
    assert answered(capsys, "report", tmp_path / "out")["left"] == 5
    assert fleet(*words) == 1
    capsys.readouterr()
    assert [answered(capsys, "status", tmp_path / "out")["files"][name] for name in counts] == [8, 6, 1, 1, 0]


def test_the_report_of_a_run_on_its_way_counts_the_files_as_the_status_does(traces, tmp_path, capsys):
    assert fleet("run", traces, "--into", tmp_path / "out", "--limit", "max_kernels=2", "--shard", "2/3") == 1
    capsys.readouterr()
    shown = []
    for command in ("status", "report"):
        assert fleet(command, tmp_path / "out") == 1
        shown.append(capsys.readouterr().out.splitlines()[0])
    assert shown == ["8 files listed: 2 judged, 0 not measured, 1 quarantined, 5 left"] * 2
    report = answered(capsys, "report", tmp_path / "out")
    assert errors("fleet", report) == []
    assert (report["summary"]["listed"], report["left"]) == (8, 5)


def test_files_that_no_rule_fits_have_no_rule(traces, tmp_path, capsys):
    rules = tmp_path / "rules.toml"
    rules.write_text('[[rule]]\nname = "all of bert"\nfiles = ["bert/*"]\nlimits = { max_kernels = 9 }\n')
    assert fleet("run", traces, "--into", tmp_path / "out", "--rules", rules) == 3
    capsys.readouterr()
    assert fleet("report", tmp_path / "out", "--by", "rule", "--by", "gpu") == 3
    by_rule, by_gpu = re.split("^by GPU.*$", capsys.readouterr().out, maxsplit=1, flags=re.MULTILINE)
    assert re.search(r"^no rule +3 ", by_rule, re.MULTILINE)
    assert "not known" not in by_rule
    assert "no rule" not in by_gpu


def test_the_size_of_a_page_is_told_in_units_that_fit_it(judged, tmp_path, capsys):
    main(["fleet", "report", str(judged), "-o", str(tmp_path / "page.html")])
    assert "KiB" in capsys.readouterr().out


def test_what_has_no_record_yet_is_no_pass(traces, tmp_path, capsys):
    (traces / "gpt" / "no.json").unlink()
    (traces / "bert" / "empty.json").unlink()
    assert fleet("run", traces, "--into", tmp_path / "out", "--shard", "1/6") == 0
    assert fleet("status", tmp_path / "out") == 3
    assert fleet("report", tmp_path / "out") == 3
    assert fleet("run", traces, "--into", tmp_path / "out") == 0
    assert fleet("status", tmp_path / "out") == 0
    assert fleet("report", tmp_path / "out") == 0


@pytest.mark.parametrize("command", ["status", "report", "retry"])
def test_a_folder_of_no_run_is_told(tmp_path, capsys, command):
    assert fleet(command, tmp_path) == 2
    assert "[bad-record]" in capsys.readouterr().err


def test_quarantined_files_are_judged_again_and_nothing_else(traces, tmp_path, capsys):
    whole = (traces / "gpt" / "a.json.gz").read_bytes()
    slow = traces / "gpt" / "slow.json"
    slow.write_bytes(b'{"traceEvents": [' + b" " * 3_000_000 + b"]}")
    assert fleet("run", traces, "--into", tmp_path / "out", "--timeout", "0.0001s", "--jobs", 2) == 3
    before = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert before["quarantined"] == 9
    parts = set((tmp_path / "out" / "parts").iterdir())
    assert fleet("retry", tmp_path / "out", "--jobs", 2) == 3
    after = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert (after["listed"], after["judged"], after["quarantined"]) == (9, 6, 1)
    assert after["quarantined_because"] == {"no-recording": 1}
    assert parts < set((tmp_path / "out" / "parts").iterdir())
    assert (traces / "gpt" / "a.json.gz").read_bytes() == whole
    # The newest reason counts, and a file that was judged stays so.
    kept = (tmp_path / "out" / "records.jsonl").read_bytes()
    assert fleet("run", traces, "--into", tmp_path / "out", "--jobs", 2) == 3
    assert (tmp_path / "out" / "records.jsonl").read_bytes() == kept


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """Return a function that commits, in the working tree that is the current folder."""
    for name in [name for name in os.environ if name.startswith(("GITHUB_", "CI", "GIT_"))]:
        monkeypatch.delenv(name)
    (tmp_path / "repo").mkdir()
    monkeypatch.chdir(tmp_path / "repo")

    def git(*words):
        own = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main"]
        subprocess.run(["git", *own, *words], check=True, capture_output=True)

    git("init")
    return lambda: git("commit", "--allow-empty", "-m", "on")


def test_a_nightly_ends_in_a_history(traces, tmp_path, repository, capsys):
    nights = Path.cwd() / "nights"
    for night in range(3):
        repository()
        if nights.exists():
            shutil.rmtree(nights)
        # Each night's files lie in a folder of its date, in the working tree.
        shutil.copytree(traces, nights / f"2026-05-0{night + 1}")
        if night == 2:
            own_recording({"one": 7}).write(nights / "2026-05-03" / "gpt" / "a.json.gz")
        assert fleet("run", nights / f"2026-05-0{night + 1}", "--into", tmp_path / f"out{night}") == 3
        assert main(["history", "import", str(tmp_path / "history"), str(tmp_path / f"out{night}")]) == 0
    capsys.readouterr()
    assert main(["history", "import", str(tmp_path / "history"), str(tmp_path / "out2")]) == 0
    assert "0 records added, 1 known" in capsys.readouterr().out
    assert main(["history", "changes", str(tmp_path / "history"), "--json"]) == 0
    changes = json.loads(capsys.readouterr().out)
    (event,) = changes["events"]
    assert [test["test"] for test in event["tests"]] == ["gpt/a.json.gz"]
    assert event["came"] == {"one": 2}
    gaps = {row["test"]: row["gaps"] for row in changes["series"] if row["gaps"]}
    assert gaps == {"gpt/no.json": {"no-recording": 3}, "bert/empty.json": {"no-gpu-side": 3}}


def test_a_run_that_is_kept_elsewhere_is_imported_from_there(traces, tmp_path, repository, capsys):
    fsspec = pytest.importorskip("fsspec")
    repository()
    fsspec.filesystem("memory").store.clear()
    assert fleet("run", traces, "--into", "memory://judged/run") == 3
    assert main(["history", "import", str(tmp_path / "history"), "memory://judged/run"]) == 0
    capsys.readouterr()
    assert main(["history", "changes", str(tmp_path / "history"), "--json"]) == 0
    series = json.loads(capsys.readouterr().out)["series"]
    assert {row["test"] for row in series if row["points"]} > {"bert/a.json.gz", "gpt/b.json.gz"}
    fleet("run", traces, "--into", "memory://judged/half", "--shard", "1/2")
    capsys.readouterr()
    assert main(["history", "import", str(tmp_path / "history"), "memory://judged/half"]) == 2
    assert "memory://judged/half: 4 files of 8" in capsys.readouterr().err


def test_the_nightly_of_the_documentation_ends_in_a_page_and_a_history(traces, tmp_path, repository, capsys):
    (script,) = re.findall(r"```bash\n(#!.*?)```", PAGE.read_text().partition("## A nightly")[2], re.DOTALL)[:1]
    (tmp_path / "bin").mkdir()
    shim = tmp_path / "bin" / "torchprof"
    code = "import sys\nfrom pytest_torchprof.cli import main\nif __name__ == '__main__':\n    sys.exit(main())\n"
    (tmp_path / "bin" / "script.py").write_text(code)
    shim.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{tmp_path}/bin/script.py" "$@"\n')
    shim.chmod(0o755)
    repository()
    shutil.copytree(traces, "nightly")
    environment = {**os.environ, "PATH": f"{tmp_path}/bin:{os.environ['PATH']}", "HISTORY": str(tmp_path / "history")}
    done = subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (3, "")
    assert Path("fleet/report.html").stat().st_size > 10_000
    assert Path("fleet/history.html").stat().st_size > 10_000
    assert main(["history", "changes", str(tmp_path / "history"), "--json"]) == 0
    series = json.loads(capsys.readouterr().out)["series"]
    assert {row["test"] for row in series if row["points"]} > {"bert/a.json.gz", "gpt/b.json.gz"}


def test_a_run_that_is_not_complete_is_no_run_of_a_history(traces, tmp_path, capsys):
    fleet("run", traces, "--into", tmp_path / "out", "--shard", "1/2")
    assert main(["history", "import", str(tmp_path / "history"), str(tmp_path / "out")]) == 2
    assert "4 files of 8" in capsys.readouterr().err


def listed(*urls):
    return [Listed(url=url) if isinstance(url, str) else url for url in urls]


def test_a_file_is_called_by_its_path_below_the_source():
    def called(*sources, files):
        return list(names_of(files, sources).values())

    two = listed("/n/01/bert/a.json", "/n/01/gpt/a.json")
    assert called("/n/01", files=two) == ["bert/a.json", "gpt/a.json"]
    assert called("/n/01/*/a.json", files=two) == ["bert/a.json", "gpt/a.json"]
    assert called("/n/01/bert", "/n/01/gpt/a.json", files=two) == [two[0].url, two[1].url]
    assert called("/n/01/bert/a.json", files=two[:1]) == ["a.json"]
    member = Listed(url="/n/x.zip", member="deep/a.json")
    assert called("/n/x.zip", files=[member]) == ["deep/a.json"]
    assert called("/n", files=[member]) == ["x.zip: deep/a.json"]
    by_hand = Listed(url="/n/01/host_12.json", metadata={"test": "bert-large"})
    assert called("/n/list.jsonl", files=[by_hand]) == ["bert-large"]


ROWS = {"name", "model", "gpu", "outcome", "kernels", "findings", "limits_missed"}


def test_rows_are_the_same_for_every_file(judged, tmp_path, capsys):
    rows = tmp_path / "rows.jsonl"
    assert fleet("report", judged, "-o", rows) == 1
    read = list(map(json.loads, rows.read_text().splitlines()))
    assert len(read) == 8
    assert len({tuple(row) for row in read}) == 1
    assert read[0].keys() > ROWS
    by_name = {row["name"]: row for row in read}
    assert (by_name["gpt/a.json.gz"]["kernels"], by_name["gpt/a.json.gz"]["limits_missed"]) == (5, ["max_kernels"])
    assert (by_name["gpt/no.json"]["outcome"], by_name["gpt/no.json"]["code"]) == ("quarantined", "no-recording")
    assert fleet("report", judged, "-o", tmp_path / "rows.csv") == 2
    capsys.readouterr()
    assert fleet("report", judged, "-o", rows, "--json") == 1
    assert json.loads(capsys.readouterr().out)["left"] == 0


def samples(language):
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text().partition("## With other tools")[2], re.DOTALL)


def sample(language):
    return samples(language)[0]


def test_the_query_of_the_documentation_runs_in_duckdb(judged, tmp_path, monkeypatch):
    duckdb = pytest.importorskip("duckdb")
    monkeypatch.chdir(tmp_path)
    assert fleet("report", judged, "-o", "rows.jsonl") == 1
    rows = duckdb.sql(sample("sql").rstrip().rstrip(";")).fetchall()
    assert [(row[0], row[1]) for row in rows] == [("gpt", 2), ("bert", 4)]


@pytest.fixture
def said(traces, tmp_path, monkeypatch):
    """Return the rows of files of a manifest that says different things of each, and of some nothing."""
    monkeypatch.chdir(tmp_path)
    lines = [
        {"url": "nightly/bert/a.json.gz", "prod": True, "n": 3, "tags": ["x", "y"]},
        {"url": "nightly/bert/b.json.gz", "prod": False, "owner": None},
        {"url": "nightly/bert/c.json.gz", "prod": True},
        {"url": "nightly/gpt/no.json"},
    ]
    Path("manifest.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert fleet("run", "manifest.jsonl", "--into", "out", "--jobs", 2) == 3
    assert fleet("report", "out", "-o", "rows.jsonl") == 3
    return list(map(json.loads, Path("rows.jsonl").read_text().splitlines()))


def test_rows_have_what_a_manifest_says(said):
    tags = {"prod": "true", "n": "3", "tags": '["x", "y"]'}
    assert [row["metadata"] for row in said] == [tags, {"prod": "false"}, {"prod": "true"}, {}]


@pytest.mark.usefixtures("said")
def test_duckdb_reads_what_a_manifest_says_by_the_query_of_the_documentation():
    duckdb = pytest.importorskip("duckdb")
    rows = duckdb.sql(samples("sql")[1].rstrip().rstrip(";")).fetchall()
    assert rows == [("false", 1), ("true", 2), (None, 1)]


@pytest.mark.usefixtures("said")
def test_polars_reads_what_a_manifest_says():
    polars = pytest.importorskip("polars")
    rows = polars.scan_ndjson("rows.jsonl", infer_schema_length=None)
    assert rows.select(polars.col("metadata").struct.field("prod")).collect()["prod"].to_list() == [
        "true",
        "false",
        "true",
        None,
    ]


def test_the_query_of_the_documentation_runs_in_polars(judged, tmp_path, monkeypatch):
    pytest.importorskip("polars")
    monkeypatch.chdir(tmp_path)
    assert fleet("report", judged, "-o", "rows.jsonl") == 1
    held = {}
    exec(sample("python"), held)
    counts = {finding: count for _, finding, count in held["frequent"].rows()}
    rows = map(json.loads, Path("rows.jsonl").read_text().splitlines())
    assert counts.pop(None, 0) >= 0
    assert counts == Counter(finding for row in rows for finding in row["findings"])


@pytest.fixture
def page(judged, tmp_path):
    assert fleet("report", judged, "-o", tmp_path / "report.html") == 1
    return tmp_path / "report.html"


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium")
@pytest.mark.usefixtures("quiet_browser")
class TestPage:
    def test_it_shows_groups_findings_and_files(self, browser, page):
        browser.open(page)
        shown = browser.run("document.body.innerText")
        assert "8 files listed: 6 judged, 1 not measured, 1 quarantined" in shown
        headings = browser.run("[...document.querySelectorAll('h2')].map(heading => heading.textContent)")
        assert headings[:4] == ["All files", "By model", "By GPU", "By torch"]
        assert {"The worst", "Other kernels than their group", "Not judged"} < set(headings)
        assert browser.run("document.querySelector('.all').getAttribute('aria-label')") == (
            "3 hold, 3 missed, 1 not measured, 1 quarantined"
        )
        assert browser.run("document.querySelectorAll('svg.spread').length") > 0
        assert "torchprof open" in browser.run("document.querySelector('.files code').textContent")

    @pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
    def test_outcomes_are_told_by_a_pattern_where_their_colours_are_close(
        self, browser, judged, tmp_path, capsys, dark
    ):
        plain = answered(capsys, "report", judged)
        summary = plain["summary"] | {"without_limits": 1}
        page = tmp_path / "all.html"
        page.write_text(fleet_page(msgspec.convert(plain | {"summary": summary, "left": 1}, FleetReport), "all"))
        browser.open(page, dark=dark)
        bar, legend = browser.fills(".all > *"), browser.fills(".legend .swatch")
        assert len(bar) == 6
        assert legend == bar
        for (one, pattern), (other, another) in combinations(bar, 2):
            apart = min(distance(one, other, kind) for kind in BLINDNESS)
            assert apart >= 10 or pattern != another, (one, other, apart)

    @pytest.mark.parametrize("width", [360, 390, 640, 1280, 1440])
    def test_no_table_is_wider_than_the_screen(self, browser, judged, tmp_path, capsys, width):
        plain = answered(capsys, "report", judged)
        for row in (row for rows in plain["groups"].values() for row in rows):
            row |= {"value": "NVIDIA RTX 6000 Ada Generation", "findings": {"exposed-communication": 1_234}}
        job = {
            "name": "nightly/" + "llama_70b_tp8" * 4,
            "ranks": 8,
            "files": 5,
            "missing": [1, 2, 3],
            "outcome": "not measured",
            "limits_missed": [],
            "findings": ["exposed-communication"],
            "skew_us": 3.5,
            "late": 7,
            "why": "ranks 1, 2 and 3 have no recording [mixed-jobs]",
        }
        page = tmp_path / "long.html"
        page.write_text(fleet_page(msgspec.convert(plain | {"jobs": [job]}, FleetReport), "long"))
        browser.open(page, width=width)
        beyond = (
            "[...document.querySelectorAll('.data .scroll')].filter((box) => box.scrollWidth > box.clientWidth).length"
        )
        assert browser.run("document.querySelectorAll('.data .scroll').length") >= 5
        assert browser.run(beyond) == 0
        assert browser.cut() == []

    def test_on_a_phone_each_value_has_its_heading_in_front_of_it(self, browser, page):
        browser.open(page, width=390)
        assert browser.run("getComputedStyle(document.querySelector('.data td'), '::before').content") == '"model"'

    @pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
    def test_it_fits_a_phone(self, browser, page, dark):
        browser.open(page, width=360, dark=dark)
        assert browser.run("document.documentElement.scrollWidth") <= 360

    @pytest.mark.skipif(AXE is None, reason=NO_AXE)
    @pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
    def test_it_is_accessible(self, browser, page, dark):
        browser.open(page, dark=dark)
        browser.run(AXE.read_text() + ";0")
        assert browser.run("axe.run().then(result => result.violations.map(rule => rule.id))") == []

    def test_names_are_text_and_nothing_else(self, browser, traces, tmp_path):
        manifest = tmp_path / "list.jsonl"
        bad = "".join(text for text in HOSTILE if len(text) < 300).encode(errors="replace").decode()
        row = {"url": str(traces / "gpt" / "a.json.gz"), "model": bad, "test": bad}
        manifest.write_text(json.dumps(row))
        words = ["run", manifest, "--into", tmp_path / "hostile", "--limit", "max_kernels=2"]
        assert fleet(*words) == 1
        assert fleet("report", tmp_path / "hostile", "-o", tmp_path / "hostile.html") == 1
        browser.open(tmp_path / "hostile.html")
        assert browser.run("document.querySelectorAll('main img, main script, main iframe').length") == 0


class Terminal(io.StringIO):
    def isatty(self):
        return True


def progress_on(stream):
    """Return what is shown of three files, a minute and a bit each."""
    now = [0.0]
    progress = Progress(3, 3 << 20, stream, clock=lambda: now[0])
    for number in range(3):
        now[0] += 61
        progress.see(1 << 20, is_quarantined=number == 1)
        progress.show()
        now[0] += 0.01
        progress.show()
    progress.end()
    return stream.getvalue()


def test_a_log_gets_a_line_a_minute(monkeypatch):
    lines = progress_on(io.StringIO()).splitlines()
    assert len(lines) == 3
    assert lines[1].startswith("torchprof fleet: 2 of 3 files, 2.00 MiB of 3.00 MiB, 0.0 files/s")
    assert "1 quarantined" in lines[1]
    assert lines[1].endswith("1 min 1 s left")
    assert "\x1b" not in lines[1]


@pytest.mark.parametrize(
    ("columns", "bar", "parts"),
    [
        (120, "[#############-------] ", ["2.00 MiB of 3.00 MiB", "0.0 files/s", "16.8 KiB/s"]),
        (104, "[######----] ", ["2.00 MiB of 3.00 MiB", "0.0 files/s", "16.8 KiB/s"]),
        (95, "", ["2.00 MiB of 3.00 MiB", "0.0 files/s", "16.8 KiB/s"]),
        (80, "", ["2.00 MiB of 3.00 MiB", "0.0 files/s"]),
        (70, "", ["2.00 MiB of 3.00 MiB"]),
        (50, "", []),
    ],
)
def test_a_terminal_gets_a_line_that_fits_and_is_gone_at_the_end(monkeypatch, columns, bar, parts):
    """Where it is narrow the bar gives way, then rates and bytes; what is quarantined and the time left stay."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", str(columns))
    shown = progress_on(Terminal())
    assert "\n" not in shown
    assert shown.endswith("\r\x1b[K")
    lines = [part for part in shown.split("\r\x1b[K") if part]
    assert len(lines) == 3
    assert max(map(len, lines)) < columns
    assert lines[1] == bar + ", ".join(["2 of 3 files", *parts, "1 quarantined", "1 min 1 s left"])


def test_nothing_is_shown_of_a_short_run_that_no_terminal_sees(traces, tmp_path, capsys):
    assert fleet("run", traces, "--into", tmp_path / "out") == 3
    assert capsys.readouterr().err == ""
