"""Whether the code that a side has run is its own, by what it has imported and by the files that it has opened.

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
from typing import TYPE_CHECKING, Final

from pytest_torchprof.against.git import Repository
from pytest_torchprof.against.overlay import TestFiles
from pytest_torchprof.against.reads import files_read, names_below, reads_of, resolved, unwatched
from pytest_torchprof.reasons.comparing import IgnoredFileRead, OtherSidesCode, OtherSidesFile, SharedModule

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_torchprof.against.side import Side
    from pytest_torchprof.reasons.reason import Reason

_MAPPED = Path("/proc/self/maps")
_ENDINGS = (".py", *EXTENSION_SUFFIXES)
_INSTALL: Final = "--torchprof-against-install=COMMAND installs each side's code in an environment of its own"
_NAMED: Final = re.compile(r"^\s*name\s*=\s*[\"']?([\w.-]+)", re.MULTILINE)
_PROJECT_FILES: Final = ("pyproject.toml", "setup.cfg", "setup.py")
_OF_TOOLS: Final = re.compile(
    r"(^|/)(\.git|\.torchprof|\.pytest_cache|\.hypothesis|\.benchmarks|\.coverage[^/]*|[^/]+\.(egg|dist)-info|_?version\.py)(/|$)"
)
"""What tools keep in a working tree, and the version that a build writes: no code that is measured."""


@cache
def environment_folders() -> tuple[str, ...]:
    """Return where Python and what is installed beside it lie: an environment may stand inside of a working tree."""
    folders = {sys.prefix, sys.exec_prefix, sys.base_prefix, *site.getsitepackages(), site.getusersitepackages()}
    folders |= {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    return tuple(sorted({os.path.realpath(folder) for folder in folders if folder}))


def lies_in(file: str, *folders: str) -> bool:
    """Whether a path is one of the folders or below; both as ``realpath`` returns them."""
    return any(file == folder or file.startswith(folder + os.sep) for folder in folders)


def foreign_code(side: Side) -> Reason | None:
    """Return why this process has run other code than the side's own, with the path; None where it has not."""
    with unwatched():
        return _foreign_import(side) or _foreign_read(side) or _shared_module(side) or _ignored_read(side)


def _foreign_import(side: Side) -> Reason | None:
    tree, other, caches = (os.path.realpath(folder) for folder in (side.tree, side.other, side.caches))
    inside = [folder for folder in environment_folders() if lies_in(folder, tree, other)]
    own = (caches, *inside, *([tree] if lies_in(tree, other) else []))
    installed = [] if side.installed is None else [os.path.realpath(side.installed)]
    for name, file in _loaded_files():
        real = _resolved(file)
        if lies_in(real, other) and not lies_in(real, *own):
            return _other_sides_code(side, name, file, "which is the other side's")
        if lies_in(real, tree) and not lies_in(real, *inside):
            continue
        if _has_module(side.roots, name) and not lies_in(real, *installed):
            return _other_sides_code(side, name, file, f"and not from {side.tree}, which has it")
        if not lies_in(real, *installed) and (named := _differs_here(side, name, real)) is not None:
            whose = f"not from either side, which differ in {named}"
            return _other_sides_code(side, name, file, whose, pythonpath=True)
    return None


def _foreign_read(side: Side) -> Reason | None:
    """Return why a file that differs was read from the other side."""
    files = files_read()
    own = set(names_below(side.tree, files).values())
    for name, file in names_below(side.other, files).items():
        if file not in own and name in _as_set(side.differing):
            return OtherSidesFile(_side_text(side), name, file)
    return None


def _shared_module(side: Side) -> Reason | None:
    """Return why both sides have run the same code: a module that differs, and that counts as a test for its folder."""
    if not side.doubtful:
        return None
    own = names_below(side.tree, _run_or_read())
    name = next((name for name in side.doubtful if name in own), None)
    if name is None:
        return None
    return SharedModule(_side_text(side), name)


def _ignored_read(side: Side) -> Reason | None:
    """Return why the commit cannot have what the working tree's side has read: git ignores it."""
    if side.is_base or not side.ignored:
        return None
    inside = [folder for folder in environment_folders() if lies_in(folder, os.path.realpath(side.tree))]
    there, tests = None, TestFiles(patterns=side.patterns, folders=())
    for name, file in names_below(side.tree, _run_or_read()).items():
        if not _is_ignored(name, side.ignored) or _OF_TOOLS.search(name) or lies_in(file, *inside):
            continue
        if tests.collected(name):
            continue  # Its own tests are those that the commit has not measured.
        if side.installed is not None and (side.other / name).exists():
            continue  # As the command has made it there.
        there = _read_there(side.results) if there is None else there
        if name not in there:
            return IgnoredFileRead(name, side.reference.shown)
    return None


def _run_or_read() -> tuple[str, ...]:
    """Return the files that were opened, and the files of modules and libraries, which Python itself may not open."""
    return (*files_read(), *(_resolved(file) for _, file in _loaded_files()))


@cache
def _read_there(results: Path) -> frozenset[str]:
    """Return what the other commit's side, which has ended, has read of the working tree."""
    return reads_of(results, is_base=True)["other"]


@cache
def _as_set(names: tuple[str, ...]) -> frozenset[str]:
    return frozenset(names)


def _is_ignored(name: str, ignored: tuple[str, ...]) -> bool:
    if name in _as_set(ignored):
        return True
    parts = name.split("/")
    return any("/".join(parts[:end]) + "/" in _as_set(ignored) for end in range(1, len(parts)))


def foreign_origin(side: Side) -> Reason | None:
    """Return why a process that is started from here would not import the side's own packages; None where it would."""
    tree = os.path.realpath(side.tree)
    packages = sorted({init.parent.name for root in side.roots for init in root.glob("*/__init__.py")})
    for name in packages:
        spec = find_spec(name)
        if spec is not None and spec.origin is not None and not lies_in(_resolved(spec.origin), tree):
            return _other_sides_code(side, name, spec.origin, f"and not from {side.tree}, which has it")
    return None


_resolved = cache(resolved)


def _loaded_files() -> Iterator[tuple[str, str]]:
    """Yield the modules of this process with their files, and the libraries that it has loaded besides."""
    for name, module in tuple(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and name.partition(".")[0] not in sys.stdlib_module_names and name != "__main__":
            yield name, file
    if _MAPPED.is_file():
        rows = _MAPPED.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
        files = {row.partition("/")[2] for row in rows if ".so" in row}
        yield from (("", f"/{file}") for file in sorted(files))


def _has_module(roots: tuple[Path, ...], name: str) -> bool:
    """Whether a side's own tree has a module of this name."""
    if not name or name == "conftest":  # There may be one in each folder.
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
    """Return a file in which the sides differ, of a package that a module from elsewhere is a copy of; or None."""
    top = name.partition(".")[0]
    for root, differing in _packages(side.differing).get(top, {}).items():
        ending = "/__init__.py" if real.endswith(f"{os.sep}__init__.py") else ".py"
        path = f"{root}{name.replace('.', '/')}{ending}"
        if _is_copy(real, path, side.other if side.is_base else side.tree, side.reference.sha):
            return differing
    return None


@cache
def _packages(names: tuple[str, ...]) -> Mapping[str, Mapping[str, str]]:
    """Return what top-level modules files may belong to: by name and by folder, with a slash, the file."""
    packages: dict[str, dict[str, str]] = {}
    for name in names:
        parts = name.removesuffix(".py").split("/")
        for at, part in enumerate(parts):
            packages.setdefault(part, {}).setdefault("".join(f"{folder}/" for folder in parts[:at]), name)
    return packages


@cache
def _is_copy(real: str, name: str, top: Path, sha: str) -> bool:
    """Whether a module is a copy of a file of the repository, and not of a package that happens to be called alike."""
    here, there = top / name, Repository(top=top).content(sha, name)
    contents = [*([here.read_bytes()] if here.is_file() else []), *([] if there is None else [there])]
    if not contents:
        return False
    if not lies_in(real, *environment_folders()) or Path(real).read_bytes() in contents:
        return True
    # Of an older copy: the project has the name of the distribution that it came with.
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


def _side_text(side: Side) -> str:
    return f"at {side.reference.shown}" if side.is_base else "in the working tree"


def _other_sides_code(side: Side, name: str, file: str, whose: str, *, pythonpath: bool = False) -> Reason:
    advice = f"pytest's setting pythonpath names the folder that it is in, or {_INSTALL}" if pythonpath else _INSTALL
    return OtherSidesCode(_side_text(side), name or "", file, whose, advice)
