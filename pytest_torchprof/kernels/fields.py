"""The values that fields of a selector take: each read and refused by a function."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

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
from pytest_torchprof.reasons.errors import UnknownLimit
from pytest_torchprof.reasons.errors import hide_our_frames as __tracebackhide__  # noqa: F401  (read by pytest)
from pytest_torchprof.text.suggestions import choices_like

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


def _one_of(what: str, valid: tuple[str, ...]) -> Callable[[object], object]:
    def check(value: object) -> object:
        if not isinstance(value, str) or value not in valid:
            word = str(value).rpartition(".")[2]
            raise _unknown(what, value, TORCHS_DTYPES.get(word, word), valid)
        return value

    return check


def _unknown(what: str, value: object, meant: str, valid: Iterable[str]) -> UnknownLimit:
    from pytest_torchprof.reasons.wrong_patterns import PartOf, UnknownPart  # noqa: PLC0415 - for what is refused alone

    return UnknownLimit.because(UnknownPart(PartOf.VALUE, repr(value), *choices_like(meant, valid), of=what))


def _boolean(value: object) -> object:
    if not isinstance(value, bool):
        from pytest_torchprof.reasons.wrong_values import NoneOfThese  # noqa: PLC0415 - for what is refused alone

        raise UnknownLimit.because(NoneOfThese(("True", "False"), repr(value)))
    return value


def _version(value: object) -> object:
    if isinstance(value, int) and not isinstance(value, bool) and value in FLASH_VERSIONS:
        return value
    raise _unknown("version", value, "", map(str, FLASH_VERSIONS))


def _tile(value: object) -> object:
    parts = value.split("x") if isinstance(value, str) else value
    if (
        isinstance(parts, list | tuple)
        and parts
        and all(str(part).isascii() and str(part).isdecimal() for part in parts)
    ):
        return tuple(int(part) for part in parts)
    from pytest_torchprof.reasons.wrong_values import ValueForm, WrongValue  # noqa: PLC0415 - for what is refused alone

    raise UnknownLimit.because(WrongValue(ValueForm.TILE, f"tile={value!r}"))


def _ops(value: object) -> object:
    tokens = [value] if isinstance(value, str) else value
    if isinstance(tokens, list | tuple) and tokens and all(isinstance(token, str) and token for token in tokens):
        return tuple(bare(checked_operator(str(token))) for token in tokens)
    from pytest_torchprof.reasons.wrong_values import ValueForm, WrongValue  # noqa: PLC0415 - for what is refused alone

    raise UnknownLimit.because(WrongValue(ValueForm.CARRIED, f"ops={value!r}"))


def checked_operator(token: str) -> str:
    """Return an operator's name, in which an overload may stand, if there may be one; else raise UnknownLimit."""
    from pytest_torchprof.kernels.spelling import why_no_operator  # noqa: PLC0415 - who reads a file needs none

    if (why := why_no_operator(token.partition(".")[0] if "::" in token else token)) is not None:
        raise UnknownLimit.because(replace(why, written=token))
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
