"""A recording's analysis as ``torchprof analyze --json`` prints it: its rows have the columns of tables."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import Struct, convert

from pytest_torchprof.analysis import numbers
from pytest_torchprof.analysis.analysis import numbers_within
from pytest_torchprof.analysis.kernel_rows import by_kernel
from pytest_torchprof.analysis.ranges import calls_of, waiting_threads
from pytest_torchprof.analysis.tables import rows_by
from pytest_torchprof.devices.range_names import EACH_STEP, step_name
from pytest_torchprof.findings import RULES, find, standing_out
from pytest_torchprof.findings.headline import headline_of
from pytest_torchprof.reasons.errors import TorchprofError
from pytest_torchprof.reasons.recordings import NoSuchStep
from pytest_torchprof.report.columns import COLUMNS
from pytest_torchprof.report.row_columns import Among, json_values
from pytest_torchprof.trace.caches import CompileCaches, Count  # noqa: TC001 - msgspec reads the annotations
from pytest_torchprof.trace.graph_annotations import WITHOUT

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_torchprof.analysis.analysis import Analysis
    from pytest_torchprof.analysis.steps import StepProfile
    from pytest_torchprof.findings import Finding, Rule

SCHEMA = 1
_MANY_OF = {"family": "families", "op": "ops", "range": "ranges", "module": "modules", "collective": "collectives"}
_NOT_PLAIN = r"[^\x20-\x7e\n]"


class DeviceJson(Struct, frozen=True):
    """A device of a recording."""

    index: int
    name: str | None


class TraceJson(Struct, frozen=True, kw_only=True):
    """What a recording holds, and whether it can be believed."""

    path: str | None
    steps: Count
    orphans: Count
    lost_kernels: Count
    unrecorded_launches: Count
    measured: bool
    why_not: str | None
    attribution: Literal["launch", "time"]
    samples_hardware: bool
    devices: tuple[DeviceJson, ...]
    events: Count


class CompileJson(Struct, frozen=True, kw_only=True):
    """What torch.compile did."""

    regions: int
    nested_regions: int
    graph_breaks: float | None
    recompiles: float | None
    compiled_in_window: bool
    caches: CompileCaches | None


class FindingJson(Struct, frozen=True, kw_only=True):
    """A finding with the words that people read."""

    code: str
    title: str
    message: str
    evidence: dict[str, Any]
    """Its facts, which are others for each code."""
    remedy: str
    severity: str
    saves_us: float


def as_dict(  # noqa: PLR0913 - the options of the command
    analysis: Analysis,
    rules: Iterable[Rule] = RULES,
    *,
    by: str = "kernel",
    step: int | None = None,
    top: int | None = None,
    findings: bool = True,
) -> dict[str, Any]:
    """Return the analysis; with ``step`` N only of ProfilerStep#N, TorchprofError if there is none."""
    tables = _tables(analysis, by, step, top)
    if not findings:
        return {**tables, "findings": []}
    efficiency = msgspec.to_builtins(analysis.efficiency)
    why_not = analysis.efficiency.throughput.why_not
    efficiency["throughput"]["why_not"] = None if why_not is None else why_not.text
    shown = findings_json(standing_out(analysis, find(analysis, tuple(rules))))
    headline = headline_of(analysis).in_words()
    return {**tables, "efficiency": efficiency, "headline": headline, "findings": msgspec.to_builtins(shown)}


def _tables(analysis: Analysis, by: str, step: int | None, top: int | None) -> dict[str, Any]:
    trace, steps = analysis.trace, chosen_steps(analysis, step)
    chosen = [step.part for step in steps]
    median, worst = analysis.median_of(steps), analysis.worst_of(steps)
    rows = by_kernel(analysis.gpu_work, chosen)
    values: dict[str, Any] = {
        "schema": SCHEMA,
        "trace": msgspec.to_builtins(_trace_json(analysis)),
        "summary": {**_values(median, *numbers.BY_NAME), "worst": _values(worst, *numbers.BY_NAME)},
        "steps": [
            {"name": step_profile.name, **_values(step_profile.numbers, *numbers.OF_STEP)} for step_profile in steps
        ],
        "kernels": [_row_values(analysis, steps, "kernel", row) for row in rows[:top]],
    }
    for way in dict.fromkeys([*([] if by == "kernel" else [by]), "collective"]):
        more = rows_by(way, analysis, steps, rows)[:top]
        for_others = waiting_threads(trace, calls_of(trace, chosen)) if way == "range" else None
        values[_MANY_OF[way]] = [_row_values(analysis, steps, way, row, for_others) for row in more]
    seen = analysis.compile
    compiled = CompileJson(
        regions=seen.regions,
        nested_regions=seen.nested_regions,
        graph_breaks=median.graph_breaks,
        recompiles=median.recompiles,
        compiled_in_window=seen.compiled_in_window,
        caches=seen.caches,
    )
    return {**values, "compile": msgspec.to_builtins(compiled)}


def _trace_json(analysis: Analysis) -> TraceJson:
    trace = analysis.trace
    return TraceJson(
        path=trace.path,
        steps=len(trace.steps),
        orphans=trace.orphans,
        lost_kernels=trace.lost_kernels,
        unrecorded_launches=trace.unrecorded_launches,
        measured=analysis.measured,
        why_not=analysis.why_not,
        attribution=trace.attribution,
        samples_hardware=trace.samples_hardware,
        devices=tuple(DeviceJson(device.index, device.name) for device in trace.devices),
        events=trace.events,
    )


def findings_json(findings: Iterable[Finding]) -> tuple[FindingJson, ...]:
    """Return findings with the words that people read."""
    return tuple(convert(finding.in_words(), FindingJson) for finding in findings)


def chosen_steps(analysis: Analysis, step: int | None) -> Sequence[StepProfile]:
    """Return all steps, or ProfilerStep#N; TorchprofError names the existing ones."""
    if step is None:
        return analysis.steps
    chosen = [known for known in analysis.steps if known.name == step_name(step)]
    if not chosen:
        names = tuple(known.name for known in analysis.steps if known.name)
        raise TorchprofError.because(NoSuchStep(step_name(step), str(analysis.trace.path), names))
    return chosen


def encoded(value: object) -> str:
    """Return JSON in plain ASCII, so that no name out of a trace reaches a terminal as anything but text."""
    text = msgspec.json.format(msgspec.json.encode(value), indent=1).decode()
    text = text if text.isascii() else re.sub(_NOT_PLAIN, _escape_units, text)
    # Text that CI services take for a command; it can only be inside a string.
    return text.replace("##", "\\u0023#") + "\n"


def _escape_units(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))


def _row_values(
    analysis: Analysis,
    steps: Sequence[StepProfile],
    by: str,
    row: Any,
    for_others: Mapping[int, frozenset[int]] | None = None,
) -> dict[str, Any]:
    """Return the row's columns; of a user annotation the numbers of ``Profile.range`` too, but for the steps' own."""
    values = json_values(COLUMNS[by], row, Among(steps=steps))
    if by == "range" and row.name not in (EACH_STEP, WITHOUT):
        within = numbers_within(analysis.trace, [step.part for step in steps], row.name, for_others)
        values["worst"] = _values(within, *numbers.OF_STEP)
    return values


def _values(holder: object, *names: str) -> dict[str, Any]:
    return {name: getattr(holder, name) for name in names}
