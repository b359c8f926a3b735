"""The catalogue of remedies for missed limits: one sentence for each limit, and those of findings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_torchprof.findings.catalogue.compiling import GraphBroke
from pytest_torchprof.findings.catalogue.syncs import ImplicitSync
from pytest_torchprof.limits.evidence import FindingLine, GraphBreakLine, RecompileLine, WorkRow
from pytest_torchprof.limits.limit import MISSED
from pytest_torchprof.limits.own_code import is_installed
from pytest_torchprof.limits.seen import CarriedByNone, NothingWasCompiled
from pytest_torchprof.reasons.compiler_events import DataDependentJump
from pytest_torchprof.text import path_from_here, printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pytest_torchprof.findings import Finding
    from pytest_torchprof.limits.limit import Verdict
    from pytest_torchprof.reasons.compiler_events import AnyCompilerEvent

_FEWER_OF: Final = (
    "drop or fuse {what} (torch.compile, foreach and fused variants launch fewer kernels), or raise {limit} if the new "
    "number is intended"
)
_FEWER: Final = _FEWER_OF.format(what="what is launched beyond the limit", limit="it")
_HIDDEN: Final = (
    "start communication earlier, or compute more while it runs (buckets, prefetching); change the limit if as much of "
    "it is meant to be exposed"
)
_NEED_NOT_FUSE: Final = "or drop from the limit the operators that need not be fused"
_OWN: Final[Mapping[str, str]] = {
    "max_graph_breaks": "; with own= only graph breaks in packages of yours count",
    "max_recompiles": "; with own= only recompiles in packages of yours count",
}
"""By the limit, what to do where it counts code that others wrote."""
_READ_NONE: Final = (
    "read no values from the GPU within the steps (.item(), .tolist(), .cpu(), an `if` on a tensor), or read them once "
    "at the end"
)
_NOT_ASKED: Final = "leave out the synchronization that the code asks for, or do it once after the steps"
_NOT_FREED: Final = "let torch keep its memory (no torch.cuda.empty_cache() within the steps)"
_MEANT_WAITS: Final = "waits that are meant go into allow_syncs"
_OF_DATA: Final = "Data-dependent branching"
_BREAKS: Final[Mapping[str, str]] = {
    _OF_DATA: ("write the branch as torch.where or torch.cond, or move it out of the compiled function"),
    "Unsupported Tensor.item() call": (
        "read no value from a tensor there, or set torch._dynamo.config.capture_scalar_outputs = True"
    ),
}
"""By the beginning of what Dynamo says of a graph break, what to do about one of this kind."""
REMEDIES: Final[Mapping[str, str]] = {
    "max_kernels": _FEWER,
    "min_kernels": "let the test run the code that launches them, or lower the limit if the new number is intended",
    "max_launches": _FEWER,
    "max_memcpys": (
        "make tensors where they are used (device=...) instead of copying them there; copies that are meant go into "
        "allow_memcpys"
    ),
    "max_memsets": (
        "do not fill memory that is written anyway (torch.empty instead of torch.zeros), or raise the limit if the new "
        "number is intended"
    ),
    "max_syncs": f"{_READ_NONE}; {_MEANT_WAITS}",
    "max_gpu_time": (
        "make the longest of them faster (smaller types, other sizes, fusion), or raise the limit if the new time is "
        "intended"
    ),
    "max_cpu_gpu_ratio": (
        'let each launch do more (larger batches, torch.compile, CUDA graphs by mode="reduce-overhead"), or raise the '
        "limit if the new ratio is intended"
    ),
    "min_gpu_utilization": (
        "keep the GPU busy (larger batches, fewer launches and waits, data loaded ahead), or lower the limit if it is "
        "meant to idle as much"
    ),
    "min_sm_efficiency": (
        "let kernels fill the GPU (larger batches, several small products as one batched one), or lower the limit if "
        "the new share is intended"
    ),
    "min_mfu": (
        "compute in smaller types and larger products, with less beside them, or lower the limit if the new share is "
        "intended"
    ),
    "max_peak_memory": (
        "hold less at a time (free what is done with, no_grad, activation checkpointing, smaller batches), or raise "
        "the limit if as much is intended"
    ),
    "kernels": (
        "change what decides which kernels run (types, shapes, layouts, settings of torch), or write those into the "
        "limit that are meant to run"
    ),
    "forbid_kernels": "take out what launches them, or narrow the pattern if they are meant to run",
    "only_kernels": "take out what launches the others, or add a pattern for those that are meant to run",
    "ops": "let them run as often as the limit says, or write into the limit how often they are meant to",
    "forbid_ops": "remove the calls to these operators, or narrow the pattern if they are meant to run",
    "fused": (
        "make sure that torch.compile sees them in one graph, with no graph break and no operator between them that "
        f"it cannot fuse; {_NEED_NOT_FUSE}"
    ),
    "not_fused": (
        'see why Inductor fuses them (TORCH_LOGS="fusion,output_code"), or take those out of the limit that may be '
        "fused"
    ),
    "collectives": (
        "change what decides how often they run (how the model is wrapped, sizes of buckets), or write into the limit "
        "how often they are meant to"
    ),
    "max_comm_bytes": (
        "send less (smaller types, gradients once for several steps), or raise the limit if as much is intended"
    ),
    "max_exposed_communication": _HIDDEN,
    "min_overlap": _HIDDEN,
    "max_rank_skew": "give the rank that comes late less to do, or raise the limit if ranks may wait as long",
    "same_kernels": (
        "take out what differs between ranks (sizes, types, code that asks for the rank), or name the process group "
        "whose ranks are meant to be alike"
    ),
    "max_graph_breaks": (
        "change the code at these lines so that torch.compile can trace it, or move it out of the compiled function"
    ),
    "max_recompiles": (
        "keep the same from call to call what the guards ask for, or have it compiled as dynamic (dynamic=True, "
        "mark_dynamic)"
    ),
    "max_fallbacks": "call operators that Inductor compiles in place of these, or raise the limit if they are intended",
    "max_compile_time": (
        "compile less of the code, or reuse what is compiled (one block for all layers, no recompiles), or raise the "
        "limit if the new time is intended"
    ),
    "cuda_graph": (
        'compile with mode="reduce-overhead", without work of the CPU in between, or ask for a smaller share if some '
        "kernels are meant to run outside of graphs"
    ),
    "forbid": "change what the finding is about, or take its code out of the limit if it is intended",
}
"""By the keyword of the limit; the remedy is shown below what was seen, and may refer to it."""
_OF_THE_COMPILER: Final = frozenset({"graph-break", "recompile", "not-compiled"})
_TELLING: Final[Mapping[str, frozenset[str]]] = {
    "max_kernels": _OF_THE_COMPILER,
    "max_launches": _OF_THE_COMPILER,
    "max_syncs": frozenset({"implicit-sync"}),
}
"""By the limit, findings with a better remedy: what the compiler left out, which code made the CPU wait."""
_AT_ITS_LINES: Final = frozenset(
    {"forbid_kernels", "forbid_ops", "only_kernels", "max_memcpys", "max_memsets", "max_syncs"}
)
"""Limits that are missed by all work that is shown below them."""
_OF_ANY: Final = "change the code, or the limit if what was seen is intended"
"""The remedy for a limit of another plugin."""
_READS_A_VALUE: Final = (
    "reading a value from a tensor calls it: .item(), float(tensor), bool(tensor), an `if` on a tensor, printing one"
)
_CALLED_BY: Final[Mapping[str, str]] = {
    "aten::_local_scalar_dense": _READS_A_VALUE,
    "aten::item": _READS_A_VALUE,
    "aten::is_nonzero": "bool(tensor) calls it: an `if`, `while`, `assert`, `and` or `not` on a tensor",
}
"""By operators that nobody calls by name, what calls them."""
_COMPILE: Final = "let the test call what torch.compile returned, or take the limit away if nothing is to be compiled"


def remedies_of(
    verdicts: Iterable[Verdict], why: Callable[[str], Sequence[Finding]] = lambda _: (), *, came: str = ""
) -> list[str]:
    """Return the remedies for the missed ones of these verdicts, once each; beside others each says for which limit.

    ``why`` returns the findings that may explain why the limit of a name was missed: whatever broke a compiled graph
    must be fixed first. ``came`` are the kernels that are new against a baseline, which tell what is too much.
    """
    subjects: dict[str, dict[str, None]] = {}
    verdicts = tuple(verdicts)
    for verdict in verdicts:
        if verdict.status == MISSED:
            for subject, remedy in _remedies_of(verdict, why, came):
                subjects.setdefault(remedy, {})[subject] = None
    # What is to be done for limits that were not measured stands beside these.
    if len(subjects) < 2 and all(verdict.status == MISSED for verdict in verdicts):
        return [*subjects]
    return [f"for {', '.join(names)}: {remedy}" for remedy, names in subjects.items()]


def _remedies_of(verdict: Verdict, why: Callable[[str], Sequence[Finding]], came: str) -> list[tuple[str, str]]:
    """Return the limit, or the findings that it forbids, each with its remedy."""
    if any(_nothing_compiled(fact) for fact in verdict.seen):
        return [(verdict.name, _COMPILE)]
    findings = [fact.finding for fact in verdict.evidence if isinstance(fact, FindingLine)]
    if remedies := [(finding.code, finding.remedy) for finding in findings if finding.remedy]:
        return remedies
    if verdict.limit == "max_syncs":
        return [(verdict.name, _about_waits(verdict, why))]
    finding = telling_of(verdict, why)
    if finding is None:
        remedy = REMEDIES.get(verdict.limit, _OF_ANY)
        if came and remedy is _FEWER:
            return [(verdict.name, _FEWER_OF.format(what=came, limit="the limit"))]
        remedy = _about_break(verdict, why) or f"{_where(verdict, verdict.rows)}{remedy}{_called_by(verdict)}"
        return [(verdict.name, f"{remedy}{_own(verdict)}")]
    return [(verdict.name, f"{_where_of(finding)}{finding.remedy}")]


def _about_waits(verdict: Verdict, why: Callable[[str], Sequence[Finding]]) -> str:
    """Return the remedy for the waits by which a limit was missed, of each kind at its line: the longest first."""
    operators_known = any(row.ops for row in verdict.rows)
    kinds: dict[str, list[WorkRow]] = {}
    for row in verdict.rows:
        if not row.also_ran:
            kinds.setdefault(_call_remedy(row, operators_known=operators_known), []).append(row)
    remedies = [
        f"{_where(verdict, rows)}{remedy}" if remedy else _operator_remedy(verdict, rows, why)
        for remedy, rows in kinds.items()
    ]
    return "; ".join([*(remedies or [_READ_NONE]), _MEANT_WAITS])


def _call_remedy(row: WorkRow, *, operators_known: bool) -> str:
    """Return the remedy for a wait that its own name explains; empty for one of an operator, or of a copy."""
    if "Free" in row.name:
        return _NOT_FREED
    # Operators wait for streams alone: where none are recorded, one may have called it.
    asked = "Synchronize" in row.name and not row.ops and (operators_known or "Stream" not in row.name)
    return _NOT_ASKED if asked else ""


def _operator_remedy(verdict: Verdict, rows: Sequence[WorkRow], why: Callable[[str], Sequence[Finding]]) -> str:
    finding = telling_of(verdict, why)
    if finding is None:
        return f"{_where(verdict, rows)}{_READ_NONE}"
    # The first of the rows may be of another kind than what the finding is about.
    return f"{_where_of(finding) or _where(verdict, rows)}{finding.remedy}"


def _where_of(finding: Finding) -> str:
    return "" if finding.source is None else f"at {printable(finding.source)}: "


def _where(verdict: Verdict, shown: Iterable[WorkRow]) -> str:
    """Return the lines to change, where all work that is shown must not run; else an empty text."""
    rows = [row for row in shown if not row.also_ran and row.line is not None]
    if verdict.limit not in _AT_ITS_LINES or not rows:
        return ""
    # The line that the short summary has, too.
    first = verdict.culprit if verdict.culprit in rows else rows[0]
    file, number = first.line or ("", 0)
    is_one = len({row.line for row in rows}) == 1 and all(len(row.places) == 1 for row in rows)
    return f"{'at' if is_one else 'beginning at'} {printable(path_from_here(file))}:{number}: "


def _about_break(verdict: Verdict, why: Callable[[str], Sequence[Finding]]) -> str:
    """Return the remedy for the graph breaks that miss the limit or explain it; empty where none is known."""
    if verdict.limit == "max_graph_breaks":
        breaks = [fact for fact in verdict.evidence if isinstance(fact, GraphBreakLine)]
        kinds = {_kind_of_break(fact.why) for fact in breaks}
        if len(kinds) != 1 or not (kind := kinds.pop()):
            return ""
        places = {fact.file_line for fact in breaks}
        where = "these lines" if len(places) != 1 else printable(places.pop() or "the break")
        return f"at {where}: {kind}"
    causes = why(verdict.limit) if verdict.limit == "fused" else ()
    broke = next((finding for finding in causes if isinstance(finding, GraphBroke)), None)
    if broke is None or broke.source is None:
        return ""
    kind = f" ({how})" if (how := _kind_of_break(broke.breaks[0].reason)) else ""
    which = "the graph break" if broke.count == 1 else f"{broke.count} graph breaks, first the one"
    at = printable(broke.source)
    return f"take out {which} at {at}{kind}, so that torch.compile sees them in one graph; {_NEED_NOT_FUSE}"


def _own(verdict: Verdict) -> str:
    """Return how the code of others is left out, where some of what was counted lies in an installed package."""
    # Of events in no known file own= leaves out none.
    files = [fact.file for fact in verdict.evidence if isinstance(fact, GraphBreakLine | RecompileLine)]
    return _OWN.get(verdict.limit, "") if any(file is not None and is_installed(file) for file in files) else ""


def _kind_of_break(why: AnyCompilerEvent | str) -> str:
    """Return the remedy for a graph break of a known kind, by the reason that Dynamo gives; empty for others."""
    if isinstance(why, DataDependentJump):
        return _BREAKS[_OF_DATA]
    return next((how for beginning, how in _BREAKS.items() if str(why).startswith(beginning)), "")


def _called_by(verdict: Verdict) -> str:
    """Return the callers of the forbidden operators that nobody calls by name, in parentheses; else an empty text."""
    ran = [row.name for row in verdict.rows] if verdict.limit == "forbid_ops" else []
    causes = dict.fromkeys(_CALLED_BY[name] for name in ran if name in _CALLED_BY)
    return f" ({'; '.join(causes)})" if causes else ""


def telling_of(verdict: Verdict, why: Callable[[str], Sequence[Finding]]) -> Finding | None:
    """Return the finding that tells better than the limit what to do about a verdict; None where there is none."""
    telling = _TELLING.get(verdict.limit, frozenset()) if verdict.status == MISSED else frozenset()
    return next(
        (
            finding
            for finding in (why(verdict.limit) if telling else ())
            if finding.code in telling and _explains_most(finding, verdict)
        ),
        None,
    )


def _explains_most(finding: Finding, verdict: Verdict) -> bool:
    """Return whether a finding explains most of what was seen; for waits of operators, half of their time is enough."""
    if not isinstance(finding, ImplicitSync) or not verdict.rows:
        return True
    rows = [row for row in verdict.rows if not row.also_ran and row.ops]
    # An operator whose waits are allowed is no longer to be changed.
    is_seen = any(next(iter(finding.ops)) in row.ops for row in rows)
    return is_seen and 2 * finding.time_us >= sum(row.time_us or 0.0 for row in rows)


def _nothing_compiled(fact: object) -> bool:
    return isinstance(fact, NothingWasCompiled) or (isinstance(fact, CarriedByNone) and not fact.compiled)
