"""``torchprof schema NAME``: the JSON schema of a command's output, a report or a baseline file.

Schemas are made from the types and tables of the code, and are open, since a new field raises no version.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Final, get_args

from pytest_torchprof.against import bisection_json
from pytest_torchprof.baseline import form, step_form
from pytest_torchprof.cli import diff_json, doctor_json
from pytest_torchprof.cli.schema_of_analysis import AMOUNT, FINDING, SUMMARY, analysis, ranks
from pytest_torchprof.cli.schema_parts import (
    BOOL,
    TEXT,
    Schema,
    every,
    fields,
    listed,
    mapped,
    nullable,
    of_type,
    root,
)
from pytest_torchprof.compare.comparison_json import ComparisonJson
from pytest_torchprof.compare.time_comparison import TimeComparison
from pytest_torchprof.fleet import report as fleet_report
from pytest_torchprof.fleet import status
from pytest_torchprof.history import changes_json
from pytest_torchprof.report import Disuse, json_report, verdicts
from pytest_torchprof.report.result import IN_MESSAGE, Result
from pytest_torchprof.trace.metadata import Environment

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Collection, Mapping

    from pytest_torchprof.cli import Parser


def diff() -> Schema:
    """Return the schema of ``torchprof diff --json``: of recordings, folders, jobs' ranks, or baseline files."""
    apart = (ComparisonJson,)
    each = [_of_version(kind, diff_json.SCHEMA, apart) for kind in get_args(diff_json.Diff)]
    defs = {kind.__name__: of_type(kind) for kind in apart}
    return root("torchprof diff --json", diff_json.SCHEMA, {"anyOf": each, "$defs": defs})


def bisection() -> Schema:
    """Return the schema of ``torchprof bisect --json``."""
    return _versioned("torchprof bisect --json", bisection_json.Bisection, bisection_json.SCHEMA)


def report() -> Schema:
    """Return the schema of ``--torchprof-report=FILE.json``."""
    result = of_type(Result)
    for name in IN_MESSAGE:
        del result["properties"][name]
    result["required"] = [*(name for name in result["required"] if name not in IN_MESSAGE), "message"]
    result["properties"]["message"] = TEXT
    result["properties"] |= {
        "summary": {"anyOf": [SUMMARY, {"type": "object", "maxProperties": 0}]},
        "environment": of_type(Environment, whole=False),
        "limits": listed(of_type(verdicts.VerdictJson)),
        "findings": listed(FINDING),
        "telling": mapped(FINDING),
        "comparison": nullable(of_type(ComparisonJson)),
        "baseline": nullable(TEXT),
        **every("changes noise", listed(TEXT)),
        "against_time": nullable(fields({**of_type(TimeComparison)["properties"], "words": TEXT})),
    }
    del result["properties"]["entry"]
    result["required"] = [*(name for name in result["required"] if name != "entry"), "baseline", "changes", "noise"]
    environment = of_type(Environment, whole=False)
    unused = {str(why): mapped(listed(TEXT)) for why in Disuse}
    version = json_report.SCHEMA
    known = {"schema": {"const": version}, "environment": environment, "results": listed(result), **unused}
    against = {"against": fields({**every("ref sha", TEXT), "dirty": BOOL, "gone": listed(TEXT)})}
    return root("pytest --torchprof-report=FILE.json", version, {**fields(known, against), "$defs": AMOUNT})


def check() -> Schema:
    """Return the schema of ``torchprof check --json`` and ``torchprof run --json``."""
    return _versioned("torchprof check --json, torchprof run --json", verdicts.VerdictsJson, verdicts.SCHEMA)


def baseline() -> Schema:
    """Return the schema of a baseline file, as this version writes it."""
    line, end = of_type(step_form.KernelLine, whole=False), {"const": "end"}
    repeated = of_type(step_form.RepeatedLines, whole=False)
    repeated["properties"]["kernels"] = listed({"anyOf": [{"$ref": "#/$defs/kernel"}, end]})
    entry = of_type(form.EntryFields, whole=False)
    launches = {"anyOf": [{"$ref": "#/$defs/kernel"}, {"$ref": "#/$defs/repeated"}, end]}
    rank = of_type(form.RankFields, whole=False)
    entry["properties"]["ranks"] = mapped(rank)
    for owner in (entry, rank):
        owner["properties"]["steps"] = {**listed(listed(launches)), "minItems": 1}
    known = fields({"schema": {"const": form.SCHEMA}, "entries": mapped(entry)})
    return root("a baseline file", form.SCHEMA, {**known, "$defs": {"kernel": line, "repeated": repeated}})


def doctors() -> Schema:
    """Return the schema of ``torchprof doctor --json``."""
    return _versioned("torchprof doctor --json", doctor_json.DoctorReport, doctor_json.SCHEMA)


def history() -> Schema:
    """Return the schema of ``torchprof history changes --json``."""
    return _versioned("torchprof history changes --json", changes_json.BranchChanges, changes_json.SCHEMA)


def fleet() -> Schema:
    """Return the schema of ``torchprof fleet report --json``."""
    return _versioned("torchprof fleet report DIR --json", fleet_report.FleetReport, fleet_report.SCHEMA)


def fleet_status() -> Schema:
    """Return the schema of ``torchprof fleet status --json``."""
    return _versioned("torchprof fleet status DIR --json", status.FleetStatus, status.SCHEMA)


def _versioned(title: str, kind: type, version: int) -> Schema:
    return root(title, version, _of_version(kind, version))


def _of_version(kind: type, version: int, apart: Collection[type] = ()) -> Schema:
    schema = of_type(kind, apart=apart)
    schema["properties"]["schema"] = {"const": version}
    return schema


SCHEMAS: Final[Mapping[str, Callable[[], Schema]]] = {
    "analysis": analysis,
    "ranks": ranks,
    "diff": diff,
    "bisect": bisection,
    "report": report,
    "check": check,
    "baseline": baseline,
    "doctor": doctors,
    "history": history,
    "fleet": fleet,
    "fleet-status": fleet_status,
}


def schema_text(name: str) -> str:
    """Return a schema as JSON."""
    return json.dumps(SCHEMAS[name](), indent=1) + "\n"


def add_arguments(parser: Parser) -> None:
    """Declare the command's arguments."""
    parser.description = "Prints the JSON schema of what a command prints as JSON, of a report, or of a baseline file."
    parser.epilog = """\
example:
  torchprof schema report > report.schema.json

exit status: 0, or 2 if the usage is bad"""
    parser.add_argument("name", choices=tuple(SCHEMAS), metavar="NAME", help=f"one of: {', '.join(SCHEMAS)}")


def run(arguments: Namespace) -> int:
    """Run the command; return its exit status."""
    sys.stdout.write(schema_text(arguments.name))
    return 0
