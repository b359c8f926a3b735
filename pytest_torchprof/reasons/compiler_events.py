"""Why the compiler did what a recording shows, where no words of its own tell it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Union

from pytest_torchprof.reasons.statement import Statement


class CompilerEvent(Statement, frozen=True, tag_field="cause"):
    """The facts on a graph break, a recompile, or a CUDA graph that was not made, besides torch's words."""


class TorchSilent(CompilerEvent, frozen=True):
    """Torch's text is empty."""

    SENTENCE = "no reason given"


class ReasonForgotten(CompilerEvent, frozen=True):
    """The compiled code shows a graph break of which Dynamo's records are gone."""

    SENTENCE = "graph break whose reason torch no longer has"


class GeneratorRefused(CompilerEvent, frozen=True):
    """Dynamo leaves a generator alone before it keeps a record; where it keeps one, it says the same."""

    SENTENCE = "Attempt to trace generator"


class DataDependentJump(CompilerEvent, frozen=True):
    """A jump depends on data; Dynamo's own words name only the instruction."""

    SENTENCE = "Data-dependent branching: {instruction}"

    instruction: str


class RegionInside(CompilerEvent, frozen=True):
    """A compiled region ran inside another one."""

    SENTENCE = "{inner} ran inside {outer}"

    inner: str
    outer: str


class NoGuardFailed(CompilerEvent, frozen=True):
    """Code was compiled again although no guard failed."""

    SENTENCE = "no guard failed: what was compiled before is gone, as after torch._dynamo.reset()"


class SeenCompiledAgain(CompilerEvent, frozen=True):
    """The trace shows that code was compiled again."""

    SENTENCE = "compiled again inside the window ({compile_id})"

    compile_id: str


class InductorSilent(CompilerEvent, frozen=True):
    """Inductor counts graphs that it has not made, and says nothing of them."""

    SENTENCE = "Inductor gives no reason"


KINDS: Final[tuple[type[CompilerEvent], ...]] = tuple(CompilerEvent.__subclasses__())

if TYPE_CHECKING:
    AnyCompilerEvent = CompilerEvent
else:
    # A field of this type is decoded to the kind whose tag it has.
    AnyCompilerEvent = Union[KINDS]  # noqa: UP007 - of as many as there are
