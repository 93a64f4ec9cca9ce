"""The daemon's side of wrapped servers: what happens to a result of which a relay tells.

A relay asks about one result at a time, and about the tools whose `outputSchema` it should list
(`asking.py`). The results go through the gateway's own pipeline.
"""

import asyncio
import re
from collections.abc import Callable
from functools import lru_cache
from pathlib import PurePosixPath
from typing import Any

from msgspec import Struct

from upwell.gateway.calls.pipeline import Pipeline
from upwell.gateway.clients import Nobody
from upwell.gateway.eras import envelope_of
from upwell.ground.background import BackgroundTasks, Receipt
from upwell.ground.names import MAX_SERVER_NAME_CHARS
from upwell.ground.trace import LOG, conclude, present_trace_id, span
from upwell.ground.types.rpc import ToolCall
from upwell.hook.daemon import HookRequest
from upwell.hosts import host_of_client
from upwell.wire.rawjson import NotJson, RawObject, dumps, loads
from upwell.wrap.asking import LIST, NEW, SAME
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
        """Read a description.

        Raises:
            NotJson: it is malformed.
        """
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
    `request` is the agent's request as raw JSON.

    Raises:
        NotJson: the facts or the request are malformed.
    """

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
                return NEW + dumps(self._with_schema(relay, loads(rest[0])))
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
        """Stop all searches."""
        for pipeline in self._pipelines.values():
            await pipeline.aclose()
        await self._tasks.drain()

    def _with_schema(self, relay: RelayDescription, names: Any) -> list[str]:
        """Return those of the tools that keep their `outputSchema`."""
        known = names if isinstance(names, list) else []
        return [name for name in known if not self._may_shorten(relay.name, str(name))]

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
