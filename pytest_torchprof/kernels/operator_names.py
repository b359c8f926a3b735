"""The known operators: those that torch brings, and those that libraries have registered in this process.

Run with torch 2.13.0 and 2.15.0. If torch has no such list, none is known.
"""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable


@cache
def of_torch() -> frozenset[str]:
    """Return the operators of torch 1.8 to 2.15, by which recordings are judged if torch is not installed."""
    return frozenset(Path(__file__).with_name("operators.txt").read_text(encoding="ascii").split())


def registered() -> frozenset[str]:
    """Return the operators that torch and its extensions have registered by now; empty if torch is not loaded.

    TorchScript's own, such as ``aten::Float``, are none of them: its interpreter calls them past the dispatcher, and no
    recording has one.
    """
    library: Any = sys.modules.get("torch._C")
    if not hasattr(library, "_dispatch_get_all_op_names"):
        return frozenset()
    return frozenset(name.partition(".")[0] for name in library._dispatch_get_all_op_names())


def is_registered(space: str, name: str) -> bool:
    """Return whether torch knows this operator by now; it knows none while it is not loaded."""
    torch: Any = sys.modules.get("torch")
    if not hasattr(torch, "ops") or not hasattr(getattr(torch.ops, space), name):
        return False
    # The dispatcher does not list operators of a higher order, and torch.ops has TorchScript's own too.
    return space not in ("aten", "prim") or f"{space}::{name}" in registered()


def nearest_operator(written: str, known: Iterable[str]) -> str | None:
    """Return the operator whose spelling is nearest, with a namespace if ``written`` has one; None if none is near."""
    from difflib import get_close_matches  # noqa: PLC0415 - only what is refused needs it

    space, _, name = written.rpartition("::")
    candidates: dict[str, str] = {}
    for operator in sorted(known, reverse=True):
        of, _, bare = operator.rpartition("::")
        if of == space or (not space and of == "aten"):
            candidates[_plain(bare)] = operator if space else bare
    close = get_close_matches(_plain(name), candidates, n=1, cutoff=0.7)
    return candidates[close[0]] if close else None


def _plain(name: str) -> str:
    return name.replace("_", "").lower()
