"""`upwell migrate`: moves a home's memories between its own files and PostgreSQL.

`upwell team`: joins a team with a token for its gateway, leaves it, and reads the audit log. The
gateway's side of it, `/team`, gets the team's memories from `team_access()`.
"""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from filelock import FileLock, Timeout
from msgspec import Struct
from msgspec.structs import replace

from upwell.app.local_copy import LOCK
from upwell.app.memory import open_audit_log, open_notes
from upwell.app.store import Settings, open_files, open_memory_db, postgres_store
from upwell.app.wiring import App, build
from upwell.config import Config, load
from upwell.ground.clock import SYSTEM_CLOCK
from upwell.ground.errors import StoreUnwritable, UsageError
from upwell.ground.files import exclusively, write_atomically
from upwell.ground.secrets.mask import masked_address
from upwell.ground.trace import contained
from upwell.ground.types.rpc import Principal
from upwell.learn.feedback import Ratings, copy_ratings
from upwell.memory.meaning import Progress
from upwell.memory.relocation import MoveJournal, MovePlan, Relocation, Verified
from upwell.memory.sqlite.store import SqliteStore
from upwell.memory.sqlite.team_store import TeamStore
from upwell.memory.team.gateway import AccessedMemories, GatewayMemories, checked_token
from upwell.usage.audit import AuditEntry, Log
from upwell.web.team import OpenFor

SQLITE = "sqlite"
"""The name of the home's own files as the source or target of a move."""


class Outcome(Struct, frozen=True, kw_only=True):
    """The outcome of a move, or of its preview. `notes` counts the notes in `stm.json` that were
    copied; in a preview, it also counts those that an earlier run copied. `verified` is None for a
    preview."""

    source: str
    target: str
    plan: MovePlan
    notes: int
    ratings: int = 0
    verified: Verified | None = None


async def migrate(to: str, origin: str, *, apply: bool, notes: bool, progress: Progress) -> Outcome:
    """Move this home's memories to the address `to`. If `to` is "sqlite", move the memories from
    the address `origin` to the home instead. Without `apply`, only count them. With `notes`, also
    copy the notes in `stm.json` as memories, except those that an earlier run copied.

    Raises:
        UsageError: there is no database to move to or from, or `origin` is given although `to` is
            not "sqlite".
        ConfigError: an address is invalid, or the driver is not installed.
        StoreError: a store failed; the next run continues where this one stopped.
    """
    home_is_target = to == SQLITE
    if origin and not home_is_target:
        raise UsageError("--from needs --to sqlite", hint="--to URL moves the home's own memories")
    config = load(flags={"store.url": url} if (url := origin if home_is_target else to) else {})
    if not config.store.database:
        raise UsageError(
            "memories move to and from a database, not a gateway"
            if config.store.is_gateway
            else "no database to move from",
            hint="pass its address: upwell migrate --to sqlite --from URL",
        )
    names = (str(config.home.memory_db), masked_address(config.store.url))
    source, target = reversed(names) if home_is_target else names
    async with _relocation(config, home_is_target) as relocation:
        plan = await relocation.plan()
        # With ids that cannot collide with those of other memories.
        own = open_notes(config, None).memories() if notes else []
        copied = [replace(note, id=f"note-{note.id}") for note in own]
        outcome = Outcome(source=source, target=target, plan=plan, notes=len(copied))
        if not apply:
            return outcome
        added = await relocation.add_once(copied)
        verified = await relocation.run(progress)
    ratings = await _move_ratings(config, home_is_target)
    return replace(outcome, notes=added, ratings=ratings, verified=verified)


async def _move_ratings(config: Config, home_is_target: bool) -> int:
    from upwell.ground.postgres.connection import Postgres
    from upwell.learn.postgres import PostgresRatings

    database, postgres = open_memory_db(config.home), Postgres(config.store.url)
    try:
        own = Ratings(database)
        team = PostgresRatings(postgres, tenant=config.store.tenant)
        return await copy_ratings(*((team, own) if home_is_target else (own, team)))
    finally:
        await postgres.aclose()
        await database.aclose()


@asynccontextmanager
async def _relocation(config: Config, home_is_target: bool) -> AsyncIterator[Relocation]:
    home = config.home.prepare()
    direction = "to" if home_is_target else "from"
    other = f"{direction} {config.store.url} {config.store.tenant}"
    digest = hashlib.sha256(other.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    home.moves.mkdir(mode=0o700, exist_ok=True)
    path = home.moves / f"{digest}.jsonl"
    with exclusively(path):
        database = open_memory_db(home)
        team = postgres_store(config.store.url, config.store.tenant)
        try:
            own = SqliteStore(database)
            source, target = (team, own) if home_is_target else (own, team)
            yield Relocation(source, target, MoveJournal(path))
        finally:
            await team.aclose()
            await database.aclose()


NO_TEAM = "this home has no snapshot of a team's memories"


class JoinedTeam(Struct, frozen=True):
    """A team that was joined. `gateway` is the gateway's address without secrets; `may_write` is
    true if the token's role allows sharing."""

    gateway: str
    may_write: bool


async def join(url: str, token: str) -> JoinedTeam:
    """Test a token at a gateway, and store the token and the gateway's address in this home.

    Raises:
        UsageError: `url` is the address of a database, or a configured token has precedence.
        ConfigError: the address is invalid.
        StoreError: the gateway does not accept the token, or the home cannot be written.
    """
    import tomlkit

    from upwell.setup.config_file import read_document, write_document

    config = load(flags={"store.url": url})
    if not config.store.is_gateway:
        raise UsageError(
            "a token works with the address of a gateway, not of a database",
            hint="set store.url and store.local for a database",
        )
    if config.store.token:
        origin = config.values["store.token"].origin
        raise UsageError(
            f"the token in {origin} takes precedence", hint=f"remove store.token in {origin}"
        )
    bare = checked_token(token)
    gateway = GatewayMemories(url, lambda: bare)
    try:
        greeting = await gateway.greeting()
    finally:
        await gateway.aclose()
    home = config.home.prepare()
    try:
        write_atomically(home.gateway_token_file, f"{bare}\n")
    except OSError as error:
        raise StoreUnwritable(
            f"cannot write {home.gateway_token_file}: {error.strerror}", hint="check the folder"
        ) from error
    with exclusively(home.config_file):
        document = read_document(home.config_file)
        document.setdefault("store", tomlkit.table())["url"] = url
        write_document(home.config_file, document)
    return JoinedTeam(masked_address(url), greeting.may_write)


async def leave(*, drop_waiting: bool) -> int:
    """Remove the snapshot of the team's memories, the token and the address from this home. Returns
    the number of memories that were removed.

    Raises:
        UsageError: there is no snapshot, `store.url` is not set in `config.toml`, another process
            keeps the snapshot up to date, or unsent changes would be lost.
        StoreError: the home cannot be written.
    """
    from upwell.setup.config_file import read_document, write_document

    config = load()
    if not config.store.has_copy:
        raise UsageError(NO_TEAM, hint="run `upwell team join URL`")
    if (origin := config.values["store.url"].origin) != str(config.home.config_file):
        raise UsageError(f"store.url is set in {origin}", hint=f"remove it from {origin} first")
    lock = FileLock(config.home.prepare().root / LOCK, mode=0o600)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise UsageError(
            "another process keeps the snapshot up to date",
            hint="end your agents, run `upwell daemon stop`, and then run this command again",
        ) from None
    try:
        removed = await _leave(drop_waiting=drop_waiting)
        config.home.gateway_token_file.unlink(missing_ok=True)
        with exclusively(config.home.config_file):
            document = read_document(config.home.config_file)
            for name in ("url", "local"):
                document["store"].pop(name, None)
            write_document(config.home.config_file, document)
    finally:
        lock.release()
    return removed


async def _leave(*, drop_waiting: bool) -> int:
    app = await build(Settings())
    try:
        store = app.memory.store
        if not isinstance(store, TeamStore):
            raise UsageError(NO_TEAM, hint="`upwell doctor` shows what is wrong with the memory")
        waiting = len(await asyncio.to_thread(store.queue.read))
        if waiting and not drop_waiting:
            raise UsageError(
                f"{waiting} of your changes have not reached the team",
                hint="they are sent once the gateway answers; --yes leaves without sending them",
            )
        return await store.leave()
    finally:
        await app.aclose()


def described(config: Config) -> str:
    """The address of the team's store, with secrets masked; "" if this home has no snapshot."""
    return masked_address(config.store.url) if config.store.has_copy else ""


def team_access(app: App) -> OpenFor | None:
    """Return the function that opens a principal's memories, over the connections of `app`; None
    without a team's database."""
    if app.postgres is None:
        return None
    from upwell.memory.postgres.shared import PostgresSharedMemories

    store = app.config.store
    shared = PostgresSharedMemories(app.postgres, tenant=store.tenant)

    def opened(principal: Principal) -> AccessedMemories:
        return AccessedMemories(shared, principal, app.audit, read_only=store.read_only)

    return opened


async def audit(limit: int) -> list[AuditEntry]:
    """The latest entries of the audit log, newest first.

    Raises:
        StoreError: the database failed.
    """
    async with _log() as log:
        return list(await log.latest(limit))


async def record_administration(action: str, subject: str) -> None:
    """Add an action of the owner to the audit log. If this fails, upwell's own log reports it."""
    with contained("writing the audit log"):
        async with _log() as log:
            await log.write(AuditEntry(SYSTEM_CLOCK.now(), "", action, subject, "done"))


@asynccontextmanager
async def _log() -> AsyncIterator[Log]:
    config = load()
    config.home.prepare()
    files = open_files(config)
    try:
        yield open_audit_log(config, files)
    finally:
        await files.aclose()
