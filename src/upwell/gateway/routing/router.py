"""Handles requests of both MCP eras (`gateway/eras.py`), from stdio and from HTTP. Read
`Router.reply()` first. `PendingCalls` keeps the calls that wait for an answer of their clients, and
`Tasks` the owner of each task.
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any

from msgspec import Struct

from upwell.gateway.calls.pipeline import Pipeline
from upwell.gateway.clients import (
    Audience,
    Channel,
    Method,
    RequestContext,
    RequestRefused,
    Session,
    text_of,
)
from upwell.gateway.eras import (
    MODERN_VERSIONS,
    SERVER_INFO,
    UNSUPPORTED_VERSION,
    Envelope,
    client_name,
    envelope_of,
    fresh_only,
    handshake_result,
    input_required,
    meta_of,
    modern_error,
    modern_result,
    offer_of,
)
from upwell.gateway.routing.resources import UpstreamResources
from upwell.gateway.routing.tools import CONTEXT_QUERY, LocalTools, Target, ToolCatalog, server_of
from upwell.gateway.upstreams.supervisor import ServerState, Upstream
from upwell.ground.background import Receipt
from upwell.ground.errors import UpstreamError, UpstreamUnavailable, UpwellError
from upwell.ground.trace import LOG, present_trace_id, requested
from upwell.ground.types.rpc import Principal, Reply, ToolCall
from upwell.hosts import host_of_client
from upwell.wire.mirrors import Mirror
from upwell.wire.peer import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    Message,
    error_body,
    error_code,
)
from upwell.wire.rawjson import NotJson, RawArray, RawObject, check, dumps, kind_of

STATE_PREFIX = "upwell-parked-"
"""Marks a `requestState` as ours. Any other state belongs to an upstream."""
WAIT_SECONDS = 600.0
MAX_PENDING = 1000
"""If more calls are pending, the oldest is abandoned."""


class _PendingCall(Struct):
    context: RequestContext
    task: "asyncio.Task[Reply]"
    expiry: asyncio.TimerHandle | None = None

    async def answer_or_question(self) -> bool:
        """Returns whether the call has ended. Cancelling the wait cancels the call."""
        question_event: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def on_question() -> None:
            if not question_event.done():
                question_event.set_result(None)

        self.context.on_question = on_question
        if self.open_questions():
            on_question()
        try:
            futures: set[asyncio.Future[Any]] = {self.task, question_event}
            await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self.task.cancel()
            raise
        return self.task.done()

    def open_questions(self) -> dict[str, tuple[str, bytes]]:
        return {
            key: (question.method, question.params)
            for key, question in self.context.questions.items()
            if question.is_open
        }


class PendingCalls:
    """Keeps calls open while their clients answer questions, and then resumes them.

    A handshake-era upstream may ask its client in the middle of a call, but a modern client can be
    asked only in the result of a call. It gets an `input_required` result with a state, and repeats
    the call with that state and its answers. Only the call's session can resume it, and only once.
    """

    def __init__(self) -> None:
        self._pending: dict[str, _PendingCall] = {}

    async def run(self, context: RequestContext, work: Coroutine[Any, Any, Reply]) -> Reply:
        return await self._next_reply(_PendingCall(context, asyncio.create_task(work)))

    async def resume(self, state: str, params: RawObject, context: RequestContext) -> Reply | None:
        """Continue the call identified by `state` with the client's answers. Returns None if this
        session has no such call. Raises NotJson if the answers are not a JSON object."""
        pending = self._pending.get(state)
        if pending is None or pending.context.session != context.session:
            return None
        # Before the call is claimed, so that a malformed request leaves it open.
        answers = RawObject.parse(params.get("inputResponses") or b"{}")
        del self._pending[state]
        if pending.expiry is not None:
            pending.expiry.cancel()
        pending.context.channel = context.channel
        for key, question in pending.context.questions.items():
            if (answer := answers.get(key)) is not None and question.is_open:
                question.answer.set_result(Reply(result=answer))
        # There must be no await between setting the answers and `_next_reply()`, which listens for
        # the next question. Otherwise, the call could continue before anyone listens.
        return await self._next_reply(pending)

    async def aclose(self) -> None:
        tasks = [pending.task for pending in self._pending.values()]
        for state in list(self._pending):
            self._abandon(state)
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _next_reply(self, pending: _PendingCall) -> Reply:
        if await pending.answer_or_question():
            return pending.task.result()
        state = STATE_PREFIX + secrets.token_urlsafe(18)
        if len(self._pending) >= MAX_PENDING:
            self._abandon(next(iter(self._pending)))
        self._pending[state] = pending
        loop = asyncio.get_running_loop()
        pending.expiry = loop.call_later(WAIT_SECONDS, self._abandon, state)
        return Reply(result=input_required(pending.open_questions(), state).encode())

    def _abandon(self, state: str) -> None:
        pending = self._pending.pop(state, None)
        if pending is None:
            return
        if pending.expiry is not None:
            pending.expiry.cancel()
        pending.task.cancel()
        # The call may have failed in the meantime, and nothing else retrieves its exception.
        if pending.task.done() and not pending.task.cancelled() and pending.task.exception():
            LOG.info("an abandoned call had failed: %s", pending.task.exception())


MAX_TASKS = 10_000
"""How many tasks are remembered. The oldest are forgotten first."""
LIST = "tasks/list"


class Tasks:
    """Forwards methods that the gateway does not implement itself, such as `tasks/get`: those about
    a known task to the server that owns it, any other to each server in turn."""

    def __init__(self, upstreams: Callable[[], Sequence[Upstream]]) -> None:
        self._upstreams = upstreams
        self._servers: dict[str, str] = {}
        """The server of each task, keyed by session and task id. The same id may belong to
        different servers in different sessions."""
        self._principals: dict[str, set[Principal]] = {}

    async def forward(
        self, method: str, params: RawObject, context: RequestContext
    ) -> Reply | None:
        """Return the first reply that is not an error, or else the first error other than "method
        not found". Raises UpstreamError if the server that owns the task is down or the call to it
        failed, and RequestRefused if the task belongs to another principal, or no call of this
        gateway began it."""
        task = text_of(params, "taskId")
        if task and not self._may_see(task, context):
            raise RequestRefused(INVALID_PARAMS, f"Unknown task: {task}")
        owner = self._servers.get(f"{context.session} {task}") if task else None
        refusal: Reply | None = None
        for upstream in self._upstreams():
            if owner not in (None, upstream.name):
                continue
            if upstream.state is not ServerState.READY:
                if owner:
                    raise UpstreamUnavailable(
                        f"upstream {owner!r}, which runs this task, is not connected",
                        server=owner,
                        hint="ask again once it is back; `upwell doctor` shows why it is down",
                    )
                continue
            try:
                reply = await upstream.call(method, params, context)
            except UpstreamError:
                if owner:
                    raise
                continue
            if not reply.error:
                return self._visible(reply, context) if method == LIST else reply
            if error_code(reply.error) != METHOD_NOT_FOUND:
                refusal = refusal or reply
        return refusal

    def record(self, upstream: Upstream, reply: Reply, context: RequestContext) -> None:
        try:
            result = RawObject.parse(reply.result)
            nested = result.get("task") or b""
            is_nested = kind_of(nested) == "object"
            task = text_of(RawObject.parse(nested) if is_nested else result, "taskId")
        except NotJson:
            return
        if not task:
            return
        if len(self._servers) >= MAX_TASKS:
            del self._servers[next(iter(self._servers))]
        if len(self._principals) >= MAX_TASKS:
            del self._principals[next(iter(self._principals))]
        self._servers[f"{context.session} {task}"] = upstream.name
        self._principals.setdefault(task, set()).add(context.principal)

    def _visible(self, reply: Reply, context: RequestContext) -> Reply:
        try:
            result = RawObject.parse(reply.result)
            items = RawArray.parse(result.get("tasks") or b"[]").items
            tasks = [RawObject.parse(raw) for raw in items]
        except NotJson:
            return reply
        visible = [task for task in tasks if self._may_see(text_of(task, "taskId"), context)]
        if len(visible) == len(tasks):
            return reply
        raw = RawArray(tuple(task.encode() for task in visible)).encode()
        return Reply(result=result.replaced("tasks", raw).encode())

    def _may_see(self, task: str, context: RequestContext) -> bool:
        return context.principal in self._principals.get(task, ())


HANDSHAKE_ONLY = frozenset(
    {"initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"}
)
CACHEABLE = frozenset(
    {"tools/list", "prompts/list", "resources/list", "resources/templates/list", "resources/read"}
)
"""Modern results from these methods must state how long they may be cached."""
INTRODUCTION_SECONDS = 5.0
"""How long `initialize` waits for servers that are starting. Later starts present the saved offer,
and do not wait. The least patient of the known clients gives up after 10 seconds."""
TOOLS_CHANGED = "notifications/tools/list_changed"


class Router:
    """Passes each request to the part of the gateway that handles it, or to an upstream."""

    def __init__(
        self,
        catalog: ToolCatalog,
        upstreams: Callable[[], Sequence[Upstream]],
        own: LocalTools,
        pipeline: Pipeline,
        audience: Audience,
        resources: UpstreamResources,
    ) -> None:
        self._catalog = catalog
        self._upstreams = upstreams
        self._own = own
        self._pipeline = pipeline
        self._audience = audience
        self._resources = resources
        self._tasks = Tasks(upstreams)
        self._pending_calls = PendingCalls()
        self._methods: dict[str, Method] = {
            "initialize": self._initialize,
            "server/discover": self._discover,
            "ping": _ping,
            "tools/list": self._list_tools,
            "tools/call": self._call_tool,
        }

    def add_methods(self, methods: Mapping[str, Method]) -> None:
        self._methods.update(methods)

    async def reply(
        self, message: Message, session: Session, channel: Channel, receipt: Receipt
    ) -> Reply:
        """Handle a request. Every failure except a cancellation becomes a JSON-RPC error."""
        method = message.method or ""
        try:
            params = _readable(message.params)
            envelope = supported(envelope_of(params))
            context = RequestContext(session, channel, envelope, message.id, receipt)
            answer = await self._answer(method, params, context)
            return await shaped(method, answer, modern=context.modern)
        except Exception as error:
            return failed(error)

    def notify(self, method: str, params: bytes) -> None:
        self._resources.notify(method, params)

    async def mirrors(self, name: str) -> tuple[Mirror, ...]:
        """The arguments of a tool whose values must also be sent in HTTP headers."""
        try:
            return (await self._target(name)).mirrors
        except (RequestRefused, UpwellError):
            return ()

    async def tools_changed(self) -> None:
        """Notify the listeners that requested this, and the handshake-era sessions whose tool list
        is out of date."""
        listing = self._catalog.listing
        for session in list(self._audience.sessions.values()):
            if session.listed and session.listed != listing:
                session.listed = listing
                await session.broadcast(TOOLS_CHANGED, b"")
        for listener in list(self._audience.listeners):
            await listener.broadcast(TOOLS_CHANGED, b"")

    async def relay(
        self, upstream: Upstream, context: RequestContext, work: Callable[[], Awaitable[Reply]]
    ) -> Reply:
        """Call `work`, which sends a request to `upstream`. Meanwhile, the upstream may ask the
        client questions. If the client is modern but the upstream is not, each question becomes the
        result of the client's request, while the request to the upstream stays open.
        """

        async def recorded() -> Reply:
            reply = await work()
            # A result that starts a task is short. Others may be megabytes long.
            if b'"taskId"' in reply.result[:4096]:
                self._tasks.record(upstream, reply, context)
            return reply

        if not context.modern or upstream.about.version_for(modern=True) in MODERN_VERSIONS:
            return await recorded()
        return await self._pending_calls.run(context, recorded())

    async def aclose(self) -> None:
        await self._pending_calls.aclose()
        await self._pipeline.aclose()

    async def _answer(
        self, method: str, params: RawObject, context: RequestContext
    ) -> RawObject | Reply:
        if context.modern and method in HANDSHAKE_ONLY:
            raise RequestRefused(METHOD_NOT_FOUND, f"{method} is not part of this protocol version")
        raw_state = params.get("requestState") if context.modern else None
        if raw_state and STATE_PREFIX.encode() in raw_state:
            state = str(params.value("requestState"))
            resumed = await self._pending_calls.resume(state, params, context)
            if resumed is None:
                raise RequestRefused(
                    INVALID_PARAMS, "no call is waiting under this requestState any more"
                )
            return resumed
        if (known := self._methods.get(method)) is not None:
            return await known(params, context)
        forwarded = await self._tasks.forward(method, params, context)
        if forwarded is None:
            raise RequestRefused(METHOD_NOT_FOUND, f"neither upwell nor a server offers {method}")
        return forwarded

    async def _initialize(self, params: RawObject, context: RequestContext) -> RawObject:
        session = context.owner
        session.modern, session.capabilities = False, params.get("capabilities") or b"{}"
        session.host = host_of_client(client_name(params.get("clientInfo")))
        await self._resources.settled(INTRODUCTION_SECONDS)
        return RawObject.parse(dumps(offer_of(self._upstreams()).initialize_result(params)))

    async def _discover(self, _: RawObject, __: RequestContext) -> RawObject:
        await self._resources.settled()
        # A modern client may rely on every capability in the offer, so the offer includes only
        # servers whose capabilities are known. The client can discover again later.
        offer = offer_of(known for known in self._upstreams() if known.about.version)
        result = {"supportedVersions": list(MODERN_VERSIONS), **offer.members()}
        return fresh_only(RawObject.parse(dumps(result)))

    async def _list_tools(self, _: RawObject, context: RequestContext) -> RawObject:
        """If a server is down, its latest known tools are listed."""
        await self._resources.settled()
        await self._catalog.refresh()
        return RawObject(((b'"tools"', self._catalog.listing_for(context)),))

    async def _call_tool(self, params: RawObject, context: RequestContext) -> Reply:
        name = params.value("name")
        if not isinstance(name, str):
            raise RequestRefused(INVALID_PARAMS, "tools/call needs the name of a tool")
        target = await self._target(name)
        # `null` stands for no arguments, as servers read it, and is passed on as it is.
        raw = params.get("arguments") or b"null"
        arguments = b"{}" if raw.strip() == b"null" else raw
        if kind_of(arguments) != "object":
            raise RequestRefused(INVALID_PARAMS, "arguments must be an object")
        upstream = target.upstream
        with requested(text_of(meta_of(params), "traceparent")):
            if upstream is None:
                return await self._own.call(target.tool, params.value("arguments") or {}, context)
            call = _call_for(target, params, RawObject.parse(arguments), context.principal.name)
            work = partial(self._pipeline.call, call, upstream, context)
            return await self.relay(upstream, context, work)

    async def _target(self, name: str) -> Target:
        """Find the tool with this public name. If its server is starting, wait for the server.
        Raises RequestRefused if no server has such a tool, and UpstreamError if the server with the
        name's prefix, or one without a prefix, has failed and none of its tools are known."""
        target = self._catalog.resolve(name)
        if target is not None and target.upstream and target.upstream.state is ServerState.STARTING:
            await target.upstream.settled()
            await self._catalog.refresh()
            target = self._catalog.resolve(name)
        if target is None:
            # The server with the name's prefix, or any without a prefix, may own an unlisted name.
            prefix = server_of(name)
            for upstream in self._upstreams():
                if upstream.prefix in ("", prefix):
                    await upstream.settled()
                    await self._catalog.refresh()
                    if prefix == upstream.prefix and not upstream.tools and upstream.failure:
                        raise upstream.failure
            target = self._catalog.resolve(name)
        if target is None:
            raise RequestRefused(INVALID_PARAMS, f"Unknown tool: {name}")
        return target


def _readable(params: bytes) -> RawObject:
    """Parse the params of a request. They are checked to the last byte, because an upstream might
    never reply to malformed JSON.
    """
    if kind_of(params) != "object":
        raise RequestRefused(INVALID_PARAMS, "params must be an object")
    try:
        check(params)
    except NotJson as error:
        raise RequestRefused(INVALID_PARAMS, f"params are not JSON: {error}") from error
    return RawObject.parse(params)


def failed(error: Exception) -> Reply:
    """The reply to a request that raised this. What is not a refusal or an error of ours is logged
    with its traceback."""
    if isinstance(error, RequestRefused):
        return Reply(error=error.body)
    if isinstance(error, NotJson):
        return Reply(error=error_body(INVALID_REQUEST, f"the request cannot be read: {error}"))
    if isinstance(error, UpwellError):
        return Reply(error=error_body(INTERNAL_ERROR, str(error)))
    LOG.exception("a request failed inside upwell")
    return Reply(error=error_body(INTERNAL_ERROR, f"upwell failed: {error!r}; see its log"))


def supported(envelope: Envelope | None) -> Envelope | None:
    if envelope is not None and envelope.version not in MODERN_VERSIONS:
        raise RequestRefused(
            UNSUPPORTED_VERSION,
            "Unsupported protocol version",
            {"supported": list(MODERN_VERSIONS), "requested": envelope.version},
        )
    return envelope


async def shaped(method: str, answer: RawObject | Reply, *, modern: bool) -> Reply:
    """Convert a reply for the client's era."""
    if isinstance(answer, Reply) and answer.error:
        is_read = modern and method == "resources/read"
        return Reply(error=modern_error(answer.error)) if is_read else answer
    # A result may be megabytes long, so it is only searched.
    parts = (b'"resultType"', SERVER_INFO.encode())
    if isinstance(answer, Reply) and not modern and not any(p in answer.result for p in parts):
        return answer
    result = await RawObject.opened(answer.result) if isinstance(answer, Reply) else answer
    if not modern:
        return Reply(result=handshake_result(result).encode())
    if method in CACHEABLE:
        result = fresh_only(result)
    return Reply(result=modern_result(result).encode())


def _call_for(target: Target, params: RawObject, arguments: RawObject, principal: str) -> ToolCall:
    """Return the call to send to the upstream. The agent's arguments stay unchanged, except that
    `_context_query` is removed if the tool does not declare it.
    """
    args = arguments.decoded()
    value = args.get(CONTEXT_QUERY)
    query = value if isinstance(value, str) else ""
    if CONTEXT_QUERY in arguments and not target.declares_query:
        arguments = arguments.without(CONTEXT_QUERY)
        params = params.replaced("arguments", arguments.encode())
        args.pop(CONTEXT_QUERY, None)
    return ToolCall(
        server=target.upstream.name if target.upstream else "",
        tool=target.tool,
        params=params.replaced("name", dumps(target.tool)).encode(),
        args={**args, CONTEXT_QUERY: query} if query else args,
        query=query,
        annotations=target.annotations,
        declared=target.declared,
        trace_id=present_trace_id(),
        principal=principal,
    )


async def _ping(_: RawObject, __: RequestContext) -> RawObject:
    return RawObject()
