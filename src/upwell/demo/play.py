"""The demo: an agent calls a real server through `upwell serve` over stdio.

For each call the demo shows the size of the reply, an excerpt if it was shortened, and the memories
that came with it. At the end it shows why upwell spoke or stayed silent. The demo also checks
upwell. It fails if a shortened reply lost an answer, if any other reply of a read-only tool
changed, or if an original cannot be read back in full.
"""

import asyncio
import json
import shutil
import sys
import tempfile
import textwrap
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from upwell.compress.progressive import rejoin
from upwell.demo.server import FILES
from upwell.ground.errors import UpstreamUnavailable, UpwellError
from upwell.ground.text.tokens import count
from upwell.ground.types.rpc import Reply
from upwell.wire.child import Child, ChildCommand, start
from upwell.wire.lines import read_lines
from upwell.wire.peer import Message, Peer
from upwell.wire.rawjson import dumps, loads

Print = Callable[[str], object]
Decisions = Callable[[Path], Awaitable[Sequence[Mapping[str, Any]]]]
CALL_SECONDS = 15.0
_SHOWN_CHARS = 100

MEMORIES: Sequence[tuple[str, Sequence[str]]] = (
    (
        "Every attempt at a charge must reuse the same idempotency key; order 1187 was charged "
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


class DemoFailed(UpwellError):
    """One of the demo's claims does not hold on this machine."""

    def __init__(self, message: str) -> None:
        super().__init__(message, hint="this is a bug in upwell: please report it with this output")


class DemoStep(Struct, frozen=True):
    """One call by the agent. A shortened reply must still contain each of `answers`."""

    purpose: str
    tool: str
    args: Mapping[str, Any]
    writes: bool = False
    answers: Sequence[str] = ()


STEPS: Sequence[DemoStep] = (
    DemoStep(
        "The agent opens the file that charges orders.",
        "shop__read_file",
        {"path": "src/payments.py"},
    ),
    DemoStep(
        "It looks for one order among 240.",
        "shop__read_file",
        {
            "path": "data/orders.json",
            "_context_query": "why did the payment of order 1187 fail, last error and attempts",
        },
        answers=("1187", "idempotency_key_reused", "customer was charged twice"),
    ),
    DemoStep(
        "It opens the payment code again. The memory is not repeated.",
        "shop__read_file",
        {"path": "src/payments.py", "_context_query": "how charge retries after a failure"},
    ),
    DemoStep(
        "It looks for the same order in the log.",
        "shop__read_file",
        {"path": "logs/app.log", "_context_query": "errors of order 1187"},
        answers=("order 1187: adyen answered 409", "order 1187: giving up"),
    ),
    DemoStep(
        "It lists the files.",
        "shop__list_files",
        {},
    ),
    DemoStep(
        "It writes a note. upwell adds nothing to tools with side effects.",
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

    async def handshake(self) -> None:
        info = {"name": "upwell-demo", "version": "1"}
        await self.ask(
            "initialize",
            {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info},
        )
        await self._peer.notify("notifications/initialized")

    async def call(self, tool: str, args: Mapping[str, Any]) -> list[str]:
        """Return the text blocks of the result."""
        result = await self.ask("tools/call", {"name": tool, "arguments": args})
        return [block["text"] for block in result["content"] if block["type"] == "text"]

    async def aclose(self) -> None:
        await self._child.stop()
        await asyncio.gather(self._reading, return_exceptions=True)

    async def _ignore(self, message: Message) -> None:
        return None


async def play(show: Print, environment: Mapping[str, str], decisions: Decisions) -> None:
    """Run the demo in a temporary folder. `decisions` reads the decisions recorded in upwell's
    home.

    Raises:
        DemoFailed: one of the demo's claims does not hold.
        UpstreamUnavailable: a command or a request failed.
    """
    scratch = Path(tempfile.mkdtemp(prefix="upwell-demo-"))
    try:
        await Play(show, scratch, environment, decisions).run()
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


class Play:
    """The demo in the folder `scratch`, which contains the files of the shop and upwell's home."""

    def __init__(
        self, show: Print, scratch: Path, environment: Mapping[str, str], decisions: Decisions
    ) -> None:
        self._show = show
        self._shop = scratch / "shop"
        self._home = scratch / "home"
        inherited = {
            name: text for name, text in environment.items() if not name.startswith("UPWELL_")
        }
        self._environment = {**inherited, "UPWELL_HOME": str(self._home)}
        self._decisions = decisions

    async def run(self) -> None:
        began = time.monotonic()
        shutil.copytree(FILES, self._shop)
        self._show("upwell demo: a real MCP server behind `upwell serve`, in a scratch home.\n")
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
        await self._explain()
        self._show(
            f"\nBefore: {before:,} tokens. After: {after:,}, memories included, and every byte can "
            f"still be read. {time.monotonic() - began:.1f} s."
        )
        self._show(NEXT)

    async def _work(self, direct: "Agent", gateway: "Agent") -> tuple[int, int]:
        await direct.handshake()
        await gateway.handshake()
        await gateway.ask("tools/list", {})
        before = after = 0
        for number, step in enumerate(STEPS, 1):
            self._show(f"\n{number}. {step.purpose}")
            step_before, step_after = await self._step(step, direct, gateway)
            before, after = before + step_before, after + step_after
        return before, after

    async def _step(self, step: DemoStep, direct: "Agent", gateway: "Agent") -> tuple[int, int]:
        """Make one call through upwell and show its result. Returns the token counts of the reply
        without and with upwell."""
        shown_args = ", ".join(f"{name}={value!r}" for name, value in step.args.items())
        self._show(f"   {step.tool}({shown_args})")
        texts = await gateway.call(step.tool, step.args)
        original = texts[0]
        if not step.writes:
            bare_args = {name: arg for name, arg in step.args.items() if name != "_context_query"}
            original = (await direct.call(step.tool.removeprefix("shop__"), bare_args))[0]
        before, after = count(original), sum(count(text) for text in texts)
        notice = next((text for text in texts[1:] if text.startswith("[upwell]")), "")
        if notice:
            self._show(f"   {before:,} tokens → {count(texts[0]):,}")
            self._show(f"   {notice}")
            self._show(excerpt(texts[0], step.answers))
            await self._read_back(gateway, notice, original)
        elif texts[0] == original:
            self._show(f"   {before:,} tokens, within the budget: the same bytes")
        else:
            raise DemoFailed(f"{step.tool} came through changed, without a notice")
        blocks = [text for text in texts[1:] if text.startswith("<upwell-memories")]
        if not blocks:
            self._show("   no memory with it")
        for block in blocks:
            self._show("   a memory with it, in a block of its own:")
            self._show(_indented(block))
        return before, after

    async def _read_back(self, gateway: "Agent", notice: str, original: str) -> None:
        key = notice.partition('key="')[2].partition('"')[0]
        chunks: list[str] = []
        offset = 0
        while offset < len(original):
            chunk = (await gateway.call("upwell__read_more", {"key": key, "offset": offset}))[0]
            length = len(rejoin([chunk]))
            if not length:
                raise DemoFailed(f"upwell__read_more returned nothing at offset {offset}")
            chunks.append(chunk)
            offset += length
        if rejoin(chunks) != original:
            raise DemoFailed("upwell__read_more returned something other than the original")
        self._show(
            f"   upwell__read_more returned the original in {len(chunks)} chunks, byte for byte"
        )

    async def _explain(self) -> None:
        self._show("\nWhy upwell spoke or stayed silent:")
        for number, decision in enumerate(await self._decisions(self._home), 1):
            query = f" for {decision['queries'][0]!r}" if decision["queries"] else ""
            detail = f": {decision['detail']}" if decision["detail"] else ""
            confidence = decision["confidence"]
            score = f", confidence {confidence:.2f}" if confidence else ""
            self._show(f"   {number}. {decision['outcome']}{detail}{query}{score}")

    async def _upwell(self, *args: str) -> None:
        shown = " ".join(
            "python" if arg == sys.executable else json.dumps(arg) if " " in arg else arg
            for arg in args
        )
        self._show(f"$ upwell {shown.replace(str(self._shop), 'shop')}")
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
        self._show("  " + out.decode(errors="replace").strip().replace(str(self._home), "home"))

    async def _agent(self, args: Sequence[str]) -> "Agent":
        own = {"UPWELL_HOME": str(self._home)}
        command = ChildCommand(program=sys.executable, args=args, env=own, cwd=str(self._shop))
        return Agent(await start(command, self._environment))


NEXT = """
What to type next:
  upwell setup                          set up your agents; it shows every change first
  upwell remember "…" --path src/x.py   store a memory
  upwell context "…"                    see what would surface"""


def excerpt(text: str, answers: Sequence[str]) -> str:
    """Return the part of a shortened text around the first answer.

    Raises:
        DemoFailed: an answer was lost.
    """
    lost_answers = [answer for answer in answers if answer not in text]
    if lost_answers:
        raise DemoFailed(f"the shortened reply lost an answer: {lost_answers[0]!r}")
    position = text.find(answers[0]) if answers else 0
    line_start = text.rfind("\n", 0, position) + 1
    start = line_start if position - line_start <= _SHOWN_CHARS else position
    stretch = text[start : start + 3 * _SHOWN_CHARS]
    lines = [piece for line in stretch.splitlines() for piece in textwrap.wrap(line, _SHOWN_CHARS)]
    return _indented("\n".join(["…", *lines[:4], "…"]))


def _indented(text: str) -> str:
    return "\n".join(f"   │ {line}" for line in text.splitlines())
