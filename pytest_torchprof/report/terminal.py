"""The section at the end of a pytest run."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from msgspec import structs

from pytest_torchprof.limits import HOLDS, NOT_MEASURED
from pytest_torchprof.reasons.error_texts import unmeasured_text
from pytest_torchprof.report.columns import CALLS, TESTS
from pytest_torchprof.report.outcome import BaselineState, Outcome
from pytest_torchprof.report.result import NOTHING_COMPARED
from pytest_torchprof.report.row_columns import Among, terminal_columns
from pytest_torchprof.text import first_line, first_of, more_text, printable, printable_line
from pytest_torchprof.text.cutting import around_gap, cut, ending, width_of
from pytest_torchprof.text.tables import cells, fitted, headed, ruled
from pytest_torchprof.text.wrapping import broken

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_torchprof.report import RunResults, UnusedEntries
    from pytest_torchprof.report.result import Result
    from pytest_torchprof.text.tables import Column
    from pytest_torchprof.trace.metadata import Environment


MIN_NAME_WIDTH: Final = 30
"""The width that test names have before columns leave."""
REQUIRE_PLUGIN: Final = """\
torchprof: where the plugin is missing or switched off, marked tests pass unmeasured; in pytest's ini file
  required_plugins = pytest-torchprof
makes such a run fail"""
"""Printed once, with the first baseline."""
_NARROWEST_NAME: Final = 16
"""The width that they have when no further column can leave."""
_NARROWEST_FILE: Final = 8
"""The width that the file keeps beside the name of a test with a label, with the colons."""
_LEAST_LABEL: Final = 8
"""The width that the label of a measurement has beside the name of its test."""
_MOST_WARNINGS: Final = 20
"""Beyond these they are counted."""
_OUTCOMES: Final = {
    Outcome.PASSED: "passed",
    Outcome.FAILED: "failed",
    Outcome.NOT_MEASURED: "not measured",
    Outcome.WARNED: "warned of",
    Outcome.SKIPPED: "not judged",
    Outcome.XFAILED: "failed as expected",
}


def describe_environment(known: Environment) -> str:
    """Return the device and the versions in one line."""
    gpu, architecture = known.gpu, known.architecture
    device = f"{gpu} ({architecture})" if gpu and architecture else gpu or known.cpu or "cpu"
    versions = (("torch", known.torch), ("CUDA", known.cuda), ("ROCm", known.rocm))
    note = [f"{known.launches_wait}: times are not judged"] if known.launches_wait else []
    return printable(", ".join([device, *(f"{name} {version}" for name, version in versions if version), *note]))


def title(run: RunResults) -> str:
    """Return the section's heading: the environment, if anything was measured, and what it is compared with."""
    return ": ".join(["torchprof", *_where(run)])


def _where(run: RunResults) -> list[str]:
    """Return the part of a heading after its name, in one text; empty if there is nothing to say."""
    compared = f"against {printable(run.against.shown)}" if run.against is not None else None
    known = [describe_environment(run.environment) if run.environment else None, compared]
    return [", ".join(part for part in known if part)] if any(known) else []


def heading_lines(run: RunResults, *, width: int, who: str = "") -> list[str]:
    """Return the heading, and below it what does not fit between two dashes; ``who`` is the reporting rank."""
    heading = f"{title(run)}{who}"
    if width_of(heading) + 4 <= width:
        return [heading]
    return ["torchprof", *broken(f"{''.join(_where(run))}{who}", width).split("\n")]


def result_columns(run: RunResults, *, brief: bool = False) -> tuple[Column, ...]:
    """Return the columns of a run's table; ``brief`` leaves out the details of how a measurement compares."""
    return terminal_columns(TESTS, run.results, Among(words={"compared": _compared(run)}, brief=brief))


def kernel_columns(result: Result) -> tuple[Column, ...]:
    """Return the columns of the kernels of a measurement that failed."""
    return terminal_columns(CALLS, result.kernels, Among())


def _compared(run: RunResults) -> str:
    """Return the title of the column of comparisons: a comparison with a commit has no baseline."""
    return "baseline" if run.against is None else "against"


def render(run: RunResults, *, width: int, verbosity: int = 0) -> str:
    """Return one row per measurement, then what changed; with ``-v`` what limits allowed, and kernels of what failed.

    ``width`` is the terminal's, in columns; too long a name loses its beginning, and columns are left out.
    """
    shown = structs.replace(run, results=tuple(own for own in run.results if verbosity > 0 or not _is_quiet(own)))
    parts = [_draw_results(shown, width)] if shown.results else []
    for result in run.results:
        name = printable(result.name)
        varied = result.varied_lines if verbosity > 0 else ()
        if changes := (*result.decided_lines(every=verbosity > 0), *varied):
            parts.append("\n".join([f"{name}: against {printable(run.compared_with)}", *map(printable, changes)]))
        if verbosity > 0 and result.outcome is Outcome.PASSED:
            parts += _held_limits(name, result)
        if verbosity > 0 and result.outcome is Outcome.FAILED and result.kernels:
            parts.append(
                headed(result.kernels, kernel_columns(result), f"{name}: kernels of the step with most", width=width)
            )
    parts += _warnings(run, every=verbosity > 0)
    # Tables already fit the screen.
    parts = [broken(part, width) for part in parts]
    parts += (broken(_unused_prose(unused), width, command=unused.remedy or "") for unused in run.unused)
    parts += [broken(printable(run.gone_words), width)] if run.gone_words else []
    prose, command = _closing(run)
    return "\n\n".join([*parts, broken(prose, width, command=command)])


def render_briefly(run: RunResults) -> list[str]:
    """Return the lines of ``-q``: the closing line, tests without a baseline, and baselines without a test.

    A renamed test has lost its baseline; in a run in which no test has a baseline, no test lacks it.
    """
    new = [printable(result.name) for result in run.results if result.baseline_state is BaselineState.NEW]
    compared = run.unused or any(result.baseline_state not in NOTHING_COMPARED for result in run.results)
    lacking = "without a baseline" if run.against is None else f"not measured at {printable(run.compared_with)}"
    lines = [f"{lacking}: {first_of(new)}"] if new and compared else []
    lines += [printable(run.gone_words)] if run.gone_words else []
    lines += _warnings(run, every=False)
    return [closing(run), *lines, *map(_unused_text, run.unused)]


def _is_quiet(result: Result) -> bool:
    """Whether a test needs no row of its own, of the many that only a rule of the suite measures."""
    return result.of_rule and result.outcome in (Outcome.PASSED, Outcome.SKIPPED, Outcome.WARNED, Outcome.XFAILED)


def _warnings(run: RunResults, *, every: bool) -> list[str]:
    """Return the warnings of rules, a line each, the first ones or all."""
    warned = [result for result in run.results if result.outcome is Outcome.WARNED]
    shown = warned if every else warned[:_MOST_WARNINGS]
    lines = [f"  {printable(result.name)}: {printable_line(_why_warned(result))}" for result in shown]
    if left := len(warned) - len(shown):
        lines.append(f"  {more_text(left, 'warning')}, with -v or --torchprof-report=FILE")
    return ["\n".join(["warned of:", *lines])] if lines else []


def _why_warned(result: Result) -> str:
    """Return the first limit that is missed or not measured, with what was seen; else why nothing was measured."""
    missed = next((verdict for verdict in result.limits if verdict.status != HOLDS), None)
    if missed is not None:
        seen = unmeasured_text(missed.text) if missed.status == NOT_MEASURED else missed.text
        return f"{missed.written}: {seen}"
    return first_line(result.message) if result.reason is None else unmeasured_text(result.reason)


def _held_limits(name: str, result: Result) -> Iterator[str]:
    """Yield the details of limits that hold, such as the calls that were allowed."""
    for verdict in result.limits:
        if verdict.evidence:
            head = f"{name}: {verdict.written}: {verdict.text}"
            lines = [line for evidence in verdict.evidence for line in evidence.lines]
            yield "\n".join(printable(line) for line in [head, *(f"  {line.strip()}" for line in lines)])


def _unused_text(unused: UnusedEntries) -> str:
    return _unused_prose(unused) + (unused.remedy or "")


def _unused_prose(unused: UnusedEntries) -> str:
    return printable(f"{unused.file}: {unused.words}") + ("\n  do: " if unused.remedy else "")


def _draw_results(run: RunResults, width: int) -> str:
    table, room = fitted(cells(result_columns(run), run.results), width, MIN_NAME_WIDTH)
    if all(column.title != _compared(run) for column in table):
        table, room = fitted(cells(result_columns(run, brief=True), run.results), width, MIN_NAME_WIDTH)
    first = next(iter(table))
    labels = [f" ({printable(result.label)})" if result.label else "" for result in run.results]
    table[first] = [
        _shorten_name(name, max(room, _NARROWEST_NAME), label) for name, label in zip(table[first], labels, strict=True)
    ]
    return "\n".join(ruled(table))


def _shorten_name(name: str, room: int, label: str) -> str:
    """Return a test's name shortened to fit: its file, then its end, which distinguishes parameters and labels.

    The folder is the same for most tests, and every test begins with "test_".
    """
    file, colons, test = name.partition("::")
    file = file.rpartition("/")[2]
    if width_of(file + colons + test) <= room:
        return f"{file}{colons}{test}"
    file = file.removesuffix(".py")
    # Of a test with a label its own name needs room beside it.
    own = width_of(test) - width_of(label) + _LEAST_LABEL if label else 0
    wanted = max(room - len(colons) - width_of(file), room // 2, min(own, room - _NARROWEST_FILE))
    left = room - len(colons) - min(width_of(test), wanted)
    if width_of(file) > left:
        file = cut(file, left) if left > 3 else ""
    left = room - width_of(file) - len(colons)
    return f"{file}{colons}{_shorten_test(test, left, label)}"


def _shorten_test(test: str, room: int, suffix: str) -> str:
    """Return a test without its file, cut to fit; the label behind it gives way to its own name, as far as it can."""
    if width_of(test) <= room:
        return test
    own = test[: len(test) - len(suffix)]
    label = cut(suffix, max(room - width_of(own), _LEAST_LABEL)) if suffix else ""
    left = room - width_of(label)
    return f"{own if width_of(own) <= left else around_gap('', ending(own, left - 3))}{label}"


def closing(run: RunResults) -> str:
    """Return the number of measurements by outcome, and of those that are better, in one line."""
    return "".join(_closing(run))


def _closing(run: RunResults) -> tuple[str, str]:
    """Return that line as its prose and the command behind it."""
    prose, command = _better(run)
    return f"{count_outcomes(run)}; {prose}" if prose else count_outcomes(run), command


def count_outcomes(run: RunResults) -> str:
    """Return the number of measurements by outcome; pytest counts those with an error of their own as failed."""
    numbers = Counter(result.outcome for result in run.results)
    errors = numbers[Outcome.ERROR]
    numbers[Outcome.FAILED] += errors
    own = f"with an error of {'its' if errors == 1 else 'their'} own" if errors else ""
    if own:
        own = f" {own}" if errors == numbers[Outcome.FAILED] else f" ({errors} {own})"
    counts = [
        f"{numbers[outcome]} {words}{own if outcome is Outcome.FAILED else ''}"
        for outcome, words in _OUTCOMES.items()
        if numbers[outcome]
    ]
    return ", ".join(counts)


def better_words(run: RunResults) -> str:
    """Return how many are better than what they are compared with; empty if none is."""
    return "".join(_better(run))


def _better(run: RunResults) -> tuple[str, str]:
    """Return the count of better results as prose, and the command behind it."""
    better = sum(result.baseline_state is BaselineState.BETTER for result in run.results)
    if not better:
        return "", ""
    if run.against is not None:
        return f"{better} better than at {printable(run.compared_with)}", ""
    if run.history is not None:
        return f"{better} better than {printable(run.compared_with)}", ""
    return f"{better} better, to keep: ", "pytest --torchprof-baseline=update"
