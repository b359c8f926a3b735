"""What a recording says, worked out once for all the profiles of it."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from pytest_torchprof.analysis import numbers
from pytest_torchprof.analysis.launches import Launching
from pytest_torchprof.analysis.steps import StepProfile

if TYPE_CHECKING:
    from pytest_torchprof.analysis.compilation import Compile
    from pytest_torchprof.analysis.efficiency import Efficiency
    from pytest_torchprof.analysis.gpu_work import Scene
    from pytest_torchprof.analysis.numbers import Numbers
    from pytest_torchprof.trace import Trace


class Facts:
    """Answers about one trace, each worked out when it is first asked for."""

    def __init__(self, trace: Trace) -> None:
        """Take the trace; nothing is computed yet."""
        self.trace = trace

    @cached_property
    def launching(self) -> Launching:
        """Who launched what."""
        return Launching(self.trace)

    @cached_property
    def steps(self) -> tuple[StepProfile, ...]:
        """The recorded steps; without step ranges the whole trace is one."""
        return tuple(StepProfile(self.trace, self.launching, part) for part in self.launching.parts)

    @cached_property
    def window(self) -> Numbers:
        """The numbers that only the whole recording has."""
        return numbers.of_window(self.trace, self.compile)

    @cached_property
    def scene(self) -> Scene:
        """The GPU work grouped and put in order."""
        from pytest_torchprof.analysis.gpu_work import Scene  # noqa: PLC0415 - only who asks pays

        return Scene(self.trace, self.launching)

    @cached_property
    def compile(self) -> Compile:
        """What torch.compile did."""
        from pytest_torchprof.analysis import compilation  # noqa: PLC0415 - only who asks pays

        return compilation.read(self.trace)

    @cached_property
    def efficiency(self) -> Efficiency:
        """How well the GPU was used."""
        from pytest_torchprof.analysis import efficiency  # noqa: PLC0415 - only who asks pays

        return efficiency.read(self.scene)
