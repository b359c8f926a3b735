"""``torchprof analyze TRACE``: where the time of a recording goes."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, Final

from pytest_torchprof.analysis.tables import WAYS
from pytest_torchprof.cli import RANKS, UsageError, add_device, add_ranks, add_thresholds, whole
from pytest_torchprof.profiles import load, load_file
from pytest_torchprof.reasons.errors import TorchprofError

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Sequence

    from pytest_torchprof.analysis.ranks import Job
    from pytest_torchprof.cli import Parser
    from pytest_torchprof.findings import Finding, Rule

_DESCRIPTION: Final = """\
Shows the numbers of a torch.profiler trace (.json or .json.gz), its kernels and what stands out. A folder of
traces is shown one after the other."""
_EPILOG: Final = """\
examples:
  torchprof analyze trace.json.gz --top 5 --by family
  torchprof analyze recordings-of-a-job/ --ranks

exit status: 0, or 2 if a file cannot be read or the usage is bad"""


def add_arguments(parser: Parser) -> None:
    """Declare the command's arguments."""
    parser.description = _DESCRIPTION
    parser.epilog = _EPILOG
    parser.add_argument("path", metavar="TRACE|DIR", help="a recording, or a folder of them")
    add_device(parser)
    add_ranks(parser, "show them together, who waits for whom")
    shown = parser.add_argument_group("what is shown")
    shown.add_argument("--json", action="store_true", help="one JSON object (a list of them for a folder)")
    shown.add_argument("--top", type=whole(1), metavar="N", help="how many rows (20; with --json all)")
    shown.add_argument("--step", type=whole(0), metavar="N", help="only the step ProfilerStep#N")
    shown.add_argument(
        "--by",
        choices=WAYS,
        metavar="WHAT",
        help="rows by kernel (the default), family, op, range (user annotations), module or collective",
    )
    shown.add_argument("--no-findings", action="store_true", help="leave out what stands out")
    add_thresholds(shown)


def run(arguments: Namespace) -> int:
    """Run the command; return its exit status."""
    if arguments.ranks:
        return _analyze_ranks(arguments)
    path, device, top = arguments.path, arguments.device, arguments.top
    shown: dict[str, Any] = {
        "by": arguments.by or "kernel",
        "step": arguments.step,
        "findings": not arguments.no_findings,
    }
    # Importing findings takes longer than reading a small recording.
    thresholds = arguments.threshold
    rules = _rules(thresholds) if thresholds or shown["findings"] else ()
    loaded = load(path, device=device) if os.path.isdir(path) else load_file(path, device=device)  # noqa: PTH112
    profiles: list[Any] = [*loaded] if isinstance(loaded, list) else [loaded]
    if arguments.json:
        from pytest_torchprof.report.analysis_json import as_dict, encoded  # noqa: PLC0415

        objects = [as_dict(profile, rules, **shown, top=top) for profile in profiles]
        sys.stdout.write(encoded(objects if isinstance(loaded, list) else objects[0]))
    else:
        from pytest_torchprof.report.analysis_text import text  # noqa: PLC0415 - who asks for JSON needs none
        from pytest_torchprof.report.bars import bars_on  # noqa: PLC0415 - imported where it is used
        from pytest_torchprof.text.tables import terminal_width  # noqa: PLC0415 - imported where it is used

        shown |= {"top": top or 20, "width": terminal_width(), "bars": bars_on(sys.stdout)}
        sys.stdout.write("\n\n".join(text(profile, rules, **shown) for profile in profiles))
    # To free a million objects one by one takes 2 to 3 % of the time, and a process that ends need not: a cycle leaves
    # them to Python's collector, which looks for none then (`cli._run`).
    profiles.append(profiles)
    return 0


def _analyze_ranks(arguments: Namespace) -> int:
    """Show the recordings of a job's ranks together."""
    from pytest_torchprof.cli.ranks import job_in  # noqa: PLC0415 - who looks at one rank needs none of it
    from pytest_torchprof.report import ranks_report  # noqa: PLC0415 - imported where it is used
    from pytest_torchprof.report.analysis_json import encoded  # noqa: PLC0415 - imported where it is used
    from pytest_torchprof.report.ranks_json import job_json  # noqa: PLC0415 - imported where it is used
    from pytest_torchprof.text.tables import terminal_width  # noqa: PLC0415 - imported where it is used

    given = {"--by": arguments.by, "--step": arguments.step, "--threshold": arguments.threshold or None}
    others = [option for option, value in given.items() if value is not None]
    if others or arguments.no_findings:
        from pytest_torchprof.reasons.command_line import OptionsExclude  # noqa: PLC0415 - only a mistake needs it

        fitting = ("--json", "--top", "--device")
        raise UsageError.because(OptionsExclude(RANKS, (*others, "--no-findings")[0], fitting))
    job = job_in(arguments.path, arguments.device)
    if arguments.json:
        sys.stdout.write(encoded(job_json(job)))
    else:
        own = _own_findings(job, ranks_report.named_ranks(job), arguments.device)
        text = ranks_report.text(job, own, folder=arguments.path, width=terminal_width(), top=arguments.top or 20)
        sys.stdout.write(text)
    return 0


def _own_findings(job: Job, ranks: Sequence[int], device: str | None) -> dict[int, Finding]:
    """Return the first finding of each of these ranks besides communication, which all ranks together show."""
    from pytest_torchprof.findings import find  # noqa: PLC0415 - importing them takes long
    from pytest_torchprof.findings.catalogue.ranks import ExposedCommunication  # noqa: PLC0415 - as above

    first = {}
    for rank in ranks:
        findings = find(load_file(job[rank].path, device=device))
        first[rank] = next((finding for finding in findings if not isinstance(finding, ExposedCommunication)), None)
    return {rank: finding for rank, finding in first.items() if finding is not None}


def _rules(thresholds: list[str]) -> tuple[Rule, ...]:
    from pytest_torchprof.findings import RULES, with_thresholds  # noqa: PLC0415 - help and usage errors do without

    try:
        return with_thresholds(RULES, thresholds)
    except TorchprofError as problem:
        from pytest_torchprof.reasons.composed import OfKeyword  # noqa: PLC0415 - only a mistake needs it

        raise TorchprofError.because(OfKeyword("--threshold", None, problem.reason)) from None
