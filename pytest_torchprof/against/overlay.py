"""The files of a repository that are tests, and how the working tree's are put beside another commit's code."""

from __future__ import annotations

import ast
import hashlib
import os
import re
import shutil
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

from pytest_torchprof.against.git import Repository
from pytest_torchprof.against.own_files import free_path, is_behind_link

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

FOLDERS: Final = frozenset({"test", "tests"})
"""Folders in which everything belongs to the tests: helpers, data, recordings."""
SETTINGS: Final = frozenset({"pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml"})
"""Files with nothing but pytest's settings. Other files belong to the code too, and stay the commit's."""

_WITHOUT_TESTS: Final = frozenset({"object", "TestCase", "unittest.TestCase"})
"""Base classes without tests."""
_TEST: Final = re.compile(rb"^\s*(?:(?:async\s+)?def\s+test|class\s+Test|class\s+.*TestCase)", re.MULTILINE)
_MAKERS: Final = frozenset({"globals", "locals", "vars", "setattr", "exec", "eval"})
"""Functions that may give a test a name that its file does not show."""
ANY: Final = "*"
"""Represents names that cannot be known without running the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TestFiles:
    """The rule by which a file is one of the tests, and not of the code under test."""

    __test__ = False
    patterns: tuple[str, ...]
    """As ``python_files`` has them."""
    folders: tuple[PurePosixPath, ...]
    """The folders of ``testpaths`` that hold tests alone, below the root of the repository."""

    def __contains__(self, name: str) -> bool:
        """Return whether a file is a test, by its path below the root of the repository."""
        path = PurePosixPath(name)
        if self.collected(name) or path.name == "conftest.py" or path.name in SETTINGS:
            return True
        return not FOLDERS.isdisjoint(path.parts[:-1]) or any(path.is_relative_to(folder) for folder in self.folders)

    def collected(self, name: str) -> bool:
        """Return whether pytest looks for tests in a file, by a pattern that does not match code as well."""
        return self._collected_by(name, [pattern for pattern in self.patterns if pattern not in self._broad])

    @property
    def _broad(self) -> list[str]:
        """Patterns such as ``*.py`` that the name of any module matches."""
        return [pattern for pattern in self.patterns if fnmatch("module.py", pattern.rpartition("/")[2])]

    @staticmethod
    def _collected_by(name: str, patterns: Iterable[str]) -> bool:
        path = PurePosixPath(name)
        return path.suffix == ".py" and any(
            fnmatch(str(path) if "/" in pattern else path.name, pattern) for pattern in patterns
        )

    def is_doubtful(self, folder: Path, name: str) -> bool:
        """Whether a file counts as a test only for its folder in ``testpaths``, and has no test: it may be code."""
        path = PurePosixPath(name)
        sure = self.collected(name) or path.name == "conftest.py" or not FOLDERS.isdisjoint(path.parts[:-1])
        return path.suffix == ".py" and not sure and not _holds_test(folder / name)

    def of(self, folder: Path, names: Iterable[str]) -> list[str]:
        """Return the tests among a folder's files, sorted; a link in place of their folder is a test too."""

        def is_test(name: str) -> bool:
            if name in self:
                return True
            if self._collected_by(name, self._broad):
                return _holds_test(folder / name)
            return self._holds(name) and (folder / name).is_symlink()

        return sorted(filter(is_test, names))

    def _holds(self, name: str) -> bool:
        """Return whether a folder of this name belongs to the tests."""
        path = PurePosixPath(name)
        return path.name in FOLDERS or path in self.folders


def test_files(patterns: Sequence[str], testpaths: Sequence[str], root: Path, repository: Repository) -> TestFiles:
    """Return the rule, for a root directory of pytest inside the repository.

    A folder of ``testpaths`` that is a package, or contains a root of imports, is code with tests in it.
    """
    below = PurePosixPath(root.relative_to(repository.top))
    named = (PurePosixPath(os.path.normpath(below / path)) for path in testpaths)

    def holds_tests_alone(folder: PurePosixPath) -> bool:
        is_package = (repository.top / folder / "__init__.py").exists()
        return folder not in (below, below / "src") and not is_package

    return TestFiles(patterns=tuple(patterns), folders=tuple(filter(holds_tests_alone, named)))


def _holds_test(file: Path) -> bool:
    """Return whether a module defines a test in pytest's sense, by its text."""
    try:
        return _TEST.search(file.read_bytes()) is not None
    except OSError:
        return False


def digest(folder: Path, names: Iterable[str]) -> str:
    """Return a hash of files' paths and contents."""
    total = hashlib.sha256()
    for name in names:
        content = hashlib.sha256()
        for part in _contents(folder / name):
            content.update(part)
        total.update(f"{name}\0{content.hexdigest()}\n".encode("utf-8", "surrogateescape"))
    return total.hexdigest()


def _contents(path: Path) -> Iterator[bytes]:
    """Yield the bytes that a reader of a file may see; for a link also its target, and the target's state."""
    if path.is_symlink():
        yield os.fsencode(path.readlink())
    if path.is_file():
        yield path.read_bytes()
    elif path.is_dir():  # A link to a folder, of any size.
        for path_inside in sorted(path.rglob("*")):
            with suppress(OSError):
                state = path_inside.stat()
                yield f"{path_inside}\0{state.st_size}\0{state.st_mtime_ns}\n".encode("utf-8", "surrogateescape")


def names_in(folder: Path, files: Collection[str], rule: TestFiles) -> Mapping[str, tuple[str, ...]]:
    """Return the names that tests may have in each test file of a folder, by its path; ANY if they cannot be known.

    ``files``: all files, by their path below the folder.
    """
    tests = (name for name in rule.of(folder, files) if name.endswith(".py"))
    return {name: tuple(dict.fromkeys(_names(folder, name, files))) for name in tests}


def _names(folder: Path, file: str, modules: Collection[str]) -> Iterator[str]:
    """Yield the names of functions, of classes that may inherit tests, and of assignments and imports.

    ``modules``: the files in which a module of ``from module import *`` is looked for.
    """
    # A file that cannot be read as Python has no test that could be compared.
    with suppress(OSError, SyntaxError, ValueError):
        for node in ast.walk(ast.parse((folder / file).read_bytes())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or (
                isinstance(node, ast.ClassDef) and any(ast.unparse(base) not in _WITHOUT_TESTS for base in node.bases)
            ):
                yield node.name
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                yield node.id
            elif isinstance(node, ast.Name) and node.id in _MAKERS:
                yield ANY
            elif isinstance(node, ast.ImportFrom) and node.names[0].name != "*":
                yield from (alias.asname or alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                yield from _star_names(folder, node, modules)


def _star_names(folder: Path, node: ast.ImportFrom, modules: Collection[str]) -> Iterator[str]:
    ending = f"/{(node.module or '').rpartition('.')[2]}"
    matching = [module for module in modules if f"/{module}".endswith((f"{ending}.py", f"{ending}/__init__.py"))]
    for module in matching:
        yield from _names(folder, module, ())
    if not matching:
        yield ANY


def names_gone(before: Mapping[str, tuple[str, ...]], here: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Return the names that files no longer have: their tests may be in another file now."""
    return tuple(
        dict.fromkeys(name for file, names in before.items() for name in names if name not in here.get(file, ()))
    )


def overlay(source: Path, names: Iterable[str], tree: Path, rule: TestFiles) -> None:
    """Replace the test files of a commit's folder, its own or earlier replacements, by those of another folder."""
    for name in rule.of(tree, Repository(top=tree).files()):
        (tree / name).unlink(missing_ok=True)
    copy_files(source, names, tree)


def copy_files(source: Path, names: Iterable[str], target: Path) -> None:
    """Copy files from one folder to another, by their path below it; links stay links and are never followed."""
    for name in names:
        if is_behind_link(source, name):
            continue  # It was copied with the link.
        copied = free_path(target, name)
        if (source / name).is_symlink():
            copied.symlink_to(_translated(source, name, target))
        else:
            shutil.copy2(source / name, copied)


def _translated(source: Path, name: str, target: Path) -> str:
    """Return the target of a link in another folder: that folder's own files, if they are meant."""
    pointed_to = (source / name).readlink()
    leads_to = Path(os.path.normpath((source / name).parent / pointed_to))
    if not leads_to.is_relative_to(source):
        return str(leads_to)
    return str(target / leads_to.relative_to(source) if pointed_to.is_absolute() else pointed_to)
