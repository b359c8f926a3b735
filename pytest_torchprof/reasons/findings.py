"""Reasons of findings: why a recording does not tell whether there is one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.collectives import Gap  # noqa: TC001 - msgspec reads the annotations
from pytest_torchprof.reasons.reason import Reason
from pytest_torchprof.text import counted

if TYPE_CHECKING:
    from collections.abc import Iterable


class RuleRaised(Reason, frozen=True):
    """A rule of another plugin raised an error, so that nobody knows whether there is such a finding."""

    CODE = Code.NO_VERDICT
    SENTENCE = "the rule of {finding} raised {error}"
    REMEDY = "correct it in the plugin that brings {finding}"

    finding: str
    error: str
    """In Python's words, "ZeroDivisionError: division by zero"."""


class RuleReturned(Reason, frozen=True):
    """A rule of another plugin returned something other than findings."""

    CODE = Code.NO_VERDICT
    SENTENCE = "the rule of {finding} returned {returned} instead of a finding"
    REMEDY = "let it yield a Finding, such as OtherFinding, or nothing"

    finding: str
    returned: str
    """As Python shows it."""


class ReadFromGpuWork(Reason, frozen=True):
    """The CPU was the device, and a finding is about the work of a GPU."""

    CODE = Code.NOT_RECORDED
    SENTENCE = "it is read from the work of a GPU, and the CPU was the device"


class NoOperatorRecorded(Reason, frozen=True):
    """The profiler recorded the GPU alone."""

    CODE = Code.NOT_RECORDED
    SENTENCE = "no operator is recorded: the profiler recorded the GPU alone"


class NothingLinked(Reason, frozen=True):
    """Launches and what they launched are not linked."""

    CODE = Code.NOT_RECORDED
    SENTENCE = "no operation of the GPU is linked to its launch"


class NoOperatorLaunched(Reason, frozen=True):
    """It is not recorded which operators launched work."""

    CODE = Code.NOT_RECORDED
    SENTENCE = "no operator is known to have launched anything"


class ShapesNotRecorded(Reason, frozen=True):
    """The shapes of operands are missing."""

    CODE = Code.NOT_RECORDED
    SENTENCE = "the operators' shapes are not recorded"
    REMEDY = "record_shapes=True"


class SettingsNotRecorded(Reason, frozen=True):
    """The arguments of operators that are not tensors are missing."""

    CODE = Code.NOT_RECORDED
    SENTENCE = "what operators were given beside tensors is not recorded"
    REMEDY = "record_shapes=True; torch 1 does not record it"


class BlocksNotRecorded(Reason, frozen=True):
    """No kernel tells how many blocks it has."""

    CODE = Code.NOT_RECORDED
    SENTENCE = "blocks per SM are not recorded"


class OccupancyNotRecorded(Reason, frozen=True):
    """No kernel tells its occupancy."""

    CODE = Code.NOT_RECORDED
    SENTENCE = "occupancy is not recorded"


class OperatorsOfSomeUnknown(Reason, frozen=True):
    """Some kernels may be of an operator about which there would be a finding."""

    CODE = Code.NOT_RECORDED
    SENTENCE = "it is not known which operator launched some of the kernels"


class TypesOfSomeUnknown(Reason, frozen=True):
    """Some products may compute in a type about which there would be a finding."""

    CODE = Code.NOT_RECORDED
    SENTENCE = "it is not known whether some products compute in {dtype}"

    dtype: str


class SizesOfSomeUnknown(Reason, frozen=True):
    """Some products may have sizes that are not aligned."""

    CODE = Code.NOT_RECORDED
    SENTENCE = "the sizes of some products are not known"


class CopiesOfSomeUnknown(Reason, frozen=True):
    """Some copies may be those of a product."""

    CODE = Code.NOT_RECORDED
    SENTENCE = "it is not known which operator made some of the copies, or where they go"


class ElementsOfSomeUnknown(Reason, frozen=True):
    """Some pointwise kernels may be of one size."""

    CODE = Code.NOT_RECORDED
    SENTENCE = "it is not known on how many elements some pointwise kernels work"


class ProductsOfSomeUnknown(Reason, frozen=True):
    """Some products may be those of attention."""

    CODE = Code.NOT_RECORDED
    SENTENCE = "it is not known which operator launched some of the products"


class OptimizerOfSomeUnknown(Reason, frozen=True):
    """Some kernels may be the optimizer's."""

    CODE = Code.NOT_RECORDED
    SENTENCE = "it is not known whether the optimizer launched some of the kernels"


class BlocksOfSomeUnknown(Reason, frozen=True):
    """Some kernels may have few blocks."""

    CODE = Code.NOT_RECORDED
    SENTENCE = "it is not recorded how many blocks some kernels have"


class WarpsOfSomeUnknown(Reason, frozen=True):
    """Some kernels may run with few warps."""

    CODE = Code.NOT_RECORDED
    SENTENCE = "the occupancy or the blocks of some kernels are not recorded"


class BoundsOfSomeUnknown(Reason, frozen=True):
    """Some kernels may take many times their bound."""

    CODE = Code.NOT_RECORDED
    SENTENCE = "it is not known how long some kernels need at the peaks"


class PeaksUnknown(Reason, frozen=True):
    """The device is not one whose peaks are known."""

    CODE = Code.NOT_RECORDED
    SENTENCE = "the peaks of the device are not known, in operations or in bytes a second"


class WorkUnknown(Reason, frozen=True):
    """It is not known of any kernel what it has to do."""

    CODE = Code.NOT_RECORDED
    SENTENCE = "the operands' shapes, strides and types do not say of any kernel what it has to do"


class CompilerNotObserved(Reason, frozen=True):
    """The recording holds nothing of what the compiler did."""

    CODE = Code.NOT_RECORDED
    SENTENCE = "what the compiler did is not recorded"


class BreaksUntold(Reason, frozen=True):
    """There may be graph breaks that the recording does not have."""

    CODE = Code.NOT_RECORDED
    SENTENCE = "the recording may lack graph breaks"


class RecompilesUntold(Reason, frozen=True):
    """There may be recompiles that the recording does not have."""

    CODE = Code.NOT_RECORDED
    SENTENCE = "the recording may lack recompiles"


class SkipsUntold(Reason, frozen=True):
    """Inductor may have skipped CUDA graphs."""

    CODE = Code.NOT_RECORDED
    SENTENCE = "the recording does not say whether Inductor made CUDA graphs"


class GraphsUnmarked(Reason, frozen=True):
    """Which graph a call runs is not recorded."""

    CODE = Code.NOT_RECORDED
    SENTENCE = "this torch leaves no range around the call of a graph"


class NothingUncompiled(Reason, frozen=True):
    """The test has no uncompiled measurement."""

    CODE = Code.NOT_RECORDED
    SENTENCE = "the same test has no uncompiled measurement to compare it with"


class CollectiveTimesUnknown(Reason, frozen=True):
    """When collectives ran is not known."""

    CODE = Code.NOT_RECORDED
    SENTENCE = "when a collective ran is not known: {because}"

    because: Gap


class RanksNeeded(Reason, frozen=True):
    """The finding is about all ranks of a job together."""

    CODE = Code.NOT_RECORDED
    SENTENCE = "it takes the recordings of all ranks"
    REMEDY = "adopt them together, or use --ranks"


class ClocksDoNotFit(Reason, frozen=True):
    """The clocks of several hosts cannot be compared."""

    CODE = Code.NOT_RECORDED
    SENTENCE = "the clocks of its ranks' hosts do not fit well enough"


class MayCommunicate(Reason, frozen=True):
    """A kernel may be a collective."""

    CODE = Code.NOT_RECORDED
    SENTENCE = "whether {kernel:line} communicates is not known"

    kernel: str


class FewCollectives(Reason, frozen=True):
    """There are too few collectives to judge a rank by."""

    CODE = Code.NOT_RECORDED
    SENTENCE = "it takes {least} collectives, and there are {collectives}"

    least: int
    collectives: int


class CollectivesUnmatched(Reason, frozen=True):
    """Collectives of a rank are not compared with those of other ranks."""

    CODE = Code.NOT_RECORDED

    collectives: tuple[tuple[int, Gap], ...]
    """How many, and why."""

    @property
    def sentence(self) -> str:
        return f"some collectives are not compared with those of other ranks ({unmatched_text(self.collectives)})"


def unmatched_text(collectives: Iterable[tuple[int, Gap]]) -> str:
    """Return a text with how many collectives are not compared, and why."""
    return "; ".join(f"{counted(number, 'collective')}: {cause}" for number, cause in collectives)
