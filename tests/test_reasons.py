"""The catalogue of reasons: each kind as it reads, with one and with several of what it counts, and as it travels.

The sentences stand in reasons.txt beside this file; after a change ``python tests/test_reasons.py`` writes it anew.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from pytest_torchprof.codes import Code
from pytest_torchprof.reasons import Reason, Verbatim, catalogue
from pytest_torchprof.reasons.composed import OfRank
from pytest_torchprof.reasons.recordings import EarlierWork, LostKernels, NoOperator, StepsOverlap, UnplacedLaunches

pytestmark = pytest.mark.any_torch

SENTENCES = Path(__file__).with_name("reasons.txt")

# A value for each type of a field, where there is one of something, and where there are several.
FEW = {
    "int": 1,
    "float": 1.5,
    "bool": False,
    "str": "<{name}>",
    "int | None": None,
    "str | None": None,
    "AnyReason": NoOperator(),
    "tuple[str, ...]": ("one",),
    "tuple[int, ...]": (1,),
    "tuple[AnyReason, ...]": (NoOperator(),),
}
MANY = {
    "int": 3000,
    "float": 2500.0,
    "bool": True,
    "str": "<{name}>",
    "int | None": 7,
    "str | None": "<{name}>",
    "AnyReason": EarlierWork(2),
    "tuple[str, ...]": ("one", "two"),
    "tuple[int, ...]": (1, 2),
    "tuple[AnyReason, ...]": (NoOperator(), EarlierWork(2)),
}


def example(kind, values):
    """Return a reason of a kind whose fields have these values by their types."""

    def value(name, annotation):
        found = values[annotation]
        return found.format(name=name) if isinstance(found, str) else found

    return kind(**{name: value(name, kind.__annotations__[name]) for name in kind.__struct_fields__})


def written():
    lines = []
    for kind in sorted(catalogue.KINDS, key=lambda kind: kind.__struct_config__.tag):
        if kind is not Verbatim:
            lines += [kind.__struct_config__.tag]
            lines += dict.fromkeys(f"  {example(kind, values)}" for values in (FEW, MANY))
    return "\n".join(lines) + "\n"


def test_each_reason_reads_as_it_is_written_down():
    assert written().splitlines() == SENTENCES.read_text().splitlines()


@pytest.mark.parametrize("kind", catalogue.KINDS)
@pytest.mark.parametrize("values", [FEW, MANY])
def test_a_reason_is_the_same_after_it_has_travelled_as_json(kind, values):
    if kind is Verbatim:
        pytest.skip("it has its own test")
    there = json.loads(json.dumps(example(kind, values).to_plain()))
    assert catalogue.from_plain(there) == example(kind, values)


@pytest.mark.parametrize("words", [Verbatim("it rained"), Verbatim("it rained", Code.NOT_RECORDED)])
def test_words_from_elsewhere_travel_too(words):
    assert catalogue.from_plain(json.loads(json.dumps(words.to_plain()))) == words


def test_a_text_of_an_earlier_version_is_read_as_it_stands():
    assert str(catalogue.from_stored("the profiler lost events [lost-kernels]")) == (
        "the profiler lost events [lost-kernels]"
    )


@pytest.mark.parametrize(
    "plain",
    [
        {"reason": "of-a-later-version", "found": 2},
        {"reason": "lost-steps", "found": 2},
        {"reason": "lost-steps", "found": "two", "measured": [3]},
        {"reason": "of-rank", "rank": 1, "why": {"reason": "of-a-later-version"}},
        {"reason": ["lost-steps"]},
        {},
    ],
)
def test_a_reason_that_this_version_does_not_know_is_one_all_the_same(plain):
    assert "for a reason that this version does not know" in str(catalogue.from_plain(plain))


@pytest.mark.parametrize("kind", catalogue.KINDS)
def test_each_kind_says_what_it_is_and_all_its_fields_stand_in_its_words_or_decide_them(kind):
    assert re.fullmatch(r"\S.*\.", (kind.__doc__ or "").partition("\n")[0]), kind
    used = set(re.findall(r"\{(\w+)", kind.SENTENCE + kind.REMEDY)) if "SENTENCE" in vars(kind) else set()
    own = [name for name in ("sentence", "remedy", "text", "code") if name in vars(kind)]
    assert own or used == set(kind.__struct_fields__)


def test_all_kinds_are_in_the_catalogue():
    def below(kind):
        return {kind, *(one for sub in kind.__subclasses__() for one in below(sub))}

    assert below(Reason) - {Reason} == set(catalogue.KINDS)


def test_what_to_do_stands_behind_the_sentence_and_the_code_behind_both():
    overlap = StepsOverlap("decode#0", "decode#1")
    assert str(overlap) == f"{overlap.sentence}; {overlap.remedy} [overlapping-steps]"
    unplaced = UnplacedLaunches(2)
    assert str(unplaced) == f"{unplaced.sentence}: {unplaced.remedy} [unplaced-launches]"


def test_a_reason_of_another_rank_names_it_and_is_for_that_ranks_own_doctor():
    other = OfRank(3, LostKernels(1, 3, in_each_step=False))
    assert str(other).startswith("rank 3: 1 of 3 launches")
    assert other.code == Code.LOST_KERNELS
    assert not other.for_the_doctor


if __name__ == "__main__":
    SENTENCES.write_text(written())
