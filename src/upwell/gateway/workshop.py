"""The workshop: a process of its own where large results are opened and fitted.

Reading ten megabytes of JSON takes a single call into C that nothing else in the process can
interrupt. So a large result goes, as the bytes that came, to a child that has the same code and
the same home, and comes back fitted. The child is started at the first large result, works one job
after the other, and ends when our end of its stdin closes.

A job and its outcome are frames: two lengths in ASCII, a newline, a JSON head, raw bytes.
"""

import asyncio
import base64
import sys
from collections.abc import Mapping
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
HUGE_BYTES = 4 * 1024 * 1024
JOB_SECONDS = 30.0
SECONDS_PER_MB = 5.0
"""How long a job may take: several times what it does on a slow machine."""
_WORKER = ("-P", "-m", "upwell.cli.workshop")
"""`-P`: nothing is imported from the folder that the agent works in."""


class _Bench:
    """One child of the workshop, and one job after the other."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._turn = asyncio.Lock()
        self._child: Child | None = None

    async def do(
        self, job: Mapping[str, Any], result: bytes, seconds: float
    ) -> tuple[dict[str, Any], bytes]:
        """The outcome of a job. One over which the child dies is done once more.

        Raises:
            CompressionError: the child cannot be had, died twice, or took longer than `seconds`.
        """
        async with self._turn:
            for again in (True, False):
                try:
                    async with asyncio.timeout(seconds):
                        return await self._done(job, result)
                except TimeoutError:
                    await self._end()
                    raise _failed(f"took longer than {seconds:.0f} s", result) from None
                except (OSError, EOFError) as error:
                    await self._end()
                    if not again or isinstance(error, CannotStart):
                        raise _failed(f"ended: {error}", result) from error
                except asyncio.CancelledError:
                    await self._end()
                    raise
        raise AssertionError("the second time returns or raises")

    async def warm(self) -> None:
        async with self._turn:
            try:
                await self._running()
            except (OSError, CannotStart) as error:
                LOG.warning("the workshop does not start: %s", error)

    async def aclose(self) -> None:
        async with self._turn:
            await self._end()

    async def _done(self, job: Mapping[str, Any], result: bytes) -> tuple[dict[str, Any], bytes]:
        child = await self._running()
        await child.sink.send(_head(job, result))
        await child.sink.send(result)
        return await _read_frame(child.out)

    async def _running(self) -> Child:
        if self._child is None:
            own = {name: v for name, v in self._environment.items() if name.startswith("UPWELL_")}
            home = self._environment.get("UPWELL_HOME")
            command = Command(program=sys.executable, args=_WORKER, env=own, cwd=home, tied=False)
            self._child = await start(command, self._environment)
        return self._child

    async def _end(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            await child.stop(grace_seconds=0.5)


class Workshop:
    """The parent's side: hands large results over. `private` takes originals that must not touch
    the disk, `ttl_seconds` is their time of life. Very large results have a bench of their own, so
    that the others do not wait behind them."""

    def __init__(
        self,
        environment: Mapping[str, str],
        private: Shelf,
        ttl_seconds: float,
        *,
        ratios: Mapping[str, float] | None = None,
        shortened: Shortened = unheard,
    ) -> None:
        self._private = private
        self._ttl_seconds = ttl_seconds
        self._ratios = ratios or {}
        self._shortened = shortened
        self._usual, self._huge = _Bench(environment), _Bench(environment)

    async def fit(self, call: ToolCall, result: bytes) -> bytes:
        """`result` fitted: raw JSON of an object, within the budget of the call's tool.

        Raises:
            NotJson: it is not one JSON object.
            CompressionError: the workshop cannot be had, ended over it, or took too long.
        """
        job = {
            "server": call.server,
            "tool": call.tool,
            "args": call.args,
            "query": call.query,
            "principal": call.principal,
            "ratio": self._ratios.get(f"{call.server}__{call.tool}", 1.0),
        }
        bench = self._huge if len(result) >= HUGE_BYTES else self._usual
        seconds = JOB_SECONDS + SECONDS_PER_MB * len(result) / 1e6
        head, fitted = await bench.do(job, result, seconds)
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
        """Start a child now. That it cannot be had shows when it is needed."""
        await self._usual.warm()

    async def aclose(self) -> None:
        await asyncio.gather(self._usual.aclose(), self._huge.aclose())


def _failed(why: str, result: bytes) -> CompressionError:
    return CompressionError(
        f"a result of {len(result):,} bytes could not be shortened: the workshop {why}",
        strategy="workshop",
        hint='ask for less, or set compress.strategy = "none" for this tool',
    )


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
