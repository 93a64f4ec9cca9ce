"""A real PostgreSQL for the tests: Debian's, or the one in `.tools/postgres` (`make` installs it
where the machine has none). One cluster for each test process, a fresh database for each test."""

import atexit
import os
import shutil
import socket
import subprocess
import tempfile
from functools import lru_cache
from pathlib import Path

import psycopg

APPLICATION = "upwell_app"
"""The role of the application: neither a superuser nor the owner of the cluster."""
_NOBODY = 65_534
_INSTALLED = Path(__file__).parents[1] / ".tools" / "postgres"


class Cluster:
    """A running cluster. Its files are in a folder of its own; it listens on loopback only."""

    def __init__(self) -> None:
        self._binaries = binaries()
        self.folder = Path(tempfile.mkdtemp(prefix="upwell-postgres-"))
        self.port = _free_port()
        self._databases = 0
        self._shared: str | None = None
        # PostgreSQL refuses to run as root.
        self._user = {"user": _NOBODY, "group": _NOBODY, "extra_groups": []} if _is_root() else {}
        if self._user:
            os.chown(self.folder, _NOBODY, _NOBODY)
        self._run("initdb", "-D", self.data, "-U", "postgres", "-A", "trust", "--no-sync")
        self.start()
        with psycopg.connect(self.url("postgres", "postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE ROLE {APPLICATION} LOGIN")
        atexit.register(self.remove)

    @property
    def data(self) -> str:
        return str(self.folder / "data")

    def url(self, database: str, user: str = APPLICATION) -> str:
        return f"postgresql://{user}@127.0.0.1:{self.port}/{database}"

    def start(self) -> None:
        options = f"-p {self.port} -h 127.0.0.1 -k {self.folder} -c fsync=off"
        log = str(self.folder / "log")
        self._run("pg_ctl", "-D", self.data, "-w", "-o", options, "-l", log, "start")

    def stop(self) -> None:
        self._run("pg_ctl", "-D", self.data, "-w", "-m", "immediate", "stop")

    def remove(self) -> None:
        atexit.unregister(self.remove)
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def emptied(self) -> str:
        """Empty the database that tests share. Returns its address."""
        if self._shared is None:
            self._shared = self.database()
        with psycopg.connect(self._shared, autocommit=True) as connection:
            tables = connection.execute(
                "SELECT tablename FROM pg_tables "
                "WHERE schemaname = 'upwell' AND tablename <> 'migration'"
            ).fetchall()
            if tables:
                names = ", ".join(f"upwell.{table}" for (table,) in tables)
                connection.execute(f"TRUNCATE {names}")
        return self._shared

    def database(self) -> str:
        """Make an empty database that the application owns. Returns its address."""
        self._databases += 1
        name = f"test_{self._databases}"
        with psycopg.connect(self.url("postgres", "postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name} OWNER {APPLICATION}")
        return self.url(name)

    def _run(self, program: str, *args: str) -> None:
        subprocess.run(
            [self._binaries / program, *args],
            check=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            cwd=self.folder,
            timeout=60,
            **self._user,
        )


@lru_cache(maxsize=1)
def cluster() -> Cluster:
    """The cluster of this test process."""
    return Cluster()


def binaries() -> Path:
    """The folder with `initdb` and `pg_ctl`."""
    candidates = [
        *sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True),
        *_INSTALLED.glob("**/bin"),
    ]
    for folder in candidates:
        if (folder / "initdb").exists():
            return folder
    raise AssertionError("no PostgreSQL: run `make .tools/postgres/.ready`")


def _is_root() -> bool:
    return os.geteuid() == 0


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
