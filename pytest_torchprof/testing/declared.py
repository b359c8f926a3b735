"""The options of the command line and the keys of the ini file, as pytest learns of them.

Loaded in every pytest run of every user: nothing is imported here that a plain run does not need.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import pytest


def key_of(name: str) -> str:
    """Return the key of an option in the ini file and among pytest's options."""
    return "torchprof" + (f"_{name.replace('-', '_')}" if name else "")


_OPTIONS: tuple[tuple[str, str, str], ...] = (
    ("", "on|off", "off: run marked tests as they are, without measuring or checking anything"),
    (
        "baseline",
        "MODE",
        "what baselines are for: compare (default), update, add, strict, off; or history:STORE@BRANCH, to compare with",
    ),
    ("baseline-dir", "DIR", "folder of the baselines (default: __torchprof__ beside each test file)"),
    ("device", "DEVICE", "auto (default) or a device of torch, such as cpu or cuda:0; wins over the marker here"),
    ("warmup", "N", "calls before the measured ones (default 3)"),
    ("steps", "N", "measured calls (default 5)"),
    ("gpus", "all|each", "each: every worker of pytest-xdist sees a GPU of its own, as long as there are enough"),
    ("save", "DIR", "keep every recording in DIR"),
    ("replay", "DIR", "judge the recordings in DIR without running the measured code"),
    (
        "keep",
        "WHAT",
        "of what --torchprof-save keeps: all (default), changed or figures; beside it a record of the run",
    ),
    ("history", "WHERE", "add a record of the run to the history in WHERE, a folder or a database (torchprof history)"),
)
_KEYS: tuple[tuple[str, Literal["args", "linelist"] | None, str | list[str], str], ...] = (
    *((key_of(name), None, "", text) for name, _, text in _OPTIONS),
    ("torchprof_suite", None, "", "as --torchprof-suite"),
    ("torchprof_require_gpu", None, "", "as --torchprof-require-gpu"),
    ("torchprof_tolerance", None, "", "for tests without a tolerance of their own, e.g. time=0.10 memory=0.05"),
    ("torchprof_rank_timeout", None, "60", "seconds that ranks wait for a silent one (default 60)"),
    (
        *("torchprof_ranks_scope", None, "file"),
        "which tests of the same number of ranks share a job: those of a file (default), or none: test",
    ),
    ("torchprof_own", "args", [], "packages whose graph breaks and recompiles count, as own= in a marker"),
    (
        *("torchprof_kernels", "linelist", []),
        "what the kernels are that no table knows, one per line: my_rope_* = pointwise",
    ),
    ("torchprof_report", "linelist", [], "as --torchprof-report"),
    ("torchprof_thresholds", "linelist", [], "thresholds of findings, one per line: hotspot.share = 0.6"),
)
"""The keys of the ini file, with their defaults."""


def add_options(parser: pytest.Parser) -> None:
    """Declare the options of the command line and the keys of the ini file."""
    group = parser.getgroup("torchprof", "GPU kernels (torchprof)")
    for name, metavar, text in _OPTIONS:
        group.addoption(option_of(name), dest=key_of(name), metavar=metavar, default=None, help=text)
    group.addoption(
        "--torchprof-require-gpu", dest="torchprof_require_gpu", action="store_true", default=None,
        help="stop with exit code 4 if a selected torchprof test cannot be measured on a GPU",
    )  # fmt: skip
    group.addoption(
        "--torchprof-report", dest="torchprof_report", action="append", metavar="FILE", default=None,
        help="write the results to FILE, by its suffix: .html, .json, .md, .jsonl, .csv, .benchmark.json, .bmf.json or "
        ".pytorch.json (repeatable)",
    )  # fmt: skip
    group.addoption(
        "--torchprof-suite", dest="torchprof_suite", nargs="?", const="1", metavar="SHARE", default=None,
        help="measure each test that a rule of [tool.torchprof.limits] matches, or this share of them",
    )  # fmt: skip
    for key, kind, default, text in _KEYS:
        parser.addini(key, text, type=kind, default=default)


def is_anything_given(config: pytest.Config) -> bool:
    """Return whether the command line or the ini file sets any of these, or names a commit to compare with."""
    options = (key_of(name) for name, _, _ in _OPTIONS)
    others = ("torchprof_suite", "torchprof_require_gpu", "torchprof_report", "torchprof_against")
    return any(getattr(config.option, name) is not None for name in (*options, *others)) or any(
        config.getini(key) != default for key, _, default, _ in _KEYS
    )


def option_of(name: str) -> str:
    """Return the name of an option on the command line."""
    return "--torchprof" + (f"-{name}" if name else "")
