"""The options in the markers of one test, with the run's applied: read once, into a frozen value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from pytest_torchprof.measuring.keyword_values import DEVICE, STEPS, WARMUP, at_least, device_name, read_keyword
from pytest_torchprof.reasons.errors import UnknownLimit
from pytest_torchprof.testing.fixture_users import asks_for_fixture
from pytest_torchprof.testing.markers import measured_by_rule_alone, merged_marker, own_marker
from pytest_torchprof.testing.option_values import one_of, read_flag
from pytest_torchprof.testing.rule_key import RULE
from pytest_torchprof.testing.tolerance import Tolerance, read_tolerance
from pytest_torchprof.text.suggestions import keywords_like

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pytest

    from pytest_torchprof.kernels.own_kernels import OwnKernels
    from pytest_torchprof.limits import Asked, Limit
    from pytest_torchprof.testing.options import RunOptions
    from pytest_torchprof.testing.suite_rules import RuleOfTest

RECORDABLE = ("stacks", "modules", "memory")


class TestOptions(Struct, frozen=True, kw_only=True):
    """The options in the markers of one test, with the run's applied."""

    __test__ = False
    device: str
    warmup: int
    steps: int
    ranks: int | None
    """The number of ranks of the job in which it is to run; None where the marker does not say."""
    compile_cache: str | None
    """Whether its process is to find the compile caches "cold" or "warm"; None where the marker does not say."""
    record: frozenset[str]
    limits: tuple[Asked, ...]
    """The limits of the marker alone."""
    names: Literal["normal", "exact"]
    uses_baseline: bool
    tolerance: Tolerance
    own_kernels: OwnKernels | None
    """The marker's declaration of kernels that no table knows; None where it has none."""
    marker: Mapping[str, object] | None
    """The markers as they were merged, with what a rule of the suite asks; None without either."""
    rule: RuleOfTest | None = None
    """The rule of the suite for it; None where there is none."""
    of_rule_alone: bool = False
    """Whether nothing but a rule measures it: its body is called once then, and never again."""

    warns_if_unused: bool = False
    """Whether it requests the fixture, and only a rule that warns asks for a measurement."""

    def warns_of(self, limit: str, within: str | None = None) -> bool:
        """Return whether a miss of this limit is only told; "" stands for the measurement as a whole."""
        return self.rule is not None and self.rule.warns_of(limit, within, alone=self.of_rule_alone)

    def has_from_rule(self, limit: str, within: str | None = None) -> bool:
        """Return whether it has a limit from a rule of the suite; false of one of its own."""
        return self.rule is not None and self.rule.asks(limit, within)

    def judges_on_cpu(self, limit: str) -> bool:
        """Return whether a limit is a rule's for the CPU: it is judged where that is measured for want of a GPU."""
        return self.rule is not None and self.rule.judges_on_cpu(limit)

    @property
    def marked(self) -> bool:
        """Whether the test carries the marker; it may ask for the fixture alone."""
        return self.marker is not None

    @property
    def has_processes(self) -> bool:
        """Whether it asks to run in processes of its own: as ranks, or to find compile caches cold or warm."""
        return self.ranks is not None or self.compile_cache is not None


def read_test_options(item: pytest.Item, run: RunOptions, known: Sequence[Limit]) -> TestOptions:
    """Return the test's options; UnknownLimit names a keyword or value that cannot be used."""
    # This module loads in every pytest run.
    from pytest_torchprof.limits import read_limits, settings_of  # noqa: PLC0415
    from pytest_torchprof.limits.operators_asked import refuse_unknown_operators  # noqa: PLC0415
    from pytest_torchprof.testing.compile_cache import phase_asked  # noqa: PLC0415

    marker = merged_marker(item)
    limits = dict(marker or {})
    names = {*_READERS, *(limit.name for limit in known)}
    if not limits.keys() <= names:
        names |= settings_of(known).keys()
    for keyword in limits:
        if keyword not in names:
            from pytest_torchprof.reasons.asked_wrongly import UnknownKeyword  # noqa: PLC0415 - for what is refused alone

            raise UnknownLimit.because(UnknownKeyword(keyword, *keywords_like(keyword, names)))
    options = {
        keyword: read_keyword(keyword, limits.pop(keyword), _READERS[keyword])
        for keyword in list(limits)
        if keyword in _READERS
    }

    of_rule_alone = measured_by_rule_alone(item)
    # How often such a test is called is no matter of taste: it was not written to be called again.
    forced = run.forced - {"warmup", "steps"} if of_rule_alone else run.forced

    def choose(name: str, default: Any) -> Any:
        order = [options.get(name), getattr(run, name)]
        return next((value for value in (order[::-1] if name in forced else order) if value is not None), default)

    device = choose("device", DEVICE)
    if "ranks" in options and ":" in device:
        from pytest_torchprof.reasons.asked_wrongly import DeviceOfRanks  # noqa: PLC0415 - for what is refused alone

        raise UnknownLimit.because(DeviceOfRanks(device, options["ranks"], device.partition(":")[0]))
    asked = read_limits(
        limits,
        known=known,
        defaults=run.settings,
        # A test that measures through the fixture may add limits.
        more_to_come=asks_for_fixture(item),
    )
    if run.replay is None and not of_rule_alone:  # What a rule asks for was looked at with the rule.
        refuse_unknown_operators(asked)
    return TestOptions(
        device=device,
        warmup=choose("warmup", WARMUP),
        steps=choose("steps", STEPS),
        ranks=options.get("ranks"),
        compile_cache=phase_asked(options, limits),
        record=options.get("record", frozenset()),
        limits=asked,
        names=options.get("names", "normal"),
        uses_baseline=options.get("baseline", True),
        tolerance=options.get("tolerance") or run.tolerance or Tolerance(),
        own_kernels=options.get("own_kernels"),
        marker=marker,
        rule=None if (rule := item.stash.get(RULE, None)) is None else rule.below(own_marker(item)),
        of_rule_alone=of_rule_alone,
        warns_if_unused=rule is not None and rule.mode == "warn" and own_marker(item) is None,
    )


def check_ways(ways: Mapping[str, object]) -> None:
    """Raise UnknownLimit for a value that a keyword cannot have which says how to measure."""
    for keyword, value in ways.items():
        read_keyword(keyword, value, _READERS[keyword])


def _record(value: object) -> frozenset[str]:
    entries = [value] if isinstance(value, str) else value
    if isinstance(entries, list | tuple | set | frozenset) and all(entry in RECORDABLE for entry in entries):
        return frozenset(str(entry) for entry in entries)
    from pytest_torchprof.reasons.wrong_values import NoneOfThese  # noqa: PLC0415 - for what is refused alone

    raise UnknownLimit.because(NoneOfThese(RECORDABLE, several=True))


def _own_kernels(value: object) -> OwnKernels:
    from pytest_torchprof.kernels.own_kernels import read_own_kernels  # noqa: PLC0415  (this module loads in every run)

    return read_own_kernels(value)


_READERS: dict[str, Callable[[object], Any]] = {
    "warmup": at_least(0),
    "steps": at_least(1),
    "device": device_name,
    "ranks": at_least(1),
    "compile_cache": one_of(["cold", "warm"]),
    "record": _record,
    "baseline": read_flag,
    "tolerance": read_tolerance,
    "names": one_of(["exact"]),
    "own_kernels": _own_kernels,
}
MARKER_OPTIONS = frozenset(_READERS)
"""The marker's keywords that are no limits."""
