"""Patterns on kernels, strings and selectors alike: reading them, and advice for a pattern that matches nothing."""

from __future__ import annotations

import ast
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from pytest_torchprof.kernels.names.kernelname import (
    COLLECTIVES,
    DTYPES,
    FAMILIES,
    LAYOUTS,
    LIBRARIES,
    TORCHS_DTYPES,
)
from pytest_torchprof.kernels.names.text import word_table
from pytest_torchprof.kernels.operator_names import of_torch
from pytest_torchprof.kernels.reply import NO, NOT_KNOWN, YES, Reply, some
from pytest_torchprof.kernels.selectors import (
    SIGNATURES,
    Operator,
    Selector,
    TextPattern,
    build,
    checked_text,
    compile_text,
    is_expression,
    launched_by,
)
from pytest_torchprof.kernels.shown_names import might_be_called
from pytest_torchprof.kernels.spelling import why_no_kernel
from pytest_torchprof.reasons.errors import UnknownLimit
from pytest_torchprof.reasons.errors import hide_our_frames as __tracebackhide__  # noqa: F401  (read by pytest)
from pytest_torchprof.reasons.wrong_patterns import (
    FunctionNotCalled,
    NoPattern,
    OfOtherLimit,
    PartOf,
    PatternForm,
    SelectorAsText,
    TextUnread,
    UnknownPart,
)
from pytest_torchprof.text import printable
from pytest_torchprof.text.suggestions import choices_like

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pytest_torchprof.kernels.kernel import Kernel


class Pattern(Protocol):
    """The common interface of a string pattern and a selector; ``str()`` prints it as it was written."""

    def matches(self, kernel: Kernel) -> bool:
        """Return whether the kernel surely matches."""

    @property
    def operator(self) -> Operator | None:
        """The operator that it asks for, None if it asks for none."""

    def verdict(self, kernel: Kernel) -> Reply:
        """Return whether the kernel matches."""

    def is_akin(self, kernel: Kernel) -> bool:
        """Return whether the kernel computes what is asked for, in whatever type, layout or size."""


@dataclass(frozen=True, slots=True, repr=False)
class NamePattern(TextPattern):
    """A string pattern on a kernel's raw name and on the one that tables show.

    The first words of a displayed name ("attention", "gemm bf16", a library's name) have the selector's meaning, so a
    kernel whose answer to the selector is not known gives NOT_KNOWN; the same holds for text that matches a name which
    would be displayed if more were known. If kernels are launched, an operator's name is no kernel's: for the kernels
    that it launched it is not known whether they are meant, with its namespace or without.
    """

    _regex: re.Pattern[str] = field(init=False, repr=False, compare=False)
    _asked: Selector | None = field(init=False, repr=False, compare=False)
    _named: Operator | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        text = checked_text(self.written, of_kernel=True)
        if (why := why_no_kernel(text)) is not None:
            raise UnknownLimit.because(why)
        object.__setattr__(self, "_regex", compile_name(text))
        object.__setattr__(self, "_asked", None if is_expression(text) else _asked_by(text))
        object.__setattr__(self, "_named", _named_operator(text) if self._asked is None else None)

    def verdict(self, kernel: Kernel) -> Reply:
        """Return whether the kernel matches; NOT_KNOWN if it has no name or the answer depends on unknown facts."""
        if not kernel.name.strip():
            return NOT_KNOWN
        # A part of a C++ name may contain an asterisk.
        if any(self._regex.search(name) or self.written in name for name in _names_of(kernel)):
            return YES
        asked = NO if self._asked is None else self._asked.verdict(kernel)
        return some((asked, might_be_called(kernel, self._regex), self._may_be_meant(kernel)))

    def is_akin(self, kernel: Kernel) -> bool:
        """Return whether the kernel computes what the first words of a displayed name ask for, in whatever type."""
        return self._asked is not None and self._asked.is_akin(kernel)

    def _may_be_meant(self, kernel: Kernel) -> Reply:
        """Return whether the operator that it names, or an equivalent one, may have launched the kernel."""
        if self._named is None:
            return NO
        if (meant := _OF_FAMILIES.get(self.written.strip("*"))) is not None and kernel.decoded.is_of(meant).may_be:
            return NOT_KNOWN
        launched = launched_by(kernel, self._named)
        return NOT_KNOWN if launched is YES or (launched is NOT_KNOWN and self.operator is not None) else NO

    @property
    def names_operator(self) -> bool:
        """Whether it is the name of an operator, or may be that of one in the namespace that it has."""
        return self._named is not None and not self._named.written.startswith("*")

    def names_one_of(self, operators: Iterable[str]) -> bool:
        """Return whether it is, with its namespace, the name of one of these operators."""
        return "::" in self.written and self._named is not None and any(map(self._named.matches_op, operators))

    @property
    def operator(self) -> Operator | None:
        """The operator of torch's that it names; None if it names none: other namespaces may be those of C++."""
        return self._named if self.written.startswith("aten::") else None

    def matches(self, kernel: Kernel) -> bool:
        """Return whether the kernel surely matches."""
        return self.verdict(kernel) is YES


def _names_of(kernel: Kernel) -> Iterator[str]:
    """Yield the raw name, and all names under which the kernel is shown."""
    yield kernel.name
    yield from kernel.decoded.titles
    yield kernel.short
    if not kernel.name.isprintable():
        yield printable(kernel.name)


_CUT: Final = re.compile(r"\.{3,}")


def compile_name(text: str) -> re.Pattern[str]:
    """Return an expression that finds a text in a kernel's names; three dots stand for a part that a table left out."""
    if text.startswith("re:") or not _CUT.search(text):
        return compile_text(text)
    if is_expression(text):
        return compile_text(_CUT.sub("*", text))
    return re.compile(".*".join(map(re.escape, _CUT.split(text))), re.DOTALL)


def _asked_by(text: str) -> Selector | None:
    """Return the selector for which a displayed name's first words stand: "attention", "gemm bf16 tn", "cublas".

    A type stands for a selector too, as tables or torch write it: "fp64", "float64". None for any other text.
    """
    word, *facts = text.lower().split() or [""]
    if not facts and (dtype := TORCHS_DTYPES.get(word, word)) in DTYPES:
        return Selector("dtype", (("dtype", dtype),), text)
    if word in LIBRARIES and word not in FAMILIES:
        return None if facts else build("library", (word,), {})
    tables = (("dtype", DTYPES), ("layout", LAYOUTS), ("collective", COLLECTIVES))
    asked: dict[str, object] = {name: fact for fact in facts for name, valid in tables if fact in valid}
    if word not in FAMILIES or len(asked) < len(facts):
        return None
    if "collective" in asked:
        return build("communication", (asked.pop("collective"),), asked) if word == "communication" else None
    if "layout" in asked:
        return build("gemm", (), asked) if word == "gemm" else None
    return build("family", (word,), asked)


def _named_operator(text: str) -> Operator | None:
    """Return the operator that a text names: with its namespace, or by all of its name without."""
    if text.startswith("re:"):
        return None
    word = text.strip("*")
    try:
        return Operator(text) if "::" in text else _bare_operator(_ABBREVIATED.get(word, word))
    except UnknownLimit:
        return None


def _bare_operator(word: str) -> Operator | None:
    named = f"aten::{word}"
    if named in of_torch():
        return Operator(named)
    return Operator(f"*::{word}") if word.isidentifier() else None


# Short names that people use, and that only one library gives its kernels.
_ABBREVIATED: Final = {"sdpa": "scaled_dot_product_attention"}
# Names that people use for an operation, by whichever operator: nn.Linear runs a matmul by another operator.
_OF_FAMILIES: Final = {"matmul": "gemm", "convolution": "conv", "sdpa": "attention"}


# Events beside the kernels in a recording: no pattern on kernels would ever match them.
_NO_KERNELS = re.compile(
    r"(?P<max_memcpys>Memcpy(?: |\*|$)|(?i:\*?memcpy\*?$|(?:h|d|p|a)to(?:h|d|p|a)$))"
    r"|(?P<max_memsets>Memset(?: |\*|$)|(?i:\*?memset\*?$))"
    r"|(?P<max_launches>(?:cudaLaunch|cuLaunch|hipLaunch|hipModuleLaunch)\w*$)"
    r"|(?P<max_syncs>(?:cuda|hip)(?:Stream|Device|Event)Synchronize$)"
)


_CALLS: Final = {"family": "family('reduction')", "library": "library('cublas')"}


def compile_pattern(value: object) -> Pattern:
    """Return the pattern for which a string or selector stands; UnknownLimit for anything else."""
    if isinstance(value, NamePattern | Selector):
        return value
    if isinstance(value, str):
        kind, bracket, rest = value.strip().partition("(")
        if kind in SIGNATURES and bracket and rest.endswith(")"):
            raise UnknownLimit.because(SelectorAsText(value, kind))
        if (named := _NO_KERNELS.match(value)) is not None:
            raise UnknownLimit.because(OfOtherLimit(value, str(named.lastgroup)))
        return NamePattern(value)
    if (call := selector_call(value)) is not None:
        raise UnknownLimit.because(FunctionNotCalled(None, getattr(value, "__name__", ""), call))
    raise UnknownLimit.because(NoPattern(PatternForm.KERNEL, repr(value)))


def selector_call(value: object) -> str | None:
    """Return the call of a function that makes selectors, "gemm()"; None for anything else."""
    name = str(getattr(value, "__name__", ""))
    return _CALLS.get(name, f"{name}()") if name in SIGNATURES else None


def parse_value(text: str) -> object:
    """Return the value that ``text`` writes: a literal, a selector call, or a list, tuple or dict of them.

    Raises UnknownLimit for anything else, with the problem.
    """
    try:
        return _evaluate(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, MemoryError, RecursionError, TypeError):
        shown = text if len(text) <= 60 else f"{text[:57]}..."
        raise UnknownLimit.because(TextUnread(repr(shown))) from None


def _evaluate(node: ast.expr) -> object:
    if isinstance(node, ast.List | ast.Tuple):
        values = [_evaluate(entry) for entry in node.elts]
        return values if isinstance(node, ast.List) else tuple(values)
    if isinstance(node, ast.Dict):
        # A key that is None stands for a mapping that ** would unpack.
        pairs = zip(node.keys, node.values, strict=True)
        return {_evaluate(key or ast.Name("**")): _evaluate(value) for key, value in pairs}
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return _evaluate_selector(node.func.id, node)
    if isinstance(node, ast.Name) and node.id in _JSON:
        return _JSON[node.id]
    return ast.literal_eval(node)


_JSON: Final = {"true": True, "false": False, "null": None}


def _evaluate_selector(kind: str, call: ast.Call) -> Selector:
    if kind not in SIGNATURES:
        raise UnknownLimit.because(UnknownPart(PartOf.SELECTOR, kind, *choices_like(kind, SIGNATURES)))
    positional = tuple(ast.literal_eval(node) for node in call.args)
    keywords = {node.arg: ast.literal_eval(node.value) for node in call.keywords if node.arg}
    if len(keywords) != len(call.keywords):
        raise ValueError
    return build(kind, positional, keywords)


# Text that people look for in raw names -> the field and value they mean.
_WORDS_OF_DTYPES: Final = dict(
    word_table(
        """
        bf16: bf16 bfloat16
        fp16: fp16 f16 half hgemm
        tf32: tf32
        fp8: fp8 e4m3
        fp32: fp32 f32 sgemm
        fp64: dgemm
        """
    )
)
_TENSOR_CORES: Final = ("s16816", "s1688", "s884", "h16816", "h1688", "h884", "tensorop", "hmma", "wgmma")
_WORDS_OF_FAMILIES: Final = word_table(
    """
    gemm: gemm nvjet cijk cutlass ampere matmul
    attention: flash fmha attention sdpa
    conv: conv fprop
    communication: nccl allreduce
    triton: triton_poi triton
    """
)
_NOUNS: Final = {"gemm": "GEMM", "conv": "convolution", "attention": "attention kernel", "triton": "Triton kernel"}


class Unmatched(NamedTuple):
    """Kernels that a pattern does not match, although its words describe them."""

    pattern: NamePattern
    selector: Selector
    """The selector that matches them."""
    kernels: Sequence[Kernel]

    @property
    def noun(self) -> str:
        """The noun for one of them: "GEMM"."""
        return _NOUNS.get(self.selector.kind, "communication kernel")

    @property
    def asked(self) -> tuple[str, ...]:
        """The fields for which the pattern's words ask: "layout tn"."""
        return tuple(f"{name} {value}" for name, value in self.selector.fields if name in ("layout", "dtype"))

    @property
    def names(self) -> Counter[str]:
        """The number of kernels of each name."""
        return Counter(kernel.name for kernel in self.kernels)


def unmatched(pattern: object, kernels: Sequence[Kernel]) -> Unmatched | None:
    """Return the kernels for which a string ``pattern`` is meant; None if it matches some, or if none can be named."""
    if not isinstance(pattern, NamePattern) or any(pattern.matches(kernel) for kernel in kernels):
        return None
    selector = _guess_selector(pattern.written)
    matching = [kernel for kernel in kernels if selector.matches(kernel)] if selector else []
    return Unmatched(pattern, selector, matching) if selector is not None and matching else None


def _guess_selector(written: str) -> Selector | None:
    """Return the selector for whose fields the words of a string pattern ask; None if they ask for none."""
    text = written.removeprefix("re:").lower()
    words = [word for word in re.split(r"[^a-z0-9]+", text) if word]
    asked: dict[str, object] = {}
    for word in words:
        if word in LAYOUTS and "layout" not in asked:
            asked["layout"] = word
        if word in _WORDS_OF_DTYPES and "dtype" not in asked:
            asked["dtype"] = _WORDS_OF_DTYPES[word]
    kind = next((kind for word, kind in _WORDS_OF_FAMILIES if word in text), "gemm" if asked else None)
    if kind is None and any(word in text for word in _TENSOR_CORES):
        kind = "gemm"
    if kind == "gemm" and any(word in text for word in _TENSOR_CORES):
        asked["tensor_core"] = True
    if kind is None:
        return None
    if kind != "gemm":
        asked.pop("layout", None)
    if kind in ("triton", "communication"):
        asked.clear()
    return build(kind, (), asked)


def without_tuning(name: str) -> str:
    """Return an nvjet name without its tuning parameters, and any other name unchanged."""
    match = re.match(r"(nvjet(?:_sm\d+)?_[a-z]+(?:_tf32)?_\d+x\d+)_.+_([NT]{3})$", name)
    return f"{match[1]}_..._{match[2]}" if match else name
