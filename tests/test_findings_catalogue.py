"""The catalogue of findings: each as it reads, with few and with many of what it counts, and as it travels.

The sentences stand in findings.txt beside this file; after a change ``python tests/test_findings_catalogue.py`` writes
it anew.
"""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from pytest_torchprof import load
from pytest_torchprof.analysis.rank_kernels import OtherCount, OtherStepCount
from pytest_torchprof.findings import RULES, AnyFinding, OtherFinding
from pytest_torchprof.findings.catalogue import KINDS, from_words
from pytest_torchprof.findings.catalogue.compiling import Again, Break
from pytest_torchprof.findings.finding import ACTION_WIDTH
from pytest_torchprof.reasons.collectives import OtherMessage
from pytest_torchprof.reasons.compiler_events import InductorSilent
from pytest_torchprof.reasons.uncompiled import NoneFits, SettingInForce, SkippedAsTorchs, UnderMode

pytestmark = pytest.mark.any_torch

SENTENCES = Path(__file__).with_name("findings.txt")

# A value for each type of a fact: where there is one of something and nothing to add, and where there are several.
VALUES = {
    "int": (1, 3000),
    "float": (0.25, 2500.0),
    "bool": (False, True),
    "str": ("<{name}>", "<{name}>"),
    "Mapping[str, int]": ({"one": 1}, {"one": 40, "two": 2}),
    "Mapping[str, float]": ({"one": 1.5}, {"one": 40.0, "two": 2.0}),
    "Mapping[str, bool | str | None]": ({}, {"tf32_matmul": True}),
    "Mapping[WaitedFor, float]": ({"value": 0.25}, {"to_cpu": 1500.0, "value": 990.0, "masks": 10.0}),
    "tuple[str, ...]": (("one",), ("one", "two", "three", "four", "five", "six")),
    "tuple[AnyCompilerEvent | str, ...]": ((InductorSilent(),), ("one", "two", "three", "four", "five", "six")),
    "tuple[str, str]": (("one", "two"), ("one", "two")),
    "tuple[AnyWhyUncompiled | str, ...]": (
        (SettingInForce(UnderMode("<mode>")),),
        (SkippedAsTorchs("<function>", "<file>", 3), NoneFits(3000)),
    ),
    "tuple[int, ...]": ((1,), (3000, 20)),
    "tuple[float, ...]": ((1.5,), (0.25, 1500.0, 2.5e6, 3e6, 4e6)),
    "tuple[str | None, ...]": (("ProfilerStep#1",), ("ProfilerStep#1", "ProfilerStep#2")),
    "tuple[AnyRankDifference | OtherCount | OtherStepCount, ...]": (
        (OtherMessage(1, 2, 0, "<collective>", 8, "fp32", 4, "fp32"),),
        (OtherCount(2, "<kernel>", "", 1), *[OtherStepCount(3, 2)] * 5),
    ),
    "tuple[Literal['gemm', 'conv'], ...]": (("gemm",), ("gemm", "conv")),
    "tuple[Literal['ddp', 'fsdp'], ...]": ((), ("ddp", "fsdp")),
    "Literal['outlier', 'drift']": ("outlier", "drift"),
    "Literal['transfer-bound', 'skew-bound', 'mixed', 'inconclusive']": ("skew-bound", "mixed"),
    "tuple[Break, ...]": ((Break(reason="<reason>"),), (Break(reason="<reason>", line=3),) * 2),
    "tuple[Again, ...]": ((Again(reason="<reason>"),), (Again(reason="<reason>"),) * 2),
}
SHARES = ("occupancy", "late_launches")
SHARE = 0.25
# What shows sentences of a finding that the two examples do not show.
MORE = {
    "cold-start": [{"first_step_us": None, "first_call_us": None, "setup_idle_us": 1500.0}],
    "graph-recaptured": [{"idle_us": 1500.0}],
    "rank-differs": [{"collectives": None}],
    "many-small-calls": [{"has_steps": False}],
    "repeated-constant": [{"has_steps": False}],
    "exposed-communication": [
        {"rank": None, "on_cpu": False},
        {"rank": None},
        {"rank": None, "on_cpu": False, "kind": None, "beyond_usual_us": 0.0, "wrappers": ()},
        {"rank": None, "on_cpu": False, "kind": None},
        {"rank": None, "on_cpu": False, "kind": None, "cpu_held_up": False},
        {"kind": "inconclusive"},
        {"kind": "inconclusive", "waits_at_least": None},
    ],
    "queued-work-waits": [
        {"from_before_us": 0.0},
        {"from_before_us": 0.0, "begins_with_it": False, "after_other_gpu": False, "graph_starts_us": 0.0},
        {"from_before_us": 0.0, "begins_with_it": False, "after_other_gpu": False, "graphs_again_us": 0.0},
        {"from_before_us": 0.0, "begins_with_it": False, "cpu_waited_within": None},
        {"from_before_us": 0.0, "begins_with_it": False, "cpu_waited_us": 0.0},
    ],
    "not-compiled": [{"seen": ()}],
    "below-roofline": [{"family": family} for family in ("conv", "gemm", "attention")],
    "no-gpu-work": [{"of_steps": 2}, {"calls_recorded": False}],
    "lost-kernels": [{"lost_kernels": 1}],
    "implicit-sync": [
        {"idle_us": 0.0},
        {"causes_us": {"masks": 2000.0, "indices": 300.0, "to_gpu": 200.0, "copies": 150.0}},
    ],
}


def annotations(kind):
    return {
        name: text for base in reversed(kind.__mro__) for name, text in vars(base).get("__annotations__", {}).items()
    }


def example(kind, which):
    """Return a finding whose facts have the values of their types; what may be missing is missing in the first."""

    def value(name, annotation):
        optional = annotation.endswith(" | None")
        if optional and which == 0:
            return None
        found = SHARE if "share" in name or name in SHARES else VALUES[annotation.removesuffix(" | None")][which]
        return found.format(name=name) if isinstance(found, str) else found

    types = annotations(kind)
    # Its events stay with the recording.
    return kind(**{name: value(name, types[name]) for name in kind.__struct_fields__ if name != "events"})


def examples(code, kind):
    last = example(kind, 1)
    return [example(kind, 0), last, *(msgspec.structs.replace(last, **facts) for facts in MORE.get(code, ()))]


def read_as(finding):
    return finding.message, finding.remedy, finding.action


def written():
    lines = []
    for code, kind in sorted(KINDS.items()):
        lines += [f"{code}: {kind.TITLE} ({kind.SEVERITY})"]
        for message, remedy, action in dict.fromkeys(map(read_as, examples(code, kind))):
            if message:
                lines += [
                    f"  {message}",
                    f"    -> {remedy}",
                    *([f"    in a line: {action}"] if action != remedy else []),
                ]
    return "\n".join(lines) + "\n"


def test_each_finding_reads_as_it_is_written_down():
    assert written().splitlines() == SENTENCES.read_text().splitlines()


def test_each_rule_has_its_row_and_each_row_its_rule():
    assert {rule.code for rule in RULES} == set(KINDS)
    assert len(RULES) == len(KINDS)


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_each_row_says_what_to_do_and_uses_facts_that_there_are(kind):
    assert re.fullmatch(r"\S.*\.", kind.__doc__.partition("\n")[0])
    assert kind.TITLE
    assert kind.REMEDY
    for sentence in (value for name, value in vars(kind).items() if name.isupper() and isinstance(value, str)):
        assert all(hasattr(kind, name) for name in re.findall(r"\{(\w+)", sentence)), sentence


@pytest.mark.parametrize("code", KINDS)
def test_what_to_do_first_is_a_line_of_its_own_and_no_part_of_the_remedy_that_is_cut_off(code):
    actions = [finding.action for finding in examples(code, KINDS[code]) if finding.message]
    assert [action for action in actions if not 0 < len(action) <= ACTION_WIDTH] == []


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_a_finding_is_the_same_after_it_has_travelled_as_json(kind, which):
    finding = example(kind, which)
    there = msgspec.json.decode(msgspec.json.encode(finding), type=AnyFinding)
    assert there == finding
    assert there.in_words() == finding.in_words()


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_a_finding_is_the_same_after_a_report_has_shown_it(kind, which):
    finding = example(kind, which)
    shown = msgspec.json.decode(msgspec.json.encode(finding.in_words()))
    assert msgspec.convert(from_words(shown), AnyFinding) == finding


def test_a_finding_that_this_version_does_not_know_keeps_its_words():
    shown = {**OtherFinding(code="of-later", title="Later", message="2 things", facts={"count": 2}).in_words()}
    assert msgspec.convert(from_words(shown), AnyFinding).in_words() == shown
    other_facts = {**shown, "code": "hotspot"}
    assert msgspec.convert(from_words(other_facts), AnyFinding).in_words() == other_facts


def test_causes_that_an_earlier_version_reported_as_texts_are_read():
    kept = {"code": "not-compiled", "evidence": {"lookups_without_region": 0, "seen": ["the stance force_eager"]}}
    finding = msgspec.convert(from_words({**kept, "saves_us": 0.0}), AnyFinding)
    assert (
        finding.message
        == KINDS["not-compiled"](lookups_without_region=0, seen=(SettingInForce("the stance force_eager"),)).message
    )


def test_another_plugins_finding_travels_with_its_words():
    finding = OtherFinding(code="sines", title="Sines", message="2 sines", facts={"count": 2}, source="model.py:3")
    there = msgspec.json.decode(msgspec.json.encode(finding), type=AnyFinding)
    assert there == finding
    assert there.in_one_line == "sines: 2 sines (model.py:3)"
    assert there.evidence == {"count": 2, "source": "model.py:3"}


def test_evidence_holds_the_facts_and_not_what_is_unknown():
    finding = KINDS["in-flight-kernels"](orphans=2, time_us=1.5)
    assert finding.evidence == {"orphans": 2, "time_us": 1.5}
    assert KINDS["in-flight-kernels"](orphans=2, time_us=1.5, source="a.py:1").evidence["source"] == "a.py:1"


@pytest.mark.parametrize("recording", ["a100_sam_eager_large", "v100_dlrm_rank0", "rtx3060_cudagraph_steps"])
def test_findings_of_real_recordings_travel(recording, shared_trace):
    found = load(shared_trace(recording)).findings
    assert found
    assert msgspec.json.decode(msgspec.json.encode(found), type=tuple[AnyFinding, ...]) == found


if __name__ == "__main__":
    SENTENCES.write_text(written())


@pytest.mark.parametrize("source", ["model.py:3", "forward (model.py:3)"])
def test_the_place_of_a_finding_opens_no_parentheses_inside_of_others(source):
    line = OtherFinding(code="sines", title="Sines", message="2 sines", source=source).in_one_line
    assert source in line
    assert "))" not in line
