"""Whether the code that a side has imported is its own.

That a side's folders come first on the path is no proof: a package that is installed in editable mode may load itself
from elsewhere, and a compiled part that is not in one tree may be found in the other.
"""

from __future__ import annotations

import os
import site
import sys
import sysconfig
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_torchprof.codes import Code, coded

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_torchprof.against.side import Side

_MAPPED = Path("/proc/self/maps")
_ENDINGS = (".py", *EXTENSION_SUFFIXES)


@cache
def environment_folders() -> tuple[str, ...]:
    """Return where Python and what is installed beside it lie: an environment may stand inside of a working tree."""
    places = {sys.prefix, sys.exec_prefix, sys.base_prefix, *site.getsitepackages(), site.getusersitepackages()}
    places |= {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    return tuple(sorted({os.path.realpath(place) for place in places if place}))


def lies_in(file: str, *folders: str) -> bool:
    """Whether a path is one of the folders or below; both as ``realpath`` returns them."""
    return any(file == folder or file.startswith(folder + os.sep) for folder in folders)


def foreign_import(side: Side) -> str | None:
    """Return why what this process has imported is not the side's own code, with the path; None where it is."""
    tree, other, caches = (os.path.realpath(place) for place in (side.tree, side.other, side.caches))
    inside = [place for place in environment_folders() if lies_in(place, tree, other)]
    own = (caches, *inside, *([tree] if lies_in(tree, other) else []))
    for name, file in _loaded():
        real = _resolved(file)
        if lies_in(real, other) and not lies_in(real, *own):
            return _said(side, name, file, "which is the other side's")
        if _has(side.roots, name) and (not lies_in(real, tree) or lies_in(real, *inside)):
            return _said(side, name, file, f"and not from {side.tree}, which has it")
    return None


def foreign_origin(side: Side) -> str | None:
    """Return why a process that is started from here would not import the side's own packages; None where it would."""
    tree = os.path.realpath(side.tree)
    packages = sorted({init.parent.name for root in side.roots for init in root.glob("*/__init__.py")})
    for name in packages:
        found = find_spec(name)
        if found is not None and found.origin is not None and not lies_in(_resolved(found.origin), tree):
            return _said(side, name, found.origin, f"and not from {side.tree}, which has it")
    return None


def _resolved(file: str) -> str:
    folder, name = os.path.split(file)
    return f"{_resolved_folder(folder)}{os.sep}{name}"


_resolved_folder = cache(os.path.realpath)


def _loaded() -> Iterator[tuple[str, str]]:
    """Yield the modules of this process with their files, and the libraries that it has loaded besides."""
    for name, module in tuple(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and name.partition(".")[0] not in sys.stdlib_module_names and name != "__main__":
            yield name, file
    if _MAPPED.is_file():
        rows = _MAPPED.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
        files = {row.partition("/")[2] for row in rows if ".so" in row}
        yield from (("", f"/{file}") for file in sorted(files))


def _has(roots: tuple[Path, ...], name: str) -> bool:
    """Whether a side's own tree has a module of this name."""
    if not name or name == "conftest":  # There may be one in each folder.
        return False
    top = name.partition(".")[0]
    return any(top in _tops(root) and _is_module(root.joinpath(*name.split("."))) for root in roots)


@cache
def _tops(root: Path) -> frozenset[str]:
    try:
        return frozenset(entry.name.partition(".")[0] for entry in os.scandir(root))
    except OSError:
        return frozenset()


@cache
def _is_module(path: Path) -> bool:
    return any(path.with_name(f"{path.name}{end}").is_file() for end in _ENDINGS) or (path / "__init__.py").is_file()


def _said(side: Side, name: str, file: str, whose: str) -> str:
    where = f"at {side.reference.shown}" if side.is_base else "in the working tree"
    what = f"the module {name} was imported" if name else "a library was loaded"
    remedy = "--torchprof-against-install=COMMAND installs each side's code in an environment of its own"
    return coded(f"{where} {what} from {file}, {whose}: {remedy}", Code.OTHER_CODE)
