"""The exceptions that a user may catch.

Each gives `pytest_torchprof.errors` as its module, where users find it: a traceback prints that before the message.
"""

from __future__ import annotations

import sys
from collections.abc import Callable  # noqa: TC003 - the annotations of these classes are looked up here
from typing import TYPE_CHECKING, Self

from pytest_torchprof.reasons.codes import Code, coded
from pytest_torchprof.reasons.error_texts import ErrorTexts, unmeasured_text, with_doctor
from pytest_torchprof.text import first_line, is_huge

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from msgspec import Struct

    from pytest_torchprof.reasons.reason import Reason
    from pytest_torchprof.reasons.unreadable import WhyUnreadable


class TorchprofError(Exception):
    """Something the user can act on; its text says what happened, where, and what to do.

    All errors of this package are one. Its ``code`` is a word that stays the same where the text gets better:
    ``torchprof explain CODE`` says more.
    """

    __module__ = "pytest_torchprof.errors"

    code: str | None = None
    """The name of this kind of error, "recording-cut-off"; None where another plugin raises one without."""

    _reason: Reason | None = None
    _texts = ErrorTexts()
    facts: tuple[Struct | TorchprofError, ...] = ()
    """The verdicts on limits of which it says all that it says, or the errors; empty where the reason is all."""

    def __init__(self, text: str = "", code: str | None = None, *, texts: ErrorTexts | None = None) -> None:
        """Make the error of a text, or of ``texts`` of several lengths; ``code`` where it differs from the class's."""
        super().__init__(text if texts is None else texts.whole)
        if code is not None:
            self.code = code
        if texts is not None:
            self._texts = texts

    @classmethod
    def because(cls, reason: Reason, about: str = "") -> Self:
        """Return the error for a reason, which it carries; its text begins with what it is ``about``."""
        problem = cls(f"{about}: {reason.text}" if about else reason.text)
        # None where another plugin's code stands in the text.
        problem.code, problem._reason = reason.code, reason
        return problem

    @property
    def text(self) -> str:
        """The text, without its code."""
        return str(self.args[0]) if self.args else ""

    @property
    def brief(self) -> str | None:
        """The text where a few lines are enough (``pytest -q``)."""
        return self._texts.brief

    @property
    def in_one_line(self) -> str | None:
        """The text in one line, as in pytest's short summary; None stands for the first line of the text."""
        return self._texts.in_one_line

    @property
    def in_columns(self) -> Callable[[int], str] | None:
        """Returns the whole text for a terminal of so many columns; None where it is the same for all."""
        return self._texts.in_columns

    @property
    def reason(self) -> Reason:
        """Why, as data: the reason that it carries, otherwise its text and code."""
        from pytest_torchprof.reasons.reason import Verbatim  # noqa: PLC0415 - `torchprof --help` has no reasons

        return self._reason or Verbatim.of(self.text, self.code)

    def __str__(self) -> str:
        """Return the text with the code at its end."""
        return self.text if self.code is None else coded(self.text, self.code)


def saying(problem: TorchprofError, text: str) -> TorchprofError:
    """Return a copy of an error, raised where it was, whose whole text is another one, the same at any width."""
    kind = type(problem)
    # A class of another plugin may have a constructor of its own.
    copied = kind.__new__(kind, text)
    copied.__dict__.update(problem.__dict__, _texts=ErrorTexts(text, problem.brief, problem.in_one_line))
    copied.__cause__, copied.__context__ = problem.__cause__, problem.__context__
    copied.__suppress_context__ = problem.__suppress_context__
    return copied.with_traceback(problem.__traceback__)


class NotMeasured(TorchprofError):
    """The numbers could not be obtained, so nothing was judged; never a pass."""

    __module__ = "pytest_torchprof.errors"

    code = Code.NOT_MEASURED
    announced: bool = False
    """Whether the text begins with "not measured: ", where nothing around it says so."""
    also_missed: bool = False
    """Whether a limit or a baseline is missed besides: the test has then failed, by whatever else."""
    ask_the_doctor: bool = False
    """Whether the profiler or the device is the cause: the text then ends with the command that tells more."""

    def __init__(self, reason: Reason | str = "", code: str | None = None, *, texts: ErrorTexts | None = None) -> None:
        """Make the error of a reason; of a text with ``code`` where another plugin has no reason of its own kind.

        ``texts`` are for those who show it, where they say more than the reason.
        """
        from pytest_torchprof.reasons.decoding import portable  # noqa: PLC0415 - `torchprof --help` has no reasons
        from pytest_torchprof.reasons.reason import Verbatim  # noqa: PLC0415 - as above

        why = Verbatim.of(reason, code) if isinstance(reason, str) else portable(reason)
        self._reason = why
        # Reasons that stand together have no text of their own.
        super().__init__(why.text if texts is None else texts.whole, why.code, texts=texts)

    def __str__(self) -> str:
        """Return the reason with its code, and where to ask for more."""
        if self._texts.whole:
            return self.text
        text = unmeasured_text(self.reason) if self.announced else str(self.reason)
        return with_doctor(text, ask_the_doctor=self.ask_the_doctor)


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

    def __init__(self, text: str = "", code: str | None = None, *, texts: ErrorTexts | None = None) -> None:
        """Make the error as any of this package is made; Python's AssertionError takes no texts."""
        TorchprofError.__init__(self, text, code, texts=texts)

    def __str__(self) -> str:
        """Return the text: each limit in it has a name that ``torchprof explain`` knows."""
        return self.text


def error_of_texts(
    texts: ErrorTexts,
    unmeasured: Sequence[Reason],
    *,
    also_missed: bool = False,
    facts: Iterable[Struct | TorchprofError] = (),
) -> LimitsMissed | NotMeasured:
    """Return the error for what does not hold; *not measured* wins, since an expected failure must not hide it.

    ``facts`` are as in `TorchprofError.facts`.
    """
    from pytest_torchprof.reasons.composed import Several  # noqa: PLC0415 - `torchprof --help` has no reasons

    if not unmeasured:
        missed = LimitsMissed(texts=texts)
        missed.facts = tuple(facts)
        return missed
    problem = NotMeasured(Several.of(unmeasured), texts=texts)
    problem.also_missed, problem.facts = also_missed, tuple(facts)
    return problem


class UnreadableRecording(TorchprofError):
    """A file or folder that was to be read as a recording is not one, is damaged, or is missing."""

    __module__ = "pytest_torchprof.errors"

    code = Code.RECORDING_DAMAGED
    cause: WhyUnreadable | None = None
    """The fault of the file, as data, where its content was read."""

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

    def of_keyword(self, keyword: str, value: str | None = None) -> UnknownLimit:
        """Return the error of a keyword with this value, as it is written: what this one says of the value alone."""
        from pytest_torchprof.reasons.composed import OfKeyword  # noqa: PLC0415 - as above

        return UnknownLimit.because(OfKeyword(keyword, value, self.reason))

    def of_entry(self, entry: str) -> UnknownLimit:
        """Return the error of an entry of a value, as it is written: what this one says of the entry alone."""
        from pytest_torchprof.reasons.composed import OfEntry  # noqa: PLC0415 - as above

        return UnknownLimit.because(OfEntry(entry, self.reason))


def refuse_huge(keyword: str, value: object) -> None:
    """Raise UnknownLimit for a keyword with a whole number beyond 64 bits in its value, which Python may not print."""
    if is_huge(value):
        from pytest_torchprof.reasons.wrong_values import HugeNumber  # noqa: PLC0415 - as above

        raise UnknownLimit.because(HugeNumber()).of_keyword(keyword, "...")


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
