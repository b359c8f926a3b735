"""The ways in which a test names work by its meaning: selectors of kernels by their work, and operators by name."""

from __future__ import annotations

import fnmatch
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from pytest_torchprof.kernels.carried import carries_all
from pytest_torchprof.kernels.computed_types import computes_in
from pytest_torchprof.kernels.fields import FIELDS
from pytest_torchprof.kernels.names.kernelname import COLLECTIVES, FAMILIES, LIBRARIES
from pytest_torchprof.kernels.operands import Launch, may_be_triton
from pytest_torchprof.kernels.reply import NO, NOT_KNOWN, YES, Reply, every, same, some
from pytest_torchprof.reasons.errors import UnknownLimit
from pytest_torchprof.reasons.errors import hide_our_frames as __tracebackhide__  # noqa: F401  (read by pytest)
from pytest_torchprof.text.suggestions import choices_like

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pytest_torchprof.kernels.kernel import Kernel


def compile_text(text: str) -> re.Pattern[str]:
    """Return ``text`` as a regular expression, to be used with ``search``."""
    if text.startswith("re:"):
        try:
            return re.compile(text[3:])
        except re.error as error:
            from pytest_torchprof.reasons.wrong_patterns import NoExpression  # noqa: PLC0415 - for what is refused alone

            raise UnknownLimit.because(NoExpression(text, str(error))) from None
    if is_expression(text):
        # Square brackets occur in kernel names and operator types, so only * and ? are special.
        return re.compile(r"\A" + fnmatch.translate(text.replace("[", "[[]")), re.DOTALL)
    return re.compile(re.escape(text))


def is_expression(text: str) -> bool:
    """Return whether a text pattern is a glob or ``re:`` and a regular expression, and no plain text."""
    return text.startswith("re:") or "*" in text or "?" in text


def checked_text(value: object, *, of_kernel: bool = False) -> str:
    """Return the pattern on an operator or a kernel if it is a text that is not empty, else raise UnknownLimit."""
    if not isinstance(value, str) or not value.removeprefix("re:"):
        from pytest_torchprof.reasons.wrong_values import ValueForm, WrongValue  # noqa: PLC0415 - for what is refused alone

        raise UnknownLimit.because(WrongValue(ValueForm.KERNEL if of_kernel else ValueForm.OPERATOR, repr(value)))
    return value


@dataclass(frozen=True, slots=True)
class TextPattern:
    """A pattern that is written as a text, and printed as it was written."""

    written: str

    def __str__(self) -> str:
        return self.written

    def __repr__(self) -> str:
        return repr(self.written)


@dataclass(frozen=True, slots=True, repr=False)
class Operator(TextPattern):
    """A pattern on operator names.

    With a namespace (``aten::mm``) the whole name; without one whole words of it: ``layer_norm`` is in
    ``aten::native_layer_norm``, ``mm`` is not in ``aten::addmm``. Globs and ``re:`` work on the whole name.
    """

    _regex: re.Pattern[str] | None = field(init=False, repr=False, compare=False)
    _words: tuple[str, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        from pytest_torchprof.kernels.spelling import why_no_operator  # noqa: PLC0415 - who reads a file needs none

        if (why := why_no_operator(checked_text(self.written))) is not None:
            raise UnknownLimit.because(why)
        object.__setattr__(self, "_regex", compile_text(self.written) if is_expression(self.written) else None)
        object.__setattr__(self, "_words", _words_of(self.written))

    @property
    def is_expression(self) -> bool:
        """Whether it is a glob or a regular expression."""
        return self._regex is not None

    def matches_op(self, name: str) -> bool:
        """Return whether the operator called ``name`` (``aten::addmm``) is meant."""
        if self._regex is not None:
            return self._regex.search(name) is not None
        if "::" in self.written:
            return name == self.written
        words = _words_of(name.rpartition("::")[2])
        length = len(self._words)
        return any(words[at : at + length] == self._words for at in range(len(words) - length + 1))


def _words_of(name: str) -> tuple[str, ...]:
    return tuple(word for word in name.split("_") if word) or (name,)


def compile_op_pattern(value: object) -> Operator:
    """Return the pattern on operator names that a string stands for; UnknownLimit for anything else."""
    if isinstance(value, Operator):
        return value
    return Operator(checked_text(value))


# Scaled dot product attention that torch computes as two products and a softmax; the operator is the sure sign.
_MATH: Final = ("aten::_scaled_dot_product_attention_math", "aten::_scaled_dot_product_attention_math_for_mps")
# This operator has projections as well: only the batched ones among its products are attention.
_WITH_PROJECTIONS: Final = "aten::_native_multi_head_attention"
_BATCHED: Final = ("aten::bmm", "aten::baddbmm")


@dataclass(frozen=True, slots=True)
class Selector:
    """The kernels to look for, as data: ``kind`` and the requested fields; printed as it was written."""

    kind: str
    fields: tuple[tuple[str, object], ...]
    written: str = field(compare=False)

    @property
    def operator(self) -> Operator | None:
        """The operator that it asks for, None if it asks for none."""
        return next((value for name, value in self.fields if name == "op" and isinstance(value, Operator)), None)

    def verdict(self, kernel: Kernel) -> Reply:
        """Return whether the kernel is meant; NOT_KNOWN if it may be and neither its name nor its launch shows it."""
        if not kernel.name.strip():
            return NOT_KNOWN
        return every(_TESTS[name](kernel, value) for name, value in self.fields)

    def matches(self, kernel: Kernel) -> bool:
        """Return whether the kernel is surely meant."""
        return self.verdict(kernel) is YES

    def is_akin(self, kernel: Kernel) -> bool:
        """Return whether the kernel computes what is asked for, in whatever type, layout or size."""
        return every(_TESTS[name](kernel, value) for name, value in self.fields if name in _KINDS) is YES

    def __str__(self) -> str:
        return self.written

    def __repr__(self) -> str:
        return self.written


def is_nameless(kernel: Kernel) -> bool:
    """Return whether a Triton kernel's name does not show its work: Inductor's ``unique_kernel_names`` is off."""
    return kernel.triton == "unk" and not kernel.decoded.triton_ops


def _same(attribute: str) -> Callable[[Kernel, object], Reply]:
    """Return a test of a field that a name may leave open."""
    return lambda kernel, value: same(getattr(kernel, attribute), value)


def of_dtype(kernel: Kernel, value: object) -> Reply:
    """Return whether a kernel computes in a type, by Inductor's code if its name leaves that open."""
    if kernel.dtype is None and kernel.code is not None and kernel.code.dtypes:
        return NOT_KNOWN if value in kernel.code.dtypes else NO
    launch = Launch(op=kernel.op, dtypes=kernel.op_dtypes, shapes=kernel.op_shapes)
    reply = computes_in(kernel.name, kernel.decoded, launch, str(value))
    return NO if reply is NOT_KNOWN and kernel.joined and value not in kernel.joined else reply


def _of_family(kernel: Kernel, value: object) -> Reply:
    return kernel.decoded.is_of(str(value))


def _is_kind(kernel: Kernel, value: object) -> Reply:
    # A split-K reduction belongs to a GEMM but is none: a count of GEMMs must leave it out.
    return kernel.decoded.is_of(str(value)) if kernel.decoded.helper is None else NO


def _of_version(kernel: Kernel, value: object) -> Reply:
    return same(kernel.decoded.version, value)


def _with_tile(kernel: Kernel, value: object) -> Reply:
    tile = kernel.decoded.tile
    return same(tile if tile is None else tile[: len(value)], value)  # type: ignore[arg-type]


def _chain(kernel: Kernel) -> tuple[str, ...]:
    return kernel.op_chain or ((kernel.op,) if kernel.op else ())


def _around(kernel: Kernel, is_meant: Callable[[str], bool]) -> Reply:
    """Return whether an operator around the launch is meant, or around its capture for a graph's kernel."""
    chain = _chain(kernel)
    if any(map(is_meant, chain)):
        return YES
    if any(map(is_meant, kernel.unsure_ops)):
        return NOT_KNOWN
    return NO if kernel.capture_known or (chain and not kernel.in_graph) else NOT_KNOWN


def launched_by(kernel: Kernel, value: object) -> Reply:
    """Return whether an operator that launched the kernel, or enclosed its launch, matches."""
    return _around(kernel, value.matches_op)  # type: ignore[attr-defined]


def _is_fused(kernel: Kernel, value: object) -> Reply:
    if value:
        return _is_kind(kernel, "attention")
    by_math = _around(kernel, lambda op: op in _MATH)
    projected = every((_around(kernel, lambda op: op == _WITH_PROJECTIONS), _is_batched(kernel)))
    return every((kernel.decoded.is_of("gemm", "softmax"), some((by_math, projected))))


def _is_batched(kernel: Kernel) -> Reply:
    return some((kernel.decoded.is_of("softmax"), _around(kernel, lambda op: op in _BATCHED)))


def _is_triton(kernel: Kernel, value: object) -> Reply:
    if kernel.triton is None:
        if value is None and kernel.library == "triton":
            return YES
        return NOT_KNOWN if value in (None, "user") and _may_be_triton(kernel) else NO
    if value is None or kernel.triton == value:
        return YES
    return NOT_KNOWN if is_nameless(kernel) else NO


def _may_be_triton(kernel: Kernel) -> bool:
    return kernel.triton is None and may_be_triton(kernel.name, kernel.launch, in_graph=kernel.in_graph)


def _of_library(kernel: Kernel, value: object) -> Reply:
    if value in ("triton", kernel.library) and kernel.library != "triton" and _may_be_triton(kernel):
        return NOT_KNOWN
    # A name that no table knows may be from any newer library; Triton's names are recognised by their form.
    is_known = value == "triton" or kernel.library != "other" or kernel.family is not None
    return same(kernel.library, value) if is_known else NOT_KNOWN


def _carries(kernel: Kernel, value: object) -> Reply:
    return carries_all(kernel, value)  # type: ignore[arg-type]


def _runs_collective(kernel: Kernel, value: object) -> Reply:
    collective = kernel.collective or kernel.decoded.collective
    if collective == "send_recv" and (asked_for := _collective_of(kernel.op_chain)) not in (None, collective):
        # NCCL does many collectives by sends and receives, and older versions name the kernels of all of them so.
        return NOT_KNOWN if value == collective else same(asked_for, value)
    return same(collective, value)


def _collective_of(chain: Iterable[str]) -> str | None:
    """Return the collective of the first operator that runs one (``c10d::alltoall_base_``); None if none does."""
    for op in chain:
        if op.startswith(("c10d::", "nccl:")):
            bare_name = re.sub(r"[^a-z]", "", op.partition(":")[2].lower())
            named = next((collective for collective in COLLECTIVES if collective.replace("_", "") in bare_name), None)
            if named is not None:
                return named
    return None


_TESTS: Final[dict[str, Callable[[Kernel, object], Reply]]] = {
    "kind": _is_kind,
    "family": _of_family,
    "library": _of_library,
    "dtype": of_dtype,
    "layout": _same("layout"),
    "tensor_core": _same("tensor_core"),
    "tile": _with_tile,
    "version": _of_version,
    "fused": _is_fused,
    "triton": _is_triton,
    "ops": _carries,
    "collective": _runs_collective,
    "op": launched_by,
}


_KINDS: Final = frozenset({"kind", "family", "library", "fused", "triton"})
"""Fields that ask for the kind of a kernel; the others ask how it computes."""
_CHECKS: Final[dict[str, Callable[[object], object]]] = {**FIELDS, "op": compile_op_pattern}

# The arguments of each selector: the field that its one positional argument fills, and its keywords.
SIGNATURES: Final[dict[str, tuple[str | None, tuple[str, ...]]]] = {
    "gemm": (None, ("dtype", "layout", "tensor_core", "tile", "library", "op")),
    "conv": (None, ("dtype", "tensor_core", "tile", "library", "op")),
    "attention": (None, ("fused", "version", "dtype", "tensor_core", "library", "op")),
    "triton": ("triton", ("ops", "dtype", "op")),
    "communication": ("collective", ("dtype", "library", "op")),
    "family": ("family", ("dtype", "library", "op")),
    "library": ("library", ("family", "dtype", "op")),
}
_BASE: Final[dict[str, tuple[tuple[str, object], ...]]] = {
    "gemm": (("kind", "gemm"),),
    "conv": (("kind", "conv"),),
    "communication": (("family", "communication"),),
}


def build(kind: str, positional: tuple[object, ...], keywords: dict[str, object]) -> Selector:
    """Return the selector ``kind(*positional, **keywords)``; raise UnknownLimit for arguments that it does not take."""
    first, _ = SIGNATURES[kind]
    _refuse_arguments(kind, positional, keywords)
    written = ", ".join([*map(repr, positional), *(f"{name}={value!r}" for name, value in keywords.items())])
    asked = [*_BASE.get(kind, ())]
    if kind == "triton":
        asked.append(("triton", _CHECKS["triton"](positional[0]) if positional else None))
    elif first and positional:
        asked.append((first, _CHECKS[first](positional[0])))
    if kind == "attention" and "fused" not in keywords:
        asked.append(("kind", "attention"))
    asked += [(name, _CHECKS[name](value)) for name, value in keywords.items()]
    return Selector(kind, tuple(asked), f"{kind}({written})")


def _refuse_arguments(kind: str, positional: tuple[object, ...], keywords: dict[str, object]) -> None:
    first, valid = SIGNATURES[kind]
    if len(positional) > (first is not None):
        from pytest_torchprof.reasons.wrong_patterns import TooManyValues  # noqa: PLC0415 - for what is refused alone

        raise UnknownLimit.because(TooManyValues(kind, first is not None, len(positional)))
    if (unknown := next((name for name in keywords if name not in valid), None)) is not None:
        from pytest_torchprof.reasons.wrong_patterns import PartOf, UnknownPart  # noqa: PLC0415 - for what is refused alone

        raise UnknownLimit.because(UnknownPart(PartOf.KEYWORD, repr(unknown), *choices_like(unknown, valid), of=kind))
    if keywords.get("fused") is False and "version" in keywords:
        from pytest_torchprof.reasons.wrong_patterns import VersionOfUnfused  # noqa: PLC0415 - for what is refused alone

        raise UnknownLimit.because(VersionOfUnfused())
    if kind in ("family", "library") and not positional:
        from pytest_torchprof.reasons.wrong_patterns import SelectorWithoutValue  # noqa: PLC0415 - for what is refused alone

        raise UnknownLimit.because(SelectorWithoutValue(kind, FAMILIES if kind == "family" else LIBRARIES))


def gemm(*values: object, **fields: object) -> Selector:
    """Select matrix products, by ``dtype``, ``layout``, ``tensor_core``, ``tile``, ``library`` and launching ``op``.

    Split-K reductions and bias copies are no products. ``layout="tn"`` is what nn.Linear's forward gives.
    """
    return build("gemm", values, fields)


def conv(*values: object, **fields: object) -> Selector:
    """Select convolutions, by ``dtype``, ``tensor_core``, ``tile``, ``library`` and launching ``op``."""
    return build("conv", values, fields)


def attention(*values: object, **fields: object) -> Selector:
    """Select fused attention; ``fused=False`` selects the products and softmax that torch runs in its place.

    ``version`` is FlashAttention's (2, 3 or 4), if the kernel's name shows it.
    """
    return build("attention", values, fields)


def triton(*category: object, **fields: object) -> Selector:
    """Select Triton kernels, by category ("poi", "red", .., "user" for hand-written), ``ops`` they carry, ``dtype``.

    Their names show no type: Inductor's code does, if the recording holds it.
    """
    return build("triton", category, fields)


def communication(*collective: object, **fields: object) -> Selector:
    """Select communication kernels, all or of one collective such as "all_reduce"."""
    return build("communication", collective, fields)


def family(*name: object, **fields: object) -> Selector:
    """Select kernels by what they compute: "reduction", "pointwise", "copy", .."""
    return build("family", name, fields)


def library(*name: object, **fields: object) -> Selector:
    """Select kernels by who wrote them: "cublas", "cudnn", "triton", .."""
    return build("library", name, fields)
