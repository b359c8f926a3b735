"""Kinds of failures on a terminal of 80 columns: what is wrong comes first, then where, then what to do about it."""

from __future__ import annotations

import sys
from contextlib import chdir
from itertools import pairwise

import pytest

pytestmark = [
    pytest.mark.any_torch,
    pytest.mark.skipif(sys.platform != "linux", reason="looked at on Linux"),
]
MODEL = """
import torch


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up = torch.nn.Linear(64, 64)

    def forward(self, x):
        y = torch.relu(self.up(x))
        return y


def gated(x):
    x = x * 2
    return torch.nn.functional.gelu(x)


def branching(x):
    return torch.sin(x) * 2


def many(x):
    for name in ("sin", "cos", "tan", "exp", "abs", "neg", "erf", "sinh", "cosh", "tanh", "atan", "asinh", "floor", "ceil"):
        x = getattr(torch, name)(x)
    for name in ("round", "trunc", "frac", "sign", "square", "sigmoid", "expm1", "log1p", "erfc", "relu", "i0", "lgamma"):
        x = getattr(torch, name)(x)
    return x
"""
CHANGED = (
    MODEL.replace("return y", "return y * torch.sigmoid(x)")
    .replace("x = x * 2\n", "x = x * 2\n    torch._dynamo.graph_break()\n")
    .replace("return torch.sin", "if x.sum() > 0:\n        return x\n    return torch.sin")
    + "\n\nis_changed = True\n"
)
TESTS = """
import pytest
import torch
import model

x = torch.ones(64, 64)
block = model.Block()


@pytest.mark.torchprof(device="cpu", max_kernels=2)
def test_block(torchprof):
    torchprof(block, x)


@pytest.mark.torchprof(device="cpu", fused=["mul", "gelu"])
def test_fused(torchprof):
    torchprof(torch.compile(model.gated), x)


@pytest.mark.torchprof(device="cpu", forbid_ops="aten::sigmoid")
def test_forbidden(torchprof):
    torchprof(block, x)


@pytest.mark.torchprof(device="cpu", max_graph_breaks=0)
def test_whole(torchprof):
    torchprof(torch.compile(model.branching, backend="eager"), x)


@pytest.mark.torchprof(device="cpu")
def test_kept(torchprof):
    torchprof(block, x)


@pytest.mark.torchprof(device="cpu", max_kernels=2)
def test_many(torchprof):
    torchprof(model.many, x)


@pytest.mark.torchprof(device="cpu", max_kernels=2, forbid_ops="aten::sin", only_kernels=["gemm"])
def test_many_limits(torchprof):
    torchprof(model.many, x)


@pytest.mark.torchprof(device="cpu")
def test_many_new(torchprof):
    torchprof(model.many if hasattr(model, "is_changed") else model.gated, x)


@pytest.mark.torchprof(device="cpu", max_syncs=0)
def test_syncs(torchprof):
    torchprof(block, x)
"""
SHOWN = {
    "test_block": (
        "1 limit missed: max_kernels (worst of 5 steps); new: pointwise sigmoid and pointwise mul, model.py:12",
        "kernels 2 -> 4",
        "do: drop or fuse pointwise sigmoid and pointwise mul at model.py:12",
    ),
    "test_fused": ("1 limit missed: fused", "(model.py:17)", "do: take out the graph break at model.py:17, so that"),
    "test_forbidden": ("1 limit missed: forbid_ops", "1 x aten::sigmoid model.py:12", "do: at model.py:12: remove"),
    "test_whole": (
        "1 limit missed: max_graph_breaks; graph break: model.py:22; 4 other changes",
        "model.py:22 in branching",
        "graph_breaks 0 -> 1",
        "do: at model.py:22: write the branch as torch.where or torch.cond",
        "do: if the change is intended, accept it in the baseline as well: pytest",
    ),
    "test_kept": (
        "worse than the baseline",
        "model.py:12",
        "kernels 2 -> 4",
        "do: see what changed at model.py:12 (2 new pointwise kernels",
    ),
    "test_many": ("1 limit missed: max_kernels (worst of 5 steps)", "26 kernels", "and ", "do: drop or fuse"),
    "test_many_limits": ("3 limits missed", "26 kernels", "do: for max_kernels", "do: for only_kernels"),
    "test_many_new": ("worse than the baseline", "more lines: pytest -vv", "do: see what changed, first at model.py:"),
    "test_syncs": ("1 limit not measured: max_syncs", "needs a GPU", "do: run it on a machine with a GPU"),
}


@pytest.fixture(scope="module")
def failures(tmp_path_factory):
    """The lines of each failure of tests whose baseline is of the code before it changed."""
    from terminals import on_terminal

    folder = tmp_path_factory.mktemp("screens")
    (folder / "model.py").write_text(MODEL)
    (folder / "test_it.py").write_text(TESTS)
    words = ["-m", "pytest", "-p", "torchprof", "-p", "no:cacheprovider", "--disable-warnings"]
    environment = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "CI": "", "PY_COLORS": "0"}
    with chdir(folder):
        kept = [*words, "--torchprof-baseline=update", "-k", "block or kept or whole or new"]
        assert on_terminal(kept, 80, **environment)[0] == 0
        (folder / "model.py").write_text(CHANGED)
        status, lines = on_terminal(words, 80, **environment)
    assert status == 1
    begins = [at for at, line in enumerate(lines) if line.startswith("____") or "- torchprof: " in line]
    return {lines[begin].strip("_ "): lines[begin + 1 : end] for begin, end in pairwise(begins)}


@pytest.mark.parametrize("name", SHOWN)
def test_a_failure_says_what_is_wrong_then_where_and_what_to_do(failures, name):
    text = " ".join(" ".join(failures[name]).split())
    places = [text.find(part) for part in SHOWN[name]]
    assert places == sorted(places)
    assert places[0] == 0


@pytest.mark.parametrize("name", SHOWN)
def test_what_to_do_is_on_the_first_screen_before_what_gates_nothing(failures, name):
    lines = failures[name]
    asked = [at for at, line in enumerate(lines) if line.startswith("  do: ")]
    beside = [at for at, line in enumerate(lines) if line.startswith("  for information, not gated: ")]
    assert asked
    assert max(asked) < 24
    assert all(max(asked) < at for at in beside)
