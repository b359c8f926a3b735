"""The values that fields of a selector take: each read and refused by a function."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_torchprof.kernels.names.kernelname import (
    COLLECTIVES,
    DTYPES,
    FAMILIES,
    FLASH_VERSIONS,
    LAYOUTS,
    LIBRARIES,
    TORCHS_DTYPES,
    TRITON_CATEGORIES,
)
from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.errors import UnknownLimit
from pytest_torchprof.reasons.errors import hide_our_frames as __tracebackhide__  # noqa: F401  (read by pytest)
from pytest_torchprof.text import nearest

if TYPE_CHECKING:
    from collections.abc import Callable


def _one_of(what: str, valid: tuple[str, ...]) -> Callable[[object], object]:
    def check(value: object) -> object:
        if not isinstance(value, str) or value not in valid:
            word = str(value).rpartition(".")[2]
            problem = f"{what}={value!r} is unknown: {nearest(TORCHS_DTYPES.get(word, word), valid)}"
            raise UnknownLimit(problem, Code.BAD_PATTERN)
        return value

    return check


def _boolean(value: object) -> object:
    if not isinstance(value, bool):
        raise UnknownLimit(f"expected True or False, got {value!r}")
    return value


def _version(value: object) -> object:
    if isinstance(value, int) and not isinstance(value, bool) and value in FLASH_VERSIONS:
        return value
    valid = ", ".join(map(str, FLASH_VERSIONS))
    raise UnknownLimit(f"version={value!r} is unknown: FlashAttention has {valid}", Code.BAD_PATTERN)


def _tile(value: object) -> object:
    parts = value.split("x") if isinstance(value, str) else value
    if (
        isinstance(parts, list | tuple)
        and parts
        and all(str(part).isascii() and str(part).isdecimal() for part in parts)
    ):
        return tuple(int(part) for part in parts)
    raise UnknownLimit(f"expected a tile such as '128x64' or (128, 64), got tile={value!r}")


def _ops(value: object) -> object:
    tokens = [value] if isinstance(value, str) else value
    if isinstance(tokens, list | tuple) and tokens and all(isinstance(token, str) and token for token in tokens):
        return tuple(bare(checked_operator(str(token))) for token in tokens)
    raise UnknownLimit(f"expected operator names such as ['add', 'mul'], got ops={value!r}")


def checked_operator(token: str) -> str:
    """Return an operator's name, in which an overload may stand, if there may be one; else raise UnknownLimit."""
    from pytest_torchprof.kernels.spelling import no_operator_text  # noqa: PLC0415 - who reads a file needs none

    if (advice := no_operator_text(token.partition(".")[0] if "::" in token else token)) is not None:
        raise UnknownLimit(f"{token!r} is no operator's name: {advice}", Code.BAD_PATTERN)
    return token


def bare(op: str) -> str:
    """Return an operator's name without namespace and overload: ``aten::add.Tensor`` is ``add``."""
    return op.rpartition("::")[2].partition(".")[0]


FIELDS: Final[dict[str, Callable[[object], object]]] = {
    "dtype": _one_of("dtype", DTYPES),
    "layout": _one_of("layout", LAYOUTS),
    "tensor_core": _boolean,
    "tile": _tile,
    "version": _version,
    "fused": _boolean,
    "family": _one_of("family", FAMILIES),
    "library": _one_of("library", LIBRARIES),
    "triton": _one_of("category", TRITON_CATEGORIES),
    "collective": _one_of("collective", COLLECTIVES),
    "ops": _ops,
}
