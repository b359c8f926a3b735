"""The modules of this package in a run of pytest: loaded as Python loads any module, with what it has compiled before.

Loaded in every pytest run of every user: nothing is imported here that a plain run does not need.
"""

from __future__ import annotations

import sys
from importlib.machinery import PathFinder
from typing import TYPE_CHECKING

from _pytest.assertion.rewrite import AssertionRewritingHook

if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec

_OURS = f"{__name__.partition('.')[0]}."


class OwnModules:
    """A finder of this package's modules, past pytest's own.

    pytest takes every module of a plugin's for one of tests, whose assertions it rewrites. It then does not use what
    the installation has compiled: it compiles hundreds of modules anew where it may not write beside them, and reads
    what it wrote there before in small pieces, which takes longer than to run it.
    """

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, _target: object = None) -> ModuleSpec | None:
        """Return where a module of this package is, None for any other."""
        return PathFinder.find_spec(name, path) if name.startswith(_OURS) else None


def load_past_pytest() -> None:
    """Let Python itself load those modules of this package that nobody has imported yet.

    A finder that somebody has put in front of pytest's, as checkers of types do, is asked before. Without pytest's, as
    with ``--assert=plain``, there is nothing to do.
    """
    at = next((at for at, finder in enumerate(sys.meta_path) if isinstance(finder, AssertionRewritingHook)), None)
    if at is not None:
        sys.meta_path.insert(at, OwnModules)
