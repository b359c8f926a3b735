"""The position of a side's own folders among those that modules are imported from."""

from __future__ import annotations

import os
import sys
import sysconfig
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_torchprof.against.side import Side


def shadows(root: Path) -> bool:
    """Return whether a folder has modules with names of the standard library, so that it must not come before it."""
    try:
        entries = tuple(os.scandir(root))
    except OSError:
        return False
    modules = {entry.name.removesuffix(".py") for entry in entries if entry.name.endswith(".py")}
    packages = {entry.name for entry in entries if (root / entry.name / "__init__.py").is_file()}
    return not sys.stdlib_module_names.isdisjoint(modules | packages)


def add_roots(side: Side) -> None:
    """Put the side's folders that PYTHONPATH cannot name on the path: after the standard library, before all else."""
    missing = [str(root) for root in side.roots if str(root) not in sys.path]
    library = {os.path.realpath(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib")}
    library |= {os.path.join(folder, "lib-dynload") for folder in library}  # noqa: PTH118
    last = max(
        (at for at, folder in enumerate(sys.path) if os.path.realpath(folder) in library), default=len(sys.path) - 1
    )
    sys.path[last + 1 : last + 1] = missing
