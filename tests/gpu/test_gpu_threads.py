"""Work that a step hands to another thread, which launches it when the step is over: it counts, or nothing is judged."""

from __future__ import annotations

import pytest
import torch

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA or ROCm device; torch sees none"),
]

CODE = """
import asyncio, queue, threading, time
from concurrent.futures import ThreadPoolExecutor

x = torch.ones(64, device="cuda")
y = torch.ones(64, device="cuda")
pool, todo, loop = ThreadPoolExecutor(2), queue.Queue(), asyncio.new_event_loop()
pool.submit(int).result()

def a_hundred():
    for _ in range(100):
        y.add_(1)

def later():
    time.sleep(0.1)
    a_hundred()

async def soon():
    a_hundred()

def engine():
    while (work := todo.get()) is not None:
        work()
        todo.task_done()

threading.Thread(target=engine, daemon=True).start()
threading.Thread(target=loop.run_forever, daemon=True).start()
"""
LATE = {
    "a pool's thread": "pool.submit(later)",
    "a thread": "threading.Thread(target=later).start()",
    "an engine that takes it from a queue": "todo.put(a_hundred)",
    "an event loop's pool": "asyncio.get_event_loop_policy().new_event_loop().run_in_executor(pool, later)",
    "an event loop": "asyncio.run_coroutine_threadsafe(soon(), loop)",
}


@pytest.mark.parametrize("late", LATE)
def test_what_another_thread_launches_after_the_last_step_keeps_no_limit(run_tests, late):
    body = f"    x.add_(1)\n    {LATE[late]}\n"
    result = run_tests(f"{CODE}\n@pytest.mark.torchprof(max_kernels=1)\ndef test_it():\n{body}", in_process=False)
    result.assert_outcomes(failed=1)
    text = result.stdout.str()
    assert "[other-thread]" in text or "1 limit missed: max_kernels" in text


def test_what_it_has_launched_by_the_end_of_the_step_counts(run_tests):
    waiting = """
def test_it(torchprof):
    profile = torchprof(lambda: (x.add_(1), pool.submit(a_hundred).result(), todo.put(a_hundred), todo.join()))
    assert profile.kernels.count == 201
"""
    run_tests(CODE + waiting, in_process=False).assert_outcomes(passed=1)


IDLE = {
    "threads that wait for work": "pass",
    "a pool that has done its work": "pool.submit(time.sleep, 0.01).result()",
    "a pool of the step's own": "ThreadPoolExecutor(2).submit(time.sleep, 0.01)",
    "a loader with workers": "list(torch.utils.data.DataLoader(range(4), num_workers=1))",
}


@pytest.mark.parametrize("idle", IDLE)
def test_a_thread_that_launches_nothing_changes_no_verdict(run_tests, idle):
    body = f"    x.add_(1)\n    {IDLE[idle]}\n"
    result = run_tests(f"{CODE}\n@pytest.mark.torchprof(max_kernels=1)\ndef test_it():\n{body}", in_process=False)
    result.assert_outcomes(passed=1)
