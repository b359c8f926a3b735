"""Two sides of one comparison: the tests run at another commit and in the working tree, each in a process of its own.

It is loaded in every pytest run of every user: nothing is imported here that a plain run does not need.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pytest

VARIABLE: Final = "TORCHPROF_AGAINST"
"""The variable that names the file from which a process learns its side."""
_LOOKS: Final = (
    *("help", "version", "markers", "showfixtures", "show_fixtures_per_test", "cacheshow"),
    *("collectonly", "setuponly", "setupplan"),
)
"""Options with which pytest runs no test."""


def add_options(parser: pytest.Parser) -> None:
    """Declare the options of the command line; a comparison with a commit is never the default of a project."""
    group = parser.getgroup("torchprof", "GPU kernels (torchprof)")
    group.addoption(
        "--torchprof-against", metavar="REF", default=None,
        help="run the tests at this commit too, and compare: kernels, launches, copies, syncs, graph breaks",
    )  # fmt: skip
    group.addoption(
        "--torchprof-against-tests", metavar="WHOSE", default="here", choices=("here", "own"),
        help="here (default): the tests of the working tree run at both; own: each side runs its own",
    )  # fmt: skip
    group.addoption(
        "--torchprof-against-install", metavar="COMMAND", default=None,
        help='the command that installs the code of a side, in an environment of its own: "pip install -e ."',
    )  # fmt: skip
    group.addoption(
        "--torchprof-against-python", metavar="PATH", default=None,
        help="the Python that measures the other commit, for instance one with another torch",
    )  # fmt: skip
    group.addoption(
        "--torchprof-against-fresh", action="store_true", default=False,
        help="measure the other commit again, whatever an earlier run has kept of it",
    )  # fmt: skip
    group.addoption(
        "--torchprof-against-time", metavar="SHARE", default=None,
        help="compare the times of all tests too, and fail those that became slower by more than this share: 0.10",
    )  # fmt: skip
    group.addoption(
        "--torchprof-against-budget", metavar="SECONDS", default=None,
        help="how long times may be taken, such as 120s; the run says what did not fit",
    )  # fmt: skip
    group.addoption(
        "--torchprof-against-ambiguous", metavar="HOW", default="warn", choices=("warn", "fail"),
        help="what times do that the pairs leave open: warn (default), or fail the test",
    )  # fmt: skip


def lone_option(config: pytest.Config) -> str | None:
    """Return an option on how to compare with a commit although no commit is named; None without such an option.

    Settings of a project are for the runs that compare.
    """
    arguments = () if config.option.torchprof_against is not None else map(str, config.invocation_params.args)
    return next(
        (argument.partition("=")[0] for argument in arguments if argument.startswith("--torchprof-against-")), None
    )


def looks_only(config: pytest.Config) -> bool:
    """Return whether pytest is called for something other than running tests."""
    return any(getattr(config.option, name, None) for name in _LOOKS)


def is_side(config: pytest.Config) -> bool:
    """Return whether this process runs one side; processes that the tests start themselves do not have the option."""
    return config.option.torchprof_against is not None and VARIABLE in os.environ
