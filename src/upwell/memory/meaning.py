"""What texts mean, where an embedder is configured: questions as vectors, memories embedded in the
background, and both brought together.

A model may be slow, absent or failing: a search waits a short while for it and goes on by words.
"""

import asyncio
import math
import sqlite3
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from threading import Thread
from typing import TYPE_CHECKING, cast

from upwell.ground.db import Database
from upwell.ground.errors import LlmError
from upwell.ground.limits import SYSTEM_CLOCK, Breaker, Clock, Deadline
from upwell.ground.trace import LOG
from upwell.memory import vectors

if TYPE_CHECKING:
    from upwell.ground.embed import Embedder, Vector
    from upwell.memory.nearness import Likeness, Nearness

WAIT_SECONDS = 0.15
"""A search waits so long for its question's vector, less when its deadline is near."""
SHARE = 0.5
REMEMBERED, AT_ONCE = 256, 4
BATCH = 32
MAX_FAILURES, RESET_SECONDS = 3, 60.0
MAX_CHARS = 2_000

Progress = Callable[[int, int], None]


class Questions:
    """Texts as vectors, each asked for once. One for all places that search by meaning."""

    def __init__(self, embedder: "Embedder", *, clock: Clock = SYSTEM_CLOCK) -> None:
        self.embedder = embedder
        self._breaker = Breaker(MAX_FAILURES, RESET_SECONDS, clock)
        self._known: OrderedDict[str, asyncio.Future[Vector]] = OrderedDict()
        self._running = 0
        self._able = find_spec("numpy") is not None
        self.failure = "" if self._able else "numpy is missing: pip install 'upwell[embed]'"

    async def vector(self, text: str, deadline: Deadline) -> "Vector | None":
        """`text` as a vector; None when the model fails, or is not done in time."""
        text = text[:MAX_CHARS]
        asked = self._known.get(text) or self._ask(text)
        if asked is None:
            return None
        wait = min(WAIT_SECONDS, SHARE * deadline.remaining())
        done, _ = await asyncio.wait([asked], timeout=wait)
        return asked.result() if done and not asked.cancelled() and not asked.exception() else None

    async def load(self) -> bool:
        """Is the model there? Loads it, which may take seconds."""
        if not self._able:
            return False
        try:
            await _aside(lambda: self.embedder.dim)
        except LlmError as error:
            self._failed(error)
            return False
        return True

    def _ask(self, text: str) -> "asyncio.Future[Vector] | None":
        if not self._able or self._running >= AT_ONCE or not self._breaker.allow():
            return None
        asked = _aside(lambda: embedded(self.embedder, [text])[0])
        self._running += 1
        asked.add_done_callback(lambda done: self._settle(text, done))
        self._known[text] = asked
        while len(self._known) > REMEMBERED:
            self._known.popitem(last=False)
        return asked

    def _settle(self, text: str, done: "asyncio.Future[Vector]") -> None:
        self._running -= 1
        if done.cancelled():
            self._known.pop(text, None)
        elif error := done.exception():
            self._known.pop(text, None)
            self._breaker.fail()
            self._failed(error)
        else:
            self._breaker.succeed()
            self.failure = ""

    def _failed(self, error: BaseException) -> None:
        if not self.failure:
            LOG.warning("searching by words only: %s", error)
        self.failure = str(error)


class Meaning:
    """The vectors of one file's memories, and questions put to them."""

    def __init__(self, questions: Questions, database: Database) -> None:
        self.questions = questions
        self._database = database
        self._near: Nearness | None = None
        self._complete: tuple[int, int] | None = None

    async def vector(self, text: str, deadline: Deadline) -> "Vector | None":
        """As `Questions.vector`; None for a text that says nothing."""
        return await self.questions.vector(text, deadline) if text.strip() else None

    def look(
        self,
        db: sqlite3.Connection,
        vector: "Vector",
        scopes: Sequence[int],
        namespaces: Sequence[str],
        others: Iterable[int],
    ) -> "Likeness | None":
        """As `Nearness.look`; on the reading lane."""
        from upwell.memory.nearness import Nearness

        embedder = self.questions.embedder
        model = vectors.known_model(db, embedder.name, embedder.dim)
        if model is None:
            return None
        if self._near is None or self._near.model != model:
            self._near = Nearness(model, embedder.dim)
        return self._near.look(db, vector, scopes, namespaces, others)

    async def catch_up(self, progress: Progress | None = None) -> int:
        """Embed what has no vector of this model yet, a batch at a time; `progress(done, of)`.
        While another process does it, or the model fails, nothing. Returns how many were made.

        Raises:
            StoreError: the file cannot be written.
        """
        if await self._database.data_version() == self._complete:
            return 0
        if not await self.questions.load():
            return 0
        from filelock import FileLock, Timeout

        lock = FileLock(f"{self._database.path}.vectors.lock", mode=0o600, thread_local=False)
        try:
            await asyncio.to_thread(lock.acquire, timeout=0)
        except (Timeout, OSError):
            return 0
        try:
            return await self._embed(progress)
        finally:
            lock.release()

    async def counts(self) -> tuple[int, int]:
        """How many memories have a vector, of how many."""
        model = await self._model()
        return await self._database.read(lambda db: vectors.counts(db, model))

    async def _embed(self, progress: Progress | None) -> int:
        model = await self._model()
        done, after = 0, -1
        known, of = await self.counts()
        while batch := await self._database.read(_due(model, after)):
            made = await self._made(batch)
            if not made:
                return done
            await self._database.write(_keep(model, list(made), list(made.values())))
            done, after = done + len(made), batch[-1].n
            if progress is not None:
                progress(known + done, of)
        self._complete = await self._database.data_version()
        if done:
            LOG.info("%d memories were embedded by %s", done, self.questions.embedder.name)
        return done

    async def _made(self, batch: Sequence[vectors.Due]) -> dict[vectors.Due, bytes]:
        """The vectors of these, packed; one by one where a model does not take them together, so
        that a text it cannot read keeps no other from being found. Nothing from one that is
        down."""
        from upwell.memory.nearness import packed

        texts = [one.text for one in batch]
        try:
            made = await _aside(partial(embedded, self.questions.embedder, texts))
            return dict(zip(batch, map(packed, made), strict=True))
        except LlmError as error:
            LOG.warning("%d memories cannot be embedded: %s", len(batch), error)
        kept: dict[vectors.Due, bytes] = {}
        for tried, one in enumerate(batch if len(batch) > 1 else ()):
            if not kept and tried >= MAX_FAILURES:
                break
            kept |= await self._made([one])
        return kept

    async def _model(self) -> int:
        name, dim = self.questions.embedder.name, self.questions.embedder.dim
        return await self._database.write(lambda db: vectors.model_number(db, name, dim))


def embedded(embedder: "Embedder", texts: Sequence[str]) -> "Sequence[Vector]":
    """A vector for each text, fit to be compared with the others of this model.

    Raises:
        LlmError: the model gave another number of them, or such as cannot be compared.
    """
    made, dim = embedder.embed(texts), embedder.dim
    if len(made) != len(texts):
        raise LlmError(f"{embedder.name} gave {len(made)} vectors for {len(texts)} texts")
    for vector in made:
        if len(vector) != dim or not all(map(math.isfinite, vector)):
            raise LlmError(f"{embedder.name} gave a vector that is not {dim} finite numbers")
    return made


def _aside[T](work: Callable[[], T]) -> asyncio.Future[T]:
    """`work()` on a thread that nobody waits for at the end: what hangs holds up nothing. Whatever
    a model raises is an LlmError."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: Exception | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(cast(T, result))

    def run() -> None:
        try:
            outcome: tuple[T | None, Exception | None] = work(), None
        except LlmError as error:
            outcome = None, error
        except Exception as error:
            outcome = None, LlmError(f"the model failed: {error}")
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(settle, *outcome)

    Thread(target=run, daemon=True, name="meaning").start()
    return future


def _due(model: int, after: int) -> Callable[[sqlite3.Connection], list[vectors.Due]]:
    return lambda db: vectors.due(db, model, after, BATCH)


def _keep(
    model: int, batch: Sequence[vectors.Due], kept: Sequence[bytes]
) -> Callable[[sqlite3.Connection], None]:
    return lambda db: vectors.keep(db, model, batch, kept)
