"""`upwell team audit`: reads the audit log, and adds what the owner does on the command line."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from upwell.app.files import open_audit_log
from upwell.app.store import open_files
from upwell.config import load
from upwell.ground.clock import SYSTEM_CLOCK
from upwell.ground.trace import contained
from upwell.usage.audit import AuditEntry, Log


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
