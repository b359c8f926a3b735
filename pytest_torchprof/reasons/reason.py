"""What a reason is: facts of a known kind, whose words are made where somebody reads them."""

from __future__ import annotations

import re
from typing import Any, ClassVar

from msgspec import Struct, to_builtins
from msgspec.structs import asdict

from pytest_torchprof.codes import Code, coded
from pytest_torchprof.reasons.wording import worded

StoredReason = str | dict[str, Any]
"""How reasons lie in recordings: as ``Reason.to_plain`` gives them; earlier versions wrote texts."""


def _tag(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", name).lower()


class Reason(Struct, frozen=True, tag_field="reason", tag=_tag):
    """Why something is not measured, or cannot be: the facts of it as typed fields.

    Each kind of reason is a class in this folder, a row of its catalogue: the code that users see, the sentence with
    the fields in braces (`wording.worded`), and what to do. Reasons go through recordings, between processes and into
    reports as data, tagged with the name of their class in kebab case.
    """

    CODE: ClassVar[Code]
    SENTENCE: ClassVar[str]
    """What is the matter, with fields in braces; `sentence` where it depends on them."""
    REMEDY: ClassVar[str] = ""
    """What to do; empty where nothing can be done, or the sentence says it."""
    FOR_THE_DOCTOR: ClassVar[bool] = True
    """Whether ``torchprof doctor`` may know more, where the profiler or the device is what failed."""

    @property
    def code(self) -> Code | None:
        """What users know it by; None for words from elsewhere that have no code."""
        return self.CODE

    @property
    def sentence(self) -> str:
        """What is the matter."""
        return self.words(self.SENTENCE)

    @property
    def remedy(self) -> str:
        """What to do about it."""
        return self.words(self.REMEDY)

    def words(self, sentence: str) -> str:
        """Return a sentence with the fields put in."""
        return worded(sentence, asdict(self))

    @property
    def text(self) -> str:
        """The sentence and what to do."""
        sentence, remedy = self.sentence, self.remedy
        if not remedy:
            return sentence
        return f"{sentence}{'; ' if ': ' in sentence else ': '}{remedy}"

    @property
    def for_the_doctor(self) -> bool:
        """Whether ``torchprof doctor`` may know more."""
        return self.FOR_THE_DOCTOR

    def __str__(self) -> str:
        """Return the text with the code at its end."""
        return self.text if self.code is None else coded(self.text, self.code)

    def to_plain(self) -> dict[str, Any]:
        """Return it as JSON values, from which `from_plain` makes it again."""
        return dict(to_builtins(self))


class Verbatim(Reason, frozen=True):
    """A reason in words from elsewhere: another plugin's, an earlier version's recording."""

    said: str
    known_as: Code | None = None

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
