"""A process of its own whose compile caches are to be empty when it begins, or filled by an earlier one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from pytest_torchprof.capture.torch_caches import graphs_kept, uses_so_far
from pytest_torchprof.reasons.caches import (
    AOT_AUTOGRAD,
    CachesMoved,
    CachesNotFilled,
    CacheUntold,
    CompiledByTriton,
    FoundFromElsewhere,
    FoundOfThisProcess,
    NotFoundInCache,
    NothingWasWarm,
)
from pytest_torchprof.reasons.decoding import to_stored
from pytest_torchprof.trace.caches import ColdStart, CompileCaches, Phase

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_torchprof.reasons.reason import Reason
    from pytest_torchprof.trace.caches import CacheUse, CacheUses
    from pytest_torchprof.trace.compile_evidence import CompileEvidence

# By this beginning of its name torch's own cache is recognised as generated code, which is not the user's.
_FOLDERS: Final = {"TORCHINDUCTOR_CACHE_DIR": "torchinductor_code", "TRITON_CACHE_DIR": "triton"}
_SHOWN: Final = {"inductor": "Inductor", "aot_autograd": AOT_AUTOGRAD, "dynamo": "Dynamo"}
_COLD_RESULTS: Final = "cold.jsonl"


class CachePhase(Struct, frozen=True, kw_only=True):
    """The state of the caches when a process begins to measure a test, and their folder."""

    name: Phase
    folder: str
    fills: bool = False
    """Whether the process only fills them for the next one, so that its outcome is no result."""

    @property
    def variables(self) -> Mapping[str, str]:
        """The environment in which the process has to be started."""
        return {name: os.path.join(self.folder, below) for name, below in _FOLDERS.items()}  # noqa: PTH118

    @property
    def triton(self) -> Path:
        """The folder of Triton's kernels."""
        return Path(self.variables["TRITON_CACHE_DIR"])

    @property
    def graphs(self) -> int:
        """The number of Inductor's graphs in the folder."""
        return graphs_kept(Path(self.variables["TORCHINDUCTOR_CACHE_DIR"]))


class _ColdResult(Struct, frozen=True, kw_only=True):
    """The compile evidence of one measurement that a cold process leaves for the warm one."""

    label: str | None
    start: ColdStart


def with_phase(evidence: CompileEvidence, phase: CachePhase | None, label: str | None) -> CompileEvidence:
    """Return the evidence of a measurement with how the caches were, and whether they were as they should be.

    A cold one leaves its result for the warm one of the same label, which takes it over.
    """
    if phase is None:
        return evidence
    caches = evidence.caches or CompileCaches()
    compiled = bool((evidence.time_us or {}).get("total"))
    if phase.name == "cold":
        result = _ColdResult(label=label, start=ColdStart(time_us=evidence.time_us, uses=caches.uses))
        with Path(phase.folder, _COLD_RESULTS).open("ab") as file:
            file.write(msgspec.json.encode(result) + b"\n")
        caches = replace(
            caches, phase=phase.name, doubt=to_stored(_why_not_cold(evidence, caches.uses, phase) if compiled else None)
        )
    else:
        cold = {left.label: left.start for left in _cold_results(phase)}.get(label)
        caches = replace(
            caches, phase=phase.name, doubt=to_stored(_why_not_warm(caches.uses, cold) if compiled else None), cold=cold
        )
    if elsewhere := _why_moved(phase):
        caches = replace(caches, doubt=elsewhere.to_plain())
    return replace(evidence, caches=caches)


def _cold_results(phase: CachePhase) -> Iterator[_ColdResult]:
    file = Path(phase.folder, _COLD_RESULTS)
    for line in file.read_bytes().splitlines() if file.is_file() else ():
        yield msgspec.json.decode(line, type=_ColdResult)


def _why_moved(phase: CachePhase) -> Reason | None:
    moved = [name for name, folder in phase.variables.items() if os.environ.get(name) != folder]
    if not moved:
        return None
    return CachesMoved(moved[0])


def _why_not_cold(evidence: CompileEvidence, own: CacheUses, phase: CachePhase) -> Reason | None:
    """Return why the start was not cold; None if it was.

    The folder was empty. A cache may hit all the same, on the measurement's own graphs, if it made every graph in the
    folder: if a program has the same graph twice, the second one is a hit however cold the start.
    """
    so_far = uses_so_far(phase.triton)
    for name, shown in _SHOWN.items():
        use, total = getattr(own, name), getattr(so_far, name)
        if (reason := _why_uncounted(use, shown)) is not None:
            return reason
        if use.hits and total.misses > use.misses:
            return FoundOfThisProcess(use.hits, shown)
        is_foreign = use.misses == 0 or (name == "inductor" and phase.graphs > total.misses)
        if (use.hits and is_foreign) or (name == "inductor" and evidence.remote_cache_hits):
            return FoundFromElsewhere(use.hits, shown)
    return None


def _why_uncounted(use: CacheUse, shown: str) -> Reason | None:
    if use.hits is not None and use.misses is not None:
        return None
    return CacheUntold(shown)


def _why_not_warm(own: CacheUses, cold: ColdStart | None) -> Reason | None:
    if cold is None:
        return CachesNotFilled()
    so_far = uses_so_far(None)
    for name, shown in _SHOWN.items():
        # This measurement may find what the process itself compiled after an earlier miss.
        use, total = getattr(own, name), getattr(so_far, name)
        if (reason := _why_uncounted(use, shown) or _why_uncounted(total, shown)) is not None:
            return reason
        if total.misses:
            return NotFoundInCache(total.misses, total.hits + total.misses, shown)
    if own.triton.misses:
        return CompiledByTriton(own.triton.misses)
    if any(getattr(own, name).hits for name in _SHOWN):
        return None
    return NothingWasWarm(any(getattr(own, name).bypasses for name in _SHOWN))
