"""``torchprof baseline resolve``: repair merged files, and name the entries that both sides changed."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

from pytest_torchprof.baseline import MergedTexts, find_files, has_conflict, overlaps_merged, read_text, sides
from pytest_torchprof.baseline import resolve as resolve_file
from pytest_torchprof.cli import refuse
from pytest_torchprof.cli.baseline_files import write_line
from pytest_torchprof.reasons.errors import TorchprofError, UnreadableBaseline
from pytest_torchprof.system.processes import run
from pytest_torchprof.text import counted

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from pytest_torchprof.baseline import ChangedByBoth

    Revisions = tuple[str, str, str]
    """The common ancestor and both sides of a merge, as git calls them."""

RESOLVED, TO_MEASURE = 0, 1
_AGAIN: Final = "both sides changed these, measure them again with --torchprof-baseline=update"
_TIMES: Final = "both sides changed these, and at least one of them nothing but times"
# The parent of the commit that is picked or replayed is the common ancestor.
_PICKED: Final = ("CHERRY_PICK_HEAD", "REBASE_HEAD")


def resolve(arguments: Namespace) -> int:
    """Repair files with the markers of a merge, check those that it has joined; return the exit status."""
    paths = [path for base in arguments.path for path in (sorted(find_files(base)) if base.is_dir() else [base])]
    texts = {path: read_text(path) for path in paths}
    if not any(map(has_conflict, texts.values())):
        write_line(f"no merge markers in {counted(len(paths), 'baseline file')}")
    last = cache(_last_merge)
    return max((_resolve_file(path, text, last) for path, text in texts.items()), default=RESOLVED)


def _resolve_file(path: Path, text: str, last: Callable[[Path], Revisions | None]) -> int:
    marked = has_conflict(text)
    try:
        merged = _merged_in_git(path, _merge_in_progress(path.parent) if marked else last(path.parent))
        if marked:
            ours, theirs, base = sides(text)
            left = MergedTexts(base=merged.base if merged else base, ours=ours, theirs=theirs)
            overlaps = resolve_file(path, left, merged)
        else:
            overlaps = overlaps_merged(path, merged) if merged is not None else ()
    except UnreadableBaseline as error:
        # The committed file is no baseline, and the file has nothing to resolve.
        return refuse("baseline", error) if marked else RESOLVED
    except TorchprofError as error:  # the other files are resolved nevertheless
        return refuse("baseline", error)
    again = [overlap for overlap in overlaps if overlap.to_measure]
    heads = ["resolved"] if marked else ["merged line by line"] if overlaps else []
    heads += [_AGAIN] if again else []
    if heads:
        _write_overlaps(f"{path}: {'; '.join(heads)}", again)
    if others := [overlap for overlap in overlaps if not overlap.to_measure]:
        _write_overlaps(f"{path}: {_TIMES}", others)
    return TO_MEASURE if again else RESOLVED


def _write_overlaps(head: str, overlaps: Sequence[ChangedByBoth]) -> None:
    write_line(
        "\n    ".join([head, *(f"{overlap.key}: {', '.join(overlap.what)} ({overlap.kept})" for overlap in overlaps)])
    )


def _merged_in_git(path: Path, revisions: Revisions | None) -> MergedTexts | None:
    """Return the versions that git joined to this file; ``revisions`` are of a merge without a conflict in it."""
    staged = [_git(path.parent, "show", f":{number}:./{path.name}") for number in (1, 2, 3)]
    if staged[1] is None or staged[2] is None:
        staged = [_git(path.parent, "show", f"{revision}:./{path.name}") for revision in revisions or ()]
    if len(staged) < 3 or staged[1] is None or staged[2] is None or staged[1] == staged[2]:
        return None
    return MergedTexts(base=staged[0], ours=staged[1], theirs=staged[2])


def _last_merge(folder: Path) -> Revisions | None:
    """Return the merge in progress, else the merge that is the last commit; None if there is neither."""
    return _merge_in_progress(folder) or _merge_of(folder, "HEAD^1", "HEAD^2")


def _merge_in_progress(folder: Path) -> Revisions | None:
    for picked in _PICKED:
        if _is_commit(folder, picked):
            return f"{picked}^", "HEAD", picked
    return _merge_of(folder, "HEAD", "MERGE_HEAD")


def _merge_of(folder: Path, ours: str, theirs: str) -> Revisions | None:
    if not _is_commit(folder, theirs):
        return None
    return (_git(folder, "merge-base", ours, theirs) or "").strip(), ours, theirs


def _is_commit(folder: Path, revision: str) -> bool:
    return _git(folder, "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}") is not None


def _git(folder: Path, *arguments: str) -> str | None:
    """Return the output of git, None if it fails or is not installed."""
    try:
        done = run(["git", "-C", str(folder), *arguments])
    except OSError:
        return None
    return None if done.status else done.output
