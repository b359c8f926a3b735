"""The schema of an analysis, of one recording or of the ranks of a job, and the parts that reports have of it too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, get_args

from pytest_torchprof.analysis.efficiency import Efficiency
from pytest_torchprof.analysis.numbers import OF_STEP, TABLE
from pytest_torchprof.analysis.ranks import Kind
from pytest_torchprof.cli.schema_parts import (
    ANY,
    BOOL,
    NUMBER,
    TEXT,
    WHOLE,
    Schema,
    every,
    fields,
    listed,
    mapped,
    nullable,
    of_type,
    root,
)
from pytest_torchprof.report import analysis_json, ranks_report
from pytest_torchprof.report.columns import COLLECTIVES, FAMILIES, KERNELS, OPERATORS, RANGES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pytest_torchprof.report.row_columns import RowColumn, Unit


def _efficiency() -> Schema:
    """Return the schema of an efficiency as it is printed, with a reason in words."""
    facts = of_type(Efficiency)["properties"]
    return fields({**facts, "throughput": fields({**facts["throughput"]["properties"], "why_not": nullable(TEXT)})})


AMOUNT = {"amount": nullable({"type": "number", "minimum": 0})}
NUMBERS = {number.name: {"$ref": "#/$defs/amount"} for number in TABLE}
NUMBERS_OF_STEP = {name: NUMBERS[name] for name in OF_STEP}
SUMMARY = fields({**NUMBERS, "worst": fields(NUMBERS)})
USES = {"$ref": "#/$defs/cache_uses"}
CACHES = fields(
    {
        "uses": USES,
        "phase": {"enum": ["cold", "warm", None]},
        "doubt": nullable(TEXT),
        "cold": nullable(fields({"time_us": nullable(mapped(WHOLE)), "uses": USES})),
    }
)
OF_CACHES = {
    "cache_uses": fields(
        every("dynamo aot_autograd inductor triton", fields(every("hits misses bypasses", nullable(WHOLE))))
    )
}
FINDING = {**every("code title message remedy", TEXT), "evidence": mapped(ANY), "severity": TEXT, "saves_us": NUMBER}


_BY_UNIT: Final[Mapping[Unit, Schema]] = {
    "text": TEXT,
    "count": WHOLE,
    "bytes": WHOLE,
    "us": NUMBER,
    "share": NUMBER,
    "rate": NUMBER,
}
_OF_KEY: Final[Mapping[str, Schema]] = {"tensor_core": nullable(BOOL), "op_chain": listed(TEXT), "shapes": ANY}
"""The columns whose values are no texts, though they are shown as such."""
_ALWAYS_KNOWN: Final = frozenset({"name", "library", "count", "calls", "kernels", "time_us"})


def of_columns(columns: Iterable[RowColumn]) -> dict[str, Schema]:
    """Return the fields of a kind of rows, as its columns have them."""
    return {column.key: _column_schema(column) for column in columns if column.json}


def _column_schema(column: RowColumn) -> Schema:
    if column.key in _OF_KEY:
        return _OF_KEY[column.key]
    value = _BY_UNIT[column.unit]
    return value if column.key in _ALWAYS_KNOWN else nullable(value)


def analysis() -> Schema:
    """Return the schema of ``torchprof analyze --json``: an object, or a list of them for a folder."""
    version = analysis_json.SCHEMA
    ranges = fields(of_columns(RANGES), {"worst": fields(NUMBERS_OF_STEP)})
    trace = fields(
        {
            "path": nullable(TEXT),
            **every("steps orphans lost_kernels unrecorded_launches events", {"type": "integer", "minimum": 0}),
            "measured": BOOL,
            "why_not": nullable(TEXT),
            "attribution": {"enum": ["launch", "time"]},
            "samples_hardware": BOOL,
            "devices": listed(fields({"index": WHOLE, "name": nullable(TEXT)})),
        }
    )
    compiled = {**every("regions nested_regions", WHOLE), **every("graph_breaks recompiles", nullable(NUMBER))}
    analysis = fields(
        {
            "schema": {"const": version},
            "trace": trace,
            "summary": SUMMARY,
            "steps": listed(fields({"name": nullable(TEXT), **NUMBERS_OF_STEP})),
            "kernels": listed(fields(of_columns(KERNELS))),
            "collectives": listed(fields(of_columns(COLLECTIVES))),
            "compile": fields({**compiled, "compiled_in_window": BOOL, "caches": nullable(CACHES)}),
            "findings": listed(fields(FINDING)),
        },
        {
            "efficiency": _efficiency(),
            "headline": fields({**every("headline message", TEXT), "facts": mapped(ANY)}),
            "families": listed(fields(of_columns(FAMILIES))),
            "ops": listed(fields(of_columns(OPERATORS))),
            "ranges": listed(ranges),
            "modules": listed(ranges),
        },
    )
    itself = {"$ref": "#/$defs/analysis"}
    return root(
        "torchprof analyze --json",
        version,
        {"anyOf": [itself, listed(itself)], "$defs": {"analysis": analysis, **AMOUNT, **OF_CACHES}},
    )


def ranks() -> Schema:
    """Return the schema of ``torchprof analyze DIR --ranks --json``."""
    version = ranks_report.SCHEMA
    rank = fields(
        {
            **every("rank steps collectives matched unmatched", WHOLE),
            **every("path device", TEXT),
            **every("host why_not", nullable(TEXT)),
            **every("communication_us exposed_us", NUMBER),
            **every("wait_us matched_wait_us caused_us overlap", nullable(NUMBER)),
        }
    )
    of_rank = {
        **every("rank start_ns", WHOLE),
        **every("duration_us wait_us", NUMBER),
        **every("bytes_in bytes_out", nullable(WHOLE)),
        "overlap": nullable(NUMBER),
    }
    collective = fields(
        {
            "name": TEXT,
            **every("group dtype", nullable(TEXT)),
            **every("group_size message_bytes", nullable(WHOLE)),
            **every("step latest", WHOLE),
            **every("transfer_us skew_us", NUMBER),
            **every("algorithm_gb_per_s bus_gb_per_s", nullable(NUMBER)),
            "ranks": listed(fields(of_rank)),
        }
    )
    known = {
        "schema": {"const": version},
        **every("world_size unpaired", WHOLE),
        "not_joined": mapped(WHOLE),
        "missing": listed(WHOLE),
        "one_clock": BOOL,
        "residue_us": NUMBER,
        "kind": {"enum": list(get_args(Kind))},
        **every("wait_share skew_us", nullable(NUMBER)),
        "straggler": nullable(WHOLE),
        "ranks": listed(rank),
        "collectives": listed(collective),
        "findings": listed(fields(FINDING)),
    }
    return root("torchprof analyze DIR --ranks --json", version, fields(known))
