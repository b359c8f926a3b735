"""What methods and functions without an operator of their name are in a recording; a word of others is not them."""

from __future__ import annotations

from typing import Final

_READ: Final = "a value that is read is 'aten::item' or 'aten::_local_scalar_dense'"
_CONVERTED: Final = "a conversion is 'aten::_to_copy', or 'aten::to' with the calls that convert nothing"
_WAIT: Final = "it leaves no operator; there is a limit for waits: max_syncs"
_ON_HOST: Final = "it leaves no operator of its own; what it reads from a GPU is a wait, for which there is max_syncs"

_CALLS: Final = {
    **dict.fromkeys(("float", "int", "bool"), f"{_READ}, {_CONVERTED}"),
    **dict.fromkeys(("double", "half", "bfloat16", "long", "short", "char", "byte", "cfloat", "cdouble"), _CONVERTED),
    **dict.fromkeys(("cast", "type", "astype"), _CONVERTED),
    **dict.fromkeys(("cpu", "cuda", "xpu"), _CONVERTED),
    **dict.fromkeys(("numpy", "tolist", "print"), _ON_HOST),
    **dict.fromkeys(("sync", "synchronize"), _WAIT),
}


def in_a_recording(name: str) -> str | None:
    """Return what a call of this name is in a recording, where torch has no operator that is called so."""
    said = _CALLS.get(name)
    return None if said is None else f"Python's {name}() is no operator: {said}"
