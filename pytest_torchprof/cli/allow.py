"""``torchprof allow --from REPORT``: what a run missed becomes entries of the list of exceptions."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pytest_torchprof.cli.report_file import read_report
from pytest_torchprof.limits import MISSED
from pytest_torchprof.reasons.command_line import AllowedForNoReason
from pytest_torchprof.reasons.errors import TorchprofError
from pytest_torchprof.reasons.reports import FileNotWritten
from pytest_torchprof.system.replacing import replacing
from pytest_torchprof.testing.allow_list import ALLOW_FILE, SETTING_OF, AllowEntry, as_toml, read_allow_list
from pytest_torchprof.testing.suite_rules import matches
from pytest_torchprof.text import counted, first_of

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterable, Iterator

    from pytest_torchprof.cli import Parser
    from pytest_torchprof.limits import Verdict
    from pytest_torchprof.limits.evidence import WorkRow
    from pytest_torchprof.report.result import Result

DONE: Final = 0
_DESCRIPTION: Final = """\
Adds to the list an entry for each operator by which a test of the report missed max_syncs, max_memcpys or forbid_ops.
What the list has already stays as it is. Each new entry has the same reason: say in the file why it may stay, or mend
the code and take the entry out."""
_EPILOG: Final = """\
examples:
  pytest --torchprof-suite --torchprof-report=report.json
  torchprof allow --from report.json --reason "known\""""


def add_arguments(parser: Parser) -> None:
    """Declare the arguments."""
    parser.description, parser.epilog = _DESCRIPTION, _EPILOG
    parser.add_argument("--from", dest="report", type=Path, required=True, metavar="REPORT", help="a report in JSON")
    parser.add_argument("--reason", required=True, metavar="TEXT", help="why it may stay")
    parser.add_argument(
        "--by", choices=["operator", "line"], default="operator", help="what an entry names (default: operator)"
    )
    parser.add_argument(
        "--to", type=Path, default=Path(ALLOW_FILE), metavar="FILE", help=f"the list (default: {ALLOW_FILE})"
    )


def run(arguments: Namespace) -> int:
    """Add the entries; return the exit status."""
    results, _ = read_report(arguments.report)
    known = read_allow_list(arguments.to, str(arguments.to))
    wanted = dict.fromkeys(_entries(results, by_line=arguments.by == "line", reason=arguments.reason))
    new = [entry for entry in wanted if not any(_covers(other, entry) for other in known)]
    if not arguments.reason.strip():
        raise TorchprofError.because(AllowedForNoReason())
    before = arguments.to.read_text(encoding="utf-8").rstrip("\n") if arguments.to.is_file() else ""
    if new:
        try:
            with replacing(arguments.to) as unfinished:
                text = "\n\n".join(filter(None, (before, as_toml(new))))
                unfinished.write_text(text, encoding="utf-8")
        except OSError as error:
            raise TorchprofError.because(FileNotWritten.of(arguments.to, error)) from None
    sys.stdout.write(f"{arguments.to}: {counted(len(new), 'new entry')}, {len(known)} as before\n")
    if tests := dict.fromkeys(_with_own_limits(results)):
        sys.stdout.write(
            "no entries for limits that tests set themselves, which the list does not let pass: "
            f"{first_of(tuple(tests))}; write allow_ops, allow_syncs or allow_memcpys into their markers\n"
        )
    if arguments.by == "line" and (tests := dict.fromkeys(_without_lines(results))):
        sys.stdout.write(
            f"no lines are known of {first_of(tuple(tests))}, which have no entry: "
            'write record = ["stacks"] into the rule and run again, or leave out --by line\n'
        )
    return DONE


def _entries(results: Iterable[Result], *, by_line: bool, reason: str) -> Iterator[AllowEntry]:
    for result in results:
        # One entry for all parameters of a test.
        test = result.nodeid.partition("[")[0]
        for verdict in _missed(result):
            if verdict.of_rule is False:
                continue
            for row in verdict.rows:
                if row.also_ran:
                    continue
                if by_line and row.line is not None:
                    yield AllowEntry(test=test, line=f"{row.line[0]}:{row.line[1]}", reason=reason)
                elif not by_line and (operator := _operator(verdict, row)):
                    yield AllowEntry(test=test, operator=operator, reason=reason)


def _without_lines(results: Iterable[Result]) -> Iterator[str]:
    """Yield the tests that missed one of these limits by what has no line in the report."""
    for result in results:
        missed = (verdict for verdict in _missed(result) if verdict.of_rule is not False)
        if any(row.line is None and not row.also_ran for verdict in missed for row in verdict.rows):
            yield result.nodeid


def _with_own_limits(results: Iterable[Result]) -> Iterator[str]:
    """Yield the tests that missed one of these limits which they have set themselves."""
    return (result.nodeid for result in results if any(verdict.of_rule is False for verdict in _missed(result)))


def _missed(result: Result) -> Iterator[Verdict]:
    """Yield the verdicts on limits that were missed and can have exceptions."""
    return (verdict for verdict in result.limits if verdict.limit in SETTING_OF and verdict.status == MISSED)


def _operator(verdict: Verdict, row: WorkRow) -> str | None:
    if verdict.limit == "forbid_ops":
        return row.full
    # First the one that the program called.
    return row.ops[0] if row.ops else None


def _covers(known: AllowEntry, entry: AllowEntry) -> bool:
    return known.allowance == entry.allowance and matches(known.test, entry.test)
