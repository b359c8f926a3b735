"""``torchprof analyze TRACE``: where the time of a recording goes."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from pytest_torchprof.analysis.tables import WAYS
from pytest_torchprof.cli import DEVICE_OPTION, RANKS, UsageError, parse
from pytest_torchprof.errors import TorchprofError
from pytest_torchprof.profiles import load, load_file
from pytest_torchprof.text import MOST_DIGITS

if TYPE_CHECKING:
    from pytest_torchprof.cli import Arguments
    from pytest_torchprof.findings import Rule

USAGE = """usage: torchprof analyze TRACE|DIR [--json] [--top N] [--step N] [--by WHAT] [--no-findings]
                         [--device cpu|cuda] [--threshold NAME=VALUE ...]
       torchprof analyze DIR --ranks [--json] [--top N] [--device cpu|cuda]

Shows the numbers of a torch.profiler trace (.json or .json.gz), its kernels and what stands out. A folder of
traces is shown one after the other.

  --json          print one JSON object (a list of them for a folder)
  --top N         rows to show (20; with --json all)
  --step N        only the step ProfilerStep#N
  --by WHAT       kernel (the default), family, op, range (user annotations), module or collective
  --device D      what was measured, where the recording does not say: cuda (the default), or cpu, whose kernels
                  are the operators that compute
  --ranks         the folder holds the recordings of one job's ranks: show them together, who waits for whom
  --no-findings   do not look for what stands out
  --threshold NAME=VALUE
                  when a finding is reported, e.g. hotspot.share=0.6; as in the ini file's torchprof_thresholds

exit status: 0, or 2 if a file cannot be read or the usage is bad
"""
_OPTIONS = {
    "--top": "a whole number from 1 on",
    "--step": "a whole number from 0 on",
    "--by": f"one of {', '.join(WAYS)}",
    **DEVICE_OPTION,
    "--threshold": "NAME=VALUE, e.g. --threshold hotspot.share=0.6",
}


def run(words: list[str]) -> int:
    """Run the command; return its exit status."""
    arguments = parse(words, flags=("--json", "--no-findings", RANKS), options=_OPTIONS)
    if len(arguments.files) != 1:
        raise UsageError(f"expected one trace file or folder, got {len(arguments.files)}")
    if RANKS in arguments.flags:
        return _analyze_ranks(arguments)
    by = arguments.last("--by") or "kernel"
    if by not in WAYS:
        raise UsageError(f"--by takes {_OPTIONS['--by']}; got {by!r}")
    top, step = _whole(arguments, "--top", least=1), _whole(arguments, "--step", least=0)
    shown: dict[str, Any] = {"by": by, "step": step, "findings": "--no-findings" not in arguments.flags}
    # Findings take longer to import than a small recording to read.
    thresholds = arguments.options["--threshold"]
    rules = _rules(thresholds) if thresholds or shown["findings"] else ()
    (path,) = arguments.files
    device = arguments.last("--device")
    found = load(path, device=device) if os.path.isdir(path) else load_file(path, device=device, by_two=True)  # noqa: PTH112
    profiles = found if isinstance(found, list) else [found]
    if "--json" in arguments.flags:
        from pytest_torchprof.report.analysis_json import as_dict, encoded  # noqa: PLC0415

        objects = [as_dict(profile, rules, **shown, top=top, by_two=True) for profile in profiles]
        sys.stdout.write(encoded(objects if isinstance(found, list) else objects[0]))
    else:
        from pytest_torchprof.report.analysis_text import text  # noqa: PLC0415 - who asks for JSON needs none
        from pytest_torchprof.report.bars import bars_on  # noqa: PLC0415 - likewise
        from pytest_torchprof.text import terminal_width  # noqa: PLC0415 - likewise

        shown |= {"top": top or 20, "width": terminal_width(), "bars": bars_on(sys.stdout)}
        sys.stdout.write("\n\n".join(text(profile, rules, **shown) for profile in profiles))
    return 0


def _analyze_ranks(arguments: Arguments) -> int:
    """Show the recordings of a job's ranks together."""
    from pytest_torchprof.cli.ranks import job_in  # noqa: PLC0415 - who looks at one rank needs none of it
    from pytest_torchprof.report import ranks_report  # noqa: PLC0415 - likewise
    from pytest_torchprof.report.analysis_json import encoded  # noqa: PLC0415 - likewise
    from pytest_torchprof.text import terminal_width  # noqa: PLC0415 - likewise

    others = [name for name in ("--by", "--step", "--threshold") if arguments.options[name]]
    if others or "--no-findings" in arguments.flags:
        raise UsageError(f"{RANKS} goes with --json, --top and --device, not with {(*others, '--no-findings')[0]}")
    top = _whole(arguments, "--top", least=1)
    job = job_in(arguments.files[0], arguments.last("--device"))
    if "--json" in arguments.flags:
        sys.stdout.write(encoded(ranks_report.as_dict(job)))
    else:
        sys.stdout.write(ranks_report.text(job, width=terminal_width(), top=top or 20))
    return 0


def _whole(arguments: Arguments, option: str, *, least: int) -> int | None:
    value = arguments.last(option)
    if value is not None and (not value.isdecimal() or len(value) > MOST_DIGITS or int(value) < least):
        raise UsageError(f"{option} takes {_OPTIONS[option]}; got {value!r}")
    return None if value is None else int(value)


def _rules(thresholds: list[str]) -> tuple[Rule, ...]:
    from pytest_torchprof.findings import RULES, with_thresholds  # noqa: PLC0415 - help and usage errors do without

    try:
        return with_thresholds(RULES, thresholds)
    except TorchprofError as problem:
        raise TorchprofError(f"--threshold: {problem.text}", problem.code) from None
