"""The code in which graph breaks and recompiles are: of the packages that a test calls its own, or of others."""

from __future__ import annotations

import re
import sys
from collections import Counter
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final, TypeVar

from pytest_torchprof.limits.limit import Setting, as_list
from pytest_torchprof.reasons.errors import UnknownLimit
from pytest_torchprof.reasons.limits import NoPackageOfName
from pytest_torchprof.reasons.wrong_values import ValueForm, WrongValue
from pytest_torchprof.text import path_from_here

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_torchprof.reasons.reason import Reason
    from pytest_torchprof.trace.compile_evidence import GraphBreak, Recompile

    Found = TypeVar("Found", GraphBreak, Recompile)

_INSTALLED: Final = ("site-packages", "dist-packages")
_NAME: Final = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*")


def read_own(value: object) -> tuple[str, ...]:
    """Return the names of packages and modules; UnknownLimit for anything else."""
    for name in (names := as_list(value)):
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise UnknownLimit.because(WrongValue(ValueForm.PACKAGES, repr(name)))
    return tuple(dict.fromkeys(str(name) for name in names))


OWN: Final = Setting(name="own", read=read_own)


def divide(events: Sequence[Found], own: Sequence[str]) -> tuple[list[Found], Counter[str]]:
    """Return the events in files of these packages, or in no known file, and how many there are in each other place."""
    places = {name: _places(name) for name in own}
    counted: list[Found] = []
    others: Counter[str] = Counter()
    for event in events:
        if event.file is None or any(_is_in(event.file, name, places[name]) for name in own):
            counted.append(event)
        else:
            others[_home(event.file)] += 1
    return counted, others


def is_installed(file: str) -> bool:
    """Return whether a file belongs to a package that pip installed, and so mostly to others than the user."""
    return _below_installed(_parts_of(file)) is not None


def unknown_names(own: Iterable[str], files: Iterable[str]) -> Reason | None:
    """Return a reason that names what is neither a package here nor in a file's path; None if every name is one."""
    paths = list(files)
    for name in own:
        places = _places(name)
        if places or any(_is_in(path, name, places) for path in paths):
            continue
        known = {path_name for path in paths if not (path_name := _home(path)).endswith(".py")}
        from difflib import get_close_matches  # noqa: PLC0415 - only a name that is none needs it

        close = get_close_matches(
            name, (known | {top for top in sys.modules if "." not in top}) - {name}, n=1, cutoff=0.7
        )
        return NoPackageOfName(name, next(iter(close), None))
    return None


def _places(name: str) -> tuple[Path, ...]:
    """Return the folders of a package, or the file of a module, without importing it; empty if it is not here."""
    top, *parts = name.split(".")
    try:
        spec = find_spec(top)
    except (ImportError, ValueError):  # A module that somebody made by hand has none.
        spec = None
    if spec is None:
        return ()
    folders = [Path(folder, *parts) for folder in spec.submodule_search_locations or ()]
    if spec.submodule_search_locations is None and not parts and spec.has_location and spec.origin:
        folders = [Path(spec.origin)]
    paths = [path for folder in folders for path in (folder, folder.with_suffix(".py")) if path.exists()]
    return tuple(path.resolve() for path in paths)


def _is_in(file: str, name: str, places: Iterable[Path]) -> bool:
    """Return whether a file is a package's: it lies where that is here, or its path says so, as on another machine."""
    path = Path(file)
    here = path.exists()
    if here and any(path.resolve().is_relative_to(place) for place in places):
        return True
    parts, names = _parts_of(file), tuple(name.split("."))
    module = (*names[:-1], f"{names[-1]}.py")
    if (installed := _below_installed(parts)) is not None:
        return installed[: len(names)] in (names, module)
    at = [i for i in range(len(parts)) if parts[i : i + len(names)] in (names, module)]
    # A checkout often has the name of its package, and holds more than the package.
    return any(not here or _is_package(path, depth=len(parts) - i) for i in at)


def _is_package(file: Path, *, depth: int) -> bool:
    """Return whether the folder so many parts above a file's end is a package; a file by itself is a module."""
    return depth == 1 or (file.parents[depth - 2] / "__init__.py").exists()


def _parts_of(file: str) -> tuple[str, ...]:
    return PurePosixPath(file.replace("\\", "/")).parts


def _below_installed(parts: tuple[str, ...]) -> tuple[str, ...] | None:
    """Return the path below the folder that packages are installed in, None where it is not below one."""
    last = max((i for i, part in enumerate(parts) if part in _INSTALLED), default=None)
    return None if last is None else parts[last + 1 :]


def _home(file: str) -> str:
    """Return the name of the place of other code: the installed package, or else the file."""
    installed = _below_installed(_parts_of(file))
    return installed[0].removesuffix(".py") if installed else path_from_here(file)
