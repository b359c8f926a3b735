"""Reasons that lie in how a test asks: for what cannot be meant, or in a way in which nothing can be measured."""

from __future__ import annotations

from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.reason import Reason
from pytest_torchprof.text import keyword_advice


class NoSuchLimit(Reason, frozen=True):
    """A keyword is no limit."""

    CODE = Code.UNKNOWN_KEYWORD
    FOR_THE_DOCTOR = False
    ADVICE = "write the nearest name, which the text has"

    name: str
    near: str | None
    """The name that is meant."""
    names: tuple[str, ...]
    """Some that are a little like it, where none is near."""

    @property
    def sentence(self) -> str:
        return f"{self.name!r} is no limit; {keyword_advice(self.near, self.names)}"


class OptionOfMarker(Reason, frozen=True):
    """A keyword of the marker is given to one measurement."""

    CODE = Code.UNKNOWN_KEYWORD
    FOR_THE_DOCTOR = False
    MEANING = "it says how the whole test is measured"
    ADVICE = "give it to the marker"
    SENTENCE = "{name!r} is no limit of one measurement; put it in the marker"

    name: str


class FunctionNotCalled(Reason, frozen=True):
    """A selector is given without its parentheses."""

    CODE = Code.BAD_PATTERN
    FOR_THE_DOCTOR = False
    ADVICE = "call it, as the text shows"
    SENTENCE = "{name}={function} is a function; call it: {name}={call}"

    name: str
    function: str
    call: str


class SettingAlone(Reason, frozen=True):
    """A setting is given without a limit that it is about."""

    CODE = Code.LONE_SETTING
    FOR_THE_DOCTOR = False
    ADVICE = "give the limit too, or leave the keyword out"

    name: str
    limits: tuple[str, ...]

    @property
    def sentence(self) -> str:
        several = len(self.limits) > 1
        counts = f"{' and '.join(self.limits)} {'count' if several else 'counts'}"
        return f"{self.name} changes what {counts}; give {'one of them' if several else self.limits[0]} too"


class BoundsContradict(Reason, frozen=True):
    """A lower bound is above the upper bound on the same number."""

    CODE = Code.CONTRADICTION
    FOR_THE_DOCTOR = False
    ADVICE = "raise the upper bound, or lower the other"
    SENTENCE = "{most} and {least} cannot both hold"

    most: str
    """The upper bound, as it is written."""
    least: str


class WantedAndForbidden(Reason, frozen=True):
    """The same is required and forbidden."""

    CODE = Code.CONTRADICTION
    FOR_THE_DOCTOR = False
    ADVICE = "take it out of one of them"
    SENTENCE = "{entry} stands in {wanted} and in {forbidden}, which cannot both hold"

    entry: str
    wanted: str
    forbidden: str


class CollectiveSends(Reason, frozen=True):
    """No byte may be sent, and a collective is required that sends some."""

    CODE = Code.CONTRADICTION
    FOR_THE_DOCTOR = False
    ADVICE = "leave one of them out"
    SENTENCE = "max_comm_bytes=0 and {collective!r} in collectives, which sends something, cannot both hold"

    collective: str


class FusedAndNot(Reason, frozen=True):
    """Operators are to be in one kernel, and in none together."""

    CODE = Code.CONTRADICTION
    FOR_THE_DOCTOR = False
    ADVICE = "take the operators out of one of them"

    ops: tuple[str, ...]

    @property
    def sentence(self) -> str:
        return f"{' and '.join(self.ops)} stand together in fused and in not_fused, which cannot both hold"


class MeasuresInside(Reason, frozen=True):
    """A measurement is asked for inside another one."""

    CODE = Code.FIXTURE_MISUSE
    FOR_THE_DOCTOR = False
    ADVICE = "measure one after the other"

    test: str
    of_body: bool
    """Whether the other one is that of the whole body."""

    @property
    def sentence(self) -> str:
        hint = " (the marker measures the whole body: request the fixture in the test's signature)"
        return (
            f"{self.test} asks for a measurement inside another one of its own{hint if self.of_body else ''}; measure "
            "one after the other"
        )


class LabelTwice(Reason, frozen=True):
    """Two measurements of a test have the same label."""

    CODE = Code.FIXTURE_MISUSE
    FOR_THE_DOCTOR = False
    ADVICE = "give each measurement a label of its own"
    SENTENCE = "the label {label!r} is used twice in {test}; each measurement needs its own"

    label: str | None
    test: str


class LimitsSetInside(Reason, frozen=True):
    """Limits for measurements to come are set inside one."""

    CODE = Code.FIXTURE_MISUSE
    FOR_THE_DOCTOR = False
    ADVICE = "set them before the measurement, or give them to `measure()`"
    SENTENCE = "{test} sets limits inside a measurement; set them before it, or give them to measure()"

    test: str
