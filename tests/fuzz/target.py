"""What is fuzzed: any bytes as a recording, a baseline file or words of the command line.

The first byte of an input says at which border the others arrive. Whatever they are, each command ends with one of its
exit statuses, soon and in bounded memory, without an exception of ours, and what it says holds no command to a terminal
or a CI service.
"""

from __future__ import annotations

import gzip
import os
import re
import time
from contextlib import chdir, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from pytest_torchprof.cli import COMMANDS, main

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

MOST_SECONDS = 10
"""Of the processor, for one command and any input up to ``LARGEST``."""
LARGEST = 50_000_000
RECORDING, BASELINE = "t.json", "test_it.cpu-x86_64.json"
ACTED_ON = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]|^[ \t]*::|##(?:vso)?\\[", re.MULTILINE
)
"""What a terminal or a CI service would take for a command."""
LIMITS = (
    *("max_kernels=1", "kernels=gemm", "only_kernels=k*", "ops=mul", "fused=[['add','mul']]"),
    *("max_syncs=0", "max_graph_breaks=0", "max_gpu_time=1ms", "cuda_graph=True", "max_peak_memory=1GB"),
    *("waits=all", "allow_syncs=['aten::item','range:a','a.py']", "ranges={'a': {'max_kernels': 1, 'max_syncs': 0}}"),
)
# These start processes of their own: torch's profiler, and pytest on the files that are found.
_PROCESSES = frozenset({"doctor", "prune"})
_WORDS = 12

Command = tuple[list[str], tuple[int, ...]]
"""Its words, and the exit statuses that it may have."""


def try_one(data: bytes, *, watched: float = 1) -> None:
    """Take an input; AssertionError says what a command should not have done.

    ``watched`` is how many times as long everything takes where somebody watches each line.
    """
    border, rest = data[:1], data[1:]
    with TemporaryDirectory() as folder, chdir(folder):
        for words, statuses in BORDERS[border[0] % len(BORDERS) if border else 0](rest):
            _run(words, statuses, MOST_SECONDS * watched)


def _run(words: list[str], statuses: tuple[int, ...], most_seconds: float) -> None:
    held = {path: path.read_bytes() for path in Path().iterdir()}
    began, out, err = time.process_time(), StringIO(), StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        status = main(words)
    took = time.process_time() - began
    assert status in statuses, f"{words}: exit status {status}"
    assert took < most_seconds, f"{words}: {took:.0f} s"
    assert err.getvalue() or status != 2, f"{words}: refused without a word"
    found = ACTED_ON.search(out.getvalue() + err.getvalue())
    assert found is None, f"{words}: what it says would be acted on: {found[0]!r}"
    if "resolve" not in words or status == 2:
        assert {path: path.read_bytes() for path in Path().iterdir()} == held, f"{words}: files were changed"


def _recording(data: bytes) -> Iterator[Command]:
    Path(RECORDING).write_bytes(data)
    yield ["analyze", RECORDING], (0, 2)
    yield ["analyze", RECORDING, "--json", "--by", "op"], (0, 2)
    yield ["check", RECORDING, *(word for limit in LIMITS for word in ("--limit", limit))], (0, 1, 2, 3)


def _packed_recording(data: bytes) -> Iterator[Command]:
    return _recording(gzip.compress(data, 1))


def _large_recording(data: bytes) -> Iterator[Command]:
    return _recording(enlarged(data))


def _two_recordings(data: bytes) -> Iterator[Command]:
    before, _, after = data.partition(b"\0")
    Path(RECORDING).write_bytes(before)
    Path("u.json").write_bytes(after)
    yield ["diff", RECORDING, "u.json"], (0, 1, 2, 3)


def _baseline(data: bytes) -> Iterator[Command]:
    Path(BASELINE).write_bytes(data)
    yield ["baseline", "show", BASELINE], (0, 2)
    yield ["baseline", "diff", BASELINE, BASELINE], (0, 2)
    yield ["baseline", "resolve", BASELINE], (0, 1, 2)


def _large_baseline(data: bytes) -> Iterator[Command]:
    return _baseline(enlarged(data))


def _command_line(data: bytes) -> Iterator[Command]:
    words = [os.fsdecode(word) for word in data.split(b"\0")][:_WORDS]
    if not _PROCESSES.intersection(words) and not any("/" in word for word in words):
        yield words, (0, 1, 2, 3)


def enlarged(data: bytes) -> bytes:
    """Return the input with its middle, between two zero bytes, repeated: 2 to the power of its first byte times."""
    power, begin, middle, end = data[:1], *[*data[1:].split(b"\0", 2), b"", b"", b""][:3]
    times = 1 << (power[0] % 26 if power else 0)
    return begin + middle * min(times, (LARGEST - len(begin) - len(end)) // max(len(middle), 1)) + end


BORDERS: tuple[Callable[[bytes], Iterator[Command]], ...] = (
    *(_recording, _packed_recording, _large_recording, _two_recordings),
    *(_baseline, _large_baseline, _command_line),
)


def seeds(tests: Path) -> Iterable[bytes]:
    """Yield inputs to begin with, from the folder of the tests: small recordings, baselines, the commands' words."""
    recordings = sorted((tests / "recordings").glob("*.json.gz"), key=lambda path: path.stat().st_size)[:6]
    baselines = sorted((tests / "baselines_before").glob("*/*cpu*.json"))
    for path in recordings:
        text = gzip.decompress(path.read_bytes())
        yield from (b"%c%b" % (border, text) for border in (0, 1))
        yield b"\3%b\0%b" % (text, text)
    event = b'{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":1,"dur":1,"args":{"correlation":1}}'
    for power in (4, 12, 25):
        yield b'\2%c{"traceEvents":[\0%b,\0%b]}' % (power, event, event)
        yield b"\2%c\0[\0" % power
    for path in baselines:
        text = path.read_bytes()
        lines = text.splitlines(keepends=True)
        yield b"\4" + text
        yield b"\4<<<<<<< ours\n%b=======\n%b>>>>>>> theirs\n" % (text, text)
        yield b"\5\x05%b\0%b\0%b" % (b"".join(lines[:8]), lines[8], b"".join(lines[9:]))
    for command in COMMANDS:
        yield b"\6%b\0%b\0--json" % (command.encode(), RECORDING.encode())
    yield b"\6check\0t.json\0--limit\0kernels={gemm(layout='tn'): (1, 2)}"
    yield b"\6baseline\0diff\0a\0b"
