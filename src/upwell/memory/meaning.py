"""Turn queries and memories into vectors, to search by meaning if an embedder is configured.

A model may be slow, missing or failing. A search waits for the model only briefly, and then
continues with words alone.
"""

import asyncio
import contextlib
import math
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from upwell.ground.background import Breaker, on_daemon_thread
from upwell.ground.clock import SYSTEM_CLOCK, Clock, Deadline
from upwell.ground.errors import LlmError, extra_hint
from upwell.ground.trace import LOG
from upwell.ground.types.rpc import Ping

if TYPE_CHECKING:
    from upwell.ground.llm import Embedder, Vector

WAIT_SECONDS = 0.15
"""How long a search waits for the vector of its query."""
DEADLINE_SHARE = 0.5
"""A search waits for a vector for at most this share of its remaining time."""
CACHED_QUERIES, MAX_RUNNING = 256, 4
MAX_FAILURES, RESET_SECONDS = 3, 60.0
MAX_CHARS = 2_000
"""Only this many characters from the beginning of a text are embedded."""
BATCH = 32

Progress = Callable[[int, int], None]
"""Called with the number of memories or files that are done, and the total."""


class VectorIndex(Protocol):
    """The vectors of a store's memories. `note` says which vectors are left out of searches, or
    is "" if none are. The methods raise StoreError if the store fails."""

    note: str
    questions: "QuestionVectors"

    async def catch_up(self, progress: Progress | None = None) -> int:
        """Embed the memories that have no vector from the configured model yet, in batches. Does
        nothing while another process is embedding, and stops if the model fails. Returns how many
        were embedded."""
        ...

    async def counts(self) -> tuple[int, int]:
        """Return how many memories have a vector, and how many should have one."""
        ...


class QuestionVectors:
    """The vectors of query texts. The vector of a recent text is reused, for all stores.

    `failure` says why the model cannot be used, or is "" if the model works.
    """

    def __init__(self, embedder: "Embedder", *, clock: Clock = SYSTEM_CLOCK) -> None:
        self.embedder = embedder
        self._breaker = Breaker(MAX_FAILURES, RESET_SECONDS, clock)
        self._vectors: OrderedDict[str, asyncio.Future[Vector]] = OrderedDict()
        self._running = 0
        self._has_numpy = find_spec("numpy") is not None
        self.failure = "" if self._has_numpy else f"numpy is missing: {extra_hint('embed')}"

    async def vector(self, text: str, deadline: Deadline) -> "Vector | None":
        """Return the vector of `text`, or None if the text is blank or the model fails, is busy or
        takes too long."""
        if not text.strip():
            return None
        text = text[:MAX_CHARS]
        future = self._vectors.get(text) or self._embed(text)
        if future is None:
            return None
        seconds = min(WAIT_SECONDS, DEADLINE_SHARE * deadline.remaining())
        done, _ = await asyncio.wait([future], timeout=seconds)
        if not done or future.cancelled() or future.exception():
            return None
        return future.result()

    async def load(self) -> bool:
        """Load the model, which may take seconds. Returns False if the model is unusable."""
        if not self._has_numpy:
            return False
        try:
            await on_model_thread(lambda: self.embedder.dim)
        except LlmError as error:
            self._fail(error)
            return False
        return True

    def _embed(self, text: str) -> "asyncio.Future[Vector] | None":
        if not self._has_numpy or self._running >= MAX_RUNNING or not self._breaker.allow():
            return None
        future = on_model_thread(lambda: embedded(self.embedder, [text])[0])
        self._running += 1
        future.add_done_callback(lambda done: self._settle(text, done))
        self._vectors[text] = future
        while len(self._vectors) > CACHED_QUERIES:
            self._vectors.popitem(last=False)
        return future

    def _settle(self, text: str, done: "asyncio.Future[Vector]") -> None:
        self._running -= 1
        if done.cancelled():
            self._vectors.pop(text, None)
        elif error := done.exception():
            self._vectors.pop(text, None)
            self._breaker.fail()
            self._fail(error)
        else:
            self._breaker.succeed()
            self.failure = ""

    def _fail(self, error: BaseException) -> None:
        if not self.failure:
            LOG.warning("searching by words only: %s", error)
        self.failure = str(error)


def embedded(embedder: "Embedder", texts: Sequence[str]) -> "Sequence[Vector]":
    """Embed texts, and check that each vector has the model's dimension and only finite numbers.
    Raises LlmError if the model returned the wrong number of vectors, or unusable ones."""
    vectors, dim = embedder.embed(texts), embedder.dim
    if len(vectors) != len(texts):
        raise LlmError(f"{embedder.name} returned {len(vectors)} vectors for {len(texts)} texts")
    for vector in vectors:
        if len(vector) != dim or not all(map(math.isfinite, vector)):
            raise LlmError(f"{embedder.name} returned a vector that is not {dim} finite numbers")
    return vectors


def on_model_thread[T](work: Callable[[], T]) -> asyncio.Future[T]:
    """Run `work()` on a daemon thread. Any exception from `work()` becomes an LlmError."""

    def asked() -> T:
        try:
            return work()
        except LlmError:
            raise
        except Exception as error:
            raise LlmError(f"the model failed: {error}") from error

    return on_daemon_thread(asked, "meaning")


class DueVector(Struct, frozen=True):
    """A memory that needs a vector. The vector is stored only if the memory still has this
    `hash`."""

    n: int
    hash: str
    text: str


async def packed_vectors(
    questions: QuestionVectors, batch: Sequence[DueVector]
) -> dict[DueVector, bytes]:
    """Return the packed vectors of these memories. If the model rejects a batch, each text is
    embedded on its own, so that one bad text does not affect the others. If the first few texts
    fail too, the model is probably down, and no vectors are returned."""
    from upwell.memory.vectors import packed

    texts = [due.text for due in batch]
    try:
        vectors = await on_model_thread(partial(embedded, questions.embedder, texts))
        return dict(zip(batch, map(packed, vectors), strict=True))
    except LlmError as error:
        LOG.warning("%d memories cannot be embedded: %s", len(batch), error)
    one_by_one: dict[DueVector, bytes] = {}
    for attempts, due in enumerate(batch if len(batch) > 1 else ()):
        if not one_by_one and attempts >= MAX_FAILURES:
            break
        one_by_one |= await packed_vectors(questions, [due])
    return one_by_one


async def embed_due(
    index: VectorIndex,
    due: Callable[[int], Awaitable[Sequence[DueVector]]],
    keep: Callable[[Mapping[DueVector, bytes]], Awaitable[bool]],
    progress: Progress | None,
) -> tuple[int, bool]:
    """Embed the memories that `due()` returns, batch by batch: those after a number. Stops early if
    the model fails, or if `keep()` returns False. Returns how many were embedded, and whether that
    was all of them."""
    done, after = 0, -1
    earlier, total = await index.counts()
    while batch := await due(after):
        vectors = await packed_vectors(index.questions, batch)
        if not vectors:
            return done, False
        goes_on = await keep(vectors)
        done, after = done + len(vectors), batch[-1].n
        if progress is not None:
            progress(earlier + done, total)
        if not goes_on:
            return done, False
    if done:
        LOG.info("embedded %d memories with %s", done, index.questions.embedder.name)
    return done, True


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
