"""The facts that a recording keeps of torch.compile: graph breaks, recompiles, Inductor's graphs and their kernels."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003 - msgspec reads the annotations

from msgspec import Struct, field

from pytest_torchprof.reasons.compiler_events import AnyCompilerEvent, TorchSilent
from pytest_torchprof.reasons.reason import StoredReason  # noqa: TC001 - msgspec reads the annotations
from pytest_torchprof.reasons.uncompiled import AnySetting, AnyWhyUncompiled  # noqa: TC001 - as above
from pytest_torchprof.text import counted
from pytest_torchprof.text.reprs import ShownFields, at_line, bracketed
from pytest_torchprof.trace.caches import CompileCaches, Count  # noqa: TC001 - msgspec reads the annotations


class GraphBreak(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A place where compiled code ends; file, line and function are None if only the trace shows it."""

    why: AnyCompilerEvent | str = field(default=TorchSilent(), name="reason")
    """The first line of Dynamo's reason; what is known where there is none, recorded with its kind as ``cause``."""
    file: str | None = None
    line: int | None = None
    function: str | None = None
    explanation: str | None = None
    """The rest of Dynamo's text, after its reason."""
    at: str | None = None
    """Where Dynamo saw it, which may be inside torch."""
    inferred: bool = False
    """Whether the place is not Dynamo's, but the line that led to the compilation of torch's own code."""
    count: int = 1
    """The number of graphs that end there."""
    skipped_frame: bool = False
    """Whether the whole frame is left uncompiled."""

    @property
    def reason(self) -> str:
        """Why, as a text."""
        return str(self.why)

    def __repr__(self) -> str:
        return bracketed(self, at_line(self.file, self.line), self.function and f"in {self.function}", self.reason)


class Recompile(Struct, frozen=True, kw_only=True):
    """A frame that was compiled again because a guard failed; places are None if only the trace shows it."""

    why: AnyCompilerEvent | str = field(default=TorchSilent(), name="reason")
    """The guard that failed, in Dynamo's words, or what is known instead, as of a graph break."""
    function: str | None = None
    file: str | None = None
    line: int | None = None

    @property
    def reason(self) -> str:
        """Why, as a text."""
        return str(self.why)

    def __repr__(self) -> str:
        return bracketed(self, at_line(self.file, self.line), self.function and f"of {self.function}", self.reason)


class SourceLine(Struct, frozen=True, kw_only=True):
    """A line of the user's code."""

    file: str
    line: Count
    function: str = ""

    def __repr__(self) -> str:
        return bracketed(self, at_line(self.file, self.line), self.function and f"in {self.function}")


class GeneratedKernel(ShownFields, frozen=True, kw_only=True, omit_defaults=True):
    """The facts that Inductor's own code has on a kernel that it generated."""

    ops: tuple[str, ...] | None = None
    """The operators that the kernel carries, named as before decomposition; None if the code does not say."""
    unclear: tuple[str, ...] = ()
    """Operators after which it is named, but which another kernel may compute in its place."""
    lines: tuple[SourceLine, ...] = ()
    """The user's lines from which it was generated."""
    dtypes: tuple[str, ...] = ()
    """The types of the values that it reads and writes, and "fp64" if it computes in fp64."""


class OperatorCall(ShownFields, frozen=True, kw_only=True):
    """A call of an operator by a generated program itself."""

    op: str
    """The operator's name, without its namespace."""
    line: SourceLine | None = None


class InductorGraph(Struct, frozen=True, kw_only=True):
    """A graph of Inductor's that was alive when the measurement ended; ranges in the trace show whether it ran."""

    hash: str | None = None
    """The key of its cache, which the ranges of its calls carry."""
    code_hash: str | None = None
    code_path: str | None = None
    """The generated file."""
    cudagraph_skip: str | None = None
    """Why Inductor made no CUDA graph of it."""
    aten_calls: Mapping[str, int] | None = None
    """The aten operators that the generated code calls itself, with the number of calls."""
    unprofiled: bool = False
    """Whether it has C++ kernels that leave no event."""
    kernels: Mapping[str, GeneratedKernel] = {}
    """The kernels of the generated code, by name."""
    calls: tuple[OperatorCall, ...] = ()
    """The operators that the generated code calls itself, in its order."""
    made_of: tuple[str, ...] = ()
    """The compilations of the code that its lines are in, "0/0"; another one may have got the graph from the cache."""

    def __repr__(self) -> str:
        return bracketed(self, self.hash, at_line(self.code_path, None), counted(len(self.kernels), "kernel"))


class CudaGraphSkips(ShownFields, frozen=True, kw_only=True):
    """The number of times that Inductor made no CUDA graph, and its distinct reasons."""

    count: int = 0
    reasons: tuple[str, ...] = ()


class Uncounted(Struct, frozen=True, kw_only=True):
    """Why there may be more of each than were seen; None if all were seen."""

    graph_breaks: StoredReason | None = None
    recompiles: StoredReason | None = None


class CompileEvidence(ShownFields, frozen=True, kw_only=True):
    """The evidence of torch.compile's work from the first warm-up call to the last step."""

    dynamo: bool = False
    """Whether torch.compile was in use at all; if not, nothing else is known."""
    unknown: Uncounted = Uncounted()
    compiled: bool = False
    """Whether a graph was compiled during that time."""
    entries: Mapping[str, tuple[GraphBreak, ...]] = {}
    """Everything that Dynamo held compiled, by compile id ("0/1"), each with the breaks in it."""
    of_torch: tuple[str, ...] = ()
    """The ids of code that torch compiled for itself, such as the wrapper of ``cond``."""
    on_threads: bool = False
    """Whether a compiled function was entered in the steps on a thread that the profiler does not record."""
    entered_under: tuple[AnySetting | str, ...] = ()
    """The settings under which compiled functions were entered in the steps, and may have run uncompiled; each with its
    kind as ``setting``, of earlier versions texts."""
    eager_under: tuple[AnySetting | str, ...] = ()
    """The settings under which they ran uncompiled, in the steps or before."""
    breaks: tuple[GraphBreak, ...] = ()
    """The graph breaks that were reported while the measured code was compiled."""
    given_up: tuple[GraphBreak, ...] = ()
    """Frames that were left uncompiled during that time."""
    given_up_earlier: tuple[GraphBreak, ...] = ()
    """Frames that had been left uncompiled before, and ran."""
    recompiles: tuple[Recompile, ...] = ()
    seen_instead: tuple[AnyWhyUncompiled | str, ...] = ()
    """The possible reasons why code was not compiled, each with its kind as ``cause``; of earlier versions texts."""
    cudagraph_skips: CudaGraphSkips = CudaGraphSkips()
    fx_graphs: tuple[InductorGraph, ...] = ()
    graphs_are_marked: bool | None = None
    """False in recordings of torch 2.6, which leaves no range around the call of a graph."""
    package_is_bound: bool = False
    """Whether a package of AOTInductor could be called unseen, by a method that was bound before."""
    time_us: Mapping[str, int] | None = None
    """Compile time by phase, each without the phases inside it; "total" is their sum."""
    remote_cache_hits: Count = 0
    """The number of hits in caches that machines share."""
    caches: CompileCaches | None = None
