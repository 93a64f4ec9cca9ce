"""A real PostgreSQL for the tests: Debian's, or the one in `.tools/postgres` (`make` installs it
where the machine has none). One cluster for each test process, a fresh database for each test."""

import atexit
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

import psycopg

APPLICATION = "upwell_app"
"""The role of the application: neither a superuser nor the owner of the cluster."""
_NOBODY = 65_534
_INSTALLED = Path(__file__).parents[1] / ".tools" / "postgres"


class Cluster:
    """A running cluster. Its files are in a folder of its own; it listens on loopback only. Its
    `tables` or its write-ahead `log` may be elsewhere, for example on a small disk. `programs` is
    the folder of another PostgreSQL's `initdb` and `pg_ctl`."""

    def __init__(
        self,
        standby_of: "Cluster | None" = None,
        *,
        tables: Path | None = None,
        log: Path | None = None,
        programs: Path | None = None,
    ) -> None:
        self._binaries = programs or binaries()
        self.folder = Path(tempfile.mkdtemp(prefix="upwell-postgres-"))
        self.data = str((tables or self.folder) / "data")
        self.port = _free_port()
        self._databases = 0
        self._shared: str | None = None
        # PostgreSQL refuses to run as root.
        self._user = {"user": _NOBODY, "group": _NOBODY, "extra_groups": []} if _is_root() else {}
        if self._user:
            os.chown(self.folder, _NOBODY, _NOBODY)
        if standby_of:
            source = standby_of.url("postgres", "postgres")
            self._run("pg_basebackup", "-D", self.data, "-R", "-d", source, "-c", "fast", "-N")
            self.start()
            atexit.register(self.remove)
            return
        where = ("--waldir", str(log / "log"), "--wal-segsize", "1") if log else ()
        self._run("initdb", "-D", self.data, "-U", "postgres", "-A", "trust", "--no-sync", *where)
        self.start()
        with psycopg.connect(self.url("postgres", "postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE ROLE {APPLICATION} LOGIN")
        atexit.register(self.remove)

    def url(self, database: str, user: str = APPLICATION) -> str:
        return f"postgresql://{user}@127.0.0.1:{self.port}/{database}"

    def start(self) -> None:
        options = f"-p {self.port} -h 127.0.0.1 -k {self.folder} -c fsync=off"
        log = str(self.folder / "log")
        try:
            self._run("pg_ctl", "-D", self.data, "-w", "-o", options, "-l", log, "start")
        except subprocess.CalledProcessError as error:
            raise AssertionError(Path(log).read_text()[-2_000:]) from error

    def is_running(self) -> bool:
        """True until the server has ended."""
        return any(_is_alive(process) for process in self._processes()[:1])

    def stop(self) -> None:
        self._run("pg_ctl", "-D", self.data, "-w", "-m", "immediate", "stop")

    def promote(self) -> None:
        """Make a standby the server that accepts writes."""
        self._run("pg_ctl", "-D", self.data, "-w", "promote")

    def set(self, name: str, value: str) -> None:
        """Change a setting of the running cluster."""
        with psycopg.connect(self.url("postgres", "postgres"), autocommit=True) as connection:
            connection.execute(f"ALTER SYSTEM SET {name} = '{value}'")  # type: ignore[arg-type]
            connection.execute("SELECT pg_reload_conf()")

    def kill(self) -> None:
        """End every process of the cluster with SIGKILL, as a lost machine would."""
        # A stopped postmaster starts no further process.
        for first in self._processes()[:1]:
            os.kill(first, signal.SIGSTOP)
        processes = self._processes()
        self._signal(signal.SIGKILL)
        end = time.monotonic() + 10
        while any(_is_alive(process) for process in processes):
            assert time.monotonic() < end
            time.sleep(0.01)
        # Until the dead postmaster has been reaped, its lock files would stop the next one.
        for lock in (Path(self.data, "postmaster.pid"), *self.folder.glob(".s.PGSQL.*")):
            lock.unlink(missing_ok=True)

    def freeze(self) -> None:
        """Stop every process, so that connections stay open and nothing answers."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def cut_connections(self) -> None:
        """End every connection of the application."""
        with psycopg.connect(self.url("postgres", "postgres"), autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = %s",
                [APPLICATION],
            )

    def _signal(self, number: int) -> None:
        for process in self._processes():
            with suppress(ProcessLookupError):
                os.kill(process, number)

    def _processes(self) -> list[int]:
        """The postmaster, which comes first, and its children."""
        try:
            first = int(Path(self.data, "postmaster.pid").read_text().splitlines()[0])
            children = Path(f"/proc/{first}/task/{first}/children").read_text().split()
        except (FileNotFoundError, IndexError):
            return []
        return [first, *map(int, children)]

    def remove(self) -> None:
        atexit.unregister(self.remove)
        self.kill()
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


class Pooler:
    """pgbouncer in transaction mode before a cluster, with few connections to it."""

    def __init__(self, behind: Cluster) -> None:
        program = shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")
        assert program, "no pgbouncer: run `dev/postgres`"
        self.folder = Path(tempfile.mkdtemp(prefix="upwell-pgbouncer-"))
        self.port = _free_port()
        settings = self.folder / "pgbouncer.ini"
        settings.write_text(
            f"""
[databases]
* = host=127.0.0.1 port={behind.port} user={APPLICATION}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {self.port}
auth_type = any
pool_mode = transaction
default_pool_size = 3
max_client_conn = 200
logfile = {self.folder / "log"}
"""
        )
        user: dict[str, object] = {}
        if _is_root():
            user = {"user": _NOBODY, "group": _NOBODY, "extra_groups": []}
            for path in (self.folder, settings):
                os.chown(path, _NOBODY, _NOBODY)
        self._process = subprocess.Popen(
            [program, "-q", settings],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            **user,  # type: ignore[call-overload]
        )
        self._wait()

    def url(self, direct: str) -> str:
        """The address of the database at `direct` when it is reached through the pooler."""
        return f"postgresql://{APPLICATION}@127.0.0.1:{self.port}/{direct.rpartition('/')[2]}"

    def remove(self) -> None:
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _wait(self) -> None:
        end = time.monotonic() + 20
        while True:
            with socket.socket() as attempt:
                if attempt.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            assert self._process.poll() is None, (self.folder / "log").read_text()
            assert time.monotonic() < end
            time.sleep(0.05)


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


def _is_alive(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def _is_root() -> bool:
    return os.geteuid() == 0


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
