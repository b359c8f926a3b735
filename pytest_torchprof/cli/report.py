"""``torchprof report FILE``: recordings, or a run's JSON report, as one HTML file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pytest_torchprof.cli import add_device
from pytest_torchprof.reasons.errors import TorchprofError
from pytest_torchprof.system.replacing import replacing

if TYPE_CHECKING:
    from argparse import Namespace

    from pytest_torchprof.cli import Parser
    from pytest_torchprof.report.page.build import Heading

_DESCRIPTION: Final = """\
Writes one HTML file that opens anywhere, without a network: verdicts, limits, timelines, flames, tables,
findings."""
_EPILOG: Final = """\
examples:
  torchprof report trace.json.gz -o trace.html
  torchprof report after.json --against before.json -o change.html

exit status: 0, or 2 if a file cannot be read or written or the usage is bad"""


def add_arguments(parser: Parser) -> None:
    """Declare the command's arguments."""
    parser.description = _DESCRIPTION
    parser.epilog = _EPILOG
    parser.add_argument(
        "path",
        metavar="FILE|DIR|REPORT.json",
        help="a recording, a folder of them, or what pytest --torchprof-report=REPORT.json has written; the recordings "
        "of a report are looked for where the run kept them and in torchprof-recordings beside it",
    )
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="the HTML file to write")
    parser.add_argument(
        "--against",
        metavar="OTHER",
        help="compare with another recording, folder or report; measurements of the same test are compared, two files "
        "with each other whatever they are called",
    )
    add_device(parser)


def run(arguments: Namespace) -> int:
    """Run the command; return its exit status."""
    from pytest_torchprof.cli.report_sources import compared, heading_of, opened  # noqa: PLC0415 - help does without
    from pytest_torchprof.report.page.build import page  # noqa: PLC0415 - as above

    target, other, device = arguments.output, arguments.against, arguments.device
    source = opened(Path(arguments.path), device)
    before = None if other is None else opened(Path(other), device)
    heading: Heading = heading_of(source, before)
    text = page(compared(source, before), heading)
    _write(Path(target), text)
    sys.stdout.write(f"{target}: {len(text.encode()) / 1e6:.1f} MB\n")
    return 0


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as unfinished:
            unfinished.write_text(text, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        from pytest_torchprof.reasons.reports import FileNotWritten  # noqa: PLC0415 - only a failure needs it

        raise TorchprofError.because(FileNotWritten.of(path, error)) from None
