"""The daemon's side of wrapped servers, and of `upwell serve --tools`.

A relay asks about one result at a time, and about the tools whose `outputSchema` it should list
(`asking.py`). The results go through the gateway's own pipeline. `serve --tools` is an MCP server
with upwell's own tools only, which keeps no state between messages.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache
from pathlib import PurePosixPath
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from upwell.gateway.calls.pipeline import Pipeline
from upwell.gateway.clients import Nobody, RequestRefused
from upwell.gateway.eras import IMPLEMENTATION, MODERN_VERSIONS, envelope_of, negotiated
from upwell.gateway.routing.router import failed, shaped, supported
from upwell.ground.background import BackgroundTasks, Receipt
from upwell.ground.names import MAX_SERVER_NAME_CHARS
from upwell.ground.text.tokens import count
from upwell.ground.trace import LOG, conclude, present_trace_id, span
from upwell.ground.types.rpc import Reply, ToolCall
from upwell.hook.daemon import HookRequest
from upwell.hosts import host_of_client
from upwell.tools.base import Toolbox
from upwell.wire.peer import (
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    Message,
    answer_line,
    error_body,
    read_message,
)
from upwell.wire.rawjson import NotJson, RawObject, dumps, loads
from upwell.wrap.asking import LIST, NEW, OF_PLUGIN, SAME
from upwell.wrap.messages import Malformed, place_of_result

MAX_PIPELINES = 100
_RUNNERS = frozenset(
    """
    bun bunx deno docker node npm npx pipx pnpm podman python python3 sh bash tsx uv uvx yarn
    """.split()
)
_VERBS = frozenset({"dlx", "exec", "run", "tool", "x", "-m"})
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9-]+")
_SUFFIXES = frozenset({".js", ".mjs", ".cjs", ".ts", ".py"})
_host_of = lru_cache(256)(host_of_client)


class RelayDescription(Struct, frozen=True):
    """A relay, as it describes itself. `parent` is the process that started it."""

    session: str
    name: str
    cwd: str
    client: str
    parent: int

    @classmethod
    def described(cls, raw: bytes, parent: int) -> "RelayDescription":
        about = loads(raw)
        if not isinstance(about, dict):
            raise NotJson("the relay does not describe itself")
        session, name, cwd, client = (
            str(about.get(key, "")) for key in ("session", "name", "cwd", "client")
        )
        command = about.get("command")
        words = [str(word) for word in command] if isinstance(command, list) else []
        return cls(session, name or server_name(words), cwd, client, parent)


class _Asking(Nobody):
    """The agent that made a call, and the call. `facts` is what the relay knows of the tool, and
    `request` is the agent's request as raw JSON."""

    def __init__(
        self, relay: RelayDescription, facts: RawObject, request: bytes, receipt: Receipt
    ) -> None:
        params = RawObject.parse(RawObject.parse(request).get("params") or b"{}")
        envelope = envelope_of(params)
        tool, annotations = params.value("name"), facts.value("annotations")
        self.relay = relay
        self.session = relay.session
        self.host = _host_of(envelope.client if envelope else relay.client)
        self.receipt = receipt
        self.tool = tool if isinstance(tool, str) else ""
        self.args = RawObject.parse(params.get("arguments") or b"{}").decoded()
        self.annotations = annotations if isinstance(annotations, dict) else {}
        self.has_schema = facts.get("schema") == b"true"


class WrapDoor:
    """Answers relays. `pipeline_of(parent, cwd)` makes the pipeline for an agent's calls, and
    `may_shorten(server, tool)` returns whether a tool's results may be shortened. `load()` prepares
    for the first long result. `read_command` is the shell command that reads an original."""

    def __init__(
        self,
        pipeline_of: Callable[[int, str], Pipeline],
        may_shorten: Callable[[str, str], bool],
        read_command: str,
        load: Callable[[], None],
    ) -> None:
        self._pipeline_of = pipeline_of
        self._may_shorten = may_shorten
        self._read_command = read_command
        self._load = load
        self._is_loaded = False
        self._pipelines: dict[tuple[int, str], Pipeline] = {}
        self._tasks = BackgroundTasks("wrapped servers")

    async def answer(self, request: HookRequest, body: bytes, receipt: Receipt) -> bytes:
        """Return `SAME`, or `NEW` with the message that replaces the server's."""
        if not self._is_loaded:
            self._is_loaded = True
            self._tasks.start(asyncio.to_thread(self._load))
        try:
            about, *rest = body.split(b"\n", 1 if request.name == LIST else 3)
            relay = RelayDescription.described(about, request.parent)
            if request.name == LIST:
                # The tools that keep their `outputSchema`.
                names = loads(rest[0])
                known = names if isinstance(names, list) else []
                kept = [name for name in known if not self._may_shorten(relay.name, str(name))]
                return NEW + dumps(kept)
            facts, asked, answer = rest
            start, end = place_of_result(answer)
            asking = _Asking(relay, RawObject.parse(facts), asked, receipt)
            result = await self._treated(asking, answer[start:end], request.left_ms / 1000)
        except Malformed as error:
            LOG.info("a message of a wrapped server passes unchanged: %s", error)
            return SAME
        if result is None:
            return SAME
        return b"".join((NEW, answer[:start], result, answer[end:]))

    async def aclose(self) -> None:
        for pipeline in self._pipelines.values():
            await pipeline.aclose()
        await self._tasks.drain()

    async def _treated(self, asking: "_Asking", given: bytes, seconds: float) -> bytes | None:
        call = ToolCall(
            server=asking.relay.name,
            tool=asking.tool,
            params=b"{}",
            args=asking.args,
            annotations=asking.annotations,
            trace_id=present_trace_id(),
            read_command=self._read_command,
        )
        with span("upwell.wrapped", server=call.server, tool=call.tool) as current:
            result = await self._pipeline(asking.relay).given(
                call, given, asking, seconds=seconds, fits=not asking.has_schema
            )
            conclude(current, "unchanged" if result is None else "changed")
        return result

    def _pipeline(self, relay: RelayDescription) -> Pipeline:
        key = (relay.parent, relay.cwd)
        pipeline = self._pipelines.pop(key, None) or self._pipeline_of(*key)
        self._pipelines[key] = pipeline
        if len(self._pipelines) > MAX_PIPELINES:
            oldest = self._pipelines.pop(next(iter(self._pipelines)))
            self._tasks.start(oldest.aclose())
        return pipeline


def server_name(command: list[str]) -> str:
    """Return a name for the server that a command runs: that of the program or, if a runner such as
    `npx` runs it, of the package or script."""
    words = [word for word in command if word]
    program = PurePosixPath(words[0]).name if words else ""
    if program in _RUNNERS:
        packages = (word for word in words[1:] if word not in _VERBS and word[:1] != "-")
        program = PurePosixPath(next(packages, program)).name
    path = PurePosixPath(program.split("@")[0] or program)
    stem = path.stem if path.suffix in _SUFFIXES else path.name
    return _NOT_IN_NAMES.sub("_", stem).strip("_-")[:MAX_SERVER_NAME_CHARS] or "server"


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
        try:
            params = RawObject.parse(message.params)
            envelope = supported(envelope_of(params))
            agent = RelayDescription.described(about, parent)
            if envelope is not None:
                agent = replace(agent, client=envelope.client)
            reply = await self._answered(message.method or "", params, agent)
            return await shaped(message.method or "", reply, modern=envelope is not None)
        except Exception as error:
            return failed(error)

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
