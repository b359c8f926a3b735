"""What torch has about CUDA's GPUs and ROCm's: its private names, each in a function that says what it is for; graphs.

Run with torch 2.13.0, 2.14.1 and 2.15.0; names that older versions (from 2.6) may lack are looked up with a default.
"""

from __future__ import annotations

import ctypes
import sys
import threading
import warnings
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from pytest_torchprof.capture.devices import Replays

if TYPE_CHECKING:
    from collections.abc import Iterator


def has_gpu() -> bool:
    """Whether torch can use a CUDA or ROCm device in this process."""
    import torch

    _let_torch_look_for_gpus()
    return torch.cuda.is_available()


@cache
def _let_torch_look_for_gpus() -> None:
    """Let torch warn now, unheard, of what it finds: once, and where warnings are errors that would be raised."""
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.cuda.is_available()


def has_context(index: int) -> bool:
    """Whether this process holds a context on that GPU; True where torch does not tell."""
    import torch

    tell = getattr(torch._C, "_cuda_hasPrimaryContext", None)
    return bool(tell(index)) if tell else True


def spin(device: str, cycles: int) -> bool:
    """Keep a GPU's current stream busy for so many cycles of its clock, without use of memory; False if torch cannot.

    Run with torch 2.15 (CUDA); undocumented, and in torch since long before 2.6.
    """
    import torch

    sleep = getattr(torch.cuda, "_sleep", None)
    if sleep is None:
        return False
    with torch.cuda.device(device):
        sleep(cycles)
    return True


def cannot_use_gpus_since_fork() -> bool:
    """Whether this process was forked from one that had asked for its GPUs: CUDA refuses to begin again in it."""
    tell = getattr(import_module("torch.cuda"), "_is_in_bad_fork", None)
    return bool(tell and tell())


def precision_flags() -> dict[str, Any]:
    """Return `tf32_matmul`, `tf32_cudnn` and `matmul_precision` as torch has them set; None where it will not say.

    Since 2.9 torch has two sets of these flags, and asking by the older one raises once the newer one was used.
    """
    import torch

    precision = getattr(torch._C, "_get_fp32_precision_getter", None)
    if precision:
        matmul, convolution = precision("cuda", "matmul") == "tf32", precision("cuda", "conv") == "tf32"
    else:
        matmul, convolution = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    try:
        overall: str | None = torch.get_float32_matmul_precision()
    except RuntimeError:
        overall = None
    return {"tf32_matmul": matmul, "tf32_cudnn": convolution, "matmul_precision": overall}


# As the driver numbers the types of nodes.
_KERNEL, _CHILD = 0, 4


@cache
def _kernels_of_graphs() -> WeakKeyDictionary[Any, int | None] | None:
    """Begin to count the kernels of each graph that is instantiated from here on; None where torch does not tell.

    Before 2.14 it does not, nor does ROCm. None in place of a number: not known.
    """
    if not has_gpu():
        return None
    import torch
    from torch.cuda import graphs

    register = getattr(graphs, "register_graph_instantiate_hook", None)
    if register is None or torch.version.hip:
        return None
    found = WeakKeyDictionary[Any, int | None]()

    def note(graph: Any) -> None:
        # Now, while its template is there; what is raised here torch keeps to itself.
        found[graph] = None
        found[graph] = _kernels(graph.raw_cuda_graph())

    register(note)
    return found


@contextmanager
def replays() -> Iterator[Replays]:
    """Note the replays that the code inside makes; the first time, begin to watch graphs being instantiated."""
    kernels, found = _kernels_of_graphs(), Replays()
    if kernels is None:
        yield found
        return
    from torch.cuda import graphs

    def note(graph: Any) -> None:
        found.kernels.append(kernels.get(graph))
        found.threads.add(threading.get_ident())

    hooks: Any = graphs
    handle = hooks.register_graph_replay_start_hook(note)
    try:
        yield found
    finally:
        handle.remove()


def _kernels(graph: int | None) -> int | None:
    """Return the number of kernel nodes, those of child graphs too, which run in each replay; None: not known."""
    driver, count = _driver(), ctypes.c_size_t(0)
    if driver.cuGraphGetNodes(ctypes.c_void_p(graph), None, ctypes.byref(count)):
        return None
    nodes = (ctypes.c_void_p * count.value)()
    if count.value and driver.cuGraphGetNodes(ctypes.c_void_p(graph), nodes, ctypes.byref(count)):
        return None
    found = 0
    for node in nodes:
        kind, child = ctypes.c_int(-1), ctypes.c_void_p()
        if driver.cuGraphNodeGetType(ctypes.c_void_p(node), ctypes.byref(kind)):
            return None
        found += kind.value == _KERNEL
        if kind.value == _CHILD and not driver.cuGraphChildGraphNodeGetGraph(
            ctypes.c_void_p(node), ctypes.byref(child)
        ):
            found += _kernels(child.value) or 0
    return found


@cache
def _driver() -> ctypes.CDLL:
    return ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
