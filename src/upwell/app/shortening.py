"""The record of all shortened results, and of what agents do with them, for learning and in the
trace of the call. Then the results of an agent's own tools: shortens them, if the user turned that
on (`hook.compress`), and estimates how many tokens that would have saved in past sessions.
"""

import asyncio
import secrets
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import orjson
from msgspec import Struct
from msgspec.structs import replace

from upwell.compress import compress
from upwell.compress.base import Tools
from upwell.compress.originals import Originals, StoredOriginal
from upwell.config import Config
from upwell.episodes.events import WRITERS, Kind, SessionEvent
from upwell.gateway.calls.fit import (
    NOTICE_TOKENS,
    WORTH_SHORTENING,
    Fitter,
    OnShortened,
    by_command,
)
from upwell.gateway.calls.results import default_tokens
from upwell.ground.background import BackgroundTasks
from upwell.ground.clock import Clock
from upwell.ground.errors import KeyUnknown, StoreError
from upwell.ground.files import Home, usual_home
from upwell.ground.ledger import EntryKind, TtlStore
from upwell.ground.secrets.redact import redact
from upwell.ground.text.safe import dumped
from upwell.ground.text.tokens import count
from upwell.ground.trace import (
    LOG,
    TOKENS_SAVED,
    conclude,
    contained,
    is_tracing,
    present_trace_id,
    span,
)
from upwell.ground.types.rpc import ToolCall
from upwell.hook.tool_output import UNTOUCHED_TOOLS
from upwell.hosts.events import HostEvent
from upwell.learn.budgets import Budgets
from upwell.surface.journal import Journal, shown_project
from upwell.surface.learning import Learning
from upwell.surface.options import READ_COMMAND
from upwell.tools.base import Result, Tool
from upwell.usage.events import CUT, CUT_SECONDS, CountedEvent, EventRow, Events

if TYPE_CHECKING:
    from upwell.gateway.calls.fit import Cut

MAX_SHOWN_CHARS = 40_000
_SEPARATOR = "\t"
_COLUMNS = ("id", "at", "written", "host", "project", "session", "tool")


class _Pending(Struct, frozen=True):
    call: ToolCall
    cut: "Cut"
    at: float


class Cuts:
    """Records shortened results as events. The texts that the agent saw are recorded only
    for the owner of the home, and only if none of them contains a secret. The path of the file
    that a call works on is recorded only if `journal` may store it, and for as long as `journal`
    keeps paths. The methods raise StoreError if the store cannot be read.
    """

    def __init__(
        self, ttl_store: TtlStore, originals: Originals, journal: Journal, clock: Clock
    ) -> None:
        self._events = Events(ttl_store, clock)
        self._ttl_store = ttl_store
        self._originals = originals
        self._journal = journal
        self._clock = clock
        self._pending: list[_Pending] = []
        self._writing = asyncio.Lock()
        self._tasks = BackgroundTasks("cuts")

    def note(self, call: ToolCall, cut: "Cut") -> None:
        """Queue the record of a shortened result. It is written after the call."""
        self._pending.append(_Pending(call, cut, self._clock.now()))
        if len(self._pending) == 1:
            self._tasks.start(self.flush())

    async def flush(self) -> None:
        """Write the pending records, and wait for those that another task is writing. If the store
        fails, the records are lost, and a warning is logged."""
        async with self._writing:
            pending, self._pending = self._pending, []
            if not pending:
                return
            written = await asyncio.to_thread(lambda: [self._encoded(entry) for entry in pending])
            texts = {event.id: text for event, text in written if text}
            try:
                await asyncio.gather(
                    self._events.put([event for event, _ in written]),
                    self._ttl_store.put(EntryKind.CUT, texts, ttl_seconds=CUT_SECONDS),
                )
            except StoreError as error:
                LOG.warning("shortened results were not recorded: %s", error)

    def described(self, event: EventRow) -> dict[str, Any]:
        """A shortened result without its texts."""
        return {
            **orjson.loads(event.data or "{}"),
            **{name: getattr(event, name) for name in _COLUMNS},
            "file": self._journal.texts_of(event)["file"],
            "kind": "shortened",
            "memories": [],
        }

    async def latest(
        self, limit: int, *, matching: Mapping[str, str] | None = None
    ) -> list[dict[str, Any]]:
        """The latest shortened results without their texts, newest first. `matching` maps fields to
        the exact values required.
        """
        await self.flush()
        events = await self._events.latest(limit, kind=CUT, matching=matching)
        return [self.described(event) for event in events]

    async def texts(self, cut_id: str) -> list[tuple[str, str, str]]:
        """The originals of a shortened result, each with the text that the agent saw and the counts
        in its notice. Originals that expired or contain a secret are left out.
        """
        await self.flush()
        item = (await self._ttl_store.get(EntryKind.CUT, [cut_id])).get(cut_id)
        if item is None:
            return []
        row = orjson.loads(item.value)
        pairs = []
        for key, shown, counts in zip(row["keys"], row["shown"], row["left_out"], strict=False):
            try:
                original = await self._originals.get(key)
            except KeyUnknown:
                continue
            if not await asyncio.to_thread(self._originals.is_secret, original):
                pairs.append((original, shown, counts))
        return pairs

    async def session_of(self, cut_id: str) -> str:
        """The session that a shortened result belongs to; "" if the result is unknown."""
        event = await self._events.find(cut_id)
        return event.session if event else ""

    async def call_of(self, key: str) -> Mapping[str, Any] | None:
        """The latest shortened result with this key of an original; None if there is none."""
        await self.flush()
        event = await self._events.cut_of(key)
        return self.described(event) if event else None

    def _encoded(self, entry: _Pending) -> tuple[EventRow, bytes]:
        """The event, and the texts that the agent saw; b"" if they must not be stored."""
        call, cut = entry.call, entry.cut
        tool = f"{call.server}__{call.tool}"
        shown = [text[:MAX_SHOWN_CHARS] for text in cut.shown] if call.principal == "" else []
        # A notice contains `key="…"` with sixteen random digits, which can look like a secret.
        if any(self._originals.is_secret(_without(text, cut.keys)) for text in shown):
            shown = []
        texts = {"keys": list(cut.keys), "shown": shown, "left_out": cut.left_out}
        details = {
            "trace_id": call.trace_id,
            "before": cut.tokens_before,
            "after": cut.tokens_after,
            "keys": list(cut.keys),
            "has_text": bool(shown),
        }
        event = EventRow(
            id=_SEPARATOR.join((next(iter(cut.keys), ""), secrets.token_hex(6))),
            kind=CUT,
            at=entry.at,
            host=call.host,
            project=shown_project(call.cwd),
            session=call.session,
            tool=tool,
            times=1,
            before=cut.tokens_before,
            after=cut.tokens_after,
            file=self._journal.file_for(tool, call.args, call.cwd),
            data=dumped(details).decode(),
        )
        return event, dumped(texts) if shown else b""

    async def aclose(self) -> None:
        """Write all pending records."""
        await self._tasks.drain()
        await self.flush()


def _without(text: str, keys: Sequence[str]) -> str:
    for key in keys:
        text = text.replace(key, "")
    return text


class FollowUp:
    """Learns from shortened results: how many were delivered, and which originals an agent read."""

    def __init__(self, budgets: Budgets, learning: Learning, cuts: Cuts) -> None:
        self._budgets = budgets
        self._learning = learning
        self._cuts = cuts
        self._reading = BackgroundTasks("counting what is read again")

    def delivered(self, call: ToolCall, cut: "Cut") -> None:
        """Count a shortened result from a call to an MCP server."""
        tool = f"{call.server}__{call.tool}"
        if cut.keys and not call.read_command:
            self._budgets.served(tool, cut.keys)
        self.shortened_by_hook(call, cut)

    def shortened_by_hook(self, call: ToolCall, cut: "Cut") -> None:
        """Count a shortened result that does not count for the tool's learned budget, because the
        agent reads the original on the command line, where this process does not see it.
        """
        TOKENS_SAVED.add(call.server, by=cut.tokens_before - cut.tokens_after)
        self._cuts.note(call, cut)

    def on_follow_up(self, original: StoredOriginal, text: str) -> None:
        """Count `text`, the part of an original that an agent has read."""
        self._budgets.on_follow_up(original.key)
        self._reading.start(self.read_again(original.key, text))

    async def read_again(self, key: str, text: str) -> str:
        """Count the tokens of `text`, which the agent reads from the original with this key.
        Returns `text`."""
        try:
            row = await self._cuts.call_of(key)
        except StoreError as error:
            LOG.warning("a reading of an original was not counted: %s", error)
            return text
        if row is not None:
            tokens = await asyncio.to_thread(count, text)
            place = {name: row[name] for name in ("host", "project", "tool")}
            self._learning.counts.add(CountedEvent.READ_AGAIN, by=tokens, **place)
            await self._learning.counts.flush()
        return text

    def traced(self, tool: Tool) -> Tool:
        """Wrap a tool that reads originals. Each run becomes a span in the trace of the call that
        returned the original."""

        async def run(args: Mapping[str, Any], session: str) -> Result:
            key = str(args.get("key", ""))
            trace_id = ""
            if is_tracing():
                with contained("looking up the trace of a result"):
                    row = await self._cuts.call_of(key)
                    trace_id = str(row["trace_id"]) if row else ""
            with span("upwell.read_on", trace_id=trace_id, tool=tool.name) as current:
                result = await tool.run(args, session)
                conclude(current, "read")
                return result

        return replace(tool, run=run)

    async def aclose(self) -> None:
        await self._reading.drain()


class Savings(Struct):
    """Counts the results of all tools that an agent called: their tokens, and the tokens that
    shortening to the configured budgets would have saved. The readers of transcripts truncate very
    long results, so both token counts are lower bounds.
    """

    config: Config
    results: int = 0
    shortened: int = 0
    tokens: int = 0
    saved: int = 0

    def watch(self, events: Iterable[SessionEvent]) -> Iterator[SessionEvent]:
        """Yield the events, and count their results."""
        for event in events:
            if event.kind is Kind.TOOL and event.out:
                self._add(event)
            yield event

    def described(self) -> dict[str, int]:
        """The counts, for JSON."""
        return {
            "results": self.results,
            "shortened": self.shortened,
            "tokens": self.tokens,
            "saved": self.saved,
        }

    def _add(self, event: SessionEvent) -> None:
        tokens = count(event.out)
        self.results += 1
        self.tokens += tokens
        if event.tool in UNTOUCHED_TOOLS | WRITERS:
            return
        call = ToolCall(server=event.host, tool=event.tool, params=b"{}", args=event.args)
        options = self.config.compress_for(event.host, event.tool)
        budget = options.max_result_tokens
        if budget is None:
            budget = default_tokens(call, options, self.config.result_tokens())
        if tokens * WORTH_SHORTENING > budget:
            self.shortened += 1
            self.saved += max(0, tokens - budget - NOTICE_TOKENS)


class Shortening:
    """Shortens the texts of a result as the gateway does, according to the `compress.*` settings
    and the `[tool]` tables. There, a built-in tool is called `HOST__Tool`, as in
    `[tool."claude__Bash"]`. Nothing is learned here, because hooks do not see which originals the
    agent reads on the command line.
    """

    def __init__(
        self,
        config: Config,
        originals: Originals,
        tools: Tools,
        paused: Callable[[str], bool],
        shortened: OnShortened,
        last_request: Callable[[str], str] = lambda session: "",
    ) -> None:
        self._paused = paused
        self._last_request = last_request
        self._how_to_read = by_command(read_command(config.home))
        self._fitter = Fitter(
            originals,
            config.compress_for,
            tools=tools,
            result_tokens=config.result_tokens(),
            shortened=shortened,
        )

    async def __call__(
        self, host: str, event: HostEvent, texts: Sequence[str], max_tokens: int | None
    ) -> list[str | None]:
        """The shortened texts; None for each unchanged text."""
        if self._paused(event.session):
            return [None] * len(texts)
        server, _, tool = event.tool.rpartition("__")
        call = ToolCall(
            server=server or host,
            tool=tool,
            params=b"{}",
            args=event.args,
            request=self._last_request(event.session),
            trace_id=present_trace_id(),
            host=host,
            session=event.session,
            cwd=event.cwd,
        )
        return await self._fitter.fit_texts(call, texts, self._how_to_read, max_tokens)


def load() -> None:
    """Load the compressor and its rules now, because the first long result would otherwise miss its
    deadline.
    """
    redact(compress("a line of a log\n" * 200, max_tokens=50).text)


def read_command(home: Home) -> str:
    """The command that reads an original or a memory. The caller appends the key or the address."""
    if home.root == usual_home():
        return READ_COMMAND
    return f"UPWELL_HOME={shlex.quote(str(home.root))} {READ_COMMAND}"
