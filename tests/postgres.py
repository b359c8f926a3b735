"""A PostgreSQL server for tests: on a socket in a temporary folder, of an account that is not root's."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

if TYPE_CHECKING:
    from collections.abc import Iterator

USER = "torchprof"
PASSWORD = "s3cr@t/:?"
"""With all that separates the parts of a URL."""


class Server:
    """A server that runs, and makes databases."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._names = (f"history{number}" for number in count())

    def url(self, database: str, password: str = PASSWORD) -> str:
        """Return the address of a database, whether it is there or not."""
        return f"postgresql+psycopg://{USER}:{quote(password, safe='')}@/{database}?host={self.folder}"

    def database(self) -> str:
        """Make an empty schema, which is as good as a database of its own and much cheaper; return its address."""
        import psycopg

        name = next(self._names)
        with psycopg.connect(host=str(self.folder), user=USER, password=PASSWORD, dbname="postgres") as connection:
            connection.execute(f'CREATE SCHEMA "{name}"')
        return f"{self.url('postgres')}&options=-csearch_path%3D{name}"


def why_not() -> str | None:
    """Return why there can be no server here; None where there can."""
    try:
        import psycopg  # noqa: F401
    except ImportError:
        return "needs psycopg"
    if _programs() is None:
        return "needs the programs of PostgreSQL: initdb and pg_ctl"
    if os.geteuid() == 0 and _account() is None:
        return "PostgreSQL does not run as root, and there is neither the account postgres nor nobody"
    return None


@contextmanager
def server() -> Iterator[Server]:
    """Yield a server, which is stopped and removed at the end."""
    # The folder that TMPDIR names may be one that no other account may enter.
    programs, folder = _programs(), Path(tempfile.mkdtemp(prefix="pg", dir="/tmp" if os.geteuid() == 0 else None))
    as_account = {}
    if os.geteuid() == 0:
        user, group = _account()
        os.chown(folder, user, group)
        as_account = {"user": user, "group": group, "extra_groups": []}

    def run(program: str, *words: str) -> None:
        log = folder / "programs.log"
        with log.open("ab") as output:
            # What it starts keeps its output open.
            done = subprocess.run(
                [programs / program, *words], cwd="/", stdout=output, stderr=output, check=False, **as_account
            )
        assert done.returncode == 0, log.read_text()

    (folder / "password").write_text(PASSWORD)
    (folder / "password").chmod(0o644)
    data, log = folder / "data", folder / "server.log"
    # The port is a part of the socket's name alone. What a crash of the server would lose is not asked here.
    settings = f"-k {folder} -c listen_addresses='' -c fsync=off -c autovacuum=off -c max_connections=100"
    try:
        # By SCRAM both ends hash the password 4096 times for each connection.
        run("initdb", "-D", data, "-U", USER, "-A", "md5", f"--pwfile={folder / 'password'}", "-E", "UTF8")
        run("pg_ctl", "-D", data, "-l", log, "-w", "-o", settings, "start")
        try:
            yield Server(folder)
        finally:
            run("pg_ctl", "-D", data, "-m", "immediate", "-w", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _programs() -> Path | None:
    on_path = shutil.which("initdb")
    folders = [Path(on_path).parent] if on_path else sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    return next((folder for folder in reversed(folders) if (folder / "initdb").is_file()), None)


def _account() -> tuple[int, int] | None:
    for name in ("postgres", "nobody"):
        try:
            account = pwd.getpwnam(name)
        except KeyError:
            continue
        return account.pw_uid, account.pw_gid
    return None
