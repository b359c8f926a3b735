"""The peak of torch's CUDA allocator, even if it is reset while it is taken; torch's private names for that.

Run with torch 2.15.0 (CUDA, simulated device). Every reset of the peak in Python calls one of two functions of
``torch._C``; older versions lack the second. A reset in another way is noticed when the peak goes down.
"""

from __future__ import annotations

from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from pytest_torchprof.capture.devices import Peaks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_RESETS: Final = ("_cuda_resetPeakMemoryStats", "_accelerator_resetPeakStats")


class CudaPeaks(Peaks):
    """The largest peak of each GPU, over all times between two resets."""

    def __init__(self) -> None:
        self._before: dict[int, int] = {}
        self._last: dict[int, int] = {}
        self.was_reset_unseen = False

    def look(self, indices: tuple[int, ...]) -> None:
        for index in indices:
            peak = _peak_bytes(index)
            self.was_reset_unseen |= peak < self._last.get(index, 0)
            self._last[index] = peak

    def largest_bytes(self, indices: tuple[int, ...]) -> int | None:
        self.look(indices)
        return max((max(self._last[index], self._before.get(index, 0)) for index in indices), default=None)

    def resetting(self, index: int) -> None:
        """Take the peak of a GPU that is about to be reset."""
        self.look((index,))
        self._before[index] = max(self._last.pop(index), self._before.get(index, 0))


@contextmanager
def peaks(indices: tuple[int, ...]) -> Iterator[CudaPeaks]:
    """Begin new peaks on these GPUs, and watch resets on any GPU and thread."""
    import torch

    for index in indices:
        torch.cuda.reset_peak_memory_stats(index)
    cuda_peaks, module = CudaPeaks(), vars(import_module("torch._C"))
    originals: dict[str, Any] = {name: module[name] for name in _RESETS if name in module}
    noting: dict[str, Any] = {name: _noting_reset(original, cuda_peaks) for name, original in originals.items()}
    module.update(noting)
    try:
        cuda_peaks.look(indices)
        yield cuda_peaks
    finally:
        # If somebody else has replaced it meanwhile, that stays.
        module.update({name: original for name, original in originals.items() if module[name] is noting[name]})


def _noting_reset(original: Callable[[Any], None], cuda_peaks: CudaPeaks) -> Callable[[Any], None]:
    def reset(index: Any) -> None:
        # torch itself raises for an index that it refuses.
        if isinstance(index, int) and 0 <= index < _gpus():
            cuda_peaks.resetting(index)
        original(index)

    return reset


def _gpus() -> int:
    import torch

    return torch.cuda.device_count()


def _peak_bytes(index: int) -> int:
    import torch

    allocated = torch.cuda.memory_stats_as_nested_dict(index).get("allocated_bytes")
    # Nothing is counted before the allocator is first used.
    return int(allocated["all"]["peak"]) if allocated else 0
