"""The environment of a side: its own folders first on the path, its own caches, an environment to install it in."""

from __future__ import annotations

import os
import shlex
import site
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pytest_torchprof.against import VARIABLE
from pytest_torchprof.against.git import HOOKS_VARIABLES
from pytest_torchprof.against.import_path import shadows
from pytest_torchprof.against.imports import environment_folders, lies_in
from pytest_torchprof.reasons.errors import TorchprofError
from pytest_torchprof.reasons.starting import CommandFailed, CommandNotRun
from pytest_torchprof.system.processes import run
from pytest_torchprof.text import first_line, last_lines

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

CACHES: Final = {
    # A folder whose name begins so is recognised as torch's cache of generated code, which has no lines of the user's.
    "TORCHINDUCTOR_CACHE_DIR": "torchinductor_code",
    "TRITON_CACHE_DIR": "triton",
    "TORCH_EXTENSIONS_DIR": "extensions",
}
"""Variables for compilers' folders: a compiler's cache of one side must not reach the other."""
SEED: Final = "0"
"""The seed for both sides, where each process would draw its own."""
_OF_CI: Final = ("GITHUB_STEP_SUMMARY", "GITHUB_OUTPUT", "GITHUB_ENV")
_MEANINGLESS: Final = frozenset(
    {
        *("_", "COLUMNS", "LINES", "OLDPWD", "PWD", "SHLVL", "TERM_SESSION_ID", "TMUX_PANE", "WINDOWID"),
        *("SSH_AUTH_SOCK", "SSH_CLIENT", "SSH_CONNECTION", "SSH_TTY", "XDG_SESSION_ID"),
        *(VARIABLE, "PYTEST_CURRENT_TEST", "PYTHONHASHSEED"),  # tox draws a seed for every run.
    }
)
"""Variables that differ between terminals or runs. Any other variable may decide what the code does."""


def import_roots(top: Path, rootdir: Path, worktrees: tuple[Path, ...]) -> tuple[Path, ...]:
    """Return the folders of a working tree that this environment imports from, relative to its root.

    First come the root directory's ``src`` and the root directory; then folders on the path, including those of
    editable installs, perhaps of another of the repository's ``worktrees``.
    """
    tops = tuple(dict.fromkeys(map(os.path.realpath, (top, *worktrees))))
    inside = [folder for folder in environment_folders() if lies_in(folder, *tops)]
    candidates = [rootdir / "src", rootdir, *map(Path, sys.path), *_mapped()]
    roots = [os.path.realpath(folder) for folder in candidates if folder.is_dir()]
    names = (
        Path(os.path.relpath(root, own_top))
        for root in roots
        for own_top in tops
        if lies_in(root, own_top) and not lies_in(root, *inside)
    )
    return tuple(name for name in dict.fromkeys(names) if (top / name).is_dir())


def _mapped() -> Iterator[Path]:
    """Yield the folders with the packages that import hooks of setuptools' editable installs lead to."""
    for finder in sys.meta_path:
        module = sys.modules.get(getattr(finder, "__module__", ""))
        if module is not None and module.__name__.startswith("__editable__"):
            mapping = getattr(module, "MAPPING", {})
            yield from (Path(file).parents[name.count(".")] for name, file in mapping.items())


def variables(roots: tuple[Path, ...], top: Path, caches: Path, *, is_reported: bool) -> dict[str, str]:
    """Return the environment of a side's processes; ``is_reported``: CI and coverage get their results."""
    # The user's additions to the path stay, except folders of the working tree: those are in the roots.
    given = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    kept = [entry for entry in given if not lies_in(os.path.realpath(entry), os.path.realpath(top))]
    environ = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([*(str(root) for root in roots if not shadows(root)), *kept]),
        **{name: str(caches / folder) for name, folder in CACHES.items()},
        # The order of sets, and everything drawn from a seed, is the same on both sides and in kept results.
        "PYTHONHASHSEED": SEED,
    }
    if not is_reported:
        # What such a process writes goes to a file, and the lines of what fails in it to reasons: they stay whole.
        left_out = {*_OF_CI, *HOOKS_VARIABLES, "COLUMNS"}
        environ = {name: value for name, value in environ.items() if name not in left_out}
        environ["COVERAGE_FILE"] = str(caches / "coverage")
    return environ


_DESCRIBE: Final = """
import os, pathlib, platform, sys
places = [place for place in map(pathlib.Path, sys.path) if place.is_dir()]
names = {entry.name for place in places for entry in place.iterdir()}
installed = sorted(name for name in names if name.endswith((".dist-info", ".egg-info")))
print(sys.version, sys.executable, platform.node(), *installed, sep="\\n")
"""


def described(python: str) -> Mapping[str, str]:
    """Return the further facts that decide what is measured: Python, its packages, the machine, the environment.

    Raises TorchprofError if the Python cannot be run.
    """
    environ = {name: value for name, value in sorted(os.environ.items()) if name not in _MEANINGLESS}
    return {"python": _run([python, "-P", "-c", _DESCRIBE], Path.cwd(), environ, installs=False), **environ}


def install(folder: Path, command: str, tree: Path, environ: Mapping[str, str]) -> str:
    """Make an environment that shares the packages installed here, run a command in it, and return its Python.

    Raises TorchprofError with the end of the command's output if it fails.
    """
    environment = environment_in(folder)
    _run([sys.executable, "-m", "venv", "--clear", str(environment)], tree, environ)
    library = Path(sysconfig.get_path("purelib", vars={"base": str(environment), "platbase": str(environment)}))
    # An environment made from an environment would share only the system's packages.
    shared = [packages for packages in (*site.getsitepackages(), site.getusersitepackages()) if Path(packages).is_dir()]
    lines = "".join(f"import site; site.addsitedir({packages!r})\n" for packages in shared)
    (library / "shared.pth").write_text(lines, encoding="utf-8")
    path = os.pathsep.join([str(environment / "bin"), environ.get("PATH", "")])
    # Without the path of a side: pip must not take packages there for installed ones.
    alone = {name: value for name, value in environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    _run(shlex.split(command), tree, {**alone, "PATH": path, "VIRTUAL_ENV": str(environment)})
    return python_of(folder)


def python_of(folder: Path) -> str:
    """Return the Python of the environment that ``install`` has made in a folder."""
    return str(environment_in(folder) / "bin" / "python")


def environment_in(folder: Path) -> Path:
    """Return the environment that ``install`` makes in a folder."""
    return folder / "environment"


def _run(arguments: list[str], folder: Path, environ: Mapping[str, str], *, installs: bool = True) -> str:
    """Run a command and return its output; TorchprofError with the end of the output if it fails."""
    # More of our own script need not be shown.
    shown = first_line(shlex.join(arguments)) if installs else arguments[0]
    try:
        done = run(arguments, cwd=folder, env=environ, stderr=subprocess.STDOUT)
    except OSError as problem:
        why = CommandNotRun(shown, str(folder), str(problem.strerror), installs)
        raise TorchprofError.because(why) from None
    if done.status:
        lines = tuple(last_lines(done.output, 20))
        raise TorchprofError.because(CommandFailed(shown, str(folder), done.status, lines, installs))
    return done.output
