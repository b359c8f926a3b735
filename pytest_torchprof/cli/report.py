"""``torchprof report FILE``: recordings, or a run's JSON report, as one HTML file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_torchprof.cli import DEVICE_OPTION, UsageError, parse
from pytest_torchprof.codes import Code
from pytest_torchprof.errors import TorchprofError

if TYPE_CHECKING:
    from pytest_torchprof.report.page.build import Heading

USAGE = """usage: torchprof report FILE|DIR|REPORT.json [--against OTHER] -o OUT.html [--device cpu|cuda]

Writes one HTML file that opens anywhere, without a network: verdicts, limits, timelines, flames, tables, findings.
FILE is a recording, DIR a folder of them, REPORT.json what pytest --torchprof-report=REPORT.json has written; its
recordings are looked for where the run kept them and in torchprof-recordings beside it.

  --against OTHER  compare with another recording, folder or report; measurements of the same test are compared,
                   two files with each other whatever they are called
  -o, --output F   the file to write
  --device D       as in torchprof analyze

exit status: 0, or 2 if a file cannot be read or written or the usage is bad
"""
_OUTPUT = "a file to write, such as -o report.html"
_OPTIONS = {"--against": "a recording, folder or report", "-o": _OUTPUT, "--output": _OUTPUT, **DEVICE_OPTION}


def run(words: list[str]) -> int:
    """Run the command; return its exit status."""
    arguments = parse(words, options=_OPTIONS)
    if len(arguments.files) != 1:
        raise UsageError(f"expected one recording, folder or report, got {len(arguments.files)}")
    target = arguments.last("-o") or arguments.last("--output")
    if target is None:
        raise UsageError("-o says which file to write, such as -o report.html")
    from pytest_torchprof.cli.report_sources import compared, heading_of, opened  # noqa: PLC0415 - help does without
    from pytest_torchprof.report.page.build import page  # noqa: PLC0415 - likewise

    (file,) = arguments.files
    other, device = arguments.last("--against"), arguments.last("--device")
    source = opened(Path(file), device)
    before = None if other is None else opened(Path(other), device)
    heading: Heading = heading_of(source, before)
    text = page(compared(source, before), heading, by_two=True)
    _write(Path(target), text)
    sys.stdout.write(f"{target}: {len(text.encode()) / 1e6:.1f} MB\n")
    return 0


def _write(path: Path, text: str) -> None:
    part = path.with_name(f".{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.unlink(missing_ok=True)  # Not written through, if it is a link.
        part.write_text(text, encoding="utf-8", errors="backslashreplace")
        part.replace(path)
    except OSError as error:
        said = f"{path}: cannot be written: {error.strerror or error}"
        raise TorchprofError(said, Code.REPORT_NOT_WRITTEN) from None
