"""Reasons that lie in how kernels and operators are named: nothing could match, or it is not known what is meant."""

from __future__ import annotations

from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.reason import Reason
from pytest_torchprof.reasons.statement import Phrase
from pytest_torchprof.reasons.wrong_values import KERNEL
from pytest_torchprof.text.suggestions import choice_advice


class PatternForm(Phrase):
    """The form of a pattern on kernels, or of a declaration of kernels."""

    KERNEL = "kernel", KERNEL
    OWN_KERNELS = (
        "own-kernels",
        "kernels and what they are, such as {'my_rope_*': 'pointwise', 'mlp_fwd_*': 'gemm bf16'}",
    )
    OWN_KERNEL = "own-kernel", "PATTERN = FAMILY, such as my_rope_* = pointwise"
    COMPUTED = "computed", "what it computes, such as pointwise or gemm bf16"


class NoPattern(Reason, frozen=True):
    """A value is no pattern on kernels, or does not say what kernels are."""

    CODE = Code.BAD_PATTERN

    expected: PatternForm
    got: str | None = None
    """The value as it is written; None where it stands beside it."""

    @property
    def sentence(self) -> str:
        return f"expected {self.expected}{'' if self.got is None else f', got {self.got}'}"


class FunctionNotCalled(Reason, frozen=True):
    """A selector is given without its parentheses."""

    CODE = Code.BAD_PATTERN
    ADVICE = "call it, as the text shows"

    name: str | None
    """The limit whose value it is; None where it stands for itself."""
    function: str
    call: str

    @property
    def sentence(self) -> str:
        if self.name is None:
            return self.words("{function} is the function that makes a selector; call it: {call}")
        return self.words("{name}={function} is a function; call it: {name}={call}")


class Spelling(Phrase):
    """Why a text is no kernel's or no operator's name in a recording, and what is."""

    NOTHING = "nothing", "it says nothing: expected a part of a kernel's name"
    NO_LETTER = "no-letter", "expected one such as 'aten::addmm'"
    COUNT = "count", "it begins with a count, as in a table: write {name!r}"
    NUMBER = (
        "number",
        (
            "{number} only numbers kernels that a table calls the same: write {name!r} for all of them, or a part of "
            "the raw name of one, which torchprof analyze --json shows"
        ),
    )
    NAMESPACE = "namespace", "it is a namespace: all of its operators are '{name}*'"
    ONE_COLON = "one-colon", "a namespace ends in two colons, as in 'aten::addmm'"
    OVERLOAD = "overload", "in a recording it has no overload: {name!r}"
    OF_SELECTOR = "of-selector", "there is a selector for it: communication({name!r})"
    OF_LIMIT = "of-limit", "there is a limit for it: collectives={{{name!r}: 1}}"
    TORCHSCRIPT = (
        "torchscript",
        "it is TorchScript's own: in a recording a value that is read is 'aten::item' or 'aten::_local_scalar_dense'",
    )
    TYPE = "type", "it is a type: write {name!r}"
    OPERATOR = "operator", "it is an operator, as which ops, forbid_ops and op= ask for it: {name!r}"
    ELSEWHERE = "elsewhere", "in a recording it is {name!r}"
    BLANK_BEFORE = "blank-before", "it has a blank at its beginning: write {name!r}"
    BLANK_BEHIND = "blank-behind", "it has a blank at its end: write {name!r}"
    QUOTED = "quoted", "it has quotes in it: write {name!r}"
    LIST = "list", "it is a list written as a text: take the outer quotes away"
    SEVERAL = "several", "a text is one name and no list: write {name!r}"
    READS = (
        "reads",
        (
            "Python's {name}() is no operator: a value that is read is 'aten::item' or 'aten::_local_scalar_dense', a "
            "conversion is 'aten::_to_copy', or 'aten::to' with the calls that convert nothing"
        ),
    )
    CONVERTS = (
        "converts",
        (
            "Python's {name}() is no operator: a conversion is 'aten::_to_copy', or 'aten::to' with the calls that "
            "convert nothing"
        ),
    )
    WAITS = (
        "waits",
        "Python's {name}() is no operator: it leaves no operator; there is a limit for waits: max_syncs",
    )
    ON_HOST = (
        "on-host",
        (
            "Python's {name}() is no operator: it leaves no operator of its own; what it reads from a GPU is a wait, "
            "for which there is max_syncs"
        ),
    )


_OF_PYTHON = (Spelling.READS, Spelling.CONVERTS, Spelling.WAITS, Spelling.ON_HOST)


class NotSpelledSo(Reason, frozen=True):
    """No recording has a name that is spelled so."""

    CODE = Code.BAD_PATTERN
    ADVICE = "write it as the text says"

    written: str
    of_operator: bool
    """Whether an operator is asked for, and not a kernel."""
    how: Spelling
    names: tuple[str, ...] = ()
    """What is meant, or what is there instead."""
    number: str = ""

    @property
    def sentence(self) -> str:
        name = self.names[0] if len(self.names) == 1 else list(self.names)
        kind = "operator" if self.of_operator else "kernel"
        no_kernel = "it is no kernel: " if self.how in _OF_PYTHON and not self.of_operator else ""
        return f"{self.written!r} is no {kind}'s name: {no_kernel}" + self.how.text.format(
            name=name, number=self.number
        )


class OfOtherLimit(Reason, frozen=True):
    """The pattern names no kernel, and its operation has a limit of its own."""

    CODE = Code.BAD_PATTERN
    SENTENCE = "{written!r} is no kernel's name; there is a limit for it: {limit}"
    ADVICE = "use that limit"

    written: str
    limit: str


class SelectorAsText(Reason, frozen=True):
    """A selector is written between quotes."""

    CODE = Code.BAD_PATTERN
    SENTENCE = (
        "{written!r} is a selector written as a text, which no kernel's name holds: take the quotes away, and write "
        "from pytest_torchprof import {selector}"
    )
    ADVICE = "take the quotes away"

    written: str
    selector: str


class NoExpression(Reason, frozen=True):
    """The text behind ``re:`` is no regular expression."""

    CODE = Code.BAD_PATTERN
    SENTENCE = "{written!r} is no regular expression: {error}"

    written: str
    error: str


class NoSuchOperatorInTorch(Reason, frozen=True):
    """The loaded torch has the namespace of an operator, and not the operator."""

    CODE = Code.BAD_PATTERN
    ADVICE = "write the operator that is meant; a library's own are known once it is imported"

    name: str
    namespace: str
    near: str | None
    of_torch: bool
    """Whether the namespace is torch's own, and not one that a library may add to."""

    @property
    def sentence(self) -> str:
        problem = self.words("torch has no operator {name!r} in {namespace}")
        if self.near is not None:
            return f"{problem}: did you mean {self.near!r}?"
        return problem if self.of_torch else f"{problem}: import what registers it before"


class PartOf(Phrase):
    """The part of a selector or a declaration that has no such name."""

    SELECTOR = "selector", "there is no selector {name}()"
    KEYWORD = "keyword", "{of}() has no keyword {name}"
    VALUE = "value", "{of}={name} is unknown"
    FAMILY = "family", "{name} is no family"
    FACT = "fact", "{name} says nothing of a kernel of family {of}"


class UnknownPart(Reason, frozen=True):
    """A selector, or a declaration of kernels, has a word in it that means nothing there."""

    CODE = Code.BAD_PATTERN

    what: PartOf
    name: str
    """As it is written."""
    near: str | None
    """The word that is meant."""
    known: tuple[str, ...]
    """All that there are, where none is near."""
    of: str = ""
    """The selector, its keyword, or the family of kernels."""

    @property
    def sentence(self) -> str:
        quote = "; quote what is meant as a text" if self.what is PartOf.SELECTOR else ""
        return f"{self.words(self.what.text)}: {choice_advice(self.near, self.known)}{quote}"


class TooManyValues(Reason, frozen=True):
    """A selector is given values that it does not take."""

    CODE = Code.BAD_PATTERN

    selector: str
    takes_one: bool
    given: int

    @property
    def sentence(self) -> str:
        return f"{self.selector}() takes {'one value' if self.takes_one else 'keywords only'}, got {self.given}"


class SelectorWithoutValue(Reason, frozen=True):
    """A selector is given no value, and needs one."""

    CODE = Code.BAD_PATTERN
    SENTENCE = "{selector}() needs a value: {known:list}"

    selector: str
    known: tuple[str, ...]


class VersionOfUnfused(Reason, frozen=True):
    """A version of FlashAttention is asked for where it does not run."""

    CODE = Code.BAD_PATTERN
    SENTENCE = "attention(fused=False) selects what no FlashAttention runs: it takes no version"
    ADVICE = "leave one of them out"


class TextUnread(Reason, frozen=True):
    """A text begins like a list, a dict or a selector, and cannot be read as one."""

    CODE = Code.BAD_PATTERN
    SENTENCE = (
        "{written} cannot be read: expected literals and selectors such as "
        'gemm(layout="tn"), [gemm(), "name"] or {{"name": 3}}'
    )
    REMEDY = "quote what is meant as a text"

    written: str


class SaysTwice(Reason, frozen=True):
    """A declaration of kernels has two types, or two layouts."""

    CODE = Code.BAD_PATTERN
    SENTENCE = "{written} says two of one thing: a kernel has one dtype, and a product one layout"
    ADVICE = "take one of them out"

    written: str


class NotOnesOwn(Phrase):
    """Why a pattern is not about one's own kernels."""

    EMPTY = "empty", "is no pattern on kernels' names: expected one such as my_rope_*"
    TOO_SHORT = (
        "too-short",
        "is no pattern on names of one's own: expected three letters of one or more, as in my_rope_*",
    )
    COMMON = "common", "matches kernels of torch and of its libraries: expected the names of one's own, as my_rope_*"


class NoPatternOfOwn(Reason, frozen=True):
    """A pattern is not about one's own kernels."""

    CODE = Code.BAD_PATTERN
    SENTENCE = "{pattern} {why_not}"

    pattern: str
    """As it is written."""
    why_not: NotOnesOwn
