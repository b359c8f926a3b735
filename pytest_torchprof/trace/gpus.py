"""The GPUs of a recording: their ordinals, and the facts that the file has on each."""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


class Device(Struct, frozen=True, kw_only=True):
    """A GPU that ran something in the recording; ``pid`` is its name in the file."""

    index: int
    name: str | None
    sms: int | None
    pid: int | str


def ordinals(
    processes: Sequence[int | str], header: Mapping[str, object], known: Sequence[int], *, rocm: bool
) -> Sequence[int]:
    """Return the ordinal of each process's device: the file's, else the ``known`` ones in order of the process ids."""
    listed = _listed(header)
    if not rocm and processes and all(process in listed for process in processes):
        # CUPTI's device id is the ordinal. ROCm's counts the CPUs too.
        return [process for process in processes if isinstance(process, int)]
    order = sorted(range(len(processes)), key=lambda i: _numbers_first(processes[i]))
    return [known[order.index(i)] for i in range(len(order))]


def named(
    indices: Sequence[int], processes: Sequence[int | str], header: Mapping[str, object], *, rocm: bool
) -> Iterator[Device]:
    """Yield the devices of these processes in order of their indices."""
    for index, pid in sorted(zip(indices, processes, strict=True), key=itemgetter(0)):
        entry = facts_of(pid, header, rocm=rocm)
        name, sms = entry.get("name"), entry.get("numSms")
        yield Device(
            index=index,
            name=name if isinstance(name, str) and name else None,
            sms=sms if isinstance(sms, int) else None,
            pid=pid,
        )


def facts_of(process: int | str, header: Mapping[str, object], *, rocm: bool = False) -> Mapping[str, object]:
    """Return the facts that the file has on the device of this process; none if it is not clear which it is."""
    known = _listed(header)
    if _all_alike(known):
        return next(iter(known.values()))
    # On ROCm the process id is no index into the list; a list of one leaves no doubt, nor do equal devices.
    return {} if rocm else known.get(process, {})


def listed_names(header: Mapping[str, object]) -> list[str]:
    """Return the names of the machine's devices, as far as the file has them, whether they ran something or not."""
    return [str(item.get("name") or "a GPU without a name") for item in _listed(header).values()]


def _listed(header: Mapping[str, object]) -> Mapping[object, Mapping[str, object]]:
    """Return the facts that the file has on the machine's devices, by ordinal."""
    listed = header.get("deviceProperties")
    items = [item for item in listed if isinstance(item, dict)] if isinstance(listed, list) else []
    return {item["id"]: item for item in items if isinstance(item.get("id"), int | str)}


def _numbers_first(pid: int | str) -> tuple[bool, int, str]:
    return (isinstance(pid, str), 0 if isinstance(pid, str) else pid, str(pid))


def _all_alike(known: Mapping[object, Mapping[str, object]]) -> bool:
    return len({(str(item.get("name")), str(item.get("numSms"))) for item in known.values()}) == 1
