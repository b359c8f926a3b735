"""What a test says about work by its meaning: selectors of kernels by what they compute, and operators by name."""

from __future__ import annotations

import fnmatch
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from pytest_torchprof.codes import Code
from pytest_torchprof.errors import UnknownLimit
from pytest_torchprof.kernels.carried import carries_all
from pytest_torchprof.kernels.fields import FIELDS
from pytest_torchprof.kernels.names.kernelname import COLLECTIVES, FAMILIES, LIBRARIES
from pytest_torchprof.kernels.operands import Launch, may_be_triton, operand_dtypes
from pytest_torchprof.text import nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pytest_torchprof.kernels.kernel import Kernel


def compile_text(text: str) -> re.Pattern[str]:
    """Return what ``text`` means as a regular expression, to be used with ``search``."""
    if text.startswith("re:"):
        try:
            return re.compile(text[3:])
        except re.error as error:
            raise UnknownLimit(f"{text!r} is no regular expression: {error}", Code.BAD_PATTERN) from None
    if is_expression(text):
        # Square brackets stand in kernel names and operator types, so only * and ? are special.
        return re.compile(r"\A" + fnmatch.translate(text.replace("[", "[[]")), re.DOTALL)
    return re.compile(re.escape(text))


def is_expression(text: str) -> bool:
    """Whether a text pattern is a glob or ``re:`` and a regular expression, and no plain text."""
    return text.startswith("re:") or "*" in text or "?" in text


def checked_text(value: object, what: str) -> str:
    """Return ``value`` if it is a text that is not empty, else raise UnknownLimit."""
    if not isinstance(value, str) or not value.removeprefix("re:"):
        raise UnknownLimit(f"expected {what}, got {value!r}")
    return value


@dataclass(frozen=True, slots=True)
class TextPattern:
    """What is written as a text, and printed so."""

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
        checked_text(self.written, "an operator name such as 'aten::addmm', a glob or re:EXPRESSION")
        if advice := _no_operator(self.written):
            raise UnknownLimit(f"{self.written!r} is no operator's name: {advice}", Code.BAD_PATTERN)
        object.__setattr__(self, "_regex", compile_text(self.written) if is_expression(self.written) else None)
        object.__setattr__(self, "_words", _words_of(self.written))

    def matches_op(self, name: str) -> bool:
        """Tell whether the operator called ``name`` (``aten::addmm``) is meant."""
        if self._regex is not None:
            return self._regex.search(name) is not None
        if "::" in self.written:
            return name == self.written
        words = _words_of(name.rpartition("::")[2])
        length = len(self._words)
        return any(words[at : at + length] == self._words for at in range(len(words) - length + 1))


def _no_operator(text: str) -> str | None:
    """Return what is wrong with a text that can be no operator's name: to forbid it would always hold."""
    if text.startswith("re:"):
        return None
    if not re.search(r"[\w*?]", text):
        return "expected one such as 'aten::addmm'"
    if re.search(r"(?<!:):(?![:\s])", text):
        return "a namespace ends in two colons, as in 'aten::addmm'"
    if re.fullmatch(r"aten::\w+\.\w+", text):
        return f"in a recording it has no overload: {text.partition('.')[0]!r}"
    return "it has no parentheses" if text.endswith("()") else None


def _words_of(name: str) -> tuple[str, ...]:
    return tuple(word for word in name.split("_") if word) or (name,)


def compile_op_pattern(value: object) -> Operator:
    """Return the pattern on operator names that a string stands for; anything else is an UnknownLimit."""
    if isinstance(value, Operator):
        return value
    return Operator(checked_text(value, "an operator name such as 'aten::addmm', a glob or re:EXPRESSION"))


Match = bool | None
"""None: neither the name nor the launch tells."""

# Scaled dot product attention that torch computes as two products and a softmax; the operator is the sure sign.
_MATH: Final = ("aten::_scaled_dot_product_attention_math", "aten::_scaled_dot_product_attention_math_for_mps")
# This one has projections besides: of its products only the batched ones are attention.
_WITH_PROJECTIONS: Final = "aten::_native_multi_head_attention"
_BATCHED: Final = ("aten::bmm", "aten::baddbmm")


@dataclass(frozen=True, slots=True)
class Selector:
    """What to look for, as data: ``kind`` and the fields asked for; printed as it was written."""

    kind: str
    fields: tuple[tuple[str, object], ...]
    written: str = field(compare=False)

    def verdict(self, kernel: Kernel) -> bool | None:
        """Tell whether the kernel is meant; None if it may be and neither its name nor its launch tells."""
        if not kernel.name.strip():
            return None
        unknown = False
        for name, value in self.fields:
            answer = _TESTS[name](kernel, value)
            if answer is False:
                return False
            unknown = unknown or answer is None
        return None if unknown else True

    def matches(self, kernel: Kernel) -> bool:
        """Tell whether the kernel is surely meant."""
        return self.verdict(kernel) is True

    def __str__(self) -> str:
        return self.written

    def __repr__(self) -> str:
        return self.written


def is_nameless(kernel: Kernel) -> bool:
    """Whether a Triton kernel does not tell what it is: Inductor's ``unique_kernel_names`` is off."""
    return kernel.triton == "unk" and not kernel.decoded.triton_ops


def _same(attribute: str) -> Callable[[Kernel, object], Match]:
    """Return a test of a field that a name may leave open."""

    def test(kernel: Kernel, value: object) -> Match:
        told = getattr(kernel, attribute)
        return None if told is None else bool(told == value)

    return test


def _of_dtype(kernel: Kernel, value: object) -> Match:
    if kernel.dtype is not None:
        return bool(kernel.dtype == value)
    if kernel.code is not None and kernel.code.dtypes:
        return None if value in kernel.code.dtypes else False
    launch = Launch(op=kernel.op, dtypes=kernel.op_dtypes, shapes=kernel.op_shapes)
    possible = operand_dtypes(kernel.name, kernel.decoded, launch)
    return None if not possible or possible > {value} else possible == {value}


def _is_kind(kernel: Kernel, value: object) -> Match:
    # A split-K reduction belongs to a GEMM, but is none: counting GEMMs must not count it.
    return kernel.family == value and kernel.decoded.helper is None


def _of_version(kernel: Kernel, value: object) -> Match:
    told = kernel.decoded.version
    return None if told is None else told == value


def _with_tile(kernel: Kernel, value: object) -> Match:
    tile = kernel.decoded.tile
    return None if tile is None else tile[: len(value)] == value  # type: ignore[arg-type]


def _launched_by(kernel: Kernel, value: object) -> Match:
    chain = kernel.op_chain or ((kernel.op,) if kernel.op else ())
    if not chain:
        return None
    if any(value.matches_op(op) for op in chain):  # type: ignore[attr-defined]
        return True
    # Of a graph's kernels only the launch of the graph is known.
    return None if kernel.in_graph else False


def _is_fused(kernel: Kernel, value: object) -> Match:
    if value:
        return kernel.family == "attention" and kernel.decoded.helper is None
    if kernel.family not in ("gemm", "softmax"):
        return False
    batched = kernel.family == "softmax" or any(op in _BATCHED for op in kernel.op_chain)
    return any(op in _MATH for op in kernel.op_chain) or (batched and _WITH_PROJECTIONS in kernel.op_chain)


def _is_triton(kernel: Kernel, value: object) -> Match:
    if kernel.triton is None:
        if value is None and kernel.library == "triton":
            return True
        return None if value in (None, "user") and _may_be_triton(kernel) else False
    if value is None or kernel.triton == value:
        return True
    return None if is_nameless(kernel) else False


def _may_be_triton(kernel: Kernel) -> bool:
    return kernel.triton is None and may_be_triton(kernel.name, kernel.launch, in_graph=kernel.in_graph)


def _of_library(kernel: Kernel, value: object) -> Match:
    if value in ("triton", kernel.library) and kernel.library != "triton" and _may_be_triton(kernel):
        return None
    return kernel.library == value


def _carries(kernel: Kernel, value: object) -> Match:
    return carries_all(kernel, value)  # type: ignore[arg-type]


def _runs_collective(kernel: Kernel, value: object) -> Match:
    collective = kernel.collective or kernel.decoded.collective
    if collective == "send_recv" and (asked_for := _collective_of(kernel.op_chain)) not in (None, collective):
        # NCCL does many collectives by sends and receives, and older ones name the kernels of all of them so.
        return None if value == collective else asked_for == value
    return None if collective is None else collective == value


def _collective_of(chain: Iterable[str]) -> str | None:
    """Return the collective that one of the operators is (``c10d::alltoall_base_``), None where none is one."""
    for op in chain:
        if op.startswith(("c10d::", "nccl:")):
            bare_name = re.sub(r"[^a-z]", "", op.partition(":")[2].lower())
            found = next((one for one in COLLECTIVES if one.replace("_", "") in bare_name), None)
            if found is not None:
                return found
    return None


_TESTS: Final[dict[str, Callable[[Kernel, object], Match]]] = {
    "kind": _is_kind,
    "family": _same("family"),
    "library": _of_library,
    "dtype": _of_dtype,
    "layout": _same("layout"),
    "tensor_core": _same("tensor_core"),
    "tile": _with_tile,
    "version": _of_version,
    "fused": _is_fused,
    "triton": _is_triton,
    "ops": _carries,
    "collective": _runs_collective,
    "op": _launched_by,
}


_CHECKS: Final[dict[str, Callable[[object], object]]] = {**FIELDS, "op": compile_op_pattern}

# What each selector takes: the field its one positional argument fills, and its keywords.
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
    """Return the selector ``kind(*positional, **keywords)``; raise UnknownLimit for what it does not take."""
    first, valid = SIGNATURES[kind]
    if len(positional) > (first is not None):
        raise UnknownLimit(
            f"{kind}() takes {'one value' if first else 'keywords only'}, got {len(positional)}", Code.BAD_PATTERN
        )
    for name in keywords:
        if name not in valid:
            raise UnknownLimit(f"{kind}() has no keyword {name!r}: {nearest(name, valid)}", Code.BAD_PATTERN)
    if keywords.get("fused") is False and "version" in keywords:
        said = "attention(fused=False) selects what no FlashAttention runs: it takes no version"
        raise UnknownLimit(said, Code.BAD_PATTERN)
    written = ", ".join([*map(repr, positional), *(f"{name}={value!r}" for name, value in keywords.items())])
    asked = [*_BASE.get(kind, ())]
    if kind == "triton":
        asked.append(("triton", _CHECKS["triton"](positional[0]) if positional else None))
    elif first and positional:
        asked.append((first, _CHECKS[first](positional[0])))
    elif first and kind != "communication":
        values = ", ".join(FAMILIES if kind == "family" else LIBRARIES)
        raise UnknownLimit(f"{kind}() needs a value: {values}", Code.BAD_PATTERN)
    if kind == "attention" and "fused" not in keywords:
        asked.append(("kind", "attention"))
    asked += [(name, _CHECKS[name](value)) for name, value in keywords.items()]
    return Selector(kind, tuple(asked), f"{kind}({written})")


def gemm(*values: object, **fields: object) -> Selector:
    """Select matrix products, by ``dtype``, ``layout``, ``tensor_core``, ``tile``, ``library`` and launching ``op``.

    Split-K reductions and bias copies are no products. ``layout="tn"`` is what nn.Linear's forward gives.
    """
    return build("gemm", values, fields)


def conv(*values: object, **fields: object) -> Selector:
    """Select convolutions, by ``dtype``, ``tensor_core``, ``tile``, ``library`` and launching ``op``."""
    return build("conv", values, fields)


def attention(*values: object, **fields: object) -> Selector:
    """Select fused attention; ``fused=False`` selects the products and softmax of attention that is not fused.

    ``version`` is FlashAttention's (2, 3 or 4), where the kernel's name tells it.
    """
    return build("attention", values, fields)


def triton(*category: object, **fields: object) -> Selector:
    """Select Triton kernels, by category ("poi", "red", .., "user" for hand-written), ``ops`` they carry, ``dtype``.

    Their names tell no type: the code of Inductor's does, where the recording holds it.
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
