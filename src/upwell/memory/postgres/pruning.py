"""Remove the records of old deletions from the change log.

The table `change` has a row for each memory, from which new copies are filled, and a row for each
deletion. Only deletion rows are pruned, after `store.deletions_days`. Each project's scope records
the last pruned deletion. A copy that has not seen this deletion is rebuilt
(`memory/postgres/shared.py`).
"""

import asyncio
import time

from upwell.ground.postgres.connection import Postgres, Statement
from upwell.memory.postgres.writing import LOCK_TENANT

BATCH = 1_000
_DAY_SECONDS = 86_400.0
# Deletions are timed by the server's clock, so they are compared with that clock.
_PRUNE = """
    WITH pruned AS (
        DELETE FROM upwell.change c USING (
            SELECT project, id FROM upwell.change
            WHERE tenant = %(tenant)s AND gone
                AND at < extract(epoch FROM clock_timestamp())::float8 - %(seconds)s
            ORDER BY at LIMIT %(batch)s) AS old
        WHERE c.tenant = %(tenant)s AND c.project = old.project AND c.id = old.id AND c.gone
        RETURNING c.project, c.version, c.id),
    last AS (
        SELECT DISTINCT ON (project) project, version, id FROM pruned
        ORDER BY project, version DESC, id DESC),
    named AS (
        UPDATE upwell.scope s SET pruned_version = last.version, pruned_id = last.id FROM last
        WHERE s.tenant = %(tenant)s AND s.project = last.project
            AND (s.pruned_version, s.pruned_id) < (last.version, last.id))
    SELECT count(*) FROM pruned"""


class Pruning:
    """Prunes the records of a tenant's deletions that are older than `days`. Several gateways may
    do this at the same time, because each batch takes the tenant's write lock."""

    def __init__(self, postgres: Postgres, tenant: str, days: float) -> None:
        self._postgres = postgres
        self._tenant = tenant
        self._seconds = days * _DAY_SECONDS

    async def run(self) -> int:
        """Prune everything that is due, in batches. Returns the number of pruned records.

        Raises:
            StoreError: the database failed.
        """
        total = 0
        while True:
            began = time.monotonic()
            count = await self._batch()
            total += count
            if count < BATCH:
                return total
            # Let the tenant's writers run between two batches.
            await asyncio.sleep(time.monotonic() - began)

    async def _batch(self) -> int:
        async with self._postgres.transaction(self._tenant) as transaction:
            _, ((count,),) = await transaction.run(
                LOCK_TENANT, Statement(_PRUNE, {"seconds": self._seconds, "batch": BATCH})
            )
        return int(count)
