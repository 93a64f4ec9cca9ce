"""Recall over the external program `qmd` (npm `@tobilu/qmd`): Markdown collections of the user's.

`qmd search` is BM25 over all words of a query, `vsearch` and `query` need its models. It is run
without a shell, from upwell's home (so that no folder configures it), within the deadline, and no
more is read of it than a few megabytes. Its scores are not comparable: `memory/rescore.py`.
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

from upwell.ground.errors import RecallError, RecallUnavailable
from upwell.ground.limits import SYSTEM_CLOCK, Clock, Deadline
from upwell.ground.project import repository_of
from upwell.ground.redact import redact
from upwell.ground.trace import LOG
from upwell.ground.types import Hit, Memory, Ping, Query, Trust
from upwell.memory.asking import one_line, telling_words
from upwell.memory.base import Recall
from upwell.memory.options import MemoryOptions, QmdMode
from upwell.memory.rescore import rescored

SCHEME = "qmd://"
ID = "qmd:"
"""Ids of its passages: `qmd:collection/path.md:first:count`."""
MAX_OUTPUT_BYTES = 4_000_000
MOST_HITS = 40
MOST_WORDS, MOST_SINGLE = 5, 3
AT_ONCE = 4
PING_SECONDS = 5.0
GRACE_SECONDS = 1.0
PATIENCE = 0.7
"""The share of a deadline that the first of two places may use."""
_SNIPPET = re.compile(r"@@ -(\d{1,9}),(\d{1,9}) @@[^\n]*\n")
_PASSAGE = re.compile(r"qmd:(.+):(\d{1,9}):(\d{1,9})")
_ROOT = re.compile(r"^\s*Path:\s+(.+?)\s*$", re.MULTILINE)
_INSTALL = "npm install -g @tobilu/qmd, or memory.backend = builtin"


class QmdRecall:
    """`Recall` over what `qmd` has indexed. `folder` is where it is run, `environment` its own."""

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
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._projects: dict[str, str | None] = {}

    async def search(self, query: Query, deadline: Deadline) -> list[Hit]:
        """The passages that bear on `query`, most probable first by our own signals.

        Raises:
            RecallUnavailable: it cannot be run, failed, took too long, or answered rubbish.
        """
        texts = _asked(query, self._options.qmd_mode)
        answers = await asyncio.gather(*(self._ask(text, deadline) for text in texts))
        found: dict[str, Memory] = {}
        for answer in answers:
            for item in answer:
                memory = await self._memory(item, deadline)
                if memory is not None:
                    found.setdefault(memory.id, memory)
        passages = list(found.values())[: MOST_HITS * 2]
        now = self._clock.now()
        return await asyncio.to_thread(rescored, passages, query, now, deadline)

    async def get(self, memory_id: str) -> Memory | None:
        """The passage of an id that `search` gave; None when it is not there any more."""
        match = _PASSAGE.fullmatch(memory_id)
        if match is None:
            return None
        path, first, count = match[1], int(match[2]), int(match[3])
        deadline = Deadline.after(PING_SECONDS, self._clock)
        lines = ("get", "--no-line-numbers", "--", f"{SCHEME}{path}:{first}:{count}")
        try:
            said = (await self._run(lines, deadline)).decode(errors="replace")
        except RecallUnavailable:
            return None
        text = said.partition("\n---\n")[2].strip("\n")
        return await self._passage(path, first, count, text, deadline) if text.strip() else None

    async def ping(self) -> Ping:
        """Can it be run, and does it know of anything?"""
        try:
            said = await self._run(("status",), Deadline.after(PING_SECONDS, self._clock))
        except RecallUnavailable as error:
            return Ping(ok=False, detail=error.message, hint=error.hint)
        match = re.search(rb"Total:\s*(\d+)", said)
        known = f"{int(match[1])} documents indexed" if match else "answers"
        return Ping(ok=True, detail=f"{known}, qmd {self._options.qmd_mode}")

    async def _ask(self, text: str, deadline: Deadline) -> Sequence[Mapping[str, Any]]:
        mode = str(self._options.qmd_mode)
        said = await self._run((mode, "--json", "-n", str(MOST_HITS), "--", text), deadline)
        try:
            found = json.loads(said) if said.strip() else []
        except (ValueError, RecursionError) as error:
            raise _unavailable("answered with something that is not JSON") from error
        if not isinstance(found, list):
            raise _unavailable("answered with JSON that is no list")
        return [item for item in found if isinstance(item, dict)]

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
        """The repository that a collection lies in; asked once."""
        if collection not in self._projects:
            said = await self._run(("collection", "show", "--", collection), deadline)
            root = _ROOT.search(said.decode(errors="replace"))
            self._projects[collection] = repository_of(root[1]) if root else None
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
            said, complaint = await asyncio.gather(*(_capped(process, one) for one in streams))
            status = await process.wait()
        finally:
            await _ended(process, streams)
        if len(said) > MAX_OUTPUT_BYTES:
            raise _unavailable(f"answered with more than {MAX_OUTPUT_BYTES:,} bytes")
        if status:
            last = complaint.decode(errors="replace").strip().splitlines()[-1:] or ["no reason"]
            raise _unavailable(f"failed with status {status}: {redact(last[0][:200])[0]}")
        return said


class FallBack:
    """`Recall` over `first`; over `second` where that fails, within what is left of the time."""

    def __init__(self, first: Recall, second: Recall) -> None:
        self.name = first.name
        self._first = first
        self._second = second

    async def search(self, query: Query, deadline: Deadline) -> list[Hit]:
        """What `first` finds, else what `second` finds.

        Raises:
            RecallError: both failed.
        """
        try:
            return await self._first.search(query, deadline.sooner(deadline.remaining() * PATIENCE))
        except RecallError as error:
            LOG.warning("%s; %s searches instead", error, self._second.name)
            return await self._second.search(query, deadline)

    async def ping(self) -> Ping:
        """Ok while `first` is; while it is not, says who searches."""
        first, second = await self._first.ping(), await self._second.ping()
        if first.ok:
            return first
        instead = self._second.name if second.ok else f"{self._second.name} fails, too"
        return Ping(ok=False, detail=f"{first.detail}; instead: {instead}", hint=first.hint)


def _asked(query: Query, mode: QmdMode) -> list[str]:
    """What to ask `qmd`. Its search by words wants every word to be there, so the words are asked
    for together and the most telling ones alone; letters and digits only, so none is an operator.
    By meaning the text is asked for as it is, in one line."""
    if mode is not QmdMode.SEARCH:
        return [line] if (line := one_line(query)) else []
    words = telling_words(query)
    telling = sorted(words, key=len, reverse=True)[:MOST_SINGLE]
    return list(dict.fromkeys([" ".join(words[:MOST_WORDS]), *telling])) if words else []


async def _capped(process: Process, stream: asyncio.StreamReader) -> bytes:
    """All that is said; of too much the beginning, and the program is ended there."""
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
    """The program is gone afterwards. Its pipes are emptied first: `wait` waits for their end, and
    a full one that nobody reads has none."""
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


def _unavailable(why: str) -> RecallUnavailable:
    return RecallUnavailable(f"qmd {why}", source="qmd", hint=_INSTALL)
