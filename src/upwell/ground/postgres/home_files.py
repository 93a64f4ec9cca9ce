"""Shares files in upwell's home folder, such as tokens and short notes, with a team's machines.

The database contains the files, and each machine has copies. Reading a copy takes no round trip and
works even while the database is unreachable. When a file becomes empty, its copies are deleted.
"""

import asyncio
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import md5
from pathlib import Path
from typing import Any

import psycopg

from upwell.ground.errors import StoreError
from upwell.ground.files import exclusively, read_regular_file, write_atomically, writing
from upwell.ground.postgres.connection import settings_of, store_error
from upwell.ground.postgres.migrate import CONNECTION, migrate
from upwell.ground.postgres.schema import tenant_number

SECRET_BYTES = 32
_NEW_SECRET = """
    INSERT INTO upwell.home_file (tenant, name, content)
    VALUES (%(tenant)s, %(name)s, %(content)b) ON CONFLICT DO NOTHING"""
_CREATE = """
    INSERT INTO upwell.home_file (tenant, name, content) VALUES (%(tenant)s, %(name)s, '')
    ON CONFLICT DO NOTHING"""
_CONTENT = """
    SELECT content FROM upwell.home_file WHERE tenant = %(tenant)s AND name = %(name)s"""
_DIGESTS = """
    SELECT name, md5(content) FROM upwell.home_file
    WHERE tenant = %(tenant)s AND name = ANY(%(names)s)"""
_EMPTY_DIGEST = md5(b"", usedforsecurity=False).hexdigest()
_WRITE = """
    UPDATE upwell.home_file SET content = %(content)b, version = version + 1
    WHERE tenant = %(tenant)s AND name = %(name)s"""


class HomeFiles:
    """The shared files at `paths`, and the file `secret`, which the first machine fills with random
    bytes. `lost` returns whether the database has recently failed to respond. The methods block, so
    do not call them on the event loop."""

    def __init__(
        self,
        url: str,
        tenant: str,
        paths: Sequence[Path],
        secret: Path,
        *,
        lost: Callable[[], bool] = lambda: False,
    ) -> None:
        self._is_lost = lost
        self._url = url
        self._tenant = tenant_number(tenant)
        self._paths = {path.name: path for path in (*paths, secret)}
        self._secret = secret

    def pull(self) -> None:
        """Update the copies. If the database has no tables yet, create them.

        Raises:
            StoreError: the database or the disk failed.
        """
        try:
            self._pull()
        except psycopg.errors.UndefinedTable:
            self._create_tables()
            self._pull()

    def _pull(self) -> None:
        with self._connected() as connection:
            fresh = {"name": self._secret.name, "content": secrets.token_bytes(SECRET_BYTES)}
            connection.execute(_NEW_SECRET, {"tenant": self._tenant, **fresh})
            digests = dict(
                connection.execute(
                    _DIGESTS, {"tenant": self._tenant, "names": list(self._paths)}
                ).fetchall()
            )
            outdated = [
                path
                for name, path in self._paths.items()
                if md5(_read(path), usedforsecurity=False).hexdigest()
                != digests.get(name, _EMPTY_DIGEST)
            ]
            connection.commit()
        for path in outdated:
            # The content may have changed before the lock was acquired, so it is read again.
            with exclusively(path), self._connected() as connection:
                _write(path, self._content(connection, path.name))

    def _create_tables(self) -> None:
        try:
            asyncio.run(migrate(self._url))
        except psycopg.Error as error:
            raise store_error(error) from error

    @contextmanager
    def exclusively(self, path: Path) -> Iterator[None]:
        """Lock a shared file on all machines. Within the block, this machine's copy is up to date.
        When the block ends, changes to the copy are written to the database.

        Raises:
            StoreError: the database or the disk failed. Nothing was changed, unless the connection
                broke while the server was committing.
        """
        if self._is_lost():
            raise StoreError(
                "nothing was stored, because PostgreSQL does not answer",
                hint=f"{path.name} is shared through the database; try again when it answers",
            )
        values: dict[str, Any] = {"tenant": self._tenant, "name": path.name}
        with exclusively(path), self._connected() as connection:
            connection.execute(_CREATE, values)
            before = self._content(connection, path.name, locked=True)
            _write(path, before)
            try:
                yield
                after = _read(path)
                if after != before:
                    connection.execute(_WRITE, {**values, "content": after})
                connection.commit()
            except BaseException:
                _write(path, before)
                raise

    def _content(self, connection: psycopg.Connection, name: str, *, locked: bool = False) -> bytes:
        sql = f"{_CONTENT} FOR UPDATE" if locked else _CONTENT
        row = connection.execute(sql, {"tenant": self._tenant, "name": name}).fetchone()
        return bytes(row[0]) if row else b""

    @contextmanager
    def _connected(self) -> Iterator[psycopg.Connection]:
        try:
            with psycopg.connect(self._url, **CONNECTION) as connection:
                connection.autocommit = False
                connection.execute(settings_of(self._tenant))
                yield connection
        except psycopg.errors.UndefinedTable:
            raise
        except psycopg.Error as error:
            raise store_error(error) from error


def _read(path: Path) -> bytes:
    try:
        return read_regular_file(path)
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror}", hint="check its owner") from error


def _write(path: Path, content: bytes) -> None:
    with writing(path):
        if content:
            write_atomically(path, content)
        else:
            path.unlink(missing_ok=True)
