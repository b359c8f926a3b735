"""Reasons that lie in a value: it is not what its keyword takes."""

from __future__ import annotations

from typing import Final

from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.reason import Reason
from pytest_torchprof.reasons.statement import Phrase
from pytest_torchprof.text import enumerated
from pytest_torchprof.text.suggestions import choice_advice

KERNEL: Final = "a kernel name, a glob, re:EXPRESSION, or a selector such as gemm(layout='tn')"


class ValueForm(Phrase):
    """The form of a keyword's value, or of an entry of it."""

    WHOLE_NUMBER = "whole-number", "a whole number"
    NUMBER = "number", "a number"
    SHARE = "share", "a share from 0 to 1"
    COUNT = "count", "a count or a pair (low, high)"
    DURATION = "duration", 'a duration such as "1.5ms", "800us" or seconds as a number'
    SIZE = "size", 'a size such as "1.5GiB", "300MB" or a number of bytes'
    EXPOSURE = "exposure", 'a duration such as "1.5ms", or a share of the step from 0 to 1'
    GRAPH_SHARE = "graph-share", 'True, "all" or a share of all kernels such as 0.95'
    COMPILE_TIME = "compile-time", "seconds, or seconds for cold or warm"
    TOLERANCES = "tolerances", 'a dict such as {"time": 0.10, "memory": 0.05, "kernels": 1}'
    SHARE_MORE = "share-more", "a share above 0, such as 0.10 for 10 %"
    SO_MANY_MORE = "so-many-more", "so many more (1) or a share below 1 (0.5)"
    SHARE_OF_TESTS = (
        "share-of-tests",
        (
            "a share of the tests above 0 and up to 1, such as 0.2; a path behind the option is taken for its value: "
            "write --torchprof-suite=1"
        ),
    )
    AN_ENTRY = "an-entry", "at least one entry"
    SINGLE_ENTRIES = "single-entries", "single entries"
    KERNEL = "kernel", KERNEL
    OPERATOR = "operator", "an operator name such as 'aten::addmm', a glob or re:EXPRESSION"
    CARRIED = "carried", "operator names such as ['add', 'mul']"
    FUSED = "fused", 'operator names such as ["add", "mul"], or a list of such lists'
    NOT_FUSED = "not-fused", 'two or more operators that no kernel may carry together, such as ["sum", "amax"]'
    TILE = "tile", "a tile such as '128x64' or (128, 64)"
    ALLOWED = (
        "allowed",
        "an operator such as 'aten::nonzero', 'range:NAME', or the end of a source file's path such as 'sampler.py'",
    )
    ALLOWED_OPERATOR = "allowed-operator", "operators and lines"
    ALLOWED_RANGE = "allowed-range", "the name of a range behind it, e.g. 'range:sample'"
    SOURCE_FILE = "source-file", "a source file's path, e.g. 'sampler.py' or 'sampler.py:12'"
    PACKAGES = "packages", "packages or modules by the name that imports them, such as 'tabpfn'"
    GROUP = "group", 'True, or the name or description of a process group such as "tp"'
    RANGES = "ranges", 'a dict of ranges and their limits, such as {"decode": {"max_syncs": 0}}'
    RANGE = "range", "the name of a range"
    LIMITS = "limits", 'a dict of limits, such as {"max_syncs": 0}'
    NAME_AND_VALUE = "name-and-value", "NAME=VALUE, e.g. max_kernels=5"
    FILES = "files", 'a whole number from 1 or "any"'
    SECONDS = "seconds", "seconds, 0 or more"
    TEXT = "text", "a text that is not empty"


class WrongValue(Reason, frozen=True):
    """A value is not of the form that is expected."""

    CODE = Code.BAD_VALUE

    expected: ValueForm
    got: str | None = None
    """The value or the part of it that is wrong, as it is written; None where that stands beside it."""
    least: int | None = None
    """The least number that there may be."""

    @property
    def sentence(self) -> str:
        least = "" if self.least is None else f" from {self.least}"
        return f"expected {self.expected}{least}{_got(self.got)}"


class NoneOfThese(Reason, frozen=True):
    """A value is none of those that there are."""

    CODE = Code.BAD_VALUE

    known: tuple[str, ...]
    """The known names, as they are written."""
    got: str | None = None
    """As for `WrongValue`."""
    several: bool = False
    """Whether several of them may be given."""

    @property
    def sentence(self) -> str:
        known = f"one or several of {', '.join(self.known)}" if self.several else enumerated(self.known)
        return f"expected {known}{_got(self.got)}"


def _got(got: str | None) -> str:
    return "" if got is None else f", got {got}"


class NameOf(Phrase):
    """The kind of thing that has no such name."""

    FINDING = "finding", "{name} is no finding"
    COLLECTIVE = "collective", "{name} is no collective"
    TOLERANCE = "tolerance", "unknown tolerance {name}"
    WORD = "word", "unknown word {name}"


class UnknownName(Reason, frozen=True):
    """A value names what there is not."""

    CODE = Code.BAD_VALUE

    what: NameOf
    name: str
    """As it is written."""
    near: str | None
    """The name that is meant."""
    known: tuple[str, ...]
    """All that there are, where none is near."""

    @property
    def sentence(self) -> str:
        return f"{self.words(self.what.text)}; {choice_advice(self.near, self.known)}"


class HugeNumber(Reason, frozen=True):
    """A value has a number in it that is too large for any use."""

    CODE = Code.BAD_VALUE
    SENTENCE = "a whole number in it is beyond 64 bits, and nothing is counted so far"


class ReaderRaised(Reason, frozen=True):
    """Another plugin's limit could not read its value."""

    CODE = Code.BAD_VALUE
    SENTENCE = "{error}"
    MEANING = "a limit of another plugin raised this when it read its value"
    ADVICE = "write a value that it takes"

    error: str


class GivenTwice(Reason, frozen=True):
    """A value that may be given once is given twice."""

    CODE = Code.BAD_VALUE
    ADVICE = "leave one of them out"

    name: str
    """As it is written."""
    entry: str | None = None
    """The entry that has two counts, where it is not the whole."""

    @property
    def sentence(self) -> str:
        if self.entry is None:
            return self.words("{name} is given twice")
        return self.words("{name} has two counts for {entry}")


class CountsMixed(Reason, frozen=True):
    """Of the values that add up, some have counts."""

    CODE = Code.BAD_VALUE
    SENTENCE = "{name} is given once with counts and once without"
    REMEDY = "give it counts each time"

    name: str


class OfWholeMeasurement(Reason, frozen=True):
    """A limit that is judged on the whole measurement is given within a range."""

    CODE = Code.UNKNOWN_KEYWORD
    SENTENCE = "{limit} is judged on the whole measurement and not within ranges"
    REMEDY = "give it beside ranges"

    limit: str


class ColumnOfOperators(Reason, frozen=True):
    """A table is to be sorted by a column that it does not have."""

    CODE = Code.BAD_VALUE
    SENTENCE = "sort_by={column!r} is a column of operators: by='op'"
    ADVICE = "write that beside it"

    column: str
