"""The schema of an analysis, of one recording or of the ranks of a job, and the parts that reports have of it too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_torchprof.analysis.efficiency import Efficiency
from pytest_torchprof.analysis.numbers import OF_STEP, TABLE
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
from pytest_torchprof.report import analysis_json, ranks_json
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
FINDING = of_type(analysis_json.FindingJson)


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
    analysis = fields(
        {
            "schema": {"const": version},
            "trace": of_type(analysis_json.TraceJson),
            "summary": SUMMARY,
            "steps": listed(fields({"name": nullable(TEXT), **NUMBERS_OF_STEP})),
            "kernels": listed(fields(of_columns(KERNELS))),
            "collectives": listed(fields(of_columns(COLLECTIVES))),
            "compile": of_type(analysis_json.CompileJson),
            "findings": listed(FINDING),
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
        {"anyOf": [itself, listed(itself)], "$defs": {"analysis": analysis, **AMOUNT}},
    )


def ranks() -> Schema:
    """Return the schema of ``torchprof analyze DIR --ranks --json``."""
    job = of_type(ranks_json.JobJson)
    rank = fields(
        {
            **every("rank steps collectives matched unmatched", WHOLE),
            **every("path device", TEXT),
            **every("host why_not", nullable(TEXT)),
            **every("communication_us exposed_us", NUMBER),
            **every("wait_us matched_wait_us caused_us overlap", nullable(NUMBER)),
        }
    )
    job["properties"] |= {
        "schema": {"const": ranks_json.SCHEMA},
        "ranks": listed(rank),
    }
    return root("torchprof analyze DIR --ranks --json", ranks_json.SCHEMA, job)
