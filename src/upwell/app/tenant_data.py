"""`upwell tenant`: exports or deletes all data of a tenant, in the database and in files, and reads
the tenant's audit log."""

import asyncio
import base64
import json
import shutil
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from upwell.app.files import open_audit_log, open_files
from upwell.app.team import current_files
from upwell.config import Config, load
from upwell.ground.clock import SYSTEM_CLOCK
from upwell.ground.errors import StoreError, UsageError
from upwell.ground.home import Home
from upwell.ground.sqlite.file import delete_database
from upwell.ground.trace import contained
from upwell.memory.records import check_tenant
from upwell.usage.audit import Event
from upwell.web.tokens import revoke, tokens_in

_DERIVED = frozenset(
    {"posting", "term", "anchor", "about", "memory_trigger", "null_score", "change"}
    | {"embedding", "embedding_model"}
)
"""Tables that are computed from other tables. An export omits them."""
_PAGE = 1_000


async def exported(tenant: str) -> AsyncIterator[dict[str, Any]]:
    """Everything that this gateway stores for a tenant: `{"table", "row"}` for each row of the
    database, `{"file", "table", "row"}` for each row of a SQLite file, and `{"file", "content"}`
    for each other file, in base64.

    Raises:
        UsageError: the name is invalid.
        StoreError: the database failed.
    """
    async with _of(tenant) as (config, home):
        if config.store.database:
            for table, row in _rows(config):
                yield {"table": table, "row": row}
        for path in _files(home):
            name = str(path.relative_to(home.root))
            if path.suffix == ".db":
                for table, values in _sqlite_rows(path):
                    yield {"file": name, "table": table, "row": values}
            else:
                yield {"file": name, "content": base64.b64encode(path.read_bytes()).decode()}


async def delete(tenant: str) -> dict[str, int]:
    """Delete everything that this gateway stores for a tenant, beginning with its tokens, and
    record the deletion in the home's audit log. If the tenant is the home's own, the deletion is
    not recorded, and the home keeps its files except `index.db`. Returns the numbers of deleted
    tokens, files, and rows of each table.

    Raises:
        UsageError: the name is invalid, or the tenant is the home's own and has no database.
        StoreError: the database failed; nothing in it was deleted.
    """
    deleted: dict[str, int] = {}
    async with _of(tenant) as (config, home):
        own = load()
        if not own.store.database and tenant == own.store.tenant:
            raise UsageError(
                f"{tenant!r} is the tenant of this home", hint=f"delete {own.home.root}"
            )
        locking = current_files(own)
        issued = [
            token.principal.name
            for token in tokens_in(own.home.tokens_file)
            if token.principal.tenant == tenant
        ]
        for name in issued:
            revoke(own.home.tokens_file, name, locking)
        deleted["tokens"] = len(issued)
        if config.store.database:
            deleted |= await _delete_rows(config)
            # `index.db` may contain the tenant's notes, if commands ran here for the tenant.
            await asyncio.to_thread(delete_database, own.home.index_db)
        if tenant != own.store.tenant:
            deleted["files"] = len(list(_files(home)))
            shutil.rmtree(home.root, ignore_errors=True)
            await record_administration("", "tenant_delete", tenant)
    return deleted


async def audit(tenant: str, limit: int) -> list[Event]:
    """The latest entries of the audit log of `tenant`, newest first. "" stands for the tenant for
    which this home is configured.

    Raises:
        UsageError: the name is invalid.
        StoreError: the database failed.
    """
    async with _of(tenant or load().store.tenant) as (config, _):
        files = open_files(config)
        try:
            return list(await open_audit_log(config, files).latest(limit))
        finally:
            await files.aclose()


async def record_administration(tenant: str, action: str, subject: str) -> None:
    """Add an action that the owner took on the command line to the audit log of `tenant` ("" is the
    home's own). If this fails, upwell's own log reports it."""
    with contained("writing the audit log"):
        async with _of(tenant or load().store.tenant) as (config, home):
            home.prepare()
            files = open_files(config)
            try:
                event = Event(SYSTEM_CLOCK.now(), "", action, subject, "done")
                await open_audit_log(config, files).write(event)
            finally:
                await files.aclose()


@asynccontextmanager
async def _of(tenant: str) -> AsyncIterator[tuple[Config, Home]]:
    check_tenant(tenant)
    own = load()
    if tenant == own.store.tenant:
        yield own, own.home
        return
    home = own.home.of_tenant(tenant)
    yield replace(own, home=home, store=replace(own.store, tenant=tenant)), home


def _rows(config: Config) -> Iterator[tuple[str, Any]]:
    """The tenant's rows in every table except `_DERIVED`, as one consistent snapshot."""
    import psycopg

    from upwell.ground.postgres.connection import settings_of, store_error
    from upwell.ground.postgres.migrate import CONNECTION
    from upwell.ground.postgres.schema import TABLES_OF_A_TENANT, tenant_number

    number = tenant_number(config.store.tenant)
    try:
        with psycopg.connect(config.store.url, **CONNECTION) as connection:
            connection.autocommit = False
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            connection.execute(settings_of(number))
            for table in TABLES_OF_A_TENANT:
                if table in _DERIVED:
                    continue
                with connection.cursor(name="export") as cursor:
                    cursor.itersize = _PAGE
                    cursor.execute(
                        f"SELECT row_to_json(t)::text FROM upwell.{table} AS t WHERE tenant = %s",
                        [number],
                    )
                    for (text,) in cursor:
                        row = json.loads(text)
                        if table == "home_file":
                            content = bytes.fromhex(row["content"].removeprefix("\\x"))
                            row["content"] = base64.b64encode(content).decode()
                        yield table, row
    except psycopg.Error as error:
        raise store_error(error) from error


async def _delete_rows(config: Config) -> dict[str, int]:
    from upwell.ground.postgres.connection import Postgres, Statement
    from upwell.ground.postgres.schema import TABLES_OF_A_TENANT

    postgres = Postgres(config.store.url)
    # `audit` comes last, because deleting memories adds rows to it.
    tables = sorted(TABLES_OF_A_TENANT, key=lambda table: table == "audit")
    deleting = "DELETE FROM upwell.{} WHERE tenant = %(tenant)s"
    counting = "SELECT count(*) FROM upwell.{} WHERE tenant = %(tenant)s"
    try:
        async with postgres.transaction(config.store.tenant) as transaction:
            counts = await transaction.run(*(Statement(counting.format(t), {}) for t in tables))
            await transaction.run(*(Statement(deleting.format(t), {}) for t in tables))
            left = await transaction.run(*(Statement(counting.format(t), {}) for t in tables))
            if any(rows[0][0] for rows in left):
                raise StoreError("some rows remained", hint="run the command again")
    finally:
        await postgres.aclose()
    return {table: int(rows[0][0]) for table, rows in zip(tables, counts, strict=True)}


def _files(home: Home) -> Iterator[Path]:
    """The files of a tenant's home, except SQLite's auxiliary files, locks, links to the owner's
    settings, and the files of other tenants."""
    for path in sorted(home.root.rglob("*")) if home.root.is_dir() else ():
        is_part = path.name.endswith(("-wal", "-shm", ".lock"))
        is_other = path.is_symlink() or "tenants" in path.relative_to(home.root).parts
        if path.is_file() and not is_part and not is_other:
            yield path


def _sqlite_rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
        db.row_factory = sqlite3.Row
        tables = db.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'").fetchall()
        for name, sql in tables:
            is_index = str(sql).upper().startswith("CREATE VIRTUAL") or name.startswith(
                ("words_", "sqlite_")
            )
            if is_index or name in _DERIVED:
                continue
            for row in db.execute(f'SELECT * FROM "{name}"'):
                yield name, {key: _shown(value) for key, value in dict(row).items()}


def _shown(value: object) -> object:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value
