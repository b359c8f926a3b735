"""Links of every kind, in the commit and in the working tree: nothing is written or removed through one."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest
from repository import PACKAGE, SLOWER, TESTS, Repository

from pytest_torchprof.against import git, overlay
from pytest_torchprof.against.folders import run_folders
from pytest_torchprof.against.own_files import free_path, own_folder
from pytest_torchprof.reasons.whole_runs import NothingCompared

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.any_torch

VICTIM = "this is the user's\n"
RULE = overlay.TestFiles(patterns=("test_*.py",), folders=(overlay.PurePosixPath("checks"),))


def snapshot(folder: Path) -> dict[str, object]:
    """Return all that lies in a folder: files with their contents, links with what they say, and folders."""

    def held(path: Path) -> object:
        if path.is_symlink():
            return path.readlink()
        return path.read_bytes() if path.is_file() else None

    places = sorted(path for path in folder.rglob("*") if ".torchprof" not in path.relative_to(folder).parts)
    return {str(path.relative_to(folder)): held(path) for path in places}


LINKS = {
    "absolute, to a folder beside": ("tests", "{around}/beside"),
    "absolute, to the user's own tests": ("tests", "{top}/src/tests"),
    "absolute, to the user's own code": ("tests", "{top}/src"),
    "relative, inside": ("tests", "src"),
    "relative, to a folder beside": ("tests", "../beside"),
    "relative, to a folder beside as seen from the export": ("tests", "../../around/beside"),
    "to a file beside": ("tests", "{around}/beside/test_waves.py"),
    "to the repository's settings": ("tests", "{top}/.git"),
    "dangling": ("tests", "{around}/nowhere"),
    "dangling and relative": ("tests", "../nowhere/at/all"),
    "to itself": ("tests", "tests"),
    "to the root": ("tests", "."),
    "a folder on the way": ("tests/deep", "{around}/beside"),
    "a file": ("tests/test_waves.py", "{around}/beside/test_waves.py"),
    "a file of the commit": ("tests/test_waves.py", "../src/waves.py"),
    "helpers of the tests": ("tests/deep/data.txt", "{around}/beside/data.txt"),
    "a folder of testpaths": ("checks", "{around}/beside"),
    "a folder of code": ("lib", "{around}/beside"),
    "a folder of code inside": ("lib", "src"),
    "a folder of code on the way": ("lib/deep", "../src"),
    "settings": ("pytest.ini", "{around}/beside/test_waves.py"),
    "a conftest": ("conftest.py", "{around}/beside/conftest.py"),
}
OF_TESTS = {
    name: f"# {name}, of the working tree\n"
    for name in (
        *("tests/test_waves.py", "tests/deep/test_waves.py", "tests/deep/data.txt", "checks/test_waves.py"),
        *("lib/test_waves.py", "lib/deep/test_waves.py", "conftest.py", "pytest.ini"),
    )
}
CODE = {"src/waves.py": PACKAGE, "src/tests/test_waves.py": VICTIM, "lib/deep/code.py": ""}


@pytest.fixture
def beside(tmp_path):
    """A folder beside the repository, with files of the names that tests have."""
    names = ("test_waves.py", "conftest.py", "data.txt", "deep/test_waves.py", "deep/data.txt")
    for name in names:
        (tmp_path / "around/beside" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "around/beside" / name).write_text(VICTIM)
    return tmp_path / "around/beside"


def linked(made: Repository, name: str, says: str) -> Path:
    """Put a link into the working tree, in the place of what is there."""
    place = made.path / name
    if place.is_dir():
        shutil.rmtree(place)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.unlink(missing_ok=True)
    place.symlink_to(says.format(around=made.path.parent, top=made.path))
    return place


@pytest.mark.parametrize("kind", LINKS)
def test_the_tests_come_to_stand_in_the_place_of_links_of_the_commit(tmp_path, beside, kind):
    name, says = LINKS[kind]
    made = Repository(tmp_path / "around/made", {**CODE, **OF_TESTS})
    linked(made, name, says)
    sha = made.commit()
    (made.path / name).unlink()
    made.write({**CODE, **OF_TESTS, "src/tests/test_waves.py": VICTIM})
    before = snapshot(tmp_path / "around")
    tree = tmp_path / "trees" / "tree"
    here = git.Repository(top=made.path)
    git.export(here, sha, tree)
    for _ in range(2):  # The second time over what the first has left.
        overlay.overlay(made.path, RULE.of(made.path, here.files()), tree, RULE)
    assert snapshot(tmp_path / "around") == before
    assert [path.name for path in (tmp_path / "trees").iterdir()] == ["tree"]
    for test, text in OF_TESTS.items():
        assert (tree / test).resolve() == tree / test
        assert (tree / test).read_text() == text
    if says == "src":  # What the commit's code finds there stays.
        assert (tree / "src/waves.py").read_text() == PACKAGE
        assert (tree / "lib/waves.py").is_file() == (name == "lib")


@pytest.mark.parametrize("kind", LINKS)
def test_links_among_the_tests_of_the_working_tree_stay_links(tmp_path, beside, kind):
    """They lead where they lead here: to a side's own files, or to what lies outside of both."""
    name, says = LINKS[kind]
    made = Repository(tmp_path / "around/made", {**CODE, **OF_TESTS})
    sha = made.commit()
    link = linked(made, name, says)
    before = snapshot(tmp_path / "around")
    tree = tmp_path / "tree"
    here = git.Repository(top=made.path)
    git.export(here, sha, tree)
    for _ in range(2):
        overlay.overlay(made.path, RULE.of(made.path, here.files()), tree, RULE)
    assert snapshot(tmp_path / "around") == before
    if name == "lib" or name.startswith("lib/"):  # A folder of code: the commit has its own.
        assert not (tree / name).is_symlink()
        return
    assert (tree / name).is_symlink()
    leads_to = os.path.normpath(link.parent / link.readlink())
    there = os.path.normpath((tree / name).parent / (tree / name).readlink())
    inside = leads_to == str(made.path) or leads_to.startswith(f"{made.path}/")
    assert there == (leads_to.replace(str(made.path), str(tree), 1) if inside else leads_to)


def test_a_place_of_our_own_where_anything_may_stand(tmp_path, beside):
    """As where names that differ in case alone are one, so that git itself may leave a link on the way."""
    root = tmp_path / "root"
    (root / "real/below").mkdir(parents=True)
    (root / "real/below/file").write_text("inside")
    (root / "A").symlink_to(beside)
    (root / "inside").symlink_to("real")
    (root / "file").write_text("in the way")
    (root / "real/up").symlink_to("..")
    before = snapshot(beside)
    assert not free_path(root, "A/deep/test_waves.py").exists()
    assert own_folder(root, "inside/below") == root / "inside/below"
    assert (root / "inside/below/file").read_text() == "inside"
    assert own_folder(root, "file/deeper").is_dir()
    assert not any(own_folder(root, "real/up").iterdir())
    assert not free_path(root, "real").exists()
    assert own_folder(root, ".") == root
    assert snapshot(beside) == before


def test_where_the_system_has_no_links_git_leaves_files(tmp_path, beside):
    made = Repository(tmp_path / "around/made", {**CODE})
    linked(made, "tests", str(beside))
    sha = made.commit()
    made.git("config", "core.symlinks", "false")
    (made.path / "tests").unlink()
    made.write(OF_TESTS)
    before, tree = snapshot(tmp_path / "around"), tmp_path / "tree"
    here = git.Repository(top=made.path)
    git.export(here, sha, tree)
    assert (tree / "tests").read_text() == str(beside)
    overlay.overlay(made.path, RULE.of(made.path, here.files()), tree, RULE)
    assert (tree / "tests/test_waves.py").read_text() == OF_TESTS["tests/test_waves.py"]
    assert snapshot(tmp_path / "around") == before


def test_the_submodule_of_a_commit_comes_into_a_folder_of_ours(tmp_path, beside):
    part = Repository(tmp_path / "around/part", {"test_part.py": ""})
    made = Repository(tmp_path / "around/made", CODE)
    made.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(part.path), "lib/part")
    linked(part, "tests", str(beside))
    part.commit()
    there = made.path / "lib/part"
    for words in (("pull", "--quiet", "origin", "main"), ("status",)):
        command = ["git", "-c", "protocol.file.allow=always", "-C", str(there), *words]
        subprocess.run(command, check=True, capture_output=True)
    sha = made.commit()
    (there / "tests").unlink()
    (there / "tests").mkdir()
    (there / "tests/test_waves.py").write_text("changed here")
    before, tree = snapshot(tmp_path / "around"), tmp_path / "tree"
    here = git.Repository(top=made.path)
    git.export(here, sha, tree)
    overlay.overlay(made.path, RULE.of(made.path, here.files()), tree, RULE)
    assert (tree / "lib/part/tests/test_waves.py").read_text() == "changed here"
    assert snapshot(tmp_path / "around") == before


# ------------------------------------------------------------------------------------------------- a run as a whole


@pytest.fixture
def attacked(tmp_path, beside):
    """A commit that has a link wherever a comparison puts, writes or removes something."""
    made = Repository(
        tmp_path / "around/made", {"waves.py": PACKAGE, "real/test_waves.py": TESTS, "part/tests/test_waves.py": TESTS}
    )
    linked(made, "tests", str(beside))
    linked(made, "part", str(beside))
    linked(made, "real", f"{made.path}/work")
    linked(made, "torchprof-against.toml", f"{made.path}/waves.py")
    linked(made, "torchprof-against.ini", f"{made.path}/waves.py")
    linked(made, "part_too", "../beside")
    linked(made, "rest", "{around}/nowhere")
    made.commit()
    for name in ("tests", "part", "real", "torchprof-against.toml", "torchprof-against.ini", "part_too", "rest"):
        (made.path / name).unlink()
    failing = TESTS.replace("test_wave", "test_other")
    made.write(
        {
            "waves.py": SLOWER,
            "pyproject.toml": "[tool.pytest.ini_options]\nconsider_namespace_packages = true\n",
            "work/keep.txt": VICTIM,
            "tests/test_waves.py": TESTS,
            "tests/deep/data.txt": "new",
            "part/tests/test_parts.py": failing,
            "part_too/test_more.py": "",
            "rest/test_rest.py": "",
            "real/test_waves_too.py": "",
        }
    )
    return made


def test_a_run_writes_through_no_link_of_the_commit(tmp_path, attacked):
    state, before = attacked.state(), snapshot(tmp_path / "around/beside")
    run = attacked.against("main")
    assert run.rows == {
        "test_wave": ("worse (+1 kernel)", "failed"),
        "test_other": ("worse (+1 kernel)", "failed"),
    }
    assert attacked.state() == state
    assert snapshot(tmp_path / "around/beside") == before
    # Started in a folder, and with a root directory, that are links there.
    attacked.write({"part/pytest.ini": "[pytest]\n", "part/waves.py": SLOWER})
    state = attacked.state()
    attacked.against("main", cwd=attacked.path / "part")
    assert attacked.state() == state
    assert snapshot(tmp_path / "around/beside") == before


@pytest.mark.parametrize(
    "place", [".", "lock", "runs.lock", "runs", "runs/old.lock", "here", "here/environment", "SHA", "SHA/tree"]
)
def test_a_link_in_the_kept_folder_leads_nothing_astray(tmp_path, beside, place):
    """All is then done in a folder that goes with the run."""
    made = Repository(tmp_path / "around/made", {})
    place = f".torchprof/against/{place.replace('SHA', made.git('rev-parse', 'HEAD').strip())}"
    link = linked(made, place, str(beside / "data.txt" if place.endswith("lock") else beside))
    before = snapshot(tmp_path / "around"), made.state()
    with run_folders(made.path) as folders:
        for folder in (folders.kept, folders.caches, folders.results):
            assert not folder.is_relative_to(tmp_path)
    assert not folders.kept.exists()
    assert (snapshot(tmp_path / "around"), made.state()) == before
    assert link.is_symlink()


def test_an_environment_is_made_anew_through_no_link(tmp_path, beside):
    made = Repository(tmp_path / "around/made", {"waves.py": PACKAGE, "tests/test_empty.py": ""})
    link = linked(made, f".torchprof/against/{made.git('rev-parse', 'HEAD').strip()}/environment", str(beside))
    before = snapshot(beside), made.state()
    run = made.against("main", "--torchprof-against-install=true")
    assert f"[{NothingCompared.CODE}]" in run.out
    assert (snapshot(beside), made.state()) == before
    assert link.is_symlink()


def test_what_git_tracks_in_the_kept_folder_is_not_removed(tmp_path):
    made = Repository(tmp_path / "made", {"waves.py": PACKAGE, "tests/test_empty.py": ""})
    kept = made.path / ".torchprof/against"
    made.write({f".torchprof/against/{'a' * 40}/caches/deep/x.txt": VICTIM, ".torchprof/against/runs/y/z.txt": VICTIM})
    made.git("add", "--force", ".torchprof")
    made.commit()
    made.against("main")
    assert (kept / ("a" * 40) / "caches/deep/x.txt").read_text() == VICTIM
    assert (kept / "runs/y/z.txt").read_text() == VICTIM
    assert made.git("status", "--porcelain") == ""
