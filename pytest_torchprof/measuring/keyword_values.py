"""The values of keywords for measuring: the numbers of calls, and the device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_torchprof.reasons.errors import UnknownLimit
from pytest_torchprof.text import enumerated

if TYPE_CHECKING:
    from collections.abc import Callable

DEVICE, WARMUP, STEPS = "auto", 3, 5
"""The defaults: the device, and the numbers of calls."""


def at_least(least: int) -> Callable[[object], int]:
    """Return a function that reads an integer of at least ``least``, and raises UnknownLimit for anything else."""

    def read(value: object) -> int:
        if isinstance(value, int) and not isinstance(value, bool) and value >= least:
            return value
        raise UnknownLimit(f"expected a whole number from {least}")

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
    raise UnknownLimit(f"expected {enumerated(['auto', *names, *(f'{name}:N' for name in numbered)])}")
