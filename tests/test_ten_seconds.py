"""Kinds of failures, and recordings, on a terminal of 80 columns: what is wrong comes first, then where, then what to do."""

from __future__ import annotations

import sys
from collections import Counter
from contextlib import chdir
from itertools import pairwise

import pytest
from conftest import SHARED_TRACES
from facts import WORSE
from headline_witness import alone, called, mean_us
from raw_events import Raw, communicates, decode, length, union

from pytest_torchprof import load
from pytest_torchprof.cli import main
from pytest_torchprof.report.baseline_failure import AcceptAsWell
from pytest_torchprof.text.units import show_us

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
    "test_fused": (
        "1 limit missed: fused",
        "carries mul, model.py:16",
        "(model.py:17)",
        "do: take out the graph break at model.py:17, so that",
    ),
    "test_forbidden": ("1 limit missed: forbid_ops", "1 x aten::sigmoid model.py:12", "do: at model.py:12: remove"),
    "test_whole": (
        "1 limit missed: max_graph_breaks; graph break: model.py:22; 4 other changes",
        "model.py:22 in branching",
        "graph_breaks 0 -> 1",
        "do: at model.py:22: write the branch as torch.where or torch.cond",
        f"do: {AcceptAsWell()}: pytest",
    ),
    "test_kept": (
        WORSE,
        "model.py:12",
        "kernels 2 -> 4",
        "do: see what changed at model.py:12 (2 new pointwise kernels",
    ),
    "test_many": ("1 limit missed: max_kernels (worst of 5 steps)", "26 kernels", "and ", "do: drop or fuse"),
    "test_many_limits": ("3 limits missed", "26 kernels", "do: for max_kernels", "do: for only_kernels"),
    "test_many_new": (
        WORSE,
        "more lines (15 new, 1 gone): pytest -vv",
        "first at model.py:",
    ),
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


RECORDINGS = {
    "a100_cuda_sync_events": "cold-start",
    "a100_megatron_tp8_rank1": "exposed-communication",
    "a100_moe_no_steps": "cold-start",
    "a100_sam_eager_large": "launch-gaps",
    "a100_vit_capture_and_graphs": "graph-recaptured",
    "h100_bert_small": "overhead-bound",
    "h100_transformer_three_steps": "overhead-bound",
    "mi300x_bert_small": "overhead-bound",
    "rtx3060_cudagraph_steps_slow": "fp32-gemm",
    "v100_resnet50_steps": "launch-gaps",
}
"""What a reader of ten recordings has to see first."""


def gaps_of(raw):
    """Return when each device ran nothing, and nothing of the profiler's own: the length and the end of each gap."""
    gaps = []
    for device in raw.devices:
        spans = union(raw.inside_spans([*raw.inside(raw.on(device, raw.gpu)), *raw.own]))
        edges = [raw.window[0], *(edge for span in spans for edge in span), raw.window[1]]
        gaps += [(end - start, end) for start, end in zip(edges[::2], edges[1::2], strict=True) if start < end]
    return gaps


def figures_of(raw):
    """Return what is wrong and where, from the events alone: a share, and the longest event or gap with its place."""
    talking = mean_us(raw, (alone(raw, device) for device in raw.devices)) / raw.window_us
    gaps = gaps_of(raw)
    idle = mean_us(raw, (ns for ns, _ in gaps)) / raw.window_us
    if idle >= max(0.2, talking):
        longest_ns, end = max(gaps)
        following = next(one for one in sorted(raw.gpu, key=lambda one: one.start) if one.start == end)
        return "idled", idle, longest_ns / 1000, called(raw, following)
    if talking >= 0.2:
        longest = max(filter(communicates, raw.gpu), key=lambda one: one.us)
        return "communicate", talking, longest.us, decode(longest.name).stem
    spent = Counter()
    for one in raw.kernels:
        spent[decode(one.name).short] += one.us
    (name, _), *_ = spent.most_common(1)
    busy = mean_us(raw, (length(raw.inside(raw.on(device, raw.gpu))) for device in raw.devices)) / raw.window_us
    return "busy", busy, max(one.us for one in raw.kernels if decode(one.name).short == name), name


@pytest.mark.parametrize("name", RECORDINGS)
def test_the_first_lines_of_a_recording_say_what_is_wrong_and_where(capsys, monkeypatch, name):
    path = SHARED_TRACES / f"{name}.json.gz"
    if not path.is_file():
        pytest.skip("the shared recordings are not here")
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["analyze", str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    what, share, longest_us, where = figures_of(Raw(path))
    first = lines.index("What stands out:")
    assert first <= 5
    headline = " ".join(" ".join(lines[:first]).split())
    for fact in (what, f"{100 * share:.0f}%", show_us(longest_us), where):
        assert fact in headline, fact
    assert headline.index(what) < headline.index(f"{100 * share:.0f}%") < headline.index(where)
    finding = next(one for one in load(path).findings if one.code == RECORDINGS[name])
    assert lines[first + 1].startswith(f"  {finding.title}, up to {show_us(finding.saves_us)}")
    assert any(line.startswith(("What to do: ", "What to do first: ")) for line in lines[first : first + 8])
