"""Let searches find imported files and `stm.json` in the same way as memories.

The files are the source of truth, and `index.db` is derived from them. Before a search, upwell
compares the sizes and modification times of the files with the index. For an automatic search (no
user or agent waits for the result), it does so only at intervals. Files that differ are read and
indexed again, and deleted files are dropped.
"""

import asyncio
import os
from collections.abc import Hashable, Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from upwell.ground.clock import SYSTEM_CLOCK, Clock, Deadline
from upwell.ground.errors import RecallUnavailable, StoreError, UpwellError, UsageError
from upwell.ground.files import file_exists
from upwell.ground.project import is_seen
from upwell.ground.secrets.redact import redact
from upwell.ground.text.words import counted
from upwell.ground.trace import LOG
from upwell.ground.types.memory import Found, Hit, Memory, Query
from upwell.ground.types.rpc import Ping
from upwell.memory.base import StoreRecall
from upwell.memory.documents.catalog import DocumentCatalog
from upwell.memory.documents.reading import (
    FileReader,
    FoundFile,
    KnownFile,
    Look,
    Notes,
    Problem,
    UnreadableFile,
    read_bytes,
    scan,
    text_of,
)
from upwell.memory.meaning import Progress
from upwell.memory.sources import Form, Source, Sources

BATCH_FILES, BATCH_BYTES = 64, 1_000_000
RACE_SECONDS = 0.1
"""How long an automatic search waits for changed files. Indexing then continues in the
background."""
LOOK_SECONDS = 5.0
"""How long a request for a file's lines or for topics waits while imported files are checked."""
RESERVE_SECONDS = 0.5
"""How much of a search's time is reserved for the search itself, after the wait for files."""
PAUSE_SECONDS = 1.0
"""The interval at which automatic searches check the files while there is no index and no
`stm.json`."""
QUIET_SECONDS = 60.0
"""The same interval while the list of imports is empty as well."""
SHARE = 10
"""While there is an index or an `stm.json`, the interval is this many times as long as the last
check took."""


class IndexState(Struct, frozen=True, kw_only=True):
    """The result of a check. `files` and `chunks` count the whole index. `problems` are the skipped
    paths."""

    files: int
    chunks: int
    seconds: float = 0.0
    problems: tuple[Problem, ...] = ()


class Documents:
    """`Recall` over the files of `sources` and over `notes`, indexed in `catalog`.

    Without `watches`, only `refresh()` and `lines()` look at files.
    """

    name = "documents"

    def __init__(
        self,
        catalog: DocumentCatalog,
        sources: Sources,
        *,
        notes: Notes | None = None,
        clock: Clock = SYSTEM_CLOCK,
        watches: bool = True,
    ) -> None:
        self._watches = watches
        self._sources = sources
        self._reader = FileReader(catalog.tenant, notes, embeds=catalog.embeds)
        self._clock = clock
        self.catalog = catalog
        self._checking = asyncio.Lock()
        self._running: dict[str | None, asyncio.Task[None]] = {}
        self._checked: dict[str | None, tuple[float, float]] = {}
        self._empty: Hashable = None

    async def search(self, query: Query, deadline: Deadline) -> Found:
        try:
            await self._catch_up(query, deadline)
            store = await self.catalog.store()
            if store is None:
                return Found()
            # When a file is opened, only memories about that file are wanted, not passages that
            # share words with it.
            passages = [] if query.file else await self.catalog.search(query, deadline)
            result = await StoreRecall(store).search(query, deadline)
            others = [
                hit
                for hit in result.hits
                if hit.memory.lines is None
                or any(hit.signals.get(signal, 0.0) > 0.0 for signal in ("path_join", "meaning"))
            ]
            if others:
                others = await self.catalog.passages(query, others)
        except StoreError as error:
            raise RecallUnavailable(error.message, source=self.name, hint=error.hint) from error
        best: dict[str, Hit] = {}
        for hit in sorted([*passages, *others], key=lambda hit: -hit.score):
            best.setdefault(hit.memory.id, hit)
        return replace(result, hits=tuple(best.values())[: query.limit])

    async def get(self, memory_id: str) -> Memory | None:
        return await self.catalog.get(memory_id)

    async def changes(self) -> tuple[int, int] | None:
        store = await self.catalog.store()
        return await store.changes() if store else None

    async def ping(self) -> Ping:
        try:
            files, chunks = await self.catalog.counts()
        except StoreError as error:
            return Ping(ok=False, detail=error.message, hint=error.hint)
        return Ping(ok=True, detail=f"{counted(files, 'file')}, {counted(chunks, 'chunk')}")

    async def refresh(
        self, project: str | None = None, progress: Progress | None = None
    ) -> IndexState:
        """Bring the index up to date with the files that `project` sees. None means all files.
        Raises StoreError if the index or the list of imports failed."""
        began = self._clock.monotonic()
        async with self._checking:
            problems = await self._check(project, progress)
        seconds = self._clock.monotonic() - began
        files, chunks = await self.catalog.counts()
        recorded = [Problem(path, why) for path, why in await self.catalog.problems()]
        return IndexState(
            files=files, chunks=chunks, seconds=seconds, problems=(*problems, *recorded)
        )

    async def counts(self, source: Source) -> tuple[int, int]:
        return await self.catalog.counts(source.path)

    async def lines(
        self, cited: str, project: str | None, namespaces: Sequence[str] = ()
    ) -> list[str]:
        """Return the current lines of an imported file, with secrets masked. `cited` is the file's
        path in citations. A file with chunks outside `namespaces` is treated as not imported.

        Raises:
            UsageError: no such file is imported, or the file cannot be read.
            StoreError: the index failed.
        """
        await _finish(self._start(project), LOOK_SECONDS)
        citation = cited.removeprefix("./")
        located = await self.catalog.file_cited(citation, project, namespaces)
        if located is None:
            raise UsageError(
                f"no imported document is called {cited!r:.200}",
                hint="memory_search shows the names of documents; `upwell import` adds a folder",
            )
        try:
            data = await asyncio.to_thread(read_bytes, *located)
            text, _ = await asyncio.to_thread(redact, text_of(data), keep_lines=True)
        except UnreadableFile as error:
            raise UsageError(
                f"cannot read {citation}: {error}", hint="check the file, then `upwell import`"
            ) from error
        return [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]

    async def aclose(self) -> None:
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.catalog.aclose()

    async def catch_up(self, project: str | None, deadline: Deadline | None = None) -> None:
        """Check the files that `project` sees for changes. Waits for the check until `deadline`, by
        default for `LOOK_SECONDS`."""
        if not self._watches:
            return
        deadline = deadline or Deadline.after(LOOK_SECONDS, self._clock)
        running = self._running.get(project)
        # A check that is already running may have missed the latest change, so another one follows.
        if running and not running.done():
            await _finish(running, deadline.remaining())
        await _finish(self._start(project), deadline.remaining())

    async def _catch_up(self, query: Query, deadline: Deadline) -> None:
        if not self._watches:
            return
        project = query.scope.project
        if query.awaited:
            await self.catch_up(project, deadline.sooner(deadline.remaining() - RESERVE_SECONDS))
        elif not self._checked_lately(project):
            await _finish(self._start(project), min(RACE_SECONDS, deadline.remaining()))

    def _start(self, project: str | None) -> asyncio.Task[None]:
        async def check() -> None:
            try:
                async with self._checking:
                    await self._check(project, None)
            except UpwellError as error:
                LOG.warning("cannot check the documents: %s", error)

        running = self._running.get(project)
        if running is None or running.done():
            running = self._running[project] = asyncio.create_task(check())
        return running

    def _checked_lately(self, project: str | None) -> bool:
        checked_at, took = self._checked.get(project, (0.0, 0.0))
        notes = self._reader.notes
        if self.catalog.exists or (notes is not None and file_exists(notes.path)):
            pause = SHARE * took
        else:
            quiet = self._empty is not None and self._empty == self._sources.stamp()
            pause = QUIET_SECONDS if quiet else PAUSE_SECONDS * bool(took)
        return self._clock.monotonic() - checked_at < pause

    async def _check(self, project: str | None, progress: Progress | None) -> list[Problem]:
        stamp = self._sources.stamp()
        imported = await self._sources.all()
        self._empty = None if imported else stamp
        every = [*imported]
        if notes := self._reader.notes:
            every.append(Source(os.path.realpath(notes.path), "", form=Form.STM))
        visible = [source for source in every if is_seen(source.project, project)]
        paths = [source.path for source in every]
        known = await self.catalog.known() if self.catalog.exists else {}
        began = self._clock.monotonic()
        look = await asyncio.to_thread(scan, visible, paths, known)
        self._checked[project] = (began, self._clock.monotonic() - began)
        within, of_any = ({source.key for source in sources} for sources in (visible, every))
        await self.catalog.drop(_deleted(known, look, within, of_any))
        await self._index(look.changed, known, progress)
        return look.problems

    async def _index(
        self,
        changed: Sequence[FoundFile],
        known: Mapping[str, KnownFile],
        progress: Progress | None,
    ) -> None:
        done, has_news = 0, False
        for batch in _batches(changed):
            now_ns = int(self._clock.now() * 1e9)
            readings = await asyncio.to_thread(self._reader.read_all, batch, known, now_ns)
            if readings:
                await self.catalog.put(readings)
                has_news = True
            done += len(batch)
            if progress:
                progress(done, len(changed))
        if has_news:
            await self.catalog.measure()


async def _finish(task: asyncio.Task[None], seconds: float) -> None:
    done, _ = await asyncio.wait({task}, timeout=max(0.0, seconds))
    if done:
        task.result()


def _deleted(
    known: Mapping[str, KnownFile], look: Look, within: set[str], every: set[str]
) -> list[str]:
    """Return the indexed files that were not found again or whose source was removed. `within` and
    `every` are the keys of the scanned sources and of all sources. The notes of another project are
    kept while their file exists, because they are a source only for processes in that project."""
    return [
        path
        for path, state in known.items()
        if path not in look.present_paths
        and (
            state.key in within
            or (
                state.key not in every
                and not (state.key.endswith(f"\n{Form.STM}") and os.path.exists(path))
            )
        )
    ]


def _batches(files: Sequence[FoundFile]) -> Iterator[list[FoundFile]]:
    batch: list[FoundFile] = []
    size = 0
    for file in files:
        if batch and (len(batch) >= BATCH_FILES or size + file.size > BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(file)
        size += file.size
    if batch:
        yield batch
