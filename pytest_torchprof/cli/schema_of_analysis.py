"""The schema of an analysis, of one recording or of the ranks of a job, and the parts that reports have of it too."""

from __future__ import annotations

from typing import get_args

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


def times(device: str = "") -> dict[str, Schema]:
    """Return the fields of a row's calls besides their number and time."""
    numbers = {f"{device}{name}_us": nullable(NUMBER) for name in ("mean", "min", "max", "worst_step")}
    return {**numbers, f"{device}worst_step": nullable(TEXT)}


def analysis() -> Schema:
    """Return the schema of ``torchprof analyze --json``: an object, or a list of them for a folder."""
    version = analysis_json.SCHEMA
    both = {"calls": WHOLE, "name": TEXT, **every("self_cpu_us cpu_us self_gpu_us gpu_us", nullable(NUMBER))}
    both |= {**times("cpu_"), **times("gpu_")}
    memory = every("self_cpu_memory_bytes cpu_memory_bytes self_gpu_memory_bytes gpu_memory_bytes", nullable(WHOLE))
    ranges = fields({**both, "kernels": WHOLE}, {"worst": fields(NUMBERS_OF_STEP)})
    kernel = fields(
        {
            **every("name library", TEXT),
            "family": nullable(TEXT),
            **every("dtype layout triton op forward_op", nullable(TEXT)),
            "tensor_core": nullable(BOOL),
            "op_chain": listed(TEXT),
            "count": WHOLE,
            "time_us": NUMBER,
            **every("tflops gb_per_s", nullable(NUMBER)),
            **times(),
        }
    )
    collective = fields(
        {
            "name": TEXT,
            **every("group dtype", nullable(TEXT)),
            **every("group_size bytes", nullable(WHOLE)),
            "calls": WHOLE,
            "time_us": NUMBER,
            **every("exposed_us bus_gb_per_s", nullable(NUMBER)),
            **times(),
        }
    )
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
            "kernels": listed(kernel),
            "collectives": listed(collective),
            "compile": fields({**compiled, "compiled_in_window": BOOL, "caches": nullable(CACHES)}),
            "findings": listed(fields(FINDING)),
        },
        {
            "efficiency": _efficiency(),
            "headline": fields({**every("headline message", TEXT), "facts": mapped(ANY)}),
            "families": listed(
                fields({"family": nullable(TEXT), "library": TEXT, "count": WHOLE, "time_us": NUMBER, **times()})
            ),
            "ops": listed(fields({**both, "shapes": ANY, **memory, "forward_op": nullable(TEXT)})),
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
