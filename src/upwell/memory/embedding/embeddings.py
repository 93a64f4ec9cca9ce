"""All of a library's vectors: those of its store and of its documents."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from upwell.ground.types.rpc import Ping
from upwell.memory.embedding.questions import Progress, VectorIndex

MODEL_SECONDS = 5.0

Indexes = Callable[[], Awaitable[list[VectorIndex]]]
"""Returns the vector indexes that are usable now, or an empty list if no embedder is configured."""


class Embeddings:
    """The vector indexes of a library, treated as one."""

    def __init__(self, indexes: Indexes) -> None:
        self._indexes = indexes

    async def catch_up(self, progress: Progress | None = None) -> int:
        """Embed the memories that have no vector yet. Returns how many were embedded. Raises
        StoreError if the vectors cannot be written."""
        return sum([await index.catch_up(progress) for index in await self._indexes()])

    async def load(self, seconds: float = MODEL_SECONDS) -> None:
        """Wait for the model to load, at most `seconds` for each index."""
        for index in await self._indexes():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(index.questions.load(), seconds)

    async def ping(self) -> Ping | None:
        """Report how many memories can be found by meaning. Returns None if no embedder is
        configured."""
        indexes = await self._indexes()
        if not indexes:
            return None
        questions = indexes[0].questions
        if not await questions.load():
            hint = "until then searching goes by words; `embed` in docs/reference.md"
            return Ping(ok=False, detail=questions.failure, hint=hint)
        counts = [await index.counts() for index in indexes]
        embedded, total = (sum(column) for column in zip(*counts, strict=True))
        detail = f"{embedded} of {total} memories embedded by {questions.embedder.name}"
        notes = dict.fromkeys(index.note for index in indexes if index.note)
        return Ping(ok=True, detail="; ".join([detail, *notes]))
