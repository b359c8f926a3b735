"""The stores of a history: a folder, an object store, SQLite and PostgreSQL take the same records and give them back."""

from __future__ import annotations

import csv
import errno
import gzip
import io
import json
import os
import random
import re
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import fresh
import pytest
from facts import says, why_command_refused, why_refused
from histories import DAY, H100, UPGRADED, launched, run_of, sha, write
from msgspec.structs import replace
from postgres import PASSWORD

from pytest_torchprof.baseline.entry import Times
from pytest_torchprof.cli import main
from pytest_torchprof.history.notes import Note, NoteKind
from pytest_torchprof.history.record import SUFFIX, AllTests, BadRecord, Event, RunRecord, VaryingRecord, encode
from pytest_torchprof.history.store import StoreUnusable, records_of
from pytest_torchprof.history.stores import store_at
from pytest_torchprof.history.where import network_file_system, where_of
from pytest_torchprof.reasons.history_asked import NoSuchRun
from pytest_torchprof.reasons.records import SameId

pytestmark = pytest.mark.any_torch

TEST = "test_model.py::test_block"
FIVE = {"gemm bf16 tn": 4, "softmax": 1}
SIX = {**FIVE, "pointwise sigmoid": 1}
MEASURED = "import torch\n@cpu\ndef test_it(): torch.mm(torch.ones(4, 4), torch.ones(4, 4))"
ODD = "test_'; DROP TABLE record; --.py::test[\0\x1b[31m\u202e%s%(a)s:b\U0001f600]"
KINDS = ("folder", "memory", "sqlite", "postgresql")
DATABASES = ("sqlite", "postgresql")
INTO = [*zip(KINDS, (*KINDS[1:], KINDS[0]), strict=True), *((kind, kind) for kind in DATABASES)]
"""Pairs of stores, one of which takes what the other gives: each kind does both, and databases by one library."""
FILES = Path(__file__).parent


@pytest.fixture(params=KINDS)
def where(request, store_of):
    """Where a store of each kind is, which nobody has made yet."""
    return store_of(request.param)


@pytest.fixture(params=DATABASES)
def database(request, store_of):
    return store_of(request.param)


@pytest.fixture(params=("folder", "sqlite"))
def commented(request, store_of):
    """Where a store is, of files or of tables, whose notes are asked about: other kinds give notes and records back alike."""
    return store_of(request.param)


def store(where):
    return store_at(where_of(where, Path()))


def kept(where):
    return list(records_of(store(where)))


def fill(where, runs):
    kept = store(where)
    for run in runs:
        assert kept.add(run)


def answers(capsys, where, *words):
    """Return what a command prints of a store, without its name."""
    assert main(["history", words[0], where, *words[1:]]) == 0
    return capsys.readouterr().out.replace(where, "STORE")


@contextmanager
def connected(where):
    """Yield a connection to a database beside the store's own."""
    import sqlalchemy

    url = where.replace("sqlite:////", "sqlite:////")
    engine = sqlalchemy.create_engine(url, poolclass=sqlalchemy.NullPool)
    with engine.begin() as connection:
        yield connection


def rows(where):
    """Return all rows of all tables that are made of records."""
    import sqlalchemy

    from pytest_torchprof.history.sql.schema import FROM_RECORDS

    with connected(where) as connection:
        return {
            table.name: sorted(map(repr, connection.execute(sqlalchemy.select(table)).all())) for table in FROM_RECORDS
        }


# ------------------------------------------------------------------------------------------ records in, records out


def test_every_store_gives_the_same_answers_as_a_folder(where, tmp_path, capsys):
    runs = [run_of(at, launched(TEST, FIVE if at < 4 else SIX), launched("test_m.py::test_b", FIVE)) for at in range(8)]
    runs += [run_of(5, launched(TEST, SIX), environment=UPGRADED), run_of(6, launched(TEST, None), event=Event.PR)]
    beside = str(write(tmp_path / "beside", runs))
    shuffled = random.Random(3).sample(runs, len(runs))
    fill(where, shuffled)
    for words in (
        ("changes", "--json"),
        ("changes",),
        ("log", TEST),
        ("when", TEST, "kernels >= 6"),
        ("verify",),
    ):
        assert answers(capsys, where, *words) == answers(capsys, beside, *words)
    assert kept(where) == kept(beside) == sorted(runs, key=lambda run: run.uuid)


def test_chosen_records_alone_are_read(where):
    runs = [run_of(at, launched(TEST, FIVE)) for at in range(4)]
    fill(where, runs)
    chosen = {runs[0].uuid, runs[2].uuid, "0" * 32}
    assert {run.uuid for run in records_of(store(where), chosen)} == chosen - {"0" * 32}
    assert not list(records_of(store(where), set()))


def test_a_record_is_taken_once_however_it_was_packed(where, tmp_path, capsys):
    run = run_of(1, launched(TEST, FIVE))
    fill(where, [run])
    assert not store(where).add(run)
    other = tmp_path / f"other{SUFFIX}"
    other.write_bytes(gzip.compress(json.dumps(json.loads(gzip.decompress(encode(run))), indent=3).encode(), mtime=7))
    assert other.read_bytes() != encode(run)
    assert main(["history", "import", where, str(other)]) == 0
    assert capsys.readouterr().out == "0 records added, 1 known, 0 refused\n"
    assert kept(where) == [run]


def test_another_record_of_the_same_id_is_refused_by_name_and_what_was_there_stays(where, capsys, tmp_path):
    run = run_of(1, launched(TEST, FIVE))
    fill(where, [run])
    other = replace(run_of(2, launched(TEST, SIX)), uuid=run.uuid)
    with pytest.raises(BadRecord, match=run.uuid):
        store(where).add(other)
    assert main(["history", "import", where, str(write(tmp_path / "in", [other]))]) == 2
    told = capsys.readouterr()
    assert told.out == "0 records added, 0 known, 1 refused\n"
    assert run.uuid in told.err
    assert kept(where) == [run]


def refused_of_two_at_once(where, records):
    """Let as many threads add records of one id at the same moment; return which record stays, and the refusals."""
    at_once = threading.Barrier(len(records))

    def add(record):
        own = store(where)
        at_once.wait()
        try:
            return own.add(record)
        except BadRecord as refused:
            return refused

    with ThreadPoolExecutor(len(records)) as pool:
        ended = list(pool.map(add, records))
    assert ended.count(True) == 1
    return records[ended.index(True)], [str(end) for end in ended if end is not True]


def test_of_two_records_of_one_id_that_are_written_at_once_one_stays_and_the_other_is_refused(where):
    for number in range(10):
        run = run_of(number, launched(TEST, FIVE))
        other = replace(run_of(number, launched(TEST, SIX)), uuid=run.uuid)
        stays, (refused,) = refused_of_two_at_once(where, [run, other])
        assert run.uuid in refused
        assert [record for record in kept(where) if record.uuid == run.uuid] == [stays]


def test_a_folder_on_a_file_system_without_links_keeps_one_of_two_records_too(tmp_path, monkeypatch):
    def refuse(self, target):
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), str(target))

    monkeypatch.setattr(Path, "hardlink_to", refuse)
    for number in range(20):
        run = run_of(number, launched(TEST, FIVE))
        other = replace(run_of(number, launched(TEST, SIX)), uuid=run.uuid)
        stays, (refused,) = refused_of_two_at_once(str(tmp_path), [run, other])
        assert run.uuid in refused
        assert [record for record in kept(str(tmp_path)) if record.uuid == run.uuid] == [stays]
    assert not list(tmp_path.glob(".*"))


def test_names_are_data_in_every_store(where):
    run = run_of(1, launched(ODD, {ODD: 2}, label=ODD, device="cpu"), branch=ODD, project="example.org/'\"\0")
    fill(where, [run])
    assert kept(where) == [run]


def test_what_is_not_there_is_no_history_and_is_not_made_by_reading(where, capsys):
    for command in ("changes", "verify"):
        assert main(["history", command, where]) == 2
        assert "[no-history]" in capsys.readouterr().err
    assert not store(where).is_there
    assert main(["history", "import", where, where]) == 2
    assert not store(where).is_there


@pytest.mark.parametrize(("kind", "other"), INTO)
def test_the_records_of_stores_of_any_kind_are_merged_into_one(store_of, kind, other, capsys):
    runs = [run_of(at, launched(TEST, FIVE)) for at in range(4)]
    where, first, second = store_of(kind), store_of(other), store_of("folder")
    fill(where, runs[:1])
    fill(first, runs[:2])
    fill(second, runs[2:])
    assert main(["history", "merge", where, first, second]) == 0
    assert capsys.readouterr().out == "3 records added, 1 known, 0 refused\n"
    assert main(["history", "import", where, first]) == 0
    assert capsys.readouterr().out == "0 records added, 2 known, 0 refused\n"
    assert kept(where) == sorted(runs, key=lambda run: run.uuid)


# -------------------------------------------------------------------------------------------------- what a run leaves


def test_a_run_adds_its_record_to_every_store(where, run_tests):
    run_tests(MEASURED, f"--torchprof-history={where}").assert_outcomes(passed=1)
    (record,) = kept(where)
    assert record.measurements[0].test == "test_it.py::test_it"
    content = gzip.decompress(encode(record)).decode()
    assert not any(secret in content for secret in (PASSWORD, where))


def test_workers_of_xdist_leave_one_record_in_a_database(store_of, run_tests):
    pytest.importorskip("xdist")
    where = store_of("postgresql")
    twice = "import torch\n" + "\n".join(
        f"@cpu\ndef test_{name}(): torch.mm(torch.ones(4, 4), torch.ones(4, 4))" for name in "ab"
    )
    result = run_tests(twice, f"--torchprof-history={where}", "-n2", in_process=False)
    result.assert_outcomes(passed=2)
    (record,) = kept(where)
    assert sorted(measured.test for measured in record.measurements) == ["test_it.py::test_a", "test_it.py::test_b"]


@pytest.mark.parametrize("name", ["kept", "runs.db", "sqlite:///deep/runs.sqlite"])
def test_the_historys_own_files_do_not_make_the_tree_dirty(run_tests, pytester, name):
    if name != "kept":
        pytest.importorskip("alembic")
    pytester.path.joinpath(".gitignore").write_text("__pycache__\ntest_it.py\n")
    for words in ("init -q", "add -A", "-c user.name=a -c user.email=a@b.c commit -qm one"):
        subprocess.run(["git", *words.split()], cwd=pytester.path, check=True)
    run_tests(MEASURED, f"--torchprof-history={name}").assert_outcomes(passed=1)
    with reading(name):
        run_tests(MEASURED, f"--torchprof-history={name}").assert_outcomes(passed=1)
    assert [record.commit.dirty for record in kept(name)] == [False, False]


@contextmanager
def reading(name):
    """Read from a store meanwhile, which keeps the files that SQLite has beside its own."""
    records = store(name).packed()
    next(records)
    yield
    records.close()


def test_an_ini_file_names_the_store_relative_to_its_own_folder(run_tests, pytester):
    pytest.importorskip("alembic")
    pytester.makeini("[pytest]\ntorchprof_history = sqlite:///runs.db")
    run_tests(MEASURED).assert_outcomes(passed=1)
    assert len(kept("runs.db")) == 1


def no_folder_for_it(server, path):
    path.joinpath("file").touch()
    return "file/runs.db"


def no_database_in_it(server, path):
    path.joinpath("runs.db").write_text("This is no database at all, and is long enough to be read as one." * 20)
    return "runs.db"


def nobody_listens(server, path):
    return f"postgresql+psycopg://me:{PASSWORD_IN_URL}@/db?host={path}"


def another_password(server, path):
    return server().url("postgres", "wr0ng@secret")


def no_such_database(server, path):
    return server().url("nowhere")


PASSWORD_IN_URL = "wr0ng%40secret"


@pytest.mark.parametrize(
    "case", [no_folder_for_it, no_database_in_it, nobody_listens, another_password, no_such_database]
)
def test_an_unreachable_store_costs_a_warning_and_its_record_is_sent_later(
    case, run_tests, pytester, capsys, request, monkeypatch
):
    pytest.importorskip("alembic")
    pytest.importorskip("psycopg")
    where = case(lambda: request.getfixturevalue("postgresql"), pytester.path)
    result = run_tests(MEASURED, f"--torchprof-history={where}", "-vv", "--showlocals", "--full-trace")
    result.assert_outcomes(passed=1)
    assert result.ret == 0
    shown = where_of(where, pytester.path).shown
    result.stdout.fnmatch_lines([f"*--torchprof-history={glob_free(shown)}:*.torchprof/outbox*history push*"])
    main(["history", "push", where])
    told = capsys.readouterr()
    assert "[unusable-store]" in told.err
    for text in (str(result.stdout), str(result.stderr), told.out, told.err):
        assert not any(secret in text for secret in ("wr0ng", PASSWORD, "s3cr", "%40"))
    assert main(["history", "push", "kept"]) == 0
    assert capsys.readouterr().out == "1 record added\n"
    assert len(kept("kept")) == 1
    assert not list(Path(".torchprof/outbox").glob(f"*{SUFFIX}"))
    assert main(["history", "push", "kept"]) == 0


def test_a_store_that_never_answers_is_not_waited_for(run_tests, pytester, monkeypatch):
    """Its server takes the connection and says nothing; the library would wait and try again for minutes."""
    pytest.importorskip("s3fs")
    monkeypatch.setattr("pytest_torchprof.testing.history.PATIENCE_S", 0.5)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "s3cret")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{silent.getsockname()[1]}")
        result = run_tests(MEASURED, "--torchprof-history=s3://bucket/history")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["*--torchprof-history=s3://bucket/history:*0.5 s*.torchprof/outbox*"])
    assert len(kept(".torchprof/outbox")) == 1


def glob_free(text):
    return "".join("?" if letter in "[]*" else letter for letter in text)


def test_a_record_that_the_store_refuses_stays_in_the_outbox_and_the_others_are_sent(where, tmp_path, capsys):
    runs = [run_of(at, launched(TEST, FIVE)) for at in range(3)]
    fill(where, [replace(runs[1], version="2.0")])
    write(tmp_path / ".torchprof/outbox", runs)
    assert main(["history", "push", where, f"--rootdir={tmp_path}"]) == 2
    told = capsys.readouterr()
    assert told.out == "2 records added\n"
    assert "[bad-record]" in told.err
    assert [path.name for path in (tmp_path / ".torchprof/outbox").iterdir()] == [f"{runs[1].uuid}{SUFFIX}"]


# ------------------------------------------------------------------------------------------------------ what WHERE means


@pytest.mark.parametrize(
    ("text", "kind", "address"),
    [
        ("kept", "folder", "/here/kept"),
        ("/else/kept", "folder", "/else/kept"),
        ("runs.db", "sqlite", "/here/runs.db"),
        ("deep/runs.sqlite", "sqlite", "/here/deep/runs.sqlite"),
        ("sqlite:///runs.any", "sqlite", "/here/runs.any"),
        ("sqlite:////else/runs.any", "sqlite", "/else/runs.any"),
        ("memory://bucket//prefix", "objects", "memory://bucket//prefix"),
        ("postgresql://me@host/db", "postgresql", "postgresql+psycopg://me@host/db"),
        ("postgresql+psycopg://me@host/db", "postgresql", "postgresql+psycopg://me@host/db"),
    ],
)
def test_what_where_means(text, kind, address):
    for module in ("alembic", "psycopg", "fsspec"):
        pytest.importorskip(module)
    where = where_of(text, Path("/here"))
    assert (where.kind, where.address) == (kind, address)


@pytest.mark.parametrize(
    "text",
    [
        "postgresql://me:pa@ss:word@host/db",
        "postgresql://me:password@host:port/db",
        "mysql://me:password@host/db",
        "sqlite://me:password@",
        "ftp://host/?token=password",
    ],
)
def test_an_address_that_cannot_be_used_is_refused_without_what_is_secret_in_it(text):
    with pytest.raises(StoreUnusable) as refused:
        where_of(text, Path())
    assert "ss" not in str(refused.value).replace("passwords", "").replace("address", "")


def test_a_password_is_never_shown_wherever_it_stands(capsys):
    pytest.importorskip("psycopg")
    pytest.importorskip("alembic")
    secrets = "me:s3%40cret@127.0.0.1:1/db?password=s3cret&host=127.0.0.1&sslkey=s3cret"
    where = where_of(f"postgresql+psycopg://{secrets}", Path())
    assert "s3" not in f"{where!r} {where.shown} {store_at(where).shown}"
    assert where.shown.endswith("me:***@127.0.0.1:1/db?password=***&host=127.0.0.1&sslkey=***")
    address = where.address
    for words in (
        ["history", address, "changes"],
        ["history", "changes", address, address],
        ["history", "changes", "kept", f"--branche={address}"],
        ["history", "changes", address],
        ["history", "verify", address],
        ["history", "upgrade", address],
        ["history", "rebuild", address],
        ["history", "import", "kept", address],
        ["history", "import", address, "nowhere"],
    ):
        assert main(words) == 2
        told = capsys.readouterr()
        assert "s3" not in told.out + told.err


def test_what_a_library_says_of_a_secret_is_not_repeated(capsys):
    pytest.importorskip("psycopg")
    pytest.importorskip("alembic")
    # libpq quotes the value of a setting that it does not know.
    address = "postgresql://me:pw@127.0.0.1:1/db?target_session_attrs=s3%40cret"
    assert main(["history", "changes", address]) == 2
    told = capsys.readouterr().err
    assert "target_session_attrs" in told.partition("cannot be read")[2]
    assert "s3@cret" not in told


MOUNTS = """\
/dev/vda / ext4 rw,relatime 0 0
server:/export /mnt/with\\040blank nfs4 rw 0 0
/dev/vdb /mnt/with\\040blank/disk ext4 rw 0 0
me@host:/ /mnt/ssh fuse.sshfs rw 0 0
/dev/vdc /mnt/ssh xfs rw 0 0
lustre@tcp:/fs /scratch lustre rw 0 0
"""


@pytest.mark.parametrize(
    ("path", "system"),
    [
        ("/home/runs.db", None),
        ("/mnt/with blank/runs.db", "nfs4"),
        ("/mnt/with blank/disk/runs.db", None),
        ("/mnt/ssh/runs.db", None),
        ("/scratch/me/deep/runs.db", "lustre"),
        ("/scratches/runs.db", None),
    ],
)
def test_the_file_system_of_a_path_is_that_of_the_mount_nearest_to_it(tmp_path, monkeypatch, path, system):
    mounts = tmp_path / "mounts"
    mounts.write_text(MOUNTS)
    monkeypatch.setattr("pytest_torchprof.history.where.MOUNTS", mounts)
    assert network_file_system(Path(path)) == system


def test_sqlite_on_a_network_file_system_is_refused_before_anything_runs(run_tests, pytester, monkeypatch):
    mounts = pytester.path / "mounts"
    mounts.write_text(f"server:/export {pytester.path} nfs4 rw 0 0\n")
    monkeypatch.setattr("pytest_torchprof.history.where.MOUNTS", mounts)
    result = run_tests(MEASURED, "--torchprof-history=runs.db")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    told = f"{result.outlines}{result.errlines}"
    assert "nfs4" in told
    assert "[bad-option]" in told
    run_tests(MEASURED, "--torchprof-history=kept").assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("where", "module", "command"),
    [
        ("runs.db", "sqlalchemy", "pip install 'pytest-torchprof[history]'"),
        ("postgresql://host/db", "psycopg", "pip install 'pytest-torchprof[history]'"),
        ("memory://bucket", "fsspec", "pip install 'pytest-torchprof[history]'"),
        ("s3://bucket", "s3fs", "pip install s3fs"),
    ],
)
def test_a_library_that_is_not_installed_is_named_with_the_line_that_installs_it(monkeypatch, where, module, command):
    pytest.importorskip("alembic")
    pytest.importorskip("fsspec")
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(StoreUnusable) as refused:
        where_of(where, Path())
    assert refused.value.text.endswith(command)


@pytest.mark.parametrize(("where", "module"), [("runs.db", "sqlalchemy"), ("memory://bucket", "fsspec")])
def test_a_library_that_is_too_old_is_named_before_anything_runs(tmp_path, where, module):
    pytest.importorskip("alembic")
    pytest.importorskip("fsspec")
    (tmp_path / f"{module}.py").write_text("# A version that has nothing of what is imported.\n")
    code = (
        "import sys, pytest; from pytest_torchprof.cli import main\n"
        f"assert main(['history', 'verify', {where!r}]) == 2\n"
        f"sys.exit(pytest.main(['-q', '-p', 'no:hypothesispytest', '--torchprof-history={where}']))"
    )
    (tmp_path / "test_it.py").write_text(
        "import pytest\n@pytest.mark.torchprof(device='cpu')\ndef test_it(): raise SystemExit('it ran')\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(FILES.parent)])}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == pytest.ExitCode.USAGE_ERROR, done.stdout + done.stderr
    assert "[unusable-store]" in done.stderr
    assert "[bad-option]" in done.stderr
    assert module in done.stderr


def test_a_folder_that_may_not_be_read_is_refused_and_not_taken_for_empty(tmp_path, capsys):
    if os.geteuid() == 0:
        pytest.skip("root may read everything")
    write(tmp_path / "kept", [run_of(1, launched(TEST, FIVE))]).chmod(0)
    assert main(["history", "verify", str(tmp_path / "kept")]) == 2
    assert "[unusable-store]" in capsys.readouterr().err


def test_a_run_with_a_folder_imports_no_library_of_other_stores(tmp_path, monkeypatch):
    (tmp_path / "test_it.py").write_text(
        "import pytest, torch\n@pytest.mark.torchprof(device='cpu')\n"
        "def test_it(): torch.mm(torch.ones(4, 4), torch.ones(4, 4))\n"
    )
    code = (
        "import sys, pytest\nimport pytest_torchprof\n"
        "assert pytest.main(['-q', '-p', 'no:hypothesispytest', '--torchprof-history=kept']) == 0\n"
        "from pytest_torchprof.cli import main\nassert main(['history', 'verify', 'kept']) == 0\n"
        "assert not {'sqlalchemy', 'alembic', 'psycopg', 'fsspec'} & set(sys.modules)"
    )
    monkeypatch.chdir(tmp_path)
    done = fresh.run_code(code)
    assert done.returncode == 0, done.stdout + done.stderr


def test_who_asks_an_sqlite_file_for_one_test_waits_for_nothing_that_this_does_not_need(store_of):
    where = store_of("sqlite")
    fill(where, [run_of(at, launched(TEST, FIVE)) for at in range(3)])
    code = (
        "import sys\nfrom pytest_torchprof.cli import main\n"
        f"assert main(['history', 'log', {where!r}, {TEST!r}]) == 0\n"
        "slow = {'alembic', 'psycopg', 'sqlalchemy.dialects.postgresql', 'torch'}\n"
        "ours = {f'pytest_torchprof.{name}' for name in ('compare', 'findings', 'fleet', 'limits', 'report.result')}\n"
        "assert not (slow | ours) & set(sys.modules), (slow | ours) & set(sys.modules)"
    )
    environment = {**os.environ, "PYTHONPATH": str(FILES.parent)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


# ------------------------------------------------------------------------------------------------------------- tables


def test_a_measurement_is_a_row_with_a_column_for_each_number_and_one_for_those_of_later_versions(database):
    import sqlalchemy

    from pytest_torchprof.history.sql.schema import MEASUREMENT, NUMBERS, RUN
    from pytest_torchprof.history.sql.schema import TEST as TESTS

    measured, structures = launched(TEST, FIVE, label="decode", rank=1, ranks=2)
    measured = replace(measured, counts={"kernels": 5, "made_up": 7})
    fill(database, [run_of(3, (measured, structures), branch="main")])
    joined = sqlalchemy.select(MEASUREMENT, TESTS.c.nodeid, RUN.c.branch).join(TESTS).join(RUN)
    with connected(database) as connection:
        (row,) = connection.execute(joined).mappings().all()
    assert (row["nodeid"], row["branch"], row["label"], row["rank"], row["ranks"]) == (TEST, "main", "decode", 1, 2)
    assert (row["kernels"], row["launches"], row["gpu_busy_us"], row["others"]) == (5, None, 13.0, {"made_up": 7})
    assert set(NUMBERS) <= set(row)


def test_what_runs_share_is_stored_once(database):
    fill(
        database,
        [
            run_of(
                at,
                launched(TEST, FIVE),
                launched("b", FIVE),
                sha="0" * 40,
                ancestors=(),
                parents=(),
                date=run_of(0).commit.date,
            )
            for at in range(3)
        ],
    )
    counts = {name: len(found) for name, found in rows(database).items()}
    assert counts == {
        "commit": 1, "machine": 1, "environment": 1, "test": 2, "structure": 1, "run": 3, "measurement": 6,
    }  # fmt: skip


def test_numbers_that_no_database_can_hold_are_refused_by_name_and_nothing_of_them_is_kept(database):
    run = run_of(1, launched(TEST, FIVE, rank=2**70, ranks=2**71))
    with pytest.raises(BadRecord, match=run.uuid):
        store(database).add(run)
    assert kept(database) == []
    assert rows(database)["test"] == []


def test_the_tables_are_made_anew_from_the_records_and_notes_stay(database, capsys):
    import sqlalchemy

    from pytest_torchprof.history.sql.schema import MEASUREMENT, NOTE, RUN, STRUCTURE

    runs = [run_of(at, launched(TEST, FIVE if at < 2 else SIX), launched(ODD, FIVE)) for at in range(4)]
    fill(database, runs)
    before = rows(database)
    with connected(database) as connection:
        connection.execute(MEASUREMENT.delete())
        connection.execute(RUN.update().values(branch="forged"))
        connection.execute(STRUCTURE.insert().values(id="left", name="over", kernels=[]))
        note = {"kind": "seen", "key": runs[0].uuid, "value": {"by": "me"}, "when": runs[0].began}
        connection.execute(NOTE.insert().values(note))
    assert rows(database) != before
    assert main(["history", "rebuild", database]) == 0
    assert capsys.readouterr().out.endswith("from 4 records, 0 cannot be believed\n")
    assert rows(database) == before
    with connected(database) as connection:
        assert connection.scalar(sqlalchemy.select(NOTE.c.value)) == {"by": "me"}


def test_a_record_that_was_damaged_in_a_database_is_named_and_left_out(database, capsys):
    from pytest_torchprof.history.sql.schema import RECORD

    runs = [run_of(at, launched(TEST, FIVE)) for at in range(3)]
    fill(database, runs)
    with connected(database) as connection:
        connection.execute(RECORD.update().where(RECORD.c.uuid == runs[1].uuid).values(packed=encode(runs[1])[:-9]))
    assert json.loads(answers(capsys, database, "changes", "--json"))["runs"] == 2
    for command in ("verify", "rebuild"):
        assert main(["history", command, database]) == 2
        told = capsys.readouterr()
        assert "2 records" in told.out
        assert runs[1].uuid in told.err
    assert len(rows(database)["run"]) == 2


def test_a_record_whose_digest_another_version_has_made_is_known_all_the_same(database):
    """A version that knows more of a run writes the same record in another form."""
    from pytest_torchprof.history.sql.schema import RECORD

    run = run_of(0, launched(TEST, FIVE))
    fill(database, [run])
    with connected(database) as connection:
        connection.execute(RECORD.update().values(digest="0" * 64))
    assert not store(database).add(run)
    refused = why_refused(lambda: store(database).add(replace(run, version="2.0")))
    assert says(refused, SameId)


@pytest.mark.parametrize("command", ["upgrade", "rebuild"])
@pytest.mark.parametrize("kind", ["folder", "memory"])
def test_what_has_no_tables_says_so(store_of, kind, command, capsys):
    assert main(["history", command, store_of(kind)]) == 2
    assert "[bad-usage]" in capsys.readouterr().err


# ------------------------------------------------------------------------------------------------------------ schemas


def set_back(where, revision):
    """Make a store of this revision."""
    from pytest_torchprof.history.sql.migrating import migrate

    with connected(where) as connection:
        migrate(connection, revision)


def test_an_older_schema_is_refused_with_the_line_to_run_which_upgrades_it_and_keeps_all(database, capsys):
    import sqlalchemy

    from pytest_torchprof.history.sql.schema import RECORD, REVISIONS

    runs = [run_of(at, launched(TEST, FIVE)) for at in range(2)]
    set_back(database, REVISIONS[0])
    with connected(database) as connection:
        connection.execute(RECORD.insert().values(uuid=runs[0].uuid, digest="0" * 64, packed=encode(runs[0])))
    with pytest.raises(StoreUnusable, match="torchprof history upgrade"):
        store(database).add(runs[1])
    for command in ("changes", "rebuild"):
        assert main(["history", command, database]) == 2
        assert "torchprof history upgrade" in capsys.readouterr().err
    with connected(database) as connection:
        assert not sqlalchemy.inspect(connection).has_table("note")
    assert main(["history", "upgrade", database]) == 0
    assert capsys.readouterr().out.endswith(f": has schema {REVISIONS[-1]}; before: {REVISIONS[0]}\n")
    assert main(["history", "upgrade", database]) == 0
    assert capsys.readouterr().out.endswith(f": has schema {REVISIONS[-1]}, as before\n")
    fill(database, runs[1:])
    assert kept(database) == sorted(runs, key=lambda run: run.uuid)


def test_a_newer_schema_is_refused_in_one_line(database, capsys):
    from pytest_torchprof.history.sql.migrating import VERSION

    fill(database, [run_of(1, launched(TEST, FIVE))])
    with connected(database) as connection:
        connection.execute(VERSION.update().values(version_num="9999"))
    with pytest.raises(StoreUnusable, match="9999"):
        store(database).add(run_of(2, launched(TEST, FIVE)))
    for command in ("changes", "upgrade", "rebuild"):
        assert main(["history", command, database]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert "9999" in line
        assert "history upgrade" not in line.partition(": ")[2]


def schema_of(where):
    """Return all that a database knows of its tables."""
    import sqlalchemy

    with connected(where) as connection:
        known = sqlalchemy.inspect(connection)
        facts = known.get_columns, known.get_pk_constraint, known.get_foreign_keys, known.get_indexes
        return {table: [repr(fact(table)) for fact in facts] for table in known.get_table_names()}


def test_upgrade_makes_an_empty_database_the_newest_schema_as_the_first_record_does(database, store_of, capsys):
    assert main(["history", "upgrade", database]) == 0
    assert "before: none" in capsys.readouterr().out
    assert store(database).is_there
    assert kept(database) == []
    by_record = store_of("sqlite" if "sqlite" in database else "postgresql")
    fill(by_record, [run_of(1, launched(TEST, FIVE))])
    assert schema_of(by_record) == schema_of(database)


def test_a_database_of_somebody_else_is_left_as_it_is(database):
    import sqlalchemy

    with connected(database) as connection:
        connection.execute(sqlalchemy.text("CREATE TABLE measurement (theirs INTEGER)"))
    with pytest.raises(StoreUnusable):
        store(database).add(run_of(1, launched(TEST, FIVE)))
    with connected(database) as connection:
        assert sqlalchemy.inspect(connection).get_table_names() == ["measurement"]


def test_the_versions_in_the_package_lead_to_the_tables_that_it_uses(database):
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext
    from alembic.script import ScriptDirectory

    from pytest_torchprof.history import sql
    from pytest_torchprof.history.sql.schema import METADATA, REVISIONS, VERSION_TABLE

    versions = ScriptDirectory(Path(sql.__file__).parent)
    assert tuple(version.revision for version in versions.walk_revisions())[::-1] == REVISIONS
    assert main(["history", "upgrade", database]) == 0
    with connected(database) as connection:
        options = {"version_table": VERSION_TABLE, "compare_type": True}
        assert compare_metadata(MigrationContext.configure(connection, opts=options), METADATA) == []


def test_sqlite_lets_readers_and_a_writer_not_wait_for_one_another(store_of):
    where = store_of("sqlite")
    runs = [run_of(at, launched(TEST, FIVE)) for at in range(40)]
    fill(where, runs[:30])
    records = records_of(store(where))
    next(records)
    fill(where, runs[30:])
    assert len([*records]) == 29
    with connected(where) as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"


# ------------------------------------------------------------------------------------------------- many write at once


def test_whoever_writes_takes_shared_rows_in_one_order_so_that_no_two_wait_for_each_other():
    pytest.importorskip("sqlalchemy")
    from pytest_torchprof.history.sql.rows import rows_of
    from pytest_torchprof.history.sql.schema import SHARED

    measured = [launched(f"t{at}", {"k": at}) for at in range(9)]
    first, second = rows_of(run_of(1, *measured)), rows_of(run_of(1, *measured[::-1]))
    assert list(first) == list(second)
    assert [first[table] for table in SHARED] == [second[table] for table in SHARED]


WRITERS = """
import json, os, random, signal, sys, time
from pathlib import Path
from histories import launched, run_of
from pytest_torchprof.history.store import StoreUnusable
from pytest_torchprof.history.stores import store_at
from pytest_torchprof.history.where import where_of

where = where_of(sys.argv[1], Path())
# What all of them need is imported once: every writer is a fork.
if not store_at(where).is_there and where.kind in ("sqlite", "postgresql"):
    from alembic import command
    from sqlalchemy.dialects import postgresql, sqlite


def keep(store, run):
    for _ in range(9):
        try:
            return store.add(run)
        except StoreUnusable as problem:  # For too long it was others' turn: the record waits, and is sent later.
            last = problem
    raise last


def write(name, first):
    store = store_at(where)
    log = os.open(name, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    for at in range(first, 1_000_000):
        # Each third is one that all of them write; of the others all write the same tests, each in another order.
        version = "shared" if at % 3 == 0 else name
        order = random.Random(version).sample(range(3), 3)
        run = run_of(at, *(launched(f"t{at // 6}-{test}", {"k": at % 5 + test}) for test in order), version=version)
        keep(store, run)
        os.write(log, f"{at} {run.uuid}\\n".encode())
        time.sleep(random.random() / 5)


signal.signal(signal.SIGCHLD, signal.SIG_IGN)
for line in sys.stdin:
    if (pid := os.fork()) == 0:
        write(*json.loads(line))
    print(pid, flush=True)
"""


class Writers:
    """As many processes as there are logs, each of which writes to a store until it is killed, and logs what it has written."""

    def __init__(self, where, logs, errors):
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(FILES), str(FILES.parent)])}
        command = [sys.executable, "-c", WRITERS, where]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self._errors = errors
        with errors.open("w") as file:
            self._forks = subprocess.Popen(command, env=environment, stderr=file, **pipes)
        self._pids = {}
        self._begun = {}
        for log in logs:
            self.start(log)

    def start(self, log):
        own = written_by(log)
        self._begun[log] = len(own)
        self._forks.stdin.write(json.dumps([str(log), own[-1][0] + 1 if own else 0]) + "\n")
        self._forks.stdin.flush()
        self._pids[log] = int(self._forks.stdout.readline())

    def that_have_written(self):
        """Return the logs of those that have written since they were started; none may have ended."""
        assert all(Path(f"/proc/{pid}").exists() for pid in self._pids.values()), self._errors.read_text()
        return [log for log in self._pids if len(written_by(log)) > self._begun[log]]

    def kill(self, log):
        pid = self._pids[log]
        os.kill(pid, signal.SIGKILL)
        while Path(f"/proc/{pid}").exists():
            time.sleep(0.001)

    def end(self):
        for log in self._pids:
            self.kill(log)
        self._forks.communicate("")


def written_by(log):
    """Return what a writer had been told to be kept when it was killed, as numbers and ids."""
    lines = log.read_text().split("\n")[:-1] if log.exists() else []
    return [(int(at), uuid) for at, uuid in map(str.split, lines)]


@pytest.mark.skipif(sys.platform != "linux", reason="tells processes by /proc")
@pytest.mark.parametrize("kind", ["folder", "sqlite", "postgresql"])
def test_of_what_16_write_at_once_and_are_killed_nothing_is_lost_and_nothing_twice(kind, store_of, tmp_path):
    where, chosen = store_of(kind), random.Random(11)
    logs = [tmp_path / f"log{number}" for number in range(16)]
    writers = Writers(where, logs, tmp_path / "errors")
    try:
        for _ in range(8):  # All of them are killed at the end.
            while not (written := writers.that_have_written()):
                time.sleep(0.05)
            time.sleep(chosen.random() / 20)
            log = chosen.choice(written)
            writers.kill(log)
            writers.start(log)
        while not all(map(written_by, logs)):
            writers.that_have_written()
            time.sleep(0.05)
    finally:
        writers.end()
    acknowledged = {uuid for log in logs for _, uuid in written_by(log)}
    records = kept(where)
    assert all(isinstance(record, RunRecord) for record in records)
    ids = [record.uuid for record in records]
    assert len(ids) == len(set(ids))
    assert acknowledged <= set(ids)
    # At most what each was writing when it was killed is there without its having been told so.
    assert len(ids) <= len(acknowledged) + 8 + 16
    if kind in DATABASES:
        before = rows(where)
        assert len(before["run"]) == len(ids)
        assert len(before["measurement"]) == 3 * len(ids)
        assert main(["history", "rebuild", where]) == 0
        assert rows(where) == before


# ------------------------------------------------------------------------------------- what people say of a history


def id_of_the_event(capsys, where):
    (event,) = json.loads(answers(capsys, where, "changes", "--json"))["events"]
    return event["id"]


def test_a_change_that_is_accepted_no_longer_fails_and_stays_listed_with_its_reason(where, capsys):
    fill(where, [run_of(at, launched(TEST, FIVE if at < 2 else SIX)) for at in range(4)])
    failing = ["history", "changes", where, "--fail-on", "counts"]
    assert main(failing) == 1
    capsys.readouterr()
    own = id_of_the_event(capsys, where)
    answers(capsys, where, "accept", own[:8], "the gate needs its sigmoid")
    assert main(failing) == 0
    shown = capsys.readouterr().out
    assert own[:8] in shown
    assert "known: the gate needs its sigmoid" in shown
    later = launched("test_m.py::test_other", FIVE), launched("test_m.py::test_other", SIX)
    fill(where, [run_of(at, later[at >= 2], began=run_of(9).began) for at in range(4)])
    assert main(failing) == 1


def test_a_change_that_is_accepted_fails_again_where_a_newly_measured_commit_says_another(commented, capsys):
    fill(commented, [run_of(at, launched(TEST, FIVE if at < 2 else SIX)) for at in (0, 4, 5)])
    answers(capsys, commented, "accept", id_of_the_event(capsys, commented), "expected")
    fill(commented, [run_of(2, launched(TEST, SIX))])
    assert main(["history", "changes", commented, "--fail-on", "counts"]) == 1


def test_the_log_of_a_test_shows_the_id_under_which_its_change_alone_is_accepted_or_remarked_on(commented, capsys):
    other = "test_m.py::test_other"
    counts = [FIVE, FIVE, SIX, SIX]
    fill(commented, [run_of(at, launched(TEST, own), launched(other, own)) for at, own in enumerate(counts)])
    (event,) = json.loads(answers(capsys, commented, "changes", "--json"))["events"]
    own = {change["test"]: change["id"] for change in event["tests"]}
    assert event["id"] not in own.values()
    assert f"[{own[TEST][:8]}]" in answers(capsys, commented, "log", TEST)
    answers(capsys, commented, "accept", own[TEST][:8], "meant here")
    answers(capsys, commented, "note", own[TEST][:8], "for the gate")
    log, log_of_other = answers(capsys, commented, "log", TEST), answers(capsys, commented, "log", other)
    for text in ("known: meant here", "note: for the gate"):
        assert text in log
        assert text not in log_of_other
    assert main(["history", "changes", commented, "--fail-on", "counts"]) == 1
    out = capsys.readouterr().out
    assert "note: for the gate" in out
    # Of the other test nothing is known yet.
    assert " ".join(out.split()).count("5 -> 6; known: meant here") == 1
    assert out.count("known:") == 1
    answers(capsys, commented, "accept", own[other][:8], "and there")
    assert main(["history", "changes", commented, "--fail-on", "counts"]) == 0
    assert "    known: and there; meant here\n" in capsys.readouterr().out


def shown_ids(out):
    return re.findall(r"\[([0-9a-f]{8})\]", out)


def test_every_id_that_the_log_shows_is_taken_also_where_versions_side_by_side_have_changed_alike(store_of, capsys):
    where = store_of("folder")
    other = "test_m.py::test_other"
    fill(
        where,
        [
            run_of(at, launched(TEST, own), launched(other, own), environment=environment)
            for at, own in enumerate([FIVE, FIVE, SIX, SIX])
            for environment in (H100, UPGRADED)
        ],
    )
    for test in (TEST, other):
        (own,) = shown_ids(answers(capsys, where, "log", test))
        assert "known from now on, in 1 test" in answers(capsys, where, "accept", own, "meant")
    assert main(["history", "changes", where, "--fail-on", "counts"]) == 0


def test_what_was_accepted_stays_so_though_the_test_is_renamed_later(commented, capsys):
    new = "test_new.py::test_block"
    runs = [run_of(at, launched(TEST if at < 4 else new, FIVE if at < 2 else SIX)) for at in range(6)]
    fill(commented, runs)
    answers(capsys, commented, "accept", id_of_the_event(capsys, commented), "as planned")
    answers(capsys, commented, "alias", TEST, new)
    assert main(["history", "changes", commented, "--fail-on", "counts"]) == 0
    assert "known: as planned" in capsys.readouterr().out


def test_an_alias_joins_the_series_of_a_test_that_was_renamed_and_can_be_taken_back(where, capsys):
    new = "test_new.py::test_block"
    fill(where, [run_of(at, launched(TEST if at < 2 else new, FIVE if at < 3 else SIX)) for at in range(5)])
    assert len(json.loads(answers(capsys, where, "changes", "--json"))["series"]) == 2
    answers(capsys, where, "alias", TEST, new)
    (joined,) = json.loads(answers(capsys, where, "changes", "--json"))["series"]
    assert (joined["test"], joined["points"], joined["missing"]) == (new, 5, 0)
    assert answers(capsys, where, "log", TEST) == answers(capsys, where, "log", new)
    assert main(["history", "alias", where, new, TEST]) == 2
    assert TEST in capsys.readouterr().err
    answers(capsys, where, "alias", TEST, TEST)
    assert len(json.loads(answers(capsys, where, "changes", "--json"))["series"]) == 2


OLD_FILE, NEW_FILE = "test_old.py::test_{}", "tests/test_new.py::test_{}"


def joined_in(capsys, where):
    """Return how many points the series of each test have."""
    return {own["test"]: own["points"] for own in json.loads(answers(capsys, where, "changes", "--json"))["series"]}


def test_an_alias_of_all_tests_of_a_file_joins_each_with_its_later_name_and_can_be_taken_back(commented, capsys):
    moved = [
        run_of(at, *(launched((OLD_FILE if at < 2 else NEW_FILE).format(own), FIVE if at < 3 else SIX) for own in "ab"))
        for at in range(5)
    ]
    fill(commented, moved)
    old, new = "test_old.py::*", "tests/test_new.py::*"
    assert set(joined_in(capsys, commented).values()) == {2, 3}
    assert f"{old} is {new} now" in answers(capsys, commented, "alias", old, new)
    assert joined_in(capsys, commented) == {NEW_FILE.format(own): 5 for own in "ab"}
    assert answers(capsys, commented, "log", OLD_FILE.format("a")) == answers(
        capsys, commented, "log", NEW_FILE.format("a")
    )
    # A single test may have got another name, and goes before.
    answers(capsys, commented, "alias", OLD_FILE.format("b"), OLD_FILE.format("b"))
    assert joined_in(capsys, commented) == {
        NEW_FILE.format("a"): 5,
        NEW_FILE.format("b"): 3,
        OLD_FILE.format("b"): 2,
    }
    assert main(["history", "alias", commented, new, old]) == 2
    assert old in capsys.readouterr().err
    answers(capsys, commented, "alias", old, old)
    assert set(joined_in(capsys, commented).values()) == {2, 3}


@pytest.mark.parametrize(
    ("names", "aliases"),
    [
        (("t.py::test_a", "t.py::TestAll::test_a"), [("t.py::*", "t.py::TestAll::*")]),
        (("t.py::TestAll::test_a", "t.py::test_a"), [("t.py::TestAll::*", "t.py::*")]),
        (
            ("t.py::TestA::test_a", "n.py::TestB::test_a"),
            [("t.py::*", "u.py::*"), ("t.py::TestA::*", "n.py::TestB::*")],
        ),
        (("a.py::test_a", "b.py::test_a", "c.py::test_b"), [("a.py::*", "b.py::*"), ("b.py::test_a", "c.py::test_b")]),
    ],
    ids=["into a class", "out of a class", "the longest name counts", "moved and then renamed"],
)
def test_names_are_followed_through_files_and_classes(commented, capsys, names, aliases):
    fill(commented, [run_of(at, launched(names[min(at, len(names) - 1)], FIVE)) for at in range(4)])
    for old, new in aliases:
        assert main(["history", "alias", commented, old, new]) == 0
    capsys.readouterr()
    assert joined_in(capsys, commented) == {names[-1]: 4}


def test_renamings_that_lead_to_each_other_leave_names_as_they_are(commented, capsys):
    fill(commented, [run_of(at, launched(TEST, FIVE)) for at in range(2)])
    file = TEST.partition("::")[0]
    for old, new in ((f"{file}::*", "b.py::TestB::*"), ("b.py::*", f"{file}::TestA::*")):
        store(commented).add_note(Note(kind=NoteKind.ALIAS, about=old, text=new, when=DAY))
    assert joined_in(capsys, commented) == {TEST: 2}


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ("test_model.py::*", "test_new.py", "bad-usage"),
        ("test_model.py::test_block", "test_new.py::*", "bad-usage"),
        ("test_modl.py::*", "test_new.py::*", "no-history"),
        ("test_model.py::*", "test_beside.py::*", "bad-usage"),
        ("test_model.py", "test_new.py", "bad-usage"),
        ("tests/*", "new/*", "bad-usage"),
        (TEST, "test_new.py", "bad-usage"),
    ],
    ids=[
        "a file to none",
        "a test to a file",
        "a file that no run has",
        "two tests of one run",
        "files without their tests",
        "folders",
        "a test to a file without its tests",
    ],
)
def test_files_that_cannot_be_joined_are_refused(commented, capsys, old, new, code):
    fill(commented, [run_of(1, launched(TEST, FIVE), launched("test_beside.py::test_block", FIVE))])
    assert main(["history", "alias", commented, old, new]) == 2
    assert f"[{code}]" in capsys.readouterr().err


def test_a_file_that_is_named_without_its_tests_is_answered_with_what_to_write(commented, capsys):
    fill(commented, [run_of(1, launched(TEST, FIVE))])
    assert main(["history", "alias", commented, "test_model.py", "test_new.py"]) == 2
    assert "test_model.py::*" in capsys.readouterr().err
    assert main(["history", "alias", commented, "tests/*", "new/*"]) == 2
    assert "'tests/test_old.py::*' 'tests/test_new.py::*'" in capsys.readouterr().err


def old_names(capsys, where):
    told = json.loads(answers(capsys, where, "changes", "--json"))
    return [(own["old"], own["now"], own["alias"], own["since"]) for own in told["old_names"]]


def test_a_later_test_under_an_earlier_name_is_named_with_the_line_that_takes_it_for_its_own(commented, capsys):
    """In the file of the old name somebody has begun anew."""
    old, new, later = OLD_FILE.format("a"), NEW_FILE.format("a"), OLD_FILE.format("later")
    moved = [run_of(at, launched(old if at < 2 else new, FIVE)) for at in range(4)]
    fill(commented, moved)
    answers(capsys, commented, "alias", "test_old.py::*", "tests/test_new.py::*")
    assert old_names(capsys, commented) == []
    fill(commented, [run_of(at, launched(new, FIVE), launched(later, SIX)) for at in (4, 5)])
    assert old_names(capsys, commented) == [(later, NEW_FILE.format("later"), "test_old.py::*", sha(4))]
    shown = " ".join(answers(capsys, commented, "changes").split())
    assert f"torchprof history alias STORE {later} {later}" in shown
    answers(capsys, commented, "alias", later, later)
    assert old_names(capsys, commented) == []
    assert joined_in(capsys, commented) == {new: 6, later: 2}


def test_a_test_that_takes_the_earlier_name_of_another_is_named_unless_the_renaming_came_back(commented, capsys):
    new = "test_new.py::test_block"
    names = [TEST, TEST, new, new, TEST]
    fill(commented, [run_of(at, launched(name, FIVE)) for at, name in enumerate(names)])
    answers(capsys, commented, "alias", TEST, new)
    assert old_names(capsys, commented) == [(TEST, new, TEST, sha(4))]
    fill(commented, [run_of(5, launched(new, FIVE))])
    assert old_names(capsys, commented) == []


def test_a_test_that_was_gone_before_its_file_moved_is_no_later_one(commented, capsys):
    old, new, gone = OLD_FILE.format("a"), NEW_FILE.format("a"), OLD_FILE.format("gone")
    there = launched(NEW_FILE.format("ever"), FIVE)
    fill(commented, [run_of(0, launched(old, FIVE), launched(gone, FIVE), there)])
    fill(commented, [run_of(at, launched(old if at < 2 else new, FIVE), there) for at in range(1, 4)])
    answers(capsys, commented, "alias", "test_old.py::*", "tests/test_new.py::*")
    assert old_names(capsys, commented) == []


def test_what_was_accepted_stays_so_though_its_file_moves_later(commented, capsys):
    fill(commented, [run_of(at, launched(TEST, FIVE if at < 2 else SIX)) for at in range(4)])
    (change,) = json.loads(answers(capsys, commented, "changes", "--json"))["events"]
    answers(capsys, commented, "accept", change["id"], "meant")
    fill(commented, [run_of(at, launched("new.py::test_block", SIX)) for at in (4, 5)])
    answers(capsys, commented, "alias", "test_model.py::*", "new.py::*")
    (known,) = json.loads(answers(capsys, commented, "changes", "--json", "--fail-on=counts"))["events"]
    assert known["accepted"] == "meant"


def test_an_alias_for_a_name_that_no_run_has_yet_is_kept_and_warned_of(commented, capsys):
    new = "test_new.py::test_block"
    fill(commented, [run_of(0, launched(TEST, FIVE)), run_of(1, launched(new, FIVE))])
    assert main(["history", "alias", commented, TEST, f"{new}s"]) == 0
    told = capsys.readouterr()
    assert f"{TEST} is {new}s now" in told.out
    assert f"no run has measured {new}s yet; did you mean {new!r}?" in told.err
    assert main(["history", "alias", commented, TEST, new]) == 0
    assert capsys.readouterr().err == ""


def test_two_tests_of_one_run_are_never_joined(commented, capsys):
    other = "test_m.py::test_other"
    fill(commented, [run_of(1, launched(TEST, FIVE)), run_of(2, launched(other, FIVE))])
    answers(capsys, commented, "alias", TEST, other)
    both = run_of(3, launched(TEST, SIX), launched(other, FIVE))
    fill(commented, [both])
    series = json.loads(answers(capsys, commented, "changes", "--json"))
    assert {own["test"]: own["points"] for own in series["series"]} == {TEST: 1, other: 3}
    assert series["events"] == []
    assert main(["history", "alias", commented, other, TEST]) == 2
    assert both.uuid in capsys.readouterr().err


def many_sided(tests, commits, seed):
    """Return runs of a history with all that may happen to a test in one, and the names of its tests."""
    chosen = random.Random(seed)
    names = [f"test_m.py::test_{at}" for at in range(tests)]
    runs = []
    shared = sorted(chosen.sample(range(2, commits), 2))
    for commit in range(commits):
        for again in range(2 if commit % 5 == 0 else 1):
            measured = []
            for at, name in enumerate(names):
                count = 3 + sum(commit >= step for step in shared if at % 3) + (commit % 7 == 3 and at == 4)
                kernels = {"gemm": count, name: 1 + (at == 5 and commit % 5 == 0 and again)}
                facts = {"source": "edited"} if at == 2 and commit > commits // 2 else {}
                if at == 7:
                    measured += [launched(name, kernels, rank=rank, ranks=2) for rank in (0, 1)]
                elif at == 8:
                    measured += [launched(name, kernels, label=label) for label in (None, "eager")]
                elif at == 6 and commit < 6:
                    measured.append(launched("test_m.py::test_old", kernels))
                elif chosen.random() > 0.05 and not (at == 3 and commit > commits - 4):
                    measured.append(launched(name, None if chosen.random() < 0.05 else kernels, **facts))
            untimed = [VaryingRecord(numbers={"gpu_busy_us": 10 * chosen.lognormvariate(0, 0.01)}) for _ in measured]
            time = Times(
                conditions={"threads": 1}, samples=3, median_us=chosen.uniform(9, 10), quantiles_us=(9.0, 10.0)
            )
            untimed[0] = VaryingRecord(time=time)
            run = run_of(
                commit,
                *measured,
                varying=tuple(untimed),
                environment=UPGRADED if commit > commits * 2 // 3 else H100,
                all_tests=AllTests(below=("",), unmeasured=("test_m.py::test_3",)) if commit == commits - 1 else None,
                dirty=chosen.random() < 0.05,
            )
            runs.append(replace(run, uuid=f"{len(runs):032x}"))
    return runs, [*names, "test_m.py::test_old", "test_m.py::test_7, rank 1 of 2", "test_m.py::test_8 (eager)"]


def test_a_database_is_asked_for_one_test_and_tells_what_a_folder_of_the_same_records_tells(database, tmp_path, capsys):
    runs, names = many_sided(9, 14, seed=12)
    folder = str(tmp_path / "folder")
    for where in (folder, database):
        fill(where, runs)
        answers(capsys, where, "alias", "test_m.py::test_old", "test_m.py::test_6")
        answers(capsys, where, "note", sha(3), "a remark")
    event = json.loads(answers(capsys, folder, "changes", "--json"))["events"][0]["id"]
    for where in (folder, database):
        answers(capsys, where, "accept", event, "meant")
    statuses = set()
    for name in names:
        assert answers(capsys, database, "log", name) == answers(capsys, folder, "log", name)
        told = []
        for where in (database, folder):
            # What hangs on a gap is one in both.
            status = main(["history", "when", where, name, "kernels >= 5"])
            told.append((status, capsys.readouterr().out.replace(where, "STORE")))
        assert told[0] == told[1]
        statuses.add(told[0][0])
    assert statuses == {0, 3}
    refusals = []
    # The first begins as another test does, whose name is not the nearest.
    for name in ("test_m.py::test_8x", "test_m.py::test_nowhere", "test_m.py::test_old (eager)"):
        for where in (folder, database):
            assert main(["history", "log", where, name]) == 2
            refusals.append(capsys.readouterr().err)
    assert refusals[::2] == refusals[1::2]


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="only Linux tells how much a process has read")
@pytest.mark.parametrize("heads", [0, 500], ids=["usual heads", "one long head"])
def test_of_each_record_in_an_sqlite_file_the_log_reads_the_beginning_alone(store_of, capsys, heads):
    where, chosen = store_of("sqlite"), random.Random(1)
    large = launched("test_m.py::test_b", {chosen.randbytes(1 << 18).hex(): 1})
    runs = [run_of(at, launched(TEST, FIVE if at < 4 else SIX), large) for at in range(8)]
    long = AllTests(
        below=("",), unmeasured=tuple(f"test_m.py::test_{chosen.randbytes(16).hex()}" for _ in range(heads))
    )
    fill(where, [*runs[:-1], replace(runs[-1], all_tests=long)])
    before = characters_read()
    assert "5 to 6" in answers(capsys, where, "log", TEST)
    assert characters_read() - before < sum(len(encode(run)) for run in runs) / 2


def characters_read():
    """Return how much this process has read of files."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(dict(line.split(": ") for line in lines)["rchar"])


TAMPERED = {
    "a number": ("UPDATE measurement SET kernels = 9 WHERE position = 0", "kernels is 9.0, in the record 5.0"),
    "a row less": ("DELETE FROM measurement WHERE position = 1", "table measurement, row 1 is missing"),
    "a test": ("UPDATE test SET nodeid = 'test_m.py::test_x'", "nodeid is test_m.py::test_x, in the record"),
    "a structure": ("UPDATE structure SET name = 'x'", "name is x, in the record"),
    "a branch": ("UPDATE run SET branch = 'other\x1b[31m'", "branch is other"),
    "a date": ("UPDATE \"commit\" SET date = '2020-02-02 00:00:00'", "date is 2020-02-02"),
    "a time": ("UPDATE measurement SET gpu_busy_us = NULL", "gpu_busy_us is None, in the record 1"),
    "the run": ("DELETE FROM measurement; DELETE FROM run", "table run, row"),
}


def test_a_row_that_says_something_else_than_its_record_is_named_until_the_tables_are_made_anew(database, capsys):
    fill(database, [run_of(0, launched(TEST, FIVE), launched("test_m.py::test_b", FIVE))])
    assert answers(capsys, database, "verify") == "1 record read, 0 cannot be believed\n"
    for what, (statements, named) in TAMPERED.items():
        with connected(database) as connection:
            for statement in statements.split("; "):
                connection.exec_driver_sql(statement)
        assert main(["history", "verify", database]) == 1, what
        told = capsys.readouterr()
        assert named in told.err
        assert "\x1b" not in told.err
        assert "torchprof history rebuild" in told.out
        answers(capsys, database, "rebuild")
        assert answers(capsys, database, "verify") == "1 record read, 0 cannot be believed\n"


def test_rows_of_any_history_are_what_its_records_make(database, capsys):
    runs, _ = many_sided(4, 8, seed=5)
    fill(database, runs)
    assert f"{len(runs)} records read, 0 cannot be believed\n" == answers(capsys, database, "verify")


def test_rows_of_no_record_are_named(store_of, capsys):
    where = store_of("sqlite")
    fill(where, [run_of(0, launched(TEST, FIVE))])
    with connected(where) as connection:
        connection.exec_driver_sql("UPDATE run SET uuid = 'nobody'")
        connection.exec_driver_sql("UPDATE measurement SET position = 7")
    assert main(["history", "verify", where]) == 1
    told = capsys.readouterr().err
    assert "nobody: table run, row nobody is of no record" in told
    assert "table measurement, row 7 is of no record" in told
    assert "table measurement, row 0 is missing" in told


def test_remarks_stand_where_their_commit_or_their_event_is_listed(where, capsys):
    fill(where, [run_of(at, launched(TEST, FIVE if at < 2 else SIX)) for at in range(4)])
    own, first, changed = id_of_the_event(capsys, where), sha(0), sha(2)
    answers(capsys, where, "note", first[:10], "the first week\x1b[31m")
    answers(capsys, where, "note", changed, "with the new gate")
    answers(capsys, where, "note", own[:8], "nobody minds")
    answers(capsys, where, "note", own[:8], "and nobody did")
    changes, log = answers(capsys, where, "changes"), answers(capsys, where, "log", TEST)
    for remark in ("with the new gate", "nobody minds", "and nobody did"):
        assert f"note: {remark}" in changes
        assert f"note: {remark}" in log
    assert f"{first[:7]}: the first week" in log
    assert "\x1b" not in log
    assert "the first week" not in changes


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (("accept", "0000000", "why"), "[no-history]"),
        (("accept", "0", "why"), "[bad-usage]"),
        (("note", "abcdef0", "text"), "[no-history]"),
        (("note", sha(1), " "), "[bad-usage]"),
        (("note", sha(1), "x" * 5000), "[bad-usage]"),
        (("alias", "test_x.py::test_none", TEST), "[no-history]"),
    ],
)
def test_notes_on_what_is_not_there_are_refused(store_of, capsys, command, code):
    where = store_of("folder")
    fill(where, [run_of(at, launched(TEST, FIVE)) for at in range(3)])
    assert main(["history", command[0], where, *command[1:]]) == 2
    assert code in capsys.readouterr().err
    assert store(where).notes() == []


@pytest.mark.parametrize(("kind", "other"), INTO)
def test_notes_are_merged_and_the_later_one_counts_but_are_never_imported(store_of, kind, other, capsys):
    where, first = store_of(kind), store_of(other)
    for own in (where, first):
        fill(own, [run_of(at, launched(ODD if at < 2 else TEST, FIVE)) for at in range(4)])
    assert store(first).add_note(Note(kind=NoteKind.ALIAS, about=ODD, text="an older one", when=DAY))
    answers(capsys, where, "alias", ODD, TEST)
    answers(capsys, first, "note", sha(1), ODD)
    assert main(["history", "import", where, first]) == 0
    assert len(store(where).notes()) == 1
    answers(capsys, where, "merge", first)
    assert {note.text for note in store(where).notes()} == {TEST, ODD}
    assert "0 records added" in answers(capsys, where, "merge", first)
    assert len(store(where).notes()) == 2


def test_a_note_that_is_damaged_is_named_and_left_out(store_of, capsys):
    where = store_of("folder")
    fill(where, [run_of(at, launched(TEST, FIVE)) for at in range(3)])
    answers(capsys, where, "note", sha(1), "here")
    (file,) = Path(where).glob("*.note.json")
    file.write_bytes(file.read_bytes()[:-5])
    assert main(["history", "verify", where]) == 2
    assert file.name in capsys.readouterr().err
    assert main(["history", "log", where, TEST]) == 0
    assert file.name in capsys.readouterr().err


# ---------------------------------------------------------------------------------------------- old records leave it


@pytest.mark.parametrize("choice", [("--before", "2026-01-05"), ("--keep", "4")])
def test_old_records_are_removed_only_when_asked_and_what_stays_is_whole(where, capsys, choice):
    runs = [run_of(at, launched(TEST, {**FIVE, "pointwise": at + 1})) for at in range(8)]
    fill(where, runs)
    answers(capsys, where, "note", sha(6), "stays")
    assert "4 records of 2026-01-01 to 2026-01-04 would be removed, 4 stay" in answers(capsys, where, "prune", *choice)
    assert len(kept(where)) == 8
    assert (
        answers(capsys, where, "prune", *choice, "--yes") == "4 records of 2026-01-01 to 2026-01-04 removed, 4 stay\n"
    )
    assert kept(where) == sorted(runs[4:], key=lambda run: run.uuid)
    assert answers(capsys, where, "prune", *choice) == "0 records would be removed, 4 stay\n"
    assert "stays" in answers(capsys, where, "log", TEST)
    assert [store(where).add(run) for run in runs] == [True] * 4 + [False] * 4


@pytest.mark.parametrize("named", ["id", "commit"])
def test_a_single_run_is_removed_by_its_id_or_its_commit(where, capsys, named):
    runs = [run_of(at, launched(TEST, {**FIVE, "pointwise": at + 1})) for at in range(4)]
    fill(where, runs)
    name = {"id": runs[1].uuid, "commit": sha(1)}[named][:12]
    assert "1 record of 2026-01-02 would be removed, 3 stay" in answers(capsys, where, "prune", "--run", name)
    assert answers(capsys, where, "prune", "--run", name, "--yes") == "1 record of 2026-01-02 removed, 3 stay\n"
    assert kept(where) == sorted([runs[0], *runs[2:]], key=lambda run: run.uuid)
    refused = why_command_refused("history", "prune", where, "--run", name, "--yes")
    assert says(refused, NoSuchRun, beginning=name)


def remedy_in(text):
    """Return the words of the command that ``verify`` prints for a record."""
    (command,) = re.findall(r"torchprof (history prune .+ --yes) removes it", text)
    return shlex.split(command)


@pytest.mark.parametrize("damage", ["its beginning", "its end"])
def test_a_record_that_was_damaged_in_a_database_is_removed_by_the_line_that_verify_prints(
    database, store_of, capsys, damage
):
    import sqlalchemy

    runs = [run_of(at, launched(TEST, FIVE)) for at in range(4)]
    fill(database, runs)
    whole = encode(runs[2])
    damaged = bytes(20) + whole[20:] if damage == "its beginning" else whole[:-20]
    with connected(database) as connection:
        change = sqlalchemy.text("UPDATE record SET packed = :packed WHERE uuid = :uuid")
        connection.execute(change, {"packed": damaged, "uuid": runs[2].uuid})
    assert main(["history", "verify", database]) == 2
    told = capsys.readouterr().err
    if "***" in told:
        told = told.replace(store(database).shown, database)
    words = remedy_in(told)
    assert main([*words[:-1]]) == 0
    assert "1 damaged record would be removed, 3 stay" in capsys.readouterr().out
    assert main(words) == 0
    assert capsys.readouterr().out == "1 damaged record removed, 3 stay\n"
    assert main(["history", "verify", database]) == 0
    never = store_of(database.partition(":")[0].partition("+")[0])
    fill(never, [run for run in runs if run is not runs[2]])
    assert rows(database) == rows(never)


def test_the_tables_of_what_was_removed_are_those_of_a_store_that_never_had_it(database, store_of):
    runs = [run_of(at, launched(TEST, {**FIVE, f"pointwise {at}": at + 1})) for at in range(6)]
    never = store_of("sqlite" if database.startswith("sqlite") else "postgresql")
    fill(database, runs)
    fill(never, runs[3:])
    assert store(database).remove([run.uuid for run in runs[:3]]) == 3
    assert rows(database) == rows(never)


@pytest.mark.parametrize(
    "choice",
    [
        (),
        ("--keep", "0"),
        ("--keep", "-1"),
        ("--before", "soon"),
        ("--keep", "1", "--before", "2026-01-01"),
        ("--run", "00"),
    ],
)
def test_what_is_to_be_removed_must_be_said_in_one_way(store_of, capsys, choice):
    where = store_of("folder")
    fill(where, [run_of(1, launched(TEST, FIVE))])
    with pytest.raises(SystemExit) as ended:
        raise SystemExit(main(["history", "prune", where, "--yes", *choice]))
    assert ended.value.code == 2
    capsys.readouterr()
    assert len(kept(where)) == 1


# ------------------------------------------------------------------------------------------------- for other tools


def test_the_rows_of_all_runs_are_exported_from_every_store(where, capsys, tmp_path):
    fill(where, [run_of(at, launched(TEST, FIVE if at < 2 else SIX, label="=1+1")) for at in range(4)])
    fill(where, [run_of(4, launched(TEST, None), event=Event.PR, dirty=True)])
    lines = [json.loads(line) for line in answers(capsys, where, "export", "--as", ".jsonl").splitlines()]
    by_commit = {line["commit"]: line for line in lines}
    assert {number: by_commit[sha(number)]["numbers"].get("kernels") for number in range(5)} == {
        0: 5, 1: 5, 2: 6, 3: 6, 4: None,
    }  # fmt: skip
    assert by_commit[sha(4)]["verdict"] == "not measured"
    assert by_commit[sha(4)]["dirty"] is True
    assert len({line["run"] for line in lines}) == 5
    out = tmp_path / "out" / "rows.csv"
    assert answers(capsys, where, "export", "--as", ".csv", "-o", str(out)) == ""
    with out.open(newline="") as file:
        cells = list(csv.DictReader(file))
    assert [(row["run"], row["label"].lstrip("'"), row["kernels"]) for row in cells] == [
        (line["run"], line["label"] or "", str(line["numbers"].get("kernels") or "")) for line in lines
    ]


def test_forms_of_one_run_tell_the_newest_complete_run_of_the_branch(store_of, capsys):
    where = store_of("folder")
    fill(where, [run_of(at, launched(TEST, FIVE if at < 2 else SIX)) for at in range(4)])
    fill(
        where,
        [run_of(5, launched(TEST, {"pointwise": 9}), complete=False), run_of(6, launched(TEST, FIVE), dirty=True)],
    )
    assert json.loads(answers(capsys, where, "export", "--as", ".bmf.json"))[TEST]["kernels"] == {"value": 6}
    rows = json.loads(answers(capsys, where, "export", "--as", ".benchmark.json"))
    assert {"name": f"{TEST}: kernels", "unit": "kernels", "value": 6} in rows
    records = json.loads(answers(capsys, where, "export", "--as", ".pytorch.json"))
    assert {record["model"]["name"] for record in records} == {TEST}
    stopped = store_of("folder")
    fill(stopped, [run_of(5, launched(TEST, FIVE), complete=False)])
    assert main(["history", "export", stopped, "--as", ".bmf.json"]) == 2
    assert "[no-history]" in capsys.readouterr().err


@pytest.mark.parametrize("form", [".jsonl", ".csv", ".benchmark.json", ".bmf.json", ".pytorch.json"])
def test_a_run_and_its_record_export_the_same(run_tests, store_of, pytester, capsys, form):
    where = store_of("folder")
    run_tests(MEASURED, f"--torchprof-history={where}", f"--torchprof-report=run{form}").assert_outcomes(passed=1)
    (record,) = kept(where)
    fill(other := store_of("folder"), [replace(record, commit=run_of(1).commit)])
    capsys.readouterr()
    assert main(["history", "export", other, "--as", form]) == 0
    exported = capsys.readouterr().out
    own = (pytester.path / f"run{form}").read_text()
    if form == ".csv":
        own, exported = (list(csv.DictReader(io.StringIO(text))) for text in (own, exported))
    if form == ".jsonl":
        own, exported = ([json.loads(line) for line in text.splitlines()] for text in (own, exported))
    if form in (".csv", ".jsonl"):
        for row in (*own, *exported):
            for name in ("run", "began", "commit", "branch", "dirty"):
                del row[name]
    assert without_unknown(own) == without_unknown(exported)


def without_unknown(value):
    """Return parsed rows without the numbers that are not known: a record does not name them."""
    if isinstance(value, list):
        return [without_unknown(held) for held in value]
    if isinstance(value, dict):
        return {name: without_unknown(held) for name, held in value.items() if held is not None}
    return value
