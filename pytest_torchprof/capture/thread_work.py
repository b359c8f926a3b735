"""Work that the measured code hands to other Python threads, whose operators torch.profiler does not record."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial, wraps
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Threads that run no operators of a model: progress bars, the ends of queues and pools of processes, and of torch
# compilation, loading of data and the like. What a pool's own threads run is seen when it is handed to the pool.
_SERVICES = (
    *("tqdm.", "asyncio.base_events.BaseEventLoop._do_shutdown", "concurrent.futures.", "pytest_torchprof."),
    *("multiprocessing.queues.", "multiprocessing.pool.Pool.", "logging."),
    *("torch._inductor.", "torch._vendor.", "torch._lazy.", "torch.utils.data.", "torch.profiler."),
    *("torch.distributed.", "torch.multiprocessing."),
)


@contextmanager
def handed_to_threads(seen: list[str]) -> Iterator[None]:
    """Add to ``seen`` the name of what is started as a thread, or handed to a pool of them, meanwhile."""
    with (
        _told(threading.Thread, "start", lambda thread: getattr(thread, "_target", None) or thread, seen),
        _told(ThreadPoolExecutor, "submit", lambda _, function, *__, **___: function, seen),
    ):
        yield


@contextmanager
def _told(owner: type, method: str, work_of: Callable[..., Any], seen: list[str]) -> Iterator[None]:
    original = getattr(owner, method)

    @wraps(original)
    def telling(*args: Any, **named: Any) -> Any:
        name = _name(work_of(*args, **named))
        if not name.startswith(_SERVICES):
            seen.append(name)
        return original(*args, **named)

    setattr(owner, method, telling)
    try:
        yield
    finally:
        # Whoever put something else there meanwhile keeps it.
        if getattr(owner, method) is telling:
            setattr(owner, method, original)


def _name(work: Any) -> str:
    function = work
    while isinstance(function, partial):
        # asyncio.to_thread hands over partial(context.run, what is meant, ...).
        carried = getattr(function.func, "__qualname__", "") == "Context.run" and function.args
        function = function.args[0] if carried else function.func
    name = getattr(function, "__qualname__", None) or type(function).__qualname__
    return f"{getattr(function, '__module__', None) or '?'}.{name}"
