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


def known(*, told: bool) -> Reply:
    """Return the answer to a question that what is known decides."""
    return YES if told else NO


def same(told: object, wanted: object) -> Reply:
    """Tell whether what is told is what is wanted; None tells nothing."""
    return NOT_KNOWN if told is None else known(told=told == wanted)


def every(answers: Iterable[Reply]) -> Reply:
    """Return NO where one is, else NOT_KNOWN where one is, else YES."""
    found = set(answers)
    return next((one for one in (NO, NOT_KNOWN) if one in found), YES)


def some(answers: Iterable[Reply]) -> Reply:
    """Return YES where one is, else NOT_KNOWN where one is, else NO."""
    found = set(answers)
    return next((one for one in (YES, NOT_KNOWN) if one in found), NO)


class Replies(Struct, Generic[Thing], frozen=True, kw_only=True):
    """Things by the answer that a question got of each; in the order in which they were asked."""

    yes: tuple[Thing, ...]
    no: tuple[Thing, ...]
    not_known: tuple[Thing, ...]


def ask(things: Iterable[Thing], question: Callable[[Thing], Reply]) -> Replies[Thing]:
    """Ask each of these."""
    found: dict[Reply, list[Thing]] = {YES: [], NO: [], NOT_KNOWN: []}
    for thing in things:
        found[question(thing)].append(thing)
    return Replies(yes=tuple(found[YES]), no=tuple(found[NO]), not_known=tuple(found[NOT_KNOWN]))
