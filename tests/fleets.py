"""Runs of ``torchprof fleet run`` over recordings of every kind, and what stands in their folders."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path

from builder import TraceBuilder, own_recording

from pytest_torchprof.cli import main


def every_kind(folder):
    """Write recordings: three that hold three kernels or fewer, two that do not, three bad ones."""
    (folder / "bert").mkdir(parents=True)
    for number in range(5):
        own_recording({"one": number + 1}).write(folder / f"{number}.json.gz")
    shutil.move(folder / "4.json.gz", folder / "bert" / "4.json.gz")
    whole = (folder / "0.json.gz").read_bytes()
    (folder / "cut.json.gz").write_bytes(whole[: len(whole) // 2])
    (folder / "other.json").write_text('{"models": []}')
    TraceBuilder().write(folder / "empty.json")
    return folder


def fleet(*words):
    return main(["fleet", "run", *map(str, words), "--jobs", "2"])


def summary_in(folder):
    return json.loads((folder / "summary.json").read_text())


def records_in(folder):
    """Return the records of a run by the names of the files."""
    lines = (folder / "records.jsonl").read_text().splitlines()
    return {Path(record.get("member", record["url"])).name: record for record in map(json.loads, lines)}


def content(folder):
    return [(folder / name).read_bytes() for name in ("summary.json", "records.jsonl")]


def counts(summary):
    return [summary[name] for name in ("listed", "judged", "not_measured", "quarantined")]


def large(path, *, parts=15, level=1):
    """Write a recording that takes seconds and hundreds of megabytes to read."""
    event = b'{"ph":"X","cat":"cpu_op","name":"aten::x","pid":1,"tid":1,"ts":5,"dur":1,"args":{}}'
    texts = [b'{"traceEvents":[\n', (event + b",\n") * 100_000, event + b"]}"]
    head, many, end = (gzip.compress(text, level) for text in texts)
    path.write_bytes(head + many * parts + end)
    return path
