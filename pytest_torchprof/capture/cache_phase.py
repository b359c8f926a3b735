"""A process of its own whose compile caches were empty when it began, or filled by one before it; whether they were."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from pytest_torchprof.capture.torch_caches import graphs_kept, uses_so_far
from pytest_torchprof.codes import Code, coded
from pytest_torchprof.recording.caches import ColdStart, CompileCaches, Phase
from pytest_torchprof.text import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_torchprof.recording.metadata import CompileEvidence

# By a name that begins so, torch's own cache is known as generated code, which is no line of the user's.
_FOLDERS: Final = {"TORCHINDUCTOR_CACHE_DIR": "torchinductor_code", "TRITON_CACHE_DIR": "triton"}
_TOLD: Final = "cold.jsonl"
_ADVICE: Final = "see what misses: TORCH_LOGS=torch._inductor.codecache,torch._functorch._aot_autograd.autograd_cache"


class CachePhase(Struct, frozen=True, kw_only=True):
    """How the caches are when a process begins to measure a test, and the folder that they are in."""

    name: Phase
    folder: str
    fills: bool = False
    """Whether it is there only to fill them for the next one, and what it comes to is no result."""

    @property
    def variables(self) -> Mapping[str, str]:
        """The environment in which the process has to be started."""
        return {name: os.path.join(self.folder, below) for name, below in _FOLDERS.items()}  # noqa: PTH118

    @property
    def triton(self) -> Path:
        """Where Triton's kernels are."""
        return Path(self.variables["TRITON_CACHE_DIR"])

    @property
    def graphs(self) -> int:
        """How many graphs of Inductor's are in the folder."""
        return graphs_kept(Path(self.variables["TORCHINDUCTOR_CACHE_DIR"]))


class _Told(Struct, frozen=True, kw_only=True):
    """What a cold process leaves of one measurement for the warm one."""

    label: str | None
    start: ColdStart


def with_phase(evidence: CompileEvidence, phase: CachePhase | None, label: str | None) -> CompileEvidence:
    """Return the evidence of a measurement with how the caches were, and whether they were as they should be.

    A cold one leaves what it came to for the warm one of the same label, which takes it over.
    """
    if phase is None:
        return evidence
    caches = evidence.caches or CompileCaches()
    compiled = bool((evidence.time_us or {}).get("total"))
    if phase.name == "cold":
        told = _Told(label=label, start=ColdStart(time_us=evidence.time_us, uses=caches.uses))
        with Path(phase.folder, _TOLD).open("ab") as file:
            file.write(msgspec.json.encode(told) + b"\n")
        caches = replace(caches, phase=phase.name, doubt=_why_not_cold(evidence, phase) if compiled else None)
    else:
        cold = {one.label: one.start for one in _told_by_cold(phase)}.get(label)
        caches = replace(caches, phase=phase.name, doubt=_why_not_warm(evidence, cold) if compiled else None, cold=cold)
    if elsewhere := _elsewhere(phase):
        caches = replace(caches, doubt=elsewhere)
    return replace(evidence, caches=caches)


def _told_by_cold(phase: CachePhase) -> Iterator[_Told]:
    file = Path(phase.folder, _TOLD)
    for line in file.read_bytes().splitlines() if file.is_file() else ():
        yield msgspec.json.decode(line, type=_Told)


def _elsewhere(phase: CachePhase) -> str | None:
    moved = [name for name, folder in phase.variables.items() if os.environ.get(name) != folder]
    if not moved:
        return None
    said = f"{moved[0]} was set while the test ran, so that its caches are not those of the measurement's own folder"
    return coded(said, Code.COMPILE_CACHE)


def _why_not_cold(evidence: CompileEvidence, phase: CachePhase) -> str | None:
    """Return why what was compiled was not compiled anew.

    The folder was empty. What is found in it all the same is the process's own, if it has made every graph that lies
    there: where a program has the same graph twice, the second one is found however cold the start.
    """
    uses = uses_so_far(phase.triton)
    for name, use in (("Inductor", uses.inductor), ("AOTAutograd", uses.aot_autograd), ("Dynamo", uses.dynamo)):
        if use.hits is None or use.misses is None:
            return coded(f"this version of torch does not tell what is found in {name}'s cache", Code.COMPILE_CACHE)
        foreign = use.hits > 0 and (use.misses == 0 or (use is uses.inductor and phase.graphs > use.misses))
        if foreign or (use is uses.inductor and evidence.remote_cache_hits):
            said = (
                f"{counted(use.hits, 'entry')} found in {name}'s cache, though its folder was empty when the process "
                "began: from a remote cache, or loaded by the test (torch.compiler.load_cache_artifacts)"
            )
            return coded(said, Code.COMPILE_CACHE)
    return None


def _why_not_warm(evidence: CompileEvidence, cold: ColdStart | None) -> str | None:
    if cold is None:
        said = "the process that was to fill the caches has not measured this, so they were not warm"
        return coded(said, Code.COMPILE_CACHE)
    uses = uses_so_far(None)
    for name, use in (("Inductor", uses.inductor), ("AOTAutograd", uses.aot_autograd), ("Dynamo", uses.dynamo)):
        if use.hits is None or use.misses is None:
            return coded(f"this version of torch does not tell what is found in {name}'s cache", Code.COMPILE_CACHE)
        if use.misses:
            asked = counted(use.hits + use.misses, "entry")
            said = f"{use.misses} of {asked} not found in {name}'s cache, which a process before this one has filled"
            return f"{coded(said, Code.COMPILE_CACHE)}; {_ADVICE}"
    if evidence.caches is not None and evidence.caches.uses.triton.misses:
        kernels = counted(evidence.caches.uses.triton.misses, "kernel")
        said = f"{kernels} compiled by Triton, though a process before this one has filled its cache"
        return coded(said, Code.COMPILE_CACHE)
    if not (uses.inductor.hits or uses.aot_autograd.hits or uses.dynamo.hits):
        passed = uses.inductor.bypasses or uses.aot_autograd.bypasses
        why = (
            "torch cannot keep any of these graphs in its caches"
            if passed
            else "torch has looked nothing up in its caches: they are switched off, or the backend has none"
        )
        return f"{coded(f'{why}, so nothing was warm', Code.COMPILE_CACHE)}; {_ADVICE}"
    return None
