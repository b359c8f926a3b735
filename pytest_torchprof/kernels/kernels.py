"""The kernels of a step, in launch order."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar, overload

from pytest_torchprof.kernels.kernel import Kernel, LaunchedKernel
from pytest_torchprof.kernels.reply import ask
from pytest_torchprof.reasons.errors import NotMeasured, TorchprofError
from pytest_torchprof.reasons.errors import hide_our_frames as __tracebackhide__  # noqa: F401  (read by pytest)
from pytest_torchprof.reasons.reason import Reason
from pytest_torchprof.text import and_more, printable_line
from pytest_torchprof.text.units import show_us
from pytest_torchprof.text.wrapping import WIDTH

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

AnyKernel = TypeVar("AnyKernel", bound=LaunchedKernel)
_SHOWN = 20
"""The most kernels that are listed when they are printed."""


def by_name(kernels: Iterable[AnyKernel]) -> dict[str, list[AnyKernel]]:
    """Return the kernels by their raw names, in the order in which the names first occur."""
    grouped: dict[str, list[AnyKernel]] = defaultdict(list)
    for kernel in kernels:
        grouped[kernel.name].append(kernel)
    return grouped


def counted_names(kernels: Iterable[Kernel]) -> tuple[tuple[int, str], ...]:
    """Return each name that tables show, with the number of kernels that have it: the most frequent first."""
    return counted_texts(kernel.short or kernel.name for kernel in kernels)


def counted_texts(texts: Iterable[str]) -> tuple[tuple[int, str], ...]:
    """Return each of the texts with how often it is there: the most frequent first."""
    return tuple((count, text) for text, count in Counter(texts).most_common())


class Kernels(Sequence[Kernel]):
    """Kernels in launch order; kernels without a recorded launch are sorted in by their own start."""

    def __init__(
        self,
        build: Callable[[], Iterable[Kernel]],
        count: int,
        *,
        refusal: Callable[[TorchprofError], TorchprofError] = lambda problem: problem,
        open_question: Reason | None = None,
    ) -> None:
        """Take the number of kernels, and the function that builds them in their order when somebody looks at one.

        ``open_question``: why there may be more of them; None if these are all. ``refusal`` notes errors to be raised.
        """
        self._build = build
        self._count = count
        self._refusal = refusal
        self._open_question = open_question

    @cached_property
    def _kernels(self) -> tuple[Kernel, ...]:
        """The kernels that surely belong here."""
        return tuple(self._build())

    @property
    def _all(self) -> tuple[Kernel, ...]:
        """All kernels; NotMeasured if there may be more, since the sure ones would pass for all."""
        self._refuse_open()
        return self._kernels

    def _refuse_open(self) -> None:
        if self._open_question is not None:
            raise self._refusal(NotMeasured(self._open_question))

    def __len__(self) -> int:
        return self.count

    def __bool__(self) -> bool:
        return self._count > 0 or self.count > 0

    def __contains__(self, wanted: object) -> bool:
        """Return whether it contains a kernel; a text is a pattern, as in :meth:`matching`."""
        if isinstance(wanted, str):
            return bool(self.matching(wanted))
        return wanted in self._kernels or wanted in self._all

    def __iter__(self) -> Iterator[Kernel]:
        # The ``__iter__`` of Sequence would ask for each kernel by its index.
        return iter(self._all)

    @overload
    def __getitem__(self, index: int) -> Kernel: ...
    @overload
    def __getitem__(self, index: slice) -> Kernels: ...
    def __getitem__(self, index: int | slice) -> Kernel | Kernels:
        __tracebackhide__ = True  # noqa: F811 - an index beyond the last kernel is an error of the line that has it.
        return self._selected(self._all[index]) if isinstance(index, slice) else self._all[index]

    def __repr__(self) -> str:
        if self._open_question is not None:
            return f"<Kernels: at least {self._count}; {self._open_question}>"
        return f"<Kernels: {self.count} of {len(self.names)} names, {show_us(self.time_us)}>"

    def __str__(self) -> str:
        """Return a line for each of the first kernels, below one with their number."""
        if self._open_question is not None:
            return repr(self)
        lines = [repr(self)]
        lines += [
            f"  [{index}] {printable_line(str(kernel), WIDTH - 10)}" for index, kernel in enumerate(self[:_SHOWN])
        ]
        return "\n".join(lines + [f"  ...{and_more(self.count - _SHOWN)}"] * (self.count > _SHOWN))

    @property
    def count(self) -> int:  # type: ignore[override]  # a number here, as max_kernels reads it
        """The number of kernels; NotMeasured if it is not known of some whether they match."""
        self._refuse_open()
        return self._count

    @property
    def time_us(self) -> float:
        """The sum of their durations, in microseconds; NotMeasured if ``count`` is."""
        return sum(kernel.dur_ns for kernel in self._all) / 1000

    @property
    def names(self) -> list[str]:
        """Their distinct names, in the order in which they first run; NotMeasured if ``count`` is."""
        return list(dict.fromkeys(kernel.name for kernel in self._all))

    def matching(self, pattern: object) -> Kernels:
        """Return the kernels that the pattern (substring, glob, ``re:`` or selector) surely matches.

        Raises UnknownLimit for a value that is no pattern. If other kernels may match too, the result raises
        NotMeasured when it is read, and so do its number and its time: ``[kernel for kernel in profile.kernels if
        ...]`` asks for the known facts of each kernel.
        """
        # A program that only reads a file needs neither of these.
        from pytest_torchprof.kernels.operator_checks import unmatched_operator  # noqa: PLC0415
        from pytest_torchprof.kernels.patterns import compile_pattern  # noqa: PLC0415

        try:
            compiled = compile_pattern(pattern)
        except TorchprofError as problem:
            raise self._refusal(problem) from None
        answers = ask(self._kernels, compiled.verdict)
        if not answers.yes and compiled.operator is not None:
            around = {op for kernel in self._kernels for op in kernel.op_chain}
            if (reason := unmatched_operator(compiled.operator, around)) is not None:
                return self._selected(answers.yes, reason)
        if not (unknown := len(answers.not_known)):
            return self._selected(answers.yes, self._open_question)
        from pytest_torchprof.reasons.names_asked import MatchUnknown  # noqa: PLC0415 - only selections need it

        return self._selected(answers.yes, MatchUnknown(str(compiled), unknown))

    def _selected(self, kernels: Sequence[Kernel], open_question: Reason | None = None) -> Kernels:
        return Kernels(lambda: kernels, len(kernels), refusal=self._refusal, open_question=open_question)
