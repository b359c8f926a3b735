"""Why torch sees no GPU in a process: each cause with its facts."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final, Union

from pytest_torchprof.reasons.gpu_trouble import FabricNotReady
from pytest_torchprof.reasons.statement import Phrase, Statement


class GpuDriver(Phrase):
    """The driver of a GPU that a machine has."""

    NVIDIA = "nvidia", "an NVIDIA driver"
    AMD = "amd", "an AMD GPU's driver"


class WhyNoGpu(Statement, frozen=True, tag_field="cause"):
    """Why torch sees no GPU."""

    SURPRISING: ClassVar[bool] = True

    @property
    def surprising(self) -> bool:
        """Whether users of this machine may believe that it has one."""
        return self.SURPRISING


class _MayHaveDriver:
    """torch cannot use a GPU, whose driver the machine may have all the same."""

    __slots__ = ()
    driver: GpuDriver | None

    @property
    def surprising(self) -> bool:
        """Whether the machine has one."""
        return self.driver is not None


class BuiltForCpu(_MayHaveDriver, WhyNoGpu, frozen=True):
    """This build of torch uses the CPU only."""

    version: str
    """torch's."""
    driver: GpuDriver | None = None
    """The driver that the machine has all the same."""

    @property
    def sentence(self) -> str:
        build = f"torch {self.version} is built for the CPU only"
        if self.driver is None:
            return build
        return f"{build}, and this machine has {self.driver}: install the build of torch for it"


class NoErrorReported(WhyNoGpu, frozen=True):
    """torch finds no GPU, and no error says why."""

    SURPRISING = False
    SENTENCE = "torch.cuda.is_available() is False and gives no reason"


class GpusHidden(WhyNoGpu, frozen=True):
    """Variables of the environment leave the process no GPU."""

    variables: tuple[tuple[str, str], ...]
    """Each variable with its value."""

    @property
    def sentence(self) -> str:
        return f"{_shown(self.variables)} leaves this process no GPU: unset it, or name one"


class NoGpuOfThese(WhyNoGpu, frozen=True):
    """The driver sees none of the GPUs that variables of the environment name, or no GPU at all."""

    variables: tuple[tuple[str, str], ...]
    """Each variable with its value."""

    @property
    def sentence(self) -> str:
        return (
            f"the driver sees no GPU, or none of those that {_shown(self.variables)} names: nvidia-smi (rocminfo on "
            "AMD) tells which there are, and why none"
        )


class NoDriver(_MayHaveDriver, WhyNoGpu, frozen=True):
    """There is no NVIDIA driver that torch could load."""

    driver: GpuDriver | None
    """The driver that the machine has all the same."""

    @property
    def sentence(self) -> str:
        if self.driver is None:
            return "no NVIDIA driver is to be found: install one, or start the container with its GPUs (--gpus all)"
        return (
            f"torch finds no NVIDIA driver, and this machine has {self.driver}: start the container with its GPUs "
            "(--gpus all), or install the build of torch for it"
        )


class DriverTooOld(WhyNoGpu, frozen=True):
    """The NVIDIA driver does not know the CUDA version that torch is built with."""

    version: str
    """torch's."""
    cuda_of_driver: int
    """As CUDA numbers its versions: 12040 for 12.4."""
    cuda_of_torch: str | None

    @property
    def sentence(self) -> str:
        known = f"{self.cuda_of_driver // 1000}.{self.cuda_of_driver % 1000 // 10}"
        return (
            f"the NVIDIA driver is too old for torch {self.version}: it knows CUDA {known}, and torch is built with "
            f"{self.cuda_of_torch}. Update the driver, or install a build of torch for this CUDA"
        )


class FabricMissing(WhyNoGpu, frozen=True):
    """The GPUs behind an NVSwitch wait for its fabric manager."""

    @property
    def sentence(self) -> str:
        return FabricNotReady().text


class DriverSeesNone(WhyNoGpu, frozen=True):
    """The driver works, and sees no GPU."""

    SENTENCE = "the driver sees no GPU: nvidia-smi (rocminfo on AMD) tells which there are, and why none"


class CannotInitialize(WhyNoGpu, frozen=True):
    """CUDA raises an error when it is initialized."""

    SENTENCE = "CUDA cannot be initialized: {error}"

    error: str


def _shown(variables: tuple[tuple[str, str], ...]) -> str:
    return " and ".join(f"{name}={value!r}" for name, value in variables)


KINDS: Final[tuple[type[WhyNoGpu], ...]] = tuple(WhyNoGpu.__subclasses__())

if TYPE_CHECKING:
    AnyWhyNoGpu = WhyNoGpu
else:
    # A field of this type is decoded to the kind whose tag it has.
    AnyWhyNoGpu = Union[KINDS]  # noqa: UP007 - of as many as there are
