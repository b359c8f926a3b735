"""The jobs of docs/history.md: their YAML is one, and what they run gives what the page says of it."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from string import Template

import fresh
import pytest
import yaml
from histories import launched, run_of, write

from pytest_torchprof.cli import main
from pytest_torchprof.history.store import records_of
from pytest_torchprof.history.stores import store_at
from pytest_torchprof.history.where import where_of

pytestmark = pytest.mark.any_torch

PAGE = Path(__file__).parents[1] / "docs" / "history.md"
BLOCKS = [yaml.load(text, yaml.BaseLoader) for text in re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)]
ARTIFACTS, DATABASE = (block["jobs"] for block in BLOCKS)
TEST = """
import pytest, torch

@pytest.mark.torchprof(device="cpu", warmup=1, steps=1)
def test_it(): torch.ones(4).sin()
"""
GH = """\
#!/bin/sh
# Stands for GitHub: the artifact of the last run on main, if there is one.
echo "$*" >> "$ASKED"
case "$1 $2" in
  "api "*) [ -d "$ARTIFACT" ] && echo 4711 || true ;;
  "run download") cp -r "$ARTIFACT" "$7" ;;
  *) exit 1 ;;
esac
"""


def run_steps(job, **variables):
    """Run what a job runs, a step after the other, and stop at the first that fails; ``pip install`` is done."""
    for step in job["steps"]:
        if (command := step.get("run")) is None:
            continue
        known = {**os.environ, **job.get("env", {}), **variables}
        program, *words = shlex.split(Template(command).safe_substitute(known)) if "\n" not in command else [command]
        if program == "pytest":
            status = fresh.run_pytest("-p", "no:cacheprovider", *words).ret
        elif program == "torchprof":
            status = main(words)
        elif program == "pip":
            assert words[0] == "install"
            assert words[1].partition("[")[0] == "pytest-torchprof"
            status = 0
        else:
            status = subprocess.run(["bash", "-e", "-c", command], env=known, check=False).returncode
        assert status == 0, command


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A repository as actions/checkout leaves it, in which the jobs run."""
    for name in ("CI", "GITHUB_STEP_SUMMARY", "GITHUB_WORKSPACE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"GITHUB_ACTIONS": "true", "GITHUB_EVENT_NAME": "push", "GITHUB_REF_NAME": "main"}.items():
        monkeypatch.setenv(name, value)
    folder = tmp_path / "checkout"
    folder.mkdir()
    (folder / "test_it.py").write_text(TEST)
    (folder / ".gitignore").write_text("__pycache__\nrecord\nhistory\n")
    settings = ("-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "init.defaultBranch=main")
    for words in ("init -q", "remote add origin https://github.com/team/model", "add -A", "commit -qm one"):
        subprocess.run(["git", *settings, *words.split()], cwd=folder, check=True)
    monkeypatch.chdir(folder)
    return folder


def kept(where):
    return list(records_of(store_at(where_of(where, Path()))))


def test_the_jobs_are_jobs_of_github():
    for jobs in (ARTIFACTS, DATABASE):
        for job in jobs.values():
            assert job["runs-on"]
            assert all(("uses" in step) != ("run" in step) for step in job["steps"])
    uploaded = {step["with"]["name"]: step["with"]["path"] for step in artifact_steps("upload")}
    assert uploaded == {"torchprof-record": "record", "torchprof-history": "history"}
    (taken,) = artifact_steps("download")
    assert uploaded[taken["with"]["name"]] == taken["with"]["path"]


def artifact_steps(what):
    steps = [step for job in ARTIFACTS.values() for step in job["steps"]]
    return [step for step in steps if step.get("uses", "").startswith(f"actions/{what}-artifact@")]


@pytest.mark.skipif(sys.platform == "win32", reason="runs bash")
def test_the_job_with_a_folder_makes_the_history_and_adds_to_it_in_the_next_run(
    checkout, tmp_path, monkeypatch, capsys
):
    gh = tmp_path / "bin" / "gh"
    gh.parent.mkdir()
    gh.write_text(GH)
    gh.chmod(0o755)
    artifact, asked = tmp_path / "artifact", tmp_path / "asked"
    monkeypatch.setenv("PATH", f"{gh.parent}{os.pathsep}{os.environ['PATH']}")
    told = {"ARTIFACT": str(artifact), "ASKED": str(asked), "GH_REPO": "team/model", "GH_TOKEN": "none"}
    run_steps(ARTIFACTS["gate"])
    run_steps(ARTIFACTS["history"], **told)
    (first,) = kept("history")
    assert (first.event, first.commit.branch, first.commit.project) == ("push", "main", "github.com/team/model")
    assert (checkout / "history/history.html").is_file()
    # The artifact of that run is what the next one finds; somebody's fork has left a record beside its own.
    (checkout / "history").rename(artifact)
    fork = run_of(5, launched("test_it.py::test_it", {"a": 9}), event="pr", project="github.com/team/model")
    write(checkout / "record", [fork])
    run_steps(ARTIFACTS["history"], **told)
    assert kept("history") == [first]
    assert "repos/team/model/actions/artifacts?name=torchprof-history" in asked.read_text()
    assert asked.read_text().splitlines()[-1].startswith("run download 4711 --name torchprof-history --dir history")


def test_the_job_with_postgresql_leaves_its_record_in_the_database(checkout, postgresql, capsys):
    services, env = DATABASE["gate"]["services"]["postgres"]["env"], DATABASE["gate"]["env"]
    password, user, name = (services[f"POSTGRES_{what}"] for what in ("PASSWORD", "USER", "DB"))
    assert (env["PGPASSWORD"], env["HISTORY"]) == (password, f"postgresql+psycopg://{user}@localhost:5432/{name}")
    where = postgresql.database()
    run_steps(DATABASE["gate"], HISTORY=where)
    (record,) = kept(where)
    assert record.measurements[0].test == "test_it.py::test_it"
    assert capsys.readouterr().out.endswith("0 records added\n")


def test_the_lines_of_a_shell_on_the_page_are_commands_with_options_that_exist(capsys):
    """What they print is another matter: here only the words are read."""
    lines = re.findall(r"^(?:\$ )?(torchprof history [^\n]*)$", PAGE.read_text(), re.MULTILINE)
    assert len(lines) > 12
    for line in lines:
        program, _, command, *words = shlex.split(line)
        assert program == "torchprof"
        with pytest.raises(SystemExit) as ended:
            raise SystemExit(main(["history", command, "--help"]))
        assert ended.value.code == 0
        described = capsys.readouterr().out
        assert all(word.partition("=")[0] in described for word in words if word.startswith("-")), line


def test_a_job_that_ends_with_changes_says_so_by_its_exit_status(tmp_path, capsys):
    """The numbers that the page and the command's own help name."""
    steady = [run_of(at, launched("t.py::t", {"a": 1})) for at in range(3)]
    folder = str(write(tmp_path, steady))
    assert main(["history", "changes", folder, "--fail-on", "counts", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["events"] == []
    write(tmp_path, [run_of(3, launched("t.py::t", {"a": 2}))])
    assert main(["history", "changes", folder, "--fail-on", "counts"]) == 1
