"""Reasons about the caches of torch.compile: whether a start was cold or warm is not known, or it was not."""

from __future__ import annotations

from typing import Final

from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.reason import Reason

AOT_AUTOGRAD: Final = "AOTAutograd"
_SEE_MISSES: Final = (
    "see what misses: TORCH_LOGS=torch._inductor.codecache,torch._functorch._aot_autograd.autograd_cache"
)
# Asked after Inductor's: where that found all, AOTAutograd's lacks what it never kept.
_BACKWARD: Final = (
    "it keeps a graph with a backward pass once that was called: call it, or measure under torch.no_grad(); "
)


class CachesMoved(Reason, frozen=True):
    """A variable that says where caches are was set while the test ran."""

    CODE = Code.COMPILE_CACHE
    SENTENCE = "{variable} was set while the test ran, so that its caches are not those of the measurement's own folder"
    MEANING = "a conftest, a fixture or the test chooses another folder than the measurement's own"
    ADVICE = "leave the variable as it is in this test"

    variable: str


class FoundOfThisProcess(Reason, frozen=True):
    """The entries found in a cache may be from the same process, before the measurement."""

    CODE = Code.COMPILE_CACHE
    SENTENCE = (
        "{hits:entry} found in {cache}'s cache, where the same process may have left them when it compiled before this "
        "measurement"
    )
    MEANING = "the test has compiled before this measurement, in a fixture or in another block"
    ADVICE = "give each start a test of its own"

    hits: int
    cache: str


class FoundFromElsewhere(Reason, frozen=True):
    """Something was found in a cache whose folder was empty."""

    CODE = Code.COMPILE_CACHE
    SENTENCE = (
        "{hits:entry} found in {cache}'s cache, though its folder was empty when the process began: from a remote "
        "cache, or loaded by the test (torch.compiler.load_cache_artifacts)"
    )
    MEANING = "a remote cache answered, or the test has loaded what another process has compiled"
    ADVICE = 'switch the remote cache off for the test, or measure `compile_cache="warm"`'

    hits: int
    cache: str


class CacheUntold(Reason, frozen=True):
    """How much was found in a cache is not known."""

    CODE = Code.COMPILE_CACHE
    SENTENCE = (
        "how much was found in {cache}'s cache is not known: this torch does not count it, or its counters were "
        "cleared meanwhile"
    )
    MEANING = "this version of torch does not count it, or the code has cleared `torch._dynamo.utils.counters`"
    ADVICE = "leave them as they are; another version of torch; or `max_compile_time` without `compile_cache`"

    cache: str


class CachesNotFilled(Reason, frozen=True):
    """The process that was to fill the caches has not measured this."""

    CODE = Code.COMPILE_CACHE
    SENTENCE = "the process that was to fill the caches has not measured this, so they were not warm"
    MEANING = "it ended before, or its measurements have other labels"
    ADVICE = "let the test do the same in each process"


class NotFoundInCache(Reason, frozen=True):
    """A process before filled a cache, and some of it was not found."""

    CODE = Code.COMPILE_CACHE
    SENTENCE = "{misses} of {lookups:entry} not found in {cache}'s cache, which a process before this one has filled"
    MEANING = (
        "the process before this one compiled the same test, and the key of a graph has changed in between: "
        "something in it differs from process to process; of AOTAutograd's, or the graph has a backward pass that "
        "was never called"
    )
    ADVICE = (
        "`TORCH_LOGS` as in the text shows both keys; take out what differs (a path, an address, the order of a "
        "set, a size); call `backward()`, or measure under `torch.no_grad()`"
    )

    misses: int
    lookups: int
    cache: str

    @property
    def remedy(self) -> str:
        return f"{_BACKWARD if self.cache == AOT_AUTOGRAD else ''}{_SEE_MISSES}"


class CompiledByTriton(Reason, frozen=True):
    """Triton compiled kernels that a process before had compiled."""

    CODE = Code.COMPILE_CACHE
    SENTENCE = "{kernels:kernel} compiled by Triton, though a process before this one has filled its cache"
    MEANING = "Triton's own cache did not hold them"
    ADVICE = "as for Inductor's"

    kernels: int


class NothingWasWarm(Reason, frozen=True):
    """torch found nothing in its caches, and could not have."""

    CODE = Code.COMPILE_CACHE
    REMEDY = _SEE_MISSES
    MEANING = "the caches are switched off, the backend has none, or the graphs hold what cannot be kept"
    ADVICE = (
        "switch them on (`TORCHINDUCTOR_FORCE_DISABLE_CACHES`, `TORCHINDUCTOR_FX_GRAPH_CACHE`), or measure "
        '`compile_cache="cold"`'
    )

    bypassed: bool
    """Whether torch cannot keep any of the graphs."""

    @property
    def sentence(self) -> str:
        none_asked = "torch has looked nothing up in its caches: they are switched off, or the backend has none"
        why = "torch cannot keep any of these graphs in its caches" if self.bypassed else none_asked
        return f"{why}, so nothing was warm"
