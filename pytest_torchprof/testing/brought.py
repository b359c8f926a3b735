"""The answers of other plugins to our hooks: each with its plugin, so that its mistakes are reported as its own."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from pytest_torchprof.reasons.errors import TorchprofError, UnknownLimit, describe, is_of_the_code
from pytest_torchprof.reasons.plugins import (
    Brings,
    BringsSomethingElse,
    FormatRaised,
    FormatWithoutText,
    HookRaised,
    OfHook,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_torchprof.report import Reporter, RunResults


class Brought(NamedTuple):
    """The answer of one plugin to one of our hooks."""

    hook: str
    plugin: str
    answer: Any

    @contextmanager
    def read(self) -> Iterator[Any]:
        """Around the reading of the answer; pytest.UsageError names hook and plugin where it cannot be used."""
        with _naming_plugin(self.hook, self.plugin):
            yield self.answer


def brought(config: pytest.Config, hook: str) -> list[Brought]:
    """Return the answers to a hook, as pytest asks plugins: the one that was registered last comes first.

    pytest.UsageError, with the hook and the plugin, where one raises an error.
    """
    calls = getattr(config.hook, hook).get_hookimpls()
    answers = []
    for call in reversed(calls):
        others = [other.plugin for other in calls if other.plugin is not call.plugin]
        ask = config.pluginmanager.subset_hook_caller(hook, others)
        with _naming_plugin(hook, call.plugin_name):
            answers += [Brought(hook, call.plugin_name, answer) for answer in ask() if answer is not None]
    return answers


@contextmanager
def _naming_plugin(hook: str, plugin: str) -> Iterator[None]:
    try:
        yield
    except UnknownLimit as problem:
        raise pytest.UsageError(str(OfHook(hook, plugin, problem.reason))) from None
    except BaseException as problem:
        if not is_of_the_code(problem):
            raise
        raise pytest.UsageError(str(HookRaised(hook, plugin, describe(problem)))) from problem


def checked_reporters(given: Brought) -> dict[str, Reporter]:
    """Return the report formats that a plugin brings; UnknownLimit for anything else."""
    if not isinstance(given.answer, dict):
        raise UnknownLimit.because(BringsSomethingElse(Brings.REPORTERS, repr(given.answer)))
    return {suffix: _checked(given.plugin, suffix, reporter) for suffix, reporter in given.answer.items()}


def _checked(plugin: str, suffix: object, reporter: object) -> Reporter:
    """Return a function that writes a report, or raises TorchprofError with the plugin's name where its own fails."""
    if not (isinstance(suffix, str) and suffix.startswith(".") and callable(reporter)):
        raise UnknownLimit.because(BringsSomethingElse(Brings.REPORTER, f"{suffix!r}: {reporter!r}"))

    def report(run: RunResults) -> str:
        try:
            text = reporter(run)
        except BaseException as problem:
            if not is_of_the_code(problem):
                raise
            raise TorchprofError.because(FormatRaised(suffix, plugin, describe(problem))) from problem
        if not isinstance(text, str):
            raise TorchprofError.because(FormatWithoutText(suffix, plugin, repr(text)))
        return text

    return report
