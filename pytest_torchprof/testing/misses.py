"""The errors that the limits of ``expect()`` raise in a test: they fail the test even if they never reach it."""

from __future__ import annotations

import gc
from functools import partial
from typing import TYPE_CHECKING, Final
from weakref import WeakSet

from msgspec import Struct, field

from pytest_torchprof.reasons.error_texts import ErrorTexts
from pytest_torchprof.reasons.errors import NotMeasured, TorchprofError, error_of_texts
from pytest_torchprof.report.outcome import Outcome
from pytest_torchprof.testing.ending import error_line, is_skip, outcome_of

if TYPE_CHECKING:
    from collections.abc import Iterable

_RUN_THREADS: Final = frozenset({"threading", "concurrent.futures.thread", "multiprocessing.pool"})
"""The modules whose functions call what a thread is started with, and end or keep what it raises."""


class Misses(Struct, kw_only=True):
    """The errors of ``expect()`` in one run of a test, as far as not judged; only its own methods change it."""

    anywhere: WeakSet[TorchprofError] = field(default_factory=WeakSet)
    """All of it, as far as something still holds it."""
    in_threads: list[TorchprofError] = field(default_factory=list)
    """The errors raised in threads that the test has started."""
    thrown_away: list[TorchprofError] = field(default_factory=list)
    """Our errors that Python has reported and thrown away, of whichever test."""

    def lost(self, raised: BaseException | None) -> TorchprofError | None:
        """Return the errors that nothing has caught and that have never reached the test, as one error; once.

        Nothing else counts where an error was ``raised`` in the test; a skip is none.
        """
        if isinstance(raised, TorchprofError):
            self.anywhere.discard(raised)
        if raised is not None and not is_skip(raised):
            self.forget()
            return None
        if self.anywhere:
            # A task reports its error when it is freed, which may hang on a cycle of references.
            gc.collect()
        thrown_away = (problem for problem in self.thrown_away if problem in self.anywhere)
        lost = _as_one(dict.fromkeys([*_lost_in_threads(self.in_threads), *thrown_away]))
        if lost is not None:
            self.forget()
        return lost

    def forget(self) -> None:
        """Drop it: it is judged."""
        self.in_threads.clear()
        self.thrown_away.clear()


def _lost_in_threads(problems: Iterable[TorchprofError]) -> list[TorchprofError]:
    """Return those of these errors that ended the thread in which they were raised, and have never reached the test.

    What raises one again (``future.result()``), and what catches it in the thread, is the test's own code.
    """
    return [problem for problem in problems if _caller(problem) in _RUN_THREADS]


def _caller(problem: TorchprofError) -> str | None:
    """Return the name of the module whose function an error has come to at last."""
    trace = problem.__traceback__
    return None if trace is None else trace.tb_frame.f_globals.get("__name__")


def _as_one(problems: Iterable[TorchprofError]) -> TorchprofError | None:
    """Return an error that says what all of these say, raised where the first was; None if there are none.

    What is missed comes before what could not be measured, which no expected failure hides.
    """
    in_order = sorted(problems, key=lambda problem: outcome_of(problem) is not Outcome.FAILED)
    if len(in_order) < 2:
        return next(iter(in_order), None)
    first = in_order[0]
    texts = ErrorTexts(
        "\n\n".join(problem.text for problem in in_order),
        "\n".join(problem.brief or error_line(problem) for problem in in_order),
        "; also: ".join(map(error_line, in_order)),
        partial(_in_columns, in_order),
    )
    unmeasured = [problem.reason for problem in in_order if isinstance(problem, NotMeasured)]
    error = error_of_texts(texts, unmeasured, also_missed=outcome_of(first) is Outcome.FAILED, facts=in_order)
    return error.with_traceback(first.__traceback__)


def _in_columns(problems: Iterable[TorchprofError], most: int) -> str:
    return "\n\n".join(problem.in_columns(most) if problem.in_columns else problem.text for problem in problems)
