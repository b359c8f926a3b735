"""The base of reasons: a statement that says why something is not measured, with its code and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from pytest_torchprof.reasons.codes import MISUSES, Code, coded
from pytest_torchprof.reasons.statement import Statement

StoredReason = str | dict[str, Any]
"""How reasons lie in recordings: as ``Reason.to_plain`` gives them; earlier versions wrote texts."""


class Reason(Statement, frozen=True, tag_field="reason"):
    """Why something is not measured, or cannot be.

    Each kind of reason is a class in this folder: the code that users see, the sentence, and what to do.
    """

    if TYPE_CHECKING:  # As in `statement`.
        CODE: ClassVar[Code]
    REMEDY = ""
    """What to do; empty where nothing can be done, or the sentence says it."""
    MEANING = ""
    """The meaning beyond what the sentence says, for `reasons.articles`; empty if there is no more to say."""
    ADVICE = ""
    """What to do, where there is more to say than the text does."""
    ACTION = ""
    """The usual `action`."""
    FOR_THE_DOCTOR = True
    """Whether ``torchprof doctor`` may know more, where the profiler or the device is what failed."""

    @property
    def code(self) -> Code | None:
        """The code that users know it by; None for words from elsewhere that have no code."""
        return self.CODE

    @property
    def remedy(self) -> str:
        """The advice on what to do about it."""
        return self.words(self.REMEDY)

    @property
    def action(self) -> str:
        """The action that a failure asks for; empty where that takes more than a line."""
        return self.ACTION

    @property
    def text(self) -> str:
        """The sentence and what to do."""
        return "; ".join(filter(None, [self.sentence, self.remedy]))

    @property
    def for_the_doctor(self) -> bool:
        """Whether ``torchprof doctor`` may know more."""
        return self.FOR_THE_DOCTOR and self.code not in MISUSES

    def __str__(self) -> str:
        """Return the text with the code at its end."""
        return self.text if self.code is None else coded(self.text, self.code)


class KnownAsItsCause:
    """A reason around another one: users look that one up."""

    __slots__ = ()
    why: Reason

    @property
    def code(self) -> Code | None:
        """The code that users know it by."""
        return self.why.code


class Verbatim(Reason, frozen=True):
    """A reason in words alone: of a mistake on the command line, of another plugin, of an earlier recording."""

    said: str
    known_as: Code | None = None

    @classmethod
    def of(cls, text: str, code: str | None) -> Verbatim:
        """Return the reason for a text; a code that is none of ours stands at the text's end."""
        if code is None or code in set(Code):
            return cls(text, None if code is None else Code(code))
        return cls(coded(text, code))

    @property
    def code(self) -> Code | None:
        return self.known_as

    @property
    def sentence(self) -> str:
        return self.said

    @property
    def text(self) -> str:
        return self.said

    @property
    def remedy(self) -> str:
        return ""

    @property
    def for_the_doctor(self) -> bool:
        return self.known_as not in (Code.SILENT_RANK, Code.OTHER_RANK, Code.ANOTHER_PROFILER)
