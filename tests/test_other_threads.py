"""Work that a step hands to another thread: waited for while it is recorded, and counted by nobody where it is late."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest
from builder import own_recording
from facts import why_not

from pytest_torchprof import load
from pytest_torchprof.capture import handed_over
from pytest_torchprof.capture.handed_over import HandedOver

pytestmark = pytest.mark.any_torch
OTHER = 77


@pytest.fixture
def patience(monkeypatch):
    monkeypatch.setattr(handed_over, "PATIENCE_S", 0.2)


def computes(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def works(over):
    over.wait()


@pytest.mark.parametrize("place", ["between two steps", "after all of them"])
def test_a_kernel_that_another_thread_launches_in_no_step_is_not_measured(tmp_path, place):
    builder = own_recording({"k": 1})
    builder.launched("late", 950 if place == "between two steps" else 1950, tid=OTHER)
    found = load(builder.write(tmp_path / "t.json"))
    assert why_not(lambda: found.expect(max_kernels=1)).code == "other-thread"


def test_one_that_it_launches_in_a_step_counts_there(tmp_path):
    builder = own_recording({"k": 1})
    builder.launched("late", 700, tid=OTHER)
    assert load(builder.write(tmp_path / "t.json")).kernels.count == 2


def test_a_copy_in_no_step_such_as_of_a_batch_that_is_loaded_ahead_changes_nothing(tmp_path):
    builder = own_recording({"k": 1})
    builder.memcpy("HtoD", 960, 10, builder.call("copy", 950, tid=OTHER))
    load(builder.write(tmp_path / "t.json")).expect(max_kernels=1, max_memcpys=0)


def test_what_was_handed_over_is_waited_for():
    handed, done = HandedOver(), []
    with handed.noted(), ThreadPoolExecutor(1) as pool:
        pool.submit(lambda: (time.sleep(0.05), done.append("pool")))
        threading.Thread(target=lambda: (time.sleep(0.1), done.append("thread"))).start()
        assert handed.why_unfinished(lambda: None) is None
        assert done == ["pool", "thread"]


@pytest.mark.parametrize("how", ["a thread", "a pool"])
def test_what_takes_too_long_is_named(patience, how):
    handed, over, pool = HandedOver(), threading.Event(), ThreadPoolExecutor(1)
    with handed.noted():
        if how == "a pool":
            pool.submit(works, over)
        else:
            threading.Thread(target=works, args=(over,)).start()
    assert handed.why_unfinished(lambda: None) == f"{__name__}.works"
    over.set()
    pool.shutdown()


def test_a_thread_that_was_there_before_and_computes_is_waited_for():
    begin, done = threading.Event(), []
    engine = threading.Thread(target=lambda: (begin.wait(), computes(0.1), done.append(1)))
    engine.start()
    begin.set()
    assert HandedOver().why_unfinished(lambda: None) is None
    assert done
    engine.join()


def test_a_daemon_thread_is_waited_for_and_may_stay():
    handed, done, over = HandedOver(), [], threading.Event()
    with handed.noted():
        threading.Thread(target=lambda: (time.sleep(0.1), done.append(1), over.wait()), daemon=True).start()
    assert handed.why_unfinished(lambda: None) is None
    assert done
    over.set()


def test_a_result_is_not_kept():
    class Result:
        pass

    handed = HandedOver()
    with handed.noted(), ThreadPoolExecutor(1) as pool:
        made = weakref.ref(pool.submit(Result).result())
    gc.collect()
    assert made() is None
    assert handed.names


def test_threads_that_wait_for_work_cost_next_to_nothing():
    handed, over = HandedOver(), threading.Event()
    idle = [threading.Thread(target=over.wait) for _ in range(4)]
    for thread in idle:
        thread.start()
    with handed.noted(), ThreadPoolExecutor(2) as pool:
        pool.submit(int).result()
        began = time.process_time()
        assert handed.why_unfinished(lambda: None) is None
        assert time.process_time() - began < 0.5
    over.set()
