"""The daemon's side of `upwell serve --tools`: an MCP server with upwell's own tools only, which
answers one message at a time and keeps no state between them."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from msgspec.structs import replace

from upwell.gateway.clients import RequestRefused
from upwell.gateway.eras import IMPLEMENTATION, MODERN_VERSIONS, envelope_of, negotiated
from upwell.gateway.routing.router import shaped, supported
from upwell.ground.errors import UpwellError
from upwell.ground.text.tokens import count
from upwell.ground.trace import LOG
from upwell.ground.types.rpc import Reply
from upwell.hook.daemon import HookRequest
from upwell.hosts import host_of_client
from upwell.tools.base import Toolbox
from upwell.wire.peer import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    Message,
    answer_line,
    error_body,
    read_message,
)
from upwell.wire.rawjson import NotJson, RawObject, dumps
from upwell.wrap.asking import NEW, OF_PLUGIN
from upwell.wrap.door import RelayDescription

INSTRUCTIONS = (
    "Notes and past sessions from earlier work, and the originals of shortened results: if a "
    "result was shortened, its notice gives a key, and read_more(key, lines) returns the rest. "
    "Blocks marked upwell-memories are notes from earlier work."
)
MAX_SESSIONS = 1_000
_OFFER = {"capabilities": {"tools": {}}, "instructions": INSTRUCTIONS}


class ToolDoor:
    """`toolbox_of(cwd)` makes the tools for an agent's folder. `session_of(host, parent, cwd)`
    looks up the session that the agent's hooks recorded, or returns "". `added(host, tokens)` is
    called when an agent lists the tools for the first time. `has_own(host, cwd)` tells whether the
    agent's settings have upwell's tools; a plugin's server then has none, so that none is listed
    twice."""

    def __init__(
        self,
        toolbox_of: Callable[[str], Toolbox],
        session_of: Callable[[str, int, str], Awaitable[str]],
        added: Callable[[str, int], None],
        has_own: Callable[[str, str], Awaitable[bool]],
    ) -> None:
        self._has_own = has_own
        self._toolbox_of = toolbox_of
        self._session_of = session_of
        self._added = added
        self._listed: dict[str, None] = {}

    async def answer(self, request: HookRequest, body: bytes) -> bytes:
        """Answer one message. `body` is a line that describes the agent, then the message. Returns
        `NEW` and the line of the answer, or `NEW` alone if the message needs none."""
        about, _, line = body.partition(b"\n")
        try:
            message = read_message(line)
        except NotJson as error:
            reply = Reply(error=error_body(PARSE_ERROR, str(error)))
            return NEW + answer_line(b"null", reply) + b"\n"
        if message.id is None or message.method is None:
            return NEW
        reply = await self._reply(message, about, request.parent)
        return NEW + answer_line(message.id, reply) + b"\n"

    async def _reply(self, message: Message, about: bytes, parent: int) -> Reply:
        """Every failure becomes a JSON-RPC error."""
        try:
            params = RawObject.parse(message.params)
            envelope = supported(envelope_of(params))
            agent = RelayDescription.described(about, parent)
            if envelope is not None:
                agent = replace(agent, client=envelope.client)
            reply = await self._answered(message.method or "", params, agent)
            return await shaped(message.method or "", reply, modern=envelope is not None)
        except RequestRefused as refused:
            return Reply(error=refused.body)
        except NotJson as error:
            return Reply(error=error_body(INVALID_REQUEST, f"the request cannot be read: {error}"))
        except UpwellError as error:
            return Reply(error=error_body(INTERNAL_ERROR, str(error)))
        except Exception as error:
            LOG.exception("one of upwell's own tools failed")
            return Reply(error=error_body(INTERNAL_ERROR, f"upwell failed: {error!r}; see its log"))

    async def _answered(self, method: str, params: RawObject, agent: RelayDescription) -> Reply:
        if method == "initialize":
            version = negotiated(params.value("protocolVersion"))
            return _result({"protocolVersion": version, "serverInfo": IMPLEMENTATION, **_OFFER})
        if method == "server/discover":
            return _result({"supportedVersions": list(MODERN_VERSIONS), **_OFFER})
        if method == "ping":
            return _result({})
        toolbox, host = self._toolbox_of(agent.cwd), host_of_client(agent.client)
        if method == "tools/list":
            return await self._listing(toolbox, host, agent)
        if method != "tools/call":
            raise RequestRefused(METHOD_NOT_FOUND, f"upwell does not offer {method}")
        name, arguments = params.value("name"), params.value("arguments") or {}
        if name not in [tool["name"] for tool in toolbox.listed()]:
            raise RequestRefused(INVALID_PARAMS, f"Unknown tool: {name}")
        if not isinstance(arguments, dict):
            raise RequestRefused(INVALID_PARAMS, "arguments must be an object")
        session = await self._session_of(host, agent.parent, agent.cwd)
        return await toolbox.call(str(name), arguments, session or agent.session)

    async def _listing(self, toolbox: Toolbox, host: str, agent: RelayDescription) -> Reply:
        if agent.name == OF_PLUGIN and await self._has_own(host, agent.cwd):
            return _result({"tools": []})
        reply = _result({"tools": toolbox.listed()})
        if agent.session not in self._listed:
            self._listed[agent.session] = None
            if len(self._listed) > MAX_SESSIONS:
                del self._listed[next(iter(self._listed))]
            self._added(host, count(reply.result.decode()))
        return reply


def _result(result: Mapping[str, Any]) -> Reply:
    return Reply(result=dumps(result))
