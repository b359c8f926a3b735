"""What a pool's processes are given and come to reaches who is to have it, by a file or as the pool hands it over."""

from __future__ import annotations

import pickle
import signal
import sys
from concurrent.futures import BrokenExecutor, CancelledError, Future, ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from threading import Event

import pytest

from pytest_torchprof.system import interrupts
from pytest_torchprof.system.answer_files import FilePool
from pytest_torchprof.system.spawned_pool import SpawnedPool

pytestmark = pytest.mark.any_torch


@pytest.fixture
def pool():
    with ThreadPoolExecutor(1) as threads:
        yield threads


def test_an_answer_comes_by_a_file_that_goes(pool, tmp_path):
    assert FilePool(pool, str(tmp_path)).submit(sorted, "cab").result(60) == ["a", "b", "c"]
    assert list(tmp_path.iterdir()) == []


def test_where_the_folder_takes_no_file_it_comes_as_the_pool_hands_it_over(pool, tmp_path):
    assert FilePool(pool, str(tmp_path / "of another machine")).submit(sorted, "cab").result(60) == ["a", "b", "c"]
    assert FilePool(pool, "/dev/full").submit(sorted, "cab").result(60) == ["a", "b", "c"]


def test_an_error_is_raised_by_who_waits(pool, tmp_path):
    with pytest.raises(ZeroDivisionError):
        FilePool(pool, str(tmp_path)).submit(divmod, 1, 0).result(60)


def test_what_is_cancelled_is_not_begun(pool, tmp_path):
    done, begun = Event(), []
    pool.submit(done.wait, 60)
    asked = FilePool(pool, str(tmp_path)).submit(begun.append, 1)
    assert asked.cancel()
    done.set()
    with pytest.raises(CancelledError):
        asked.result(60)
    pool.shutdown()
    assert begun == []


@pytest.mark.skipif(sys.platform == "win32", reason="what the pool closes there is another end")
def test_a_pool_that_closes_its_pipes_while_it_is_given_something_is_broken(tmp_path):
    """As Python 3.11's does when a process dies just while another one begins."""
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        pool._call_queue._reader.close()
        with pytest.raises(BrokenExecutor):
            FilePool(pool, str(tmp_path)).submit(sorted, "cab")


def test_a_pool_that_was_shut_down_is_broken(pool, tmp_path):
    pool.shutdown()
    with pytest.raises(BrokenExecutor):
        FilePool(pool, str(tmp_path)).submit(sorted, "cab")


class BreaksAsItTakes(ThreadPoolExecutor):
    """Fails what it was given first just when it is given more, which it forgets."""

    def __init__(self):
        super().__init__(1)
        self.taken = []

    def submit(self, *_):
        for future in self.taken:
            future.set_exception(BrokenExecutor("a process has died"))
        self.taken = [Future()]
        return self.taken[0]


def test_what_a_pool_is_given_just_as_it_breaks_fails_too(tmp_path):
    pool = FilePool(BreaksAsItTakes(), str(tmp_path))
    for given in [pool.submit(sorted, "cab"), pool.submit(sorted, "cab")]:
        with pytest.raises(BrokenExecutor, match="has died"):
            given.result(5)


LARGE = b"x" * (1 << 20)
"""More than a pipe holds."""


@pytest.fixture
def sent(monkeypatch):
    """Return the sizes in bytes of what pools of processes are given."""
    sizes = []

    def submit(self, act, *given):
        sizes.append(len(pickle.dumps((act, given))))
        return given_to(self, act, *given)

    given_to = ProcessPoolExecutor.submit
    monkeypatch.setattr(ProcessPoolExecutor, "submit", submit)
    return sizes


def test_no_message_to_a_process_fills_a_pipe_so_that_none_is_left_half_read_where_one_is_killed(sent, tmp_path):
    with SpawnedPool(str(tmp_path), processes=1, begin=interrupts.ignore) as pool:
        assert pool.submit(len, LARGE).result(60) == len(LARGE)
    assert sent[0] < 4096  # as much as any pipe holds
    assert list(tmp_path.iterdir()) == []


def test_where_the_disk_is_full_it_is_sent_as_the_pool_does(sent):
    with SpawnedPool("/dev/full", processes=1, begin=interrupts.ignore) as pool:
        assert pool.submit(len, LARGE).result(60) == len(LARGE)
    assert sent[0] > len(LARGE)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows bounds no file's size")
def test_what_a_full_disk_took_of_it_is_no_longer_there(tmp_path):
    import resource

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    with SpawnedPool(str(tmp_path), processes=1, begin=interrupts.ignore) as pool:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
        try:
            asked = pool.submit(len, LARGE)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
            signal.signal(signal.SIGXFSZ, ignored)
        assert asked.result(60) == len(LARGE)
    assert list(tmp_path.iterdir()) == []
