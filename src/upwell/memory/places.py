"""Places: the locations of files, identifiers and tickets, as found in past sessions.

Places are derived data, like an index. A search finds a place only by its triggers. Places are in
the TTL store, separate from people's memories. The places of a trigger expire unless a session
finds one of them again.
"""

import hashlib
from collections.abc import Iterable
from itertools import batched

import orjson

from upwell.ground.clock import Deadline
from upwell.ground.errors import RecallUnavailable, StoreError
from upwell.ground.ledger import EntryKind, TtlStore
from upwell.ground.types.memory import Found, Hit, Memory, Provenance, Query, Trust
from upwell.ground.types.rpc import Ping
from upwell.memory.ranking.scoring import TRIGGER, precision_of
from upwell.memory.records import content_hash

PLACE = "place"
"""The name of the signal that marks a hit as a place."""
TTL_SECONDS = 90 * 86_400.0
MAX_BYTES = 32_000_000
MAX_CANDIDATES = 3
"""How many places are stored for one trigger; the latest are kept. A search returns all of them,
but `surface/lessons.py` shows a place only if it is the only one that still exists."""
BATCH = 200
_ID = "place:"


class Places:
    """`Recall` over the places from past sessions. `keep()` and `get()` raise StoreError if the
    store fails."""

    name = "places"

    def __init__(self, ttl_store: TtlStore) -> None:
        self._ttl_store = ttl_store

    async def keep(self, memories: Iterable[Memory]) -> None:
        """Store each memory under every one of its triggers."""
        by_key: dict[str, list[Memory]] = {}
        for memory in memories:
            for trigger in memory.triggers:
                by_key.setdefault(_key(memory.project, trigger), []).append(memory)
        for batch in batched(by_key.items(), BATCH):
            known = await self._ttl_store.get(EntryKind.PLACE, [key for key, _ in batch])
            values = {}
            for key, found in batch:
                item = known.get(key)
                earlier = _decoded(key, item.value) if item else []
                places = {place.text: place for place in (*earlier, *found)}
                latest = sorted(places.values(), key=lambda place: -(place.updated_at or 0.0))
                values[key] = orjson.dumps([_row(place) for place in latest[:MAX_CANDIDATES]])
            await self._ttl_store.put(EntryKind.PLACE, values, ttl_seconds=TTL_SECONDS)

    async def search(self, query: Query, deadline: Deadline) -> Found:
        project = query.scope.project
        if not query.triggers or project is None:
            return Found()
        keys = {_key(project, trigger): trigger for trigger in query.triggers}
        try:
            items = await self._ttl_store.get(EntryKind.PLACE, list(keys))
        except StoreError as error:
            raise RecallUnavailable(error.message, source=self.name, hint=error.hint) from error
        signals = {TRIGGER: 1.0, PLACE: 1.0}
        hits = [
            Hit(memory=memory, score=precision_of(trigger), signals=signals, trigger=trigger)
            for key, trigger in keys.items()
            if key in items
            for memory in _decoded(key, items[key].value)
        ]
        return Found(tuple(hits[: query.limit]))

    async def get(self, memory_id: str) -> Memory | None:
        """The place with an id that `search()` returned; None if it is no longer stored."""
        key = memory_id.removeprefix(_ID).partition(".")[0]
        if not memory_id.startswith(_ID):
            return None
        item = (await self._ttl_store.get(EntryKind.PLACE, [key])).get(key)
        places = _decoded(key, item.value) if item else []
        return next((place for place in places if place.id == memory_id), None)

    async def ping(self) -> Ping:
        return await self._ttl_store.ping()


def _key(project: str | None, trigger: str) -> str:
    identity = f"{project or ''}\0{trigger}".encode("utf-8", "replace")
    return hashlib.sha256(identity).hexdigest()[:24]


def _row(place: Memory) -> list[object]:
    session = place.provenance.session
    paths, symbols = place.paths, place.symbols
    return [place.text, paths, symbols, place.triggers, place.project, place.updated_at, session]


def _decoded(key: str, value: bytes) -> list[Memory]:
    # An id made from the list index would refer to another place once a session finds a newer one.
    return [
        Memory(
            id=f"{_ID}{key}.{content_hash(text)[:8]}",
            text=text,
            paths=tuple(paths),
            symbols=tuple(symbols),
            triggers=tuple(triggers),
            project=project,
            provenance=Provenance(door="capture", tool=PLACE, session=session),
            trust=Trust.USER,
            content_hash=content_hash(text),
            created_at=at,
            updated_at=at,
        )
        for text, paths, symbols, triggers, project, at, session in orjson.loads(value)
    ]
