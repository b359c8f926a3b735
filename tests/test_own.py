"""``own``: whose graph breaks and recompiles count, told by the files that they lie in."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest
from facts import misses, says, why_not

from pytest_torchprof import LimitsMissed, UnknownLimit, load
from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.limits import NoPackageOfName

BREAK = "import torch\n\ndef broken(x):\n    x = x + 1\n    torch._dynamo.graph_break()\n    return x + 1\n"
WHOLE = "import torch\n\ndef whole(x):\n    return x + 1\n"
THEIRS = "/opt/venv/lib/python3.11/site-packages/transformers/models/bert.py"


@pytest.fixture
def recorded(tmp_path):
    """Return the profile of a recording whose graph breaks, or recompiles, lie in these files; None for no file."""

    def recorded(*files, recompiles=(), why="x"):
        def place(file, number):
            return {"reason": why, "function": "f", **({} if file is None else {"file": str(file), "line": number + 1})}

        compiled = {
            "dynamo": True,
            "compiled": True,
            "breaks": [place(file, number) for number, file in enumerate(files)],
            "recompiles": [place(file, number) for number, file in enumerate(recompiles)],
        }

        def event(name, start, dur, cat="cpu_op"):
            return {"ph": "X", "cat": cat, "name": name, "pid": 7, "tid": 1, "ts": start, "dur": dur}

        ours = {"schema": 1, "device": "cpu", "device_asked": "cpu", "steps": 1, "compile": compiled}
        region = event("Torch-Compiled Region: 0/0", 0, 10)
        events = [
            event("torchprof::sentinel", -20, 5, "user_annotation"),
            event("aten::add_", -19, 2),
            event("ProfilerStep#0", -10, 1000, "user_annotation"),
            region,
            event("aten::add", 2, 3),
        ]
        path = tmp_path / "recording.json"
        path.write_text(json.dumps({"traceEvents": events, "torchprof": ours}))
        return load(path)

    return recorded


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Make files below a folder that is imported from, and return that folder."""

    def package(*files, below="lib"):
        root = tmp_path / below
        for name in files:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(WHOLE)
        monkeypatch.syspath_prepend(root)
        return root

    return package


def kept(profile, own, breaks=0):
    try:
        profile.expect(max_graph_breaks=breaks, own=own)
    except LimitsMissed as missed:
        return str(missed)
    return True


def test_own_is_advised_where_a_package_that_pip_installed_has_the_break(recorded, tmp_path):
    for file, advised in ((THEIRS, True), (tmp_path / "model.py", False)):
        with pytest.raises(LimitsMissed) as missed:
            recorded(file, why="Data-dependent branching").expect(max_graph_breaks=0)
        assert ("own=" in str(missed.value)) is advised


def test_a_break_elsewhere_does_not_count_and_one_in_the_own_package_does(recorded, package):
    root = package("ours/__init__.py", "ours/deep/model.py")
    assert kept(recorded(THEIRS), "ours") is True
    assert "1 graph break; not counted: 2 in transformers" in kept(
        recorded(THEIRS, root / "ours/deep/model.py", THEIRS), "ours"
    )
    assert kept(recorded(THEIRS, root / "ours/deep/model.py"), "ours", breaks=1) is True


def test_recompiles_are_told_apart_likewise(recorded, package):
    root = package("ours/__init__.py")
    recorded(recompiles=[THEIRS]).expect(max_recompiles=0, own="ours")
    verdict = misses(recorded(recompiles=[THEIRS, root / "ours/__init__.py"]), max_recompiles=0, own="ours")
    assert (verdict.number, verdict.not_counted) == (1, (("transformers", 1),))


def test_a_break_without_a_file_counts(recorded, package):
    package("ours/__init__.py")
    assert "1 graph break" in kept(recorded(None), "ours")


@pytest.mark.parametrize("kind", ["breaks", "recompiles"])
def test_what_to_do_names_own_only_where_the_code_of_others_was_counted(recorded, tmp_path, kind):
    limit = {"max_graph_breaks": 0} if kind == "breaks" else {"max_recompiles": 0}

    def names_it(*files):
        with pytest.raises(LimitsMissed) as missed:
            (recorded(*files) if kind == "breaks" else recorded(recompiles=files)).expect(**limit)
        (remedy,) = [line for line in str(missed.value).splitlines() if line.startswith("  do: ")]
        return "own=" in remedy

    assert names_it(THEIRS) is True
    assert names_it(tmp_path / "model.py", THEIRS) is True
    assert names_it(tmp_path / "model.py") is False
    assert names_it(None) is False


LAYOUTS = {
    "a package": (["ours/__init__.py", "ours/a.py"], "ours", "ours/a.py"),
    "a namespace package": (["ours/a.py"], "ours", "ours/a.py"),
    "a module": (["ours.py"], "ours", "ours.py"),
    "a subpackage": (["ours/__init__.py", "ours/part/__init__.py"], "ours.part", "ours/part/__init__.py"),
    "a module of a package": (["ours/__init__.py", "ours/part.py"], "ours.part", "ours/part.py"),
    "one of several": (["ours/__init__.py", "more/__init__.py"], ["more", "ours"], "ours/__init__.py"),
}


@pytest.mark.parametrize("below", ["src", "site-packages", "our s"])
@pytest.mark.parametrize(("files", "own", "broken"), LAYOUTS.values(), ids=LAYOUTS)
def test_packages_are_found_as_an_import_finds_them_and_are_not_imported(recorded, package, files, own, broken, below):
    root = package(*files, below=below)
    for name in files:
        (root / name).write_text("raise SystemExit('imported')\n")
    assert "1 graph break" in kept(recorded(root / broken), own)
    assert kept(recorded(THEIRS), own) is True


def test_another_part_of_the_same_package_does_not_count(recorded, package):
    root = package("ours/__init__.py", "ours/part/__init__.py", "ours/other.py", "ours2/__init__.py")
    assert kept(recorded(root / "ours/other.py"), "ours.part") is True
    assert kept(recorded(root / "ours2/__init__.py"), "ours") is True


# Of another machine: nothing of these is here.
ELSEWHERE = {
    "/opt/venv/lib/python3.11/site-packages/ours/model.py": True,
    "/usr/lib/python3/dist-packages/ours.py": True,
    "C:\\runner\\ours\\model.py": True,
    "/builds/team/src/ours/model.py": True,
    "/builds/ours/src/ours/model.py": True,
    "/builds/team/src/ours_too/model.py": False,
    # Installed beside it, in a checkout that has its name.
    "/builds/ours/.venv/lib/python3.11/site-packages/transformers/model.py": False,
    "/opt/venv/lib/python3.11/site-packages/transformers/ours/model.py": False,
}


@pytest.mark.parametrize(("file", "counts"), ELSEWHERE.items())
@pytest.mark.parametrize("here", [True, False])
def test_of_another_machine_the_path_tells(recorded, package, file, counts, here):
    if here:
        package("ours/__init__.py")
    profile = recorded(file, "/somewhere/site-packages/ours/model.py")
    assert f"{1 + counts} graph break" in kept(profile, "ours")


def test_a_checkout_that_is_called_like_its_package_is_more_than_the_package(recorded, package):
    root = package("ours/__init__.py", "vendor/theirs/__init__.py", below="ours/src")
    assert kept(recorded(root / "vendor/theirs/__init__.py"), "ours") is True
    assert "1 graph break" in kept(recorded(root / "ours/__init__.py"), "ours")


def test_a_name_that_is_nowhere_is_not_measured(recorded, package):
    package("ours/__init__.py")
    for profile in (recorded(THEIRS), recorded()):
        reason = why_not(partial(profile.expect, max_graph_breaks=0, own=["ours", "ourz"]))
        assert says(reason, NoPackageOfName, name="ourz")
        assert reason.code == Code.OWN_UNKNOWN
    reason = why_not(lambda: recorded(THEIRS).expect(max_graph_breaks=0, own="transformer"))
    assert reason == NoPackageOfName("transformer", near="transformers")
    assert why_not(lambda: recorded(THEIRS).expect(max_graph_breaks=0, own="sys")) == NoPackageOfName("sys")
    # What counts anyhow is missed all the same.
    with pytest.raises(LimitsMissed):
        recorded(None).expect(max_graph_breaks=0, own="ourz")


@pytest.mark.parametrize("value", ["", "a b", "a/b", "ours.", 3, [], ["ours", None]])
def test_what_can_be_no_package_is_refused(recorded, value):
    with pytest.raises(UnknownLimit, match="own="):
        recorded().expect(max_graph_breaks=0, own=value)


def test_it_is_about_graph_breaks_and_recompiles_alone(recorded):
    with pytest.raises(UnknownLimit, match="own changes what max_graph_breaks and max_recompiles count"):
        recorded().expect(max_kernels=1, own="ours")


COMPILED = """
import sys, pathlib
here = pathlib.Path(__file__).parent
sys.path[:0] = [str(here / "src"), str(here / "site-packages")]

import ours, theirs

pytestmark = pytest.mark.torchprof(device="cpu", warmup=1, steps=2)

@pytest.mark.torchprof(max_graph_breaks=0{own})
def test_theirs(torchprof):
    torchprof(torch.compile(lambda x: ours.whole(theirs.broken(x)), backend="eager"), x)

@pytest.mark.torchprof(max_graph_breaks=0{own})
def test_ours(torchprof):
    torchprof(torch.compile(lambda x: theirs.whole(ours.broken(x)), backend="eager"), x)

def test_expects(torchprof):
    torchprof(torch.compile(lambda x: theirs.broken(x) + 2, backend="eager"), x).expect(max_graph_breaks=0{own})

@pytest.mark.torchprof(max_recompiles=0{own})
def test_marker_and_expects(torchprof):
    torchprof(torch.compile(lambda x: theirs.broken(x) + 3, backend="eager"), x).expect(max_graph_breaks=0)
"""


@pytest.mark.parametrize("where", ["marker", "ini"])
def test_of_real_code_the_breaks_of_a_vendored_package_pass_and_the_own_ones_fail(run_tests, pytester, where):
    for name in ("src/ours/__init__.py", "site-packages/theirs/__init__.py"):
        path = Path(pytester.path, name)
        path.parent.mkdir(parents=True)
        path.write_text(BREAK + WHOLE)
    pytester.makeini("[pytest]\n" + ("torchprof_own = ours" if where == "ini" else ""))
    result = run_tests(COMPILED.format(own="" if where == "ini" else ", own='ours'"), in_process=False)
    result.assert_outcomes(passed=3, failed=1)
    result.stdout.fnmatch_lines(["*max_graph_breaks=0 *1 graph break", "*src/ours/__init__.py:5*"])


def test_an_ini_file_that_names_no_package_is_refused(run_tests, pytester):
    pytester.makeini("[pytest]\ntorchprof_own = our-code\n")
    result = run_tests("@cpu\ndef test_it(): torch.add(x, x)")
    assert result.ret == 4
    result.stderr.fnmatch_lines(["*torchprof_own: expected packages*'our-code'*[[]bad-option]*"])
