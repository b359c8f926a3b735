"""In a console every part of a profile is one line: what it is, with what tells it from others."""

from __future__ import annotations

import inspect
from functools import cache
from pathlib import Path

import pytest
import torch
from conftest import SHARED_TRACES
from facts import LEFT_OUT

import pytest_torchprof
from pytest_torchprof.trace.compile_evidence import GraphBreak, Recompile

pytestmark = pytest.mark.any_torch

OWN = sorted((Path(__file__).parent / "recordings").glob("*.json.gz"))
# The largest ones have the parts of the others.
SHARED = [path for path in sorted(SHARED_TRACES.glob("*.json.gz")) if not path.name.startswith(LEFT_OUT)]
LONGEST = 150
MOST_OF_A_KIND = 20


def is_ours(part):
    return type(part).__module__.startswith("pytest_torchprof")


@cache
def methods_of(kind):
    return {name for name in dir(kind) if callable(inspect.getattr_static(kind, name))}


def public_values(part):
    """Return the values of the public attributes, without those that cannot be measured, or not of every statement."""
    for name in dir(part):
        if not name.startswith("_") and name not in methods_of(type(part)):
            try:
                yield getattr(part, name)
            except (pytest_torchprof.TorchprofError, AttributeError, IndexError):
                continue


def below(part):
    """Return the parts of a part, or the entries of a collection."""
    if isinstance(part, dict):
        return [*list(part)[:MOST_OF_A_KIND], *list(part.values())[:MOST_OF_A_KIND]]
    if isinstance(part, (list, tuple, set, frozenset)):
        return list(part)[:MOST_OF_A_KIND]
    if not is_ours(part):
        return []
    entries = list(part)[:MOST_OF_A_KIND] if hasattr(part, "__iter__") else []
    return [*public_values(part), *entries]


def parts_of(root):
    """Yield every part of ours that is reached over public attributes, once."""
    waiting, seen = [root], {}
    while waiting:
        part = waiting.pop()
        if id(part) in seen or inspect.isroutine(part) or inspect.isclass(part):
            continue
        seen[id(part)] = part
        waiting += below(part)
        if is_ours(part):
            yield part


def complaint(part):
    shown = repr(part)
    if len(shown) > LONGEST or len(shown.splitlines()) != 1 or " object at 0x" in shown or shown.startswith("<pytest_"):
        return f"{type(part).__name__}: {len(shown)} characters: {shown[:200]}"
    return None


def complaints(root):
    parts = list(parts_of(root))
    assert len({type(part) for part in parts}) > 10
    return sorted({line for part in parts if (line := complaint(part)) is not None})


@pytest.mark.parametrize("path", [*OWN, *SHARED], ids=lambda path: path.name.removesuffix(".json.gz"))
def test_every_part_of_a_recordings_profile_is_one_line(path):
    assert complaints(pytest_torchprof.load(path)) == []


def test_every_part_of_a_verdict_is_one_line():
    limits = {"max_kernels": 0, "max_graph_breaks": 0, "forbid_kernels": "sin*", "max_peak_memory": 1}
    verdicts = pytest_torchprof.judge(torch.sin, torch.ones(3), limits=limits, device="cpu")
    assert complaints(verdicts) == []
    assert repr(verdicts).startswith("<Verdicts missed, max_kernels=0 missed")
    assert repr(verdicts.limits[0]) == "<Verdict max_kernels=0 missed: 1 kernel in step 1 of 5>"


def test_a_break_and_a_recompile_say_their_line_and_why_without_the_folder():
    broken = GraphBreak(
        why="a print", file="/home/me/repository/model.py", line=7, function="forward", explanation="x" * 500
    )
    assert repr(broken) == "<GraphBreak model.py:7, in forward, a print>"
    again = Recompile(why="another size", file="C:\\repository\\model.py", line=9, function="forward")
    assert repr(again) == "<Recompile model.py:9, of forward, another size>"


def test_a_finding_says_its_line_before_its_sentence(shared_trace):
    profile = pytest_torchprof.load(shared_trace("h100_qwen_orphans"))
    placed = [finding for finding in profile.findings if finding.source]
    assert placed
    assert all(f"{finding.code} at {finding.source}: " in repr(finding) for finding in placed)


def test_a_collective_says_what_it_sent_and_how_long_it_took(shared_trace):
    profile = pytest_torchprof.load(shared_trace("a100_megatron_tp8_rank0"))
    assert repr(profile.collectives[0]).startswith("<Collective ")
    assert all(collective.name in repr(collective) for collective in profile.collectives)


def test_a_path_too_long_for_the_line_keeps_its_end(tmp_path):
    folder = tmp_path.joinpath(*["a_folder_with_a_long_name"] * 6)
    folder.mkdir(parents=True)
    recording = folder / "recording.json.gz"
    recording.write_bytes(OWN[0].read_bytes())
    profile = pytest_torchprof.load(recording)
    for part in (profile, profile.trace):
        assert "recording.json.gz" in repr(part)
        assert complaint(part) is None
