"""The columns of a kind of rows, from which the terminal, Markdown, JSON and the page take theirs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

from msgspec import Struct

from pytest_torchprof.text import printable
from pytest_torchprof.text.tables import Column, cells
from pytest_torchprof.text.units import show_bytes, show_rate, show_share, show_us

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pytest_torchprof.analysis.steps import StepProfile
    from pytest_torchprof.text.tables import Cells

Unit = Literal["text", "count", "us", "bytes", "share", "rate"]


class Among(Struct, frozen=True, kw_only=True):
    """The facts that the columns of a row depend on besides the row: those of the whole table."""

    steps: Sequence[StepProfile] = ()
    total_us: float = 0.0
    """The time of all rows, including those that are left out."""
    names: Mapping[str, str] = {}
    """The display names of kernels, by their raw names."""
    backward: bool = False
    """Whether any row is of a backward pass."""
    words: Mapping[str, str] = {}
    """The words that titles leave open, such as the name of the device whose time is shown."""
    brief: bool = False
    """Whether a comparison is shown only by its state."""
    has_gpu: bool = True
    on_gpu: bool = True
    """Whether times of single calls are those on the GPU."""
    stays: frozenset[str] = frozenset()
    """The keys of columns that no terminal leaves out."""


class RowColumn(Struct, frozen=True, kw_only=True):
    """One column of a kind of rows, in every form in which it is shown."""

    key: str
    """Its key in JSON and on the page."""
    unit: Unit = "text"
    """How its values are shown. Texts sort upwards and are aligned to the left, all others sort downwards."""
    of: Callable[[Any, Among], Any] | None = None
    """Returns the value of a row; if it is None, the attribute named ``key`` is the value."""
    title: str | None = None
    """The title of a terminal's column, with `Among.words` filled in; None: a terminal does not have it."""
    show: Callable[[Any, Among], str] | None = None
    """Returns a row's cell in a terminal, if the unit alone does not decide how its value is shown."""
    bound: Callable[[Any, Among], Literal["", ">=", "<="]] | None = None
    """Returns what stands before a row's value, which may be larger or smaller; None: it never is."""
    leaves: int = 0
    """The order in which columns leave a narrow terminal, 1 first; 0: never."""
    optional: bool = False
    """Whether a terminal shows it only where a row has a value."""
    when: Callable[[Among], bool] | None = None
    """Whether a terminal and the page show it for these rows; None: always."""
    page: str | None = None
    """The title of the page's column; "": the page has it below the row's name; None: the page does not have it."""
    compared: bool = False
    """Whether the page shows the former value of the same name beside it."""
    json: bool = True

    def value(self, row: Any, among: Among) -> Any:
        """Return the value of a row."""
        return getattr(row, self.key) if self.of is None else self.of(row, among)

    def bounded(self, row: Any, among: Among) -> tuple[str, Any]:
        """Return the bound sign before a row's value, and the value; None where it is not known, or is at least 0."""
        value = self.value(row, among)
        bound = "" if self.bound is None else self.bound(row, among)
        return ("", None) if value is None or (bound == ">=" and not value) else (bound, value)

    def shown(self, row: Any, among: Among) -> str:
        """Return the cell of a row in a terminal."""
        if self.show is not None:
            return self.show(row, among)
        bound, value = self.bounded(row, among)
        return "-" if value is None else f"{bound}{_SHOW[self.unit](value)}"


_SHOW: Final[Mapping[str, Callable[[Any], str]]] = {
    "text": lambda value: printable(value) or "-",
    "count": "{:,}".format,
    "us": show_us,
    "bytes": show_bytes,
    "share": show_share,
    "rate": show_rate,
}


def terminal_columns(columns: Iterable[RowColumn], rows: Sequence[Any], among: Among) -> tuple[Column, ...]:
    """Return the columns that a terminal and Markdown have of these rows."""
    wanted = [column for column in columns if column.title is not None and _is_beside(column, among)]
    drawn = [
        Column(
            (column.title or "").format_map(among.words),
            lambda row, column=column: column.shown(row, among),  # type: ignore[misc]
            "left" if column.unit == "text" else "right",
            0 if column.key in among.stays else column.leaves,
        )
        for column in wanted
    ]
    table: Cells = cells(drawn, rows)
    return tuple(
        shown for shown, column in zip(drawn, wanted, strict=True) if not column.optional or set(table[shown]) - {"-"}
    )


def json_values(columns: Iterable[RowColumn], row: Any, among: Among) -> dict[str, Any]:
    """Return the values of a row for JSON, by the columns' keys."""
    # Sums of nanoseconds do not need more digits.
    return {
        column.key: round(value, 3)
        if isinstance(value := column.value(row, among), float) and column.unit in ("us", "rate")
        else value
        for column in columns
        if column.json
    }


def page_columns(columns: Iterable[RowColumn], among: Among) -> list[RowColumn]:
    """Return the columns of the page, including those below a row's name."""
    return [column for column in columns if column.page is not None and _is_beside(column, among)]


def _is_beside(column: RowColumn, among: Among) -> bool:
    return column.when is None or column.when(among)
