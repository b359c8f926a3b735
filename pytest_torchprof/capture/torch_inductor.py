"""The graphs that Inductor has compiled, by private names, each in a function that says what it is for.

Run with torch 2.10.0, 2.13.0 and 2.15.0 on Python 3.11.
"""

from __future__ import annotations

import linecache
import re
import sys
from collections import Counter
from importlib import import_module
from pathlib import Path
from typing import Any

from pytest_torchprof.analysis.source_lines import name_in_source
from pytest_torchprof.capture.inductor_code import read_program
from pytest_torchprof.capture.living_objects import living_holders
from pytest_torchprof.capture.observers import is_users_file, path_from_here
from pytest_torchprof.capture.program_lines import CompiledLines, Sources
from pytest_torchprof.capture.torch_compile import compiled_codes, considered_codes
from pytest_torchprof.recording.corrections import operator_of
from pytest_torchprof.trace.compile_evidence import InductorGraph


def _is_loaded(file: str) -> bool:
    return any(getattr(module, "__file__", None) == file for module in list(sys.modules.values()))


_SOURCES = Sources(is_users=is_users_file, is_loaded=_is_loaded, text=linecache.getlines, shown=path_from_here)


def inductor_graphs(*, cpu: bool) -> tuple[InductorGraph, ...]:
    """Return every living graph of Inductor's; it keeps no list of them, so the objects are searched for.

    With `cpu` they say whether they have C++ kernels without a range around them.
    """
    module = sys.modules.get("torch._inductor.output_code")
    kind = getattr(module, "CompiledFxGraph", None)
    if kind is None:
        return ()
    compiled = tuple(
        CompiledLines(
            file=code.co_filename,
            function=name_in_source(code.co_name),
            lines=tuple(sorted({line for *_, line in code.co_lines() if line})),
            compilations=tuple(identity for identity, _ in compilations),
        )
        for code in considered_codes() or ()
        if (compilations := compiled_codes(code))
    )
    return tuple(_read_graph(graph, compiled, cpu=cpu) for graph in living_holders(kind, kind))


def _read_graph(graph: Any, compiled: tuple[CompiledLines, ...], *, cpu: bool) -> InductorGraph:
    code_hash = getattr(graph, "cache_key", None)
    get_path = getattr(import_module("torch._inductor.codecache"), "get_path", None)
    path = get_path(code_hash, "py")[2] if get_path and code_hash else None
    source = getattr(graph, "source_code", None) or ""
    facts = read_program(
        source,
        # The graph that the program was made of, which also comes with it from a cache.
        getattr(graph, "inductor_post_grad_graph_str", None) or "",
        # The stack behind what follows each of the program's lines.
        tuple((int(line), stack) for line, stack in getattr(graph, "cache_linemap", None) or ()),
        _SOURCES,
        compiled,
    )
    return InductorGraph(
        hash=getattr(graph, "_fx_graph_cache_key", None),
        code_hash=code_hash,
        code_path=path if path and Path(path).is_file() else None,
        cudagraph_skip=getattr(graph, "disabled_cudagraphs_reason", None),
        aten_calls=_aten_calls_in_source(source),
        unprofiled=cpu and _has_unprofiled_kernels(source),
        kernels=facts.kernels,
        calls=facts.calls,
        made_of=facts.made_of,
    )


_CALLS_ATEN = re.compile(r"\b(?:extern_kernels|torch\.ops\.aten)\.(\w+)(?:\.\w+)?\(|\b(aoti_torch_\w+)\(")


def _aten_calls_in_source(source: str) -> dict[str, int]:
    """Return how often the generated code itself calls aten kernels, by operator ("aten::mm")."""
    operators = (f"aten::{match[1]}" if match[1] else operator_of(match[2]) for match in _CALLS_ATEN.finditer(source))
    return dict(Counter(filter(None, operators)))


def _has_unprofiled_kernels(source: str) -> bool:
    has_kernels = any(mark in source for mark in ("async_compile.cpp_pybinding(", "cpp_fused", "aoti_torch_cpu_"))
    # The mark of the whole call says nothing about the kernels in it.
    marks = (line for line in source.splitlines() if "RecordFunction" in line or "RECORD_FUNCTION" in line)
    return has_kernels and not any("inductor_wrapper_call" not in line for line in marks)
