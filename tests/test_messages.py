"""The catalogues of reasons, of what limits see, and of their evidence: each kind as it reads and as it travels.

The sentences stand in messages.txt beside this file, of one and of several of what is counted; after a change
``python tests/test_messages.py`` writes it anew, and the tables of docs/messages.md.
"""

from __future__ import annotations

import json
import re
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from textwrap import shorten

import msgspec
import pytest

from pytest_torchprof import reasons
from pytest_torchprof.analysis.rank_kernels import OtherCount, OtherStepCount
from pytest_torchprof.findings.catalogue.costs import Hotspot
from pytest_torchprof.limits import InWords, LineInWords, evidence, seen
from pytest_torchprof.limits.evidence import AnyEvidence
from pytest_torchprof.limits.seen import AnySeen, NoFinding, NumberSeen
from pytest_torchprof.reasons import catalogue
from pytest_torchprof.reasons.capturing import NotReadBack
from pytest_torchprof.reasons.catalogue import AnyReason
from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.composed import OfRank
from pytest_torchprof.reasons.findings import CollectivesUnmatched
from pytest_torchprof.reasons.limits import NoCollectiveCompared, SkewMayBeMore
from pytest_torchprof.reasons.reason import Reason, Verbatim
from pytest_torchprof.reasons.recordings import EarlierWork, LostKernels, NoOperator, StepsOverlap
from pytest_torchprof.reasons.statement import Statement
from pytest_torchprof.trace.caches import CacheUse, CacheUses

pytestmark = pytest.mark.any_torch

SENTENCES = Path(__file__).with_name("messages.txt")
PAGE = Path(__file__).parents[1] / "docs" / "messages.md"
TITLES = "| text | what it means | what to do |\n|---|---|---|\n"
LONGEST_TEXT = 80
"""Characters of a text in a table, by which it is found."""
LAST_OF_NOT_MEASURED = "## no-kernels-recorded\n"
"""Before which sections of new codes are added."""

CATALOGUES = {
    "reasons": (catalogue.KINDS, AnyReason),
    "seen": (seen.KINDS, AnySeen),
    "evidence": (evidence.KINDS, AnyEvidence),
}
OF_OTHERS = {Verbatim, InWords, LineInWords}
KINDS = [(kind, union) for kinds, union in CATALOGUES.values() for kind in kinds if kind not in OF_OTHERS]

HOTSPOT = Hotspot(subject="<subject>", time_us=1500.0, share=0.5, kernel_share=0.75, kernels=(), ops=(), count=2)
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
    "tuple[AnySeen, ...]": (NoFinding(),),
    "AnyReason | None": None,
    "AnyFinding": HOTSPOT,
    "OtherCount | OtherStepCount": OtherStepCount(3, 2),
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
    "AnyReason | None": EarlierWork(2),
    "OtherCount | OtherStepCount": OtherCount(-2, "<kernel>", "<types>", 7),
    "AnyFinding": HOTSPOT,
    "tuple[AnySeen, ...]": (NumberSeen("kernels", 7),),
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
    **{
        kind: (kind(((1, "<cause>"),)), kind(((3000, "<cause>"), (1, "<other cause>"))))
        for kind in (CollectivesUnmatched, NoCollectiveCompared, SkewMayBeMore)
    },
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


def with_tables(page):
    """Return the page with the table of each code that reasons have, made anew, and a section for a code without one."""
    codes = dict.fromkeys(kind.CODE for kind in catalogue.KINDS if "CODE" in vars(kind))
    missing = "".join(f"### {code}\n\n" for code in codes if not re.search(rf"^##+ {code}$", page, re.MULTILINE))
    page = page.replace(LAST_OF_NOT_MEASURED, missing + LAST_OF_NOT_MEASURED)
    return re.sub(r"^##+ ([a-z-]+)\n.*?(?=^##|\Z)", with_table, page, flags=re.MULTILINE | re.DOTALL)


def with_table(found):
    section, code = found[0], found[1]
    rows = rows_of([kind for kind in catalogue.KINDS if vars(kind).get("CODE") == code])
    if not rows:
        return section
    prose = re.sub(r"(\n\|.*)+", "", section).strip()
    return f"{prose}\n\n{TITLES}{''.join(rows)}\n"


def rows_of(kinds):
    """Return a row for each kind, and one for all that say no more than others of their code."""
    alike = {}
    # Which module is imported first differs from process to process.
    for kind in sorted(kinds, key=lambda kind: kind.__module__):
        alike.setdefault(about(kind), []).append(text_of(kind))
    return [f"| {'<br>'.join(dict.fromkeys(texts))} | {' | '.join(cells)} |\n" for cells, texts in alike.items()]


def about(kind):
    """Return what a kind means, and what to do."""
    remedy = examples(kind)[0].remedy
    advice = kind.ADVICE or ("what the text says" if remedy == "<advice>" else escaped(with_names(remedy)))
    if not (kind.MEANING or advice) and kind.CODE in catalogue.OF_CODE:
        return catalogue.OF_CODE[kind.CODE]
    said = kind.__doc__.partition("\n")[0].rstrip(".")
    return kind.MEANING or (said[0].lower() + said[1:] if said[1].islower() else said), advice


def text_of(kind):
    """Return what is said, of much its beginning, with N for numbers and capitals for names; "..." for others' words."""
    sentence = examples(kind)[-1].sentence
    text = re.sub(r"\b(3,?000|2,?500|2\.50|250000)(\.0)?\b", "N", with_names(sentence))
    beginning = shorten(escaped(text), LONGEST_TEXT, placeholder=" ...")
    return beginning if re.search(r"[a-z]", re.sub(r"<\w+>", "", sentence)) else "..."


def with_names(text):
    # What is joined to a word is said at times only.
    return re.sub(r"<(\w+)>", lambda name: name[1].upper(), re.sub(r"(?<=\w)<\w+>", "", text))


def escaped(text):
    return text.replace("|", "/")


def test_the_page_has_the_tables_of_the_catalogue():
    assert with_tables(PAGE.read_text()) == PAGE.read_text(), "python tests/test_messages.py writes them"


@pytest.mark.parametrize("kind", [kind for kind in catalogue.KINDS if "CODE" in vars(kind)])
def test_each_reason_says_what_it_means_and_what_to_do(kind):
    assert all(about(kind)), "it needs a REMEDY, or ADVICE"


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
    # Those of plugins, which other tests in this process have made, are in none.
    ours = {kind for kind in below(Statement) if kind.__module__.startswith("pytest_torchprof.")}
    assert ours - parts == {kind for kinds, _ in CATALOGUES.values() for kind in kinds}


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
    PAGE.write_text(with_tables(PAGE.read_text()))
