"""The report on damage to `memory.db`: the rows that were saved, and how to restore a backup."""

import time
from pathlib import Path
from shlex import quote

from upwell.ground.home import Home
from upwell.ground.sqlite.backup import Backups
from upwell.ground.sqlite.salvage import last_salvage
from upwell.ground.text.format import counted
from upwell.ground.types.rpc import Ping

REPORTED_DAYS = 30
_DAY = 86_400.0


def damage(home: Home, since: float | None = None) -> Ping | None:
    """The damage found after `since` (epoch seconds), by default in the last thirty days. None if
    there was no damage, or if the damaged file was removed."""
    salvaged = last_salvage(home.memory_db)
    earliest = time.time() - REPORTED_DAYS * _DAY if since is None else since
    if salvaged is None or salvaged.at < earliest:
        return None
    saved = counted(salvaged.rows, "row", "rows")
    file = salvaged.quarantined
    return Ping(
        ok=False,
        detail=f"{home.memory_db} was damaged; {saved} saved; the damaged file is {file}",
        hint=f"{_restore_hint(home, salvaged.at)}; remove {file.name} once everything is in order",
    )


def _restore_hint(home: Home, damaged_at: float) -> str:
    copies = Backups(home.memory_db, home.backups).list()
    sound = next((copy for copy in copies if copy.stat().st_mtime < damaged_at), None)
    if sound is None:
        return "no earlier backup exists"
    return f"missing memories may be in the backup {sound}; {restoring(home, sound)}"


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
