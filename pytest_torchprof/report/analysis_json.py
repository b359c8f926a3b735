"""A recording's analysis as plain data: what ``torchprof analyze --json`` prints."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec

from pytest_torchprof.analysis import numbers, tables
from pytest_torchprof.analysis.analysis import numbers_within
from pytest_torchprof.errors import TorchprofError
from pytest_torchprof.findings import RULES, Finding, find, ranked
from pytest_torchprof.recording import two_processes
from pytest_torchprof.recording.two_processes import Other

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_torchprof.analysis.analysis import Analysis, StepProfile
    from pytest_torchprof.analysis.numbers import Numbers
    from pytest_torchprof.analysis.parts import Part
    from pytest_torchprof.analysis.tables import KernelRow, OpRow, RangeRow
    from pytest_torchprof.findings import Rule
    from pytest_torchprof.trace import Trace

SCHEMA = 1
# Of fewer events one process is done before a second has begun.
_MANY = 50_000
# What the second process looks for beside the efficiency, so that both take as long.
_APART = frozenset({"implicit-sync", "costly-children"})
_NOT_PLAIN = re.compile(r"[^\x20-\x7e\n]")


def as_dict(  # noqa: PLR0913 - the options of the command
    analysis: Analysis,
    rules: Iterable[Rule] = RULES,
    *,
    by: str = "kernel",
    step: int | None = None,
    top: int | None = None,
    findings: bool = True,
    by_two: bool = False,
) -> dict[str, Any]:
    """Return the analysis; ``step`` N is ProfilerStep#N alone, TorchprofError if there is none.

    ``by_two`` allows a second process where that is quicker; it changes nothing else.
    """
    trace, steps = analysis.trace, chosen_steps(analysis, step)
    chosen = [one.part for one in steps]
    median, worst = analysis.median_of(steps), analysis.worst_of(steps)
    rows = tables.by_kernel(trace, analysis.launching, chosen)
    found: dict[str, Any] = {
        "schema": SCHEMA,
        "trace": {
            "path": trace.path,
            "steps": len(trace.steps),
            "orphans": trace.orphans,
            "lost_kernels": trace.lost_kernels,
            "unrecorded_launches": trace.unrecorded_launches,
            "measured": analysis.measured,
            "why_not": analysis.why_not,
            "attribution": trace.attribution,
            "devices": [{"index": device.index, "name": device.name} for device in trace.devices],
            "events": trace.events,
        },
        "summary": {**_plain(median), "worst": _plain(worst)},
        "steps": [{"name": one.name, **_plain(one.numbers, numbers.OF_STEP)} for one in steps],
        "kernels": [_kernel(row) for row in rows[:top]],
    }
    found |= _more(analysis, chosen, rows, by, top)
    seen = analysis.compile
    found["compile"] = {
        "regions": seen.regions,
        "nested_regions": seen.nested_regions,
        "graph_breaks": median.graph_breaks,
        "recompiles": median.recompiles,
        "compiled_in_window": seen.compiled_in_window,
    }
    return {**found, **(_looked_at(analysis, tuple(rules), by_two=by_two) if findings else {"findings": []})}


def _looked_at(analysis: Analysis, rules: Sequence[Rule], *, by_two: bool) -> dict[str, Any]:
    """Return efficiency and findings, of a large recording worked out at the same time."""
    large = by_two and analysis.trace.events >= _MANY and analysis.kernels_unknown is None
    if not large or not two_processes.possible():
        return {"efficiency": msgspec.to_builtins(analysis.efficiency), "findings": _plainly(find(analysis, rules))}
    # What both need, once.
    _ = analysis.gpu_work.groups
    mine = [rule for rule in rules if rule.code not in _APART]
    others = [rule for rule in rules if rule.code in _APART]
    with Other(lambda: msgspec.msgpack.encode((analysis.efficiency, find(analysis, others)))) as other:
        found, told = find(analysis, mine), other.answer()
    if told is None:
        return {"efficiency": msgspec.to_builtins(analysis.efficiency), "findings": _plainly(find(analysis, rules))}
    efficiency, apart = msgspec.msgpack.decode(told)
    place = {rule.code: i for i, rule in enumerate(rules)}
    all_of_them = sorted([*found, *(Finding(**one) for one in apart)], key=lambda one: place.get(one.code, len(place)))
    return {"efficiency": efficiency, "findings": _plainly(ranked(all_of_them))}


def _plainly(found: Sequence[Finding]) -> list[dict[str, Any]]:
    names = ("code", "title", "message", "evidence", "remedy", "severity")
    return [{name: getattr(one, name) for name in names} for one in found]


def chosen_steps(analysis: Analysis, step: int | None) -> Sequence[StepProfile]:
    """Return all steps, or ProfilerStep#N; TorchprofError naming those there are."""
    if step is None:
        return analysis.steps
    found = [one for one in analysis.steps if one.name == f"ProfilerStep#{step}"]
    if not found:
        names = ", ".join(one.name for one in analysis.steps if one.name) or "none, the whole trace is one"
        raise TorchprofError(f"there is no ProfilerStep#{step} in {analysis.trace.path}; steps in it: {names}")
    return found


def encoded(value: object) -> str:
    """Return JSON in plain ASCII, so that no name out of a trace reaches a terminal as anything but text."""
    text = msgspec.json.format(msgspec.json.encode(value), indent=1).decode()
    text = text if text.isascii() else _NOT_PLAIN.sub(_escaped, text)
    # What CI services take for a command to themselves; nothing but a text holds it.
    return text.replace("##", "\\u0023#") + "\n"


def _escaped(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))


def _plain(found: Numbers, names: Iterable[str] = tuple(numbers.BY_NAME)) -> dict[str, Any]:
    return {name: getattr(found, name) for name in names}


def _kernel(row: KernelRow) -> dict[str, Any]:
    decoded = ("family", "library", "dtype", "layout", "tensor_core", "triton")
    launched = ("op", "op_chain", "forward_op", "count", "time_us")
    return {
        "name": row.name,
        **{name: getattr(row.decoded, name) for name in decoded},
        **{name: getattr(row, name) for name in launched},
    }


def _more(
    analysis: Analysis, chosen: Sequence[Part], rows: Sequence[KernelRow], by: str, top: int | None
) -> dict[str, Any]:
    """Return the rows that ``--by`` adds to the kernels."""
    trace, launching = analysis.trace, analysis.launching
    if by == "op":
        return {"ops": [_rounded(row) for row in tables.by_op(trace, launching, chosen)[:top]]}
    if by == "range":
        return {"ranges": [_annotation(trace, chosen, row) for row in tables.by_annotation(trace, chosen)[:top]]}
    if by == "module":
        return {"modules": [_rounded(row) for row in tables.by_module(trace, chosen)[:top]]}
    if by == "family":
        return {"families": [msgspec.structs.asdict(row) for row in tables.by_family(rows)[:top]]}
    return {}


def _rounded(row: RangeRow | OpRow) -> dict[str, Any]:
    """Return the row's columns; sums of nanoseconds need no more digits."""
    values = msgspec.structs.asdict(row).items()
    return {name: round(value, 3) if isinstance(value, float) else value for name, value in values}


def _annotation(trace: Trace, chosen: Sequence[Part], row: RangeRow) -> dict[str, Any]:
    """Return the row with the numbers of ``Profile.range``; of the steps' own row they are the summary."""
    if row.name == tables.EACH_STEP:
        return _rounded(row)
    return {**_rounded(row), "worst": _plain(numbers_within(trace, chosen, row.name), numbers.OF_STEP)}
