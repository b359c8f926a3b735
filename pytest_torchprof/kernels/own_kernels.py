"""The users' declarations of kernels that no table knows: ``{"my_rope_*": "pointwise", "mlp_fwd_*": "gemm bf16"}``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from pytest_torchprof.kernels.names import KernelName, decode, without_index
from pytest_torchprof.kernels.names.kernelname import DTYPES, FAMILIES, LAYOUT_CONVERSION, LAYOUTS
from pytest_torchprof.kernels.names.text import parse
from pytest_torchprof.kernels.reply import NO
from pytest_torchprof.reasons.errors import UnknownLimit
from pytest_torchprof.text import and_more, printable, printable_line
from pytest_torchprof.text.suggestions import choices_like

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

OWN_KERNELS: Final = "own_kernels"
"""The keyword under which they are given."""

_SHOWN: Final = 8
_OF_PRODUCTS: Final = ("gemm", "matmul", "mlp", "ffn", "linear", "proj", "_mm")


class OwnKernel(Struct, frozen=True, kw_only=True):
    """The family, dtype and layout that a user declares for the kernels that match one pattern."""

    pattern: str
    family: str
    dtype: str | None = None
    layout: str | None = None

    def matches(self, name: str) -> bool:
        """Return whether it is about the kernel of this raw name: by it, a displayed name or the function's own."""
        expression = _expression(self.pattern)
        return any(expression.search(own_name) or self.pattern in own_name for own_name in _names_of(name))

    def completed(self, decoded: KernelName) -> KernelName:
        """Return the facts that are known of a kernel, completed by this declaration.

        If the two contradict each other, facts from a library's grammar stay, and facts from mere words give way.
        """
        if decoded.is_of(self.family) is NO:
            if not decoded.by_word:
                return decoded
            decoded = KernelName(library=decoded.library, stem=decoded.stem, by_word=True)
        return replace(
            decoded,
            family=self.family,
            dtype=decoded.dtype or self.dtype,
            layout=decoded.layout or self.layout,
        )


class OwnKernels(Struct, frozen=True, kw_only=True):
    """Declarations in the order in which they are asked: the first that matches a kernel's name applies."""

    declared: tuple[OwnKernel, ...] = ()
    supposed: frozenset[str] = frozenset()
    """The names of kernels that are taken to be of ``supposed_family``, to see how a limit would turn out."""
    supposed_family: str | None = None

    def decode(self, name: str) -> KernelName:
        """Return the decoded name of a kernel, completed by the declarations of it."""
        decoded = decode(name)
        if name in self.supposed:
            # A copy may only change a layout; ATen's copies are those for which a program asks.
            changes_layout = self.supposed_family == "copy" and decoded.library != "aten"
            helper = LAYOUT_CONVERSION if changes_layout else decoded.helper
            return replace(decoded, family=self.supposed_family, helper=helper)
        own = next((declared for declared in self.declared if declared.matches(name)), None) if self.declared else None
        return decoded if own is None else own.completed(decoded)

    def unmatched(self, names: Collection[str]) -> tuple[str, ...]:
        """Return the patterns that match no kernel of these names."""
        return tuple(declared.pattern for declared in self.declared if not any(map(declared.matches, names)))

    def before(self, others: OwnKernels) -> OwnKernels:
        """Return these declarations followed by ``others``."""
        return replace(others, declared=(*self.declared, *others.declared))

    def supposing(self, names: frozenset[str], family: str) -> OwnKernels:
        """Return these declarations with kernels of these names taken to be of a family."""
        return replace(self, supposed=names, supposed_family=family)


NOTHING_DECLARED: Final = OwnKernels()


def read_own_kernels(value: object) -> OwnKernels:
    """Return the declarations in a mapping of patterns; UnknownLimit names one that cannot be used."""
    if not isinstance(value, Mapping):
        from pytest_torchprof.reasons.wrong_patterns import NoPattern, PatternForm  # noqa: PLC0415 - for what is refused alone

        raise UnknownLimit.because(NoPattern(PatternForm.OWN_KERNELS, repr(value)))
    return OwnKernels(declared=tuple(_read(pattern, words) for pattern, words in value.items()))


def read_own_lines(lines: Iterable[str]) -> OwnKernels:
    """Return the declarations in lines such as ``my_rope_* = pointwise``; UnknownLimit names a line that is wrong."""
    return OwnKernels(declared=tuple(_read(*_split_line(line)) for line in lines))


def _split_line(line: str) -> tuple[str, str]:
    pattern, equals, words = line.rpartition("=")
    twice = any(half.split()[:1] and half.split()[0] in FAMILIES for half in pattern.split("=")[1:])
    if not equals or twice:
        from pytest_torchprof.reasons.wrong_patterns import NoPattern, PatternForm  # noqa: PLC0415 - for what is refused alone

        raise UnknownLimit.because(NoPattern(PatternForm.OWN_KERNEL)).of_entry(repr(line))
    return pattern.strip(), words.strip()


def _read(pattern: object, words: object) -> OwnKernel:
    pattern = _checked(pattern)
    try:
        return OwnKernel(pattern=pattern, **_facts_in(words))
    except UnknownLimit as wrong:
        raise wrong.of_entry(repr(pattern)) from None


def _facts_in(words: object) -> dict[str, str]:
    """Return the family, dtype and layout that these words say; UnknownLimit for a word that says none."""
    from pytest_torchprof.reasons import wrong_patterns as wrong  # noqa: PLC0415 - few declare any

    if not isinstance(words, str) or not words.split():
        raise UnknownLimit.because(wrong.NoPattern(wrong.PatternForm.COMPUTED, repr(words)))
    family, *others = words.split()
    if family not in FAMILIES:
        no_family = wrong.UnknownPart(wrong.PartOf.FAMILY, repr(family), *choices_like(family, FAMILIES))
        raise UnknownLimit.because(no_family)
    valid = {"dtype": DTYPES, "layout": LAYOUTS if family == "gemm" else ()}
    facts: dict[str, str] = {}
    for word in others:
        field = next((field for field, words in valid.items() if word in words and field not in facts), None)
        if field is None and word in (*facts.values(), *DTYPES, *valid["layout"]):
            raise UnknownLimit.because(wrong.SaysTwice(repr(words)))
        if field is None:
            known = [known_word for words in valid.values() for known_word in words]
            no_fact = wrong.UnknownPart(wrong.PartOf.FACT, repr(word), *choices_like(word, known), of=family)
            raise UnknownLimit.because(no_fact)
        facts[field] = word
    return {"family": family, **facts}


def _checked(pattern: object) -> str:
    """Return a pattern that is about the user's own kernels; UnknownLimit for any other."""
    from pytest_torchprof.kernels.spelling import why_no_kernel  # noqa: PLC0415 - few declare any
    from pytest_torchprof.reasons.wrong_patterns import NoPatternOfOwn, NotOnesOwn  # noqa: PLC0415 - as above

    text = pattern.strip() if isinstance(pattern, str) else ""
    expression = _expression(text)
    if not text:
        raise UnknownLimit.because(NoPatternOfOwn(repr(pattern), NotOnesOwn.EMPTY))
    if (why := why_no_kernel(text)) is not None:
        raise UnknownLimit.because(why)
    if len(re.findall(_LETTERS, re.sub(_NO_NAME, "", text.removeprefix("re:")))) < _FEWEST:
        raise UnknownLimit.because(NoPatternOfOwn(repr(text), NotOnesOwn.TOO_SHORT))
    if sum(map(OwnKernel(pattern=text, family="other").matches, _COMMON)) > 1 or expression.search(""):
        raise UnknownLimit.because(NoPatternOfOwn(repr(text), NotOnesOwn.COMMON))
    return text


_FEWEST: Final = 3
_LETTERS: Final = r"[A-Za-z0-9]"
# The parts of a pattern that mean no particular kernel: the beginning of every C++ kernel, and wildcards.
_NO_NAME: Final = r"\bvoid\b|\\.|\[[^\]]*\]|\{[^}]*\}"
# Names of kernels from several libraries: a pattern that matches two of them does not mean the user's own.
_COMMON: Final = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3> >(int)",
    "ampere_sgemm_128x64_tn",
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128, 128, 4> >(Flash_fwd_params)",
    "triton_poi_fused_add_mul_0",
    "aten::add",
)


@cache
def _expression(pattern: str) -> re.Pattern[str]:
    from pytest_torchprof.kernels.patterns import compile_name  # noqa: PLC0415 - few declare any

    return compile_name(pattern)


def _names_of(name: str) -> tuple[str, ...]:
    """Return the raw name, the names under which it is shown, and the function's name without C++ around it."""
    text, decoded = parse(name), decode(name)
    return (name, *decoded.titles, decoded.short, printable(name), text.base, text.last)


def declaration_lines(names: Iterable[str], unmatched: Collection[str] = ()) -> tuple[str, ...]:
    """Return lines for the ini file that ask the user for the family of the kernels of these names.

    ``unmatched`` are declarations that match no kernel: one of them may be a typo.
    """
    idle = [f"declared, and matches no kernel here: {printable_line(repr(pattern), 60)}" for pattern in unmatched]
    lines = dict.fromkeys(f"    {printable_line(_line_for(name), 110)}" for name in names)
    shown = [*lines][:_SHOWN]
    more = [f"    ...{and_more(len(lines) - _SHOWN, 'name')}"] * (len(lines) > _SHOWN)
    return (
        *idle[:_SHOWN],
        "say once what they are, in the ini file (check what is guessed here):",
        "torchprof_kernels =",
        *shown,
        *more,
    )


def _line_for(name: str) -> str:
    text, decoded = parse(name), decode(name)
    bare = without_index(text.last if text.mangled else text.base) or name
    multiplies_too = decoded.is_of("copy") is NO and decoded.is_of("gemm").may_be
    is_product = multiplies_too or any(word in name.lower() for word in _OF_PRODUCTS)
    return f"{bare} = {'gemm' if is_product else 'pointwise'}"
