"""What can go wrong, as exceptions a user may catch.

Each gives `pytest_torchprof.errors` as its module, where users find it: a traceback prints that before the message.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Self

from pytest_torchprof.reasons.codes import Code, coded
from pytest_torchprof.text import first_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_torchprof.reasons.reason import Reason
    from pytest_torchprof.reasons.unreadable import WhyUnreadable


class TorchprofError(Exception):
    """Something the user can act on; its text says what happened, where, and what to do.

    All errors of this package are one. Its ``code`` is a word that stays the same where the text gets better:
    ``torchprof explain CODE`` says more.
    """

    __module__ = "pytest_torchprof.errors"

    code: str | None = None
    """What this kind of error is called, "recording-cut-off"; None where another plugin raises one without."""

    brief: str | None = None
    """The text where a few lines are enough (``pytest -q``)."""

    in_one_line: str | None = None
    """The text in one line, as in pytest's short summary; None stands for the first line of the text."""

    in_columns: Callable[[int], str] | None = None
    """Returns the whole text for a terminal of so many columns; None where it is the same for all."""

    _reason: Reason | None = None

    def __init__(self, text: str = "", code: str | None = None) -> None:
        """Make the error; ``code`` where it differs from that of the class."""
        super().__init__(text)
        if code is not None:
            self.code = code

    @classmethod
    def because(cls, reason: Reason, about: str = "") -> Self:
        """Return the error for a reason, which it carries; its text begins with what it is ``about``."""
        problem = cls(f"{about}: {reason.text}" if about else reason.text, reason.code)
        problem._reason = reason
        return problem

    @property
    def text(self) -> str:
        """What it says, without its code."""
        return str(self.args[0]) if self.args else ""

    @property
    def reason(self) -> Reason:
        """Why, as data: the reason that it carries, otherwise its text and code."""
        from pytest_torchprof.reasons.reason import Verbatim  # noqa: PLC0415 - `torchprof --help` has no reasons

        return self._reason or Verbatim.of(self.text, self.code)

    def __str__(self) -> str:
        """Return the text with the code at its end."""
        return self.text if self.code is None else coded(self.text, self.code)


ASK_THE_DOCTOR = "run `torchprof doctor` to see what is wrong with the profiler or the device"


class NotMeasured(TorchprofError):
    """The numbers could not be obtained, so nothing was judged; never a pass."""

    __module__ = "pytest_torchprof.errors"

    code = Code.NOT_MEASURED
    announced = False
    """Whether the text begins with "not measured: ", where nothing around it says so."""
    also_missed = False
    """Whether a limit or a baseline is missed besides: the test has then failed, by whatever else."""
    ask_the_doctor = False
    """Whether the profiler or the device is the cause: the text then ends with the command that tells more."""

    def __init__(self, reason: Reason | str = "", code: str | None = None, *, screen: str | None = None) -> None:
        """Make the error of a reason; of a text with ``code`` where another plugin has no reason of its own kind.

        ``screen`` is the whole text, where it says more than the reason.
        """
        from pytest_torchprof.reasons.decoding import portable  # noqa: PLC0415 - `torchprof --help` has no reasons
        from pytest_torchprof.reasons.reason import Verbatim  # noqa: PLC0415 - as above

        why = Verbatim.of(reason, code) if isinstance(reason, str) else portable(reason)
        self._reason, self.screen = why, screen
        super().__init__(why.text if screen is None else screen, why.code)

    def __str__(self) -> str:
        """Return the reason with its code, and where to ask for more."""
        if self.screen is not None:
            return self.text
        announced = f"{'not measured: ' if self.announced else ''}{self.reason}"
        return f"{announced}\n  do: {ASK_THE_DOCTOR}" if self.ask_the_doctor else announced


def not_measured(reason: Reason, *, ask_the_doctor: bool = False) -> NotMeasured:
    """Return the error that says so in front of the reason."""
    problem = NotMeasured(reason)
    problem.announced, problem.ask_the_doctor = True, ask_the_doctor
    return problem


def is_of_the_code(problem: BaseException) -> bool:
    """Return whether an error or a skip comes from the code that raised it; else somebody ends the test or run with it.

    A timeout is a ``pytest.fail`` in whatever runs; an interrupt and ``sys.exit`` may come from anywhere.
    """
    # pytest's outcomes are no Exceptions, and a command that reads a file has not imported pytest.
    pytest = sys.modules.get("pytest")
    if pytest is None:
        return isinstance(problem, Exception)
    own = (Exception, pytest.skip.Exception, pytest.xfail.Exception)
    return isinstance(problem, own) and not isinstance(problem, pytest.exit.Exception)


def describe(problem: BaseException) -> str:
    """Return an exception as "ValueError: the first line of its text"."""
    text = first_line(str(problem))
    return f"{type(problem).__name__}{f': {text}' if text else ''}"


class LimitsMissed(AssertionError, TorchprofError):
    """At least one limit does not hold on what was measured."""

    __module__ = "pytest_torchprof.errors"

    code = Code.LIMITS_MISSED

    def __str__(self) -> str:
        """Return the text: each limit in it has a name that ``torchprof explain`` knows."""
        return self.text


class UnreadableRecording(TorchprofError):
    """A file or folder that was to be read as a recording is not one, is damaged, or is missing."""

    __module__ = "pytest_torchprof.errors"

    code = Code.RECORDING_DAMAGED
    cause: WhyUnreadable | None = None
    """What is wrong with the file, as data, where its content was read."""

    @classmethod
    def of(cls, cause: WhyUnreadable, path: str) -> UnreadableRecording:
        """Return the error for a file."""
        from pytest_torchprof.reasons.recordings import UnreadableFile  # noqa: PLC0415 - as above

        refused = cls.because(UnreadableFile(path, cause))
        refused.cause = cause
        return refused


class UnreadableBaseline(TorchprofError):
    """A baseline file that cannot be read or is newer than this version; it is left as it is."""

    __module__ = "pytest_torchprof.errors"

    code = Code.BASELINE_DAMAGED


class UnknownLimit(TorchprofError):
    """A keyword that is no limit or option, or a value of the wrong type."""

    __module__ = "pytest_torchprof.errors"

    code = Code.BAD_VALUE


class TorchprofWarning(UserWarning):
    """Something that does not fail a test by itself and should not be overlooked."""

    __module__ = "pytest_torchprof.errors"


def find_own_error(problem: BaseException | None) -> TorchprofError | None:
    """Return the error of ours (not a missed limit) that an exception is, was raised from, or holds in a group."""
    waiting, seen = [problem], set()
    while waiting:
        error = waiting.pop()
        if error is None or id(error) in seen:
            continue
        seen.add(id(error))
        if isinstance(error, TorchprofError) and not isinstance(error, LimitsMissed):
            return error
        waiting += [error.__cause__, None if error.__suppress_context__ else error.__context__]
        waiting += error.exceptions if isinstance(error, BaseExceptionGroup) else ()
    return None


def hide_our_frames(excinfo: object) -> bool:
    """Tell pytest to leave a module's frames out of a traceback that ends in one of these errors.

    A module opts in by importing this as ``__tracebackhide__``: its frames say nothing of the user's own code.
    """
    return isinstance(getattr(excinfo, "value", None), TorchprofError)
