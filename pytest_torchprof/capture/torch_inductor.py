"""Inductor behind its private names, each in a function that says what it is for.

Run with torch 2.13 to 2.15, and with torch 2.6, which leaves no range around the call of a graph.
"""

from __future__ import annotations

import gc
import os
import re
import sys
from collections import Counter
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_torchprof.recording.metadata import InductorGraph

if TYPE_CHECKING:
    from collections.abc import Iterator

_CPU_KERNEL_PROFILING = "TORCHINDUCTOR_CPP_ENABLE_KERNEL_PROFILE"


@contextmanager
def cpu_kernels_profiled() -> Iterator[None]:
    """Let Inductor put a range around each C++ kernel that it generates meanwhile; off, they leave no event.

    Inductor is not imported for it: where nobody has, its environment variable is set, which it reads when imported.
    """
    loaded = sys.modules.get("torch._inductor.config")
    before = loaded.cpp.enable_kernel_profile if loaded else None
    variable = os.environ.get(_CPU_KERNEL_PROFILING)
    if loaded:
        loaded.cpp.enable_kernel_profile = True
    else:
        os.environ[_CPU_KERNEL_PROFILING] = "1"
    try:
        yield
    finally:
        if not loaded:
            os.environ.pop(_CPU_KERNEL_PROFILING, None)
            os.environ.update({} if variable is None else {_CPU_KERNEL_PROFILING: variable})
        config = sys.modules.get("torch._inductor.config")
        if config:
            config.cpp.enable_kernel_profile = variable == "1" if before is None else before


def inductor_graphs(*, cpu: bool) -> tuple[InductorGraph, ...]:
    """Return every graph of Inductor that is alive; it keeps no list of them, so the objects are looked for.

    With `cpu` they say whether they have C++ kernels without a range around them.
    """
    module = sys.modules.get("torch._inductor.output_code")
    kind = getattr(module, "CompiledFxGraph", None)
    if kind is None:
        return ()
    # An object refers to its type; to ask for that is three times as fast as to look at all objects.
    return tuple(_read_graph(found, cpu=cpu) for found in gc.get_referrers(kind) if type(found) is kind)


def calls_of_graphs_are_marked() -> bool:
    """Whether this torch puts a range with the graph's key around each call of a graph (2.13 does, 2.6 does not)."""
    kind = getattr(sys.modules.get("torch._inductor.output_code"), "CompiledFxGraph", None)
    code = getattr(vars(kind).get("__call__"), "__code__", None) if kind else None
    return code is None or any("CompiledFxGraph" in str(constant) for constant in code.co_consts)


def _read_graph(graph: Any, *, cpu: bool) -> InductorGraph:
    code_hash = getattr(graph, "cache_key", None)
    get_path = getattr(import_module("torch._inductor.codecache"), "get_path", None)
    path = get_path(code_hash, "py")[2] if get_path and code_hash else None
    source = getattr(graph, "source_code", None) or ""
    return InductorGraph(
        hash=getattr(graph, "_fx_graph_cache_key", None),
        code_hash=code_hash,
        code_path=path if path and Path(path).is_file() else None,
        cudagraph_skip=getattr(graph, "disabled_cudagraphs_reason", None),
        aten_calls=_aten_calls(source),
        unprofiled=cpu and _has_unprofiled_kernels(source),
    )


_CALLS_ATEN = re.compile(
    r"\b(?:extern_kernels|torch\.ops\.aten)\.(\w+)(?:\.\w+)?\(|\baoti_torch_(?:cpu|cuda|xpu)_(\w+)\("
)


def _aten_calls(source: str) -> dict[str, int]:
    """Count the aten kernels that the generated code calls itself, by operator ("aten::mm")."""
    found = (match[1] or match[2] for match in _CALLS_ATEN.finditer(source))
    return dict(Counter(f"aten::{name}" for name in found))


def _has_unprofiled_kernels(source: str) -> bool:
    has_kernels = "async_compile.cpp_pybinding(" in source or "cpp_fused" in source
    return has_kernels and not any(mark in source for mark in ("RecordFunction", "RECORD_FUNCTION"))
