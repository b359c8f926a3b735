"""``torchprof bisect TEST --good REF``: which commit was the first that missed a limit, or changed the kernels."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

from pytest_torchprof.cli import UsageError, parse
from pytest_torchprof.cli.check import read_limit_texts
from pytest_torchprof.text import json_text, printable, printable_line, reason_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_torchprof.against.bisect import Found

USAGE: Final = """usage: torchprof bisect --limit NAME=VALUE ... TEST --good REF [--bad REF] [--json] [-- OPTIONS]
       torchprof bisect --changed TEST --good REF [--bad REF] [--json] [-- OPTIONS]

Finds the first commit at which a test misses a limit that it kept at the good commit, or, with --changed, at which it
runs other kernels than there. `git bisect run` chooses the commits, in a repository of its own: yours is not touched.
The test is the working tree's at each commit; a commit at which it cannot be measured is skipped.

TEST is what pytest takes: tests/test_mlp.py::test_block. --bad is HEAD if it is not given. Limits are as for torchprof
check. OPTIONS are pytest's, such as --torchprof-against-tests=own (each commit runs its own tests) or
--torchprof-against-install="pip install -e .".

  torchprof bisect --limit max_kernels=5 tests/test_mlp.py::test_block --good v1.2

exit status: 0 the commit is found, 1 there is none (both ends are good, or both are bad), 2 bad usage, or the search
cannot begin, 3 not measured: an end cannot be measured, or only skipped commits are left
"""
SCHEMA: Final = 1
_OPTIONS: Final = {
    "--limit": "NAME=VALUE, e.g. --limit max_kernels=5",
    "--good": "a commit, e.g. --good v1.2",
    "--bad": "a commit, e.g. --bad main",
}
_STATUS: Final = {"found": 0, "not there": 1, "not measured": 3}


def own_words(words: list[str]) -> list[str]:
    """Return the words that are this command's; those behind ``--`` are pytest's."""
    return words[: words.index("--")] if "--" in words else words


def run(words: list[str]) -> int:
    """Run the command; return its exit status."""
    own = own_words(words)
    arguments = parse(own, flags=("--changed", "--json"), options=_OPTIONS)
    limits, good = arguments.options["--limit"], arguments.last("--good")
    if len(arguments.files) != 1:
        raise UsageError(f"expected one TEST, got {len(arguments.files)}")
    if bool(limits) == ("--changed" in arguments.flags):
        raise UsageError("expected --limit NAME=VALUE, or --changed")
    if good is None:
        raise UsageError("expected --good REF, a commit from before the change")
    from pytest_torchprof.against.bisect import BisectTask, bisect  # noqa: PLC0415  (help and usage errors do without)
    from pytest_torchprof.limits import read_limits  # noqa: PLC0415

    task = BisectTask(
        words=(*arguments.files, *words[len(own) + 1 :]),
        good=good,
        bad=arguments.last("--bad") or "HEAD",
        limits=read_limits(read_limit_texts(limits)),
    )
    as_json = "--json" in arguments.flags
    screen = sys.stdout
    # What is said meanwhile must not stand among the data.
    with redirect_stdout(sys.stderr if as_json else screen):
        found = bisect(task, _tell)
    for test, why in found.left_out.items():
        sys.stderr.write(
            f"{reason_line(f'torchprof: {test} takes no part, as it was not measured at the bad commit: {why}')}\n"
        )
    text = json_text(_data(found, task.words[0], limits)) if as_json else "".join(f"{line}\n" for line in _lines(found))
    screen.write(text)
    return _STATUS[found.outcome]


def _tell(line: str) -> None:
    sys.stdout.write(f"{reason_line(line)}\n")
    sys.stdout.flush()


def _lines(found: Found) -> Iterator[str]:
    """Yield what came of it, for people."""
    if found.outcome != "found":
        yield printable(f"{found.outcome}: {found.why}")
        for commit in found.candidates:
            yield printable_line(f"  {commit.short}  {commit.date[:10]}  {commit.author}: {commit.subject}")
        return
    (first,) = found.candidates
    yield f"first bad commit: {first.sha}"
    for name, value in (("author", first.author), ("date", first.date), ("subject", first.subject)):
        yield printable_line(f"  {name:<9}{value}")
    yield reason_line(f"  {'because':<9}{found.why}")
    for test, difference in found.differences.items():
        yield reason_line(f"against its parent {(found.parent or '')[:7]}, {test}: {difference.summary}")
        yield from (printable(line) for line in difference.decided())
    if not found.differences:
        yield "its parent cannot be measured: what it changed is not told"


def _data(found: Found, test: str, limits: list[str]) -> dict[str, object]:
    """Return the same as JSON data."""
    from msgspec import to_builtins  # noqa: PLC0415 - a search needs it, --help does not

    return {
        "schema": SCHEMA,
        "test": test,
        "limits": limits,
        "outcome": found.outcome,
        "why": found.why,
        **{side: {"ref": end.ref, "sha": end.sha} for side, end in (("good", found.good), ("bad", found.bad))},
        "candidates": [asdict(commit) for commit in found.candidates],
        "parent": found.parent,
        "tests": {
            test: {
                "kernels_differ": difference.kernels_differ,
                "summary": difference.summary,
                "changes": to_builtins(difference.changes),
            }
            for test, difference in found.differences.items()
        },
        "left_out": dict(found.left_out),
        "commits": [asdict(commit) for commit in found.commits],
    }
