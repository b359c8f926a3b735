"""`pytest --torchprof-against REF`: the same tests at another commit and in the working tree, and what differs."""

from __future__ import annotations

import json
import shutil
import xml.etree.ElementTree as ET

import pytest
from facts import came
from repository import Repository

from pytest_torchprof.report import MeasuredOnlyThere

pytestmark = pytest.mark.any_torch

BEFORE = """
import torch

def kept(x):
    return torch.sin(x)

def more(x):
    return torch.sin(x)

def copied(x):
    return x * 2

def less(x):
    return torch.sin(x).cos()

def moved(x):
    return torch.sin(x).cos()

def product(x):
    return x @ x

@torch.compile(backend="eager")
def whole(x):
    return torch.sin(x).cos()

def scale(x, factor):
    return x * factor

compiled = torch.compile(scale, backend="eager", dynamic=False)

def limited(x):
    return torch.sin(x).cos()

def checked(x):
    return torch.sin(x)

def allowed(x):
    return torch.sin(x)

def labelled(x):
    return torch.sin(x)

def again(x):
    return compiled(x, 2)

@torch.compile
def fused(x):
    return torch.relu(x * 2 + 1)
"""
AFTER = """
from itertools import count
import torch

def kept(x):
    return torch.sin(x)

def more(x):
    return torch.sin(x).cos()

def copied(x):
    return x.clone() * 2

def less(x):
    return torch.sin(x)

def moved(x):
    return torch.cos(x).sin()

def product(x):
    return x.double() @ x.double()

@torch.compile(backend="eager")
def whole(x):
    y = torch.sin(x)
    torch._dynamo.graph_break()
    return y.cos()

def scale(x, factor):
    return x * factor

compiled = torch.compile(scale, backend="eager", dynamic=False)

def limited(x):
    return torch.sin(x).cos()

def checked(x):
    return torch.sin(x)

def allowed(x):
    return torch.sin(x).cos()

def labelled(x):
    return torch.sin(x).cos()

factors = count(2)

def again(x):
    return compiled(x, next(factors))

scaled = torch.compile(lambda x: x * 2 + 1)

def fused(x):
    return torch.relu(scaled(x))

def latter(x):
    return torch.sin(x)
"""
CASES = """
import shutil
import pytest, torch
import waves

x = torch.ones(8, 8)
cpu = pytest.mark.torchprof(device="cpu")

@cpu
@pytest.mark.parametrize("name", ["kept", "more", "copied", "less", "moved", "product", "whole", "again"])
def test_each(name, torchprof):
    torchprof(getattr(waves, name), x)

@cpu
@pytest.mark.skipif(not shutil.which("g++"), reason="Inductor needs a C++ compiler")
def test_fused(torchprof):
    torchprof(waves.fused, x)

@pytest.mark.torchprof(device="cpu", max_kernels=1)
def test_limited():
    waves.limited(x)

@cpu
def test_checked(torchprof):
    profile = torchprof(waves.checked, x)
    profile.expect(max_kernels=2)
    assert hasattr(waves, "latter")

@pytest.mark.torchprof(device="cpu", tolerance={"kernels": 1})
def test_allowed(torchprof):
    torchprof(waves.allowed, x)

@cpu
def test_labelled(torchprof):
    with torchprof.measure("first") as m:
        for _ in m.steps():
            torch.sin(x)
    with torchprof.measure("second") as m:
        for _ in m.steps():
            waves.labelled(x)

@pytest.mark.torchprof(device="cpu", baseline=False)
def test_apart(torchprof):
    torchprof(waves.more, x)

def test_plain():
    assert True
"""
NEW = """
@cpu
def test_new(torchprof):
    torchprof(waves.latter, x)
"""
COMMITTED = '{"schema": 99, "entries": {}}\n'


FUSED = {"test_fused": ("worse (+1 kernel)", "failed")} if shutil.which("g++") else {}


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    made = Repository(
        tmp_path_factory.mktemp("against") / "a folder",
        {"waves.py": BEFORE, "tests/test_waves.py": CASES, "tests/__torchprof__/test_waves.cpu-x86_64.json": COMMITTED},
    )
    made.write({"waves.py": AFTER, "tests/test_waves.py": CASES + NEW})
    return made


@pytest.fixture(scope="module")
def before(repository):
    return repository.state()


@pytest.fixture(scope="module")
def compared(repository, before, tmp_path_factory):
    told = tmp_path_factory.mktemp("told")
    files = [f"--torchprof-report={told / name}" for name in ("run.json", "run.md")]
    run = repository.against(
        *("main", "-rA", *files, f"--junitxml={told / 'junit.xml'}", f"--torchprof-save={told / 'kept'}"),
        GITHUB_ACTIONS="true",
        GITHUB_STEP_SUMMARY=str(told / "summary.md"),
    )
    run.folder = told
    return run


def test_each_test_is_held_against_the_other_commit(compared):
    assert compared.status == 1
    assert compared.rows == {
        "test_each[kept]": ("same", "passed"),
        "test_each[more]": ("worse (+1 kernel)", "failed"),
        "test_each[copied]": ("worse (+1 kernel)", "failed"),
        "test_each[less]": ("better (-1 kernel)", "passed"),
        "test_each[moved]": ("changed (order)", "passed"),
        "test_each[product]": ("worse (+2 kernels)", "failed"),
        "test_each[whole]": ("worse (+1 graph break)", "failed"),
        "test_each[again]": ("changed (recompiles)", "passed"),
        **FUSED,
        "test_limited": ("same", "failed"),
        "test_checked": ("same", "passed"),
        "test_allowed": ("changed (1 kernel)", "passed"),
        "test_labelled (first)": ("same", "passed"),
        "test_labelled (second)": ("worse (+1 kernel)", "failed"),
        "test_apart": ("-", "passed"),
        "test_new": ("new", "passed"),
    }


def test_what_is_worse_is_told_by_its_kernels(compared):
    assert "worse than at main (" in compared.out
    assert came("aten::cos") in compared.out
    assert came("aten::copy_", family="copy") in compared.out
    assert "~ gemm mm: fp32 nn -> fp64 nn" in compared.out
    assert "graph_breaks 0 -> 1" in compared.out
    # Of five tests that run other kernels, one has another busy time.
    assert "for information, not gated: where the time is, by family: " in " ".join(compared.out.split())
    assert "recompiles 0 -> 7" in compared.out
    if FUSED:
        assert "fusion lost: add, mul and relu ran in" in " ".join(compared.out.split())
    assert "--torchprof-baseline" not in compared.out


def test_every_report_says_what_is_compared(repository, compared):
    sha = repository.git("rev-parse", "main").strip()
    report = json.loads((compared.folder / "run.json").read_text())
    assert report["against"] == {"ref": "main", "sha": sha, "dirty": True, "gone": []}
    by_name = {(one["nodeid"].partition("::")[2], one["label"]): one for one in report["results"]}
    assert by_name["test_each[more]", None]["baseline"] == "worse (+1 kernel)"
    shown = f"main ({sha[:7]})"
    assert f"base {shown}: 16 tests, {13 + len(FUSED)} measurements" in compared.out
    assert f"against {shown}" in compared.out
    assert f"against main \\({sha[:7]}\\)" in (compared.folder / "run.md").read_text()
    summary = (compared.folder / "summary.md").read_text()
    assert summary.count("**torchprof**") == 1
    assert f"against main \\({sha[:7]}\\)" in summary
    assert "::error file=waves.py,line=" in compared.out
    (suite,) = ET.parse(compared.folder / "junit.xml").getroot()
    properties = {
        one.get("name"): one.get("value") for one in suite.find("*[@name='test_each[more]']").iter("property")
    }
    assert properties["torchprof.baseline"] == "worse (+1 kernel)"
    assert len(list((compared.folder / "kept").glob("*test_each*"))) >= 7


def test_the_users_repository_is_as_it_was(repository, before, compared):
    assert repository.state() == before


def test_a_run_that_stops_early_misses_none_of_the_tests_after_it(repository, compared):
    run = repository.against("main", "-x", "-k", "more or kept or copied")
    assert run.rows == {"test_each[kept]": ("same", "passed"), "test_each[more]": ("worse (+1 kernel)", "failed")}
    assert MeasuredOnlyThere("main", ()).sentence.removesuffix(": ") not in run.out


def test_what_was_measured_is_kept_for_the_next_run(repository, compared):
    run = repository.against("main", "-rA", "-k", "kept")
    assert "kept from an earlier run" not in run.out
    assert run.status == 0
    again = repository.against("main", "-rA", "-k", "kept")
    assert "1 measurement, kept from an earlier run" in again.out
    assert again.status == 0
    assert again.rows == run.rows == {"test_each[kept]": ("same", "passed")}
    elsewhere = repository.against("main", "-k", "kept", PYTEST_ADDOPTS="--strict-markers")
    assert "kept from an earlier run" not in elsewhere.out
