"""Answers requests, whatever brought them: stdio or HTTP, either era. Read `reply` first."""

from collections.abc import Awaitable, Callable, Mapping, Sequence

from upwell.gateway.audience import Audience
from upwell.gateway.catalog import Catalog, LocalTools, Target
from upwell.gateway.client import Caller
from upwell.gateway.directory import Directory
from upwell.gateway.eras import (
    MODERN_VERSIONS,
    UNSUPPORTED_VERSION,
    Envelope,
    envelope_of,
    fresh_only,
    handshake_result,
    meta_of,
    modern_error,
    modern_result,
)
from upwell.gateway.foreign import Foreign
from upwell.gateway.greeting import Known, handshake, known_now
from upwell.gateway.guidance import explained, refusal
from upwell.gateway.names import server_of
from upwell.gateway.parking import MARK, Parking
from upwell.gateway.pipeline import Pipeline
from upwell.gateway.refusal import Refused
from upwell.gateway.relay import outgoing
from upwell.gateway.upstream import State, Upstream
from upwell.ground.errors import UpwellError
from upwell.ground.trace import LOG, new_trace_id
from upwell.ground.types import Reply
from upwell.wire.mirrors import Mirror
from upwell.wire.peer import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    Message,
    error_body,
)
from upwell.wire.rawjson import NotJson, RawObject, check, dumps, kind_of

Method = Callable[[RawObject, Caller], Awaitable[RawObject | Reply]]
"""Answers one kind of request. `Refused` and `UpwellError` become JSON-RPC errors."""

HANDSHAKE_ONLY = frozenset(
    {"initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"}
)
CACHEABLE = frozenset(
    {"tools/list", "prompts/list", "resources/list", "resources/templates/list", "resources/read"}
)
"""What has to say in the modern era how long it may be kept."""


class Desk:
    """Takes the requests of all clients to where they belong. `methods` are those that others
    answer; what nobody here knows goes to the servers as it is."""

    def __init__(
        self,
        catalog: Catalog,
        upstreams: Callable[[], Sequence[Upstream]],
        own: LocalTools,
        pipeline: Pipeline,
        audience: Audience,
        directory: Directory,
    ) -> None:
        self._catalog = catalog
        self._upstreams = upstreams
        self._own = own
        self._pipeline = pipeline
        self._audience = audience
        self._directory = directory
        self._foreign = Foreign(upstreams)
        self._parking = Parking()
        self._methods: dict[str, Method] = {
            "initialize": self._initialize,
            "server/discover": self._discover,
            "ping": _ping,
            "tools/list": self._list_tools,
            "tools/call": self._call,
        }

    def learn(self, methods: Mapping[str, Method]) -> None:
        """Answer these as well."""
        self._methods.update(methods)

    async def reply(
        self, message: Message, caller_of: Callable[[Envelope | None], Caller]
    ) -> Reply:
        """The answer to a request: always one, whatever happens inside."""
        method = message.method or ""
        try:
            if kind_of(message.params) != "object":
                raise Refused(INVALID_PARAMS, "params must be an object")
            _check(message.params)
            params = RawObject.parse(message.params)
            caller = caller_of(_checked(envelope_of(params)))
            answer = await self._answered(method, params, caller)
            return _shaped(method, answer, modern=caller.modern)
        except Refused as refused:
            return Reply(error=refused.body)
        except NotJson as error:
            return Reply(error=error_body(INVALID_REQUEST, f"the request cannot be read: {error}"))
        except UpwellError as error:
            return Reply(error=error_body(INTERNAL_ERROR, str(error)))
        except Exception as error:
            LOG.exception("a request failed inside upwell")
            return Reply(error=error_body(INTERNAL_ERROR, f"upwell failed: {error!r}; see its log"))

    async def mirrors(self, name: str) -> tuple[Mirror, ...]:
        """What HTTP headers have to say of a tool's arguments; nothing for an unknown tool."""
        try:
            return (await self._target(name)).mirrors
        except (Refused, UpwellError):
            return ()

    async def tools_changed(self) -> None:
        """Tell those who have seen another list."""
        listing = self._catalog.listing
        for session in list(self._audience.sessions.values()):
            if session.listed and session.listed != listing:
                session.listed = listing
                await session.hear("notifications/tools/list_changed", b"")
        for listener in list(self._audience.listeners):
            await listener.hear("notifications/tools/list_changed", b"")

    async def put(
        self, upstream: Upstream, caller: Caller, work: Callable[[], Awaitable[Reply]]
    ) -> Reply:
        """Do `work`, a request to `upstream`, in whose middle the client may be asked something:
        by requests, or by results where that is what its era has."""

        async def noted() -> Reply:
            reply = await work()
            self._foreign.note(upstream, reply, caller)
            return reply

        if not caller.modern or upstream.about.version_for(modern=True) in MODERN_VERSIONS:
            return await noted()
        return await self._parking.run(caller, noted())

    async def _answered(self, method: str, params: RawObject, caller: Caller) -> RawObject | Reply:
        known = self._methods.get(method)
        if caller.modern and method in HANDSHAKE_ONLY:
            raise Refused(METHOD_NOT_FOUND, f"{method} is not part of this protocol version")
        if caller.modern and (state := params.get("requestState")) is not None:
            name = str(params.value("requestState")) if MARK.encode() in state else ""
            if name and (resumed := await self._parking.resume(name, params, caller)):
                return resumed
            if name:
                raise Refused(INVALID_PARAMS, "nothing waits for this: it is over, or too late")
        if known is not None:
            return await known(params, caller)
        foreign = await self._foreign.ask(method, params, caller)
        if foreign is None:
            raise Refused(METHOD_NOT_FOUND, f"neither upwell nor a server offers {method}")
        return foreign

    async def _initialize(self, params: RawObject, caller: Caller) -> RawObject:
        session = caller.owner
        session.modern, session.capabilities = False, params.get("capabilities") or b"{}"
        return RawObject.parse(dumps(handshake(params, await self._known())))

    async def _discover(self, _: RawObject, __: Caller) -> RawObject:
        known = await self._known()
        said = {"supportedVersions": list(MODERN_VERSIONS), **known.said()}
        return fresh_only(RawObject.parse(dumps(said)))

    async def _known(self) -> Known:
        await self._directory.settled()
        return known_now(self._upstreams())

    async def _list_tools(self, _: RawObject, caller: Caller) -> RawObject:
        """Every tool of every server that is up; those still starting get a moment."""
        await self._directory.settled()
        await self._catalog.refresh()
        caller.owner.listed = self._catalog.listing
        return RawObject(((b'"tools"', self._catalog.listing),))

    async def _call(self, params: RawObject, caller: Caller) -> Reply:
        name = params.value("name")
        if not isinstance(name, str):
            raise Refused(INVALID_PARAMS, "tools/call needs the name of a tool")
        target = await self._target(name)
        upstream = target.upstream
        if upstream is None:
            args = params.value("arguments", {})
            if not isinstance(args, dict):
                raise Refused(INVALID_PARAMS, "arguments must be an object")
            return await self._own.call(target.tool, args, caller)
        if kind_of(params.get("arguments") or b"{}") != "object":
            raise Refused(INVALID_PARAMS, "arguments must be an object")
        trace_id = _trace_id(meta_of(params)) or new_trace_id()
        call = outgoing(params, target, trace_id, caller.principal.name)
        hidden = self._catalog.hidden(name)
        if hidden and (refused := refusal(name, hidden, RawObject.parse(call.params))):
            return refused

        async def work() -> Reply:
            reply = await self._pipeline.call(call, upstream, caller)
            return explained(name, hidden, reply) if hidden else reply

        return await self.put(upstream, caller, work)

    async def _target(self, name: str) -> Target:
        """Where `name` leads; waits for its server when that is still starting."""
        target = self._catalog.resolve(name)
        if target is not None and target.upstream and target.upstream.state is State.STARTING:
            await target.upstream.settled()
            await self._catalog.refresh()
            target = self._catalog.resolve(name)
        if target is None:
            server = server_of(name)
            for upstream in self._upstreams():
                if upstream.prefix in ("", server):
                    await upstream.settled()
                    await self._catalog.refresh()
                    if server == upstream.prefix and not upstream.tools and upstream.failure:
                        raise upstream.failure
            target = self._catalog.resolve(name)
        if target is None:
            raise Refused(INVALID_PARAMS, f"Unknown tool: {name}")
        return target


def _shaped(method: str, answer: RawObject | Reply, *, modern: bool) -> Reply:
    """The result, or the error, as the client's era has it."""
    if isinstance(answer, Reply) and answer.error:
        read = modern and method == "resources/read"
        return Reply(error=modern_error(answer.error)) if read else answer
    result = RawObject.parse(answer.result) if isinstance(answer, Reply) else answer
    if not modern:
        return Reply(result=handshake_result(result).encode())
    if method in CACHEABLE:
        result = fresh_only(result)
    return Reply(result=modern_result(result).encode())


async def _ping(_: RawObject, __: Caller) -> RawObject:
    return RawObject()


def _check(params: bytes) -> None:
    """What is no JSON inside would make a server's reader stumble, and nobody would answer."""
    try:
        check(params)
    except NotJson as error:
        raise Refused(INVALID_PARAMS, f"params are not JSON: {error}") from error


def _checked(envelope: Envelope | None) -> Envelope | None:
    if envelope is not None and envelope.version not in MODERN_VERSIONS:
        raise Refused(
            UNSUPPORTED_VERSION,
            "Unsupported protocol version",
            {"supported": list(MODERN_VERSIONS), "requested": envelope.version},
        )
    return envelope


def _trace_id(meta: RawObject) -> str:
    """The trace id of a W3C `traceparent`, "" when there is none."""
    parent = meta.value("traceparent")
    parts = parent.split("-") if isinstance(parent, str) else []
    return parts[1] if len(parts) == 4 else ""
