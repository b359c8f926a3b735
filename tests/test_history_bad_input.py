"""What may not be believed, and names that mean something to SQL, shells and terminals, in a database as in a folder."""

from __future__ import annotations

import json
import re
import zipfile

import pytest
from histories import launched, run_of, sha, write
from msgspec.structs import replace
from test_history import BAD, FIVE, GOOD, SIX
from test_history import TEST as KNOWN
from test_history_stores import DATABASES, kept, rows, store

from pytest_torchprof.cli import main
from pytest_torchprof.history.record import SUFFIX, Event, encode

pytestmark = pytest.mark.any_torch


@pytest.fixture(params=DATABASES)
def database(request, store_of):
    return store_of(request.param)


def test_databases_refuse_by_name_what_a_folder_refuses_and_keep_nothing_of_it(database, store_of, tmp_path, capsys):
    """Cut off, too large, too many, NaN, of another project, of a known id: each is named, and the rest is taken."""
    after, never = run_of(3, launched(KNOWN, FIVE)), store_of(database.partition(":")[0].partition("+")[0])
    for own in (database, never):
        assert store(own).add(GOOD)
    incoming = write(tmp_path / "in", [after])
    for name, content in BAD.items():
        (incoming / f"{name}{SUFFIX}").write_bytes(content)
    assert main(["history", "import", database, str(incoming)]) == 2
    told = capsys.readouterr()
    assert told.out == f"1 record added, 0 known, {len(BAD)} refused\n"
    lines = told.err.splitlines()
    assert len(lines) == len(BAD)
    assert all("[bad-record]" in line for line in lines)
    assert store(never).add(after)
    assert rows(database) == rows(never)
    assert kept(database) == kept(never)
    assert main(["history", "verify", database]) == 0


KINDS = {
    "a text": (b"not packed", "is a text"),
    "nothing": (b"", "file is empty"),
    "an archive": (b"PK\5\6" + bytes(18), "a ZIP archive"),
    "binary data": (bytes(range(99)), "is binary data"),
    "a record that was cut off": (encode(GOOD)[:40], "cut off"),
    "the first bytes of one": (encode(GOOD)[:2], "cut off"),
    "a damaged one": (encode(GOOD)[:60] + b"\0\0\0\0" + encode(GOOD)[64:], "damaged"),
    "one with more behind it": (encode(GOOD) + b"more", "stands behind its"),
}


@pytest.mark.parametrize(("content", "what"), KINDS.values(), ids=KINDS)
def test_a_file_that_is_no_record_is_called_what_it_is(tmp_path, capsys, content, what):
    file = tmp_path / f"a{SUFFIX}"
    file.write_bytes(content)
    assert main(["history", "import", str(tmp_path / "store"), str(file)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"torchprof history: refused: {file}: ")
    assert what in line
    assert ("cut off" in line) == (what == "cut off")
    assert not re.search(r"zlib|Error|invalid", line), "what a library says of it is no help"


@pytest.mark.parametrize("source", ["folder", "nothing.zip", "others.zip"])
def test_where_no_record_is_at_all_an_import_says_so(tmp_path, capsys, source):
    path = tmp_path / source
    if source == "folder":
        path.mkdir()
        (path / "notes.txt").write_text("something else")
    else:
        with zipfile.ZipFile(path, "w") as archive:
            if source == "others.zip":
                archive.writestr("notes.txt", "something else")
    there = write(tmp_path / "in", [GOOD])
    assert main(["history", "import", str(tmp_path / "store"), str(path), str(there)]) == 2
    told = capsys.readouterr()
    assert told.out == "1 record added, 0 known, 1 refused\n"
    assert told.err.startswith(f"torchprof history: refused: {path}: no record ")


def test_a_fork_that_calls_its_branch_main_is_kept_out_of_a_database_by_its_event(database, tmp_path, capsys):
    forged = run_of(3, launched(KNOWN, SIX), event=Event.PR)
    claims = run_of(4, launched(KNOWN, SIX), event=Event.OTHER)
    own = [run_of(at, launched(KNOWN, FIVE)) for at in (1, 2)]
    assert {run.commit.branch for run in (forged, claims, *own)} == {"main"}
    incoming = write(tmp_path / "in", [*own, forged, claims])
    assert main(["history", "import", database, str(incoming), "--only-event", "push"]) == 0
    assert capsys.readouterr().out == "2 records added, 0 known, 2 of another event left out, 0 refused\n"
    assert {run.uuid for run in kept(database)} == {run.uuid for run in own}


NAMES = (
    "t.py::test['\"`]",
    "t.py::test[%s %(x)s %d 100%]",
    "t.py::test[a\nb\r\nc]",
    "t.py::test['; DROP TABLE record; --]",
    "t.py::test[\\x1b\x1b[31m\0]",
    "t.py::test[:a ? $1 {b} ${c} $(d)]",
    "--help",
    "t.py::test[\u202e\U0001f600\u00e9]",
)


def test_a_database_is_asked_for_tests_whatever_they_are_called(database, capsys):
    for at in range(3):
        measured = [launched(name, FIVE if at < 2 else SIX, label=name) for name in NAMES]
        store(database).add(run_of(at, *measured))
    before = rows(database)
    for name in NAMES:
        for words in (("log", database), ("when", database)):
            condition = ["kernels >= 6"] if words[0] == "when" else []
            # As argparse has it: behind this nothing is an option.
            assert main(["history", *words, "--", name, *condition]) == 0
            out = capsys.readouterr().out
            assert sha(2)[:7] in out
            assert "5 to 6" in out or "before it had 5" in out
            assert not {"\x1b", "\0", "\r"} & set(out)
        for words in (("--branch", name), ("--machine", name)):
            assert main(["history", "log", database, NAMES[0], f"{words[0]}={words[1]}"]) == 2
            assert "[no-history]" in capsys.readouterr().err
        assert main(["history", "log", database, "--", f"{name}'"]) == 2
        assert "[no-history]" in capsys.readouterr().err
    assert rows(database) == before
    assert len(kept(database)) == 3


def test_a_database_of_hostile_names_answers_as_a_folder_of_them(database, store_of, capsys):
    folder = store_of("folder")
    runs = [
        run_of(at, *(launched(name, {name: 1 + at // 2}) for name in NAMES), branch="it's; --\n", version="%s")
        for at in range(4)
    ]
    for own in (database, folder):
        for run in runs:
            store(own).add(run)
    answers = []
    for own in (database, folder):
        for words in (("changes", own, "--json"), ("changes", own)):
            assert main(["history", *words, "--branch", "it's; --\n"]) == 0
            answers.append(capsys.readouterr().out.replace(own, "STORE"))
    assert answers[:2] == answers[2:]
    assert {change["test"] for change in json.loads(answers[0])["events"][0]["tests"]} == set(NAMES)


def test_records_that_no_database_may_hold_leave_none_of_their_rows(database, capsys, tmp_path):
    """A number that is too large for a column is met in the middle of a transaction."""
    rest = launched("t.py::test_b", FIVE)
    broken = run_of(5, launched(KNOWN, FIVE, rank=2**70, ranks=2**71), rest)
    incoming = write(tmp_path / "in", [broken, run_of(6, rest)])
    assert main(["history", "import", database, str(incoming)]) == 2
    assert broken.uuid in capsys.readouterr().err
    assert [run.commit.sha for run in kept(database)] == [sha(6)]
    assert len(rows(database)["measurement"]) == 1
    assert store(database).add(replace(broken, measurements=(), varying=()))
