"""Which words few memories hold: what would tell that one of them is being used."""

import sqlite3
from collections.abc import Sequence

from upwell.ground.db import Database
from upwell.memory.everyday import EVERYDAY_WORDS
from upwell.memory.terms import stemmer

RARE_SHARE = 0.01
LEAST_HOLDING = 2
"""A word is rare that at most one memory in a hundred holds, or two."""


class Rarity:
    """Over the databases whose rows are memories."""

    def __init__(self, databases: Sequence[Database]) -> None:
        self._databases = databases

    async def rare(self, words: Sequence[str]) -> set[str]:
        """Those of `words` that are no everyday words and that few memories hold, of all projects.

        Raises:
            StoreError: a database cannot be read.
        """
        telling = [word for word in words if word not in EVERYDAY_WORDS]
        stems = dict(zip(telling, stemmer().stems(telling), strict=True))
        held: dict[str, int] = {}
        memories = 0
        for database in self._databases:
            size, holding = await database.glance(lambda db: _held(db, sorted({*stems.values()})))
            memories += size
            for stem, number in holding.items():
                held[stem] = held.get(stem, 0) + number
        most = max(LEAST_HOLDING, int(memories * RARE_SHARE))
        return {word for word, stem in stems.items() if held.get(stem, 0) <= most}


def _held(db: sqlite3.Connection, stems: Sequence[str]) -> tuple[int, dict[str, int]]:
    memories = db.execute("SELECT coalesce(sum(memories), 0) FROM scope").fetchone()[0]
    marks = ",".join("?" * len(stems))
    rows = db.execute(
        f"SELECT stem, sum(memories) FROM term WHERE stem IN ({marks}) GROUP BY stem",
        tuple(stems),
    )
    return int(memories), {stem: int(number) for stem, number in rows}
