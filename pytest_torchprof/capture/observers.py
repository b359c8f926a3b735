"""Observations of measured calls besides the profiler: whose code it is, CUDA graphs, floating-point operations."""

from __future__ import annotations

import ctypes
import os
import sys
import sysconfig
from contextlib import contextmanager, nullcontext, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from pytest_torchprof.analysis.source_lines import is_generated_file
from pytest_torchprof.capture.devices import Replays
from pytest_torchprof.capture.torch_compile import CodeLine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType


_HERE = str(Path(__file__).parents[1]) + os.sep
_RUNNERS = frozenset({"_pytest", "pytest", "pluggy", "xdist", "unittest"})


_PYTHON = sysconfig.get_path("stdlib") + os.sep
"""Asked for once: it takes longer than all the rest, which may happen inside a measured step."""
_INSTALLED = (f"{_PYTHON}site-packages{os.sep}", f"{_PYTHON}dist-packages{os.sep}")


@cache
def is_library_file(file: str) -> bool:
    """Return whether a file belongs to torch or to Python itself, so that users cannot act on a line in it."""
    in_python = file.startswith(_PYTHON) and not file.startswith(_INSTALLED)
    return in_python or file.startswith("<") or is_torchs_file(file)


@cache
def is_torchs_file(file: str) -> bool:
    """Return whether a file belongs to torch."""
    import torch

    return file.startswith(str(Path(torch.__file__).parent) + os.sep)


def is_our_file(file: str) -> bool:
    """Return whether a file belongs to this package."""
    return file.startswith(_HERE)


def is_library_code(place: CodeLine) -> bool:
    """Whether code is what users compile of torch's own: the forward of its modules, the step of its optimizers."""
    return place.function in ("forward", "step") and any(
        f"{os.sep}torch{os.sep}{part}{os.sep}" in place.file for part in ("nn", "optim")
    )


def user_stack() -> tuple[CodeLine, ...]:
    """Return the frames outside torch and Python that led to where this is called, outermost first."""
    lines: list[CodeLine] = []
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - the only way to the frames that are running
    while frame is not None:
        code = frame.f_code
        if not is_library_file(code.co_filename) and not is_our_file(code.co_filename):
            lines.append(CodeLine(code.co_filename, frame.f_lineno, code.co_name))
        frame = frame.f_back
    return tuple(reversed(lines))


@cache
def is_users_file(file: str) -> bool:
    """Whether a file is neither torch's, nor Python's, nor generated, nor of the machinery that runs the test."""
    if is_library_file(file) or file.startswith(_HERE) or is_generated_file(file):
        return False
    return not _RUNNERS.intersection(Path(file).parts)


def path_from_here(file: str) -> str:
    """Return the path of a file as people write it: from here, or, like torch, from the folder of its import."""
    folders = [Path.cwd(), *sorted(map(Path, filter(None, sys.path)), key=lambda folder: -len(folder.parts))]
    path = Path(file)
    return next((str(path.relative_to(folder)) for folder in folders if path.is_relative_to(folder)), file)


# As the driver numbers the types of nodes, and the states of a stream.
_KERNEL, _CHILD = 0, 4
_CAPTURING = 1


@cache
def _kernels_of_graphs() -> WeakKeyDictionary[Any, int | None] | None:
    """Begin to count kernels, and return the counts by graph; None if they cannot be counted, as on ROCm.

    A count of None is not known.
    """
    import torch
    from torch.cuda import graphs

    if torch.version.hip:
        return None
    counts = WeakKeyDictionary[Any, int | None]()
    register = getattr(graphs, "register_graph_instantiate_hook", None)
    if register is None:
        _count_at_captures(graphs.CUDAGraph, counts)
        return counts

    def note(graph: Any) -> None:
        # Now, while its template exists; torch swallows exceptions of this hook.
        counts[graph] = None
        counts[graph] = _count_kernels(graph.raw_cuda_graph())

    register(note)
    return counts


@contextmanager
def replays() -> Iterator[Replays]:
    """Note the replays that the code inside makes; the first time, begin to watch graphs being instantiated."""
    kernels, noted = _kernels_of_graphs(), Replays()
    if kernels is None:
        yield noted
        return
    from torch.cuda import graphs

    def note(graph: Any) -> None:
        noted.note(graph, kernels.get(graph))

    register = getattr(graphs, "register_graph_replay_start_hook", None)
    if register is None:
        with _noting_before(graphs.CUDAGraph, "replay", note):
            yield noted
        return
    handle = register(note)
    try:
        yield noted
    finally:
        handle.remove()


def _count_at_captures(kind: Any, counts: WeakKeyDictionary[Any, int | None]) -> None:
    """Count at the end of each capture: torch before 2.14 has no hook for it, and drops the graph then."""
    end = kind.capture_end

    def noting(graph: Any) -> None:
        count = None
        with suppress(Exception):
            count = _count_captured()
        end(graph)
        counts[graph] = None if _may_be_changed(graph) else count

    kind.capture_end = noting


def _may_be_changed(graph: Any) -> bool:
    """Return whether the graph is kept for its owner to change before it is instantiated (``keep_graph=True``)."""
    with suppress(Exception):
        return bool(graph.raw_cuda_graph())
    return False


def _count_captured() -> int | None:
    """Return the number of kernels in the graph that the current stream is being captured into."""
    import torch

    stream = torch.cuda.current_stream().cuda_stream
    state, identity, graph = ctypes.c_int(0), ctypes.c_uint64(0), ctypes.c_void_p()
    failed = cuda_driver().cuStreamGetCaptureInfo_v2(
        ctypes.c_void_p(stream), ctypes.byref(state), ctypes.byref(identity), ctypes.byref(graph), None, None
    )
    return None if failed or state.value != _CAPTURING else _count_kernels(graph.value)


@contextmanager
def _noting_before(kind: Any, method: str, note: Callable[[Any], None]) -> Iterator[None]:
    """Call ``note`` before each call of a method, with its object."""
    original = getattr(kind, method)

    def noting(graph: Any, *args: Any, **kwargs: Any) -> Any:
        note(graph)
        return original(graph, *args, **kwargs)

    setattr(kind, method, noting)
    try:
        yield
    finally:
        setattr(kind, method, original)


def _count_kernels(graph: int | None) -> int | None:
    """Return the number of kernel nodes that run in each replay, with those of child graphs; None if not known."""
    driver, count = cuda_driver(), ctypes.c_size_t(0)
    if driver.cuGraphGetNodes(ctypes.c_void_p(graph), None, ctypes.byref(count)):
        return None
    nodes = (ctypes.c_void_p * count.value)()
    if count.value and driver.cuGraphGetNodes(ctypes.c_void_p(graph), nodes, ctypes.byref(count)):
        return None
    kernels = 0
    for node in nodes:
        kind, child = ctypes.c_int(-1), ctypes.c_void_p()
        if driver.cuGraphNodeGetType(ctypes.c_void_p(node), ctypes.byref(kind)):
            return None
        kernels += kind.value == _KERNEL
        if kind.value == _CHILD and not driver.cuGraphChildGraphNodeGetGraph(
            ctypes.c_void_p(node), ctypes.byref(child)
        ):
            kernels += _count_kernels(child.value) or 0
    return kernels


@cache
def cuda_driver() -> ctypes.CDLL:
    """Return the driver's library."""
    return ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")


LEAST_WARMUP = 2
"""The counted call does not warm up compiled code: another one has to."""


class FlopCount:
    """The floating-point operations of one call; ``flops`` is None until a call was counted."""

    def __init__(self) -> None:
        self.flops: int | None = None

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count what runs inside, as written: compiled functions run eagerly here, and nothing is compiled.

        A dispatch mode alone would do harm: Dynamo skips a frame that it first meets under one, for good.
        """
        import torch
        from torch.utils.flop_counter import FlopCounterMode

        counter = FlopCounterMode(display=False)
        # Its own tracker hooks into every module, of which torch.compile warns; sums by module are not asked for.
        setattr(counter, "mod_tracker", _Nowhere())  # noqa: B010 - it is no ModuleTracker, and need not be one
        with torch.compiler.set_stance("force_eager"), counter:
            yield
        self.flops = int(counter.get_total_flops())


class _Nowhere(nullcontext[None]):
    """Replaces the counter's tracker of modules."""

    parents = frozenset({"Global"})
