"""Keeps the snapshot of a team's memories on a developer's machine up to date, and sends what this
machine shares. The team's store is a database (`store.local`), or a gateway that has a database.

Decisions and commands read memories from the snapshot, so that reading never waits for the store.
Only one of a home's processes at a time, usually the daemon, keeps the snapshot up to date.
"""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from upwell.app.store import no_driver
from upwell.config import Config
from upwell.ground.clock import SYSTEM_CLOCK
from upwell.ground.errors import ConfigError, StoreError, UpwellError
from upwell.ground.files import read_regular_file
from upwell.ground.text.words import counted
from upwell.ground.trace import LOG
from upwell.ground.types.rpc import Ping
from upwell.memory.base import Store
from upwell.memory.sqlite.team_store import SnapshotState, TeamStore
from upwell.memory.team.exchange import QueuedWrite, TeamMemories, send

LOOK_SECONDS = 1.0
"""How often to look for writes by this home's other processes."""
POLL_SECONDS = 5.0
"""The average time between two requests for the snapshot. After a new snapshot, the next request
waits `REST_FACTOR` times as long as the new one took, so that a large team costs no more."""
REST_FACTOR = 10
RESEND_SECONDS = 60.0
"""How often to send refused writes again."""
RETRY_SECONDS = 2.0
TURN_SECONDS = 5.0
"""How often a waiting process checks whether the process that keeps the snapshot has exited."""
SEND_SECONDS = 3.0
"""How long a command waits for the team's store to accept what the command shares."""
TRIAL_SECONDS = 2.0
LOCK = "team-copy.lock"


async def keep_copy(config: Config, store: Store) -> None:
    """Keep the snapshot up to date until cancelled. Returns at once if this home has none, or if
    the driver is not installed."""
    if not isinstance(store, TeamStore):
        return
    try:
        # In a thread, because the import takes a tenth of a second and would delay events.
        await asyncio.to_thread(_import_library, config)
    except ConfigError as error:
        LOG.error("the team's memories are not copied: %s", error)
        return
    async with _turn(config.home.root / LOCK), _connected(config) as team:
        await _keep(store, team)


async def send_now(config: Config, store: Store) -> str:
    """Send the waiting changes, for a command that has just shared something. Returns "" if all
    were sent, otherwise the reason. The process that keeps the snapshot sends the rest later."""
    if not isinstance(store, TeamStore):
        return ""
    reason = ""
    try:
        async with asyncio.timeout(SEND_SECONDS), _connected(config) as team:
            await store.begin(await team.identity())
            await send(store.queue, team)
    except (StoreError, ConfigError, TimeoutError) as error:
        reason = _reason(error)
        LOG.debug("nothing could be sent to the team: %s", error)
    waiting = await asyncio.to_thread(store.queue.read)
    return (_refusal(waiting) or reason or "not yet") if waiting else ""


async def copy_ping(config: Config, store: Store) -> Ping | None:
    """The state of the snapshot, and whether the team's store answers; None without a snapshot."""
    if not isinstance(store, TeamStore):
        return None
    waiting = await asyncio.to_thread(store.queue.read)
    detail = _described(await store.state(), waiting, SYSTEM_CLOCK.now())
    try:
        async with asyncio.timeout(TRIAL_SECONDS), _connected(config) as team:
            await team.identity()
    except (StoreError, ConfigError, TimeoutError) as error:
        hint = "upwell keeps working from its snapshot, and sends waiting changes later"
        if isinstance(error, UpwellError) and error.hint:
            hint = f"{error.hint}; {hint}"
        return Ping(ok=False, detail=f"{detail}; {_reason(error)}", hint=hint)
    if refusal := _refusal(waiting):
        hint = f"change or forget that memory; until then, it waits in {store.queue.path.name}"
        return Ping(ok=False, detail=f"{detail}; not accepted: {refusal}", hint=hint)
    return Ping(ok=True, detail=detail)


def _reason(error: Exception) -> str:
    return error.message if isinstance(error, UpwellError) else "the team's store does not answer"


def _refusal(waiting: Sequence[QueuedWrite]) -> str:
    return next((entry.reason for entry in waiting if entry.reason), "")


async def _keep(store: TeamStore, team: TeamMemories) -> None:
    reported, is_begun, resent_at = "", False, -RESEND_SECONDS
    while True:
        now, seen, rest = time.monotonic(), store.queue.stamp, RETRY_SECONDS
        try:
            if not is_begun:
                await store.begin(await team.identity())
                is_begun = True
            is_due = now - resent_at >= RESEND_SECONDS
            await send(store.queue, team, again=is_due)
            resent_at = now if is_due else resent_at
            began = time.monotonic()
            is_new = await store.refresh(team)
            # Machines that lost the store at the same moment must not all ask again together.
            rest = POLL_SECONDS * random.uniform(0.8, 1.2)
            rest = max(rest, is_new * REST_FACTOR * (time.monotonic() - began))
            reported = ""
        except StoreError as error:
            if error.message != reported:
                LOG.warning("the snapshot of the team's memories is not up to date: %s", error)
            # By the time the store answers again, another store may have replaced it.
            reported, is_begun = error.message, False
        end = time.monotonic() + rest
        while time.monotonic() < end and (reported or store.queue.stamp == seen):
            await asyncio.sleep(min(LOOK_SECONDS, rest))


@asynccontextmanager
async def _connected(config: Config) -> AsyncIterator[TeamMemories]:
    """Yield the team's store. The first use connects to it.

    Raises:
        ConfigError: the driver is not installed.
    """
    await asyncio.to_thread(_import_library, config)
    if config.store.is_gateway:
        from upwell.memory.team.gateway import GatewayMemories

        gateway = GatewayMemories(config.store.url, partial(gateway_token, config))
        try:
            yield gateway
        finally:
            await gateway.aclose()
        return
    from upwell.ground.postgres.connection import Postgres
    from upwell.memory.postgres.shared import PostgresSharedMemories

    postgres = Postgres(config.store.url)
    try:
        yield PostgresSharedMemories(postgres, tenant=config.store.tenant)
    finally:
        await postgres.aclose()


def gateway_token(config: Config) -> str:
    """The token for the gateway: `store.token`, or the file that `upwell team join` writes.

    Raises:
        StoreError: this home has no valid token, or the file cannot be read.
    """
    from upwell.memory.team.gateway import checked_token

    token, path = config.store.token, config.home.gateway_token_file
    if not token:
        try:
            token = read_regular_file(path).decode() if path.exists() else ""
        except (OSError, UnicodeDecodeError) as error:
            raise StoreError(
                f"cannot read {path}: {error}", hint="run `upwell team join URL` again"
            ) from error
    return checked_token(token)


def _import_library(config: Config) -> None:
    if config.store.is_gateway:
        import httpx2  # noqa: F401

        return
    try:
        import upwell.memory.postgres.shared  # noqa: F401
    except ImportError as error:
        raise no_driver() from error


@asynccontextmanager
async def _turn(path: Path) -> AsyncIterator[None]:
    """Wait until no other process of the home keeps the snapshot. A process that exits releases its
    lock."""
    from filelock import FileLock, Timeout

    lock = FileLock(path, mode=0o600)
    while True:
        try:
            lock.acquire(timeout=0)
            break
        except Timeout:
            await asyncio.sleep(TURN_SECONDS)
    try:
        yield
    finally:
        lock.release()


def _described(state: SnapshotState, waiting: Sequence[QueuedWrite], now: float) -> str:
    age = max(0.0, now - state.checked_at)
    parts = [
        f"{counted(state.memories, 'shared memory', 'shared memories')} copied",
        f"up to date {_span(age)} ago" if state.checked_at else "never up to date yet",
    ]
    if waiting:
        waits = counted(len(waiting), "write waits", "writes wait")
        parts.append(f"{waits} for {_span(max(0.0, now - min(entry.at for entry in waiting)))}")
    return "; ".join(parts)


def _span(seconds: float) -> str:
    for unit, size in (("days", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
