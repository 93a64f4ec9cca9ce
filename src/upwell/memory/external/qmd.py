"""Recall over the external program `qmd` (npm `@tobilu/qmd`): the user's Markdown collections.

`qmd search` is BM25 over all words of a query; `vsearch` and `query` need qmd's models. qmd runs
without a shell, in upwell's home (so that no project folder can configure it) and within the
deadline, and its output is limited to a few megabytes. Its scores are not comparable across
queries, so `memory/sqlite/rescore.py` scores the hits again; its own scores of a search by meaning
count in explicit searches.
"""

import asyncio
import contextlib
import json
import os
import re
import signal
from asyncio.subprocess import Process
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from upwell.ground.clock import SYSTEM_CLOCK, Clock, Deadline
from upwell.ground.errors import RecallUnavailable
from upwell.ground.limits import Breaker
from upwell.ground.project import repository_of
from upwell.ground.secrets.redact import redact, redacted_start
from upwell.ground.types.memory import Found, Memory, Query, Trust
from upwell.ground.types.rpc import Ping
from upwell.memory.external.dialects import one_line, telling_words
from upwell.memory.options import MemoryOptions, QmdMode
from upwell.memory.sqlite.rescore import rescored

SCHEME = "qmd://"
ID = "qmd:"
"""The prefix of passage ids: `qmd:collection/path.md:first:count`."""
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


MAX_FAILURES = 3
RESET_SECONDS = 60.0
RACE_SECONDS = 0.3
"""How long a call waits for memories."""


class QmdRecall:
    """`Recall` over the index of `qmd`, which runs in `folder` with `environment`."""

    name = "qmd"

    def __init__(
        self,
        options: MemoryOptions,
        folder: Path,
        environment: Mapping[str, str],
        *,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._options = options
        self._folder = folder
        self._environment = {
            name: value for name, value in environment.items() if not name.startswith("UPWELL_")
        }
        self._clock = clock
        self._turns = asyncio.Semaphore(MAX_RUNNING)
        self._breakers = {
            awaited: Breaker(MAX_FAILURES, RESET_SECONDS, clock) for awaited in (False, True)
        }
        self._projects: dict[str, str | None] = {}

    async def search(self, query: Query, deadline: Deadline) -> Found:
        """Find the passages that bear on `query`, most probable first by upwell's signals.

        After some failures in a row, or searches too slow for a call to wait for, qmd is not used
        for a while. Explicit searches are counted separately. Raises: RecallUnavailable: qmd cannot
        be run, failed, took too long, sent garbage, or is not being used for a while.
        """
        breaker = self._breakers[query.awaited]
        if not breaker.allow():
            raise _unavailable(f"is left alone after {MAX_FAILURES} failures in a row")
        began = self._clock.monotonic()
        try:
            hits = await self._search(query, deadline)
        except RecallUnavailable:
            breaker.fail()
            raise
        too_slow = not query.awaited and self._clock.monotonic() - began > RACE_SECONDS
        (breaker.fail if too_slow else breaker.succeed)()
        return hits

    async def _search(self, query: Query, deadline: Deadline) -> Found:
        texts = _requests(query, self._options.qmd_mode)
        answers = await asyncio.gather(*(self._results(text, deadline) for text in texts))
        passages_by_id: dict[str, Memory] = {}
        own_scores: dict[str, float] = {}
        for answer in answers:
            for item in answer:
                memory = await self._memory(item, deadline)
                if memory is not None:
                    passages_by_id.setdefault(memory.id, memory)
                    if isinstance(score := item.get("score"), int | float):
                        own_scores.setdefault(memory.id, float(score))
        passages = list(passages_by_id.values())[: MAX_HITS * 2]
        searches_by_meaning = self._options.qmd_mode is not QmdMode.SEARCH
        own = own_scores if searches_by_meaning else None
        now = self._clock.now()
        return Found(tuple(await asyncio.to_thread(rescored, passages, query, now, deadline, own)))

    async def get(self, memory_id: str) -> Memory | None:
        """The passage with an id that `search` returned; None if qmd no longer has the passage."""
        match = _PASSAGE.fullmatch(memory_id)
        if match is None:
            return None
        path, first, count = match[1], int(match[2]), int(match[3])
        deadline = Deadline.after(PING_SECONDS, self._clock)
        lines = ("get", "--no-line-numbers", "--", f"{SCHEME}{path}:{first}:{count}")
        try:
            output = (await self._run(lines, deadline)).decode(errors="replace")
        except RecallUnavailable:
            return None
        text = output.partition("\n---\n")[2].strip("\n")
        return await self._passage(path, first, count, text, deadline) if text.strip() else None

    async def ping(self) -> Ping:
        """Check that qmd runs, and report how many documents it has indexed."""
        try:
            output = await self._run(("status",), Deadline.after(PING_SECONDS, self._clock))
        except RecallUnavailable as error:
            return Ping(ok=False, detail=error.message, hint=error.hint)
        match = re.search(rb"Total:\s*(\d+)", output)
        summary = f"{int(match[1])} documents indexed" if match else "answers"
        return Ping(ok=True, detail=f"{summary}, qmd {self._options.qmd_mode}")

    async def _results(self, text: str, deadline: Deadline) -> Sequence[Mapping[str, Any]]:
        mode = str(self._options.qmd_mode)
        output = await self._run((mode, "--json", "-n", str(MAX_HITS), "--", text), deadline)
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
        return Memory(
            id=f"{ID}{path}:{first}:{count}",
            text=redact(text)[0],
            source=f"{SCHEME}{path}",
            lines=(first, first + max(1, count) - 1),
            project=await self._project(path.partition("/")[0], deadline),
            trust=Trust.IMPORTED,
        )

    async def _project(self, collection: str, deadline: Deadline) -> str | None:
        """The repository of a collection; each collection is looked up once."""
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
                *self._options.qmd_command,
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


def _requests(query: Query, mode: QmdMode) -> list[str]:
    """The texts to search for. A search by meaning gets the query's text in one line. A search by
    words requires every word, so one request has the words together and each of the longest words
    gets a request of its own. Words are letters and digits only, so qmd sees no operators."""
    if mode is not QmdMode.SEARCH:
        return [line] if (line := one_line(query)) else []
    words = telling_words(query)
    longest_words = sorted(words, key=len, reverse=True)[:MAX_SINGLE_WORDS]
    return list(dict.fromkeys([" ".join(words[:MAX_WORDS]), *longest_words])) if words else []


async def _capped(process: Process, stream: asyncio.StreamReader) -> bytes:
    """The output; past MAX_OUTPUT_BYTES the program is killed and the rest dropped."""
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
    """Kill the program if it is still running."""
    # `wait` waits for EOF on the pipes, and a full pipe that nobody reads never reaches EOF.
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
