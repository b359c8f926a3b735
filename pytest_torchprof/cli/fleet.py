"""``torchprof fleet COMMAND``: any number of recordings, judged by the limits of tests."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentTypeError
from contextlib import contextmanager, suppress
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from msgspec.structs import replace

from pytest_torchprof.cli import UsageError, add_limits, fleet_read, sentence, whole
from pytest_torchprof.cli.fleet_read import exit_status_of, note
from pytest_torchprof.reasons.errors import TorchprofError, UnknownLimit
from pytest_torchprof.text import counted, enumerated, first_of
from pytest_torchprof.text.tables import on_screen

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pytest_torchprof.cli import Parser
    from pytest_torchprof.fleet.bounds import Bounds
    from pytest_torchprof.fleet.crew import LocalCrew
    from pytest_torchprof.fleet.driving import Crew
    from pytest_torchprof.fleet.folder import FleetFolder, FrozenList
    from pytest_torchprof.fleet.judging import FileTask
    from pytest_torchprof.fleet.listed import Listed
    from pytest_torchprof.fleet.remote import Elsewhere
    from pytest_torchprof.fleet.rules import FleetRule

_DESCRIPTION: Final = """\
Judges any number of recordings by the limits of the torchprof marker, in processes of this machine or on a cluster.
Every file is accounted for: judged, not measured, or quarantined with the reason."""
_EPILOG: Final = """\
examples:
  torchprof fleet run nightly/ --into fleet --limit max_syncs=0
  torchprof fleet run 'models/*/trace.json.gz' artifact.zip --into fleet --rules rules.toml --jobs 8
  torchprof fleet run manifest.jsonl --into fleet --rules rules.toml --memory 4GiB --timeout 60s --max-bad 10
  torchprof fleet run s3://traces/nightly/ --into s3://traces/judged
  torchprof fleet run nightly/ --into fleet --shard 3/8
  torchprof fleet run nightly/ --into fleet --engine dask:tcp://scheduler:8786 --jobs 64

The list of files is made once. The same command goes on where it was interrupted, however that was.

exit status: 0 all limits hold, 1 one was missed, 3 more than --max-bad files were not judged: not measured or
quarantined, 2 cannot read or write, or bad usage"""
_MEMORY: Final = "2GiB"
_TIMEOUT: Final = "300s"
_LEAST_BYTES: Final = 128 << 20
"""Less than that a process needs before it has read anything."""


class Shard(NamedTuple):
    """Which of the files are this command's: every so many, from one on."""

    which: int
    among: int

    @classmethod
    def read(cls, written: str) -> Self:
        """Return the shard that is meant."""
        index, _, count = written.partition("/")
        if not (index.isdecimal() and count.isdecimal() and 1 <= int(index) <= int(count)):
            raise ArgumentTypeError(f"expected I/N, from 1/N to N/N, got {written!r}")
        return cls(int(index), int(count))

    @property
    def is_all(self) -> bool:
        """Whether it is all files."""
        return self.among == 1

    def of(self, tasks: Iterable[FileTask]) -> Iterator[FileTask]:
        """Return those that are its own."""
        return islice(tasks, self.which - 1, None, self.among)

    def __str__(self) -> str:
        """Return how people read it."""
        return f"these are the files of shard {self.which} of {self.among}"


def add_arguments(parser: Parser) -> None:
    """Declare the arguments of each of its commands."""
    parser.description = _DESCRIPTION
    parser.epilog = _EPILOG
    commands = parser.add_subparsers(metavar="COMMAND", title="commands", required=True)

    def add(name: str, act: Callable[[Namespace], int], purpose: str) -> Parser:
        own: Parser = commands.add_parser(name, help=purpose, description=sentence(purpose))
        own.set_defaults(act=act)
        return own

    own = add("run", _run, "judge recordings, and keep what they come to in a folder")
    own.add_argument(
        "source",
        nargs="+",
        type=_named,
        metavar="SOURCE",
        help="a recording, a folder with all below it, a pattern ('*' and '**'), a ZIP archive, or a manifest: a file "
        'that ends in .jsonl, with an object {"url": PATH, ...} in each line. Each may be an address that fsspec '
        "reads: s3://, gs://, hf://, https://",
    )
    own.add_argument(
        "--into",
        type=_named,
        required=True,
        metavar="DIR|URL",
        help="the folder of this run, or the prefix of an object store",
    )
    own.add_argument("--rules", type=Path, metavar="FILE", help="limits, device, step and thresholds by file, in TOML")
    add_limits(own)
    own.add_argument(
        "--shard",
        type=Shard.read,
        default=Shard(1, 1),
        metavar="I/N",
        help="judge only every Nth file, from the Ith on: N commands share the folder and nothing else",
    )
    fleet_read.add_commands(add)
    again = add("retry", _retry, "judge the quarantined files of a run once more")
    again.add_argument("folder", metavar="DIR", help="the folder of the run, or its address")
    for judging in (own, again):
        _add_how(judging)
        fleet_read.add_max_bad(judging)


def _named(text: str) -> str:
    """Return a path or an address; that of a variable that is not set would be the current folder."""
    if not text:
        raise ArgumentTypeError("expected a path or an address, got nothing")
    return text


def _add_how(own: Parser) -> None:
    """Declare who judges, and within which bounds: what no result depends on."""
    own.add_argument(
        "--jobs",
        type=whole(1),
        metavar="N",
        help="how many processes (as many as there are CPU cores, and as fit the memory)",
    )
    own.add_argument(
        "--engine",
        metavar="ENGINE",
        help="who judges instead of processes of this machine: futures:MODULE:FACTORY, a function that returns a "
        "concurrent.futures.Executor; dask, a cluster on this machine; dask:ADDRESS, that of a scheduler. It is given "
        "twice --jobs tasks at once, each of them a file or a few small ones",
    )
    own.add_argument(
        "--memory",
        default=_MEMORY,
        metavar="SIZE",
        help=f"how much memory each process may take ({_MEMORY}); no bound but on Linux",
    )
    own.add_argument(
        "--timeout", default=_TIMEOUT, metavar="DURATION", help=f"how long each file may take ({_TIMEOUT})"
    )
    own.add_argument(
        "--retries",
        type=whole(0),
        default=3,
        metavar="N",
        help="how often a file is tried again that cannot be read, or whose process died (3)",
    )


def run(arguments: Namespace) -> int:
    """Run the command; return its exit status."""
    status: int = arguments.act(arguments)
    return status


def _run(arguments: Namespace) -> int:
    bounds, shard = _bounds(arguments), arguments.shard
    with _crew_here(arguments, bounds) as crew:
        from pytest_torchprof.fleet.folder import folder_of_run  # noqa: PLC0415 - help and usage errors do without
        from pytest_torchprof.fleet.status import writer_of  # noqa: PLC0415

        with folder_of_run(arguments.into, arguments.retries, writer_of(shard.which, shard.among)) as folder:
            frozen = _frozen(arguments, folder)
            records = folder.known(note)
            to_do = [task for task in shard.of(frozen.tasks()) if task.key not in records.spans]
            _drive(arguments, bounds, crew, folder, to_do)
            return _summed_up(folder, frozen, shard, arguments.max_bad)


def _retry(arguments: Namespace) -> int:
    bounds = _bounds(arguments)
    with _crew_here(arguments, bounds) as crew:
        from pytest_torchprof.fleet.folder import folder_of_run, retry_of  # noqa: PLC0415

        with folder_of_run(arguments.folder, arguments.retries) as before:
            frozen = before.frozen()
            if frozen.version != version("pytest-torchprof"):
                from pytest_torchprof.reasons.command_line_fleet import OtherRunThere, RunPart  # noqa: PLC0415 - only a mistake needs it

                raise UsageError.because(OtherRunThere(before.shown, RunPart.VERSION, is_retry=True))
            spans = before.known(note).spans
            bad = [task for task in frozen.tasks() if (at := spans.get(task.key)) is not None and at.is_quarantined]
            folder = replace(before, writer=f"retry{1 + max(map(retry_of, before.parts()), default=0)}")
            _drive(arguments, bounds, crew, folder, bad)
            return _summed_up(folder, frozen, Shard(1, 1), arguments.max_bad)


@contextmanager
def _crew_here(arguments: Namespace, bounds: Bounds) -> Iterator[LocalCrew | None]:
    """Yield processes of this machine, which are ended at last; None where an engine judges."""
    if arguments.engine is not None:
        yield None
        return
    # Nothing else is imported before: the first process and the command get ready beside each other.
    from pytest_torchprof.fleet.crew import LocalCrew, no_process  # noqa: PLC0415

    crew = LocalCrew(_jobs(arguments, bounds), bounds)
    try:
        yield crew
    except BlockingIOError as problem:  # Git or another command could not be begun.
        raise no_process(problem) from None
    finally:
        crew.end()


def _drive(
    arguments: Namespace, bounds: Bounds, here: LocalCrew | None, folder: FleetFolder, tasks: Sequence[FileTask]
) -> None:
    from pytest_torchprof.fleet.driving import drive  # noqa: PLC0415
    from pytest_torchprof.fleet.engines import EngineCrew, engine_called  # noqa: PLC0415
    from pytest_torchprof.fleet.progress import Progress  # noqa: PLC0415
    from pytest_torchprof.fleet.staging import StagingCrew  # noqa: PLC0415

    crew: Crew = here or EngineCrew(engine_called(arguments.engine), 2 * _jobs(arguments, bounds), bounds)
    crew = StagingCrew(crew)
    progress = Progress(len(tasks), sum(task.file.size or 0 for task in tasks), sys.stderr)
    try:
        drive(tasks, crew, folder, arguments.retries, progress)
    except KeyboardInterrupt:
        note(f"interrupted: {progress.so_far}; what was judged stays, and the same command goes on from there")
        raise
    finally:
        crew.end()


def _summed_up(folder: FleetFolder, frozen: FrozenList, shard: Shard, max_bad: int) -> int:
    """Write the outcome of a run; return the exit status."""
    from pytest_torchprof.fleet.summary import summed  # noqa: PLC0415
    from pytest_torchprof.fleet.summary_text import Examples, summary_lines  # noqa: PLC0415

    # Which parts cannot be read was told when the run began.
    shown, records = Examples(), folder.known(lambda _: None)
    own = [task.key for task in shard.of(frozen.tasks())]
    if missing := sum(key not in records.spans for key in own):
        from pytest_torchprof.reasons.fleet_folders import FilesWithoutRecord  # noqa: PLC0415 - only a failure needs it

        raise TorchprofError.because(FilesWithoutRecord(folder.shown, missing, len(own)))
    if shard.is_all:
        summary = folder.sum_up(frozen, records, shown.see, shown.see_job)
    else:
        summary = summed(frozen.version, records.each(own, shown.see))
    sys.stdout.writelines(f"{on_screen(line)}\n" for line in summary_lines(folder, summary, shown))
    if not shard.is_all:
        sys.stdout.write(on_screen(f"\n{shard}; the same command without --shard sums up all of them\n"))
    return exit_status_of(summary, max_bad)


def _bounds(arguments: Namespace) -> Bounds:
    from pytest_torchprof.fleet.bounds import Bounds  # noqa: PLC0415
    from pytest_torchprof.limits.quantities import duration_us, size_bytes  # noqa: PLC0415

    try:
        memory_bytes = int(size_bytes(_number_or_text(arguments.memory)))
    except UnknownLimit:
        from pytest_torchprof.reasons.command_line_fleet import NoQuantity, Quantity  # noqa: PLC0415 - only a mistake needs it

        # What limits take as an example is far too little for a process.
        raise UsageError.because(NoQuantity("--memory", Quantity.SIZE, _MEMORY, arguments.memory)) from None
    try:
        timeout_s = duration_us(_number_or_text(arguments.timeout)) / 1e6
    except UnknownLimit:
        from pytest_torchprof.reasons.command_line_fleet import NoQuantity, Quantity  # noqa: PLC0415 - as above

        raise UsageError.because(NoQuantity("--timeout", Quantity.DURATION, _TIMEOUT, arguments.timeout)) from None
    if memory_bytes < _LEAST_BYTES:
        from pytest_torchprof.reasons.command_line_fleet import TooLittleMemory  # noqa: PLC0415 - as above

        raise UsageError.because(TooLittleMemory(arguments.memory, _LEAST_BYTES))
    if timeout_s <= 0:
        from pytest_torchprof.reasons.command_line import OptionTakes, WrongOption  # noqa: PLC0415 - as above

        raise UsageError.because(WrongOption("--timeout", arguments.timeout, OptionTakes.SOME_TIME))
    return Bounds(memory_bytes=memory_bytes, timeout_s=timeout_s)


def _number_or_text(text: str) -> float | str:
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    return text


def _jobs(arguments: Namespace, bounds: Bounds) -> int:
    """Return how many processes are asked for, or the CPU cores and the memory allow that this process may use."""
    if arguments.jobs:
        jobs: int = arguments.jobs
        return jobs
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        there_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # Windows does not say.
        return cores
    return max(min(cores, there_bytes // bounds.memory_bytes), 1)


def _frozen(arguments: Namespace, folder: FleetFolder) -> FrozenList:
    """Return the list of the run; UsageError where the folder has that of another command."""
    from pytest_torchprof.fleet.folder import FrozenList  # noqa: PLC0415
    from pytest_torchprof.fleet.listed import address_of, written  # noqa: PLC0415
    from pytest_torchprof.fleet.origin import origin_here  # noqa: PLC0415
    from pytest_torchprof.fleet.passed_over import passed_over  # noqa: PLC0415
    from pytest_torchprof.fleet.remote import Elsewhere  # noqa: PLC0415
    from pytest_torchprof.fleet.rules import Question, asked_of, read_rules  # noqa: PLC0415
    from pytest_torchprof.fleet.sources import listed  # noqa: PLC0415
    from pytest_torchprof.limits.written import read_limit_texts  # noqa: PLC0415

    limits = tuple(arguments.limit)
    asked_of(Question(limits=limits))
    asked: dict[str, Any] = {
        "version": version("pytest-torchprof"),
        "sources": tuple(written(address_of(source)) for source in arguments.source),
        "limits": limits,
        "rules": () if arguments.rules is None else read_rules(arguments.rules),
    }
    is_new, elsewhere = not folder.has_list, Elsewhere(arguments.retries)

    def make_list() -> FrozenList:
        files = listed(map(address_of, arguments.source), arguments.into, elsewhere)
        _refuse_idle(arguments.rules, asked["rules"], files)
        return FrozenList(**asked, files=files, origin=origin_here(folder.path, asked["sources"]))

    frozen = folder.freeze(make_list)
    for name, value in asked.items():
        before = getattr(frozen, name)
        # However they are written.
        same = read_limit_texts(before) == read_limit_texts(value) if name == "limits" else before == value
        if not same:
            from pytest_torchprof.reasons.command_line_fleet import OtherRunThere, RunPart  # noqa: PLC0415 - only a mistake needs it

            raise UsageError.because(OtherRunThere(folder.shown, RunPart[name.upper()]))
    if is_new:
        over = passed_over(arguments.source, arguments.into, elsewhere)
        if over.archives or over.links:
            note(
                f"not looked into, as they lie in folders or archives: {counted(over.archives, 'archive')} and "
                f"{counted(over.links, 'link')} to folders; what they hold is judged where they are sources themselves"
            )
        if over.tars:
            note(f"not read, as they are tar archives: {counted(over.tars, 'file')}; unpack them, or pack ZIP archives")
        if over.otherwise_named:
            note(
                "not looked at, as their names do not end in .json or .json.gz: "
                f"{counted(over.otherwise_named, 'file')} that may be recordings; what a source names itself is judged"
            )
        if over.runs:
            note(f"left out: what other runs have written into {counted(over.runs, 'folder')} of the sources")
    else:
        _note_changes(frozen, arguments, elsewhere)
    return frozen


def _refuse_idle(path: Path, rules: Sequence[FleetRule], files: Sequence[Listed]) -> None:
    """Raise UsageError for rules that fit no file; say of which rules all files are another's."""
    from pytest_torchprof.fleet.rules import takers  # noqa: PLC0415

    names, of_files = [str(rule.name) for rule in rules], takers(rules, files)
    if unused := [name for name, numbers in zip(names, of_files, strict=True) if not numbers]:
        from pytest_torchprof.reasons.command_line_fleet import RulesIdle  # noqa: PLC0415 - only a mistake needs it

        raise UsageError.because(RulesIdle(str(path), tuple(unused)))
    for number, numbers in enumerate(of_files):
        if number not in numbers:
            before = enumerated([names[other] for other in sorted(numbers)])
            note(f"{path}: {names[number]} is never reached: all files that fit it fit {before}, further up")


_NAMED: Final = 3
"""How many files a note names."""


def _note_changes(frozen: FrozenList, arguments: Namespace, elsewhere: Elsewhere) -> None:
    """Write which files the sources have now that the list has not."""
    from pytest_torchprof.fleet.listed import address_of  # noqa: PLC0415
    from pytest_torchprof.fleet.sources import listed  # noqa: PLC0415

    sources = map(address_of, arguments.source)
    try:
        now = {(file.url, file.member): file for file in listed(sources, arguments.into, elsewhere)}
    except TorchprofError as problem:
        note(f"the sources are not what was listed: {problem}")
        return
    before = {(file.url, file.member): file for file in frozen.files}
    more, gone = now.keys() - before.keys(), before.keys() - now.keys()
    changed = {key for key in now.keys() & before.keys() if now[key] != before[key]}
    if more or gone or changed:
        note(
            f"since the list was made, {counted(len(more), 'file')} came, {len(changed)} changed and {len(gone)} went; "
            "what was judged stays, and new ones are judged in a run into another folder"
        )
    for what, keys, files in (("came", more, now), ("changed", changed, before), ("went", gone, before)):
        if keys:
            note(f"{what}: {first_of(sorted(files[key].name for key in keys), _NAMED)}")
