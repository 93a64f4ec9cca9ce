"""The report on damage to `memory.db`, and how to restore a backup."""

import time
from pathlib import Path
from shlex import quote

from upwell.ground.home import Home
from upwell.ground.sqlite.salvage import last_salvage
from upwell.ground.text.format import counted
from upwell.ground.types.rpc import Ping

REPORTED_DAYS = 30
_DAY = 86_400.0


def damage(home: Home, since: float | None = None) -> Ping | None:
    """The damage found after `since` (epoch seconds), by default in the last thirty days. None if
    there was no damage, or if the damaged file was removed."""
    salvage = last_salvage(home.memory_db)
    earliest = time.time() - REPORTED_DAYS * _DAY if since is None else since
    if salvage is None or salvage.at < earliest:
        return None
    saved = f"{counted(salvage.rows, 'row', 'rows')} saved"
    if salvage.backup:
        saved += f", {salvage.restored} more taken from {home.backups / salvage.backup}"
    damaged = home.memory_db.with_name(salvage.quarantined)
    lost = "" if salvage.is_complete else "memories since the last daily backup may be missing; "
    return Ping(
        ok=False,
        detail=f"{home.memory_db} was damaged; {saved}; the damaged file is {damaged}",
        hint=f"{lost}remove {damaged.name} once everything is in order",
    )


def restoring(home: Home, copy: Path) -> str:
    """Instructions to replace `memory.db` with `copy`.

    The write-ahead log is removed first, because it belongs to the database that `copy` replaces.
    """
    store = str(home.memory_db)
    leftovers = " ".join(quote(store + suffix) for suffix in ("-wal", "-shm"))
    return (
        "to restore it, end your agents and stop every upwell process (`upwell daemon stop`), "
        f"then run: rm -f {leftovers} && cp {quote(str(copy))} {quote(store)}"
    )
