"""What may not be believed, and names that mean something to SQL, shells and terminals, in a database as in a folder."""

from __future__ import annotations

import gzip
import json
import os
import re
import zipfile
from pathlib import Path

import pytest
from histories import H100, launched, run_of, sha, write
from msgspec.structs import replace
from test_history import BAD, FIVE, GOOD, SIX
from test_history import TEST as KNOWN
from test_history_stores import DATABASES, kept, rows, store

from pytest_torchprof.cli import main
from pytest_torchprof.history.record import SUFFIX, CiJob, Event, MachineRecord, encode

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
    events = json.loads(answers[0])["events"]
    assert {change["test"] for event in events for change in event["tests"]} == set(NAMES)


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


# ------------------------------------------------------------------------------------- files that are no plain record


def archive(path, members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made:
        for name, content in members:
            made.writestr(name, content)
    return path


def a_zip_bomb(folder):
    return archive(folder / "a.zip", [(f"bomb{SUFFIX}", bytes(65 << 20)), (f"good{SUFFIX}", encode(GOOD))])


def an_archive_within_an_archive(folder):
    inner = archive(folder / "inner.zip", [(f"x{SUFFIX}", encode(GOOD))])
    return archive(folder / "a.zip", [("deep/inner.zip", inner.read_bytes()), (f"good{SUFFIX}", encode(GOOD))])


def a_member_that_is_smaller_than_it_says(folder):
    path = archive(folder / "a.zip", [(f"good{SUFFIX}", encode(GOOD)), (f"bad{SUFFIX}", gzip.compress(bytes(999)))])
    content = path.read_bytes()
    # The second time it stands in the directory, behind the members.
    at = content.rindex(b"PK\1\2")
    path.write_bytes(content[: at + 24] + (1 << 20).to_bytes(4, "little") + content[at + 28 :])
    return path


def a_link_out_of_the_folder(folder):
    secret = folder / "secret"
    secret.write_bytes(encode(run_of(7, launched(KNOWN, SIX))))
    incoming = write(folder / "in", [GOOD])
    (incoming / f"bad{SUFFIX}").symlink_to(secret)
    return incoming


def a_pipe_that_nobody_writes_to(folder):
    incoming = write(folder / "in", [GOOD])
    os.mkfifo(incoming / f"bad{SUFFIX}")
    return incoming


def a_folder_called_like_a_record(folder):
    incoming = write(folder / "in", [GOOD])
    (incoming / f"bad{SUFFIX}").mkdir()
    return incoming


def of_json(text):
    def source(folder):
        incoming = write(folder / "in", [GOOD])
        bad = replace(run_of(4, launched(KNOWN, FIVE)), version="HERE")
        json_text = gzip.decompress(encode(bad)).decode()
        (incoming / f"bad{SUFFIX}").write_bytes(gzip.compress(text(json_text).encode()))
        return incoming

    return source


REFUSED = {
    "a zip bomb": a_zip_bomb,
    "an archive in another": an_archive_within_an_archive,
    "a member that is smaller than it says": a_member_that_is_smaller_than_it_says,
    "a link out of the folder": a_link_out_of_the_folder,
    "a pipe that nobody writes to": a_pipe_that_nobody_writes_to,
    "a folder called like a record": a_folder_called_like_a_record,
    "a time beyond any float": of_json(lambda text: text.replace('"gpu_busy_us":14.0', '"gpu_busy_us":1e309')),
    "a count of 400 digits": of_json(lambda text: text.replace('"kernels":5', f'"kernels":{"9" * 400}')),
    "a forged event": of_json(lambda text: text.replace('"event":"push"', '"event":"push\\n"')),
    "100,000 lists in lists": of_json(
        lambda text: text.replace('"schema"', f'"x":{"[" * 100_000}{"]" * 100_000},"schema"')
    ),
    "a date without a zone": of_json(lambda text: text.replace("2026-01-05T01:00:00Z", "2026-01-05T01:00:00")),
    "an id twice": of_json(lambda text: text.replace('"schema"', f'"uuid":"{"0" * 32}","schema"', 1)),
    "an event twice": of_json(lambda text: text[:-1] + ',"event":"schedule"}'),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_no_plain_record_is_refused_by_name_and_what_lies_beside_it_is_taken(tmp_path, capsys, what):
    incoming = REFUSED[what](tmp_path)
    assert main(["history", "import", str(tmp_path / "store"), str(incoming)]) == 2
    told = capsys.readouterr()
    assert told.out == "1 record added, 0 known, 1 refused\n"
    assert "[bad-record]" in told.err
    assert str(incoming) in told.err
    assert [run.uuid for run in kept(str(tmp_path / "store"))] == [GOOD.uuid]


# Ends a line, colours, rings, clears the screen, writes from right to left, ends a script.
NASTY = "a\nb\r\x1b[31m\x07\x9b2J\u202e\u2066\u200f</script><script>alert(1)</script>"
CONTROLS = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def test_whatever_a_record_calls_its_things_neither_terminal_nor_page_obeys_it(tmp_path, capsys):
    def run(at):
        kernels = {f"{NASTY}{'new' if at > 2 else 'old'}": 2 + at // 3, "gemm": 1}
        facts = {"label": NASTY, "source": NASTY, "code": None, "device": NASTY}
        measured = launched(f"t.py::test[{NASTY}]", kernels, **facts)
        environment = replace(H100, gpu=NASTY, cpu=NASTY, torch=f"{NASTY}{at > 4}", python=NASTY, driver=NASTY)
        lost = launched("t.py::test_lost", None, code=NASTY)
        return replace(
            run_of(at, measured, lost, branch=NASTY, environment=environment),
            version=NASTY,
            ci=CiJob(provider=NASTY, run=NASTY, job=NASTY),
            machine=MachineRecord(digest=NASTY, gpu=NASTY, cpu=NASTY, driver=NASTY),
        )

    folder = str(write(tmp_path / NASTY.replace("/", ""), map(run, range(8))))
    (Path(folder) / f"x{NASTY.replace('/', '')}{SUFFIX}").write_bytes(b"\x1b]0;x\x07")
    name = f"t.py::test[{NASTY}]"
    commands = (
        ("changes", folder),
        ("log", folder, name),
        ("when", folder, name, "kernels >= 3"),
        ("when", folder, name, f"kernels{NASTY} >= 3"),
        ("log", folder, NASTY),
        ("note", folder, sha(3), NASTY),
        ("alias", folder, name, NASTY),
        ("changes", folder),
        ("accept", folder, NASTY, NASTY),
        ("verify", folder),
        ("prune", folder, "--keep", "2"),
        ("import", str(tmp_path / "other"), folder),
        ("import", folder, NASTY),
        ("export", folder, "--as", NASTY),
    )
    for words in commands:
        branch = (f"--branch={NASTY}",) if words[0] in ("changes", "log", "when", "note", "accept") else ()
        assert main(["history", *words, *branch]) in {0, 2, 3}
        told = capsys.readouterr()
        assert [CONTROLS.search(line) for line in (told.out, told.err)] == [None, None]
    page = tmp_path / "page.html"
    assert main(["history", "page", folder, "-o", str(page), f"--branch={NASTY}"]) == 0
    capsys.readouterr()
    html = page.read_text(encoding="utf-8")
    assert "<script>alert" not in html
    assert re.findall("[\x00-\x08\x0b-\x1f\x7f-\x9f]", html) == []
