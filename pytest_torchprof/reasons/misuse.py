"""Reasons that lie in how a test uses the fixture and its blocks: so, nothing could be measured correctly."""

from __future__ import annotations

from pytest_torchprof.reasons import decoding  # noqa: TC001 - msgspec reads the annotations
from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.reason import Reason
from pytest_torchprof.reasons.statement import Phrase
from pytest_torchprof.reasons.wrong_values import ValueForm  # noqa: TC001 - msgspec reads the annotations


class MeasuresInside(Reason, frozen=True):
    """A measurement is asked for inside another one."""

    CODE = Code.FIXTURE_MISUSE
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
    ADVICE = "give each measurement a label of its own"
    SENTENCE = "the label {label!r} is used twice in {test}; each measurement needs its own"

    label: str | None
    test: str


class LimitsSetInside(Reason, frozen=True):
    """Limits for measurements to come are set inside one."""

    CODE = Code.FIXTURE_MISUSE
    ADVICE = "set them before the measurement, or give them to `measure()`"
    SENTENCE = "{test} sets limits inside a measurement; set them before it, or give them to measure()"

    test: str


class Takes(Phrase):
    """The arguments that a call takes."""

    FUNCTION = "function", "a function and its arguments"
    LABEL = "label", "a label, a text that is not empty"
    PRODUCER = "producer", "a function that is given a folder, or a path"
    LIMITS = "limits", "limits as keywords, such as max_kernels=5"
    PROFILE = "profile", "another profile"
    PATH = "path", "a path"


class CallWithout(Reason, frozen=True):
    """A call is not given what it takes in the first place."""

    call: str
    takes: Takes
    got: str
    known_as: Code = Code.FIXTURE_MISUSE

    @property
    def code(self) -> Code:
        return self.known_as

    @property
    def sentence(self) -> str:
        no_function = ", which cannot be called" if self.takes is Takes.FUNCTION else ""
        return f"{self.call} takes {self.takes}; got {self.got}{no_function}"


class WrongArgument(Reason, frozen=True):
    """An argument of a call of the fixture is not what it takes."""

    CODE = Code.FIXTURE_MISUSE
    SENTENCE = "{call} {argument}: expected {expected}, got {got}"
    ADVICE = "write what the text says is expected"

    call: str
    argument: str
    expected: ValueForm
    got: str


class WrongCall(Reason, frozen=True):
    """Python refuses the arguments of a call."""

    CODE = Code.FIXTURE_MISUSE
    SENTENCE = "{call} {problem}"
    REMEDY = "write {right}"

    call: str
    problem: str
    """Python's words behind the name of the call."""
    right: str
    """A call that is right."""


class KeywordHandedOver(Reason, frozen=True):
    """A keyword of the marker is given to a call, which hands it to a function that does not take it."""

    CODE = Code.FIXTURE_MISUSE
    SENTENCE = (
        "torchprof() hands {keyword}= to the function that it calls, which does not take it: it belongs to the marker, "
        "@pytest.mark.torchprof({keyword}=...)"
    )
    ADVICE = "give it to the marker"

    keyword: str


class ProducerRunsNothing(Reason, frozen=True):
    """The function that is to record something runs nothing."""

    CODE = Code.FIXTURE_MISUSE
    ADVICE = "give it what drives it, in a function"

    why: decoding.AnyReason

    @property
    def sentence(self) -> str:
        return f"torchprof.adopt() calls a function that records: {self.why}"


class FixtureTooLate(Reason, frozen=True):
    """The fixture is requested while the test runs."""

    CODE = Code.FIXTURE_MISUSE
    SENTENCE = (
        "{test}: the torchprof fixture was asked for while the test runs; what is measured must be known before: name "
        'it in the test\'s arguments, or with @pytest.mark.usefixtures("torchprof")'
    )
    ADVICE = "name it in the test's arguments"

    test: str


class EnteredTwice(Reason, frozen=True):
    """A block is entered twice."""

    CODE = Code.FIXTURE_MISUSE
    SENTENCE = "the block {block} is entered twice; each block has its own: with {call}(...) as m"
    ADVICE = "make a block for each"

    block: str
    call: str


class StepsOutside(Reason, frozen=True):
    """The steps of a block are asked for outside of it."""

    CODE = Code.FIXTURE_MISUSE
    SENTENCE = "m.steps() is used inside the block: with {call}(...) as m"
    ADVICE = "enter the block before"

    call: str


class StepsTwice(Reason, frozen=True):
    """The steps of a block are asked for twice."""

    CODE = Code.FIXTURE_MISUSE
    SENTENCE = "m.steps() was asked for twice in the block {block}; one block, one loop"
    ADVICE = "run through them in one loop"

    block: str


class ProfileTooEarly(Reason, frozen=True):
    """The profile of a block is asked for before its end."""

    CODE = Code.FIXTURE_MISUSE
    SENTENCE = "m.profile of {block} is there after the block, when its steps have run"
    ADVICE = "ask for it behind the block"

    block: str
