"""Why NVML, which knows an NVIDIA GPU's state, does not answer a question."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Union

from pytest_torchprof.reasons.statement import Statement

# Values of nvmlReturn_t: the GPU fell off the bus; the driver was updated and the kernel still runs the old one.
_FOR_THE_OWNER: Final = {
    15: "restart the machine; what the kernel's log says of NVRM or Xid tells more (dmesg)",
    18: "the driver was updated and the old one is still loaded: restart the machine",
}


class NvmlSilence(Statement, frozen=True, tag_field="cause"):
    """Why there is no answer."""

    @property
    def remedy(self) -> str:
        """The remedy for the owner of the machine where it is broken; else empty."""
        return ""


class QuestionRefused(NvmlSilence, frozen=True):
    """The driver was asked, and has returned an error."""

    SENTENCE = "{function}: {error}"

    function: str
    error: str
    status: int
    """NVML's return code."""

    @property
    def remedy(self) -> str:
        return _FOR_THE_OWNER.get(self.status, "")


class QuestionUnknown(NvmlSilence, frozen=True):
    """Neither the driver nor its bindings have a function for it."""

    SENTENCE = "this driver has no {function}"

    function: str
    """By its newest name."""


class AskerNotListed(NvmlSilence, frozen=True):
    """The processes that it lists are others than this one knows, by numbers outside of a container, or none."""

    SENTENCE = "NVML does not list this process itself, as in a container"


KINDS: Final[tuple[type[NvmlSilence], ...]] = tuple(NvmlSilence.__subclasses__())

if TYPE_CHECKING:
    AnyNvmlSilence = NvmlSilence
else:
    # A field of this type is decoded to the kind whose tag it has.
    AnyNvmlSilence = Union[KINDS]  # noqa: UP007 - of as many as there are
