"""The proxied call, from the agent's request to the reply it gets. Read `call` first."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

from upwell.gateway.cache import Cache
from upwell.gateway.client import Client
from upwell.gateway.eras import wants_input
from upwell.gateway.relay import content_of, failure, text_block, with_content, with_meta
from upwell.gateway.upstream import Upstream
from upwell.gateway.workshop import HEAVY_BYTES
from upwell.ground.errors import CompressionError, UpstreamError, UpstreamProtocolError
from upwell.ground.limits import SYSTEM_CLOCK, Clock
from upwell.ground.principal import Principal
from upwell.ground.trace import LOG, span
from upwell.ground.types import Cue, Door, Reply, Skip, Surfacing, ToolCall
from upwell.surface.engine import Surfacer
from upwell.surface.inject import place, worded
from upwell.surface.options import SurfaceOptions
from upwell.wire.rawjson import NotJson, RawObject

Fit = Callable[[ToolCall, RawObject], Awaitable[RawObject]]
FitLarge = Callable[[ToolCall, bytes], Awaitable[bytes]]
Outcome = Surfacing | Skip
Heard = tuple[Outcome, Cue]


class Sessions(Protocol):
    """Which agent's session a client's is part of. `known` never waits; `session` may look."""

    def known(self, own: str) -> str: ...

    async def session(self, own: str) -> str: ...


class Own:
    """A client's session is its own, where no agent's is known."""

    def known(self, own: str) -> str:
        return own

    async def session(self, own: str) -> str:
        return own


class Pipeline:
    """What happens to a call between the front and an upstream.

    `fit` shortens a result to its budget, `fit_large` does so in the workshop. The memory side is
    raced, not awaited: it starts with the call and gets `race_ms` from then on; what comes later
    is taken back and offered at the next call. `progressive` says whose results come chunk after
    chunk.
    """

    def __init__(
        self,
        surfacer: Surfacer,
        fit: Fit,
        fit_large: FitLarge,
        options: Callable[[str, str], SurfaceOptions],
        *,
        paused: Callable[[str], bool],
        cwd: str | None = None,
        cache: Cache | None = None,
        sessions: Sessions | None = None,
        progressive: Callable[[str, str], bool] = lambda server, tool: False,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._surfacer = surfacer
        self._fit = fit
        self._fit_large = fit_large
        self._options = options
        self._paused = paused
        self._cwd = cwd
        self._cache = cache
        self._sessions = sessions or Own()
        self._progressive = progressive
        self._clock = clock
        self._behind: set[asyncio.Task[None]] = set()

    async def call(self, call: ToolCall, upstream: Upstream, client: Client) -> Reply:
        """Call the upstream for a client, fit its answer, put memories beside it."""
        if self._paused(self._sessions.known(client.session)):
            return await self._asked(call, upstream, client)
        with span("upwell.call", server=call.server, tool=call.tool, trace_id=call.trace_id):
            surfacing = asyncio.create_task(self._surfaced(call, client))
            began = self._clock.monotonic()
            try:
                reply = await self._asked(call, upstream, client)
            except BaseException:
                self._take_back_later(surfacing)
                raise
            if reply.error or wants_input(reply.result):
                self._take_back_later(surfacing)
                return reply
            try:
                fitted = await self._fitted(call, reply)
            except NotJson as error:
                self._take_back_later(surfacing)
                return failure(_unreadable(call, error))
            outcome = await self._raced(surfacing, call, began)
            return self._injected(fitted, outcome, call)

    async def _asked(self, call: ToolCall, upstream: Upstream, client: Client) -> Reply:
        params = RawObject.parse(call.params)

        async def ask() -> Reply:
            return await upstream.call("tools/call", params, client, again=_harmless(call))

        try:
            if self._cache is None:
                return await ask()
            return await self._cache.through(call, upstream.server, client, ask)
        except UpstreamError as error:
            LOG.warning("%s", error)
            return failure(error)

    async def _fitted(self, call: ToolCall, reply: Reply) -> RawObject:
        fitted = await self._opened(call, reply.result)
        if not reply.repaired:
            return fitted
        notice = (
            f"[upwell] upstream {call.server!r} sent {reply.repaired} bytes that are not UTF-8; "
            "each reads U+FFFD here."
        )
        return with_content(fitted, [*(content_of(fitted) or []), text_block(notice)])

    async def _opened(self, call: ToolCall, result: bytes) -> RawObject:
        """The result, fitted: here when it is small, in the workshop when it is large. The call has
        been made by now: what goes wrong in fitting never costs its result."""
        try:
            return await self._sized(call, result)
        except NotJson:
            raise
        except Exception:
            LOG.exception("%s__%s: its result passes as it came", call.server, call.tool)
            return RawObject.parse(result)

    async def _sized(self, call: ToolCall, result: bytes) -> RawObject:
        if len(result) >= HEAVY_BYTES:
            try:
                return RawObject.parse(await self._fit_large(call, result))
            except CompressionError as error:
                LOG.warning("%s; fitting here", error)
        return await self._fit(call, RawObject.parse(result))

    async def _surfaced(self, call: ToolCall, client: Client) -> Heard:
        session = await self._sessions.session(client.session)
        progressive = self._progressive(call.server, call.tool)
        cue = _cue(call, session, self._cwd, client.principal, progressive=progressive)
        return await self._surfacer.surface(cue), cue

    async def _raced(
        self, surfacing: "asyncio.Task[Heard]", call: ToolCall, began: float
    ) -> Outcome | None:
        """The outcome if it is there in time. The search goes on to its own deadline."""
        race_seconds = self._options(call.server, call.tool).race_ms / 1000
        left = race_seconds - (self._clock.monotonic() - began)
        done, _ = await asyncio.wait({surfacing}, timeout=max(0.0, left))
        if done:
            heard = await _settled(surfacing)
            return heard[0] if heard else None
        self._take_back_later(surfacing, late=True)
        return None

    def _injected(self, result: RawObject, outcome: Outcome | None, call: ToolCall) -> Reply:
        blocks = content_of(result)
        if not isinstance(outcome, Surfacing) or blocks is None:
            return Reply(result=result.encode())
        mode = self._options(call.server, call.tool).injection_mode
        block = text_block(worded(outcome.text, mode))
        placed = with_content(result, place(blocks, block, mode))
        return Reply(result=with_meta(placed, "surfacing_id", outcome.id).encode())

    def _take_back_later(self, surfacing: "asyncio.Task[Heard]", *, late: bool = False) -> None:
        task = asyncio.create_task(self._take_back(surfacing, late))
        self._behind.add(task)
        task.add_done_callback(self._behind.discard)

    async def _take_back(self, surfacing: "asyncio.Task[Heard]", late: bool) -> None:
        heard = await _settled(surfacing)
        if heard and isinstance(heard[0], Surfacing):
            await self._surfacer.take_back(heard[0], heard[1], late=late)


async def _settled(surfacing: "asyncio.Task[Heard]") -> Heard | None:
    """The outcome and its cue; None where surfacing failed, which never costs the reply."""
    try:
        return await surfacing
    except Exception:
        LOG.exception("surfacing failed inside upwell")
        return None


def _harmless(call: ToolCall) -> bool:
    """May the call be made twice? Only where the server says so."""
    said = call.annotations
    return said.get("readOnlyHint") is True or said.get("idempotentHint") is True


def _unreadable(call: ToolCall, error: NotJson) -> UpstreamProtocolError:
    return UpstreamProtocolError(
        f"upstream {call.server!r} sent a result that is not JSON: {error}",
        server=call.server,
        hint="the call may have had its effects; report it to the server's authors",
    )


def _cue(
    call: ToolCall, session: str, cwd: str | None, principal: Principal, *, progressive: bool
) -> Cue:
    return Cue(
        door=Door.TOOL,
        tool=f"{call.server}__{call.tool}",
        args=call.args,
        session=session,
        cwd=cwd,
        annotations=call.annotations,
        progressive=progressive,
        trace_id=call.trace_id,
        principal=principal,
    )
