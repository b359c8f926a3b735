"""The dump of NCCL's flight recorder on a job that hangs: the collective at which each rank stopped.

A dump is a file of whoever wrote it, perhaps in a folder of everybody: only one of this account that was written during
the test is read, and nothing in it is called.
"""

from __future__ import annotations

import io
import json
import os
import pickle
import stat
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from pytest_torchprof.text import printable_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

_PREFIXES: Final = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
"""The variables with the paths to which torch writes, up to the number of the rank."""
_MOST_BYTES: Final = 64 << 20
_LONGEST: Final = 120


def last_collective_text(rank: int, variables: Mapping[str, str], folder: Path, since_s: float) -> str:
    """Return a text with the collective at which a rank stopped, by the newest dump since then; empty if there is none.

    ``variables`` is its environment, ``folder`` is where it runs.
    """
    dumps = sorted(_dumps(rank, variables, folder, since_s), key=lambda dump: dump[0])
    return next(filter(None, (_standing(text) for _, text in reversed(dumps))), "")


def _dumps(rank: int, variables: Mapping[str, str], folder: Path, since_s: float) -> Iterator[tuple[float, bytes]]:
    for prefix in _prefixes(variables):
        with suppress(OSError):
            file = os.open(folder / f"{prefix}{rank}", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            with os.fdopen(file, "rb") as dump:
                about = os.fstat(file)
                is_ours = stat.S_ISREG(about.st_mode) and about.st_uid == os.getuid()
                if is_ours and about.st_mtime >= since_s and about.st_size <= _MOST_BYTES:
                    yield about.st_mtime, dump.read(_MOST_BYTES)


def _prefixes(variables: Mapping[str, str]) -> Iterator[str]:
    """Yield the beginnings of the names of dumps: those that the job was given, and torch's defaults, new and old."""
    yield from (variables[name] for name in _PREFIXES if variables.get(name))
    home = variables.get("HOME", "/tmp")  # noqa: S108 - as torch has it
    for folder in (variables.get("XDG_CACHE_HOME"), f"{home}/.cache"):
        if folder:
            yield from (f"{folder}/torch/{name}_trace_rank_" for name in ("comm_lib", "nccl"))
    yield "/tmp/nccl_trace_rank_"  # noqa: S108 - torch's, up to 2.5


class _OnlyValues(pickle.Unpickler):
    """Reads numbers, texts and containers, which is all that a dump is made of."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"a dump holds no {module}.{name}")

    def persistent_load(self, pid: object) -> Any:
        raise pickle.UnpicklingError(f"a dump refers to nothing: {pid!r}")


def _standing(text: bytes) -> str:
    # Whatever is wrong with it, it is somebody else's file, and says nothing.
    with suppress(Exception):
        dump = json.loads(text) if text.lstrip().startswith(b"{") else _OnlyValues(io.BytesIO(text)).load()
        entries = sorted(dump["entries"], key=lambda entry: int(entry["record_id"]))
        pending = next((entry for entry in entries if not _is_done(entry)), None)
        if pending is not None:
            state = "requested, not begun" if pending["state"] == "scheduled" else "begun, not completed"
            return f"at {_named(pending)}, {state}"
        if entries:
            return f"behind {_named(entries[-1])}, which was completed"
    return ""


def _is_done(entry: Mapping[str, Any]) -> bool:
    return entry["state"] == "completed" or bool(entry.get("retired") or entry.get("time_discovered_completed_ns"))


def _named(entry: Mapping[str, Any]) -> str:
    """Return the name of a collective, its number in its group, and the group's description."""
    name = str(entry["profiling_name"]).rpartition(":")[2]
    number = int(entry["p2p_seq_id"] if entry.get("is_p2p") else entry["collective_seq_id"])
    group = entry["process_group"]
    return printable_line(f"{name} {number} of {group[1] or group[0]}", _LONGEST)
