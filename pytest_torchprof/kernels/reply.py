"""The three answers to a question about a kernel, a copy, a wait, an operator: yes, no, not known."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Generic, TypeVar

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

Thing = TypeVar("Thing")


class Reply(Enum):
    """The answer to a question, as far as it is known.

    It has no truth value: the caller decides what NOT_KNOWN means.
    """

    YES = "yes"
    NO = "no"
    NOT_KNOWN = "not known"

    # Enum hashes in Python code, and each question looks its reply up.
    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        raise TypeError("a reply is YES, NO or NOT_KNOWN, and not true or false: compare it with one of them")

    @property
    def may_be(self) -> bool:
        """Whether it is yes or not known."""
        return self is not Reply.NO


YES, NO, NOT_KNOWN = Reply


def known(*, holds: bool) -> Reply:
    """Return YES or NO, for a question whose answer is known."""
    return YES if holds else NO


def same(known_value: object, wanted: object) -> Reply:
    """Return whether the known value is the wanted one; NOT_KNOWN if the value is None."""
    return NOT_KNOWN if known_value is None else known(holds=known_value == wanted)


def every(answers: Iterable[Reply]) -> Reply:
    """Return NO if any answer is NO, else NOT_KNOWN if any is NOT_KNOWN, else YES."""
    replies = set(answers)
    return next((reply for reply in (NO, NOT_KNOWN) if reply in replies), YES)


def some(answers: Iterable[Reply]) -> Reply:
    """Return YES if any answer is YES, else NOT_KNOWN if any is NOT_KNOWN, else NO."""
    replies = set(answers)
    return next((reply for reply in (YES, NOT_KNOWN) if reply in replies), NO)


class Replies(Struct, Generic[Thing], frozen=True, kw_only=True):
    """Things grouped by the answer to one question about each; in the order in which they were asked."""

    yes: tuple[Thing, ...]
    no: tuple[Thing, ...]
    not_known: tuple[Thing, ...]


def ask(things: Iterable[Thing], question: Callable[[Thing], Reply]) -> Replies[Thing]:
    """Ask the question about each thing and group the things by the answer."""
    by_reply: dict[Reply, list[Thing]] = {YES: [], NO: [], NOT_KNOWN: []}
    for thing in things:
        by_reply[question(thing)].append(thing)
    return Replies(yes=tuple(by_reply[YES]), no=tuple(by_reply[NO]), not_known=tuple(by_reply[NOT_KNOWN]))
