"""The section at the end of a pytest run, and the columns of its tables, which Markdown has too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import astuple

from pytest_torchprof.analysis.numbers import BY_NAME
from pytest_torchprof.limits.failure import Screen, fit
from pytest_torchprof.report.result import BaselineState, Outcome
from pytest_torchprof.tables import Column, cells, fitted, headed, ruled
from pytest_torchprof.text import counted, cut, ending, first_of, printable, show_us, width_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_torchprof.report import RunResults, UnusedEntries
    from pytest_torchprof.report.result import Result, TimeComparison
    from pytest_torchprof.trace.caches import CompileCaches
    from pytest_torchprof.trace.metadata import Environment


def _number_column(title: str, name: str, leaves: int = 0) -> Column:
    """Return the column of a number: the median over the steps, "-" where it is not known."""
    return Column(title, lambda result: BY_NAME[name].show(getattr(result.summary, name, None)), leaves=leaves)


def _show_comparison(result: Result) -> str:
    return result.baseline or "-"


def _show_state(result: Result) -> str:
    """Return the same without its details."""
    return _show_comparison(result).partition(" (")[0]


RESULT_COLUMNS: Final = (
    Column("test", lambda result: printable(result.name), "left"),
    _number_column("kernels", "kernels", leaves=7),
    _number_column("launches", "launches", leaves=2),
    _number_column("busy", "gpu_busy_us", leaves=4),
    _number_column("CPU/GPU", "cpu_gpu_ratio", leaves=1),
    _number_column("breaks", "graph_breaks", leaves=3),
    Column("baseline", _show_comparison, "left", leaves=6),
    Column("verdict", lambda result: result.outcome, "left"),
)
"""One row per measurement; columns with nothing to show leave a narrow terminal first."""
_TIME_COLUMN: Final = Column("time", lambda result: _show_time(result.against_time), "left", leaves=5)
_CACHES_COLUMN: Final = Column("cache hits", lambda result: _show_caches(result.compile_caches), "left", leaves=5)
KERNEL_COLUMNS: Final = (
    Column("kernel", lambda kernel: printable(kernel.name), "left"),
    Column("calls", lambda kernel: str(kernel.count)),
    Column("time", lambda kernel: show_us(kernel.time_us)),
    Column("mean", lambda kernel: show_us(kernel.time_us / kernel.count), leaves=4),
    Column("min", lambda kernel: show_us(kernel.min_us), leaves=2),
    Column("max", lambda kernel: show_us(kernel.max_us), leaves=3),
    Column("launched by", lambda kernel: cut(printable(", ".join(kernel.ops)), 30), "left", leaves=1),
)
"""One row per kernel of a failed measurement, most time first."""

MIN_NAME_WIDTH: Final = 30
"""What the names of tests have before columns leave."""
REQUIRE_PLUGIN: Final = """\
torchprof: where the plugin is missing or switched off, marked tests pass unmeasured; in pytest's ini file
  required_plugins = pytest-torchprof
makes such a run fail"""
"""Said once, with the first baseline."""
_NARROWEST_NAME: Final = 16
"""What they have where no column is left that can."""
_FEW_KERNELS: Final = 4
_OUTCOMES: Final = {
    Outcome.PASSED: "passed",
    Outcome.FAILED: "failed",
    Outcome.NOT_MEASURED: "not measured",
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
    """Return the section's heading: where it was measured, if anything was, and what it is compared with."""
    place = f": {describe_environment(run.environment)}" if run.environment else ""
    return f"torchprof{place}" + (f", against {printable(run.against.shown)}" if run.against is not None else "")


def heading_lines(run: RunResults, *, width: int, who: str = "") -> list[str]:
    """Return the heading, and below it what does not fit between two dashes; ``who`` is the rank that says it."""
    heading = f"{title(run)}{who}"
    if len(heading) + 4 <= width:
        return [heading]
    name, _, rest = heading.partition(": ")
    return [name, *fit(rest, Screen(columns=width)).split("\n")]


def result_columns(run: RunResults) -> tuple[Column, ...]:
    """Return the columns of a run's table: what is compared with a commit has no baseline."""
    known: tuple[Column, ...] = RESULT_COLUMNS
    if any(result.compile_caches is not None and result.compile_caches.phase for result in run.results):
        known = (*known[:-2], _CACHES_COLUMN, *known[-2:])
    if run.against is None:
        return known
    columns = []
    for column in known:
        if column.title == "baseline":
            columns += [_TIME_COLUMN] if any(result.against_time is not None for result in run.results) else []
            column = column._replace(title="against")  # noqa: PLW2901
        columns.append(column)
    return tuple(columns)


def _show_caches(caches: CompileCaches | None) -> str:
    """Return how the caches were, and how much they held of what a compilation asked for: "warm 2/2"."""
    if caches is None or caches.phase is None:
        return "-"
    uses = astuple(caches.uses)
    hits, misses = sum(use.hits or 0 for use in uses), sum(use.misses or 0 for use in uses)
    return f"{caches.phase} {hits}/{hits + misses}"


def _show_time(compared: TimeComparison | None) -> str:
    """Return how the time of a measurement compares, in a cell: "worse +21% (+18% to +23%)"."""
    if compared is None:
        return "-"
    if (step := compared.step) is None:
        return compared.verdict
    return f"{compared.verdict} {step.share:+.0%} ({step.low:+.0%} to {step.high:+.0%})"


def render(run: RunResults, *, width: int, verbosity: int = 0) -> str:
    """Return one row per measurement, then what changed; with ``-v`` what limits allowed, and kernels of what failed.

    ``width`` is the terminal's, in columns; too long a name loses its beginning, and columns are left out.
    """
    parts = [_draw_results(run, width)]
    for result in run.results:
        name = printable(result.name)
        if changes := result.changes if verbosity > 0 else _brief_changes(result):
            parts.append("\n".join([f"{name}: against {printable(run.compared_with)}", *map(printable, changes)]))
        if verbosity > 0 and result.outcome is Outcome.PASSED:
            parts += _tell_held(name, result)
        if verbosity > 0 and result.outcome is Outcome.FAILED and result.kernels:
            parts.append(headed(result.kernels, KERNEL_COLUMNS, f"{name}: kernels of the step with most", width=width))
    parts += map(_tell_unused, run.unused)
    parts += [printable(run.gone_words)] if run.gone_words else []
    # Tables are as wide as the screen already.
    return fit("\n\n".join([*parts, closing(run)]), Screen(columns=width))


def render_briefly(run: RunResults) -> list[str]:
    """Return what ``-q`` leaves: the closing line, and which baselines came to be without their test or a test without.

    A test that was renamed has lost its baseline; where no test of the run has one, none is missed.
    """
    new = [printable(result.name) for result in run.results if result.baseline_state is BaselineState.NEW]
    compared = run.unused or any(result.baseline_state not in (None, BaselineState.NEW) for result in run.results)
    lacking = "without a baseline" if run.against is None else f"not measured at {printable(run.compared_with)}"
    told = [f"{lacking}: {first_of(new)}"] if new and compared else []
    told += [printable(run.gone_words)] if run.gone_words else []
    return [closing(run), *told, *map(_tell_unused, run.unused)]


def _brief_changes(result: Result) -> list[str]:
    """Return what differs as far as the code decides it; of many kernels the first ones."""
    kernels = frozenset(() if result.comparison is None else result.comparison.kernels[_FEW_KERNELS:])
    changes = [line for line in result.changes if line not in result.noise]
    shown = [line for line in changes if line.strip() not in kernels]
    hidden = len(changes) - len(shown)
    return [*shown, *([f"  ... and {counted(hidden, 'more change')} (-v)"] if hidden else [])]


def _tell_held(name: str, result: Result) -> Iterator[str]:
    """Yield what there is to know of limits that hold, such as what was allowed."""
    for verdict in result.limits:
        if verdict.evidence:
            head = f"{name}: {verdict.written}: {verdict.text}"
            lines = [line for one in verdict.evidence for line in one.lines]
            yield "\n".join(printable(line) for line in [head, *(f"  {line.strip()}" for line in lines)])


def _tell_unused(unused: UnusedEntries) -> str:
    return printable(f"{unused.file}: {unused.words}") + (f"\n  do: {unused.remedy}" if unused.remedy else "")


def _draw_results(run: RunResults, width: int) -> str:
    columns = result_columns(run)
    table, room = fitted(cells(columns, run.results), width, MIN_NAME_WIDTH)
    if any(column not in table for column in columns if column.show is _show_comparison):
        columns = tuple(
            column._replace(show=_show_state) if column.show is _show_comparison else column for column in columns
        )
        table, room = fitted(cells(columns, run.results), width, MIN_NAME_WIDTH)
    names = table[RESULT_COLUMNS[0]]
    table[RESULT_COLUMNS[0]] = [_shorten_name(name, max(room, _NARROWEST_NAME)) for name in names]
    return "\n".join(ruled(table))


def _shorten_name(name: str, room: int) -> str:
    """Return a test's name as it fits: its file, then its end, which tells parameters and labels apart.

    The folder is the same for most tests, and every test begins with "test_".
    """
    file, colons, test = name.partition("::")
    file = file.rpartition("/")[2]
    if width_of(file + colons + test) <= room:
        return f"{file}{colons}{test}"
    file = file.removesuffix(".py")
    left = room - len(colons) - min(width_of(test), max(room - len(colons) - width_of(file), room // 2))
    if width_of(file) > left:
        file = cut(file, left) if left > 3 else ""
    left = room - width_of(file) - len(colons)
    return f"{file}{colons}{test if width_of(test) <= left else f'...{ending(test, left - 3)}'}"


def closing(run: RunResults) -> str:
    """Return how many measurements came out how, and what is better, in one line."""
    better = better_words(run)
    return f"{count_outcomes(run)}; {better}" if better else count_outcomes(run)


def count_outcomes(run: RunResults) -> str:
    """Return how many measurements came out how."""
    counts = [
        f"{number} {words}"
        for outcome, words in _OUTCOMES.items()
        if (number := sum(result.outcome is outcome for result in run.results))
    ]
    return ", ".join(counts)


def better_words(run: RunResults) -> str:
    """Return how many are better than what they are compared with; empty where none is."""
    better = sum(result.baseline_state is BaselineState.BETTER for result in run.results)
    if not better:
        return ""
    if run.against is not None:
        return f"{better} better than at {printable(run.compared_with)}"
    return f"{better} better, to keep: pytest --torchprof-baseline=update"
