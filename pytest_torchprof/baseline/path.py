"""The file in which a test's baseline is kept."""

from __future__ import annotations

import glob
import hashlib
import os
import platform
import re
import unicodedata
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pytest_torchprof.trace.metadata import Environment

FOLDER: Final = "__torchprof__"
SUFFIX: Final = ".json"

# Stands for ".." in the mirrored path of a test file outside the root directory.
_UP: Final = "__up__"
# File systems allow 255 bytes; a temporary file's name, the slug and the suffix need room too.
_LONGEST_MODULE: Final = 120
_LONGEST_SLUG: Final = 80
_HASHED: Final = re.compile(r".*-[0-9a-f]{10}", re.DOTALL)
_ARCHES: Final = ("x86_64", "amd64", "aarch64", "arm64", "ppc64le", "riscv64", "s390x")
_SAME_ARCH: Final = {"amd64": "x86_64", "arm64": "aarch64"}


def baseline_path(test_file: Path, rootdir: Path, device_slug: str, baseline_dir: Path | None) -> Path:
    """Return the baseline file of a test file on a device.

    Beside the test file in ``__torchprof__``, or under ``baseline_dir`` with the path below ``rootdir`` mirrored. Two
    test files never share one, and no name leads out of the folder.
    """
    test_file = Path(os.path.abspath(test_file))  # noqa: PTH100 (resolve() would follow links out of the tree)
    name = f"{module_name(test_file.name)}.{_slug(device_slug)}{SUFFIX}"
    if baseline_dir is None:
        return test_file.parent / FOLDER / name
    return baseline_dir.joinpath(*_mirrored(test_file.parent, rootdir), name)


def files_of(test_file: Path, rootdir: Path, baseline_dir: Path | None) -> dict[str, Path]:
    """Return the baseline files that a test file has, by device slug."""
    of_any_device = baseline_path(test_file, rootdir, "any", baseline_dir)
    named = (
        (split_name(file), file) for file in of_any_device.parent.glob(f"{glob.escape(module_name(test_file.name))}.*")
    )
    return {name[1]: file for name, file in named if name is not None and name[0] == module_name(test_file.name)}


def files_of_other_roots(test_file: Path, rootdir: Path, file: Path, baseline_dir: Path | None) -> list[Path]:
    """Return files that may be a baseline of the test file, written by a run with another root directory.

    Such a file has the name of ``file``, which is missing; its path below ``baseline_dir`` ends like the other, or the
    other like it; and it belongs to no test file below this root directory. A baseline beside its test file is in one
    folder only.
    """
    if baseline_dir is None or not baseline_dir.is_dir():
        return []
    own = file.parent.relative_to(baseline_dir).parts
    others = []
    for other in sorted(baseline_dir.rglob(glob.escape(file.name))):
        parts = other.parent.relative_to(baseline_dir).parts
        shared = min(len(own), len(parts))
        ends_alike = own[len(own) - shared :] == parts[len(parts) - shared :]
        if other != file and ends_alike and test_file_of(other, baseline_dir, rootdir) in (None, test_file):
            others.append(other)
    return others


def find_files(folder: Path) -> list[Path]:
    """Return a folder's baseline files: those in ``__torchprof__`` folders, else all that have a baseline's name."""
    named: list[Path] = []
    for parent, folders, names in os.walk(folder):
        # Environments and caches hold other people's files.
        folders[:] = [
            name for name in folders if not name.startswith(".") and not (Path(parent, name, "pyvenv.cfg").exists())
        ]
        named += [Path(parent, name) for name in names if split_name(Path(name)) and not name.startswith(".")]
    beside = [path for path in named if path.absolute().parent.name == FOLDER]
    return beside or named


def module_name(file_name: str) -> str:
    """Return the name of a test file within its baseline's name: without ``.py``; safe, short and unique."""
    stem = file_name.removesuffix(".py")
    plain = unicodedata.normalize("NFC", stem)
    safe = "".join(c if c.isalnum() or c in "-_." else "_" for c in plain).lstrip(".")
    cut = safe.encode()[:_LONGEST_MODULE].decode("utf-8", "ignore")
    if stem and cut == stem and file_name.endswith(".py") and not _HASHED.fullmatch(stem):
        return stem
    return f"{cut}-{_digest(file_name)}"


def split_name(path: Path) -> tuple[str, str] | None:
    """Return (module name, device slug) of a baseline file's name; None for another file."""
    module, dot, slug = path.name.removesuffix(SUFFIX).rpartition(".")
    return (module, slug) if dot and module and slug and path.suffix == SUFFIX else None


def test_file_of(path: Path, baseline_dir: Path, rootdir: Path) -> Path | None:
    """Return the test file whose baseline ``path`` is; None if there is none; the inverse of `baseline_path`.

    ``baseline_dir`` and ``rootdir`` count only if ``path`` does not lie in a ``__torchprof__`` folder.
    """
    named, folder = split_name(path), _folder_of_tests(path, baseline_dir, rootdir)
    if named is None or not folder.is_dir():
        return None
    return next(
        (file for file in sorted(folder.iterdir()) if file.is_file() and module_name(file.name) == named[0]), None
    )


def lost_test_file(path: Path, baseline_dir: Path, rootdir: Path) -> Path | None:
    """Return the deleted test file whose baseline ``path`` is; None if the file's name does not show it."""
    named = split_name(path)
    if named is None or module_name(f"{named[0]}.py") != named[0]:
        return None
    return _folder_of_tests(path, baseline_dir, rootdir) / f"{named[0]}.py"


def renamed(path: Path, test_file: Path, rootdir: Path, baseline_dir: Path | None) -> Path:
    """Return the baseline file of another test file for the same device."""
    slug = (split_name(path) or ("", ""))[1]
    return baseline_path(test_file, rootdir, "any", baseline_dir).with_name(
        f"{module_name(test_file.name)}.{slug}{SUFFIX}"
    )


def _folder_of_tests(path: Path, baseline_dir: Path, rootdir: Path) -> Path:
    if path.parent.name == FOLDER:
        return path.parent.parent
    mirrored = path.parent.relative_to(baseline_dir).parts
    return rootdir.joinpath(*(os.pardir if part == _UP else part for part in mirrored))


def device_slug(environment: Environment) -> str:
    """Return the device's part of a file name: product name and full compute capability, ``cpu-<arch>`` without GPU."""
    if not environment.gpu:
        return _slug(f"cpu-{_arch(environment.platform or '')}")
    architecture = environment.architecture
    if not architecture and environment.compute_capability:
        # On ROCm it is the beginning of the architecture's name.
        architecture = f"gfx{environment.compute_capability}"
    return _slug(f"{environment.gpu}-{re.sub('[_.]', '', architecture)}")


def _slug(text: str) -> str:
    slug = re.sub(r"[^a-z0-9_]+", "-", text.lower()).strip("-") or "unknown"
    return slug if len(slug) <= _LONGEST_SLUG else f"{slug[:_LONGEST_SLUG]}-{_digest(text)}"


def _arch(recorded: str) -> str:
    # The machine of the recording counts: it may be replayed on another.
    arch = next((arch for arch in _ARCHES if arch in recorded.lower()), None) or platform.machine().lower()
    return _SAME_ARCH.get(arch, arch)


def _mirrored(folder: Path, rootdir: Path) -> list[str]:
    for root, below in ((Path(os.path.abspath(rootdir)), folder), (rootdir.resolve(), folder.resolve())):  # noqa: PTH100
        if below.is_relative_to(root):
            return [_component(part) for part in below.relative_to(root).parts]
    try:
        parts = Path(os.path.relpath(folder, rootdir)).parts
    except ValueError:  # on another drive under Windows there is no relative path
        return [_UP, _digest(str(folder))]
    return [_UP if part == os.pardir else _component(part) for part in parts]


def _component(part: str) -> str:
    return f"{part}-{_digest(part)}" if part == _UP or part.startswith(f"{_UP}-") else part


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:10]
