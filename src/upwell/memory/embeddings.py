"""Everything that is found by meaning: the vectors of what is kept and of what stands in files."""

import asyncio
import contextlib

from upwell.ground.errors import StoreError
from upwell.ground.types import Ping
from upwell.memory.base import Store
from upwell.memory.documents import Documents
from upwell.memory.meaning import Meaning, Progress
from upwell.memory.sqlite import SqliteStore

MODEL_SECONDS = 5.0


class Embeddings:
    """The vectors of `store` and of `documents`; nothing at all where no model is configured, and
    none of documents while their index fails."""

    def __init__(self, store: Store, documents: Documents) -> None:
        self._kept = store.meaning if isinstance(store, SqliteStore) else None
        self._documents = documents

    async def catch_up(self, progress: Progress | None = None) -> int:
        """Give every memory a vector that has none yet. Returns how many were made.

        Raises:
            StoreError: they cannot be written.
        """
        return sum([await one.catch_up(progress) for one in await self._all()])

    async def load(self, seconds: float = MODEL_SECONDS) -> None:
        """Wait until texts can be compared by meaning, but not for long."""
        for meaning in await self._all():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(meaning.questions.load(), seconds)

    async def ping(self) -> Ping | None:
        """How many memories can be found by meaning; None where that is not configured."""
        meanings = await self._all()
        if not meanings:
            return None
        questions = meanings[0].questions
        if not await questions.load():
            hint = "until then searching goes by words; `embed` in docs/reference.md"
            return Ping(ok=False, detail=questions.failure, hint=hint)
        counted = [await one.counts() for one in meanings]
        made, of = (sum(column) for column in zip(*counted, strict=True))
        return Ping(
            ok=True, detail=f"{made} of {of} memories embedded by {questions.embedder.name}"
        )

    async def _all(self) -> list[Meaning]:
        try:
            index = await self._documents.catalog.store()
        except StoreError:
            index = None
        both = (self._kept, index.meaning if index else None)
        return [one for one in both if one is not None]
