"""What is told when the memory was damaged: what was saved, and how to go back."""

import time
from shlex import quote

from upwell.ground.backup import Backups
from upwell.ground.home import Home
from upwell.ground.salvage import last_salvage
from upwell.ground.text.counts import counted
from upwell.ground.types import Ping

TOLD_DAYS = 30
_DAY = 86_400.0


def damage(home: Home, since: float | None = None) -> Ping | None:
    """The damage that was met since then (epoch seconds), or in the last thirty days; None for
    none, or when the damaged file was taken away."""
    found = last_salvage(home.memory_db)
    if found is None or found.at < (time.time() - TOLD_DAYS * _DAY if since is None else since):
        return None
    saved = counted(found.rows, "row", "rows")
    return Ping(
        ok=False,
        detail=f"{home.memory_db} was damaged; {saved} saved; the damaged file is {found.aside}",
        hint=f"{_way_back(home, found.at)}; remove {found.aside.name} when all is well",
    )


def _way_back(home: Home, damaged_at: float) -> str:
    """How to have the newest copy from before the damage."""
    copies = Backups(home.memory_db, home.backups).list()
    sound = next((copy for copy in copies if copy.stat().st_mtime < damaged_at), None)
    if sound is None:
        return "there is no backup from before"
    store = str(home.memory_db)
    gone = " ".join(quote(store + suffix) for suffix in ("-wal", "-shm"))
    return (
        f"what is missing may be in the backup {sound}; to go back to it, end every upwell "
        f"(`upwell daemon stop`), then: rm -f {gone} && cp {quote(str(sound))} {quote(store)}"
    )
