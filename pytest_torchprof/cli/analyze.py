"""``torchprof analyze TRACE``: where the time of a recording goes."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from msgspec import Struct

from pytest_torchprof.cli.arguments import UsageError, parse
from pytest_torchprof.errors import TorchprofError
from pytest_torchprof.profile import Profile, load, load_file

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_torchprof.cli.arguments import Arguments
    from pytest_torchprof.findings import Rule

USAGE = """usage: torchprof analyze TRACE|DIR [--json] [--top N] [--step N] [--by WHAT] [--no-findings]
                         [--threshold NAME=VALUE ...]

Shows the numbers of a torch.profiler trace (.json or .json.gz), its kernels and what stands out. A folder of
traces is shown one after the other.

  --json          print one JSON object (a list of them for a folder)
  --top N         rows to show (20; with --json all)
  --step N        only the step ProfilerStep#N
  --by WHAT       kernel (the default), family, op, range (user annotations) or module
  --no-findings   do not look for what stands out
  --threshold NAME=VALUE
                  when a finding is told, e.g. hotspot.share=0.6; as in the ini file's torchprof_thresholds

exit status: 0, or 2 if a file cannot be read or the usage is bad
"""
WAYS = ("kernel", "family", "op", "range", "module")
_OPTIONS = {
    "--top": "a whole number from 1 on",
    "--step": "a whole number from 0 on",
    "--by": f"one of {', '.join(WAYS)}",
    "--threshold": "NAME=VALUE, e.g. --threshold hotspot.share=0.6",
}


class _Request(Struct, frozen=True):
    path: str
    json: bool
    top: int | None
    step: int | None
    by: str
    findings: bool
    thresholds: list[str]


def run(words: list[str]) -> int:
    """Run the command; return its exit status."""
    request = _request(words)
    rules = _rules(request.thresholds)
    path = request.path
    found = _with(rules, load(path) if os.path.isdir(path) else load_file(path, by_two=True))  # noqa: PTH112
    sys.stdout.write(_json(found, request) if request.json else _text(found, request))
    return 0


def _request(words: list[str]) -> _Request:
    given = parse(words, flags=("--json", "--no-findings"), options=_OPTIONS)
    if len(given.files) != 1:
        raise UsageError(f"expected one trace file or folder, got {len(given.files)}")
    by = given.last("--by") or "kernel"
    if by not in WAYS:
        raise UsageError(f"--by takes {_OPTIONS['--by']}; got {by!r}")
    return _Request(
        path=given.files[0],
        json="--json" in given.flags,
        top=_whole(given, "--top", least=1),
        step=_whole(given, "--step", least=0),
        by=by,
        findings="--no-findings" not in given.flags,
        thresholds=given.options["--threshold"],
    )


def _whole(given: Arguments, option: str, *, least: int) -> int | None:
    value = given.last(option)
    if value is not None and (not value.isdecimal() or int(value) < least):
        raise UsageError(f"{option} takes {_OPTIONS[option]}; got {value!r}")
    return None if value is None else int(value)


def _rules(thresholds: list[str]) -> tuple[Rule, ...] | None:
    """Return the rules with these thresholds, None for the rules as they are."""
    if not thresholds:
        return None
    from pytest_torchprof.findings import RULES, with_thresholds  # noqa: PLC0415 - few ask for it

    try:
        return with_thresholds(RULES, thresholds)
    except TorchprofError as problem:
        raise TorchprofError(f"--threshold: {problem}") from None


def _with(rules: tuple[Rule, ...] | None, found: Profile | list[Profile]) -> Profile | list[Profile]:
    if rules is None:
        return found
    changed = [profile.with_context(rules=rules, gate=None) for profile in _each(found)]
    return changed if isinstance(found, list) else changed[0]


def _text(found: Profile | list[Profile], request: _Request) -> str:
    from pytest_torchprof.report.analysis_text import text  # noqa: PLC0415 - draws with tabulate

    return "\n\n".join(
        text(profile, by=request.by, step=request.step, top=request.top or 20, findings=request.findings)
        for profile in _each(found)
    )


def _json(found: Profile | list[Profile], request: _Request) -> str:
    from pytest_torchprof.report.analysis_data import as_dict, encoded  # noqa: PLC0415

    objects = [
        as_dict(profile, by=request.by, step=request.step, top=request.top, findings=request.findings, by_two=True)
        for profile in _each(found)
    ]
    return encoded(objects if isinstance(found, list) else objects[0])


def _each(found: Profile | list[Profile]) -> Iterator[Profile]:
    yield from found if isinstance(found, list) else [found]
