"""Work that measured code hands to other Python threads, and whether it is done when the code is."""

from __future__ import annotations

import sys
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from msgspec import Struct, field

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
    # Functions that only wait. Not all of threading: a Timer, a Barrier and Condition.wait_for call other functions.
    *("time.", "threading.Event.wait", "threading.Thread.join", "threading.Semaphore.acquire"),
    *("queue.Queue.", "socket.", "selectors."),
)
_OF_POOLS: Final = ["apply", "apply_async", "map", "map_async", "starmap", "starmap_async", "imap", "imap_unordered"]
"""The methods that give multiprocessing's pool of threads work; its pool of processes does not inherit the hooks."""

PATIENCE_S: Final = 10.0
"""How long handed-over work may take, and other threads may compute, once the measured code is done."""
_QUIET_S: Final = 1.0
"""A daemon thread that a step has started counts as done when it has been idle for this long."""
_LOOK_S: Final = 0.02
_BUSY_S: Final = 0.001
"""A thread that only checks for work uses less CPU time than this between two looks."""


class HandedOver(Struct):
    """The work that measured code has handed to other Python threads, in the order in which it did."""

    names: list[str] = field(default_factory=list)
    work: WeakKeyDictionary[threading.Thread | Future[Any], str] = field(default_factory=WeakKeyDictionary)
    """Weak references: a result that outlives its step would count as the memory of the next."""

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Note the threads that are started meanwhile, and the work that is handed to pools of threads."""
        noted = [
            _note_calls(threading.Thread, "start", _target_of, self),
            _note_calls(ThreadPoolExecutor, "submit", lambda _, function, *__, **___: function, self),
            *(_note_calls(ThreadPool, method, lambda _, func, *__, **___: func, self) for method in _OF_POOLS),
        ]
        try:
            yield
        finally:
            for put_back in reversed(noted):
                put_back()

    def why_unfinished(self, synchronize: Callable[[], None]) -> str | None:
        """Wait until other threads are done with their work; return the work that takes too long, or None.

        Work that a thread takes from a queue of the code's own was not seen: the thread gets time as long as it
        computes. A daemon thread may never end, and is done when it has not computed for a while.
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
    """Return whether another Python thread computes right now, or waits for a processor."""
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
    """Return whether a thread runs or waits for a processor; on a busy machine it may wait longer than a look lasts."""
    try:
        status = Path(f"/proc/self/task/{thread}/stat").read_text()
    except OSError:
        return False
    return status.rpartition(")")[2].split()[:1] == ["R"]


def _target_of(thread: threading.Thread) -> Any:
    return getattr(thread, "_target", None) or thread


def _note_calls(owner: type, method: str, work_of: Callable[..., Any], seen: HandedOver) -> Callable[[], None]:
    """Note the calls of a method from now on; return a function that ends it."""
    original = getattr(owner, method)

    def noting(*args: Any, **named: Any) -> Any:
        name = _name_of_work(work_of(*args, **named))
        if name.startswith(_SERVICES):
            return original(*args, **named)
        seen.names.append(name)
        result = original(*args, **named)
        # A pool of multiprocessing returns finished results, or iterators that waiting would use up.
        work = args[0] if result is None else result
        if isinstance(work, threading.Thread | Future):
            seen.work[work] = name
        return result

    # As functools.wraps does, which takes several times as long: each step of each test replaces ten methods.
    noting.__wrapped__ = original  # type: ignore[attr-defined]
    noting.__name__, noting.__qualname__, noting.__doc__ = original.__name__, original.__qualname__, original.__doc__
    inherited = method not in vars(owner)
    setattr(owner, method, noting)

    def put_back() -> None:
        # If somebody else has replaced it meanwhile, that stays.
        if getattr(owner, method) is noting:
            if inherited:
                delattr(owner, method)
            else:
                setattr(owner, method, original)

    return put_back


def _name_of_work(work: Any) -> str:
    function = work
    while isinstance(function, partial):
        # asyncio.to_thread hands over partial(context.run, what is meant, ...).
        carried = getattr(function.func, "__qualname__", "") == "Context.run" and function.args
        function = function.args[0] if carried else function.func
    name = getattr(function, "__qualname__", None) or type(function).__qualname__
    return f"{getattr(function, '__module__', None) or '?'}.{name}"
