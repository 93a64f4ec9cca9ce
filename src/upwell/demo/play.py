"""A short piece of work, done for real: `upwell serve` over stdio, a server behind it, an agent in
front, and for each call what came back, what was said beside it, and why."""

import asyncio
import json
import shutil
import sys
import tempfile
import textwrap
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from upwell.compress.progressive import rejoin
from upwell.demo.server import FILES
from upwell.ground.errors import UpstreamUnavailable
from upwell.ground.text.tokens import count
from upwell.ground.types import Reply
from upwell.wire.child import Child, Command, start
from upwell.wire.lines import read_lines
from upwell.wire.peer import Message, Peer
from upwell.wire.rawjson import dumps, loads

Say = Callable[[str], object]
Decisions = Callable[[Path], Awaitable[Sequence[Mapping[str, Any]]]]
CALL_SECONDS = 15.0
_SHOWN_CHARS = 100

MEMORIES: Sequence[tuple[str, Sequence[str]]] = (
    (
        "Every attempt of one charge must reuse the same idempotency key; order 1187 was charged "
        "twice because a retry sent a new one. Decided in October 2026 to key by charge.",
        ("--namespace", "decisions", "--path", "src/payments.py"),
    ),
    (
        "The nightly report reads all orders of the month and makes the database slow; it can be "
        "stopped without harm.",
        ("--namespace", "learnings", "--path", "docs/runbook.md"),
    ),
    ("Design reviews are on Tuesdays at ten.", ()),
)


@dataclass(frozen=True, slots=True)
class Step:
    """One call of the agent, and why it makes it."""

    why: str
    tool: str
    args: Mapping[str, Any]
    writes: bool = False
    look_for: str = ""


STEPS: Sequence[Step] = (
    Step(
        "The agent opens the file that charges orders.",
        "shop__read_file",
        {"path": "src/payments.py"},
    ),
    Step(
        "It looks for one order among 240.",
        "shop__read_file",
        {
            "path": "data/orders.json",
            "_context_query": "why did the payment of order 1187 fail, last error and attempts",
        },
        look_for="1187",
    ),
    Step(
        "It opens the payment code once more. What was said is not said again.",
        "shop__read_file",
        {"path": "src/payments.py", "_context_query": "how charge retries after a failure"},
    ),
    Step(
        "It looks for the same order in the log.",
        "shop__read_file",
        {"path": "logs/app.log", "_context_query": "errors of order 1187"},
        look_for="order 1187",
    ),
    Step(
        "It lists the files.",
        "shop__list_files",
        {},
    ),
    Step(
        "It writes a note. Tools with side effects are left alone.",
        "shop__write_note",
        {"text": "payments: key by charge, not by order"},
        writes=True,
    ),
)


class Agent:
    """A client of a stdio MCP server."""

    def __init__(self, child: Child) -> None:
        self._child = child
        self._peer = Peer(read_lines(child.out), child.sink, self._ignore)
        self._reading = asyncio.create_task(self._peer.run())

    async def ask(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        async with asyncio.timeout(CALL_SECONDS):
            reply: Reply = await self._peer.request(method, dumps(params))
        if reply.error:
            raise UpstreamUnavailable(reply.error.decode(errors="replace"), server="demo")
        result: dict[str, Any] = loads(reply.result)
        return result

    async def greet(self) -> None:
        info = {"name": "upwell-demo", "version": "1"}
        await self.ask(
            "initialize",
            {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info},
        )
        await self._peer.notify("notifications/initialized")

    async def call(self, tool: str, args: Mapping[str, Any]) -> list[str]:
        """The text blocks of the answer."""
        result = await self.ask("tools/call", {"name": tool, "arguments": args})
        return [block["text"] for block in result["content"] if block["type"] == "text"]

    async def aclose(self) -> None:
        await self._child.stop()
        await asyncio.gather(self._reading, return_exceptions=True)

    async def _ignore(self, message: Message) -> None:
        return None


async def play(say: Say, environment: Mapping[str, str], decisions: Decisions) -> None:
    """Run the demo in a scratch home, which it removes. `decisions` reads a home's journal."""
    scratch = Path(tempfile.mkdtemp(prefix="upwell-demo-"))
    try:
        await Play(say, scratch, environment, decisions).run()
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


class Play:
    """The demo on a stage of its own: `scratch` holds the shop's files and upwell's home."""

    def __init__(
        self, say: Say, scratch: Path, environment: Mapping[str, str], decisions: Decisions
    ) -> None:
        self._say = say
        self._shop = scratch / "shop"
        self._home = scratch / "home"
        kept = {name: text for name, text in environment.items() if not name.startswith("UPWELL_")}
        self._environment = {**kept, "UPWELL_HOME": str(self._home)}
        self._decisions = decisions

    async def run(self) -> None:
        began = time.monotonic()
        shutil.copytree(FILES, self._shop)
        self._say("upwell demo: a real MCP server behind `upwell serve`, in a scratch home.\n")
        server = ["-m", "upwell.demo.server", str(self._shop)]
        await self._upwell("add", "shop", "--", sys.executable, *server)
        for text, options in MEMORIES:
            await self._upwell("remember", text, *options)
        direct = await self._agent(server)
        gateway = await self._agent(["-m", "upwell", "serve"])
        try:
            before, after = await self._work(direct, gateway)
        finally:
            await gateway.aclose()
            await direct.aclose()
        await self._why()
        self._say(
            f"\nBefore: {before:,} tokens. After: {after:,}, memories included, and every byte can "
            f"still be read. {time.monotonic() - began:.1f} s."
        )
        self._say(NEXT)

    async def _work(self, direct: "Agent", gateway: "Agent") -> tuple[int, int]:
        """The steps, one after the other. Gives tokens before and after."""
        await direct.greet()
        await gateway.greet()
        await gateway.ask("tools/list", {})
        before = after = 0
        for number, step in enumerate(STEPS, 1):
            self._say(f"\n{number}. {step.why}")
            was, now = await self._step(step, direct, gateway)
            before, after = before + was, after + now
        return before, after

    async def _step(self, step: Step, direct: "Agent", gateway: "Agent") -> tuple[int, int]:
        """Make one call both ways and show the difference. Gives tokens before and after."""
        bare = {name: value for name, value in step.args.items() if name != "_context_query"}
        spoken = ", ".join(f"{name}={value!r}" for name, value in step.args.items())
        self._say(f"   {step.tool}({spoken})")
        texts = await gateway.call(step.tool, step.args)
        original = texts[0]
        if not step.writes:
            original = (await direct.call(step.tool.removeprefix("shop__"), bare))[0]
        was, now = count(original), sum(count(text) for text in texts)
        notice = next((text for text in texts[1:] if text.startswith("[upwell]")), "")
        if notice:
            self._say(f"   {was:,} tokens → {count(texts[0]):,}")
            self._say(f"   {notice}")
            self._say(_excerpt(texts[0], step.look_for))
            await self._read_on(gateway, notice, original)
        else:
            same = "the same bytes" if texts[0] == original else "changed!"
            self._say(f"   {was:,} tokens, within the budget: {same}")
        self._beside([text for text in texts[1:] if text.startswith("<upwell-memories")])
        return was, now

    def _beside(self, blocks: Sequence[str]) -> None:
        if not blocks:
            self._say("   nothing was said beside it")
        for block in blocks:
            self._say("   a memory beside it, in a block of its own:")
            self._say(_indented(block))

    async def _read_on(self, gateway: "Agent", notice: str, original: str) -> None:
        """Fetch the whole original by its key and compare."""
        key = notice.partition('key="')[2].partition('"')[0]
        chunks: list[str] = []
        offset = 0
        while offset < len(original):
            chunk = (await gateway.call("upwell__read_more", {"key": key, "offset": offset}))[0]
            chunks.append(chunk)
            offset += len(rejoin([chunk]))
        whole = "byte for byte" if rejoin(chunks) == original else "NOT the same"
        self._say(f"   upwell__read_more gave the original in {len(chunks)} chunks, {whole}")

    async def _why(self) -> None:
        """Let the journal say what was decided for each call."""
        self._say("\nWhy it spoke, and why it kept silent:")
        for number, decision in enumerate(await self._decisions(self._home), 1):
            asked = f" for {decision['queries'][0]!r}" if decision["queries"] else ""
            detail = f": {decision['detail']}" if decision["detail"] else ""
            sure = f", confidence {decision['confidence']:.2f}" if decision["confidence"] else ""
            self._say(f"   {number}. {decision['outcome']}{detail}{asked}{sure}")

    async def _upwell(self, *args: str) -> None:
        """Run one command of the CLI, and show it."""
        spoken = " ".join(
            "python" if arg == sys.executable else json.dumps(arg) if " " in arg else arg
            for arg in args
        )
        self._say(f"$ upwell {spoken.replace(str(self._shop), 'shop')}")
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "upwell",
            *args,
            env=self._environment,
            cwd=self._shop,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate()
        if process.returncode:
            raise UpstreamUnavailable(err.decode(errors="replace").strip(), server="demo")
        self._say("  " + out.decode(errors="replace").strip().replace(str(self._home), "home"))

    async def _agent(self, args: Sequence[str]) -> "Agent":
        own = {"UPWELL_HOME": str(self._home)}
        command = Command(program=sys.executable, args=args, env=own, cwd=str(self._shop))
        return Agent(await start(command, self._environment))


NEXT = """
What to type next:
  upwell add files -- npx -y @modelcontextprotocol/server-filesystem .   put a server behind upwell
  claude mcp add upwell -- upwell serve                                  give upwell to your agent
  upwell remember "…" --path src/x.py                                    keep something
  upwell context "…"                                                     see what would be said"""


def _excerpt(text: str, look_for: str) -> str:
    """The stretch of a fitted text that answers what was asked."""
    at = max(0, text.find(look_for))
    start = text.rfind("\n", 0, at) + 1 if at - text.rfind("\n", 0, at) < _SHOWN_CHARS else at
    shown = text[start : start + 3 * _SHOWN_CHARS]
    lines = [piece for line in shown.splitlines() for piece in textwrap.wrap(line, _SHOWN_CHARS)]
    return _indented("\n".join(["…", *lines[:4], "…"]))


def _indented(text: str) -> str:
    return "\n".join(f"   │ {line}" for line in text.splitlines())
