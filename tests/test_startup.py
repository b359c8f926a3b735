"""What every pytest run of every user pays for the plugin."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import fresh
import pytest
from repository import WITHOUT_COMPILER

pytestmark = pytest.mark.any_torch


def modules_after(code: str) -> set[str]:
    """Return the top-level names in sys.modules after running code in a fresh interpreter."""
    script = f"import sys\n{code}\nprint('\\n'.join(sorted({{name.partition('.')[0] for name in sys.modules}})))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


HEAVY = {"torch", "msgspec", "filelock", "numpy"}


def test_the_plugin_module_imports_nothing_heavy():
    assert not HEAVY & modules_after("import pytest_torchprof.plugin")


def test_a_run_without_a_torchprof_test_imports_nothing_heavy(tmp_path):
    (tmp_path / "test_plain.py").write_text("def test_plain(): pass\n")
    code = f"import pytest; assert pytest.main(['-q', '-p', 'no:hypothesispytest', {str(tmp_path)!r}]) == 0"
    assert not HEAVY & modules_after(code)


def test_options_are_read_only_where_something_is_asked(tmp_path):
    (tmp_path / "test_plain.py").write_text("def test_plain(): pass\n")
    (tmp_path / "asking.ini").write_text("[pytest]\ntorchprof_rank_timeout = 5\n")
    # Each run is a fork of one process, which has imported pytest and nothing of ours.
    code = (
        "import os, pytest, sys\n"
        "for asked in ([], ['--torchprof-steps=2'], ['-c', 'asking.ini']):\n"
        "    if (fork := os.fork()) == 0:\n"
        f"        status = pytest.main([*asked, '-q', '-p', 'no:hypothesispytest', {str(tmp_path)!r}])\n"
        "        print('reads:', int(status), 'pytest_torchprof.testing.options' in sys.modules, flush=True)\n"
        "        os._exit(0)\n"
        "    os.waitpid(fork, 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert re.findall(r"^reads: (.*)$", done.stdout, re.MULTILINE) == ["0 False", "0 True", "0 True"]


def test_pytest_rewrites_no_module_that_a_run_imports_for_its_options(tmp_path):
    (tmp_path / "test_plain.py").write_text("def test_plain(): pass\n")
    code = (
        "import pytest, sys\n"
        f"pytest.main(['--torchprof-steps=2', '-q', '-p', 'no:hypothesispytest', {str(tmp_path)!r}])\n"
        "print('loader:', type(sys.modules['pytest_torchprof.testing.options'].__loader__).__name__)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.splitlines()[-1] == "loader: SourceFileLoader"


def test_a_finder_in_front_of_pytests_own_is_asked_first(tmp_path):
    (tmp_path / "test_plain.py").write_text("def test_plain(): pass\n")
    (tmp_path / "checker.py").write_text(
        "import sys\n\nasked = []\n\nclass Finder:\n    @staticmethod\n"
        "    def find_spec(name, path=None, target=None):\n        asked.append(name)\n\n"
        "sys.meta_path.insert(0, Finder)\n"
    )
    code = (
        "import pytest, sys\n"
        f"pytest.main(['--torchprof-steps=2', '-q', '-p', 'no:hypothesispytest', '-p', 'checker', {str(tmp_path)!r}])\n"
        "print('pytest_torchprof.testing.options' in sys.modules['checker'].asked)\n"
        "print(type(sys.modules['pytest_torchprof.testing.options'].__loader__).__name__)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.splitlines()[-2:] == ["True", "SourceFileLoader"]


def test_an_error_is_caught_by_the_name_that_it_shows_with_no_other_import(tmp_path):
    code = (
        "import pytest_torchprof\ntry:\n    pytest_torchprof.load('none.json')\n"
        "except pytest_torchprof.errors.UnreadableRecording as problem:\n    print(type(problem))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout == "<class 'pytest_torchprof.errors.UnreadableRecording'>\n"
    code = "import pytest_torchprof\npytest_torchprof.errors.TorchprofError"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)


def test_the_package_itself_imports_nothing_heavy():
    assert not (HEAVY | {"pytest"}) & modules_after("import pytest_torchprof")


def test_reading_a_recording_from_the_command_line_needs_neither_torch_nor_pytest(tmp_path):
    (tmp_path / "a.json").write_text('{"traceEvents": []}')
    code = (
        "import contextlib, io\nfrom pytest_torchprof.cli import main\n"
        f"with contextlib.redirect_stdout(io.StringIO()): main(['analyze', {str(tmp_path / 'a.json')!r}, '--json'])"
    )
    assert not {"torch", "pytest", "numpy"} & modules_after(code)


BY_ENTRY_POINT, BY_MODULE = ("-p", "torchprof"), ("-p", "pytest_torchprof.plugin")


@pytest.mark.parametrize(
    ("names", "conftest"),
    [
        ((*BY_ENTRY_POINT, *BY_MODULE), ""),
        ((*BY_MODULE, *BY_ENTRY_POINT), ""),
        (BY_ENTRY_POINT, "pytest_plugins = ['pytest_torchprof.plugin']\n"),
    ],
    ids=["both", "both, the module first", "conftest"],
)
def test_who_names_the_plugin_in_two_ways_has_it_once(tmp_path, names, conftest):
    (tmp_path / "conftest.py").write_text(conftest)
    (tmp_path / "test_it.py").write_text(
        "import pytest, torch\n"
        "@pytest.mark.torchprof(device='cpu', max_kernels=0)\n"
        "def test_it(torchprof):\n    torchprof(torch.sin, torch.ones(2))\n"
    )
    words = ("-m", "pytest", *names, "-p", "no:cacheprovider")
    done = fresh.run_python(*words, folder=tmp_path, environment=os.environ)
    assert (done.returncode, done.stdout.count("1 limit missed: max_kernels")) == (1, 1), done.stdout


RECORDED = Path(__file__).parent / "recordings/test_linear.test_compiled_is_the_same_gemm-2.07e06f66.json.gz"
MEASURED = """
import pytest, torch

@pytest.mark.torchprof(ops={"aten::add": 1}, device="cpu")
def test_add():
    torch.add(torch.ones(2), 1)
"""


@pytest.mark.parametrize(
    "code",
    [
        f"from pytest_torchprof.cli import main; assert main(['analyze', {str(RECORDED)!r}, '--json']) == 0",
        "import pytest; assert pytest.main(['-q', '-p', 'no:hypothesispytest', 'test_add.py']) == 0",
    ],
    ids=["a sound recording", "a test that passes"],
)
def test_what_lacks_nothing_does_without_the_catalogue_of_reasons(tmp_path, code):
    (tmp_path / "test_add.py").write_text(MEASURED)
    (tmp_path / "conftest.py").write_text(WITHOUT_COMPILER)
    script = f"import sys\n{code}\nsys.exit(3 if 'pytest_torchprof.reasons.catalogue' in sys.modules else 0)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


NOT_FOR_ANALYZE = {
    "shutil",
    *(
        f"pytest_torchprof.{module}"
        for module in (
            "analysis.operator_rows",
            "analysis.range_rows",
            "reasons.adopting",
            "reasons.job_limits",
            "reasons.limits",
            "reasons.lines",
            "reasons.names_asked",
            "report.analysis_text",
        )
    ),
}


def test_what_one_recording_as_json_does_not_need_is_not_imported_for_it():
    code = (
        "import sys\nbefore = {*sys.modules}\nfrom pytest_torchprof.cli import main\n"
        f"main(['analyze', {str(RECORDED)!r}, '--json'])\nprint(*{{*sys.modules}} - before, sep='\\n', file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pytest_torchprof.analysis.analysis" in done.stderr.splitlines()
    assert not NOT_FOR_ANALYZE.intersection(done.stderr.splitlines())
