"""Repositories of every kind: what is taken from them, what is refused, and that nothing of them is changed."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest
from facts import says, why_refused
from repository import PACKAGE, SLOWER, TESTS, Repository, environment

from pytest_torchprof.against import git, overlay
from pytest_torchprof.against.base import not_started
from pytest_torchprof.against.outcomes import read_outcomes, write_outcomes
from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.commit_gaps import NotStarted
from pytest_torchprof.reasons.commits_asked import (
    BranchAndTag,
    CommitOfRemote,
    NoCommitWithText,
    NoSuchCommit,
    NotInShallowClone,
)
from pytest_torchprof.reasons.commits_measured import OneOfSeveral
from pytest_torchprof.reasons.errors import TorchprofError
from pytest_torchprof.reasons.git_refusals import NoGit, NoWorkingTree, TestsOutside
from pytest_torchprof.reasons.starting import LfsObjectMissing, SubmoduleLacksCommit, SubmoduleNotHere

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.any_torch

FILES = {"waves.py": PACKAGE, "tests/test_waves.py": TESTS}


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return Repository(tmp_path_factory.mktemp("plain") / "repository", FILES)


def exported(folder: Path, ref: str, tree: Path) -> set[str]:
    """Return the files that a commit leaves in a folder."""
    repository = git.Repository.around(folder)
    git.export(repository, repository.commit(ref), tree)
    paths = (path.relative_to(tree) for path in tree.rglob("*") if path.is_file())
    return {str(path) for path in paths if ".git" not in path.parts}


# ------------------------------------------------------------------------------------------------- a run as a whole


def test_a_worktree_of_a_repository_with_all_that_there_can_be(plain, tmp_path):
    """Detached, in a linked worktree whose path has spaces, with a submodule, hooks, a filter, new and ignored files."""
    part = Repository(tmp_path / "part", {"__init__.py": "def first(x):\n    return x.sin()\n"})
    made = Repository(tmp_path / "made", FILES)
    made.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(part.path), "tones")
    made.write({"waves.py": PACKAGE + "\nfrom tones import first\n"})
    sha = made.commit()
    part.write({"__init__.py": "def first(x):\n    return x.sin().cos()\n"})
    made.write({".git/hooks/post-checkout": f"#!/bin/sh\ntouch {tmp_path}/hooked\n"})
    for hook in ("post-index-change", "reference-transaction"):
        shutil.copy(made.path / ".git/hooks/post-checkout", made.path / ".git/hooks" / hook)
    for hook in (made.path / ".git/hooks").iterdir():
        hook.chmod(0o755)
    linked = Repository.__new__(Repository)
    linked.path = tmp_path / "a worktree" / "of it"
    made.git("worktree", "add", "--quiet", "--detach", str(linked.path))
    linked.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "update", "--init")
    tones = linked.path / "tones"
    subprocess.run(["git", "-C", str(tones), "fetch", "--quiet", str(part.path)], check=True, env=environment())
    part.commit()
    subprocess.run(["git", "-C", str(tones), "pull", "--quiet", str(part.path), "main"], check=True, env=environment())
    linked.git("mv", "tests/test_waves.py", "tests/test_renamed.py")
    renamed = TESTS.replace(
        "waves.wave(x)", "assert FACTOR == 2 and (HERE / 'data.txt').read_text() == 'new'\n    waves.first(x)"
    )
    linked.write(
        {
            "tests/test_renamed.py": "from pathlib import Path\nfrom helper import FACTOR\nHERE = Path(__file__).parent\n"
            + renamed,
            "tests/helper.py": "FACTOR = 2",
            "tests/data.txt": "new",
            "build/left.txt": "ignored",
        }
    )
    (tmp_path / "hooked").unlink(missing_ok=True)
    before = linked.state(), made.state(), made.git("for-each-ref"), (linked.path / "tones/.git").read_bytes()
    run = linked.against("HEAD", "-n1")
    assert run.rows == {"test_wave": ("worse (+1 kernel)", "failed")}
    assert f"against HEAD ({sha[:7]})" in run.out
    assert not (tmp_path / "hooked").exists()
    assert (linked.state(), made.state(), made.git("for-each-ref"), (linked.path / "tones/.git").read_bytes()) == before


# --------------------------------------------------------------------------------------------- which files are tests


@pytest.fixture
def rule():
    return overlay.TestFiles(patterns=("test_*.py", "check_*.py"), folders=(overlay.PurePosixPath("checks"),))


@pytest.mark.parametrize(
    ("name", "is_test"),
    [
        ("test_waves.py", True),
        ("waves/test_waves.py", True),
        ("waves/check_it.py", True),
        ("conftest.py", True),
        ("waves/conftest.py", True),
        ("pytest.ini", True),
        ("tests/helper.py", True),
        ("tests/data/a.bin", True),
        ("waves/test/data.txt", True),
        ("checks/helper.py", True),
        ("waves/__init__.py", False),
        ("waves/testing.py", False),
        ("pyproject.toml", False),
        ("checks_of_it.py", False),
        ("waves/test_data.txt", False),
    ],
)
def test_which_files_are_tests(rule, name, is_test):
    assert (name in rule) is is_test


def test_a_package_in_testpaths_is_code(plain):
    repository = git.Repository.around(plain.path)
    (plain.path / "unit").mkdir()
    try:
        rule = overlay.test_files(["test_*.py"], [".", "src", "tests", "unit"], plain.path, repository)
        assert [str(folder) for folder in rule.folders] == ["tests", "unit"]
        (plain.path / "unit" / "__init__.py").touch()
        rule = overlay.test_files(["test_*.py"], ["unit"], plain.path, repository)
        assert rule.folders == ()
    finally:
        shutil.rmtree(plain.path / "unit")


# --------------------------------------------------------------------------------------------------- a commit's files


def test_the_files_of_a_commit_are_a_repository_of_their_own(plain, tmp_path):
    plain.git("tag", "-f", "v1.0")
    tree = tmp_path / "tree"
    sha = plain.git("rev-parse", "HEAD").strip()
    assert exported(plain.path, sha, tree) == {".gitignore", "waves.py", "tests/test_waves.py"}

    def asked(*words):
        return subprocess.run(
            ["git", "-C", str(tree), *words], check=True, capture_output=True, text=True
        ).stdout.strip()

    assert asked("rev-parse", "HEAD") == sha
    assert asked("describe", "--tags") == "v1.0"
    assert asked("status", "--porcelain") == ""
    assert asked("rev-parse", "--show-toplevel") == str(tree)


def test_a_hook_that_calls_pytest_leads_nowhere_else(plain, tmp_path, monkeypatch):
    other = Repository(tmp_path / "other", {"other.py": ""})
    monkeypatch.setenv("GIT_DIR", str(other.path / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(other.path / ".git/index"))
    assert git.Repository.around(plain.path).top == plain.path
    assert "waves.py" in exported(plain.path, "main", tmp_path / "tree")


def test_a_clone_that_borrows_its_objects_lends_them(plain, tmp_path):
    plain.git("clone", "--quiet", "--shared", str(plain.path), str(tmp_path / "clone"))
    assert "waves.py" in exported(tmp_path / "clone", "HEAD", tmp_path / "tree")


def test_an_object_of_lfs_comes_from_the_store(plain, tmp_path):
    digest = "ab" + "c" * 62
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{digest}\nsize 3\n"
    made = Repository(tmp_path / "lfs", {".gitattributes": "*.bin filter=lfs\n", "weights.bin": pointer})
    sha = made.git("rev-parse", "HEAD").strip()
    made.git("config", "filter.lfs.required", "true")
    made.git("config", "filter.lfs.smudge", "false")  # A server that cannot be asked.
    exported(made.path, sha, tmp_path / "neither")  # Here it is a pointer too.
    assert (tmp_path / "neither" / "weights.bin").read_text() == pointer
    (made.path / "weights.bin").write_bytes(b"own")
    with pytest.raises(TorchprofError) as refused:
        exported(made.path, sha, tmp_path / "missing")
    assert refused.value.reason == LfsObjectMissing("weights.bin", sha)
    held = made.path / ".git/lfs/objects/ab/cc" / digest
    held.parent.mkdir(parents=True)
    held.write_bytes(b"abc")
    exported(made.path, sha, tmp_path / "filled")
    assert (tmp_path / "filled" / "weights.bin").read_bytes() == b"abc"


@pytest.fixture(scope="module")
def with_submodule(tmp_path_factory):
    folder = tmp_path_factory.mktemp("submodule")
    part = Repository(folder / "part", {"__init__.py": ""})
    made = Repository(folder / "made", FILES)
    made.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(part.path), "tones")
    made.commit()
    return made


def test_a_submodule_that_is_not_checked_out_is_left_out_on_both_sides(with_submodule, tmp_path):
    with_submodule.git("clone", "--quiet", str(with_submodule.path), str(tmp_path / "clone"))
    assert "tones/__init__.py" not in exported(tmp_path / "clone", "HEAD", tmp_path / "tree")


def test_the_tests_of_a_submodule_are_tests_too(with_submodule, tmp_path):
    """Those of the working tree take the place of those that the commit has."""
    tones = with_submodule.path / "tones"
    (tones / "test_tones.py").write_text("")
    tree = tmp_path / "tree"
    exported(with_submodule.path, "HEAD", tree)
    (tree / "tones/test_former.py").write_text("")
    git.ask_git(tree / "tones", "add", "test_former.py")
    here = git.Repository(top=with_submodule.path).files()
    rule = overlay.test_files(["test_*.py"], [], with_submodule.path, git.Repository(top=with_submodule.path))
    overlay.overlay(with_submodule.path, rule.of(with_submodule.path, here), tree, rule)
    (tones / "test_tones.py").unlink()
    assert sorted(path.name for path in (tree / "tones").glob("*.py")) == ["__init__.py", "test_tones.py"]


def test_a_submodule_without_the_commit_is_refused(with_submodule):
    entry = "160000,1111111111111111111111111111111111111111,tones"
    with_submodule.git("update-index", "--cacheinfo", entry)
    with_submodule.git("commit", "--quiet", "--message", "a commit that nobody has")
    run = with_submodule.against("HEAD")
    with_submodule.git("reset", "--quiet", "HEAD~")
    assert run.status == pytest.ExitCode.USAGE_ERROR
    assert str(SubmoduleLacksCommit("tones", "1" * 40)) in run.out


def test_why_the_files_of_a_commit_are_missing_reaches_its_outcomes_as_data(with_submodule, tmp_path):
    shutil.rmtree(with_submodule.path / "tones")
    with pytest.raises(TorchprofError) as refused:
        exported(with_submodule.path, "HEAD", tmp_path / "tree")
    write_outcomes(tmp_path, not_started(refused.value))
    gap = read_outcomes(tmp_path).broken
    assert gap == NotStarted(SubmoduleNotHere("tones"))
    assert gap.why.code == Code.OBJECT_MISSING


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_working_tree_that_cannot_be_written(tmp_path):
    made = Repository(tmp_path / "made", FILES)
    made.write({"waves.py": SLOWER})
    before, folders = made.state(), [made.path, *(path for path in made.path.rglob("*") if path.is_dir())]
    for folder in folders:
        folder.chmod(0o555)
    run = made.against("HEAD")
    for folder in folders:
        folder.chmod(0o755)
    assert run.rows == {"test_wave": ("worse (+1 kernel)", "failed")}
    assert made.state() == before
    assert not (made.path / ".torchprof").exists()


# ------------------------------------------------------------------------------------------------------- refusals


OPTION = "--torchprof-against"


def refusal(run) -> str:
    assert run.status == pytest.ExitCode.USAGE_ERROR
    assert "Traceback" not in run.out
    return " ".join(run.out.split())


def test_an_unknown_commit(plain):
    said = refusal(plain.against("mian"))
    assert str(NoSuchCommit(OPTION, "mian", str(plain.path), "", 1)) in said


def test_a_name_that_is_a_branch_and_a_tag_of_another_commit(tmp_path):
    made = Repository(tmp_path / "made", FILES)
    made.git("tag", "--annotate", "--message", "released", "main")
    assert git.Repository.around(made.path).commit("main") == made.git("rev-parse", "HEAD").strip()
    made.commit()
    refused = why_refused(lambda: git.Repository.around(made.path).commit("main~1"))
    assert refused == BranchAndTag(OPTION, "main~1", "main")
    assert git.Repository.around(made.path).commit("refs/heads/main") == made.git("rev-parse", "HEAD").strip()


def test_a_commit_by_a_text_of_its_message(tmp_path):
    made = Repository(tmp_path / "made", FILES)
    sha = made.commit("Waves are even higher...")
    made.commit("another")
    around = git.Repository.around(made.path)
    assert around.commit(":/even high") == sha
    assert around.commit("HEAD^{/even}") == sha
    refused = why_refused(lambda: around.commit(":/lower"))
    assert refused == NoCommitWithText(OPTION, ":/lower", str(made.path))


def test_a_branch_that_only_the_remote_has(plain, tmp_path):
    clone = Repository.__new__(Repository)
    clone.path = tmp_path / "clone"
    plain.git("branch", "--force", "other")
    plain.git("clone", "--quiet", str(plain.path), str(clone.path))
    assert str(CommitOfRemote(OPTION, "other", "origin/other")) in refusal(clone.against("other"))


@pytest.mark.parametrize(
    ("ref", "fetch", "branch"),
    [
        ("other", "git fetch --depth=1 origin other:refs/remotes/origin/other", "origin/other"),
        ("HEAD~5", "git fetch --unshallow origin", None),
    ],
)
def test_a_shallow_clone_without_the_commit(plain, tmp_path, ref, fetch, branch):
    plain.git("branch", "--force", "other")
    plain.write({"later.txt": ref})
    plain.commit()
    clone = Repository.__new__(Repository)
    clone.path = tmp_path / "clone"
    plain.git("clone", "--quiet", "--depth=1", f"file://{plain.path}", str(clone.path))
    assert str(NotInShallowClone(OPTION, ref, fetch, branch)) in refusal(clone.against(ref))
    assert "later.txt" in exported(clone.path, "HEAD", tmp_path / "tree")


def test_no_repository_no_git_and_tests_of_elsewhere(plain, tmp_path):
    (tmp_path / "test_waves.py").write_text("def test_it(): pass")
    assert says(why_refused(lambda: git.Repository.around(tmp_path)), NoWorkingTree, folder=str(tmp_path), status=128)
    assert "[no-repository]" in refusal(plain.against("main", cwd=tmp_path))
    assert str(NoGit()) in refusal(plain.against("main", PATH=os.devnull))
    outside = refusal(plain.against("main", str(tmp_path), f"--rootdir={plain.path}"))
    assert str(TestsOutside(str(plain.path), str(tmp_path))) in outside


@pytest.mark.parametrize("option", ["--torchprof-baseline=update", "--torchprof-replay=.", "--torchprof=off"])
def test_options_that_exclude_it(plain, option):
    assert "--torchprof-against and --torchprof" in refusal(plain.against("main", option))


def test_one_of_several_ranks_is_refused(plain):
    said = refusal(plain.against("main", RANK="1", WORLD_SIZE="2"))
    assert str(OneOfSeveral(OPTION, "rank 1 of 2")) in said


def test_what_stands_in_the_way_of_the_kept_folder_is_not_written_through(plain, tmp_path):
    """As in a working tree that cannot be written: all is done in a folder that goes with the run."""
    made = Repository(tmp_path / "made", FILES)
    made.write({"waves.py": SLOWER})
    (tmp_path / "elsewhere").mkdir()
    (made.path / ".torchprof").symlink_to(tmp_path / "elsewhere")
    run = made.against("main")
    assert run.rows == {"test_wave": ("worse (+1 kernel)", "failed")}
    assert not any((tmp_path / "elsewhere").iterdir())
