"""Work on other threads: where the CPU is the device torch.profiler records nothing of it, so nothing is judged."""

from __future__ import annotations

import asyncio
import logging.handlers
import multiprocessing
import queue
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from multiprocessing.pool import ThreadPool

import pytest
import torch
import torch.distributed as dist
from facts import says, why_not

from pytest_torchprof import capture, load
from pytest_torchprof.reasons.lost_work import RanOnOtherThread

x = torch.ones(4, requires_grad=True)
START, SUBMIT = threading.Thread.start, ThreadPoolExecutor.submit


def work():
    return torch.ones(4).cos()


def on_a_thread():
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


async def elsewhere():
    await asyncio.to_thread(work)


@pytest.fixture
def pool():
    with ThreadPoolExecutor(1) as pool:
        pool.submit(work).result()
        yield pool


@pytest.fixture
def record(tmp_path):
    def run(function):
        plan = capture.Plan(device="cpu", warmup=1, steps=2, record=frozenset(), nodeid="test", label=None)
        for _ in capture.iterations(plan, tmp_path / "t.json", lambda _path: None):
            x.sum()
            function()
        assert (threading.Thread.start, ThreadPoolExecutor.submit) == (START, SUBMIT)
        return load(tmp_path / "t.json")

    return run


def refused(profile):
    assert why_not(lambda: profile.expect(max_kernels=100)).code == "other-thread"


def elsewhere_of(look):
    """Return what ran on another thread, for which nothing is judged."""
    reason = why_not(look)
    assert isinstance(reason, RanOnOtherThread)
    return reason.what


def test_kernels_of_a_thread_that_the_measured_code_starts_are_not_measured(record):
    refused(record(on_a_thread))


def test_kernels_of_a_pool_that_was_waiting_are_not_measured(record, pool):
    refused(record(lambda: pool.submit(work).result()))


OF_POOLS = {
    "apply": lambda pool: pool.apply(torch.sin, (x,)),
    "apply_async": lambda pool: pool.apply_async(torch.sin, (x,)).get(),
    "map": lambda pool: pool.map(torch.sin, [x]),
    "map_async": lambda pool: pool.map_async(func=torch.sin, iterable=[x]).get(),
    "starmap": lambda pool: pool.starmap(torch.sin, [(x,)]),
    "starmap_async": lambda pool: pool.starmap_async(torch.sin, [(x,)]).get(),
    "imap": lambda pool: list(pool.imap(torch.sin, [x])),
    "imap_unordered": lambda pool: list(pool.imap_unordered(torch.sin, [x])),
}


@pytest.mark.parametrize("hand_over", OF_POOLS.values(), ids=OF_POOLS)
def test_kernels_of_a_pool_of_multiprocessing_are_not_measured(record, hand_over):
    with ThreadPool(1) as pool:
        pool.apply(torch.sin, (x,))
        profile = record(lambda: hand_over(pool))
    assert elsewhere_of(lambda: profile.expect(max_kernels=100)).endswith("sin")
    assert not {"apply", "map", "imap"} & set(vars(ThreadPool))


OF_TORCH = {
    "a function": lambda: partial(torch.einsum, "i,i->", x, x),
    "a backward": lambda: (x * 2).sum().backward,
    "an optimizer's step": lambda: torch.optim.SGD([torch.nn.Parameter(x.clone())]).step,
    "a compiled module": lambda: partial(torch.compile(torch.nn.ReLU(), backend="eager"), x),
    "a graph module": lambda: partial(torch.fx.symbolic_trace(torch.nn.ReLU()), x),
}


@pytest.mark.parametrize("make", OF_TORCH.values(), ids=OF_TORCH)
def test_kernels_of_torchs_own_on_a_thread_are_not_measured(record, pool, make):
    profile = record(lambda: pool.submit(make()).result())
    assert elsewhere_of(lambda: profile.expect(max_kernels=100)).startswith("torch.")


@pytest.fixture
def alone_in_a_group():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def test_a_collective_on_a_thread_is_not_measured(record, pool, alone_in_a_group):
    profile = record(lambda: pool.submit(dist.all_reduce, torch.ones(4)).result())
    for limits in ({"collectives": {"all_reduce": 0}}, {"max_comm_bytes": 0}, {"max_kernels": 100}):
        what = elsewhere_of(partial(profile.expect, **limits))
        assert (what.startswith("torch.distributed."), what.endswith("all_reduce")) == (True, True)


def test_kernels_of_an_asynchronous_thread_are_not_measured(record):
    refused(record(lambda: asyncio.run(elsewhere())))


def test_an_event_loop_on_a_thread_is_not_measured(record, pool):
    async def computes():
        work()

    for runs in (lambda: pool.submit(asyncio.run, computes()).result(), lambda: on_an_event_loop(computes)):
        assert elsewhere_of(partial(record(runs).expect, max_kernels=100)).startswith("asyncio.")


def on_an_event_loop(function):
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    asyncio.run_coroutine_threadsafe(function(), loop).result()
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def test_a_queue_between_processes_is_no_thread_of_the_code(record):
    queues = []

    def fill():
        queues.append(multiprocessing.Queue())
        queues[-1].put(1)

    record(fill).expect(max_kernels=100)
    for one in queues:
        assert one.get() == 1
        one.close()
        one.join_thread()


def test_a_listener_to_logs_is_no_thread_of_the_code(record):
    def listen():
        listener = logging.handlers.QueueListener(queue.SimpleQueue())
        listener.start()
        listener.stop()

    record(listen).expect(max_kernels=100)


ONLY_WAITING = {
    "an event": lambda: threading.Event().wait,
    "a sleep": lambda: partial(time.sleep, 0),
    "a queue": lambda: queue.Queue().get,
}


@pytest.mark.parametrize("make", ONLY_WAITING.values(), ids=ONLY_WAITING)
def test_a_thread_that_only_waits_hides_no_kernels(record, make):
    record(lambda: threading.Thread(target=make(), daemon=True).start()).expect(max_kernels=100)


def test_a_timer_may_call_anything(record):
    def later():
        timer = threading.Timer(0, work)
        timer.start()
        timer.join()

    assert elsewhere_of(lambda: record(later).expect(max_kernels=100)) == "threading.Timer"


def test_backward_and_a_data_loader_without_workers_are_measured(record):
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(4, 4)), batch_size=2)
    profile = record(lambda: [(x * batch[0]).sum().backward() for batch in loader])
    profile.expect(max_kernels=1000)


def test_where_a_thread_hides_kernels_what_needs_none_is_judged(run_tests):
    source = """
@torch.compile(backend="eager")
def function(y):
    return y + y

@pytest.mark.torchprof(device="cpu", max_graph_breaks=0)
def test_it():
    thread = threading.Thread(target=lambda: torch.add(x, x))
    thread.start()
    thread.join()
    function(x)
"""
    run_tests("import threading" + source).assert_outcomes(passed=1)
    without = source.replace("max_gr", "baseline=False, max_gr")
    run_tests("import threading" + without, "--torchprof-baseline=update").assert_outcomes(passed=1)
    result = run_tests("import threading" + source.replace("max_gr", "max_kernels=9, max_gr"))
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*max_kernels=9*not measured: *", "*[[]other-thread]*"])


def test_tables_and_ranges_are_refused_where_a_thread_hides_kernels(record):
    def in_a_range():
        with torch.profiler.record_function("range"):
            on_a_thread()

    profile = record(in_a_range)
    for look in (
        lambda: profile.table(by="kernel"),
        lambda: profile.table(by="family"),
        lambda: profile.range("range"),
    ):
        assert says(why_not(look), RanOnOtherThread)
