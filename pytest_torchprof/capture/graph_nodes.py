"""The driver's description of a graph that is being captured, and of its nodes."""

from __future__ import annotations

import ctypes
import sys
from functools import cache

from pytest_torchprof.capture.execution_trace import Described
from pytest_torchprof.capture.observers import cuda_driver

_TELLING = (
    "cuStreamGetCaptureInfo_v3",
    "cuGraphNodeGetToolsId",
    "cuGraphExecGetId",
    "cuGraphKernelNodeGetParams_v2",
    "cuFuncGetName",
)
_CAPTURING = 1
# As the driver numbers the types of nodes.
_KERNEL = 0
_KINDS = {_KERNEL: "kernel", 1: "memcpy", 2: "memset"}
# A child graph, and the body of a condition.
_HOLDING = (4, 13)
_PARAMETERS = 9
"""The length of ``CUDA_KERNEL_NODE_PARAMS`` in pointers; the first one is the function."""
_LONG = 1024
"""``kMaxSymbolSize`` of kineto's."""
_OF_GRAPH = 0xFFFFFFFF
"""The bits of a node's number that are the same in every graph instantiated from the captured one."""


def driver_knows_nodes() -> bool:
    """Return whether the driver is new enough."""
    return all(hasattr(cuda_driver(), name) for name in _TELLING)


def graph_of(stream: int) -> int | None:
    """Return the graph into which a stream is captured."""
    status, graph, rest = ctypes.c_int(0), ctypes.c_void_p(), [ctypes.c_void_p() for _ in range(3)]
    identity, count = ctypes.c_uint64(0), ctypes.c_size_t(0)
    failed = cuda_driver().cuStreamGetCaptureInfo_v3(
        ctypes.c_void_p(stream),
        *map(ctypes.byref, (status, identity, graph, rest[0], rest[1], count)),
    )
    return None if failed or status.value != _CAPTURING else graph.value


def nodes_of(graph: int | None) -> bytes | None:
    """Return the handles of a graph's nodes, which are pointers, in the driver's order; None: not known."""
    driver, count = cuda_driver(), ctypes.c_size_t(0)
    if driver.cuGraphGetNodes(ctypes.c_void_p(graph), None, ctypes.byref(count)):
        return None
    nodes = (ctypes.c_void_p * count.value)()
    if count.value and driver.cuGraphGetNodes(ctypes.c_void_p(graph), nodes, ctypes.byref(count)):
        return None
    return bytes(nodes)


def handles(nodes: bytes) -> tuple[int, ...]:
    """Return each of the handles."""
    return tuple(memoryview(nodes).cast("P"))


def holds_others(node: int) -> bool:
    """Return whether a node runs a graph of its own, or may: the nodes in that have other numbers."""
    kind = ctypes.c_int(-1)
    failed = cuda_driver().cuGraphNodeGetType(ctypes.c_void_p(node), ctypes.byref(kind))
    return bool(failed) or kind.value in _HOLDING


def described(node: int) -> Described | None:
    """Return the driver's description of a node; None if it runs nothing on the GPU, or is not described."""
    kind, number = ctypes.c_int(-1), ctypes.c_ulonglong(0)
    driver = cuda_driver()
    if driver.cuGraphNodeGetType(ctypes.c_void_p(node), ctypes.byref(kind)) or kind.value not in _KINDS:
        return None
    if driver.cuGraphNodeGetToolsId(ctypes.c_void_p(node), ctypes.byref(number)):
        return None
    is_kernel = kind.value == _KERNEL
    return Described(number.value & _OF_GRAPH, _KINDS[kind.value], _kernel_of(node) if is_kernel else None)


def _kernel_of(node: int) -> str | None:
    """Return the name of a node's kernel; None if the driver does not give it, as for kernels that are no functions."""
    driver, name = cuda_driver(), ctypes.c_char_p()
    parameters = (ctypes.c_void_p * _PARAMETERS)()
    if driver.cuGraphKernelNodeGetParams_v2(ctypes.c_void_p(node), parameters) or not parameters[0]:
        return None
    failed = driver.cuFuncGetName(ctypes.byref(name), ctypes.c_void_p(parameters[0]))
    return None if failed or name.value is None else _demangled(name.value)


@cache
def _demangled(name: bytes) -> str:
    """Return a kernel's name as the profiler writes it, which leaves long ones as they are."""
    if len(name) > _LONG or sys.platform == "win32":
        return name.decode()
    demangle = ctypes.CDLL("libstdc++.so.6")["__cxa_demangle"]
    demangle.restype = ctypes.c_void_p
    # The returned text is never freed: there is one for each kernel.
    demangled = demangle(name, None, None, None)
    return (ctypes.string_at(demangled) if demangled else name).decode()
