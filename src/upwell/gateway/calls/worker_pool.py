"""Worker processes that parse and fit large results.

Parsing ten megabytes of JSON is a single call into C, during which nothing else in the process
runs. The gateway therefore sends the raw bytes of a large result to a child process and gets the
fitted result back. A child takes one job at a time, and exits when its stdin closes. While the
first child is busy, a second child works for other servers. A job that waits for a language model
gets its own child, so that no other job waits for the model.

Each job and each outcome is a frame: the lengths of head and body in ASCII, a newline, a JSON head,
and the raw body. The outcome is followed by the originals that must not be written to disk. They
are sent in parts, so that no step of the gateway's event loop handles a whole large original.
"""

import asyncio
import sys
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from msgspec.structs import astuple

from upwell.compress.options import CompressOptions
from upwell.compress.originals import KIND
from upwell.gateway.calls.fit import SUMMARY, Cut, Fitter, OnShortened
from upwell.ground.errors import CompressionError
from upwell.ground.ledger import TtlStore
from upwell.ground.trace import LOG
from upwell.ground.types.rpc import ToolCall
from upwell.wire.child import CannotStart, Child, ChildCommand, start
from upwell.wire.rawjson import NotJson, RawObject, check, dumps, loads

HEAVY_BYTES = 128 * 1024
MAX_LOCAL_BYTES = 1_000_000
"""If no worker can be started, a larger result is only shortened cheaply (`Fitter.brief()`),
because more work in the gateway's process would block all other calls."""
WORKERS = 2
MAX_SUMMARIES = 4
"""How many jobs may wait for a language model at once. Further results are truncated instead."""
JOB_SECONDS, MEGABYTE_SECONDS = 20.0, 10.0
"""The time limit of a job: a fixed part, and a part for each megabyte of the result. Waiting for a
language model does not count. The limit far exceeds what any job takes, so that a busy machine does
not change the result.
"""
_WORKER_ARGS = ("-P", "-m", "upwell.cli.worker")
"""`-P` keeps Python from importing modules from the agent's working directory."""


class _Worker:
    """A child process that takes one job at a time. Jobs go to the idle worker with the lowest
    `number`."""

    def __init__(self, number: int, environment: Mapping[str, str]) -> None:
        self.number = number
        self._environment = environment
        self._child: Child | None = None

    def __lt__(self, other: "_Worker") -> bool:
        return self.number < other.number

    async def run(
        self,
        job: Mapping[str, Any],
        result: bytes,
        model_seconds: float,
        take_private: Callable[[str, bytes], Awaitable[None]],
    ) -> tuple[dict[str, Any], bytes]:
        """Run a job and return its outcome. The job may wait `model_seconds` for a language model
        in addition to its time limit. `take_private` receives the parts of the originals that must
        not be written to disk. Raises CannotStart, or OSError, EOFError or TimeoutError if the
        child exited during the job or took too long."""
        child = await self.started()
        seconds = JOB_SECONDS + len(result) / 1e6 * MEGABYTE_SECONDS + model_seconds
        try:
            async with asyncio.timeout(seconds):
                await child.sink.send(_head(job, result))
                await child.sink.send(result)
                head, fitted = await _read_frame(child.out)
                for key, size in head.get("private", ()):
                    await take_private(key, await child.out.readexactly(size))
                return head, fitted
        except BaseException:
            # The pipe may contain the rest of a frame, which the next job would read.
            await self.end()
            raise

    async def started(self) -> Child:
        if self._child is None:
            own = {name: v for name, v in self._environment.items() if name.startswith("UPWELL_")}
            home = self._environment.get("UPWELL_HOME")
            command = ChildCommand(
                program=sys.executable, args=_WORKER_ARGS, env=own, cwd=home, tied=False
            )
            self._child = await start(command, self._environment)
        return self._child

    async def end(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            await child.stop(grace_seconds=0.5)


class WorkerPool:
    """The gateway's side: sends large results to the workers.

    `private` stores the originals that must not be written to disk, for `ttl_seconds`. `brief` fits
    a result on which a worker failed. It also fits a result over `MAX_LOCAL_BYTES` if no worker can
    be started. One server's results are fitted one at a time, so that they do not delay other
    servers' results; those that wait for a language model are fitted in parallel. The second worker
    is stopped as soon as both are idle.
    """

    def __init__(
        self,
        environment: Mapping[str, str],
        private: TtlStore,
        ttl_seconds: float,
        *,
        options: Callable[[str, str], CompressOptions],
        ratios: Mapping[str, float],
        shortened: OnShortened,
        brief: Callable[[ToolCall, bytes], Awaitable[bytes]],
    ) -> None:
        self._private = private
        self._options = options
        self._ttl_seconds = ttl_seconds
        self._ratios = ratios
        self._shortened = shortened
        self._brief = brief
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._environment = environment
        self._first, self._second = (_Worker(number, environment) for number in range(WORKERS))
        self._summaries: set[_Worker] = set()
        self._idle: asyncio.PriorityQueue[_Worker] = asyncio.PriorityQueue()
        self._closing = asyncio.Lock()
        self._idle.put_nowait(self._first)
        self._idle.put_nowait(self._second)

    async def fit(self, call: ToolCall, result: bytes) -> bytes:
        """Fit a raw result to the budget of the call's tool. Raises NotJson if the result is not a
        JSON object, and CompressionError if no worker can be started: the caller may then fit the
        result itself."""
        try:
            head, fitted = await self._fitted(call, result)
        except CannotStart as error:
            if len(result) > MAX_LOCAL_BYTES:
                LOG.warning("no worker process: %s", error)
                return await self._brief(call, result)
            raise CompressionError(f"no worker process: {error}", strategy="worker") from error
        except (OSError, EOFError, TimeoutError) as error:
            reason = str(error) or "it took too long"
            LOG.warning("a worker died on a result of %s__%s: %s", call.server, call.tool, reason)
            return await self._brief(call, result)
        if "fault" in head:
            raise NotJson(head["fault"])
        if head["shortened"]:
            keys, before, after, *texts = head["shortened"]
            self._shortened(call, Cut(tuple(keys), before, after, *map(tuple, texts)))
        return result if head["same"] else fitted

    async def _fitted(self, call: ToolCall, result: bytes) -> tuple[dict[str, Any], bytes]:
        options = self._options(call.server, call.tool)
        model_seconds = options.llm_timeout_seconds if options.strategy == SUMMARY else 0.0
        job: dict[str, Any] = {
            "server": call.server,
            "tool": call.tool,
            "args": call.args,
            "query": call.query,
            "request": call.request,
            "principal": call.principal,
            "read_command": call.read_command,
            "ratio": self._ratios.get(f"{call.server}__{call.tool}", 1.0),
            "strategy": "",
        }
        if model_seconds and len(self._summaries) < MAX_SUMMARIES:
            async with self._summary_worker() as worker:
                return await worker.run(job, result, model_seconds, self._take_private)
        if model_seconds:
            LOG.warning("too many results are waiting for the language model: truncating one")
            job["strategy"] = "truncate"
        async with self._turns[call.server], self._worker() as worker:
            return await worker.run(job, result, 0.0, self._take_private)

    async def _take_private(self, key: str, value: bytes) -> None:
        await self._private.put(KIND, {key: value}, ttl_seconds=self._ttl_seconds)

    async def warm(self) -> None:
        async with self._worker() as worker:
            try:
                await worker.started()
            except (OSError, CannotStart) as error:
                LOG.warning("a worker process cannot be started: %s", error)

    async def aclose(self) -> None:
        """Finish the jobs in progress, except those that wait for a language model, and stop the
        workers. A later job starts them again."""
        for summary in list(self._summaries):
            await summary.end()
        # Without this lock, two concurrent calls of `aclose()` could each hold one worker and wait
        # for the other.
        async with self._closing:
            workers = [await self._idle.get() for _ in range(WORKERS)]
            for worker in workers:
                await worker.end()
                self._idle.put_nowait(worker)

    @asynccontextmanager
    async def _summary_worker(self) -> AsyncIterator[_Worker]:
        worker = _Worker(WORKERS, self._environment)
        self._summaries.add(worker)
        try:
            yield worker
        finally:
            self._summaries.discard(worker)
            await worker.end()

    @asynccontextmanager
    async def _worker(self) -> AsyncIterator[_Worker]:
        worker = await self._idle.get()
        try:
            yield worker
        finally:
            self._idle.put_nowait(worker)
            if self._idle.qsize() == WORKERS:
                await self._second.end()


async def work(
    source: asyncio.StreamReader,
    sink: asyncio.StreamWriter,
    fitter: Fitter,
    private: TtlStore,
    cuts: list[Cut],
) -> None:
    """The worker's side: fit incoming results until the gateway closes the pipe. The fitter appends
    a `Cut` to `cuts` for every shortened result."""
    while True:
        try:
            job, result = await _read_frame(source)
        except EOFError:
            return
        cuts.clear()
        head, fitted = await _outcome(fitter, job, result)
        entries = await private.scan(KIND)
        await private.drop(KIND)
        head["private"] = [[entry.key, len(entry.value)] for entry in entries]
        head["shortened"] = next(map(astuple, cuts), None)
        sink.write(_head(head, fitted))
        sink.write(fitted)
        for entry in entries:
            sink.write(entry.value)
            await sink.drain()
        await sink.drain()


async def _outcome(
    fitter: Fitter, job: Mapping[str, Any], result: bytes
) -> tuple[dict[str, Any], bytes]:
    call = ToolCall(
        server=job["server"],
        tool=job["tool"],
        params=b"{}",
        args=job["args"],
        query=job["query"],
        request=job["request"],
        principal=job["principal"],
        read_command=job["read_command"],
    )
    try:
        check(result)
        opened = RawObject.parse(result)
        fitted = await fitter.fit(call, opened, job["ratio"], strategy=job["strategy"])
    except NotJson as error:
        return {"fault": str(error)}, b""
    except Exception:
        LOG.exception("%s__%s: its result passes unchanged", call.server, call.tool)
        fitted = opened
    same = fitted is opened
    LOG.info("fitted %d bytes of %s__%s", len(result), call.server, call.tool)
    return {"same": same}, b"" if same else fitted.encode()


def _head(head: Mapping[str, Any], body: bytes) -> bytes:
    """Return a frame without its body. The body is large, so it is sent without copying."""
    raw = dumps(head)
    return b"%d %d\n%b" % (len(raw), len(body), raw)


async def _read_frame(source: asyncio.StreamReader) -> tuple[dict[str, Any], bytes]:
    line = await source.readline()
    if not line.endswith(b"\n"):
        raise EOFError("the other side has closed the pipe")
    head_size, body_size = (int(number) for number in line.split())
    try:
        head = loads(await source.readexactly(head_size))
        return head, await source.readexactly(body_size)
    except asyncio.IncompleteReadError as error:
        raise EOFError("the other side closed the pipe within a frame") from error
