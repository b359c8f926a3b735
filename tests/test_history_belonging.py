"""Whose records a history takes: those of its own project, whoever writes them, and none whose project is not known."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from histories import launched, run_of, sha, write
from msgspec.structs import replace

from pytest_torchprof.cli import main
from pytest_torchprof.history.record import SUFFIX
from pytest_torchprof.history.store import records_of
from pytest_torchprof.history.stores import store_at
from pytest_torchprof.history.where import where_of
from pytest_torchprof.reasons.records import OfOtherProject, ProjectUnknown

pytestmark = pytest.mark.any_torch

TEST = "test_model.py::test_block"
OURS = "example.org/team/model"
MEASURED = "import torch\n@cpu\ndef test_it(): torch.mm(torch.ones(4, 4), torch.ones(4, 4))"
ANYWAY = "--without-project"


def at(commit, **facts):
    return run_of(commit, launched(TEST, {"gemm": 5}), **facts)


NOWHERE = replace(at(7), commit=None, uuid="0" * 32)
"""Of a run outside a repository."""
NOWHERE_AGAIN = replace(NOWHERE, uuid="1" * 32)
UNNAMED = at(8, project=None)
"""Of a repository without a remote, in which the commits before it are known."""
ELSEWHERE = at(8, project=None, sha=sha("x"), parents=(), ancestors=())
"""Of another repository without one, or of a clone that is too shallow to tell."""
OTHER = at(8, project="example.org/other/model")
OWN = at(9)


@pytest.fixture(params=["folder", "memory", "sqlite", "postgresql"])
def where(request, store_of):
    return store_of(request.param)


def ids(where):
    return {record.uuid for record in records_of(store_at(where_of(where, Path())))}


def fill(where, *runs):
    for run in runs:
        store_at(where_of(where, Path())).add(run)


def names_of(runs):
    return {run.uuid for run in runs}


def test_records_of_which_nothing_tells_the_project_are_refused_by_name_by_every_way_in(where, tmp_path, capsys):
    fill(where, at(1))
    incoming = (OWN, NOWHERE, UNNAMED, ELSEWHERE, OTHER)
    taken = names_of([at(1), OWN, UNNAMED])
    source = str(write(tmp_path / "in", incoming))
    outbox = write(tmp_path / ".torchprof/outbox", incoming)
    for words in (("import", where, source), ("merge", where, source), ("push", where, f"--rootdir={tmp_path}")):
        assert main(["history", *words]) == 2
        told = capsys.readouterr().err
        assert {run.uuid for run in incoming if run.uuid in told} == names_of([NOWHERE, ELSEWHERE, OTHER])
        assert told.count(ANYWAY) == 2
        assert ids(where) == taken
    assert {file.name.removesuffix(SUFFIX) for file in outbox.iterdir()} == names_of([NOWHERE, ELSEWHERE, OTHER])


def test_what_nothing_tells_the_project_of_is_taken_where_somebody_says_so_and_another_project_never(
    where, tmp_path, capsys
):
    fill(where, at(1))
    write(tmp_path / ".torchprof/outbox", [NOWHERE, ELSEWHERE, OTHER])
    assert main(["history", "push", where, f"--rootdir={tmp_path}", ANYWAY]) == 2
    told = capsys.readouterr()
    assert told.out == "2 records added\n"
    assert OfOtherProject("example.org/other/model", OURS).text in told.err
    assert ids(where) == names_of([at(1), NOWHERE, ELSEWHERE])


@pytest.mark.parametrize(
    ("there", "refused"),
    [
        pytest.param([], [], id="a new one"),
        pytest.param([NOWHERE], [UNNAMED, ELSEWHERE, OWN], id="of runs in no repository"),
        pytest.param(
            [UNNAMED], [NOWHERE, NOWHERE_AGAIN, ELSEWHERE], id="of a repository without a remote, which has one now"
        ),
        pytest.param([ELSEWHERE], [NOWHERE, NOWHERE_AGAIN, UNNAMED, OWN], id="of another repository without a remote"),
        pytest.param([NOWHERE, OWN], [NOWHERE_AGAIN, ELSEWHERE], id="of which some records name nothing"),
    ],
)
@pytest.mark.parametrize("kind", ["folder", "sqlite"])
def test_a_history_that_names_no_project_takes_what_shares_a_commit_with_it(store_of, capsys, kind, there, refused):
    for own in (NOWHERE, NOWHERE_AGAIN, UNNAMED, ELSEWHERE, OWN):
        where, source = store_of(kind), store_of("folder")
        fill(where, *there)
        fill(source, own)
        assert main(["history", "import", where, source]) == (2 if own in refused else 0)
        assert (ANYWAY in capsys.readouterr().err) is (own in refused)
        assert (own.uuid in ids(where)) is (own not in refused)


def test_what_is_imported_together_is_of_one_project(tmp_path, capsys):
    """The first record says of which; a fork and a repository without a commit in common come after it."""
    runs = [replace(run, uuid=f"{number:032x}") for number, run in enumerate([OWN, OTHER, UNNAMED, ELSEWHERE])]
    assert main(["history", "import", str(tmp_path / "new"), str(write(tmp_path / "in", runs))]) == 2
    assert capsys.readouterr().out == "2 records added, 0 known, 2 refused\n"
    assert ids(str(tmp_path / "new")) == names_of([runs[0], runs[2]])


def test_a_history_whose_first_record_names_no_project_is_taken_over_as_it_is(tmp_path, capsys):
    runs = [replace(run, uuid=f"{number:032x}") for number, run in enumerate([ELSEWHERE, UNNAMED, OWN])]
    source, new = str(write(tmp_path / "in", runs)), str(tmp_path / "new")
    assert main(["history", "merge", new, source]) == 2
    assert capsys.readouterr().out == "2 records added, 0 known, 1 refused\n"
    assert ids(new) == names_of([runs[1], runs[2]])
    assert main(["history", "merge", new, source, ANYWAY]) == 0
    assert ids(new) == names_of(runs)


RENAMED = at(10, project="example.org/team/model2")
"""Of the same repository, which has another name since."""


def test_the_history_of_a_renamed_repository_goes_on_where_somebody_says_how_it_is_called_now(where, tmp_path, capsys):
    fill(where, at(1), OWN)
    incoming = str(write(tmp_path / "in", [RENAMED, OTHER]))
    assert main(["history", "import", where, incoming]) == 2
    assert ids(where) == names_of([at(1), OWN])
    capsys.readouterr()
    # As git has the remote, or as records do.
    assert (
        main(["history", "alias", where, "--project", f"git@{OURS.replace('/', ':', 1)}.git", RENAMED.commit.project])
        == 0
    )
    assert capsys.readouterr().out == f"{OURS} is {RENAMED.commit.project} now\n"
    assert main(["history", "import", where, incoming]) == 2
    told = capsys.readouterr()
    assert told.out == "1 record added, 0 known, 1 refused\n"
    assert OfOtherProject(OTHER.commit.project, RENAMED.commit.project).text in told.err
    assert ids(where) == names_of([at(1), OWN, RENAMED])
    # Records of the time before are still its own, and the branch is one line.
    assert main(["history", "import", where, str(write(tmp_path / "old", [at(4)]))]) == 0
    capsys.readouterr()
    assert main(["history", "changes", where]) == 0
    assert capsys.readouterr().out.startswith("main: 4 runs of 4 commits")


def test_an_alias_of_a_project_is_taken_back(tmp_path, capsys):
    where = str(write(tmp_path / "kept", [OWN]))
    for new in (RENAMED.commit.project, OURS):
        assert main(["history", "alias", where, "--project", OURS, new]) == 0
    assert main(["history", "import", where, str(write(tmp_path / "in", [RENAMED]))]) == 2


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ("example.org/nobody/nothing", "example.org/a/b", "[no-history]"),
        ("nothing", "example.org/a/b", "[bad-usage]"),
        (OURS, " ", "[bad-usage]"),
    ],
)
def test_names_that_are_no_project_of_the_history_are_refused(tmp_path, capsys, old, new, code):
    where = str(write(tmp_path / "kept", [OWN]))
    assert main(["history", "alias", where, "--project", old, new]) == 2
    assert code in capsys.readouterr().err
    assert store_at(where_of(where, Path())).notes() == []


def git(folder, *words):
    settings = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "init.defaultBranch=main")
    subprocess.run(["git", *settings, *words], cwd=folder, capture_output=True, check=True)


def test_a_runs_own_record_waits_in_the_outbox_where_the_history_is_of_another_project(
    where, run_tests, pytester, capsys
):
    git(pytester.path, "init", "-q")
    git(pytester.path, "remote", "add", "origin", "git@example.org:me/notes.git")
    git(pytester.path, "commit", "-q", "-m", "one", "--allow-empty")
    fill(where, at(1))
    result = run_tests(MEASURED, f"--torchprof-history={where}")
    result.assert_outcomes(passed=1)
    assert result.ret == 0
    result.stdout.fnmatch_lines([f"*{OfOtherProject('example.org/me/notes', OURS).text}*outbox*"])
    assert ids(where) == names_of([at(1)])
    (waiting,) = Path(".torchprof/outbox").glob(f"*{SUFFIX}")
    assert main(["history", "push", where, ANYWAY]) == 2
    assert waiting.is_file()
    assert main(["history", "push", "elsewhere"]) == 0
    assert f"{waiting.name}" in {file.name for file in Path("elsewhere").iterdir()}


def test_a_run_outside_a_repository_says_why_its_record_waits_and_which_word_takes_it(run_tests, pytester, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(pytester.path.parent))
    write(pytester.path / "kept", [at(1)])
    result = run_tests(MEASURED, "--torchprof-history=kept")
    assert result.ret == 0
    result.stdout.fnmatch_lines([f"*{ProjectUnknown(ANYWAY, None, OURS, in_repository=False).text}*outbox*"])
    assert main(["history", "push", "kept", ANYWAY]) == 0
    assert len(ids("kept")) == 2
