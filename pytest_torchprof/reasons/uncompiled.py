"""What kept code from being compiled, as far as a recording shows it: each cause with its facts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Union

from pytest_torchprof.reasons.statement import Statement


class WhyUncompiled(Statement, frozen=True, tag_field="cause"):
    """What may have kept code from being compiled."""


class NeverUsed(WhyUncompiled, frozen=True):
    """Nothing in the process has asked for compiled code."""

    SENTENCE = "torch.compile was not used"


class SettingInForce(WhyUncompiled, frozen=True):
    """A setting lets compiled functions run as they are."""

    SENTENCE = "{setting}"

    setting: str


class SkippedAsTorchs(WhyUncompiled, frozen=True):
    """What was to be compiled is a function of torch's own, which Dynamo leaves alone."""

    SENTENCE = "{function} ({file}:{line}) is torch's own code: torch.compile skips it"

    function: str
    file: str
    line: int


class NoneFits(WhyUncompiled, frozen=True):
    """Calls looked for compiled code, and none of it fits."""

    SENTENCE = "{calls:call} found no compiled code that fits, and ran uncompiled"

    calls: int


KINDS: Final[tuple[type[WhyUncompiled], ...]] = tuple(WhyUncompiled.__subclasses__())

if TYPE_CHECKING:
    AnyWhyUncompiled = WhyUncompiled
else:
    # A field of this type is decoded to the kind whose tag it has.
    AnyWhyUncompiled = Union[KINDS]  # noqa: UP007 - of as many as there are
