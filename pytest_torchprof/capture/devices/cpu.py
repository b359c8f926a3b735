"""The CPU that is measured as the device."""

from __future__ import annotations

from pathlib import Path

from pytest_torchprof.capture.devices import LiveDevice, WallClock, synchronize

# Where the system does not give the size of the last cache.
_CACHE_BYTES = 64 << 20


class Cpu(LiveDevice):
    """The CPU of this machine, all cores together."""

    numbered = False

    @classmethod
    def is_there(cls) -> bool:
        return True

    @classmethod
    def pick(cls, number: str, asked: str) -> str:  # noqa: ARG003
        return "cpu"

    def last_cache_bytes(self) -> int:
        levels = sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"))
        sizes = [path.read_text().strip() for path in levels]
        return max([int(size[:-1]) << 10 for size in sizes if size.endswith("K")], default=_CACHE_BYTES)

    def threads(self) -> int | None:
        import torch

        return torch.get_num_threads()

    def clock(self) -> WallClock:
        # A call returns when its work is done, unless the code uses GPUs too.
        return WallClock(lambda: synchronize(self.name))


LIVE = Cpu
