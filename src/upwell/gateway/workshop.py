"""The workshop: a process of its own where large results are opened and fitted.

Reading ten megabytes of JSON takes a single call into C that nothing else in the process can
interrupt. So a large result goes, as the bytes that came, to a child that has the same code and
the same home, and comes back fitted. The child is started at the first large result, works one job
after the other, and ends when our end of its stdin closes. While it works for one server, another
child works for the others.

A job and its outcome are frames: two lengths in ASCII, a newline, a JSON head, raw bytes.
"""

import asyncio
import base64
import sys
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from upwell.compress.originals import KIND
from upwell.gateway.fit import Cut, Fitter, Shortened, unheard
from upwell.ground.errors import CompressionError
from upwell.ground.shelf import Shelf
from upwell.ground.trace import LOG
from upwell.ground.types import ToolCall
from upwell.wire.child import CannotStart, Child, Command, start
from upwell.wire.rawjson import NotJson, RawObject, check, dumps, loads

HEAVY_BYTES = 128 * 1024
MOST_ELSEWHERE_BYTES = 1_000_000
"""What is larger would hold up every other call if it were fitted in the gateway's process."""
BENCHES = 2
JOB_SECONDS, MEGABYTE_SECONDS = 20.0, 10.0
"""What a job may take. Many times what one takes: the same result is fitted the same way on a busy
machine too, and what is ended here is a fault."""
_WORKER = ("-P", "-m", "upwell.cli.workshop")
"""`-P`: nothing is imported from the folder that the agent works in."""


class _Bench:
    """A child that works one job after the other. `number` orders them: the first stays."""

    def __init__(self, number: int, environment: Mapping[str, str]) -> None:
        self.number = number
        self._environment = environment
        self._child: Child | None = None

    def __lt__(self, other: "_Bench") -> bool:
        return self.number < other.number

    async def done(self, job: Mapping[str, Any], result: bytes) -> tuple[dict[str, Any], bytes]:
        """The outcome of a job.

        Raises:
            CannotStart: the child cannot be had.
            OSError, EOFError, TimeoutError: it ended over the job, or was ended.
        """
        child = await self.running()
        try:
            async with asyncio.timeout(JOB_SECONDS + len(result) / 1e6 * MEGABYTE_SECONDS):
                await child.sink.send(_head(job, result))
                await child.sink.send(result)
                return await _read_frame(child.out)
        except BaseException:
            await self.end()
            raise

    async def running(self) -> Child:
        if self._child is None:
            own = {name: v for name, v in self._environment.items() if name.startswith("UPWELL_")}
            home = self._environment.get("UPWELL_HOME")
            command = Command(program=sys.executable, args=_WORKER, env=own, cwd=home, tied=False)
            self._child = await start(command, self._environment)
        return self._child

    async def end(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            await child.stop(grace_seconds=0.5)


Brief = Callable[[ToolCall, bytes], Awaitable[bytes]]
"""A result within its budget in a way that costs little: its beginning, and how to read on."""


async def no_brief(call: ToolCall, result: bytes) -> bytes:
    """Where there is no other way.

    Raises:
        CompressionError: always.
    """
    raise CompressionError("the workshop ended over a result", strategy="workshop")


class Workshop:
    """The parent's side: hands large results over. `private` takes originals that must not touch
    the disk, `ttl_seconds` is their time of life; `brief` does where the workshop ended over one.

    Results of one server are fitted one after the other, those of two beside each other: what one
    server sends does not hold up the others. The second child goes when nobody needs it.
    """

    def __init__(
        self,
        environment: Mapping[str, str],
        private: Shelf,
        ttl_seconds: float,
        *,
        ratios: Mapping[str, float] | None = None,
        shortened: Shortened = unheard,
        brief: Brief = no_brief,
    ) -> None:
        self._private = private
        self._ttl_seconds = ttl_seconds
        self._ratios = ratios or {}
        self._shortened = shortened
        self._brief = brief
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._first, self._second = (_Bench(number, environment) for number in range(BENCHES))
        self._free: asyncio.PriorityQueue[_Bench] = asyncio.PriorityQueue()
        self._ending = asyncio.Lock()
        self._free.put_nowait(self._first)
        self._free.put_nowait(self._second)

    async def fit(self, call: ToolCall, result: bytes) -> bytes:
        """`result` fitted: raw JSON of an object, within the budget of the call's tool.

        Raises:
            NotJson: it is not one JSON object.
            CompressionError: the workshop cannot be had.
        """
        job = {
            "server": call.server,
            "tool": call.tool,
            "args": call.args,
            "query": call.query,
            "principal": call.principal,
            "ratio": self._ratios.get(f"{call.server}__{call.tool}", 1.0),
        }
        try:
            async with self._turns[call.server], self._bench() as bench:
                head, fitted = await bench.done(job, result)
        except CannotStart as error:
            if len(result) > MOST_ELSEWHERE_BYTES:
                LOG.warning("no workshop: %s", error)
                return await self._brief(call, result)
            raise CompressionError(f"no workshop: {error}", strategy="workshop") from error
        except (OSError, EOFError, TimeoutError) as error:
            why = str(error) or "it took too long"
            LOG.warning("the workshop ended over %s__%s: %s", call.server, call.tool, why)
            return await self._brief(call, result)
        if "fault" in head:
            raise NotJson(head["fault"])
        for key, value in head["private"].items():
            kept = {key: base64.b64decode(value)}
            await self._private.put(KIND, kept, ttl_seconds=self._ttl_seconds)
        if head["shortened"]:
            keys, before, after = head["shortened"]
            self._shortened(call, Cut(tuple(keys), before, after))
        return result if head["same"] else fitted

    async def warm(self) -> None:
        """Start the child now. That it cannot be had shows when it is needed."""
        async with self._bench() as bench:
            try:
                await bench.running()
            except (OSError, CannotStart) as error:
                LOG.warning("the workshop does not start: %s", error)

    async def aclose(self) -> None:
        """Let what is under way be finished, and end. The next result begins it anew."""
        async with self._ending:
            benches = [await self._free.get() for _ in range(BENCHES)]
            for bench in benches:
                await bench.end()
                self._free.put_nowait(bench)

    @asynccontextmanager
    async def _bench(self) -> AsyncIterator[_Bench]:
        """A free child, the first if it is."""
        bench = await self._free.get()
        try:
            yield bench
        finally:
            self._free.put_nowait(bench)
            if self._free.qsize() == BENCHES:
                await self._second.end()


async def work(
    source: asyncio.StreamReader,
    sink: asyncio.StreamWriter,
    fitter: Fitter,
    private: Shelf,
    shortened: list[Cut],
) -> None:
    """The child's side: fit what comes, until the other end closes. `shortened` is where the
    fitter notes what it shortened."""
    while True:
        try:
            job, result = await _read_frame(source)
        except EOFError:
            return
        shortened.clear()
        head, fitted = await _done(fitter, private, job, result)
        head["shortened"] = next(
            ([cut.keys, cut.tokens_before, cut.tokens_after] for cut in shortened), None
        )
        sink.write(_head(head, fitted))
        sink.write(fitted)
        await sink.drain()


async def _done(
    fitter: Fitter, private: Shelf, job: Mapping[str, Any], result: bytes
) -> tuple[dict[str, Any], bytes]:
    call = ToolCall(
        server=job["server"],
        tool=job["tool"],
        params=b"{}",
        args=job["args"],
        query=job["query"],
        principal=job["principal"],
    )
    try:
        check(result)
        opened = RawObject.parse(result)
        fitted = await fitter.fit(call, opened, job["ratio"])
    except NotJson as error:
        return {"fault": str(error)}, b""
    except Exception:
        LOG.exception("%s__%s: its result passes as it came", call.server, call.tool)
        fitted = opened
    secrets = {item.key: item.value for item in await private.scan(KIND)}
    await private.drop(KIND)
    kept = {key: base64.b64encode(value).decode() for key, value in secrets.items()}
    same = fitted is opened
    LOG.info("fitted %d bytes of %s__%s", len(result), call.server, call.tool)
    return {"same": same, "private": kept}, b"" if same else fitted.encode()


def _head(head: Mapping[str, Any], body: bytes) -> bytes:
    """A frame but for its body, which is large and follows as it is."""
    raw = dumps(head)
    return b"%d %d\n%b" % (len(raw), len(body), raw)


async def _read_frame(source: asyncio.StreamReader) -> tuple[dict[str, Any], bytes]:
    line = await source.readline()
    if not line.endswith(b"\n"):
        raise EOFError("the other side is gone")
    head_size, body_size = (int(number) for number in line.split())
    try:
        head = loads(await source.readexactly(head_size))
        return head, await source.readexactly(body_size)
    except asyncio.IncompleteReadError as error:
        raise EOFError("the other side went in the middle of a frame") from error
