"""Keeps the copy of a team's memories on a developer's machine up to date, and sends what this
machine shares. The team's store is a database (`store.local`), or a gateway that has a database.

Decisions and commands read memories from the copy, so that reading never waits for the store. Only
one of a home's processes at a time, usually the daemon, keeps the copy up to date.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from upwell.app.store import no_driver
from upwell.config import Config
from upwell.ground.background import BackgroundTasks
from upwell.ground.clock import SYSTEM_CLOCK
from upwell.ground.errors import ConfigError, StoreError, UpwellError
from upwell.ground.files import read_regular_file
from upwell.ground.text.format import counted
from upwell.ground.trace import LOG
from upwell.ground.types.rpc import Ping
from upwell.memory.base import Store
from upwell.memory.sqlite.copied import CopyState
from upwell.memory.sqlite.team_store import TeamStore
from upwell.memory.team.base import SharedMemories
from upwell.memory.team.replication import Replication

LOOK_SECONDS = 1.0
"""How often to look for writes by this home's other processes."""
CHECK_SECONDS = 60.0
"""How often to poll for changes even without a notification, and to resend refused changes."""
RETRY_SECONDS = 2.0
TURN_SECONDS = 5.0
"""How often a waiting process checks whether the process that keeps the copy has exited, and notes
the projects in which it has been used."""
SEND_SECONDS = 3.0
"""How long a command waits for the team's store to accept what the command shares."""
TRIAL_SECONDS = 2.0
LOCK = "team-copy.lock"


async def keep_copy(config: Config, store: Store) -> None:
    """Keep the copy up to date until cancelled. Returns at once if this home has no copy, or if the
    driver is not installed."""
    if not isinstance(store, TeamStore):
        return
    try:
        # In a thread, because the import takes a tenth of a second and would delay events.
        await asyncio.to_thread(_import_library, config)
    except ConfigError as error:
        LOG.error("the team's memories are not copied: %s", error)
        return
    async with _turn(config.home.root / LOCK, store), _connected(config) as shared:
        woken, following = asyncio.Event(), BackgroundTasks("changes of the team")
        following.start(shared.follow(woken.set))
        try:
            await _replicate(store, shared, woken)
        finally:
            await following.aclose()


async def send_now(config: Config, store: Store) -> str:
    """Send the waiting changes, for a command that has just shared something. Returns "" if all
    were sent, otherwise the reason. The process that keeps the copy sends the rest later."""
    if not isinstance(store, TeamStore):
        return ""
    reason = ""
    try:
        async with asyncio.timeout(SEND_SECONDS), _connected(config) as shared:
            await store.begin(await shared.identity())
            await Replication(store, shared).push()
    except (StoreError, ConfigError, TimeoutError) as error:
        reason = _reason(error)
        LOG.debug("nothing could be sent to the team: %s", error)
    state = await store.copy_state()
    return (state.refused or reason or "not yet") if state.waiting else ""


async def copy_ping(config: Config, store: Store) -> Ping | None:
    """The state of the copy, and whether the team's store answers; None without a copy."""
    if not isinstance(store, TeamStore):
        return None
    state = await store.copy_state()
    detail = _described(state, SYSTEM_CLOCK.now())
    try:
        async with asyncio.timeout(TRIAL_SECONDS), _connected(config) as shared:
            await shared.identity()
    except (StoreError, ConfigError, TimeoutError) as error:
        hint = "upwell keeps working from its copy, and sends waiting changes later"
        if isinstance(error, UpwellError) and error.hint:
            hint = f"{error.hint}; {hint}"
        return Ping(ok=False, detail=f"{detail}; {_reason(error)}", hint=hint)
    if state.refused:
        hint = "change or forget that memory"
        return Ping(ok=False, detail=f"{detail}; not accepted: {state.refused}", hint=hint)
    return Ping(ok=True, detail=detail)


def _reason(error: Exception) -> str:
    return error.message if isinstance(error, UpwellError) else "the team's store does not answer"


async def _replicate(store: TeamStore, shared: SharedMemories, woken: asyncio.Event) -> None:
    replication, reported, retried_at = Replication(store, shared), "", -CHECK_SECONDS
    is_begun = False
    while True:
        woken.clear()
        try:
            if not is_begun:
                await store.begin(await shared.identity())
                is_begun = True
            now = time.monotonic()
            is_due = now - retried_at >= CHECK_SECONDS
            await replication.run(again=is_due)
            retried_at = now if is_due else retried_at
            reported = ""
        except StoreError as error:
            if error.message != reported:
                LOG.warning("the copy of the team's memories is not up to date: %s", error)
            # By the time the store answers again, another store may have replaced it.
            reported, is_begun = error.message, False
            await asyncio.sleep(RETRY_SECONDS)
        await _wait_for_work(store, woken, is_failing=bool(reported))


async def _wait_for_work(store: TeamStore, woken: asyncio.Event, *, is_failing: bool) -> None:
    for _ in range(1 if is_failing else round(CHECK_SECONDS / LOOK_SECONDS)):
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                await woken.wait()
            return
        except TimeoutError:
            if store.wanted.is_set() or await _has_outgoing(store):
                return


async def _has_outgoing(store: TeamStore) -> bool:
    try:
        return await store.has_outgoing()
    except StoreError:
        return False


@asynccontextmanager
async def _connected(config: Config) -> AsyncIterator[SharedMemories]:
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
async def _turn(path: Path, store: TeamStore) -> AsyncIterator[None]:
    """Wait until no other process of the home keeps the copy. A process that exits releases its
    lock. Meanwhile, note the projects that this process uses."""
    from filelock import FileLock, Timeout

    lock = FileLock(path, mode=0o600)
    while True:
        try:
            lock.acquire(timeout=0)
            break
        except Timeout:
            await _note_use(store)
            await asyncio.sleep(TURN_SECONDS)
    try:
        yield
    finally:
        lock.release()


async def _note_use(store: TeamStore) -> None:
    try:
        await store.note_use()
    except StoreError as error:
        LOG.debug("the projects in use cannot be noted: %s", error)


def _described(state: CopyState, now: float) -> str:
    age = max(0.0, now - state.checked_at)
    parts = [
        f"{counted(state.memories, 'shared memory', 'shared memories')} "
        f"of {counted(state.projects, 'project')} copied",
        f"up to date {_span(age)} ago" if state.checked_at else "never up to date yet",
    ]
    if state.waiting:
        waits = counted(state.waiting, "write waits", "writes wait")
        parts.append(f"{waits} for {_span(max(0.0, now - state.waiting_since))}")
    return "; ".join(parts)


def _span(seconds: float) -> str:
    for unit, size in (("days", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
