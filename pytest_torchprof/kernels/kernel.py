"""One kernel of a step, with the call and the operator that launched it."""

from __future__ import annotations

from typing import Any, Protocol

from msgspec import Struct

from pytest_torchprof.kernels.names.kernelname import KernelName
from pytest_torchprof.text.reprs import bracketed
from pytest_torchprof.text.units import show_us
from pytest_torchprof.trace.compile_evidence import GeneratedKernel
from pytest_torchprof.trace.graph_annotations import Annotation


def launcher_text(op: str | None, *, in_graph: bool) -> str | None:
    """Return the launcher of a kernel: its operator, or the replay of its graph; None if neither is known."""
    return op or ("graph replay" if in_graph else None)


class LaunchedKernel(Protocol):
    """As much of a kernel as tells it from others, and how long it ran."""

    @property
    def name(self) -> str: ...
    @property
    def decoded(self) -> KernelName: ...
    @property
    def op(self) -> str | None: ...
    @property
    def dur_ns(self) -> int: ...


class BriefKernel(Struct, frozen=True, gc=False):
    """A kernel without all else, for whoever goes through thousands of them."""

    name: str
    decoded: KernelName
    op: str | None
    dur_ns: int


class Kernel(Struct, frozen=True, kw_only=True):
    """One kernel as it ran. Times in ns, of the recording's clock; None for what the recording does not say."""

    name: str
    decoded: KernelName
    """The meaning of the name, completed by the operands of the launching operator."""
    op: str | None
    """The innermost operator around the launch; None for an orphan, and directly inside a compiled region."""
    op_chain: tuple[str, ...]
    """The names of all ranges around the launch, outermost first: regions, autograd nodes, operators."""
    forward_op: str | None = None
    """In a backward pass, the operator whose backward launched it; None elsewhere, and if the recording links none.
    """
    op_dtypes: tuple[str, ...] | None
    """The operator's operand types in torch's words, such as ``c10::BFloat16``."""
    op_shapes: tuple[Any, ...] | None
    op_strides: tuple[Any, ...] | None
    joined: frozenset[str] | None = None
    """If its operator joins tensors, the types that these may have; None for other operators, and if nothing shows
    them.
    """
    start_ns: int
    dur_ns: int
    device: int | None = None
    stream: int | str | None = None
    launch: str | None = None
    """The call that launched it."""
    launch_start_ns: int | None
    in_graph: bool = False
    """Whether a graph launch ran it."""
    capture_known: bool = False
    """For a graph's kernel, whether the recording shows which operator launched it when the graph was captured."""
    unsure_ops: tuple[str, ...] = ()
    """Operators that may have launched it in the capture, inside the recorded enclosing operator, or without one."""
    annotation: Annotation | None = None
    """The annotation of a graph's kernel, in recordings of others."""
    collective: str | None = None
    code: GeneratedKernel | None = None
    """The facts that Inductor's code has on it; None if the recording does not hold the code."""
    doubted: tuple[str, ...] = ()
    """The operators in the name of a kernel of Inductor's that another kernel may compute, if there is no code."""

    @property
    def launcher(self) -> str | None:
        """Its launcher: its operator, or the replay of its graph; None if neither is known."""
        return launcher_text(self.op, in_graph=self.in_graph)

    def __repr__(self) -> str:
        return bracketed(self, self.short or self.name, show_us(self.duration_us), self.op)

    def __str__(self) -> str:
        """Return name, duration and launching operator: ``gemm bf16 tn cutlass, 12.3 us, aten::mm``."""
        return ", ".join(filter(None, (self.short or self.name, show_us(self.duration_us), self.op)))

    @property
    def duration_us(self) -> float:
        """How long it ran, in microseconds."""
        return self.dur_ns / 1000

    @property
    def family(self) -> str | None:
        """The kind of its work: ``gemm``, ``pointwise`` and so on; None if it is not known."""
        return self.decoded.family

    @property
    def library(self) -> str:
        """The library or compiler that it comes from: ``cublas``, ``triton`` and so on."""
        return self.decoded.library

    @property
    def dtype(self) -> str | None:
        """The operands' type."""
        return self.decoded.dtype

    @property
    def layout(self) -> str | None:
        """The layout of a GEMM: two letters in BLAS order."""
        return self.decoded.layout

    @property
    def tensor_core(self) -> bool | None:
        """Whether it runs on tensor cores."""
        return self.decoded.tensor_core

    @property
    def triton(self) -> str | None:
        """Inductor's category of a Triton kernel."""
        return self.decoded.triton

    @property
    def short(self) -> str:
        """The display name, cut to the room that a table has."""
        return self.decoded.short
