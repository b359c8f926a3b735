"""Answers that several views of one thing share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, overload

if TYPE_CHECKING:
    from collections.abc import Callable

Answer = TypeVar("Answer")


class HasViews:
    """Something whose views differ in little, and share what was worked out once."""

    def __init__(self, answers: dict[str, Any] | None = None) -> None:
        """Take the answers of another view, or begin without any."""
        self._answers = {} if answers is None else answers


class shared(Generic[Answer]):  # noqa: N801 - it decorates as ``property`` does
    """A property that is worked out when it is first asked for, once for all views."""

    def __init__(self, work_out: Callable[[Any], Answer]) -> None:
        """Take what works it out; it may depend on nothing in which views differ."""
        self._work_out = work_out
        self._name = work_out.__name__
        self.__doc__ = work_out.__doc__

    @overload
    def __get__(self, view: None, owner: type) -> Self: ...
    @overload
    def __get__(self, view: HasViews, owner: type) -> Answer: ...
    def __get__(self, view: HasViews | None, owner: type) -> Self | Answer:
        if view is None:
            return self
        answers = view._answers  # noqa: SLF001 - both are of this module
        if self._name not in answers:
            answers[self._name] = self._work_out(view)
        answer: Answer = answers[self._name]
        return answer
