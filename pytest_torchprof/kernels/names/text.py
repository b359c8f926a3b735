"""The parts of a raw kernel name, cut in bounded time; words in names that several libraries share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from pytest_torchprof.text.expressions import Expression

if TYPE_CHECKING:
    from collections.abc import Iterable


def first_meaning(text: str, table: Iterable[tuple[str, str]]) -> str | None:
    """Return the meaning of the first word of ``table`` that is in ``text``."""
    for word, meaning in table:
        if word in text:
            return meaning
    return None


def word_list(text: str) -> tuple[str, ...]:
    """Return the words of a list that is given as one text."""
    return tuple(text.split())


def word_table(text: str) -> tuple[tuple[str, str], ...]:
    """Return (word, meaning) for each word of a text whose lines are ``meaning: word word``; order is kept."""
    lines = [line.strip().partition(": ") for line in text.strip().splitlines()]
    return tuple((word, meaning) for meaning, _, words in lines for word in words.split())


# The beginning of a name shows what the kernel is: template arguments reach 5,000 characters, which no decoder needs.
_HEAD: Final = 1600
_BASE: Final = 160

_ANONYMOUS: Final = ("(anonymous namespace)::", "<unnamed>::", "_GLOBAL__N__::", "{anonymous}::")
_RETURN_TYPES: Final = ("__global__ ", "static ", "void ")
_LENGTH: Final = Expression(r"\d{1,3}")


class Text(Struct, frozen=True):
    """One name: ``head`` cleaned, ``base`` the qualified function, ``last`` its last part, ``args`` the rest."""

    raw: str
    head: str
    base: str
    last: str
    args: str
    mangled: bool

    @property
    def is_cut(self) -> bool:
        """Whether a tool has cut the name: a bracket that opens is never closed."""
        if self.mangled or len(self.raw) > _HEAD:
            return False
        whole = self.head.replace("->", "")
        return whole.endswith("...") or whole.count("<") > whole.count(">") or whole.count("(") > whole.count(")")


def parse(raw: str) -> Text:
    """Return the parts of ``raw``, which may be any string."""
    head = raw[:_HEAD]
    if head.endswith((".kd", " [clone .kd]")):
        head = head.removesuffix(" [clone .kd]").removesuffix(".kd")
    if head.startswith("_Z"):
        return _parse_mangled(raw, head)
    if "(int)" in head:  # as Nsight prints template arguments
        head = head.replace("(int)", "")
    for mark in _ANONYMOUS:
        if mark in head:
            head = head.replace(mark, "")
    head = _without_return_type(head)
    end = len(head)
    for mark in "<(":
        at = head.find(mark)
        if 0 < at < end:
            end = at
    base = head[:end][:_BASE]
    return Text(raw, head, base, base[base.rfind("::") + 2 :] if "::" in base else base, head[end:], mangled=False)


def _without_return_type(head: str) -> str:
    while head.startswith(_RETURN_TYPES):
        head = head[head.index(" ") + 1 :]
    if head.startswith("std::enable_if<"):
        # std::enable_if<(..)>::type vllm::fused_add_rms_norm_kernel<..>(..)
        head = head[head.find(">::type ", 0, 400) + 8 :] if ">::type " in head[:400] else head
    return head


def _parse_mangled(raw: str, head: str) -> Text:
    """Return the parts of an Itanium-mangled name: length-prefixed identifiers are the base, the rest the arguments."""
    at = 2
    while at < len(head) and head[at] in "NKLS":
        at += 2 if head[at] == "S" else 1
    parts: list[str] = []
    while len(parts) < 12 and (match := _LENGTH.match(head, at)):
        length = int(match[0])
        part = head[match.end() : match.end() + length]
        at = match.end() + length
        if not part.startswith("_GLOBAL__N"):
            parts.append(part)
    base = "::".join(parts)[:_BASE] or head[:_BASE]
    return Text(raw, head, base, parts[-1] if parts else base, head[at:].removeprefix("I"), mangled=True)


ARCHITECTURES: Final = {
    "maxwell": "sm50",
    "pascal": "sm60",
    "volta": "sm70",
    "turing": "sm75",
    "ampere": "sm80",
    "ada": "sm89",
    "hopper": "sm90",
    "blackwell": "sm100",
}

# xmma and cutlass 3 write the types of A and B together: bf16bf16, f32f32, e4m3e5m2.
_XMMA: Final = (
    ("tf32", "tf32"),
    ("bf16", "bf16"),
    ("e4m3", "fp8"),
    ("e5m2", "fp8"),
    ("e2m1", "fp4"),
    ("f16", "fp16"),
    ("f32", "fp32"),
    ("f64", "fp64"),
    ("cf32", "complex64"),
    ("i8", "int8"),
    ("s8", "int8"),
)


XMMA_SUM: Final = "_execute_split_k_kernel"
"""In a name of xmma's: it adds up what the kernel of the same name computed in parts, each over a part of K."""


def xmma_pair(code: str) -> str | None:
    """Return the dtype of a pair such as ``bf16bf16``; None if the two differ or are unknown."""
    for first, dtype in _XMMA:
        if code.startswith(first):
            rest = code[len(first) :]
            same = [word for word, other in _XMMA if other == dtype and rest == word]
            return dtype if same or not rest else None
    return None


def xmma_dtype(operands: str, math: str) -> str | None:
    """Return the operand dtype from ``<A><B>`` and ``<math><accumulate>``: fp32 in tf32 math is tf32."""
    if "tf32" in operands or math.startswith("tf32"):
        return "tf32"
    return xmma_pair(operands)


def numbers(text: str) -> tuple[int, ...]:
    """Return the sizes in ``128x64x32``."""
    return tuple(int(part[:9]) for part in text.split("x"))


# The types of a kernel's operands; integer and index types say nothing about it and stay None.
_DTYPE_OF: Final = {
    "signed char": "int8",
    **dict(
        word_table(
            """
            fp32: float
            fp64: double
            bf16: bf16 bf16_t bfloat16 bfloat16_t nv_bfloat16 __nv_bfloat16 __hip_bfloat16 hip_bfloat16 BFloat16 bhalf_t
            fp16: half half_t fp16_t Half __half _Float16
            tf32: tfloat32_t
            fp8: __nv_fp8_e4m3 __nv_fp8_e5m2 __hip_fp8_e4m3 __hip_fp8_e4m3_fnuz __hip_fp8_e5m2 Float8_e4m3fn
            fp8: Float8_e4m3fnuz Float8_e5m2 Float8_e5m2fnuz float_e4m3_t float_e5m2_t f8_t bf8_t fp8_t
            fp4: float_e2m1_t __nv_fp4_e2m1 f4x2_pk_t
            int8: int8_t
            complex64: complex<float> cuComplex float2
            """
        )
    ),
}

# The same types in Itanium manglings, as a template argument list has them (longest first).
_MANGLED: Final = (
    ("DF16b", "bf16"),
    ("DF16_", "fp16"),
    ("13__nv_bfloat16", "bf16"),
    ("14__hip_bfloat16", "bf16"),
    ("N3c108BFloat16E", "bf16"),
    ("N3c104HalfE", "fp16"),
    ("6__half", "fp16"),
    ("13__nv_fp8_e4m3", "fp8"),
    ("13__nv_fp8_e5m2", "fp8"),
    ("f", "fp32"),
    ("d", "fp64"),
)

_WORD: Final = Expression(r"(?:[A-Za-z_][\w]*::)*([A-Za-z_]\w*(?:<float>)?)")


def dtype_of(word: str) -> str | None:
    """Return the dtype of a C++ type, namespaces and ``const`` ignored; None for a type that is not in the table."""
    word = word.strip().removesuffix("const").removesuffix("*").strip().removesuffix("const").strip()
    return _DTYPE_OF.get(word[word.rfind("::") + 2 :] if "::" in word else word)


def leading_types(args: str, count: int) -> list[str]:
    """Return the first ``count`` arguments of a template list that starts with ``<``, up to the first that nests."""
    types: list[str] = []
    for piece in args[1:400].split(",", count)[:count]:
        word, nested, _ = piece.partition("<")
        word, closed, _ = word.partition(">")
        types.append(word.strip())
        if nested or closed:
            break
    return types


def first_dtype(args: str, count: int = 3) -> str | None:
    """Return the dtype of the first template argument that is a dtype, among the first ``count``."""
    for word in leading_types(args, count):
        dtype = dtype_of(word)
        if dtype:
            return dtype
    return None


def mangled_dtype(args: str) -> str | None:
    """Return the dtype of the first mangled template argument (``args`` starts after the ``I``)."""
    return next(iter(mangled_dtypes(args, 1)), None)


def mangled_dtypes(args: str, count: int) -> list[str]:
    """Return the dtypes of the first ``count`` mangled template arguments, up to the first that is not a dtype."""
    dtypes: list[str] = []
    while len(dtypes) < count:
        code, dtype = next(((code, dtype) for code, dtype in _MANGLED if args.startswith(code)), ("", ""))
        if not code:
            break
        dtypes.append(dtype)
        args = args[len(code) :]
    return dtypes


def first_element_type(text: Text) -> str | None:
    """Return the type of values that the first template arguments name; a vector counts as the type of its elements."""
    if text.mangled:
        return mangled_dtype(text.args)
    dtype = first_dtype(text.args, 2)
    return None if dtype == "complex64" and "complex" not in text.args[:200] else dtype


def common_dtype(dtypes: Iterable[str | None]) -> str | None:
    """Return the dtype that all of ``dtypes`` are; None if they differ or one is unknown."""
    distinct = set(dtypes)
    return distinct.pop() if len(distinct) == 1 else None


# The types as template arguments of CUTLASS, CUDA, HIP and torch and manglings have them; the first in a text counts.
_ELEMENTS: Final = word_table(
    """
    bf16: bfloat16 BFloat16 bf16_t
    fp16: half_t __half ::Half _Float16
    fp8: e4m3 e5m2
    tf32: tfloat32
    bf16: DF16b
    fp16: DF16_
    """
)


def first_element(text: str) -> str | None:
    """Return the dtype of the first reduced-precision type that ``text`` names; a plain float does not count."""
    elements = [(at, dtype) for word, dtype in _ELEMENTS if (at := text.find(word)) >= 0]
    return min(elements)[1] if elements else None
