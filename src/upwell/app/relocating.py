"""`upwell migrate`: moves a home's memories between its own files and PostgreSQL."""

import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from msgspec import Struct
from msgspec.structs import replace

from upwell.app.files import open_notes
from upwell.app.store import open_memory_db, postgres_store
from upwell.config import Config, load
from upwell.ground.errors import UsageError
from upwell.ground.files import exclusively
from upwell.ground.secrets.mask import masked_address
from upwell.learn.feedback import Ratings, copy_ratings
from upwell.memory.meaning import Progress
from upwell.memory.relocation import MoveJournal, MovePlan, Relocation, Verified
from upwell.memory.sqlite.store import SqliteStore

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
