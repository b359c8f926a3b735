"""The base of statements: facts of a known kind, whose words are made where somebody reads them."""

from __future__ import annotations

import re
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar

from msgspec import to_builtins
from msgspec.structs import asdict

from pytest_torchprof.reasons.wording import worded
from pytest_torchprof.text.reprs import ShownFields

if TYPE_CHECKING:
    from typing import Self


class Phrase(Enum):
    """A member of a closed list: a code, by which it travels, and the words by which people read it in a sentence."""

    text: str

    def __new__(cls, code: str, text: str) -> Self:
        """Make a member from its code and its words."""
        member = object.__new__(cls)
        member._value_, member.text = code, text
        return member

    def __str__(self) -> str:
        """Return the words."""
        return self.text


class OncePhrase(Phrase):
    """A phrase that earlier versions wrote in its words: these are read as its code is, and so have to stay."""

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        return next((member for member in cls if member.text == value), None)


def _tag(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", name).lower()


class Statement(ShownFields, frozen=True, tag=_tag):
    """Facts of one kind as typed fields, and the sentence that tells them.

    Each kind is a class, a row of its catalogue. Statements go through recordings, between processes and into reports
    as data, tagged with the name of their class in kebab case.
    """

    if TYPE_CHECKING:  # Of each kind msgspec would evaluate it once more: half of the time until the first one is read.
        SENTENCE: ClassVar[str]
        """The words, with fields in braces (`wording.worded`); `sentence` where they depend on the fields."""

    @property
    def sentence(self) -> str:
        """The facts in words."""
        return self.words(self.SENTENCE)

    def words(self, sentence: str) -> str:
        """Return a sentence with the fields put in."""
        return worded(sentence, asdict(self))

    @property
    def text(self) -> str:
        """The sentence, with whatever else the kind has to say."""
        return self.sentence

    def __str__(self) -> str:
        """Return the text."""
        return self.text

    def to_plain(self) -> dict[str, Any]:
        """Return it as JSON values, from which the catalogue makes it again."""
        return dict(to_builtins(self))
