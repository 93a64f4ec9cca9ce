"""A proxied call, from the agent's request to the reply. Read `Pipeline.call()` and
`Pipeline._handled()` first."""

import asyncio
import math
import re
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, Protocol

from msgspec import Struct
from msgspec.structs import replace

from upwell.gateway.calls.cache import Cache
from upwell.gateway.calls.fit import Fitter, blocks_of
from upwell.gateway.calls.results import (
    content_of,
    error_result,
    has_constant,
    text_block,
    text_of,
    with_content,
    with_meta,
    without_forged_meta,
)
from upwell.gateway.calls.worker_pool import HEAVY_BYTES, WorkerPool
from upwell.gateway.clients import Client
from upwell.gateway.eras import MARK, wants_input
from upwell.gateway.upstreams.supervisor import Upstream
from upwell.ground.errors import CompressionError, UpstreamError, UpstreamProtocolError
from upwell.ground.trace import CALL_SECONDS, CALLS, LOG, conclude, contained, span
from upwell.ground.types.cue import Cue, Door, Surfacing, ToolAnswer
from upwell.ground.types.rpc import Reply, ToolCall
from upwell.surface.event import found_nothing
from upwell.surface.offer import Offer, Offers
from upwell.surface.options import SurfaceOptions
from upwell.surface.pipeline import Surfacer
from upwell.surface.render import by_command, marked, place, worded
from upwell.surface.rules import Guards
from upwell.wire.rawjson import NotJson, RawObject


class Sessions(Protocol):
    """Finds the agent session that a client's session belongs to. `host` is the client's agent.
    `known()` does not wait; `session()` may have to look up the session."""

    def known(self, host: str, own: str) -> str: ...

    async def session(self, host: str, own: str) -> str: ...


class OwnSessions:
    """Each client session is an agent session of its own."""

    def known(self, host: str, own: str) -> str:
        return own

    async def session(self, host: str, own: str) -> str:
        return own


MAX_FITTED_BYTES = 12_000_000
"""A larger result is not shortened. A worker needs half a second and 15 MB of memory for each
megabyte."""
_CONTENT_START = re.compile(rb'\s*\{\s*"content"\s*:\s*\[\s*(?=\{)')


class Fitting(Struct, frozen=True):
    """Fits results to the budget of their tool: large ones in a worker process, because they would
    block the event loop of this one."""

    fitter: Fitter
    worker_pool: WorkerPool

    async def fit(self, call: ToolCall, reply: Reply) -> RawObject:
        """Fit a result. If upwell itself fails, return the result unchanged, because the call has
        already been made. Raises NotJson if the result is malformed."""
        if len(reply.result) > MAX_FITTED_BYTES:
            return await RawObject.opened(_with_size_notice(call, reply.result))
        shortened = await self.shortened(call, reply.result)
        fitted = await RawObject.opened(reply.result) if shortened is None else shortened
        faults: list[str] = []
        if reply.repaired:
            faults.append(
                f"{reply.repaired} bytes that are not UTF-8; each is shown as U+FFFD here"
            )
        structured = fitted.get("structuredContent") or b""
        may_have_constant = b"NaN" in structured or b"Infinity" in structured
        if may_have_constant and await asyncio.to_thread(has_constant, structured):
            faults.append("NaN or Infinity in structuredContent; JSON has no such numbers")
        if not faults:
            return fitted
        notices = [f"[upwell] upstream {call.server!r} sent {fault}." for fault in faults]
        LOG.warning("%s__%s: %s", call.server, call.tool, "; ".join(faults))
        return with_content(fitted, [*(content_of(fitted) or []), *map(text_block, notices)])

    async def shortened(self, call: ToolCall, result: bytes) -> RawObject | None:
        """Fit a result. Returns None if it stays as it is, or if upwell itself fails. Raises
        NotJson if the result is malformed."""
        if len(result) > MAX_FITTED_BYTES:
            return None
        try:
            if len(result) >= HEAVY_BYTES:
                try:
                    fitted_bytes = await self.worker_pool.fit(call, result)
                    return None if fitted_bytes is result else await RawObject.opened(fitted_bytes)
                except CompressionError as error:
                    LOG.warning("%s; fitting it in this process", error)
            given = await RawObject.opened(result)
            fitted = await self.fitter.fit(call, given)
            return None if fitted is given else fitted
        except NotJson:
            raise
        except Exception:
            LOG.exception("%s__%s: its result passes unchanged", call.server, call.tool)
            return None


def _with_size_notice(call: ToolCall, result: bytes) -> bytes:
    start = _CONTENT_START.match(result)
    if start is None:
        LOG.warning("%s__%s: %d bytes pass as they are", call.server, call.tool, len(result))
        return result
    notice = text_block(
        f"[upwell] Not shortened: the result has {len(result):,} bytes, over the "
        f"{MAX_FITTED_BYTES:,} that are shortened. Ask {call.server!r} for a part of it."
    )
    # Joined from views, because every copy of the result counts.
    return b"".join((start.group(), notice, b",", memoryview(result)[start.end() :]))


MAX_ANSWER_CHARS = 8_000
"""How many characters of a result are used to search again."""
MAX_EMPTY_BYTES = 400
"""If a call succeeds with a longer result, it is assumed to have found something."""


class CallSurfacing:
    """Offers memories about each call while the call is in flight. `progressive(server, tool)`
    returns whether a tool's results are delivered in chunks."""

    def __init__(
        self,
        surfacer: Surfacer,
        options: Callable[[str, str], SurfaceOptions],
        *,
        cwd: str | None = None,
        sessions: Sessions | None = None,
        guards: Guards | None = None,
        progressive: Callable[[str, str], bool] = lambda server, tool: False,
    ) -> None:
        self._surfacer = surfacer
        self._options = options
        self._cwd = cwd
        self._sessions = sessions or OwnSessions()
        self._has_guards = guards is not None
        self._progressive = progressive
        self.offers = Offers(surfacer, guards)

    async def refusal(self, call: ToolCall, client: Client) -> Reply | None:
        """Return the result of a call that a guard refuses."""
        if not self._has_guards:
            return None
        refusal = await self.offers.refusal(self._cue(call, client), client.receipt)
        return error_result(refusal.reason) if refusal else None

    def with_request(self, call: ToolCall, client: Client) -> ToolCall:
        """Add to the call the agent's session, working directory and host, and the user's last
        request in that session if it is known."""
        with contained("looking up the last request of a session"):
            session = self._sessions.known(client.host, client.session)
            request = self._surfacer.last_request(session)
            return replace(call, request=request, session=session, cwd=self._cwd, host=client.host)
        return call

    def offer(
        self,
        call: ToolCall,
        client: Client,
        answer: ToolAnswer | None = None,
        seconds: float = math.inf,
    ) -> AbstractAsyncContextManager[Offer]:
        """Start a search that runs during a call and has `race_ms` to finish, but at most
        `seconds`. `answer` is the result of a call in vain, if it is known."""
        seconds = min(seconds, self._options(call.server, call.tool).race_ms / 1000)
        return self.offers.offer(self._cue(call, client, answer), seconds)

    async def with_memories(
        self, result: RawObject, offer: Offer, call: ToolCall, client: Client
    ) -> RawObject | None:
        """Add a block of memories to the result, as configured for the tool. Returns None if there
        is nothing to add, or no place for it."""
        outcome = await offer.outcome()
        blocks = await blocks_of(result) if isinstance(outcome, Surfacing) else None
        if not isinstance(outcome, Surfacing) or blocks is None:
            return None
        offer.deliver(client.receipt)
        mode = self._options(call.server, call.tool).injection_mode
        # An agent without our tools has not been told of the mark.
        text = (
            by_command(outcome.text, call.read_command)
            if call.read_command
            else marked(outcome.text, MARK)
        )
        block = text_block(worded(text, mode))
        placed = with_content(result, place(blocks, block, mode))
        return with_meta(placed, "surfacing_id", outcome.id)

    async def _cue(self, call: ToolCall, client: Client, answer: ToolAnswer | None = None) -> Cue:
        return Cue(
            door=Door.TOOL,
            tool=f"{call.server}__{call.tool}",
            args=call.args,
            session=await self._sessions.session(client.host, client.session),
            cwd=self._cwd,
            annotations=call.annotations,
            progressive=self._progressive(call.server, call.tool),
            answer=answer,
            trace_id=call.trace_id,
            at=time.time(),
            principal=client.principal,
            host=client.host,
            read_command=call.read_command,
        )


_FAILED = ("error", "tool error")


class Pipeline:
    """Everything that happens to a call between the client and the upstream."""

    def __init__(
        self,
        fitting: Fitting,
        surfacing: CallSurfacing,
        *,
        is_untouched: Callable[[str], bool],
        cache: Cache | None = None,
    ) -> None:
        self._fitting = fitting
        self._surfacing = surfacing
        self._is_untouched = is_untouched
        self._cache = cache

    async def call(self, call: ToolCall, upstream: Upstream, client: Client) -> Reply:
        """Send the call to the upstream, fit the result, and add memories. The search for memories
        runs while the call is in flight."""
        names = {"server": call.server, "tool": call.tool}
        with span("upwell.call", trace_id=call.trace_id, **names) as current:
            began = time.monotonic()
            reply = await self._handled(call, upstream, client, current)
            outcome = await _outcome_of(reply)
            CALLS.add(call.server, outcome)
            CALL_SECONDS.observe(time.monotonic() - began, call.server)
            if current.is_recording():
                current.set_attribute("bytes_delivered", len(reply.result or reply.error))
                conclude(current, outcome, failed=outcome in _FAILED)
            return reply

    async def _handled(
        self, call: ToolCall, upstream: Upstream, client: Client, current: Any
    ) -> Reply:
        """An error, or a question that the client must answer first, is passed on unchanged."""
        call = self._surfacing.with_request(call, client)
        if self._is_untouched(call.session):
            current.set_attribute("paused", True)
            # Without the cache, which would store results of excluded projects.
            return await self._send(call, upstream, client, None)
        if refusal := await self._surfacing.refusal(call, client):
            current.set_attribute("refused_by_guard", True)
            return refusal
        async with self._surfacing.offer(call, client) as offer:
            reply = await self._send(call, upstream, client, self._cache)
            current.set_attribute("bytes_received", len(reply.result or reply.error))
            if reply.error or wants_input(reply.result):
                return reply
            try:
                fitted = without_forged_meta(await self._fitting.fit(call, reply))
            except NotJson as error:
                return error_result(str(_malformed(call, error)))
            del reply  # it may be megabytes long, and what was fitted is a copy
            if offer.may_look_again() and (answer := await _answer_in_vain(call, fitted)):
                offer.look_again(answer)
            added = await self._surfacing.with_memories(fitted, offer, call, client)
            return Reply(result=(added or fitted).encode())

    async def given(
        self, call: ToolCall, result: bytes, client: Client, *, seconds: float, fits: bool
    ) -> bytes | None:
        """Treat a result that a server has already given like a reply in `call()`. It is shortened
        only with `fits`, and memories must be found within `seconds`. Returns None if nothing has
        changed. Raises NotJson if the result is malformed."""
        call = self._surfacing.with_request(call, client)
        if self._is_untouched(call.session) or wants_input(result):
            return None
        # A large result is not split in this process, where others would wait for that.
        is_large = len(result) >= HEAVY_BYTES
        given = None if is_large else RawObject.parse(result)
        in_vain = await _answer_in_vain(call, given) if given else None
        async with self._surfacing.offer(call, client, in_vain, seconds) as offer:
            shortened = await self._fitting.shortened(call, result) if fits else None
            if shortened is None and is_large and not isinstance(await offer.outcome(), Surfacing):
                return None
            given = given or await RawObject.opened(result)
            fitted = without_forged_meta(given if shortened is None else shortened)
            added = await self._surfacing.with_memories(fitted, offer, call, client)
            return None if added is None and fitted == given else (added or fitted).encode()

    async def aclose(self) -> None:
        await self._surfacing.offers.aclose()

    async def _send(
        self, call: ToolCall, upstream: Upstream, client: Client, cache: Cache | None
    ) -> Reply:
        """An upstream's failure becomes a result that the model can read."""
        params, hints = RawObject.parse(call.params), call.annotations
        is_idempotent = any(hints.get(hint) is True for hint in ("readOnlyHint", "idempotentHint"))
        send = partial(upstream.call, "tools/call", params, client, idempotent=is_idempotent)
        try:
            if cache is None:
                return await send()
            return await cache.through(call, upstream.server, client, send)
        except UpstreamError as error:
            LOG.warning("%s", error)
            return error_result(str(error))


async def _answer_in_vain(call: ToolCall, result: RawObject) -> ToolAnswer | None:
    """Return the text of a result if the call failed or found nothing."""
    failed = result.get("isError") == b"true"
    # Return before the blocks of an ordinary result are parsed.
    if not failed and len(result.get("content") or b"") > MAX_EMPTY_BYTES:
        return None
    blocks = (await blocks_of(result) or [])[:MAX_ANSWER_CHARS]
    text = "\n".join(map(text_of, blocks))[:MAX_ANSWER_CHARS]
    answer = ToolAnswer(text=text, failed=failed)
    return answer if failed or found_nothing(call.args, answer) else None


_MAY_BE_ERROR = re.compile(rb'"isError"\s{0,9}:\s{0,9}true')


async def _outcome_of(reply: Reply) -> str:
    if reply.error:
        return "error"
    if wants_input(reply.result):
        return "input required"
    # Only the beginning and the end are searched, because a result may be megabytes long.
    if not any(_MAY_BE_ERROR.search(end) for end in (reply.result[:4096], reply.result[-4096:])):
        return "ok"
    try:
        is_error = (await RawObject.opened(reply.result)).get("isError") == b"true"
    except NotJson:
        return "error"
    return "tool error" if is_error else "ok"


def _malformed(call: ToolCall, error: NotJson) -> UpstreamProtocolError:
    return UpstreamProtocolError(
        f"upstream {call.server!r} sent a result that is not JSON: {error}",
        server=call.server,
        hint="the call may have taken effect; report this error to the server's authors",
    )
