"""Each side measures its own code: however the package is installed, and wherever it would be imported from."""

from __future__ import annotations

import errno
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from repository import PACKAGE, SLOWER, TESTS, WITHOUT_COMPILER, Repository

from pytest_torchprof.against import environment
from pytest_torchprof.reasons.comparing import OtherSidesCode, SideName
from pytest_torchprof.reasons.starting import CommandNotRun
from pytest_torchprof.report import MeasuredOnlyThere

pytestmark = pytest.mark.any_torch

WORSE = {"test_wave": ("worse (+1 kernel)", "failed")}
HERE = sysconfig.get_path("purelib")
FINDER = """
import sys
from importlib.machinery import PathFinder
from importlib.util import spec_from_file_location

MAPPING = {MAPPING}

class _EditableFinder:
    @classmethod
    def find_spec(cls, fullname, path=None, target=None):
        if fullname in MAPPING:
            return spec_from_file_location(fullname, MAPPING[fullname] + "/__init__.py")

def install():
    sys.meta_path.{PLACE}(_EditableFinder)
"""


def site_packages(made: Path) -> Path:
    """Return where an environment has what is installed in it."""
    return next((made / "lib").glob("python*")) / "site-packages"


def installation(folder: Path, *lines: str) -> str:
    """Return the Python of an environment that shares this one's packages and has a file of paths of its own."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    python = folder / "bin" / "python"
    library = site_packages(folder)
    (library / "shared.pth").write_text(f"import site; site.addsitedir({HERE!r})\n")
    (library / "waves.pth").write_text("\n".join(lines) + "\n")
    return str(python)


def changed(path: Path, folder: str, **more: str) -> Repository:
    """Return a repository with a package in a folder, to which the working tree adds a kernel."""
    made = Repository(path, {f"{folder}waves/__init__.py": PACKAGE, "tests/test_waves.py": TESTS, **more})
    made.write({f"{folder}waves/__init__.py": SLOWER})
    return made


def test_a_package_in_src_that_an_editable_install_has_put_on_the_path(tmp_path):
    made = changed(tmp_path / "repository", "src/", **{"conftest.py": WITHOUT_COMPILER})
    python = installation(tmp_path / "environment", str(made.path / "src"))
    run = made.against("main", python=python, by_fork=False)
    assert run.rows == WORSE


@pytest.mark.parametrize("place", ["append", "insert"])
def test_a_package_that_an_import_hook_finds(tmp_path, place):
    made = changed(tmp_path / "a repository", "lib/python/")
    where = {"waves": str(made.path / "lib/python/waves")}
    python = installation(
        tmp_path / "environment", "import __editable___waves_finder; __editable___waves_finder.install()"
    )
    library = site_packages(tmp_path / "environment")
    call = "insert(0, _EditableFinder) #" if place == "insert" else "append"
    hook = FINDER.replace("{MAPPING}", repr(where)).replace("{PLACE}", call)
    (library / "__editable___waves_finder.py").write_text(hook)
    run = made.against("main", python=python)
    if place == "append":  # As that of setuptools: what is on the path comes first.
        assert run.rows == WORSE
        return
    # The hook of another builder, which wins over the path: it would have measured the working tree on both sides.
    assert run.status == 1
    assert run.rows == {"test_wave": ("unknown", "not measured")}
    at_main = SideName(f"main ({made.git('rev-parse', 'main')[:7]})")
    why = OtherSidesCode(at_main, "waves", f"{made.path}/lib/python/waves/__init__.py")
    assert "".join(str(why).split()) in "".join(run.out.split())
    assert "[other-code]" in run.out


def test_a_copy_that_is_installed_is_not_the_working_tree(tmp_path):
    made = changed(tmp_path / "repository", "packages/")
    python = installation(tmp_path / "environment")
    library = site_packages(tmp_path / "environment")
    shutil.copytree(made.path / "packages" / "waves", library / "waves")
    # Nothing says that modules are imported from this folder: both sides would measure the copy.
    made.write({"pytest.ini": "[pytest]\npythonpath = packages\n"})
    made.git("add", "--all")
    run = made.against("main", python=python)
    assert run.rows == WORSE


def test_two_installations_of_what_the_code_uses(tmp_path):
    """The question before an upgrade: the same code, with an older library under it."""
    made = Repository(tmp_path / "repository", {"waves.py": "from tones import tone as wave\n", "test_waves.py": TESTS})
    pythons = []
    for name, code in (("older", PACKAGE), ("newer", SLOWER)):
        python = installation(tmp_path / name)
        library = site_packages(tmp_path / name)
        (library / "tones.py").write_text(code.replace("def wave", "def tone"))
        pythons.append(python)
    older, newer = pythons
    run = made.against("HEAD", f"--torchprof-against-python={older}", python=newer)
    assert run.rows == WORSE
    beside = os.path.relpath(newer, made.path)
    same = made.against("HEAD", f"--torchprof-against-python={beside}", python=newer)
    assert same.rows == {"test_wave": ("same", "passed")}


def test_a_python_that_cannot_measure_is_told(tmp_path):
    made = Repository(tmp_path / "repository", {"waves.py": PACKAGE, "test_waves.py": TESTS})
    run = made.against("HEAD", "--torchprof-against-python=no/such/python")
    assert run.status == pytest.ExitCode.USAGE_ERROR
    assert str(CommandNotRun("no/such/python", str(made.path), os.strerror(errno.ENOENT), installs=False)) in run.out
    assert "Traceback" not in run.out


EXTENSION = """
#include <Python.h>
static PyObject *count(PyObject *self, PyObject *none) { return PyLong_FromLong(COUNT); }
static PyMethodDef methods[] = {{"count", count, METH_NOARGS, ""}, {NULL, NULL, 0, NULL}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_count", "", -1, methods};
PyMODINIT_FUNC PyInit__count(void) { return PyModule_Create(&module); }
"""
COMPILED = """
import torch
from waves._count import count

def wave(x):
    for _ in range(count()):
        x = torch.sin(x)
    return x
"""
BUILD = """
import shlex, subprocess, sys, sysconfig
include, suffix = sysconfig.get_path("include"), sysconfig.get_config_var("EXT_SUFFIX")
command = f"{sys.argv[1]} -shared -fPIC -I{shlex.quote(include)} waves/_count.c -o waves/_count{suffix}"
sys.exit(subprocess.call(shlex.split(command)))
"""


@pytest.fixture(scope="module")
def compiler():
    found = shutil.which(os.environ.get("CC", "gcc"))
    if found is None or not Path(sysconfig.get_path("include"), "Python.h").is_file():
        pytest.skip("needs a C compiler and Python's headers")
    return found


@pytest.fixture(scope="module")
def compiled(tmp_path_factory, compiler):
    files = {"waves/__init__.py": COMPILED, "waves/_count.c": EXTENSION.replace("COUNT", "1"), "build.py": BUILD}
    made = Repository(tmp_path_factory.mktemp("compiled") / "repository", {**files, "tests/test_waves.py": TESTS})
    made.write({"waves/_count.c": EXTENSION.replace("COUNT", "2")})
    subprocess.run([sys.executable, "build.py", compiler], cwd=made.path, check=True)
    return made


def test_compiled_parts_that_the_commit_lacks_are_not_taken_from_the_working_tree(compiled):
    run = compiled.against("main")
    assert {verdict for _, verdict in run.rows.values()} == {"not measured"}
    assert "No module named 'waves._count'" in run.out


def test_a_compiled_part_that_the_code_can_do_without_is_not_measured(tmp_path, compiler):
    code = COMPILED.replace("from waves._count", "try:\n    from waves._count").replace(
        "import count\n", "import count\nexcept ImportError:\n    count = lambda: 1\n"
    )
    files = {"waves/__init__.py": code, "waves/_count.c": EXTENSION.replace("COUNT", "2"), "build.py": BUILD}
    made = Repository(tmp_path / "repository", {**files, "tests/test_waves.py": TESTS})
    subprocess.run([sys.executable, "build.py", compiler], cwd=made.path, check=True)
    run = made.against("main")
    assert run.status == 1
    assert re.search(r" waves/_count\S*\.so was read.* \[ignored-file\]", " ".join(run.out.split()))


def test_a_command_builds_each_side_in_an_environment_of_its_own(compiled, compiler):
    install = f"--torchprof-against-install=python build.py {compiler}"
    run = compiled.against("main", install)
    assert run.rows == WORSE
    again = compiled.against("main", install, "-v")
    assert again.rows == WORSE
    assert "measuring" in again.out  # Other words: measured again, and not built again.
    assert [str(path.relative_to(compiled.path)) for path in compiled.path.glob("waves/*.so")]
    # The tests that were laid over the commit's are not among its own.
    compiled.write({"tests/test_waves.py": TESTS.replace("test_wave", "test_later")})
    own = compiled.against("main", install, "--torchprof-against-tests=own")
    assert own.rows == {"test_later": ("new", "passed")}
    assert MeasuredOnlyThere("main", ()).sentence.removesuffix(": ") in own.out
    assert "tests/test_waves.py::test_wave" in own.out


def test_a_command_that_fails_is_told_with_what_it_said(compiled):
    command = "python -c 'import sys; raise SystemExit(sys.prefix)'"
    run = compiled.against("main", f"--torchprof-against-install={command}")
    assert run.status == pytest.ExitCode.USAGE_ERROR
    assert "base main (" in run.out
    assert "/environment" in "".join(run.out.split())
    assert "[install-failed]" in run.out


def test_the_environment_of_a_command_has_a_pip_of_its_own(tmp_path):
    """Made as users have it: those that forks make are without."""
    told = tmp_path / "told"
    command = f"python -c 'import pip, pathlib; pathlib.Path(\"{told}\").write_text(pip.__file__)'"
    environment.install(tmp_path, command, tmp_path, os.environ)
    assert Path(told.read_text()).is_relative_to(environment.environment_in(tmp_path))
