"""No file takes all memory, or hours, or ends in a traceback: what no program writes is refused in a line."""

from __future__ import annotations

import gzip
import re
import resource
import subprocess
import sys

import pytest
from builder import write
from facts import why_unreadable

from pytest_torchprof import load
from pytest_torchprof.cli import main
from pytest_torchprof.reasons.unreadable import (
    Excess,
    JsonInvalid,
    NestedOperators,
    NumberBeyondStamps,
    OddEvent,
    Oddity,
    StampTooLate,
    TooLarge,
)

pytestmark = pytest.mark.any_torch

COMMAND = (
    "import sys; from pytest_torchprof.cli import main; sys.exit(max(main(['analyze', path]) for path in sys.argv[1:]))"
)
EVENT = '{"ph":"X","cat":"%s","name":"%s","pid":0,"tid":7,"ts":%s,"dur":%s}'
MIB = 1024**2


def document(*events):
    return ('{"traceEvents":[' + ",\n".join(events) + "]}").encode()


def analyzed(*paths, most_seconds=10, most_bytes=1500 * 10**6):
    """Return the highest exit status and the errors of the command for each path, within CPU time and memory."""

    def limit():
        resource.setrlimit(resource.RLIMIT_CPU, (most_seconds, most_seconds))
        resource.setrlimit(resource.RLIMIT_DATA, (most_bytes, most_bytes))

    done = subprocess.run(
        [sys.executable, "-c", COMMAND, *map(str, paths)],
        check=False,
        capture_output=True,
        text=True,
        preexec_fn=limit,
    )
    assert "Traceback" not in done.stderr
    return done.returncode, done.stderr


def packed(begin, end, part, times):
    """Return a file with a part so many times between its two ends: what its members have is packed once."""
    head, tail, many = (gzip.compress(text, 1) for text in (begin, end, part))
    return head + many * times + tail


def long_name(length):
    return document(EVENT % ("kernel", "x" * length, 1, 1))


HUGE = {
    "a name of 200 MB": lambda: packed(*long_name(1).split(b"x"), b"x" * MIB, 200),
    "2 GB in 3 MB": lambda: gzip.compress(b"", 1) + gzip.compress(b" " * 32 * MIB, 9) * 64,
    "nothing but blanks": lambda: packed(b"", b"", b" " * MIB, 100),
    "blanks before an event": lambda: gzip.compress(b'{"traceEvents":[' + b" " * 40 * MIB + b"]}", 1),
    "two million parts": lambda: gzip.compress(b"", 1) * 2_000_000,
    "a name of 10 MB and a comma too many": lambda: long_name(10 * MIB).replace(b"]}", b",]}"),
    "quotes and no end": lambda: b'{"traceEvents":[{"ph":"' + b'\\"' * 15 * MIB,
    "words that JSON does not know": lambda: b'{"traceEvents":[' + b" a" * MIB,
    "twenty million events": lambda: packed(b'{"traceEvents":[', b'{"ph":"i"}]}', b'{"ph":"i"},\n' * 100_000, 200),
    "a million numbers around the events": lambda: b'{"a":[' + b"[]," * 8 * MIB + b'[]],"traceEvents":[]}',
    "events of which none is as torch writes them": lambda: (
        b'{"traceEvents":[%b]}' % b",\n".join([b'{"cat":"cpu_op","name":"k","ts":"1"}'] * 200_000)
    ),
    "operators a hundred thousand deep": lambda: document(
        *[EVENT % ("cpu_op", "aten::add", i, 10**6 - 2 * i) for i in range(100_000)], EVENT % ("kernel", "k", 1, 1)
    ),
    "as many devices as events": lambda: document(
        *[(EVENT % ("kernel", "k", i, 1)).replace('"pid":0', f'"pid":{i}') for i in range(100_000)]
    ),
    "as many kernels' names as events": lambda: document(*[EVENT % ("kernel", f"k{i}", i, 1) for i in range(200_000)]),
    "as many GPU operations as events": lambda: document(*[EVENT % ("kernel", "k", 1, 1)] * 600_000),
    "two hundred thousand steps": lambda: document(
        *[EVENT % ("user_annotation", f"ProfilerStep#{i}", i, 1) for i in range(200_000)]
    ),
    "twenty thousand steps": lambda: document(
        *[EVENT % ("user_annotation", f"ProfilerStep#{i}", i, 1) for i in range(20_000)], EVENT % ("kernel", "k", 1, 1)
    ),
}


REFUSED = {
    "two hundred thousand steps": TooLarge(Excess.STEPS, 100_000),
    "as many GPU operations as events": TooLarge(Excess.GPU_OPERATIONS, 500_000),
    "a name of 200 MB": TooLarge(Excess.UNCUT, 32),
    "2 GB in 3 MB": TooLarge(Excess.UNCUT, 32),
    "two million parts": TooLarge(Excess.MEMBERS, 100_000),
    "twenty million events": TooLarge(Excess.EVENTS, 3_000_000),
    "a million numbers around the events": TooLarge(Excess.AROUND, 16),
    "operators a hundred thousand deep": NestedOperators(100_000, 1000),
    "as many devices as events": TooLarge(Excess.DEVICES, 1000),
    "as many kernels' names as events": TooLarge(Excess.NAMES, 10_000),
}
"""The bound that some of these files are beyond."""


limited = pytest.mark.skipif(sys.platform != "linux", reason="a process's memory is limited so on Linux only")


@limited
@pytest.mark.parametrize("name", [name for name in HUGE if name not in REFUSED])
def test_any_file_ends_soon_and_in_bounded_memory_in_a_result_or_the_documented_error(name, tmp_path):
    path = tmp_path / "t.json.gz"
    path.write_bytes(HUGE[name]())
    status, errors = analyzed(path)
    path.unlink()
    assert status in (0, 2)
    assert not status or re.search(r"t\.json\.gz .* \[(no-recording|recording-[a-z-]+)\]", errors)


@limited
def test_a_file_beyond_a_bound_is_soon_and_in_bounded_memory_refused_by_it(tmp_path):
    """One process refuses all of them, within three times the time and just the memory that one of any file has."""
    paths = {tmp_path / f"{number}.json.gz": name for number, name in enumerate(REFUSED)}
    for path, name in paths.items():
        path.write_bytes(HUGE[name]())
    status, errors = analyzed(*paths, most_seconds=30)
    lines = errors.splitlines()
    for path, name in paths.items():
        path.unlink()
        (line,) = [line for line in lines if str(path) in line]
        assert str(REFUSED[name]) in line
        assert re.search(r"\[(no-recording|recording-[a-z-]+)\]$", line)
    assert (status, len(lines)) == (2, len(paths))


def test_a_range_at_the_end_of_all_time_is_read(tmp_path):
    kernel = EVENT % ("kernel", "k", 1, 1)
    paths = [
        write(tmp_path / f"{category}-{moment}.json", document(kernel, EVENT % (category, "a", moment, 1)))
        for category in ("cpu_op", "user_annotation", "cuda_runtime", "python_function")
        for moment in (2**63 // 1000, 2**63 // 1000 + 5, 17 * 10**17, 2**63)
    ]
    assert analyzed(*paths) == (0, "")


@pytest.mark.parametrize("key", ["ts", "dur"])
@pytest.mark.parametrize("value", ["1e999999999", "1e300", "-1e300", str(2**65), '"1e999"', "1e20", "9" * 5000])
@pytest.mark.parametrize("category", ["kernel", "cpu_op"])
def test_a_time_beyond_all_time_is_named(tmp_path, category, key, value):
    event = EVENT % (category, "k", 1, 1)
    text = document(EVENT % ("kernel", "k", 1, 1), event.replace(f'"{key}":1', f'"{key}":{value}'))
    cause = why_unreadable(lambda: load(write(tmp_path / "t.json", text)))
    assert isinstance(cause, OddEvent | StampTooLate | JsonInvalid | NumberBeyondStamps)


@pytest.mark.parametrize("category", ["cpu_op", "user_annotation", "cuda_runtime"])
def test_a_range_that_ends_before_it_starts_has_no_length(tmp_path, capsys, category):
    name = {"user_annotation": "ProfilerStep#1", "cuda_runtime": "cudaLaunchKernel"}.get(category, "aten::add")
    path = write(tmp_path / "t.json", document(EVENT % ("kernel", "k", 1, 1), EVENT % (category, name, 100, -50)))
    for by in ("kernel", "op", "range", "family"):
        assert main(["analyze", str(path), "--by", by]) == 0
    assert "-" not in capsys.readouterr().err


@pytest.mark.parametrize("name", ["null", "5", '["gemm"]', "{}", "true"])
@pytest.mark.parametrize("category", ["kernel", "cpu_op", "cuda_runtime"])
def test_a_name_that_is_no_text_is_an_error(tmp_path, category, name):
    event = (EVENT % (category, "k", 1, 1)).replace('"name":"k"', f'"name":{name}')
    cause = why_unreadable(lambda: load(write(tmp_path / "t.json", document(event))))
    assert isinstance(cause, OddEvent)
    assert (cause.key, cause.event, cause.oddity) == ("name", 0, Oddity.NO_TEXT)
