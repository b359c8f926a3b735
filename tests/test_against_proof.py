"""Which code ran is shown by what each side imported and opened, wherever the environment would have it from."""

from __future__ import annotations

import shutil

import pytest
from repository import PACKAGE, SLOWER, TESTS, Repository
from test_against_code import installation, site_packages

from pytest_torchprof.reasons.comparing import (
    IgnoredFileRead,
    OtherSidesCode,
    OtherSidesFile,
    SharedModule,
    SideName,
)

pytestmark = pytest.mark.any_torch

WORSE = {"test_wave": ("worse (+1 kernel)", "failed")}
PROJECT = '[project]\nname = "the_waves"\n'


def unknown(run) -> bool:
    """Whether the one test was not measured, on either side."""
    return run.status == 1 and {name: verdict for name, (_, verdict) in run.rows.items()} == {
        "test_wave": "not measured"
    }


def said(run) -> str:
    return " ".join(run.out.split())


def tells(run, reason) -> bool:
    """Whether a run prints a reason, wherever the lines of long paths are broken."""
    return "".join(str(reason).split()) in "".join(run.out.split())


def at_main(repository) -> SideName:
    return SideName(f"main ({repository.git('rev-parse', 'main')[:7]})")


@pytest.mark.parametrize("copy", ["of the commit", "older than both"])
def test_a_package_that_is_installed_as_a_copy_is_not_measured(tmp_path, copy):
    made = Repository(
        tmp_path / "repository",
        {"packages/a/src/waves/__init__.py": PACKAGE, "packages/a/pyproject.toml": PROJECT, "test_waves.py": TESTS},
    )
    python = installation(tmp_path / "environment")
    library = site_packages(tmp_path / "environment")
    shutil.copytree(made.path / "packages/a/src/waves", library / "waves")
    if copy == "older than both":
        (library / "waves/__init__.py").write_text(f"{PACKAGE}\n# older\n")
        (library / "the_waves-1.0.dist-info").mkdir()
        (library / "the_waves-1.0.dist-info/RECORD").write_text("waves/__init__.py,sha256=x,1\n")
    if copy == "of the commit":  # What is kept of the commit was measured when nothing differed.
        assert made.against("main", python=python).rows == {"test_wave": ("same", "passed")}
    made.write({"packages/a/src/waves/__init__.py": SLOWER})
    run = made.against("main", python=python)
    assert unknown(run)
    source = "packages/a/src/waves/__init__.py"
    why = OtherSidesCode(SideName(), "waves", f"{library}/waves/__init__.py", differing=source)
    assert str(why) in said(run)
    assert "1 code file differs; neither side has read packages/a/src/waves/__init__.py" in said(run)
    made.write({"pytest.ini": "[pytest]\npythonpath = packages/a/src\n"})
    assert made.against("main", python=python).rows == WORSE


def test_a_package_of_the_environment_that_is_called_as_a_folder_is_none_of_ours(tmp_path):
    files = {"waves.py": PACKAGE, "examples/tones/__init__.py": "", "test_waves.py": f"import tones\n{TESTS}"}
    made = Repository(tmp_path / "repository", files)
    python = installation(tmp_path / "environment")
    (site_packages(tmp_path / "environment") / "tones.py").write_text("all_of_them = 12")
    made.write({"examples/tones/__init__.py": "# another text"})
    run = made.against("main", python=python)
    assert run.rows == {"test_wave": ("same", "passed")}
    assert "1 code file differs; neither side has read examples/tones/__init__.py" in said(run)


def test_a_linked_worktree_whose_environment_has_the_main_clone(tmp_path):
    made = Repository(tmp_path / "clone", {"python/waves/__init__.py": PACKAGE, "tests/test_waves.py": TESTS})
    linked = Repository.__new__(Repository)
    linked.path = tmp_path / "linked"
    made.git("worktree", "add", "--quiet", "--detach", str(linked.path))
    linked.write({"python/waves/__init__.py": SLOWER})
    python = installation(tmp_path / "environment", str(made.path / "python"))
    run = linked.against("HEAD", python=python)
    assert run.rows == WORSE
    assert "1 code file differs (from HEAD" in run.out


def test_code_in_testpaths_is_not_taken_for_tests(tmp_path):
    """Neither a namespace package there, nor all that a wide pattern matches."""
    ini = "[pytest]\ntestpaths = libs\npythonpath = libs\n"
    made = Repository(
        tmp_path / "made",
        {
            "libs/pk/waves.py": PACKAGE,
            "libs/test_waves.py": TESTS.replace("import waves", "from pk import waves"),
            "pytest.ini": ini,
        },
    )
    made.write({"libs/pk/waves.py": SLOWER})
    run = made.against("main")
    assert unknown(run)
    assert str(SharedModule(SideName(), "libs/pk/waves.py")) in said(run)
    own = made.against("main", "--torchprof-against-tests=own")
    assert own.rows == WORSE
    made.write({"pytest.ini": "[pytest]\npython_files = *.py\npythonpath = libs\n"})
    assert made.against("main").rows == WORSE


READS = """
import os
from pathlib import Path
import torch

STEPS = int((Path(os.environ.get("WHERE", Path(__file__).parent)) / "steps.txt").read_text())

def wave(x):
    for _ in range(STEPS):
        x = torch.sin(x)
    return x
"""


def test_what_a_link_or_the_environment_leads_to_must_be_the_sides_own(tmp_path):
    made = Repository(tmp_path / "made", {"waves.py": READS, "steps.txt": "1", "test_waves.py": TESTS})
    made.write({"steps.txt": "2"})
    assert made.against("main").rows == WORSE
    run = made.against("main", WHERE=str(made.path))
    assert unknown(run)
    assert tells(run, OtherSidesFile(at_main(made), "steps.txt", f"{made.path}/steps.txt"))


def test_a_module_that_is_a_link_into_the_working_tree(tmp_path):
    made = Repository(tmp_path / "made", {"swell.py": READS, "deep/steps.txt": "1", "test_waves.py": TESTS})
    (made.path / "waves.py").symlink_to(made.path / "swell.py")
    made.commit()
    made.write({"swell.py": READS + "# more\n"})
    run = made.against("main", WHERE="deep")
    assert unknown(run)
    tree = made.path / ".torchprof/against" / made.git("rev-parse", "main").strip() / "tree"
    assert tells(run, OtherSidesCode(at_main(made), "waves", f"{tree}/waves.py"))


def test_no_file_of_code_that_differs_is_said(tmp_path):
    made = Repository(tmp_path / "made", {"waves.py": PACKAGE, "test_waves.py": TESTS})
    run = made.against("main", "-q")
    assert run.status == 0
    assert "torchprof: 0 code files differ (from main (" in run.out


IGNORING = {".gitignore": "*.cfg\n__pycache__/\n_fast.py\n_version.py\n*.egg-info/\n.pytest_cache/\n"}
ONE_SIDED = """
from pathlib import Path
import torch

try:
    from _version import version
except ImportError:
    version = "0"
here = Path(__file__).parent / "local.cfg"
steps = int(here.read_text()) if here.is_file() else 2

def wave(x):
    for _ in range(steps):
        x = torch.sin(x)
    return x
"""


def test_a_file_that_git_ignores_exists_on_one_side(tmp_path):
    made = Repository(tmp_path / "made", {"waves.py": ONE_SIDED, "test_waves.py": TESTS, **IGNORING})
    made.write({"_version.py": "version = '1'", "made_waves.egg-info/PKG-INFO": "Name: made-waves\nVersion: 1\n"})
    assert made.against("main").rows == {"test_wave": ("same", "passed")}
    made.write({"local.cfg": "1"})
    run = made.against("main")
    assert run.status == 1
    assert (
        run.rows == {"test_wave": ("better (-1 kernel)", "not measured")} or run.rows["test_wave"][1] == "not measured"
    )
    assert tells(run, IgnoredFileRead("local.cfg", at_main(made).commit))
    assert "ignored-file]" in said(run)
    install = '--torchprof-against-install=python -c \'open("local.cfg", "w").write("1")\''
    assert made.against("main", install).rows == {"test_wave": ("same", "passed")}
