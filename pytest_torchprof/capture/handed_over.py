"""What measured code hands to other Python threads, and whether they are done with it when the code is."""

from __future__ import annotations

import sys
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial, wraps
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Threads that run no operators of a model: those of progress bars, of queues and process pools, and torch's own for
# compilation, loading of data and the like. What a thread pool runs is seen when it is handed to the pool. Of
# torch.distributed only what supervises processes: whatever else runs there may compute or communicate.
_SERVICES = (
    *("tqdm.", "asyncio.base_events.BaseEventLoop._do_shutdown", "concurrent.futures.", "pytest_torchprof."),
    *("multiprocessing.queues.", "multiprocessing.pool.Pool.", "logging."),
    *("torch._inductor.", "torch._vendor.", "torch._lazy.", "torch.utils.data.", "torch.profiler."),
    *("torch.distributed.elastic.", "torch.distributed.debug.", "torch.multiprocessing."),
    # What only waits. Not all of threading: a Timer, a Barrier and Condition.wait_for call what they were given.
    *("time.", "threading.Event.wait", "threading.Thread.join", "threading.Semaphore.acquire"),
    *("queue.Queue.", "socket.", "selectors."),
)
_OF_POOLS: Final = ["apply", "apply_async", "map", "map_async", "starmap", "starmap_async", "imap", "imap_unordered"]
"""How multiprocessing's pool of threads is given work; its pool of processes inherits none of what is put there."""

PATIENCE_S: Final = 10.0
"""How long what was handed over may take once the measured code is done, and other threads may compute."""
_QUIET_S: Final = 1.0
"""For how long a daemon thread that a step has started does nothing once it is done with its work."""
_LOOK_S: Final = 0.02
_BUSY_S: Final = 0.001
"""So much of a look is more than a thread needs that only looks whether there is work."""


@dataclass(slots=True)
class HandedOver:
    """What measured code has handed to other Python threads, in the order in which it did."""

    names: list[str] = field(default_factory=list)
    work: WeakKeyDictionary[threading.Thread | Future[Any], str] = field(default_factory=WeakKeyDictionary)
    """Not kept alive: a result that outlives its step would count as the memory of the next."""

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Note what is started as a thread, or handed to a pool of them, meanwhile."""
        with (
            _note_calls(threading.Thread, "start", lambda thread: getattr(thread, "_target", None) or thread, self),
            _note_calls(ThreadPoolExecutor, "submit", lambda _, function, *__, **___: function, self),
            ExitStack() as pools,
        ):
            for method in _OF_POOLS:
                pools.enter_context(_note_calls(ThreadPool, method, lambda _, func, *__, **___: func, self))
            yield

    def why_unfinished(self, synchronize: Callable[[], None]) -> str | None:
        """Wait until other threads are done with what they were given; return what takes too long, None if nothing.

        What a thread takes from a queue of the code's own is not seen being put there: it is given time as long as it
        computes. A daemon thread may be there for good, and is done when it has not computed for a while.
        """
        over = time.monotonic() + PATIENCE_S
        work = dict(self.work)
        daemons = [item for item in work if isinstance(item, threading.Thread) and item.daemon]
        threads = [item for item in work if isinstance(item, threading.Thread) and not item.daemon]
        futures = [item for item in work if isinstance(item, Future)]
        for thread in threads:
            thread.join(max(over - time.monotonic(), 0))
        late: list[threading.Thread | Future[Any]] = [item for item in threads if item.is_alive()]
        late += wait(futures, max(over - time.monotonic(), 0)).not_done
        if late:
            return work[late[0]]
        over, quiet_s = time.monotonic() + PATIENCE_S, 0.0
        while time.monotonic() < over and quiet_s < (_QUIET_S if any(item.is_alive() for item in daemons) else _LOOK_S):
            if _others_compute():
                synchronize()
                quiet_s = 0.0
            else:
                quiet_s += _LOOK_S
        return None


def _others_compute() -> bool:
    """Return whether another Python thread computes right now, or would if it were given a processor."""
    before = _cpu_times_s()
    if before:
        time.sleep(_LOOK_S)
    spent = _cpu_times_s()
    return any(spent[thread] - before.get(thread, spent[thread]) > _BUSY_S or _is_runnable(thread) for thread in spent)


def _cpu_times_s() -> dict[int, float]:
    times_s: dict[int, float] = {}
    if sys.platform != "linux":  # pragma: no cover - elsewhere no clock can be asked for without danger of a crash
        return times_s
    for thread in threading.enumerate():
        if thread.native_id is not None and thread is not threading.current_thread():
            # As the kernel numbers the CPU clock of a thread; pthread_getcpuclockid may crash for one that has ended.
            with suppress(OSError):
                times_s[thread.native_id] = time.clock_gettime(~thread.native_id << 3 | 6)
    return times_s


def _is_runnable(thread: int) -> bool:
    """Whether a thread runs or waits for a processor: on a busy machine it may get none for longer than a look."""
    try:
        status = Path(f"/proc/self/task/{thread}/stat").read_text()
    except OSError:
        return False
    return status.rpartition(")")[2].split()[:1] == ["R"]


@contextmanager
def _note_calls(owner: type, method: str, work_of: Callable[..., Any], seen: HandedOver) -> Iterator[None]:
    original = getattr(owner, method)

    @wraps(original)
    def noting(*args: Any, **named: Any) -> Any:
        name = _name_of_work(work_of(*args, **named))
        if name.startswith(_SERVICES):
            return original(*args, **named)
        seen.names.append(name)
        result = original(*args, **named)
        # A pool of multiprocessing gives what it has computed, or what cannot be waited for without being used up.
        work = args[0] if result is None else result
        if isinstance(work, threading.Thread | Future):
            seen.work[work] = name
        return result

    inherited = method not in vars(owner)
    setattr(owner, method, noting)
    try:
        yield
    finally:
        # Whoever put something else there meanwhile keeps it.
        if getattr(owner, method) is noting:
            if inherited:
                delattr(owner, method)
            else:
                setattr(owner, method, original)


def _name_of_work(work: Any) -> str:
    function = work
    while isinstance(function, partial):
        # asyncio.to_thread hands over partial(context.run, what is meant, ...).
        carried = getattr(function.func, "__qualname__", "") == "Context.run" and function.args
        function = function.args[0] if carried else function.func
    name = getattr(function, "__qualname__", None) or type(function).__qualname__
    return f"{getattr(function, '__module__', None) or '?'}.{name}"
