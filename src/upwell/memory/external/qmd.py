"""Recall from the external program `qmd` (npm `@tobilu/qmd`), which indexes the user's Markdown
collections.

`qmd search` uses BM25 and requires all words in a query; `vsearch` and `query` need qmd's models.
qmd runs without a shell and within the deadline. It runs in upwell's home, so that no project
folder can configure it. Its output is limited to a few megabytes. Its scores cannot be compared
across queries, so `memory/external/waiting.py` scores the hits again. In explicit searches by
meaning, qmd's own scores also count. `memory/external/waiting.py` limits how long upwell waits.
"""

import asyncio
import contextlib
import itertools
import json
import os
import re
import signal
from asyncio.subprocess import Process
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from upwell.ground.clock import SYSTEM_CLOCK, Clock, Deadline
from upwell.ground.errors import RecallUnavailable, UsageError
from upwell.ground.names import QMD_SCHEME as SCHEME
from upwell.ground.project import is_seen, repository_of
from upwell.ground.secrets.redact import redact, redacted_start
from upwell.ground.text.anchors import paths_in, symbols_in
from upwell.ground.types.memory import Found, Memory, Query, Trust
from upwell.ground.types.rpc import Ping
from upwell.memory.external.dialects import one_line, telling_words
from upwell.memory.external.waiting import Patience, Waiting, rescored
from upwell.memory.options import Backend

COMMAND = ("qmd",)
SEARCH = "search"
"""qmd's command for a search by words."""
ID = "qmd:"
"""The prefix of passage ids, which look like `qmd:collection/path.md:first:count`."""
MAX_OUTPUT_BYTES = 4_000_000
MAX_HITS = 40
MAX_WORDS, MAX_SINGLE_WORDS = 5, 3
MAX_RUNNING = 4
PING_SECONDS = 5.0
GRACE_SECONDS = 1.0
_SNIPPET = re.compile(r"@@ -(\d{1,9}),(\d{1,9}) @@[^\n]*\n")
_PASSAGE = re.compile(r"qmd:(.+):(\d{1,9}):(\d{1,9})")
_ROOT = re.compile(r"^[ \t]*+Path:[ \t]++(.+)$", re.MULTILINE)
_INSTALL = "npm install -g @tobilu/qmd, or memory.backend = builtin"


class QmdPassages(Struct, frozen=True):
    """The result of a request: passages that do not overlap, qmd's scores by passage id, and the
    texts that were sent to qmd."""

    memories: tuple[Memory, ...]
    own_scores: Mapping[str, float]
    asked: tuple[str, ...]


class QmdRecall:
    """`Recall` from qmd's index. `command` runs in `folder` with `environment`, except upwell's own
    variables."""

    name = "qmd"

    def __init__(
        self,
        backend: Backend,
        folder: Path,
        environment: Mapping[str, str],
        patience: Patience | None = None,
        *,
        command: Sequence[str] = COMMAND,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._mode = backend.partition(" ")[2] or SEARCH
        self._command = command
        self._folder = folder
        self._environment = {
            name: value for name, value in environment.items() if not name.startswith("UPWELL_")
        }
        self._clock = clock
        self._turns = asyncio.Semaphore(MAX_RUNNING)
        self._waiting = Waiting[QmdPassages](patience or Patience(), _unavailable, clock)
        self._projects: dict[str, str | None] = {}

    async def search(self, query: Query, deadline: Deadline) -> Found:
        passages = self._waiting.late(query)
        if passages is None:
            passages = await self._waiting.answer(query, deadline, self._request)
            self._waiting.succeed(query)
        searches_by_meaning = self._mode != SEARCH
        own = passages.own_scores if searches_by_meaning else None
        now = self._clock.now()
        hits = await asyncio.to_thread(rescored, passages.memories, query, now, deadline, own)
        return Found(tuple(hits), asked=tuple(f"{self.name}: {text}" for text in passages.asked))

    async def _request(self, query: Query, deadline: Deadline) -> QmdPassages:
        texts = _requests(query, self._mode)
        answers = await asyncio.gather(*(self._results(text, deadline) for text in texts))
        passages: list[Memory] = []
        scores: dict[str, float] = {}
        for item in itertools.chain.from_iterable(answers):
            memory = await self._memory(item, deadline)
            if memory is not None:
                passages.append(memory)
                if isinstance(score := item.get("score"), int | float):
                    scores[memory.source] = max(float(score), scores.get(memory.source, 0.0))
        joined = _joined(passages)[: MAX_HITS * 2]
        own_scores = {
            memory.id: scores[memory.source] for memory in joined if memory.source in scores
        }
        return QmdPassages(tuple(joined), own_scores, tuple(texts))

    async def lines(self, path: str, project: str | None) -> list[str]:
        """Return all lines of a document. `path` is the document's address in citations
        (`qmd://collection/path.md`). Raises UsageError if this project sees no such document, or
        qmd cannot read it."""
        name = path.removeprefix(SCHEME)
        deadline = Deadline.after(PING_SECONDS, self._clock)
        try:
            seen = is_seen(await self._project(name.partition("/")[0], deadline), project)
            text = await self._text(name, deadline)
        except RecallUnavailable as error:
            raise UsageError(f"{path} cannot be read: {error.message}", hint=_INSTALL) from error
        text = text.removeprefix("\n").removesuffix("\n")
        if not seen or not text.strip():
            raise UsageError(f"no document {path}", hint="memory_search returns citations")
        return redact(text)[0].split("\n")

    async def aclose(self) -> None:
        await self._waiting.aclose()

    async def get(self, memory_id: str) -> Memory | None:
        match = _PASSAGE.fullmatch(memory_id)
        if match is None:
            return None
        path, first, count = match[1], int(match[2]), int(match[3])
        deadline = Deadline.after(PING_SECONDS, self._clock)
        try:
            text = (await self._text(f"{path}:{first}:{count}", deadline)).strip("\n")
            return await self._passage(path, first, count, text, deadline) if text.strip() else None
        except RecallUnavailable:
            return None

    async def ping(self) -> Ping:
        try:
            output = await self._run(("status",), Deadline.after(PING_SECONDS, self._clock))
        except RecallUnavailable as error:
            return Ping(ok=False, detail=error.message, hint=error.hint)
        match = re.search(rb"Total:\s*(\d+)", output)
        summary = f"{int(match[1])} documents indexed" if match else "answers"
        return Ping(ok=True, detail=f"{summary}, qmd {self._mode}")

    async def _text(self, address: str, deadline: Deadline) -> str:
        """A document, or lines of it, without the header that `qmd get` prints above it."""
        arguments = ("get", "--no-line-numbers", "--", f"{SCHEME}{address}")
        output = (await self._run(arguments, deadline)).decode(errors="replace")
        return output.partition("\n---\n")[2]

    async def _results(self, text: str, deadline: Deadline) -> Sequence[Mapping[str, Any]]:
        output = await self._run((self._mode, "--json", "-n", str(MAX_HITS), "--", text), deadline)
        try:
            items = json.loads(output) if output.strip() else []
        except (ValueError, RecursionError) as error:
            raise _unavailable("answered with something that is not JSON") from error
        if not isinstance(items, list):
            raise _unavailable("answered with JSON that is not a list")
        return [item for item in items if isinstance(item, dict)]

    async def _memory(self, item: Mapping[str, Any], deadline: Deadline) -> Memory | None:
        file, snippet = item.get("file"), item.get("snippet")
        if not isinstance(file, str) or not isinstance(snippet, str):
            return None
        header = _SNIPPET.match(snippet)
        text = snippet[header.end() :] if header else snippet
        line = item.get("line")
        first = int(header[1]) if header else line if isinstance(line, int) else 1
        count = int(header[2]) if header else text.count("\n") + 1
        if not text.strip():
            return None
        return await self._passage(file.removeprefix(SCHEME), first, count, text, deadline)

    async def _passage(
        self, path: str, first: int, count: int, text: str, deadline: Deadline
    ) -> Memory:
        masked = redact(text)[0]
        return Memory(
            id=f"{ID}{path}:{first}:{count}",
            text=masked,
            paths=paths_in(masked),
            symbols=symbols_in(masked),
            source=f"{SCHEME}{path}",
            lines=(first, first + max(1, count) - 1),
            project=await self._project(path.partition("/")[0], deadline),
            trust=Trust.IMPORTED,
        )

    async def _project(self, collection: str, deadline: Deadline) -> str | None:
        if collection not in self._projects:
            output = await self._run(("collection", "show", "--", collection), deadline)
            root = _ROOT.search(output.decode(errors="replace"))
            self._projects[collection] = repository_of(root[1].strip()) if root else None
        return self._projects[collection]

    async def _run(self, args: Sequence[str], deadline: Deadline) -> bytes:
        async with self._turns:
            try:
                async with asyncio.timeout(deadline.remaining()):
                    return await self._output(args)
            except TimeoutError:
                raise _unavailable("took too long") from None

    async def _output(self, args: Sequence[str]) -> bytes:
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                *args,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                cwd=self._folder,
                env=self._environment,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            raise _unavailable(f"cannot be run: {error}") from error
        assert process.stdout
        assert process.stderr
        streams = (process.stdout, process.stderr)
        try:
            output, errors = await asyncio.gather(*(_capped(process, stream) for stream in streams))
            status = await process.wait()
        finally:
            await _ended(process, streams)
        if len(output) > MAX_OUTPUT_BYTES:
            raise _unavailable(f"answered with more than {MAX_OUTPUT_BYTES:,} bytes")
        if status:
            last = errors.decode(errors="replace").strip().splitlines()[-1:] or ["no reason"]
            raise _unavailable(f"failed with status {status}: {redacted_start(last[0], 200)}")
        return output


def _joined(passages: Sequence[Memory]) -> list[Memory]:
    """Join passages that overlap or are adjacent, because several requests can find parts of the
    same place. A file's passages stay together, and each takes the rank of its best part."""
    windows: dict[str, list[Memory]] = {}
    for passage in passages:
        windows.setdefault(passage.source, []).append(passage)
    joined: list[Memory] = []
    for of_file in windows.values():
        rank = {passage.id: number for number, passage in reversed(list(enumerate(of_file)))}
        groups: list[list[Memory]] = []
        end = 0
        for passage in sorted(of_file, key=lambda passage: _span(passage)[0]):
            first, last = _span(passage)
            if groups and first <= end + 1:
                groups[-1].append(passage)
            else:
                groups.append([passage])
                end = 0
            end = max(end, last)
        groups.sort(key=lambda group: min(rank[passage.id] for passage in group))
        joined += [_one(group) for group in groups]
    return joined


def _one(group: Sequence[Memory]) -> Memory:
    if len(group) == 1:
        return group[0]
    lines: dict[int, str] = {}
    for passage in group:
        for number, line in enumerate(passage.text.split("\n"), _span(passage)[0]):
            lines.setdefault(number, line)
    first, last = min(lines), max(lines)
    path = group[0].source.removeprefix(SCHEME)
    return replace(
        group[0],
        id=f"{ID}{path}:{first}:{last - first + 1}",
        text="\n".join(lines[number] for number in sorted(lines)),
        paths=tuple(dict.fromkeys(name for passage in group for name in passage.paths)),
        symbols=tuple(dict.fromkeys(name for passage in group for name in passage.symbols)),
        lines=(first, last),
    )


def _span(passage: Memory) -> tuple[int, int]:
    return passage.lines or (1, 1)


def _requests(query: Query, mode: str) -> list[str]:
    """A search by meaning gets the query's text in one line. A search by words requires every word,
    so one request contains the first few words, and each of the longest words gets a request of its
    own. Words contain only letters and digits, so qmd sees no operators."""
    if mode != SEARCH:
        return [line] if (line := one_line(query)) else []
    words = telling_words(query)
    longest_words = sorted(words, key=len, reverse=True)[:MAX_SINGLE_WORDS]
    return list(dict.fromkeys([" ".join(words[:MAX_WORDS]), *longest_words])) if words else []


async def _capped(process: Process, stream: asyncio.StreamReader) -> bytes:
    """After MAX_OUTPUT_BYTES, kill the program and discard the rest of its output."""
    parts: list[bytes] = []
    size = 0
    while size <= MAX_OUTPUT_BYTES and (part := await stream.read(65_536)):
        size += len(part)
        parts.append(part)
    if size > MAX_OUTPUT_BYTES:
        _kill(process)
        await _discard(stream)
    return b"".join(parts)


async def _ended(process: Process, streams: Sequence[asyncio.StreamReader]) -> None:
    # `process.wait()` waits for EOF on the pipes, and a full pipe that nobody reads never reaches
    # EOF.
    if process.returncode is None:
        _kill(process)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GRACE_SECONDS):
                await asyncio.gather(*map(_discard, streams))
                await process.wait()


async def _discard(stream: asyncio.StreamReader) -> None:
    while await stream.read(65_536):
        pass


def _kill(process: Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _unavailable(failure: str) -> RecallUnavailable:
    return RecallUnavailable(f"qmd {failure}", source="qmd", hint=_INSTALL)
