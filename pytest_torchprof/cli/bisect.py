"""``torchprof bisect TEST --good REF``: which commit was the first that missed a limit, or changed the kernels."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Final

from pytest_torchprof.cli import UsageError, add_limits
from pytest_torchprof.text import printable, printable_line, reason_line
from pytest_torchprof.text.tables import on_screen

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator

    from pytest_torchprof.against.bisect import SearchResult
    from pytest_torchprof.cli import Parser

_STATUS: Final = {"found": 0, "not there": 1, "not measured": 3}

_USAGE: Final = """\
torchprof bisect --limit NAME=VALUE ... TEST --good REF [--bad REF]
                        [--json] [-- OPTIONS]
       torchprof bisect --changed TEST --good REF [--bad REF] [--json]
                        [-- OPTIONS]"""
_DESCRIPTION: Final = """\
Finds the first commit at which a test misses a limit that it kept at the good commit, or, with --changed, at
which it runs other kernels than there. `git bisect run` chooses the commits, in a repository of its own:
yours is not touched. The test is the working tree's at each commit; a commit at which it cannot be measured
is skipped. OPTIONS are pytest's, such as --torchprof-against-tests=own (each commit runs its own tests) or
--torchprof-against-install="pip install -e ."."""
_EPILOG: Final = """\
examples:
  torchprof bisect --limit max_kernels=5 test_mlp.py::test_block --good v1.2
  torchprof bisect --changed test_mlp.py::test_block --good v1 --bad main -- -x

exit status: 0 the commit is found, 1 there is none (both ends are good, or both are bad), 2 bad usage, or the
search cannot begin, 3 not measured: an end cannot be measured, or only skipped commits are left"""


def add_arguments(parser: Parser) -> None:
    """Declare the command's arguments."""
    parser.usage = _USAGE
    parser.description = _DESCRIPTION
    parser.epilog = _EPILOG
    parser.passed_on = "options"
    parser.add_argument("test", metavar="TEST", help="what pytest takes, such as tests/test_mlp.py::test_block")
    asked = parser.add_mutually_exclusive_group()
    add_limits(asked)
    asked.add_argument("--changed", action="store_true", help="look for other kernels than at the good commit")
    parser.add_argument("--good", metavar="REF", help="a commit from before the change")
    parser.add_argument("--bad", default="HEAD", metavar="REF", help="a commit that has the change (HEAD)")
    parser.add_argument("--json", action="store_true", help="one JSON object")


def run(arguments: Namespace) -> int:
    """Run the command; return its exit status."""
    limits = arguments.limit
    if not limits and not arguments.changed:
        from pytest_torchprof.reasons.command_line import Needed, NotGiven  # noqa: PLC0415 - only a mistake needs it

        raise UsageError.because(NotGiven(Needed.LIMIT_OR_CHANGED))
    if arguments.good is None:
        from pytest_torchprof.reasons.command_line import Needed, NotGiven  # noqa: PLC0415 - only a mistake needs it

        raise UsageError.because(NotGiven(Needed.GOOD_COMMIT))
    from pytest_torchprof.against.bisect import BisectTask, bisect  # noqa: PLC0415  (help and usage errors do not need it)
    from pytest_torchprof.limits import read_limits  # noqa: PLC0415
    from pytest_torchprof.limits.written import read_limit_texts  # noqa: PLC0415

    task = BisectTask(
        arguments=(arguments.test, *arguments.options),
        good=arguments.good,
        bad=arguments.bad,
        limits=read_limits(read_limit_texts(limits)),
    )
    screen = sys.stdout
    # Output of the tests must not be mixed with the data.
    with redirect_stdout(sys.stderr if arguments.json else screen):
        result = bisect(task, _write_at_once)
    for test, gap in result.left_out.items():
        line = f"torchprof: {test} takes no part, as it was not measured at the bad commit: {gap.in_one_line}"
        sys.stderr.write(f"{reason_line(line)}\n")
    if arguments.json:
        from pytest_torchprof.against.bisection_json import bisection_of, bisection_text  # noqa: PLC0415 - for programs alone

        screen.write(bisection_text(bisection_of(result, arguments.test, limits)))
    else:
        screen.write("".join(f"{line}\n" for line in _lines(result)))
    return _STATUS[result.outcome]


def _write_at_once(line: str) -> None:
    sys.stdout.write(f"{on_screen(reason_line(line))}\n")
    sys.stdout.flush()


def _lines(result: SearchResult) -> Iterator[str]:
    """Yield the lines of the result, for people."""
    if result.outcome != "found":
        yield printable(f"{result.outcome}: {result.why}")
        for commit in result.candidates:
            yield printable_line(f"  {commit.short}  {commit.date[:10]}  {commit.author}: {commit.subject}")
        return
    (first,) = result.candidates
    yield f"first bad commit: {first.sha}"
    for name, value in (("author", first.author), ("date", first.date), ("subject", first.subject)):
        yield printable_line(f"  {name:<9}{value}")
    yield reason_line(f"  {'because':<9}{result.why}")
    for test, difference in result.differences.items():
        yield reason_line(f"against its parent {(result.parent or '')[:7]}, {test}: {difference.summary}")
        yield from (printable(line) for line in difference.decided())
    if not result.differences:
        yield "its parent cannot be measured, so what it changed is not known"
