"""The catalogues of reasons, of what limits see, and of their evidence: each kind as it reads and as it travels.

The sentences stand in messages.txt beside this file, of one and of several of what is counted; after a change
``python tests/test_messages.py`` writes it anew, and the rows of docs/messages.md that are not written by hand.
"""

from __future__ import annotations

import json
import re
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import msgspec
import pytest

from pytest_torchprof import reasons
from pytest_torchprof.limits import InWords, LineInWords, evidence, seen
from pytest_torchprof.limits.evidence import AnyEvidence
from pytest_torchprof.limits.seen import AnySeen, NumberSeen
from pytest_torchprof.reasons import catalogue
from pytest_torchprof.reasons.capturing import NotReadBack
from pytest_torchprof.reasons.catalogue import AnyReason
from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.composed import FindingUntold, OfRank
from pytest_torchprof.reasons.reason import Reason, Verbatim
from pytest_torchprof.reasons.recordings import EarlierWork, LostKernels, NoOperator, StepsOverlap
from pytest_torchprof.reasons.statement import Statement
from pytest_torchprof.trace.caches import CacheUse, CacheUses

pytestmark = pytest.mark.any_torch

SENTENCES = Path(__file__).with_name("messages.txt")
PAGE = Path(__file__).parents[1] / "docs" / "messages.md"
TITLES = "| text | what it means | what to do |\n|---|---|---|\n"

CATALOGUES = {
    "reasons": (catalogue.KINDS, AnyReason),
    "seen": (seen.KINDS, AnySeen),
    "evidence": (evidence.KINDS, AnyEvidence),
}
OF_OTHERS = {Verbatim, InWords, LineInWords}
KINDS = [(kind, union) for kinds, union in CATALOGUES.values() for kind in kinds if kind not in OF_OTHERS]

# A value for each type of a field, where there is one of something, and where there are several.
FEW = {
    "int": 1,
    "float": 1.5,
    "bool": False,
    "str": "<{name}>",
    "int | None": None,
    "float | None": None,
    "str | None": None,
    "tuple[float, float] | None": None,
    "tuple[str, int] | None": None,
    "tuple[tuple[int, str], ...]": (),
    "CacheUses": CacheUses(inductor=CacheUse(hits=1, misses=0, bypasses=0)),
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
    "float | None": 2400.0,
    "tuple[float, float] | None": (30.0, 20.0),
    "tuple[str, int] | None": ("model.py", 7),
    "tuple[tuple[int, str], ...]": ((2, "model.py:7"), (1, "model.py:9")),
    "CacheUses": CacheUses(inductor=CacheUse(hits=2, misses=1, bypasses=3)),
    "str | None": "<{name}>",
    "AnyReason": EarlierWork(2),
    "tuple[str, ...]": ("one", "two"),
    "tuple[int, ...]": (1, 2),
    "tuple[AnyReason, ...]": (NoOperator(), EarlierWork(2)),
}


# Where a value of the type alone is none of the field.
EXAMPLES = {
    NumberSeen: (
        NumberSeen("kernels", 1),
        NumberSeen("gpu_busy_us", 1_500_000, beyond=1_499_999),
        NumberSeen("gpu_busy_us", 2.5, on_gpu=False),
        NumberSeen("peak_memory_bytes", 2**30 + 5, beyond=2**30),
        NumberSeen("cpu_gpu_ratio", 1.5, beyond=1, parts_us=(30, 20)),
    ),
    NotReadBack: (NotReadBack("<cause>", Code.RECORDING_DAMAGED), NotReadBack("<cause>", Code.RECORDING_CUT_OFF)),
}


def examples(kind):
    """Return messages of a kind whose fields have these values by their types."""
    return EXAMPLES.get(kind) or tuple(dict.fromkeys(example(kind, values) for values in (FEW, MANY)))


def example(kind, values):
    def value(name, annotation):
        found = values[annotation]
        return found.format(name=name) if isinstance(found, str) else found

    return kind(**{name: value(name, kind.__annotations__[name]) for name in kind.__struct_fields__})


def written():
    lines = []
    for title, (kinds, _) in CATALOGUES.items():
        lines += [f"# {title}"]
        for kind in sorted({*kinds} - OF_OTHERS, key=lambda kind: kind.__struct_config__.tag):
            texts = dict.fromkeys(map(str, examples(kind)))
            lines += [kind.__struct_config__.tag, *(f"  {line}" for text in texts for line in text.split("\n"))]
    return "\n".join(lines) + "\n"


def with_rows(page):
    """Return the page with a row for each kind of reason at the end of its code's table.

    Rows that begin with an asterisk are written by hand, and a kind that has one gets no other: in a text between
    asterisks, "..." and single capitals stand for what varies.
    """
    by_hand = re.sub(rf"\n{re.escape(TITLES)}(?!\| \*)|^\| (?!\*|text).*\n", "", page, flags=re.MULTILINE)
    return re.sub(r"^##+ ([a-z-]+)\n.*?(?=^##|\Z)", completed, by_hand, flags=re.MULTILINE | re.DOTALL)


def completed(found):
    section, code = found[0], found[1]
    written = [
        ".*".join(re.escape(part.strip()) for part in re.split(r"\.\.\.|\b[A-Z]\b", text))
        for text in re.findall(r"\*([^*\n]+)\*", section)
    ]
    kinds = [kind for kind in catalogue.KINDS if vars(kind).get("CODE") == code and has_words(kind)]
    rows = "".join(sorted(row(kind) for kind in kinds if not has_row(kind, written)))
    if not rows:
        return section
    before, titles, table = section.partition(TITLES)
    if not titles:
        return f"{section.rstrip()}\n\n{TITLES}{rows}\n"
    end = re.match(r"(\|.*\n)*", table).end()
    return f"{before}{titles}{table[:end]}{rows}{table[end:]}"


def has_words(kind):
    """Return whether a kind has a sentence of its own around what others say."""
    return re.search(r"[a-z]", re.sub(r"<\w+>", "", examples(kind)[-1].sentence))


def has_row(kind, written):
    """Return whether a text written by hand is of this kind, or of a finding that cannot be told for such a reason."""
    of_finding = kind.__module__.endswith(".findings")
    reasons = [FindingUntold("x", why) if of_finding else OfRank(7, why) for why in examples(kind)]
    return any(re.search(text, str(why)) for text in written for why in reasons)


def row(kind):
    """Return a row: what is said, with N for numbers and capitals for names; what it means; and what to do."""
    few, many = examples(kind)[0], examples(kind)[-1]
    text, remedy = (re.sub(r"<(\w+)>", lambda name: name[1].upper(), part) for part in (many.sentence, few.remedy))
    text = re.sub(r"\b(3,?000|2,?500|2\.50)(\.0)?\b", "N", text)
    cells = (text, kind.__doc__.partition("\n")[0], "what the text says" if remedy == "ADVICE" else remedy or "-")
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |\n"


def test_the_page_has_a_row_for_each_kind_of_reason():
    assert with_rows(PAGE.read_text()) == PAGE.read_text()


def test_each_message_reads_as_it_is_written_down():
    assert written().splitlines() == SENTENCES.read_text().splitlines()


@pytest.mark.parametrize(("kind", "union"), KINDS)
def test_a_message_is_the_same_after_it_has_travelled_as_json(kind, union):
    for message in examples(kind):
        assert msgspec.convert(json.loads(json.dumps(message.to_plain())), union) == message


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
        {"reason": "several", "whys": []},
        {},
    ],
)
def test_a_reason_that_this_version_does_not_know_is_one_all_the_same(plain):
    assert "for a reason that this version does not know" in str(catalogue.from_plain(plain))


@pytest.mark.parametrize(("kind", "union"), KINDS)
def test_each_kind_says_what_it_is_and_all_its_fields_stand_in_its_words_or_decide_them(kind, union):
    assert re.fullmatch(r"\S.*\.( [A-Z].*\.)*", (kind.__doc__ or "").partition("\n")[0]), (kind, union)
    sentences = (kind.SENTENCE if "SENTENCE" in vars(kind) else "") + getattr(kind, "REMEDY", "")
    own = [name for name in ("sentence", "remedy", "text", "code") if name in vars(kind)]
    assert own or set(re.findall(r"\{(\w+)", sentences)) == set(kind.__struct_fields__)


def test_all_kinds_are_in_a_catalogue():
    for module in iter_modules(reasons.__path__, f"{reasons.__name__}."):
        import_module(module.name)

    def below(kind):
        return {kind, *(one for sub in kind.__subclasses__() for one in below(sub))}

    parts = {Statement, Reason, seen.Seen, evidence.Evidence}
    assert below(Statement) - parts == {kind for kinds, _ in CATALOGUES.values() for kind in kinds}


def test_what_to_do_stands_behind_the_sentence_and_the_code_behind_both():
    overlap = StepsOverlap("decode#0", "decode#1")
    assert str(overlap) == f"{overlap.sentence}; {overlap.remedy} [overlapping-steps]"


def test_a_reason_of_another_rank_names_it_and_is_for_that_ranks_own_doctor():
    other = OfRank(3, LostKernels(1, 3, in_each_step=False))
    assert str(other).startswith("rank 3: 1 of 3 launches")
    assert other.code == Code.LOST_KERNELS
    assert not other.for_the_doctor


if __name__ == "__main__":
    SENTENCES.write_text(written())
    PAGE.write_text(with_rows(PAGE.read_text()))
