"""The three answers to a question about a kernel, a copy, a wait, an operator: yes, no, not known."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Generic, TypeVar

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

Thing = TypeVar("Thing")


class Reply(Enum):
    """What is known of a question. It has no truth value: who asks says what becomes of NOT_KNOWN."""

    YES = "yes"
    NO = "no"
    NOT_KNOWN = "not known"

    # Enum hashes names in Python, and each question looks its reply up.
    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        raise TypeError("a reply is YES, NO or NOT_KNOWN, and not true or false: compare it with one of them")

    @property
    def may_be(self) -> bool:
        """Whether it is yes, or may be for all that is known."""
        return self is not Reply.NO


YES, NO, NOT_KNOWN = Reply


def known(*, holds: bool) -> Reply:
    """Return the answer to a question that what is known decides."""
    return YES if holds else NO


def same(known_value: object, wanted: object) -> Reply:
    """Return whether what is known is what is wanted; NOT_KNOWN where nothing is known."""
    return NOT_KNOWN if known_value is None else known(holds=known_value == wanted)


def every(answers: Iterable[Reply]) -> Reply:
    """Return NO where one is, else NOT_KNOWN where one is, else YES."""
    replies = set(answers)
    return next((reply for reply in (NO, NOT_KNOWN) if reply in replies), YES)


def some(answers: Iterable[Reply]) -> Reply:
    """Return YES where one is, else NOT_KNOWN where one is, else NO."""
    replies = set(answers)
    return next((reply for reply in (YES, NOT_KNOWN) if reply in replies), NO)


class Replies(Struct, Generic[Thing], frozen=True, kw_only=True):
    """Things by the answer that a question got of each; in the order in which they were asked."""

    yes: tuple[Thing, ...]
    no: tuple[Thing, ...]
    not_known: tuple[Thing, ...]


def ask(things: Iterable[Thing], question: Callable[[Thing], Reply]) -> Replies[Thing]:
    """Ask each of these."""
    by_reply: dict[Reply, list[Thing]] = {YES: [], NO: [], NOT_KNOWN: []}
    for thing in things:
        by_reply[question(thing)].append(thing)
    return Replies(yes=tuple(by_reply[YES]), no=tuple(by_reply[NO]), not_known=tuple(by_reply[NOT_KNOWN]))
