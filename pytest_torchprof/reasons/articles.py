"""The articles on codes: ``torchprof explain`` prints one, pages in docs/ hold all."""

from __future__ import annotations

import re
from collections import ChainMap
from inspect import cleandoc
from itertools import chain
from textwrap import shorten
from typing import TYPE_CHECKING, Any, Final

from pytest_torchprof.reasons.adopting import SignOfGpu
from pytest_torchprof.reasons.capturing import ThreadOfProfiler
from pytest_torchprof.reasons.catalogue import KINDS
from pytest_torchprof.reasons.chapters import CHAPTERS, PAGES
from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.collectives import Gap, OtherOrder
from pytest_torchprof.reasons.command_line import Needed, OptionTakes, SaysDevice, WordOf
from pytest_torchprof.reasons.command_line_fleet import Quantity, RunPart
from pytest_torchprof.reasons.commits_measured import Kinship
from pytest_torchprof.reasons.comparing import SideName
from pytest_torchprof.reasons.compiling import Unobserved
from pytest_torchprof.reasons.composed import CuptiUser
from pytest_torchprof.reasons.contradictions import CommitFault, MeasurementFault, PartOfRecord, TimesFault
from pytest_torchprof.reasons.explained import EXPLAINED, Explained
from pytest_torchprof.reasons.explained_errors import ERRORS
from pytest_torchprof.reasons.no_gpu import CannotInitialize
from pytest_torchprof.reasons.other_ranks import RankProcess
from pytest_torchprof.reasons.plugins import Brings, Lack
from pytest_torchprof.reasons.reason import Verbatim
from pytest_torchprof.reasons.records import ContentInstead
from pytest_torchprof.reasons.step_flaws import StepFlaw
from pytest_torchprof.reasons.step_title import StepTitle
from pytest_torchprof.reasons.stores import StoreUse
from pytest_torchprof.reasons.testing import CallsOfRank, Trait
from pytest_torchprof.reasons.unreadable import InsteadOfFile
from pytest_torchprof.reasons.wrong_patterns import NotOnesOwn, PartOf, PatternForm, Spelling
from pytest_torchprof.reasons.wrong_values import NameOf, ValueForm
from pytest_torchprof.text.documentation import Article, table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pytest_torchprof.reasons.reason import Reason

_TITLES: Final = ("text", "what it means", "what to do")
_LONGEST_TEXT: Final = 80
"""Characters of a text, by which it is found."""

_MANY: Final = 6
"""Texts that are not listed where all mean the same: whoever has one has its code."""

# A value for each type of a field; "<name>" is printed as NAME, the numbers as N, and those of bytes as SIZE.
_VALUES: Final[Mapping[str, Any]] = {
    "int": 3000,
    "int | None": 7,
    "float": 2500.0,
    "bool": True,
    "str": "<{name}>",
    "str | None": "<{name}>",
    "Code": Code.RECORDING_DAMAGED,
    "decoding.AnyReason": Verbatim("<why>"),
    "decoding.AnyReason | str": "<{name}>",
    "Goal | str": "<goal>",
    "StoppedAt | str": "<{name}>",
    "Goal | str | None": "<goal>",
    "tuple[int, ...]": (1, 2),
    "tuple[str | None, ...]": ("one", None),
    "tuple[str, ...]": ("one", "two"),
    "tuple[decoding.AnyReason, ...]": (Verbatim("<why>"),),
    "Gap": Gap.NO_TIME,
    "Trait": Trait.ASYNC,
    "float | None": None,
    "Brings": Brings.LIMITS,
    "Lack": Lack.NAME,
    "NameOf": NameOf.FINDING,
    "Needed": Needed.LIMIT,
    "NotOnesOwn": NotOnesOwn.COMMON,
    "OptionTakes": OptionTakes.JUDGED,
    "PartOf": PartOf.VALUE,
    "StepFlaw": StepFlaw.NOT_CLOSED,
    "PatternForm": PatternForm.KERNEL,
    "Quantity": Quantity.SIZE,
    "RunPart": RunPart.SOURCES,
    "SaysDevice": SaysDevice.REPORT,
    "Spelling": Spelling.SEVERAL,
    "ValueForm": ValueForm.WHOLE_NUMBER,
    "WordOf": WordOf.OPTION,
    "SideName": SideName("<commit>"),
    "CommitFault": CommitFault.OWN_ANCESTOR,
    "ContentInstead": ContentInstead.NOTHING,
    "Kinship": Kinship.STRANGERS,
    "MeasurementFault": MeasurementFault.NOT_MEASURED,
    "PartOfRecord": PartOfRecord.STRUCTURE,
    "StoreUse": StoreUse.READ,
    "TimesFault": TimesFault.OUT_OF_ORDER,
    "Absent | None": None,
    "DeviceTrouble | None": None,
    "InsteadOfFile": InsteadOfFile.LOOP,
    "RankProcess": RankProcess(3000, "<host>"),
    "RankProcess | None": None,
    "SignOfGpu": SignOfGpu.HERE,
    "ThreadOfProfiler": ThreadOfProfiler.OTHER,
    "tuple[CallsOfRank, ...]": (CallsOfRank(3000, 3000, times=False),),
    "tuple[...]": (),
    "tuple[tuple[str, int | None], ...]": (("<file>", 3000),),
    "tuple[tuple[str, str | int], ...]": (("<name>", 3000),),
    "tuple[tuple[str, str], ...]": (("<file>", "<name>"),),
    "AnyWhyNoGpu": CannotInitialize("<error>"),
    "tuple[CompileRecords, ...] | str": "<records>",
    "tuple[CuptiRefusal, ...]": (),
    "AnyFreshFailure | str | None": None,
    "AnySetting | str": "<setting>",
    "Unobserved": Unobserved.NO_CALL,
    "tuple[CuptiUser, ...]": (CuptiUser.PROTON,),
    "tuple[LockHolder, ...] | str": "<holders>",
    "AnyCommitGap | str": "<why>",
    "AnyCommitGap | str | None": "<why>",
    "StepTitle": StepTitle(step=3000, steps=3000),
    "StepTitle | None": None,
    "AnyRankDifference": OtherOrder(3000, 3000, 3000, ("one",), ("two",)),
    "tuple[tuple[int, str], ...]": (),
    "tuple[tuple[int, int], ...]": (),
    "tuple[tuple[int, Gap], ...]": ((3000, Gap.NO_TIME),),
}
_SIZE: Final = re.compile(r"\b2\.93 KiB")
_NUMBERS: Final = re.compile(r"\b(3,?000|2,?500|2\.50|250000)(\.0)?\b")


def articles() -> Iterator[Article]:
    """Yield the article of each word, and of each chapter with the words that it holds."""
    for chapter, parts in chapters():
        below = ("", f"torchprof explain: {', '.join(part.word for part in parts)}") if parts else ()
        yield chapter._replace(lines=(*chapter.lines, *below))
        yield from parts


def chapters() -> Iterator[tuple[Article, tuple[Article, ...]]]:
    """Yield each chapter with the articles that it holds."""
    placed = {*CHAPTERS, *chain.from_iterable(CHAPTERS.values())}
    others = tuple(code for code in Code if code not in placed)
    for page, chapter in ((page, chapter) for page, on_page in PAGES.items() for chapter in on_page):
        words = others if chapter == Code.NOT_MEASURED else CHAPTERS[chapter]
        yield _article(chapter, page), tuple(_article(word, page) for word in words)


def _article(word: str, page: str) -> Article:
    row = EXPLAINED.get(word) or ERRORS.get(word, Explained())
    about = ("", *cleandoc(row.about).split("\n")) if row.about else ()
    texts = _table(row, [kind for kind in KINDS if vars(kind).get("CODE") == word])
    return Article(word, page, (*about, "", *texts) if texts else about)


def _table(row: Explained, kinds: Iterable[type[Reason]]) -> tuple[str, ...]:
    """Return a table of what is printed, without the middle column where it is empty; nothing where it has no row."""
    rows = tuple(_rows(row, kinds))
    columns = [column for column in range(3) if any(cells[column] for cells in rows)]
    titles, *shown = ([cells[column] for column in columns] for cells in (_TITLES, *rows))
    return table(titles, shown) if shown else ()


def _rows(row: Explained, kinds: Iterable[type[Reason]]) -> Iterator[tuple[str, str, str]]:
    """Yield a row for each kind and text, and one for all that mean the same and ask for the same."""
    alike: dict[tuple[str, str], list[str]] = {}
    # Which module is imported first differs from process to process.
    for kind in sorted(kinds, key=lambda kind: kind.__module__):
        alike.setdefault(_meaning_and_remedy(row, kind), []).append(_text(kind))
    for text, meaning, remedy in row.texts:
        alike.setdefault((meaning, remedy), []).append(text)
    for (meaning, remedy), texts in alike.items():
        first, *others = dict.fromkeys(texts)
        shown = [first, *others] if len(others) < _MANY else [first, f"{len(others)} other texts"]
        yield "<br>".join(shown), meaning, remedy


def _meaning_and_remedy(row: Explained, kind: type[Reason]) -> tuple[str, str]:
    remedy = kind.ADVICE or _advice(example(kind, _VALUES).remedy)
    return (kind.MEANING, remedy) if kind.MEANING or remedy else (row.meaning, row.remedy)


def _advice(remedy: str) -> str:
    return "what the text says" if remedy == "<advice>" else _in_a_cell(remedy)


def _text(kind: type[Reason]) -> str:
    """Return the beginning of what a kind says; "..." where these are the words of others alone."""
    text = _in_a_cell(example(kind, _VALUES).sentence)
    return shorten(text, _LONGEST_TEXT, placeholder=" ...") if any(map(str.islower, text)) else "..."


def _in_a_cell(text: str) -> str:
    """Return a text with N for numbers, SIZE for bytes and names in capitals.

    Names that are joined to a word only at times are left out.
    """
    named = re.sub(r"<(\w+)>", lambda name: name[1].upper(), re.sub(r"(?<=\w)<\w+>", "", text))
    return _NUMBERS.sub("N", _SIZE.sub("SIZE", named)).replace("|", "/")


def example(kind: type[Any], values: Mapping[str, Any]) -> Any:
    """Return a statement of a kind whose fields have the values of their types, texts with the field's name in them."""
    types = ChainMap(*(vars(base).get("__annotations__", {}) for base in kind.__mro__))

    def value(name: str) -> Any:
        given = values[types[name]]
        return given.format(name=name) if isinstance(given, str) else given

    return kind(**{name: value(name) for name in kind.__struct_fields__})
