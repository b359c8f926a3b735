"""The values of keywords for measuring: the numbers of calls, and the device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_torchprof.reasons.errors import UnknownLimit, refuse_huge
from pytest_torchprof.reasons.errors import hide_our_frames as __tracebackhide__  # noqa: F401  (read by pytest)

if TYPE_CHECKING:
    from collections.abc import Callable

DEVICE, WARMUP, STEPS = "auto", 3, 5
"""The defaults: the device, and the numbers of calls."""


def read_keyword(name: str, value: object, read: Callable[[object], Any]) -> Any:
    """Return the value of a keyword as it is read; UnknownLimit names the keyword that cannot have it."""
    refuse_huge(name, value)
    try:
        return read(value)
    except UnknownLimit as problem:
        raise problem.of_keyword(name, repr(value)) from None


def at_least(least: int) -> Callable[[object], int]:
    """Return a function that reads an integer of at least ``least``, and raises UnknownLimit for anything else."""

    def read(value: object) -> int:
        if isinstance(value, int) and not isinstance(value, bool) and value >= least:
            return value
        from pytest_torchprof.reasons.wrong_values import ValueForm, WrongValue  # noqa: PLC0415 - for what is refused alone

        raise UnknownLimit.because(WrongValue(ValueForm.WHOLE_NUMBER, least=least))

    return read


def device_name(value: object) -> str:
    """Return the name of a device that can be asked for, or raise UnknownLimit."""
    from pytest_torchprof.devices.kinds import device_kinds  # noqa: PLC0415  (this module loads in every pytest run)

    known = device_kinds()
    names, numbered = sorted(kind.name for kind in known), [kind.name for kind in known if kind.has_launches]
    # A torch.device prints as its name; torch itself is not imported to look.
    if type(value).__name__ == "device" or isinstance(value, str):
        name, colon, number = str(value).partition(":")
        if name in numbered and number.isascii() and number.isdigit():
            return str(value)
        if name in ("auto", *names) and not colon:
            return name
    from pytest_torchprof.reasons.wrong_values import NoneOfThese  # noqa: PLC0415 - for what is refused alone

    raise UnknownLimit.because(NoneOfThese(("auto", *names, *(f"{name}:N" for name in numbered))))
