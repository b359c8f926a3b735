"""What to say when a string pattern finds nothing but a selector would."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Final

from pytest_torchprof.kernels.names.kernelname import LAYOUTS, shortened
from pytest_torchprof.kernels.names.text import word_table
from pytest_torchprof.kernels.patterns.selectors import Selector, build
from pytest_torchprof.kernels.patterns.strings import NamePattern
from pytest_torchprof.text import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_torchprof.kernels.kernel import Kernel

# What people look for in raw names -> the field and value they mean.
_DTYPES: Final = dict(
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
_FAMILIES: Final = word_table(
    """
    gemm: gemm nvjet cijk cutlass ampere matmul
    attention: flash fmha attention sdpa
    conv: conv fprop
    communication: nccl allreduce
    triton: triton_poi triton
    """
)
_NOUNS: Final = {"gemm": "GEMM", "conv": "convolution", "attention": "attention kernel", "triton": "Triton kernel"}


def hint(pattern: object, kernels: Sequence[Kernel]) -> str | None:
    """Return advice for a string ``pattern`` that matches none of ``kernels``, None where there is none to give."""
    if not isinstance(pattern, NamePattern) or any(pattern.matches(kernel) for kernel in kernels):
        return None
    selector = _meant(pattern.written)
    found = [kernel for kernel in kernels if selector.matches(kernel)] if selector else []
    if selector is None or not found:
        return None
    noun = _NOUNS.get(selector.kind, "communication kernel")
    asked = [f"{name} {value}" for name, value in selector.fields if name in ("layout", "dtype")]
    verb = "have" if len(found) > 1 else "has"
    says = (
        f"{counted(len(found), noun)} {verb} {' and '.join(asked)}"
        if asked
        else f"there {'are' if len(found) > 1 else 'is'} {counted(len(found), noun)}"
    )
    special = pattern.written.startswith("re:") or "*" in pattern.written or "?" in pattern.written
    tried = f"{'matches' if special else 'contains'} `{pattern.written}`"
    return f"no kernel name {tried}; {says} ({_names(found)}): use {selector}"


def _meant(written: str) -> Selector | None:
    """Return the selector whose fields the words of a string pattern ask for, None if none does."""
    text = written.removeprefix("re:").lower()
    words = [word for word in re.split(r"[^a-z0-9]+", text) if word]
    asked: dict[str, object] = {}
    for word in words:
        if word in LAYOUTS and "layout" not in asked:
            asked["layout"] = word
        if word in _DTYPES and "dtype" not in asked:
            asked["dtype"] = _DTYPES[word]
    kind = next((kind for word, kind in _FAMILIES if word in text), "gemm" if asked else None)
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


def _names(kernels: Sequence[Kernel], shown: int = 3) -> str:
    counts = Counter(kernel.name for kernel in kernels)
    parts = [f"{shortened(_elided(name), 60)} x{count}" for name, count in counts.most_common(shown)]
    return ", ".join(parts) + (f", {counted(len(counts) - shown, 'more name')}" if len(counts) > shown else "")


def _elided(name: str) -> str:
    """Return an nvjet name with what tunes it left out, every other name as it is."""
    found = re.match(r"(nvjet(?:_sm\d+)?_[a-z]+(?:_tf32)?_\d+x\d+)_.+_([NT]{3})$", name)
    return f"{found[1]}_..._{found[2]}" if found else name
