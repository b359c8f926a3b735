"""What two processes read and work out of a large recording is what one does, and the same errors."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from builder import AUTOGRAD, TraceBuilder
from msgspec import Struct
from msgspec.structs import asdict
from pages import Page

from pytest_torchprof import UnreadableRecording, load
from pytest_torchprof.recording import reader, text, two_processes
from pytest_torchprof.report import analysis_json
from pytest_torchprof.report.page import build
from pytest_torchprof.report.page.build import Heading, page
from pytest_torchprof.report.page.measured import of_recording

pytestmark = pytest.mark.any_torch

TRACES = Path(__file__).parents[1] / "../shared/traces"


def training(steps=1500):
    """Some pieces' worth of events: two threads, two GPUs, a collective, arrows to the backward, allocations."""
    built = TraceBuilder()
    for step in range(steps):
        at = step * 100
        built.op(f"aten::op{step % 7}", at, 20, inputs=[([step % 11, 4], [4, 1], "float")])
        launched = built.launch(at + 2, 3)
        # Now and then a collective, and a kernel whose end was lost.
        told = {} if step % 50 else {"Collective name": "allreduce", "dtype": "Float"}
        built.kernel(f"kernel{step % 13}", at + 10, -1 if step % 70 == 1 else 5, launched, device=step % 2, **told)
        built.op("AddBackward0", at + 40, 10, tid=AUTOGRAD)
        built.backward_of(at, at + 40)
        built.allocation(512, at + 1)
    return built


def columns(trace):
    """Return all that was read, as plain data."""
    found = asdict(trace)
    for name, value in found.items():
        if isinstance(value, Struct):
            found[name] = {
                key: list(column.items() if isinstance(column, dict) else column)
                for key, column in asdict(value).items()
            }
    return found


class Here:
    """Stands in for the other process, so that what it does is seen: works in this one, when asked."""

    def __init__(self, work):
        self.answer = work

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


@pytest.fixture
def middle(monkeypatch):
    def set_to(place, other=Here):
        monkeypatch.setattr(reader, "border", lambda _: place)
        monkeypatch.setattr(reader, "Other", other)

    return set_to


@pytest.mark.parametrize("share", [0, 0.25, 0.5, 0.9, 2])
def test_wherever_the_file_is_shared_the_columns_are_the_same(tmp_path, middle, share):
    path = training().write(tmp_path / "t.json.gz")
    alone = columns(reader.read(path))
    assert len(alone["ops"]["start"]) == 3000
    assert text.size(str(path)) > 3 * text.PIECE
    middle(int(share * text.size(str(path))))
    assert columns(reader.read(path, by_two=True)) == alone


@pytest.mark.parametrize("path", sorted(TRACES.glob("*.json.gz")), ids=lambda path: path.stem)
def test_recordings_shared_by_two_have_the_same_columns(path, middle):
    """Collectives, arrows, allocations, odd thread ids, and events that are read one by one."""
    alone = columns(reader.read(path))
    middle(text.size(str(path)) // 2)
    assert columns(reader.read(path, by_two=True)) == alone


def test_where_the_other_process_fails_the_first_reads_on(tmp_path, middle):
    path = training().write(tmp_path / "t.json")
    alone = columns(reader.read(path))
    middle(text.size(str(path)) // 2, lambda _: Here(lambda: None))
    assert columns(reader.read(path, by_two=True)) == alone


def test_a_file_that_does_not_come_apart_is_read_by_one(tmp_path, middle):
    """Its events begin with different keys, so it has one piece, which is the first process's."""
    built = training(20)
    built.events = [event if i % 2 else dict(reversed(event.items())) for i, event in enumerate(built.events)]
    path = built.write(tmp_path / "t.json")
    alone = columns(reader.read(path))
    middle(text.size(str(path)) // 2)
    assert columns(reader.read(path, by_two=True)) == alone


def shared(path):
    """Read the file in a process of its own, allowed to fork; return what it printed and how many forks it made."""
    code = (
        "import os, sys; forks = []; fork = os.fork\n"
        "def counted(): forks.append(1); return fork()\n"
        "os.fork = counted\n"
        "from pytest_torchprof.errors import UnreadableRecording\n"
        "from pytest_torchprof.recording import reader, two_processes\n"
        "two_processes._LARGE = 1\n"
        "try: found = reader.read(sys.argv[1], by_two=True); print(found.events, sum(found.ops.start), found.names)\n"
        "except UnreadableRecording as refused: print(refused)\n"
        "print(len(forks))"
    )
    done = subprocess.run([sys.executable, "-c", code, path], check=True, capture_output=True, text=True)
    assert not done.stderr
    *text, forks = done.stdout.splitlines()
    return "\n".join(text), int(forks)


needs_two_cpus = pytest.mark.skipif(
    not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs"
)


@needs_two_cpus
def test_a_process_of_one_thread_is_helped_by_another(tmp_path):
    path = training().write(tmp_path / "t.json.gz")
    alone = reader.read(path)
    assert shared(path) == (f"{alone.events} {sum(alone.ops.start)} {alone.names}", 1)


@needs_two_cpus
@pytest.mark.parametrize("where", [0.2, 0.9])
def test_what_is_damaged_is_refused_in_the_same_words(tmp_path, where):
    """In the first process's part, and in the other's."""
    text = training().text().encode()
    place = text.index(b'"ph"', int(where * len(text)))
    path = tmp_path / "t.json"
    path.write_bytes(text[:place] + b"?" + text[place + 1 :])
    with pytest.raises(UnreadableRecording) as alone:
        reader.read(path)
    assert shared(path) == (str(alone.value), 1)


@pytest.mark.parametrize("other", [Here, lambda _: Here(lambda: None)], ids=["answers", "fails"])
def test_a_page_is_the_same_with_two_processes(tmp_path, monkeypatch, other):
    profile = load(training(200).write(tmp_path / "t.json"))
    alone = page([of_recording(profile, "t.json")], Heading(title="t"))
    monkeypatch.setattr(build, "_MANY_EVENTS", 1)
    monkeypatch.setattr(two_processes, "possible", lambda: True)
    monkeypatch.setattr(two_processes, "Other", other)
    together = page([of_recording(profile, "t.json")], Heading(title="t"), by_two=True)
    told, again = Page(alone).details, Page(together).details
    assert told == again
    assert Page(alone).scripts["recording-0"] == Page(together).scripts["recording-0"]


@pytest.mark.parametrize("other", [Here, lambda _: Here(lambda: None)], ids=["answers", "fails"])
def test_efficiency_comes_from_the_other_process_while_this_one_looks_for_findings(tmp_path, monkeypatch, other):
    path = training().write(tmp_path / "t.json.gz")
    alone = analysis_json.encoded(analysis_json.as_dict(load(path)))
    monkeypatch.setattr(analysis_json, "_MANY", 1)
    monkeypatch.setattr(analysis_json, "Other", other)
    monkeypatch.setattr(two_processes, "possible", lambda: True)
    assert analysis_json.encoded(analysis_json.as_dict(load(path), by_two=True)) == alone
    assert json.loads(alone)["efficiency"]["step_time"]["kernel"] > 0


@needs_two_cpus
def test_the_command_prints_what_one_process_finds(tmp_path):
    path = training(20_000).write(tmp_path / "t.json")
    assert two_processes.size(str(path)) > two_processes._LARGE
    code = "import sys; from pytest_torchprof.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code, "analyze", path, "--json"], check=True, capture_output=True)
    assert done.stdout.decode() == analysis_json.encoded(analysis_json.as_dict(load(path)))


def test_a_process_that_is_not_asked_is_ended():
    code = (
        "import os, time; from pytest_torchprof.recording.two_processes import Other\n"
        "with Other(lambda: time.sleep(600)) as other: pid = other._process\n"
        "try: os.kill(pid, 0); print('still there')\n"
        "except ProcessLookupError: print('gone')"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60)
    assert done.stdout == "gone\n"


def test_what_fails_in_the_other_process_is_no_answer_and_prints_nothing():
    code = "from pytest_torchprof.recording.two_processes import Other\nwith Other(lambda: 1 / 0) as other: print(other.answer())"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("None\n", "")


def test_a_process_with_threads_is_never_forked(tmp_path):
    """A fork of it would hold locks that nobody releases."""
    path = tmp_path / "t.json"
    path.write_bytes(b" " * 20 * 1024**2)
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    try:
        assert two_processes.border(str(path)) is None
    finally:
        done.set()
        thread.join()


def test_a_missing_file_is_not_shared(tmp_path):
    assert two_processes.border(str(tmp_path / "none.json")) is None
