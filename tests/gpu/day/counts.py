"""What stands in the recordings that a step has kept, counted without the plugin, beside what the plugin counts.

    python counts.py FOLDER    JSON lines, a sentence and its figures each

A step has what was called between its start and its end, and what ran under the numbers of these calls.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from events import CALLS, NO_NUMBER, WORK, end, number, read, spans, start

if TYPE_CHECKING:
    from collections.abc import Iterator

    from events import Event

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
COUNTED = {"kernels": "kernel", "copies": "gpu_memcpy", "fills": "gpu_memset"}
BLOCKING = "blocking calls"


@dataclass(frozen=True)
class Recording:
    """What was counted of each step, by hand and by the plugin."""

    name: str
    by_hand: list[dict[str, int]]
    plugin: list[dict[str, int]]
    without_call: int
    """Work that none of the calls in the file has launched."""

    @property
    def differences(self) -> list[str]:
        """In words, where the two do not agree."""
        if len(self.by_hand) != len(self.plugin):
            return [f"{len(self.by_hand)} steps by hand, {len(self.plugin)} of the plugin"]
        return [
            f"step {step}: {hand[what]} {what} by hand, {own[what]} of the plugin"
            for step, (hand, own) in enumerate(zip(self.by_hand, self.plugin, strict=True))
            for what in hand
            if hand[what] != own[what]
        ]


def said(folder: Path) -> Iterator[tuple[str, Any]]:
    """Compare all recordings in the folder; repeats with stacks are of other steps, and are left out."""
    found: list[Recording] = []
    of_cpu = 0
    for path in sorted(folder.rglob("*.json.gz")):
        if ".stacks." in path.name:
            continue
        try:
            plugin = _by_plugin(path)
            if plugin is None:
                of_cpu += 1
                continue
            by_hand, without_call = by_hand_of(path)
        except Exception as error:  # noqa: BLE001 - an answer too
            yield f"{path.name}: {type(error).__name__}: {error!s:.200}", None
            continue
        found.append(Recording(path.name, by_hand, plugin, without_call))
    totals = sum((Counter(step) for one in found for step in one.by_hand), Counter())
    all_of_it = ", ".join(f"{totals[what]} {what}" for what in (*COUNTED, BLOCKING))
    wrong = [one for one in found if one.differences]
    same = "in all of them" if not wrong else f"in all but {len(wrong)} of them"
    steps, alone = (
        sum(counts) for counts in ((len(one.by_hand) for one in found), (one.without_call for one in found))
    )
    said = f"{len(found)} recordings with {steps} steps by hand: {all_of_it}; the plugin counts the same {same}"
    yield (
        f"{said} ({of_cpu} more are of the CPU; {alone} operations without a call)",
        {one.name: one.by_hand for one in found},
    )
    for one in wrong:
        yield f"{one.name}: {'; '.join(one.differences)} ({one.without_call} operations without a call)", one.plugin


def by_hand_of(path: Path) -> tuple[list[dict[str, int]], int]:
    """Return what each step of this file has, and how much work no call has launched."""
    events = spans(read(path))
    calls = [one for one in events if one.get("cat") in CALLS]
    work = [one for one in events if one.get("cat") in WORK]
    steps = [one for one in events if one.get("cat") == "user_annotation" and one["name"].startswith("ProfilerStep#")]
    found = []
    for step in steps:
        own = [call for call in calls if start(step) <= start(call) < end(step)]
        numbers = {number(call) for call in own} - {NO_NUMBER}
        ran = Counter(one["cat"] for one in work if number(one) in numbers)
        found.append({what: ran[kind] for what, kind in COUNTED.items()} | {BLOCKING: sum(map(_blocks, own))})
    launched = {number(call) for call in calls}
    return found, sum(number(one) not in launched for one in work)


def _blocks(call: Event) -> bool:
    """Return whether the call waits for the GPU: it says so, or copies and does not say that it returns before."""
    name = call["name"]
    return "Synchronize" in name or (name.startswith("cudaMemcpy") and "Async" not in name)


def _by_plugin(path: Path) -> list[dict[str, int]] | None:
    """Return what the plugin has counted; None of a recording of the CPU."""
    import pytest_torchprof

    steps = pytest_torchprof.load(path).steps
    if any(step.launches is None for step in steps):
        return None
    return [
        {"kernels": len(step.kernels), "copies": step.memcpys, "fills": step.memsets, BLOCKING: step.syncs}
        for step in steps
    ]


if __name__ == "__main__":
    sys.path.insert(1, str(ROOT))
    for sentence, figures in said(Path(sys.argv[1])):
        sys.stdout.write(json.dumps({"says": sentence, "figures": figures}) + "\n")
        sys.stdout.flush()
