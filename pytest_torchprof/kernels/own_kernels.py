"""What the users say of kernels that no table knows: ``{"my_rope_*": "pointwise", "mlp_fwd_*": "gemm bf16"}``."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from pytest_torchprof.codes import Code
from pytest_torchprof.errors import UnknownLimit
from pytest_torchprof.kernels.names import decode, without_index
from pytest_torchprof.kernels.names.kernelname import DTYPES, FAMILIES, LAYOUTS
from pytest_torchprof.kernels.names.text import parse
from pytest_torchprof.kernels.reply import NO
from pytest_torchprof.kernels.selectors import compile_text
from pytest_torchprof.text import counted, nearest, printable_line

if TYPE_CHECKING:
    import re
    from collections.abc import Iterable

    from pytest_torchprof.kernels.names import KernelName

OWN_KERNELS: Final = "own_kernels"
"""The keyword under which they are given."""
EXPECTED: Final = "expected kernels and what they are, such as {'my_rope_*': 'pointwise', 'mlp_fwd_*': 'gemm bf16'}"


_SHOWN: Final = 8
_OF_PRODUCTS: Final = ("gemm", "matmul", "mlp", "ffn", "linear", "proj", "_mm")


class OwnKernel(Struct, frozen=True, kw_only=True):
    """What kernels of one pattern are."""

    pattern: str
    family: str
    dtype: str | None = None
    layout: str | None = None

    def matches(self, name: str) -> bool:
        """Tell whether it is about the kernel of this raw name."""
        return _expression(self.pattern).search(name) is not None

    def told(self, decoded: KernelName) -> KernelName:
        """Return what is known of a kernel, completed by this; where the two contradict each other, what is known."""
        if decoded.is_of(self.family) is NO:
            return decoded
        return replace(
            decoded,
            family=self.family,
            dtype=decoded.dtype or self.dtype,
            layout=decoded.layout or self.layout,
        )


class OwnKernels(Struct, frozen=True, kw_only=True):
    """Declarations in the order in which they are asked: the first that matches a kernel's name is its own."""

    declared: tuple[OwnKernel, ...] = ()
    supposed: frozenset[str] = frozenset()
    """Names of kernels that are taken for ones of ``supposed_family``, to see what would become of a limit."""
    supposed_family: str | None = None

    def decode(self, name: str) -> KernelName:
        """Return what a kernel's name says, and what is declared of it."""
        decoded = decode(name)
        if name in self.supposed:
            return replace(decoded, family=self.supposed_family)
        own = next((one for one in self.declared if one.matches(name)), None) if self.declared else None
        return decoded if own is None else own.told(decoded)

    def before(self, others: OwnKernels) -> OwnKernels:
        """Return these and others, of which these are asked first."""
        return replace(others, declared=(*self.declared, *others.declared))

    def supposing(self, names: frozenset[str], family: str) -> OwnKernels:
        """Return the same where kernels of these names are of a family."""
        return replace(self, supposed=names, supposed_family=family)


NOTHING_DECLARED: Final = OwnKernels()


def read_own_kernels(value: object) -> OwnKernels:
    """Return the declarations in a mapping of patterns; UnknownLimit names one that cannot be used."""
    if not isinstance(value, Mapping):
        raise UnknownLimit(f"{EXPECTED}, got {value!r}", Code.BAD_PATTERN)
    return OwnKernels(declared=tuple(_read(pattern, words) for pattern, words in value.items()))


def read_own_lines(lines: Iterable[str]) -> OwnKernels:
    """Return the declarations in lines such as ``my_rope_* = pointwise``; UnknownLimit likewise."""
    return OwnKernels(declared=tuple(_read(*_halves(line)) for line in lines))


def _halves(line: str) -> tuple[str, str]:
    pattern, equals, words = line.rpartition("=")
    if not equals:
        raise UnknownLimit(f"{line!r}: expected PATTERN = FAMILY, such as my_rope_* = pointwise", Code.BAD_PATTERN)
    return pattern.strip(), words.strip()


def _read(pattern: object, words: object) -> OwnKernel:
    if not isinstance(pattern, str) or not pattern.strip("*? "):
        said = f"{pattern!r} is no pattern on kernels' names: expected one such as my_rope_*"
        raise UnknownLimit(said, Code.BAD_PATTERN)
    if not isinstance(words, str) or not words.split():
        said = f"{pattern!r}: expected what it computes, such as pointwise or gemm bf16, got {words!r}"
        raise UnknownLimit(said, Code.BAD_PATTERN)
    family, *others = words.split()
    if family not in FAMILIES:
        raise UnknownLimit(f"{pattern!r}: {family!r} is no family: {nearest(family, FAMILIES)}", Code.BAD_PATTERN)
    valid = {"dtype": DTYPES, "layout": LAYOUTS if family == "gemm" else ()}
    told: dict[str, str] = {}
    for word in others:
        field = next((field for field, words in valid.items() if word in words and field not in told), None)
        if field is None:
            known = [one for words in valid.values() for one in words]
            said = f"{pattern!r}: {word!r} says nothing of a kernel of family {family}: {nearest(word, known)}"
            raise UnknownLimit(said, Code.BAD_PATTERN)
        told[field] = word
    _expression(pattern)
    return OwnKernel(pattern=pattern, family=family, dtype=told.get("dtype"), layout=told.get("layout"))


@cache
def _expression(pattern: str) -> re.Pattern[str]:
    return compile_text(pattern)


def ask_for(names: Iterable[str]) -> tuple[str, ...]:
    """Return lines that ask the user what kernels of these names are, to be pasted into the ini file."""
    lines = dict.fromkeys(f"    {printable_line(_line_for(name), 110)}" for name in names)
    shown = [*lines][:_SHOWN]
    more = [f"    ... and {counted(len(lines) - _SHOWN, 'more name')}"] * (len(lines) > _SHOWN)
    return (
        "say once what they are, in the ini file (check what is guessed here):",
        "torchprof_kernels =",
        *shown,
        *more,
    )


def _line_for(name: str) -> str:
    text = parse(name)
    bare = without_index(text.last if text.mangled else text.base) or name
    is_product = any(word in name.lower() for word in _OF_PRODUCTS)
    return f"{bare} = {'gemm' if is_product else 'pointwise'}"
