"""``torchprof analyze TRACE``: where the time of a recording goes."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from msgspec import Struct, field

from pytest_torchprof.errors import TorchprofError
from pytest_torchprof.profile import Profile, load, load_file

if TYPE_CHECKING:
    from collections.abc import Iterator

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
UNUSABLE = 2
_TAKING = ("--top", "--step", "--by", "--threshold")


class _Asked(Struct):
    paths: list[str] = field(default_factory=list)
    json: bool = False
    top: int | None = None
    step: int | None = None
    by: str = "kernel"
    findings: bool = True
    thresholds: list[str] = field(default_factory=list)


def run(argv: list[str]) -> int:
    """Run the command; return its exit status."""
    if "-h" in argv or "--help" in argv:
        sys.stdout.write(USAGE)
        return 0
    try:
        asked = _read(argv)
        rules = _rules(asked.thresholds)
        (path,) = asked.paths
        found = _with(rules, load(path) if os.path.isdir(path) else load_file(path, by_two=True))  # noqa: PTH112
        sys.stdout.write(_json(found, asked) if asked.json else _text(found, asked))
    except TorchprofError as problem:
        sys.stderr.write(f"torchprof analyze: {problem}\n")
        return UNUSABLE
    return 0


def _read(argv: list[str]) -> _Asked:
    asked, words = _Asked(), iter(argv)
    for word in words:
        name, _, value = word.partition("=")
        if word == "--json":
            asked.json = True
        elif word == "--no-findings":
            asked.findings = False
        elif name in _TAKING:
            _take(asked, name, value or next(words, ""))
        elif word.startswith("-") and word != "-":
            raise TorchprofError(f"there is no option {word!r}; see torchprof analyze --help")
        else:
            asked.paths.append(word)
    if len(asked.paths) != 1:
        raise TorchprofError(f"expected one trace file or folder, got {len(asked.paths)}; see torchprof analyze --help")
    return asked


def _take(asked: _Asked, name: str, value: str) -> None:
    if name == "--top":
        asked.top = _whole(name, value, least=1)
    elif name == "--step":
        asked.step = _whole(name, value, least=0)
    elif name == "--threshold":
        asked.thresholds.append(value)
    elif value in WAYS:
        asked.by = value
    else:
        raise TorchprofError(f"--by takes one of {', '.join(WAYS)}; got {value!r}")


def _whole(name: str, value: str, *, least: int) -> int:
    if not value.isdecimal() or int(value) < least:
        raise TorchprofError(f"{name} takes a whole number from {least} on; got {value!r}")
    return int(value)


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


def _text(found: Profile | list[Profile], asked: _Asked) -> str:
    from pytest_torchprof.report.analysis_text import text  # noqa: PLC0415 - draws with tabulate

    return "\n\n".join(
        text(profile, profile.rules, by=asked.by, step=asked.step, top=asked.top or 20, findings=asked.findings)
        for profile in _each(found)
    )


def _json(found: Profile | list[Profile], asked: _Asked) -> str:
    from pytest_torchprof.report.analysis_json import as_dict, encoded  # noqa: PLC0415

    objects = [
        as_dict(
            profile, profile.rules, by=asked.by, step=asked.step, top=asked.top, findings=asked.findings, by_two=True
        )
        for profile in _each(found)
    ]
    return encoded(objects if isinstance(found, list) else objects[0])


def _each(found: Profile | list[Profile]) -> Iterator[Profile]:
    yield from found if isinstance(found, list) else [found]
