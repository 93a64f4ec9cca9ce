"""Files as memories: what the user imported, and `stm.json`, found like everything else.

The files are the truth. `index.db` holds what was made of them, and before each search they are
looked at: size and time of change, then content. What changed is read again, what is gone goes.
"""

import asyncio
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from upwell.ground.db import Database
from upwell.ground.errors import RecallUnavailable, StoreError, UpwellError, UsageError
from upwell.ground.files import Stamp, is_there
from upwell.ground.limits import SYSTEM_CLOCK, Clock, Deadline
from upwell.ground.project import is_seen
from upwell.ground.redact import redact
from upwell.ground.text.counts import counted
from upwell.ground.trace import LOG
from upwell.ground.types import DEFAULT_TENANT, Hit, Memory, Ping, Query
from upwell.memory.catalog import Catalog
from upwell.memory.meaning import Questions
from upwell.memory.quote import lines_for
from upwell.memory.reading import Notes, Reader
from upwell.memory.scan import (
    Found,
    Known,
    Look,
    Problem,
    Unreadable,
    read_bytes,
    scan,
    text_of,
)
from upwell.memory.sources import Form, Source, Sources

BATCH_FILES, BATCH_BYTES = 64, 1_000_000
RACE_SECONDS = 0.1
"""Automatic doors wait this long for what has changed; building goes on behind them."""
LOOK_SECONDS = 5.0
"""Whoever reads a file waits this long for changes in what is imported."""
RESERVE_SECONDS = 0.5
"""What a search keeps of its deadline for itself."""
PAUSE_SECONDS = 1.0
"""Where there are no files, automatic doors look whether something was imported no more often."""
QUIET_SECONDS = 60.0
"""The same, while nobody has written to the file that says what was imported."""
SHARE = 10
"""Automatic doors look for changes again after ten times what looking took."""

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """The index after a check of so many `seconds`: how much it holds, what could not be read."""

    files: int
    chunks: int
    seconds: float = 0.0
    problems: tuple[Problem, ...] = ()


class Documents:
    """`Recall` over the files of `sources` and over `notes`. `opened` hears of the index when it is
    first opened."""

    name = "documents"

    def __init__(
        self,
        path: Path,
        sources: Sources,
        *,
        notes: Notes | None = None,
        opened: Callable[[Database], None] = lambda _: None,
        questions: Questions | None = None,
        tenant: str = DEFAULT_TENANT,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._sources = sources
        self._reader = Reader(tenant, notes)
        self._clock = clock
        self.catalog = Catalog(path, tenant, clock, opened, questions)
        self._checking = asyncio.Lock()
        self._running: dict[str | None, asyncio.Task[None]] = {}
        self._looked: dict[str | None, tuple[float, float]] = {}
        self._empty: tuple[Stamp | None, ...] | None = None

    async def search(self, query: Query, deadline: Deadline) -> list[Hit]:
        """The chunks and notes that bear on `query`, most probable first, each citing the lines
        that hold the query's words.

        Raises:
            RecallUnavailable: the index failed.
        """
        try:
            await self._catch_up(query, deadline)
            store = await self.catalog.store()
        except StoreError as error:
            raise RecallUnavailable(error.message, source=self.name, hint=error.hint) from error
        return [_cited(hit) for hit in await store.search(query, deadline)] if store else []

    async def get(self, memory_id: str) -> Memory | None:
        """The chunk or note with this id.

        Raises:
            StoreError: the index failed.
        """
        store = await self.catalog.store()
        return await store.get(memory_id) if store else None

    async def ping(self) -> Ping:
        try:
            files, chunks = await self.catalog.counts()
        except StoreError as error:
            return Ping(ok=False, detail=error.message, hint=error.hint)
        return Ping(ok=True, detail=f"{counted(files, 'file')}, {counted(chunks, 'chunk')}")

    async def refresh(self, project: str | None = None, progress: Progress | None = None) -> State:
        """Bring the index up to date with the files that `project` sees (None: all).

        Raises:
            StoreError: the index cannot be written.
        """
        began = self._clock.monotonic()
        async with self._checking:
            problems = await self._check(project, progress)
        seconds = self._clock.monotonic() - began
        files, chunks = await self.catalog.counts()
        said = [Problem(path, why) for path, why in await self.catalog.problems()]
        return State(files=files, chunks=chunks, seconds=seconds, problems=(*problems, *said))

    async def counts(self, source: Source) -> tuple[int, int]:
        """How many files and chunks there are of a source."""
        return await self.catalog.counts(source.path)

    async def lines(
        self, cited: str, project: str | None, namespaces: Sequence[str] = ()
    ) -> list[str]:
        """The lines of an imported file as it is now, secrets masked. `cited` is its path as
        citations name it; nothing else can be read, nor what is in other `namespaces`.

        Raises:
            UsageError: no imported file is cited so, or it cannot be read.
        """
        await _finish(self._start(project), LOOK_SECONDS)
        wanted = cited.removeprefix("./")
        found = await self.catalog.file_cited(wanted, project, namespaces)
        if found is None:
            raise UsageError(
                f"no imported document is called {cited!r:.200}",
                hint="memory_search cites them; `upwell import` adds a folder",
            )
        try:
            return await asyncio.to_thread(_lines_of, *found)
        except Unreadable as error:
            raise UsageError(f"cannot read {wanted}: {error}") from error

    async def aclose(self) -> None:
        """Stop what is under way and close the index."""
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.catalog.aclose()

    async def _catch_up(self, query: Query, deadline: Deadline) -> None:
        """Look for changes, and wait for them as long as this query may."""
        project = query.scope.project
        running = self._running.get(project)
        if query.awaited:
            if running and not running.done():
                await _finish(running, deadline.remaining() - RESERVE_SECONDS)
            await _finish(self._start(project), deadline.remaining() - RESERVE_SECONDS)
        elif not self._looked_lately(project):
            await _finish(self._start(project), min(RACE_SECONDS, deadline.remaining()))

    def _start(self, project: str | None) -> asyncio.Task[None]:
        running = self._running.get(project)
        if running is None or running.done():
            running = asyncio.create_task(self._try(project))
            self._running[project] = running
        return running

    async def _try(self, project: str | None) -> None:
        """A check that fails leaves the index as it is."""
        try:
            async with self._checking:
                await self._check(project, None)
        except UpwellError as error:
            LOG.warning("documents cannot be looked at: %s", error)

    def _looked_lately(self, project: str | None) -> bool:
        at, took = self._looked.get(project, (0.0, 0.0))
        if self._has_files():
            pause = SHARE * took
        else:
            quiet = self._empty is not None and self._empty == self._sources.stamp()
            pause = QUIET_SECONDS if quiet else PAUSE_SECONDS * bool(took)
        return self._clock.monotonic() - at < pause

    def _has_files(self) -> bool:
        notes = self._reader.notes
        return self.catalog.exists or (notes is not None and is_there(notes.path))

    async def _check(self, project: str | None, progress: Progress | None) -> list[Problem]:
        """Compare the files with what is known of them, and take in the difference."""
        stamp = self._sources.stamp()
        imported = await self._sources.all()
        self._empty = None if imported else stamp
        every = [*imported, *self._reader.sources()]
        within = [one for one in every if is_seen(one.project, project)]
        paths = [one.path for one in every]
        known = await self.catalog.known() if self.catalog.exists else {}
        began = self._clock.monotonic()
        look = await asyncio.to_thread(scan, within, paths, known)
        self._looked[project] = (began, self._clock.monotonic() - began)
        keys = {one.key for one in within}
        await self.catalog.drop(_gone(known, look, keys, {one.key for one in every}))
        await self._take_in(look.changed, known, progress)
        return look.problems

    async def _take_in(
        self, changed: Sequence[Found], known: Mapping[str, Known], progress: Progress | None
    ) -> None:
        done, news = 0, False
        for batch in _batches(changed):
            now_ns = int(self._clock.now() * 1e9)
            readings = await asyncio.to_thread(self._reader.read_all, batch, known, now_ns)
            if readings:
                await self.catalog.put(readings)
                news = True
            done += len(batch)
            if progress:
                progress(done, len(changed))
        if news:
            await self.catalog.measure()


async def _finish(task: asyncio.Task[None], seconds: float) -> None:
    """Wait for a task, which goes on when the time is up; what it raised is raised."""
    done, _ = await asyncio.wait({task}, timeout=max(0.0, seconds))
    if done:
        task.result()


def _lines_of(path: str, source: str) -> list[str]:
    text, _ = redact(text_of(read_bytes(path, source)), keep_lines=True)
    return [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]


def _gone(known: Mapping[str, Known], look: Look, within: set[str], every: set[str]) -> list[str]:
    """The files that are known and not there any more. Those of sources out of sight may be; so may
    another project's notes, of which only those who work there know."""
    return [
        path
        for path, one in known.items()
        if path not in look.there
        and (one.key in within or (one.key not in every and not _is_there(path, one)))
    ]


def _is_there(path: str, known: Known) -> bool:
    return known.key.endswith(f"\n{Form.STM}") and os.path.exists(path)


def _batches(files: Sequence[Found]) -> Iterator[list[Found]]:
    batch: list[Found] = []
    size = 0
    for found in files:
        if batch and (len(batch) >= BATCH_FILES or size + found.size > BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(found)
        size += found.size
    if batch:
        yield batch


def _cited(hit: Hit) -> Hit:
    """A chunk that cites those of its lines that hold the query's words."""
    memory = hit.memory
    if memory.lines is None or memory.lines[0] == memory.lines[1]:
        return hit
    span = lines_for(memory.text, hit.matched)
    if span is None:
        return hit
    lines = memory.lines[0] + span[0], memory.lines[0] + span[1]
    return replace(hit, memory=replace(memory, lines=lines))
