"""Whether the code that a side has run is its own, by the modules that it has imported.

That a side's folders come first on the path is no proof: a package that is installed may load itself from elsewhere, a
path in the environment or a link may lead to the other side, and what git ignores exists on one side only.
"""

from __future__ import annotations

import os
import re
import site
import sys
import sysconfig
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from pytest_torchprof.against.git import Repository
from pytest_torchprof.against.reads import resolved
from pytest_torchprof.reasons.comparing import OtherSidesCode

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pytest_torchprof.against.side import Side
    from pytest_torchprof.reasons.reason import Reason

_MAPPED = Path("/proc/self/maps")
_ENDINGS = (".py", *EXTENSION_SUFFIXES)
_NAMED: Final = re.compile(r"^\s*name\s*=\s*[\"']?([\w.-]+)", re.MULTILINE)
_PROJECT_FILES: Final = ("pyproject.toml", "setup.cfg", "setup.py")


@cache
def environment_folders() -> tuple[str, ...]:
    """Return the folders of Python and its installed packages: an environment may be inside a working tree."""
    folders = {sys.prefix, sys.exec_prefix, sys.base_prefix, *site.getsitepackages(), site.getusersitepackages()}
    folders |= {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    return tuple(sorted({os.path.realpath(folder) for folder in folders if folder}))


def lies_in(file: str, *folders: str) -> bool:
    """Return whether a path is one of the folders or below one; both as ``realpath`` returns them."""
    return any(file == folder or file.startswith(folder + os.sep) for folder in folders)


def foreign_module(side: Side, loaded: Iterable[LoadedFile]) -> Reason | None:
    """Return why this process has imported, or loaded, other code than the side's own, with the path; else None."""
    tree, other, caches = (os.path.realpath(folder) for folder in (side.tree, side.other, side.caches))
    inside = [folder for folder in environment_folders() if lies_in(folder, tree, other)]
    own = (caches, *inside, *([tree] if lies_in(tree, other) else []))
    installed = [] if side.installed is None else [os.path.realpath(side.installed)]
    for name, file, real in loaded:
        if lies_in(real, other) and not lies_in(real, *own):
            return OtherSidesCode(side.title, name, file)
        if lies_in(real, tree) and not lies_in(real, *inside):
            continue
        if _has_module(side.roots, name) and not lies_in(real, *installed):
            return OtherSidesCode(side.title, name, file, root=str(side.tree))
        if not lies_in(real, *installed) and (named := _differs_here(side, name, real)) is not None:
            return OtherSidesCode(side.title, name, file, differing=named)
    return None


def foreign_origin(side: Side) -> Reason | None:
    """Return why a process started from here would not import the side's own packages; None if it would."""
    tree = os.path.realpath(side.tree)
    packages = sorted({init.parent.name for root in side.roots for init in root.glob("*/__init__.py")})
    for name in packages:
        spec = find_spec(name)
        if spec is not None and spec.origin is not None and not lies_in(_resolved(spec.origin), tree):
            return OtherSidesCode(side.title, name, spec.origin, root=str(side.tree))
    return None


_resolved = cache(resolved)


class LoadedFile(NamedTuple):
    """A module of this process, or a library without a name that it has loaded."""

    name: str
    file: str
    real: str
    """Its real path."""


def loaded_files() -> tuple[LoadedFile, ...]:
    """Return the modules of this process with their files, and the other libraries that it has loaded."""
    files = []
    for name, module in tuple(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and name.partition(".")[0] not in sys.stdlib_module_names and name != "__main__":
            files.append((name, file))
    if _MAPPED.is_file():
        rows = _MAPPED.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
        libraries = {row.partition("/")[2] for row in rows if ".so" in row}
        files += (("", f"/{file}") for file in sorted(libraries))
    return tuple(LoadedFile(name, file, _resolved(file)) for name, file in files)


def _has_module(roots: tuple[Path, ...], name: str) -> bool:
    """Return whether a side's own tree has a module of this name."""
    if not name or name == "conftest":  # Each folder may have one.
        return False
    top = name.partition(".")[0]
    return any(top in _top_names(root) and _is_module(root.joinpath(*name.split("."))) for root in roots)


@cache
def _top_names(root: Path) -> frozenset[str]:
    try:
        return frozenset(entry.name.partition(".")[0] for entry in os.scandir(root))
    except OSError:
        return frozenset()


@cache
def _is_module(path: Path) -> bool:
    return any(path.with_name(f"{path.name}{end}").is_file() for end in _ENDINGS) or (path / "__init__.py").is_file()


def _differs_here(side: Side, name: str, real: str) -> str | None:
    """Return a file in which the sides differ, from a package of which an imported module is a copy; or None."""
    top = name.partition(".")[0]
    for root, differing in _packages(side.differing).get(top, {}).items():
        ending = "/__init__.py" if real.endswith(f"{os.sep}__init__.py") else ".py"
        path = f"{root}{name.replace('.', '/')}{ending}"
        if _is_copy(real, path, side.other if side.is_base else side.tree, side.reference.sha):
            return differing
    return None


@cache
def _packages(names: tuple[str, ...]) -> Mapping[str, Mapping[str, str]]:
    """Return the top-level modules that files may belong to: by name and by folder, with a slash, the file."""
    packages: dict[str, dict[str, str]] = {}
    for name in names:
        parts = name.removesuffix(".py").split("/")
        for at, part in enumerate(parts):
            packages.setdefault(part, {}).setdefault("".join(f"{folder}/" for folder in parts[:at]), name)
    return packages


@cache
def _is_copy(real: str, name: str, top: Path, sha: str) -> bool:
    """Return whether a module is a copy of a file of the repository, and not of another package of the same name."""
    here, there = top / name, Repository(top=top).content(sha, name)
    contents = [*([here.read_bytes()] if here.is_file() else []), *([] if there is None else [there])]
    if not contents:
        return False
    if not lies_in(real, *environment_folders()) or Path(real).read_bytes() in contents:
        return True
    # An older copy: the project has the name of the distribution that it came with.
    above = [folder for folder in here.parents if folder.is_relative_to(top)]
    projects = [folder / file for folder in above for file in _PROJECT_FILES]
    texts = [folder.read_text(encoding="utf-8", errors="replace") for folder in projects if folder.is_file()]
    names = {_normal_name(project) for text in texts for project in _NAMED.findall(text)}
    library = next((folder for folder in Path(real).parents if folder.name == "site-packages"), Path(real).parent)
    records = [
        info / "RECORD" for info in library.glob("*.dist-info") if _normal_name(info.name.partition("-")[0]) in names
    ]
    line = f"{Path(real).relative_to(library).as_posix()},"
    return any(line in record.read_text(encoding="utf-8") for record in records if record.is_file())


def _normal_name(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
