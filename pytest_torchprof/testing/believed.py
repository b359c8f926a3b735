"""Whether a measurement that was taken can be believed to be of what the test asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from pytest_torchprof.limits import GPU
from pytest_torchprof.measuring.block import why_work_not_done
from pytest_torchprof.testing.compile_cache import doubt_of

if TYPE_CHECKING:
    from pytest_torchprof.against.side import Side
    from pytest_torchprof.reasons.reason import Reason
    from pytest_torchprof.testing.measured_test import MeasuredTest
    from pytest_torchprof.testing.measurement import Measurement


def believed(test: MeasuredTest, taken: Measurement, returned: object) -> Measurement:
    """Return a measurement that knows whether the CPU stands in for a GPU, and why it cannot be believed, if so.

    ``returned`` is what the measured call did return.
    """
    if taken.profile is None:
        return taken
    measurement = as_asked(test, taken)
    why_not = taken.why_not or other_code(test.state.options.against) or why_work_not_done(taken.profile, returned)
    if why_not is None and not measurement.stands_in:  # How a CPU compiles in place of a GPU does not matter.
        why_not = doubt_of(taken.profile)
    return replace(measurement, why_not=why_not)


def as_asked(test: MeasuredTest, taken: Measurement) -> Measurement:
    """Return a measurement that knows whether the CPU was measured only because there was no GPU."""
    if (profile := taken.profile) is None or profile.trace.device_kind.has_launches or test.options.device != "auto":
        return taken
    # A recording that was made with the CPU as the device is judged as such wherever it is replayed.
    whose = profile.trace.metadata or profile.trace.adoption
    if whose is not None and whose.device_asked not in (None, "auto"):
        return taken
    names = [asked.limit.name for asked in taken.limits if asked.limit.needs == GPU]
    names = [name for name in names if not test.options.judges_on_cpu(name)]
    names += ["tolerance of time"] if test.baseline.of_times else []
    return replace(taken, stands_in=True, unanswerable=tuple(dict.fromkeys(names)))


def other_code(side: Side | None, *, elsewhere: bool = False) -> Reason | None:
    """Return why what was measured is not the code of this side of a comparison with a commit; None where it is.

    ``elsewhere``: in another process, which finds its modules as this one would.
    """
    if side is None:
        return None
    from pytest_torchprof.against.imports import (  # noqa: PLC0415 - for these runs alone
        foreign_module,
        foreign_origin,
        loaded_files,
    )
    from pytest_torchprof.against.opened import foreign_file  # noqa: PLC0415 - as above
    from pytest_torchprof.against.reads import files_of, unwatched  # noqa: PLC0415 - as above

    if elsewhere and (reason := foreign_origin(side)) is not None:
        return reason
    with unwatched():
        loaded = loaded_files()
        return foreign_module(side, loaded) or foreign_file(side, files_of(side, [own.real for own in loaded]))
