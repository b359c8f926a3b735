"""The difference between two kernel names in words: layout, dtype, tile, library, carried operators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_torchprof.kernels.names import decode, normal_name

if TYPE_CHECKING:
    from pytest_torchprof.kernels.names import KernelName

# In the order in which people ask: the work, its operands, then the way in which it is done.
_FACTS: Final = ("family", "layout", "dtype", "tensor_core", "library", "triton", "collective", "helper")
_TUNING: Final = ("tile", "stages", "cluster", "split_k", "epilogue", "alignment", "arch")
# The way ATen's pointwise kernels walk their operands shows what became of these
# (aten/src/ATen/native/cuda/CUDALoops.cuh).
_LOOPS: Final = {
    "vectorized_elementwise_kernel": "vectorized",
    "unrolled_elementwise_kernel": "unrolled, operands that are converted or not aligned",
    " at::native::elementwise_kernel": "strided, operands that are not contiguous",
}
_WORDS: Final = {"tensor_core": "tensor core", "split_k": "split-K", "triton": "Triton category", "alignment": "align"}


def explain_rename(a: str, b: str) -> str:
    """Return the change from kernel name ``a`` to ``b``: "layout tn -> nn, tile 128x256 -> 64x64 (bf16 as before)".

    Only facts in both names are called a change; a field that one of them leaves open is "unknown".
    """
    if a == b:
        return "same name"
    old, new = decode(a), decode(b)
    if {old.family, new.family} <= {None, "other"} or (old.library, new.library) == ("triton", "triton"):
        return _explain_plain(a, b, old, new)
    # Tuning is not comparable between libraries, apart from the tile.
    tuning = _TUNING if old.library == new.library else _TUNING[:1]
    changed = [text for fact in (*_FACTS, *tuning) if (text := _explain_fact(fact, old, new))]
    if old.family != new.family or not changed:
        return _explain_plain(a, b, old, new) if not changed else ", ".join(changed)
    kept = [value for fact in ("dtype", "layout") if (value := getattr(old, fact)) and value == getattr(new, fact)]
    return ", ".join(changed) + (f" ({', '.join(kept)} as before)" if kept else "")


def _explain_plain(a: str, b: str, old: KernelName, new: KernelName) -> str:
    """Explain names that have no grammar of fields, or whose fields are the same."""
    if old.triton_ops or new.triton_ops:
        lost = [op for op in dict.fromkeys(old.triton_ops) if op not in new.triton_ops]
        gained = [op for op in dict.fromkeys(new.triton_ops) if op not in old.triton_ops]
        parts = [f"no longer carries {', '.join(lost)}"] if lost else []
        parts += [f"also carries {', '.join(gained)}"] if gained else []
        if old.triton != new.triton:
            parts.append(f"Triton category {old.triton or 'none'} -> {new.triton or 'none'}")
        return ", ".join(parts) or "only the index differs"
    loops = _loop_of(a, old), _loop_of(b, new)
    if old.stem == new.stem and None not in loops and loops[0] != loops[1]:
        return f"{old.short}: {loops[0]} -> {loops[1]}"
    if normal_name(a) == normal_name(b):
        return "only template arguments differ" if "<" in a + b else "only the index differs"
    if old.family not in (None, "other") and old.stem == new.stem:
        return f"another variant of {old.short}"
    return f"{old.short} -> {new.short}"


def _loop_of(name: str, decoded: KernelName) -> str | None:
    if decoded.library != "aten":
        return None
    return next((words for loop, words in _LOOPS.items() if loop in name), None)


def _explain_fact(fact: str, old: KernelName, new: KernelName) -> str | None:
    before, after = getattr(old, fact), getattr(new, fact)
    if before == after:
        return None
    if fact in _TUNING and (before in (None, ()) or after in (None, ())):
        # A field that only one of the names can have is no change: cuBLAS names have no cluster, nvjet names no
        # alignment.
        return f"{'' if after else 'no '}{_WORDS.get(fact, fact)}" if fact == "split_k" else None
    if fact == "tile":
        return _explain_tile(before, after)
    return f"{_WORDS.get(fact, fact)} {_show_fact(before)} -> {_show_fact(after)}"


def _explain_tile(before: tuple[int, ...], after: tuple[int, ...]) -> str | None:
    """Compare two tiles as far as both are known; the K step is shown only if nothing else differs."""
    for length in (2, 3):
        old, new = before[:length], after[:length]
        if len(old) == len(new) and old != new:
            return f"tile {_show_fact(old)} -> {_show_fact(new)}"
    return None


def _show_fact(value: object) -> str:
    if value is None:
        return "unknown"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return ("x" if all(isinstance(part, int) for part in value) else "+").join(map(str, value)) or "none"
    return str(value)
