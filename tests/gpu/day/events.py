"""What the files of torch.profiler hold of the GPU."""

from __future__ import annotations

import gzip
import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    Event = dict[str, Any]

CALLS = frozenset({"cuda_runtime", "cuda_driver"})
WORK = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
NO_NUMBER = -1

# kineto writes these as C++ does, which is no JSON.
_NOT_JSON = re.compile(r'(":\s*)-?(?:inf|nan)\b')


def read(path: Path) -> dict[str, Any]:
    """Return what the file holds, packed or not."""
    packed = path.suffix == ".gz"
    text = (gzip.decompress(path.read_bytes()) if packed else path.read_bytes()).decode(errors="replace")
    return dict(json.loads(_NOT_JSON.sub(r"\1null", text)))


def spans(file: dict[str, Any]) -> list[Event]:
    """Return the file's events that have a length, in the order of their starts."""
    return sorted((one for one in file["traceEvents"] if one.get("ph") == "X"), key=start)


def start(event: Event) -> float:
    """Return when an event began, in microseconds."""
    return float(event["ts"])


def end(event: Event) -> float:
    """Return when an event ended, in microseconds."""
    return start(event) + float(event["dur"])


def number(event: Event) -> int:
    """Return the correlation id, -1 without one."""
    return int(event.get("args", {}).get("correlation", NO_NUMBER))


def name_of(event: Event, length: int = 80) -> str:
    """Return the name, cut."""
    return str(event["name"])[:length]
