"""What the command line, the ini file and the marker ask for: read once, at the border."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest

from pytest_torchprof.errors import UnknownLimit
from pytest_torchprof.testing.tolerance import Tolerance, from_text, tolerance

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pytest_torchprof.limits import Asked, Limit

BASELINE_MODES = ("compare", "update", "add", "strict", "off")
RECORDABLE = ("stacks", "modules", "memory")
DEVICE = re.compile(r"auto|cpu|cuda(:\d+)?")
DEVICE_FORMS = "auto, cpu, cuda or cuda:N"
DEFAULT_WARMUP = 3
DEFAULT_STEPS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The run's options; ``None`` where neither command line nor ini file says anything."""

    enabled: bool
    baseline: str
    baseline_dir: Path | None
    device: str | None
    device_forced: bool
    """``device`` stood on the command line and wins over the marker; so for the next two."""
    warmup: int | None
    warmup_forced: bool
    steps: int | None
    steps_forced: bool
    require_gpu: bool
    save: Path | None
    replay: Path | None
    reports: tuple[Path, ...]
    rootdir: Path
    tolerance: Tolerance | None
    workers: int
    """How many processes of pytest-xdist run tests at the same time; 1 without it."""

    @classmethod
    def from_pytest(cls, config: pytest.Config) -> Settings:
        """Read options and ini keys; pytest.UsageError names the option and what it takes."""
        option = _Options(config)
        device = option.text("device", DEVICE.fullmatch, DEVICE_FORMS)
        save, replay = option.path("save"), option.path("replay")
        if save and replay:
            raise pytest.UsageError(
                "--torchprof-save and --torchprof-replay exclude each other: a replay records nothing"
            )
        if (
            save
            and (taken := next((place for place in (save, *save.parents) if place.exists()), save))
            and taken.is_file()
        ):
            raise pytest.UsageError(f"--torchprof-save: {taken} is a file; name a folder for the recordings")
        if replay and not replay.is_dir():
            raise pytest.UsageError(f"--torchprof-replay: {replay} is no folder; name one made by --torchprof-save")
        return cls(
            enabled=option.text("", {"on", "off"}.__contains__, "on or off") != "off",
            baseline=option.text("baseline", BASELINE_MODES.__contains__, ", ".join(BASELINE_MODES)) or "compare",
            baseline_dir=option.path("baseline-dir"),
            device=device,
            device_forced=option.given("device"),
            warmup=option.number("warmup", 0),
            warmup_forced=option.given("warmup"),
            steps=option.number("steps", 1),
            steps_forced=option.given("steps"),
            require_gpu=option.flag("require-gpu"),
            save=save,
            replay=replay,
            reports=option.paths("report"),
            rootdir=config.rootpath,
            tolerance=option.tolerance(),
            workers=getattr(config, "workerinput", {}).get("workercount", 1),
        )


class _Options:
    """Reads one option: the command line wins over the ini key."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def given(self, name: str) -> bool:
        return self._config.getoption(_dest(name)) is not None

    def _value(self, name: str) -> Any:
        value = self._config.getoption(_dest(name))
        return value if value is not None else self._config.getini(_dest(name)) or None

    def text(self, name: str, valid: Callable[[str], object], forms: str) -> str | None:
        value = self._value(name)
        if value is not None and not valid(value):
            raise pytest.UsageError(f"{_shown(name)}: expected {forms}, got {value!r}")
        return None if value is None else str(value)

    def number(self, name: str, least: int) -> int | None:
        value = self._value(name)
        if value is None:
            return None
        if not str(value).isascii() or not str(value).isdigit() or int(value) < least:
            raise pytest.UsageError(f"{_shown(name)}: expected a whole number from {least}, got {value!r}")
        return int(value)

    def flag(self, name: str) -> bool:
        value = self._value(name)
        if value in (None, True):
            return value is True
        if str(value).lower() in ("true", "1", "yes", "on"):
            return True
        if str(value).lower() in ("false", "0", "no", "off"):
            return False
        raise pytest.UsageError(f"{_shown(name)}: expected true or false, got {value!r}")

    def path(self, name: str) -> Path | None:
        """Return a path: relative to where pytest was called, or, from the ini file, to that file's folder."""
        if (given := self._config.getoption(_dest(name))) is not None:
            return Path(self._config.invocation_params.dir / given)
        value = self._config.getini(_dest(name))
        return Path(self._config.rootpath / value) if value else None

    def tolerance(self) -> Tolerance | None:
        text = self._config.getini("torchprof_tolerance")
        try:
            return from_text(text)
        except UnknownLimit as problem:
            raise pytest.UsageError(
                f"torchprof_tolerance = {text}: {problem}; write e.g. time=0.10 kernels=1"
            ) from None

    def paths(self, name: str) -> tuple[Path, ...]:
        if given := self._config.getoption(_dest(name)):
            return tuple(self._config.invocation_params.dir / path for path in given)
        return tuple(self._config.rootpath / path for path in self._config.getini(_dest(name)))


def _dest(name: str) -> str:
    return "torchprof" + (f"_{name.replace('-', '_')}" if name else "")


def _shown(name: str) -> str:
    return "--torchprof" + (f"-{name}" if name else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureOptions:
    """What one test's markers ask for, with the run's options applied."""

    device: str
    warmup: int
    steps: int
    record: frozenset[str]
    limits: tuple[Asked, ...]
    names: Literal["normal", "exact"]
    compared: bool
    tolerance: Tolerance
    marker: Mapping[str, object] | None
    """The markers as they were merged, None without one."""
    given: Mapping[str, object] = field(repr=False)
    """The limits as they were written, for a measurement that adds its own."""

    @property
    def marked(self) -> bool:
        """Whether the test carries the marker; it may ask for the fixture alone."""
        return self.marker is not None


def merged_marker(item: pytest.Item) -> dict[str, object] | None:
    """Return the item's ``torchprof`` markers merged keyword by keyword, the nearest winning; None without one."""
    merged: dict[str, object] | None = None
    for marker in item.iter_markers("torchprof"):
        if marker.args:
            raise UnknownLimit(
                f"the torchprof marker takes keywords only, got {marker.args[0]!r}; write e.g. max_kernels=5"
            )
        merged = {**marker.kwargs, **(merged or {})}
    return merged


def options_of(item: pytest.Item, settings: Settings, known: Iterable[Limit]) -> MeasureOptions:
    """Return the test's options; UnknownLimit names a keyword or value that cannot be used."""
    from pytest_torchprof.limits import nearest, read_limits  # noqa: PLC0415  (only runs with a torchprof test pay for it)

    marker = merged_marker(item)
    given = dict(marker or {})
    catalogue = tuple(known)
    names = {limit.name for limit in catalogue}
    for keyword in given:
        if keyword not in names and keyword not in _READERS:
            raise UnknownLimit(f"unknown keyword {keyword!r}{nearest(keyword, names | set(_READERS))}")
    options = {keyword: _read_option(keyword, given.pop(keyword)) for keyword in list(given) if keyword in _READERS}
    return MeasureOptions(
        device=_choose(settings.device, options.get("device"), forced=settings.device_forced, default="auto"),
        warmup=_choose(settings.warmup, options.get("warmup"), forced=settings.warmup_forced, default=DEFAULT_WARMUP),
        steps=_choose(settings.steps, options.get("steps"), forced=settings.steps_forced, default=DEFAULT_STEPS),
        record=options.get("record", frozenset()),
        limits=read_limits(given, known=catalogue),
        names=options.get("names", "normal"),
        compared=options.get("baseline", True),
        tolerance=options.get("tolerance") or settings.tolerance or Tolerance(),
        marker=marker,
        given=given,
    )


def _choose(run: Any, marker: Any, *, forced: bool, default: Any) -> Any:
    order = (run, marker) if forced else (marker, run)
    return next((value for value in order if value is not None), default)


def _read_option(keyword: str, value: object) -> Any:
    try:
        return _READERS[keyword](value)
    except UnknownLimit as problem:
        raise UnknownLimit(f"{keyword}={value!r}: {problem}") from None


def _at_least(least: int) -> Callable[[object], int]:
    def read(value: object) -> int:
        if isinstance(value, int) and not isinstance(value, bool) and value >= least:
            return value
        raise UnknownLimit(f"expected a whole number from {least}")

    return read


def _device(value: object) -> str:
    # A torch.device prints as its name; torch itself is not imported to look.
    if type(value).__name__ == "device" or isinstance(value, str):
        name = str(value)
        if DEVICE.fullmatch(name):
            return name
    raise UnknownLimit(f"expected {DEVICE_FORMS}")


def _record(value: object) -> frozenset[str]:
    entries = [value] if isinstance(value, str) else value
    if isinstance(entries, list | tuple | set | frozenset) and all(entry in RECORDABLE for entry in entries):
        return frozenset(str(entry) for entry in entries)
    raise UnknownLimit(f"expected one or several of {', '.join(RECORDABLE)}")


def _flag(value: object) -> bool:
    if isinstance(value, bool):
        return value
    raise UnknownLimit("expected True or False")


def _names(value: object) -> str:
    if value == "exact":
        return "exact"
    raise UnknownLimit('expected "exact"')


_READERS: dict[str, Callable[[object], Any]] = {
    "warmup": _at_least(0),
    "steps": _at_least(1),
    "device": _device,
    "record": _record,
    "baseline": _flag,
    "tolerance": tolerance,
    "names": _names,
}
