"""Entries of renamed tests: moved unchanged, in the files of all devices or in none."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from msgspec import Struct

from pytest_torchprof.baseline.entry import key_of, split_key
from pytest_torchprof.baseline.file import read_written, replace_text, text_of, writing
from pytest_torchprof.baseline.path import files_of, renamed
from pytest_torchprof.reasons.errors import TorchprofError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from pytest_torchprof.baseline.form import WrittenEntry

    Test = tuple[Path, str | None]
    """A test file, and the id of a test in it: None for all its tests."""


class Move(Struct, frozen=True, kw_only=True):
    """One entry that was renamed."""

    file: Path
    key: str
    to_file: Path
    to_key: str


def rename(old: Test, new: Test, rootdir: Path, baseline_dir: Path | None) -> tuple[Move, ...]:
    """Move the entries of a test, a class, a test function with all its parameters, or a file; return the moves.

    Raises TorchprofError, leaving every file as it was, if there is no entry to move, if there is one of the new name,
    or if a file cannot be written.
    """
    moves, before = _moves(old, new, rootdir, baseline_dir)
    _refuse(moves, before, old, new)
    folders = {os.path.realpath(path.parent): path for move in moves for path in (move.file, move.to_file)}
    with contextlib.ExitStack() as held:
        # Always in the same order, so that two processes never wait for each other.
        for _, file in sorted(folders.items()):
            held.enter_context(writing(file))
        # From here on nobody else writes them.
        moves, before = _moves(old, new, rootdir, baseline_dir)
        _refuse(moves, before, old, new)
        after = {file: dict(entries) for file, entries in before.items()}
        for move in moves:
            after.setdefault(move.to_file, {})[move.to_key] = after[move.file].pop(move.key)
        texts = {file: text_of(file, entries) if entries else None for file, entries in after.items()}
        _write_all({file: text for file, text in texts.items() if after[file] != before.get(file)})
    return moves


def renamed_test(test: str, old: str | None, new: str | None) -> str | None:
    """Return the id of a test after the renaming; None for a test that is not renamed."""
    if old is None or new is None:
        return test
    if test == old or test.startswith((f"{old}[", f"{old}::")):
        return f"{new}{test[len(old) :]}"
    return None


def _moves(
    old: Test, new: Test, rootdir: Path, baseline_dir: Path | None
) -> tuple[tuple[Move, ...], dict[Path, Mapping[str, WrittenEntry]]]:
    """Return the entries to move, and the contents of the files concerned."""
    moves: list[Move] = []
    before: dict[Path, Mapping[str, WrittenEntry]] = {}
    for _, file in sorted(files_of(old[0], rootdir, baseline_dir).items()):
        target = renamed(file, new[0], rootdir, baseline_dir)
        before[file] = read_written(file)
        if target not in before and target.exists():
            before[target] = read_written(target)
        for key in before[file]:
            test, label = split_key(key)
            if (now := renamed_test(test, old[1], new[1])) is not None:
                moves.append(Move(file=file, key=key, to_file=target, to_key=key_of(f"::{now}", label)))
    return tuple(moves), before


def _refuse(moves: Iterable[Move], before: Mapping[Path, Mapping[str, WrittenEntry]], old: Test, new: Test) -> None:
    shown_old, shown_new = ("::".join([str(file), *([test] if test else [])]) for file, test in (old, new))
    if not moves:
        known = sorted({split_key(key)[0] for entries in before.values() for key in entries})
        from pytest_torchprof.reasons.baseline_renames import NothingToRename  # noqa: PLC0415 - for what is refused alone

        raise TorchprofError.because(NothingToRename(shown_old, old[0].name, tuple(known)))
    if taken := [move for move in moves if move.to_key in before.get(move.to_file, {})]:
        entries = tuple((str(move.to_file), move.to_key) for move in taken)
        from pytest_torchprof.reasons.baseline_renames import NewNameTaken  # noqa: PLC0415 - as above

        raise TorchprofError.because(NewNameTaken(shown_new, entries))


def _write_all(texts: Mapping[Path, bytes | None]) -> None:
    """Write all of the files, those that get entries first, or none of them; None removes a file."""
    before = {file: file.read_bytes() if file.exists() else None for file in texts}
    done: list[Path] = []
    try:
        for file in sorted(texts, key=lambda file: (texts[file] is None, file)):
            done.append(file)
            _write(file, texts[file])
    except BaseException:
        for file in done:
            with contextlib.suppress(OSError):
                _write(file, before[file])
        raise


def _write(file: Path, text: bytes | None) -> None:
    if text is None:
        file.unlink(missing_ok=True)
    elif not file.exists() or file.read_bytes() != text:
        replace_text(file, text)
