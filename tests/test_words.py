"""How many of what: one way to say it, used everywhere."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
import syntax

from pytest_torchprof.analysis.numbers import TABLE
from pytest_torchprof.compare.comparison import _NOUNS as OF_BASELINES
from pytest_torchprof.compare.family_words import _NOUNS as OF_DIFFERENCES
from pytest_torchprof.kernels.patterns import _NOUNS as OF_HINTS
from pytest_torchprof.text import counted, numbered, plural

pytestmark = pytest.mark.any_torch

PACKAGE = Path(__file__).parents[1] / "pytest_torchprof"

SEVERAL = {
    "GPU annotation": "GPU annotations",
    "GEMM": "GEMMs",
    "note": "notes",
    "folder": "folders",
    "record": "records",
    "run": "runs",
    "archive": "archives",
    "link": "links",
    "GPU": "GPUs",
    "GPU operation": "GPU operations",
    "Triton kernel": "Triton kernels",
    "aten kernel": "aten kernels",
    "attention kernel": "attention kernels",
    "baseline file": "baseline files",
    "autograd node": "autograd nodes",
    "blocking call": "blocking calls",
    "call": "calls",
    "chain": "chains",
    "change": "changes",
    "collective": "collectives",
    "difference": "differences",
    "other rank": "other ranks",
    "rank": "ranks",
    "communication kernel": "communication kernels",
    "convolution": "convolutions",
    "code file": "code files",
    "commit": "commits",
    "compiled region": "compiled regions",
    "frame": "frames",
    "group": "groups",
    "structure": "structures",
    "lane": "lanes",
    "pair": "pairs",
    "slice": "slices",
    "copy": "copies",
    "entry": "entries",
    "event": "events",
    "gap": "gaps",
    "graph break": "graph breaks",
    "graph launch": "graph launches",
    "job": "jobs",
    "kernel": "kernels",
    "kernel name": "kernel names",
    "measurement": "measurements",
    "test": "tests",
    "other constant": "other constants",
    "more family": "more families",
    "other place": "other places",
    "such kernel": "such kernels",
    "launch": "launches",
    "limit": "limits",
    "memory copy": "memory copies",
    "memory fill": "memory fills",
    "more call": "more calls",
    "more finding": "more findings",
    "more difference": "more differences",
    "more kernel": "more kernels",
    "more change": "more changes",
    "more line": "more lines",
    "other": "others",
    "other change": "other changes",
    "other measurement": "other measurements",
    "more name": "more names",
    "more place": "more places",
    "more rename": "more renames",
    "more such change": "more such changes",
    "operation": "operations",
    "orphan": "orphans",
    "operator": "operators",
    "device": "devices",
    "device-to-device copy": "device-to-device copies",
    "device-to-host copy": "device-to-host copies",
    "fill": "fills",
    "host-to-device copy": "host-to-device copies",
    "other replay": "other replays",
    "other step": "other steps",
    "other process": "other processes",
    "other kernel": "other kernels",
    "peak memory": "peak memories",
    "pointwise": "pointwise",
    "pointwise kernel": "pointwise kernels",
    "recompile": "recompiles",
    "recording": "recordings",
    "reduction": "reductions",
    "step": "steps",
    "step range": "step ranges",
    "sync": "syncs",
    "time": "times",
    "wait": "waits",
    "hit": "hits",
    "file": "files",
    "miss": "misses",
    "rule": "rules",
    "new entry": "new entries",
    "more new kernel": "more new kernels",
    "more warning": "more warnings",
    "node": "nodes",
    "number": "numbers",
    "version": "versions",
    "range": "ranges",
}
"""Every noun that the package counts, and what several of them are called."""


def modules():
    return sorted(PACKAGE.rglob("*.py"))


def written(path):
    """Return the nouns that stand as text in calls of ``counted`` and ``numbered``."""
    for node in syntax.nodes(path.read_text(encoding="utf-8"), ast.Call):
        if isinstance(node.func, ast.Name) and node.func.id in ("counted", "numbered"):
            noun = node.args[-1]
            if isinstance(noun, ast.Constant):
                yield noun.value
        if isinstance(node.func, ast.Name) and node.func.id == "and_more":
            yield from (f"more {noun.value}" for noun in node.args[1:] if isinstance(noun, ast.Constant))


def test_each_noun_has_its_plural():
    for one, several in SEVERAL.items():
        assert plural(one) == several
        assert counted(1, one) == f"1 {one}"
        assert counted(0, one) == f"0 {several}"
        assert counted(2500, one) == f"2,500 {several}"
        assert (numbered(1, one), numbered(2, one)) == (one, several)


def test_every_noun_that_the_package_counts_is_tried():
    counted_somewhere = {noun for path in modules() for noun in written(path)}
    of_numbers = {number.noun for number in TABLE if number.unit == "count"}
    tables = {*OF_BASELINES.values(), *OF_DIFFERENCES.values(), *OF_HINTS.values(), *of_numbers}
    assert len(counted_somewhere) > 20
    assert counted_somewhere | tables <= SEVERAL.keys()


def written_by_hand(how):
    """Return what the modules of the package write this way, by module."""
    texts = {path: how.findall(path.read_text(encoding="utf-8")) for path in modules()}
    return {str(path.relative_to(PACKAGE)): text for path, text in texts.items() if text}


def test_no_other_module_makes_plurals_of_its_own():
    assert written_by_hand(re.compile(r"""["'](?:s|es|y|ies)["'] (?:\*|if )|\w\(e?s\)""")) == {}


BY_HAND = re.compile(
    r"""and \{[^}]*\} more\b|, \{[^}:]*\} more["']|["']more \w+["']\)|["']other (?:family|difference)["']"""
)


def test_one_function_says_how_many_are_left_out():
    assert written_by_hand(BY_HAND).keys() <= {"text/__init__.py"}


@pytest.mark.parametrize(
    "source",
    ['f" and {left} more"', 'f", {len(names) - 4} more"', "f\"{counted(left, 'more line')}\""],
)
def test_what_says_it_by_hand_is_noticed(source):
    assert BY_HAND.search(source)
