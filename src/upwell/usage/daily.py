"""Numbers, keyed by UTC day and names. They are added up in memory, stored in batches, and kept for
90 days."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from upwell.ground.clock import Clock
from upwell.ground.errors import StoreError
from upwell.ground.trace import LOG
from upwell.ground.ttl_store import EntryKind, TtlStore

RETENTION_DAYS = 90
_SEPARATOR = "\t"


class DailyNumbers:
    """The stored and pending numbers of one kind. Names are truncated to `max_name_chars`."""

    def __init__(
        self, ttl_store: TtlStore, kind: EntryKind, clock: Clock, *, max_name_chars: int
    ) -> None:
        self._ttl_store = ttl_store
        self._kind = kind
        self._clock = clock
        self._max_name_chars = max_name_chars
        self._pending: Counter[tuple[str, ...]] = Counter()

    def add(self, *names: str, by: int) -> None:
        """Add to a number. `flush()` stores it under the current day."""
        self._pending[tuple(_plain(name, self._max_name_chars) for name in names)] += by

    async def flush(self) -> None:
        """Store the pending numbers. If the store fails, they are lost."""
        pending, self._pending = self._pending, Counter()
        today = self._day()
        numbers = {
            _SEPARATOR.join((today, *key)): number for key, number in pending.items() if number
        }
        if not numbers:
            return
        try:
            await self._ttl_store.incr(self._kind, numbers, ttl_seconds=RETENTION_DAYS * 86_400.0)
        except StoreError as error:
            LOG.warning("numbers of %s were not stored: %s", self._kind, error)

    async def since(self, days: int) -> list[tuple[str, list[str], int]]:
        """Return the day, names and number of each entry from the last `days` days, including
        today.

        Raises:
            StoreError: the store cannot be read.
        """
        first = self._day(days - 1)
        entries = []
        for item in await self._ttl_store.scan(self._kind):
            day, *names = item.key.split(_SEPARATOR)
            if day >= first:
                entries.append((day, names, item.number))
        return entries

    def _day(self, back: int = 0) -> str:
        at = datetime.fromtimestamp(self._clock.now(), UTC) - timedelta(days=back)
        return at.date().isoformat()


@lru_cache(maxsize=1_000)
def _plain(name: str, max_chars: int) -> str:
    return " ".join(name.split())[:max_chars].encode(errors="replace").decode()
