"""The causes that kept code from being compiled, as far as a recording shows them: each with its facts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Union

from pytest_torchprof.reasons.statement import Statement


class CompileSetting(Statement, frozen=True, tag_field="setting"):
    """A setting that lets compiled functions run as they are."""


class StanceSet(CompileSetting, frozen=True):
    """The user has set a stance other than the usual one."""

    SENTENCE = 'torch.compiler.set_stance("{stance}") was in force'

    stance: str


class CompilingDisabled(CompileSetting, frozen=True):
    """Nothing is to be compiled in this process."""

    SENTENCE = "torch.compile is disabled (TORCH_COMPILE_DISABLE=1 or torch._dynamo.config.disable)"


class UnderMode(CompileSetting, frozen=True):
    """A dispatch mode is in force, for which Dynamo leaves code alone."""

    SENTENCE = "{mode} was in force, a mode under which torch compiles nothing"

    mode: str


class OnlyRun(CompileSetting, frozen=True):
    """Compiled code may run, and nothing else is to be compiled."""

    SENTENCE = "torch._dynamo.run was in force"


class MarkedSkip(CompileSetting, frozen=True):
    """A function is marked to stay uncompiled."""

    function: str
    file: str | None
    """None for a function that has no code in Python."""
    line: int | None

    @property
    def sentence(self) -> str:
        where = "" if self.file is None else f" ({self.file}:{self.line})"
        return f"{self.function}{where} is marked with skip of torch._dynamo"


SETTINGS: Final[tuple[type[CompileSetting], ...]] = tuple(CompileSetting.__subclasses__())

if TYPE_CHECKING:
    AnySetting = CompileSetting
else:
    # A field of this type is decoded to the kind whose tag it has.
    AnySetting = Union[SETTINGS]  # noqa: UP007 - of as many as there are


class WhyUncompiled(Statement, frozen=True, tag_field="cause"):
    """A cause that may have kept code from being compiled."""


class NeverUsed(WhyUncompiled, frozen=True):
    """Nothing in the process has asked for compiled code."""

    SENTENCE = "torch.compile was not used"


class SettingInForce(WhyUncompiled, frozen=True):
    """A setting lets compiled functions run as they are."""

    SENTENCE = "{setting}"

    setting: AnySetting | str
    """In recordings of earlier versions a text."""


class SkippedAsTorchs(WhyUncompiled, frozen=True):
    """The function to compile is one of torch's own, which Dynamo leaves alone."""

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
