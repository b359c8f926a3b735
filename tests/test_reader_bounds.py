"""No file takes all memory, or hours, or ends in a traceback: what no program writes is refused in a line."""

from __future__ import annotations

import gzip
import re
import subprocess
import sys
from pathlib import Path

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

COMMAND = """
import gc, os, resource, sys
from pytest_torchprof.cli import main

main(["analyze", sys.argv[3]])
gc.freeze()
statuses = []
for path in sys.argv[4:]:
    if (fork := os.fork()) == 0:
        for limit, most in zip((resource.RLIMIT_CPU, resource.RLIMIT_DATA), map(int, sys.argv[1:3])):
            resource.setrlimit(limit, (most, most))
        status = main(["analyze", path])
        sys.stdout.flush()
        os._exit(status)
    statuses.append(os.waitstatus_to_exitcode(os.waitpid(fork, 0)[1]))
print(*statuses)
"""
"""Each file is read by a fork, whose CPU time and memory are limited; one is read before, by which all is imported."""
FIRST = next(Path(__file__).with_name("recordings").glob("*.json.gz"))
EVENT = '{"ph":"X","cat":"%s","name":"%s","pid":0,"tid":7,"ts":%s,"dur":%s}'
MIB = 1024**2


def document(*events):
    return ('{"traceEvents":[' + ",\n".join(events) + "]}").encode()


def analyzed(*paths, most_seconds=10, most_bytes=1500 * 10**6):
    """Return the exit status of the command for each path, and all errors, within CPU time and memory."""
    command = [sys.executable, "-c", COMMAND, *map(str, (most_seconds, most_bytes, FIRST, *paths))]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert "Traceback" not in done.stderr
    return list(map(int, done.stdout.splitlines()[-1].split())), done.stderr


def packed(begin, end, part, times):
    """Return a file with a part so many times between its two ends: what its members have is packed once."""
    head, tail, many = (gzip.compress(text, 1) for text in (begin, end, part))
    return head + many * times + tail


def long_name(length):
    return document(EVENT % ("kernel", "x" * length, 1, 1))


HUGE = {
    "a name of 200 MB": lambda: packed(*long_name(1).split(b"x"), b"x" * MIB, 200),
    "2 GB in 3 MB": lambda: gzip.compress(b"", 1) + gzip.compress(b" " * 32 * MIB, 9) * 64,
    "nothing but blanks": lambda: packed(b"", b"", b" " * MIB, 65),
    "blanks before an event": lambda: gzip.compress(b'{"traceEvents":[' + b" " * 40 * MIB + b"]}", 1),
    "two hundred thousand parts": lambda: gzip.compress(b"", 1) * 200_000,
    "a name of 10 MB and a comma too many": lambda: long_name(10 * MIB).replace(b"]}", b",]}"),
    "quotes and no end": lambda: b'{"traceEvents":[{"ph":"' + b'\\"' * 5 * MIB,
    "words that JSON does not know": lambda: b'{"traceEvents":[' + b" a" * (MIB // 4),
    "twenty million events": lambda: packed(b'{"traceEvents":[', b'{"ph":"i"}]}', b'{"ph":"i"},\n' * 100_000, 200),
    "a million numbers around the events": lambda: b'{"a":[' + b"[]," * 8 * MIB + b'[]],"traceEvents":[]}',
    "events of which none is as torch writes them": lambda: (
        b'{"traceEvents":[%b]}' % b",\n".join([b'{"cat":"cpu_op","name":"k","ts":"1"}'] * 50_000)
    ),
    "operators twenty thousand deep": lambda: document(
        *[EVENT % ("cpu_op", "aten::add", i, 10**6 - 2 * i) for i in range(20_000)], EVENT % ("kernel", "k", 1, 1)
    ),
    "as many devices as events": lambda: document(
        *[(EVENT % ("kernel", "k", i, 1)).replace('"pid":0', f'"pid":{i}') for i in range(20_000)]
    ),
    "as many kernels' names as events": lambda: document(*[EVENT % ("kernel", f"k{i}", i, 1) for i in range(20_000)]),
    "as many GPU operations as events": lambda: document(*[EVENT % ("kernel", "k", 1, 1)] * 500_001),
    "more than a hundred thousand steps": lambda: document(
        *[EVENT % ("user_annotation", f"ProfilerStep#{i}", i, 1) for i in range(100_001)]
    ),
    "ten thousand steps": lambda: document(
        *[EVENT % ("user_annotation", f"ProfilerStep#{i}", i, 1) for i in range(10_000)], EVENT % ("kernel", "k", 1, 1)
    ),
}


REFUSED = {
    "more than a hundred thousand steps": TooLarge(Excess.STEPS, 100_000),
    "as many GPU operations as events": TooLarge(Excess.GPU_OPERATIONS, 500_000),
    "a name of 200 MB": TooLarge(Excess.UNCUT, 32),
    "2 GB in 3 MB": TooLarge(Excess.UNCUT, 32),
    "two hundred thousand parts": TooLarge(Excess.MEMBERS, 100_000),
    "twenty million events": TooLarge(Excess.EVENTS, 3_000_000),
    "a million numbers around the events": TooLarge(Excess.AROUND, 16),
    "operators twenty thousand deep": NestedOperators(20_000, 1000),
    "as many devices as events": TooLarge(Excess.DEVICES, 1000),
    "as many kernels' names as events": TooLarge(Excess.NAMES, 10_000),
}
"""The bound that some of these files are beyond."""


limited = pytest.mark.skipif(sys.platform != "linux", reason="a process's memory is limited so on Linux only")


@limited
def test_any_file_ends_soon_and_in_bounded_memory_in_a_result_or_the_documented_error(tmp_path):
    paths = {tmp_path / f"{number}.json.gz": name for number, name in enumerate(HUGE)}
    for path, name in paths.items():
        path.write_bytes(HUGE[name]())
    statuses, errors = analyzed(*paths)
    lines = errors.splitlines()
    assert all(re.search(r"\d\.json\.gz .* \[(no-recording|recording-[a-z-]+)\]$", line) for line in lines)
    for (path, name), status in zip(paths.items(), statuses, strict=True):
        path.unlink()
        said = [line for line in lines if str(path) in line]
        assert status == (2 if said else 0), name
        if name in REFUSED:
            (line,) = said
            assert str(REFUSED[name]) in line


def test_a_range_at_the_end_of_all_time_is_read(tmp_path):
    kernel = EVENT % ("kernel", "k", 1, 1)
    paths = [
        write(tmp_path / f"{category}-{moment}.json", document(kernel, EVENT % (category, "a", moment, 1)))
        for category in ("cpu_op", "user_annotation", "cuda_runtime", "python_function")
        for moment in (2**63 // 1000, 2**63 // 1000 + 5, 17 * 10**17, 2**63)
    ]
    assert analyzed(*paths) == ([0] * len(paths), "")


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
