"""``torchprof check TRACE --limit max_kernels=5``: judge a file by the limits of the marker."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from pytest_torchprof.cli import UsageError, add_device, add_limits, add_ranks, add_thresholds, add_top
from pytest_torchprof.reasons.errors import TorchprofError

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Collection, Iterable, Sequence

    from pytest_torchprof.analysis.ranks import RankPart
    from pytest_torchprof.cli import Parser
    from pytest_torchprof.findings import Finding
    from pytest_torchprof.kernels.own_kernels import OwnKernels
    from pytest_torchprof.limits import Asked, Verdict
    from pytest_torchprof.limits.failure import Failure
    from pytest_torchprof.profiles import Profile
    from pytest_torchprof.reasons.reason import Reason

HOLDS, MISSED, UNKNOWN = 0, 1, 3
_NARROW: Final = 60

_EPILOG: Final = """\
examples:
  torchprof check trace.json.gz --limit max_kernels=5 --limit kernels=_tn_
  torchprof check trace.json.gz --limit 'max_gpu_time="1.5ms"'
  torchprof check trace.json.gz --limit 'only_kernels=triton()' --limit 'own_kernels={"my_mm_*": "gemm"}'
  torchprof check recordings-of-a-job/ --ranks --limit max_rank_skew=1ms

exit status: 0 all limits hold, 1 one was missed, 3 one could not be measured, 2 cannot read or bad usage"""


def add_arguments(parser: Parser) -> None:
    """Declare the command's arguments."""
    parser.description = "Judges a recording by the limits of the torchprof marker."
    parser.epilog = _EPILOG
    parser.add_argument("path", metavar="TRACE|DIR", help="a recording; with --ranks a folder of them")
    add_limits(parser)
    add_device(parser)
    add_ranks(
        parser,
        "each limit must hold on every rank, and the worst rank is shown; max_rank_skew and same_kernels concern all "
        "ranks together",
    )
    add_thresholds(parser)
    add_top(parser, "10", default=10)
    parser.add_argument("--json", action="store_true", help="one JSON object, with all rows")


def run(arguments: Namespace) -> int:
    """Run the command; return its exit status."""
    if not arguments.limit:
        from pytest_torchprof.reasons.command_line import Needed, NotGiven  # noqa: PLC0415 - only a mistake needs it

        raise UsageError.because(NotGiven(Needed.LIMIT))
    from pytest_torchprof.limits.written import read_limit_texts  # noqa: PLC0415  (help and usage errors do without)

    judge = _judge_ranks if arguments.ranks else _judge
    return judge(arguments, read_limit_texts(arguments.limit))


def _judge(arguments: Namespace, limits: dict[str, object]) -> int:
    from pytest_torchprof.limits import check_limits  # noqa: PLC0415
    from pytest_torchprof.profiles import load  # noqa: PLC0415
    from pytest_torchprof.text import counted  # noqa: PLC0415
    from pytest_torchprof.text.tables import on_screen  # noqa: PLC0415

    own_kernels, asked = _read_asked(arguments, limits)
    trace = arguments.path
    profile = load(trace, device=arguments.device)
    if isinstance(profile, list):
        from pytest_torchprof.reasons.files_asked import SeveralRecordings  # noqa: PLC0415 - only a mistake needs it

        raise TorchprofError.because(SeveralRecordings(trace, len(profile)))
    verdicts = check_limits(profile.with_own_kernels(own_kernels), asked)
    if arguments.json:
        write_json(verdicts, profile.why_missed)
        return _status(verdict.status for verdict in verdicts)
    from pytest_torchprof.limits.failure import failure_of  # noqa: PLC0415  (programs that read JSON need none)

    _write_verdicts(verdicts, failure_of(verdicts, profile, profile.why_missed), arguments.top)
    notes = []
    if orphans := profile.trace.orphans:
        notes.append(
            f"{counted(orphans, 'GPU operation')} without a launch in the recording, in no step: queued before it, "
            "or lost with the very first calls\n"
        )
    if profile.trace.metadata is None and not profile.trace.device_kind.has_launches:
        notes.append(
            "work on threads that torch.profiler does not see is not in this recording; nothing says whether there was "
            "any\n"
        )
    sys.stdout.write("".join(map(on_screen, notes)))
    return _status(verdict.status for verdict in verdicts)


def _judge_ranks(arguments: Namespace, limits: dict[str, object]) -> int:
    """Judge each rank of a job, and the limits on all ranks together; for each limit the worst rank is shown."""
    from pytest_torchprof.cli.ranks import job_in  # noqa: PLC0415
    from pytest_torchprof.limits import check_limits  # noqa: PLC0415
    from pytest_torchprof.limits.failure import Failure  # noqa: PLC0415
    from pytest_torchprof.limits.rank_limits import (  # noqa: PLC0415
        check_job,
        divided_among_ranks,
        missing_ranks,
        worst_of,
    )
    from pytest_torchprof.limits.remedies import telling_of  # noqa: PLC0415

    own_kernels, asked = _read_asked(arguments, limits)
    each, together = divided_among_ranks(asked)
    verdicts_of: dict[int, tuple[Verdict, ...]] = {}
    telling: dict[tuple[int, str], Finding | None] = {}

    def look(profile: Profile, part: RankPart) -> None:
        verdicts_of[part.rank] = check_limits(profile, each)
        for verdict in verdicts_of[part.rank]:
            telling[part.rank, verdict.limit] = telling_of(verdict, profile.why_missed)

    job = job_in(arguments.path, arguments.device, look, own_kernels=own_kernels)
    may_be_idle = limits.get("min_kernels") == 0
    verdicts = [
        *worst_of(verdicts_of, job.world_size),
        *check_job(job, together, may_be_idle=may_be_idle),
    ]
    verdicts += missing_ranks(job, verdicts)
    shown = {verdict.limit: verdict.on_ranks.first for verdict in verdicts if verdict.on_ranks is not None}
    causes: dict[str, tuple[Finding, ...]] = {
        limit: (finding,) for limit, rank in shown.items() if (finding := telling.get((rank, limit)))
    }
    if arguments.json:
        write_json(verdicts, lambda limit: causes.get(limit, ()))
    else:
        # Each rank has steps of its own.
        _write_verdicts(verdicts, Failure(steps=0, causes=causes), arguments.top)
    return _status(verdict.status for verdict in verdicts)


def _read_asked(arguments: Namespace, limits: dict[str, object]) -> tuple[OwnKernels, tuple[Asked, ...]]:
    """Return the user's declarations of kernels that no table knows, and the limits."""
    from pytest_torchprof.findings import RULES, with_thresholds  # noqa: PLC0415
    from pytest_torchprof.limits import catalogue, divided, read_limits  # noqa: PLC0415

    own_kernels, others = divided(limits)
    if not others:
        from pytest_torchprof.reasons.command_line import OwnKernelsAlone  # noqa: PLC0415 - only a mistake needs it

        raise UsageError.because(OwnKernelsAlone())
    known = catalogue(with_thresholds(RULES, arguments.threshold))
    return own_kernels, read_limits(others, known=known)


def write_json(
    verdicts: Collection[Verdict], why: Callable[[str], Sequence[Finding]], reason: Reason | None = None
) -> None:
    """Write verdicts as one JSON object in one line.

    ``why`` returns the findings that may explain why the limit of a name was missed. ``reason``: why nothing is
    measured, where that is so.
    """
    import json  # noqa: PLC0415

    from pytest_torchprof.report.verdicts import verdict_values, verdicts_json  # noqa: PLC0415

    sys.stdout.write(json.dumps(verdict_values(verdicts_json(verdicts, reason, why))) + "\n")


def _write_verdicts(verdicts: Sequence[Verdict], failure: Failure, most: int) -> None:
    """Write what does not hold as a failed test shows it, and below it a line for each limit that holds."""
    from pytest_torchprof.limits import HOLDS as HELD  # noqa: PLC0415
    from pytest_torchprof.limits.failure_text import failure_text  # noqa: PLC0415
    from pytest_torchprof.limits.limit_line import limit_line  # noqa: PLC0415
    from pytest_torchprof.limits.screen import Screen  # noqa: PLC0415
    from pytest_torchprof.text import reason_line  # noqa: PLC0415
    from pytest_torchprof.text.tables import screen_columns  # noqa: PLC0415

    columns = screen_columns()
    screen = Screen.of_columns(columns, rest="--top N", top=most)
    held = [verdict for verdict in verdicts if verdict.status == HELD]
    failed = [verdict for verdict in verdicts if verdict.status != HELD]
    blocks = [failure_text(failed, failure, (), screen)] if failed else []
    lines = []
    for verdict in held:
        # On a narrow screen what was seen stands below its limit.
        at = 14 if columns is None or columns >= _NARROW else 2
        lines += screen.broken(f"{verdict.status:<14}{limit_line(verdict).lstrip()}", hanging=at)
        details = [line for fact in verdict.evidence for line in fact.lines]
        lines += [part for line in details[:most] for part in screen.broken(f"{'':{at}}    {reason_line(line)}")]
        lines += screen.left_out(len(details) - most, indent=at + 4)
    blocks += ["\n".join(lines)] if lines else []
    sys.stdout.write("\n\n".join(blocks) + "\n")


def _status(statuses: Iterable[str]) -> int:
    different = set(statuses)
    return MISSED if "missed" in different else UNKNOWN if "not measured" in different else HOLDS
