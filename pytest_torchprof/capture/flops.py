"""Counts the floating-point operations of one call of the measured code, while no profiler runs."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

LEAST_WARMUP = 2
"""The counted call warms up nothing that is compiled: another one has to."""


class FlopCount:
    """What one call did; ``flops`` is None until one was counted."""

    def __init__(self) -> None:
        self.flops: int | None = None

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count what runs inside, as written: compiled functions run eagerly here, and nothing is compiled.

        A dispatch mode alone would do harm: Dynamo skips a frame that it first meets under one, for good.
        """
        import torch
        from torch.utils.flop_counter import FlopCounterMode

        if not hasattr(torch.compiler, "set_stance"):  # pragma: no cover - torch before 2.6
            yield
            return
        counter = FlopCounterMode(display=False)
        # Its own tracker hooks into every module, of which torch.compile warns; sums by module are not asked for.
        setattr(counter, "mod_tracker", _Nowhere())  # noqa: B010 - it is no ModuleTracker, and need not be one
        with torch.compiler.set_stance("force_eager"), counter:
            yield
        self.flops = counter.get_total_flops()


class _Nowhere:
    """Stands where the counter asks in which modules it is."""

    parents = frozenset({"Global"})

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        pass
