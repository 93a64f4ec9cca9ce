"""Turn a host's hook event into hook output in the host's own format."""

import asyncio
import hashlib
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Coroutine, Hashable, Mapping
from typing import Any

import orjson
from msgspec import Struct
from msgspec.structs import replace

from upwell.ground.background import BackgroundTasks, Receipt, settled
from upwell.ground.clock import SYSTEM_CLOCK, Clock
from upwell.ground.errors import StoreError
from upwell.ground.host_sessions import HostSessions
from upwell.ground.project import real_folder
from upwell.ground.text.safe import loaded
from upwell.ground.trace import LOG, conclude, contained, present_trace_id, span
from upwell.ground.types.cue import Cue, Door, Skip, SkipReason, Surfacing
from upwell.hook.asking import is_question
from upwell.hook.client import UNNAMED, decoded
from upwell.hook.tool_output import Shorten, may_shorten, no_shortening, shortened_output
from upwell.hosts import HOSTS
from upwell.hosts.base import Host
from upwell.hosts.events import RESUMED, EventKind, HostEvent
from upwell.surface.offer import Offers
from upwell.surface.options import READ_COMMAND
from upwell.surface.pipeline import Surfacer
from upwell.surface.render import ENTRY_MARK, by_command
from upwell.surface.rules import Guards

NEUTRAL = b"{}"
DUPLICATE_SECONDS = 5.0
"""Equal events that arrive under two hosts' names within this time count as one event."""
MAX_REMEMBERED = 200
MAX_RECORDED_SESSIONS = 1_000
_DOORS = {
    EventKind.SESSION: Door.SESSION,
    EventKind.PROMPT: Door.PROMPT,
    EventKind.TOOL: Door.TOOL,
}
TurnEnd = Callable[[HostEvent], Coroutine[Any, Any, None]]
"""Called when a turn or a session ends, and before the agent compacts its context."""
Asking = Callable[[Host, HostEvent], Coroutine[Any, Any, str]]
"""Called for every event. Returns the question to ask the agent at the end of a turn, or ""."""


class HookParts(Struct, frozen=True, kw_only=True):
    """The parts of `HookDoor` that depend on what the user has set.

    - `shorten()` shortens tools' results for the hosts in `shortened`.
    - `ask()` asks the agent at the end of a turn to store what it learned.
    - `guards` blocks calls according to the user's rules.
    - `is_excluded()` returns whether the user has excluded a folder. Events in it are neither
      answered nor recorded.
    - `limit_seconds` is how long a caller waits that names no time limit: a hook over HTTP.
    - `read_command` is the shell command that prints the full text of a memory, for an agent
      without upwell's MCP tools.
    """

    shorten: Shorten = no_shortening
    shortened: Collection[str] = ()
    limit_seconds: float = 0.3
    ask: Asking | None = None
    guards: Guards | None = None
    is_excluded: Callable[[str | None], bool] | None = None
    read_command: str = READ_COMMAND


NO_PARTS = HookParts()


class HookDoor:
    """Answers events within a deadline. The answer is neutral if there is nothing to add or no time
    left. `answered_elsewhere(host, payload)` returns whether another of our hooks answers the
    event.
    """

    def __init__(
        self,
        surfacer: Surfacer,
        sessions: HostSessions,
        *,
        turn_end: TurnEnd | None = None,
        answered_elsewhere: Callable[[str, Mapping[str, Any]], bool] = lambda host, payload: False,
        opt_ins: HookParts = NO_PARTS,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._surfacer = surfacer
        self._sessions = sessions
        self._turn_end = turn_end
        self._answered_elsewhere = answered_elsewhere
        self._opt_ins = opt_ins
        self._duplicates = DuplicateEvents(clock)
        self._offers = Offers(surfacer, opt_ins.guards)
        self._tasks = BackgroundTasks("hooks")
        self._recorded: set[tuple[str, str, str | None, int]] = set()
        self._known_sessions = _Recent()
        self.outcomes: Counter[tuple[str, str]] = Counter()
        """The number of events for each host and outcome."""

    async def answer(
        self,
        host: str,
        name: str,
        body: bytes,
        *,
        left_ms: int | None = None,
        parent: int = 0,
        receipt: Receipt | None = None,
    ) -> bytes:
        """Return the JSON that `host` accepts as the answer to its event `name`. `name` may be ""
        if the payload names the event.

        `left_ms` is how long the caller can wait, and `parent` is the process that runs the hook.
        `receipt` later reports whether the answer arrived. Without it, the answer counts as
        delivered.
        """
        known, name = HOSTS.get(host), "" if name == UNNAMED else name
        if known is None:
            self.outcomes["unknown", "not eligible"] += 1
            return NEUTRAL
        payload = _payload(body)
        if isinstance(payload, str):
            self.outcomes[host, str(SkipReason.UNREADABLE)] += 1
            LOG.warning("an event of %s cannot be read: %s", known.title, payload)
            door = _DOORS.get(known.events.kinds.get(name, EventKind.TOOL), Door.TOOL)
            self._surfacer.unreadable(Cue(door=door, host=host), f"{known.title}, {payload}")
            return NEUTRAL
        event = self._event(known, name, payload)
        if event is None:
            self.outcomes[host, "not eligible"] += 1
            return NEUTRAL
        is_excluded = self._opt_ins.is_excluded
        if is_excluded and is_excluded(event.cwd):
            self.outcomes[host, "excluded project"] += 1
            return NEUTRAL
        if event.cwd:
            event = replace(event, cwd=real_folder(event.cwd))
        with span("upwell.hook", host=host, kind=str(event.kind)) as current:
            if known.repeats_starts and event.kind is EventKind.SESSION:
                event = await self._first_start(event, parent)
            self._record_session(known.name, event, parent)
            output = await self._output(known, event, left_ms, receipt or settled())
            conclude(current, "neutral" if output == NEUTRAL else "answered")
            return output

    async def _output(
        self, host: Host, event: HostEvent, left_ms: int | None, receipt: Receipt
    ) -> bytes:
        ask = self._opt_ins.ask
        asking = self._tasks.start(ask(host, event)) if ask else None
        if event.kind in _DOORS:
            return await self._answer(host, event, left_ms, receipt)
        if event.kind is EventKind.BEFORE:
            return await self._refusal(host, event, receipt)
        self.outcomes[host.name, str(event.kind)] += 1
        if self._turn_end is not None:
            self._tasks.start(self._turn_end(event))
        if asking is not None and event.kind is EventKind.STOP:
            return await self._question_in_time(host, event, asking, left_ms)
        return NEUTRAL

    async def aclose(self) -> None:
        await self._tasks.drain()
        await self._offers.drain()

    async def _answer(
        self, host: Host, event: HostEvent, left_ms: int | None, receipt: Receipt
    ) -> bytes:
        seconds = self._seconds_for(left_ms)
        deadline = asyncio.get_running_loop().time() + seconds
        cue = _cue(event, host.name, self._opt_ins.read_command)
        if self._note_session(event):
            self._surfacer.missed(cue)
        shortening: asyncio.Task[Mapping[str, Any]] | None = None
        if host.name in self._opt_ins.shortened and may_shorten(event, cue):
            shortening = self._tasks.start(self._shortened(host, event))
        async with self._offers.offer(cue, seconds) as offer:
            outcome = await offer.outcome()
            if offer.is_late:
                LOG.info("the answer to a hook missed its deadline (%s)", event.name)
            reason = str(outcome.reason) if isinstance(outcome, Skip) else "surfaced"
            self.outcomes[host.name, reason if outcome else "late"] += 1
            context: Mapping[str, Any] = {}
            if isinstance(outcome, Surfacing):
                # Entries that do not fit are kept for later.
                worded = by_command(outcome.text, cue.read_command)
                text, omitted = _within(worded, host.events.max_bytes)
                context = host.events.context_output(event, text) if text else {}
                if context:
                    offer.deliver(receipt, omitted)
        replacement = await self._output_in_time(shortening, deadline) if shortening else {}
        return orjson.dumps(merged(context, replacement))

    async def _refusal(self, host: Host, event: HostEvent, receipt: Receipt) -> bytes:
        refusal = await self._offers.refusal(_cue(event, host.name), receipt)
        output = host.events.refusal_output(event, refusal.reason) if refusal else {}
        self.outcomes[host.name, "refused" if output else "passed"] += 1
        return orjson.dumps(output) if refusal else NEUTRAL

    async def _question_in_time(
        self, host: Host, event: HostEvent, asking: "asyncio.Task[str]", left_ms: int | None
    ) -> bytes:
        with contained("asking the agent what it learned"):
            done, _ = await asyncio.wait({asking}, timeout=self._seconds_for(left_ms))
            if done and (question := await asking):
                self.outcomes[host.name, "asked"] += 1
                return orjson.dumps(host.events.question_output(event, question))
        return NEUTRAL

    def _event(self, host: Host, name: str, payload: Mapping[str, Any]) -> HostEvent | None:
        if self._answered_elsewhere(host.name, payload):
            return None
        event = host.events.read(name, payload)
        if event is not None and event.kind is EventKind.PROMPT and is_question(event.text):
            return None
        if event is None or event.kind not in _DOORS or not host.shares_hooks:
            return event
        return None if self._duplicates.is_duplicate(host.name, event) else event

    def _note_session(self, event: HostEvent) -> bool:
        """Return whether this tool call is its session's first event. The session then probably
        began before the daemon did, and its standing rules have not been shown."""
        is_new = event.session not in self._known_sessions
        self._known_sessions.add(event.session)
        return is_new and event.kind is EventKind.TOOL

    def _seconds_for(self, left_ms: int | None) -> float:
        return self._opt_ins.limit_seconds if left_ms is None else left_ms / 1000

    async def _output_in_time(
        self, shortening: "asyncio.Task[Mapping[str, Any]]", deadline: float
    ) -> Mapping[str, Any]:
        """Return the output with the shortened result, or an empty output past the deadline. A late
        shortening is cancelled, because it would otherwise be counted as a saving.
        """
        left = deadline - asyncio.get_running_loop().time()
        done, _ = await asyncio.wait({shortening}, timeout=max(0.0, left))
        if done:
            return await shortening
        shortening.cancel()
        LOG.info("a tool's result was not shortened within the deadline")
        return {}

    async def _shortened(self, host: Host, event: HostEvent) -> Mapping[str, Any]:
        try:
            return await shortened_output(host, event, self._opt_ins.shorten)
        except Exception:
            LOG.exception("a tool's result was not shortened")
            return {}

    async def _first_start(self, event: HostEvent, parent: int) -> HostEvent:
        """Return the event, as a resumption if its process has begun the same session before. The
        session's context then still has what an earlier start added."""
        with contained("looking up a session's start"):
            if await self._sessions.begins_again(parent, event.session):
                return replace(event, text=RESUMED)
        return event

    def _record_session(self, host: str, event: HostEvent, parent: int) -> None:
        """Record a session's process and folder when either is new, and on every event that starts
        a session; forget the folder when the session ends. Subagents' events are ignored, because
        the process belongs to the main agent's session."""
        if event.agent:
            return
        key = (host, event.session, event.cwd, parent)
        if event.kind is EventKind.END:
            self._recorded.discard(key)
            self._tasks.start(self._stored(self._sessions.end(host, event.session)))
            return
        if key in self._recorded and event.kind is not EventKind.SESSION:
            return
        if len(self._recorded) >= MAX_RECORDED_SESSIONS:
            self._recorded.clear()
        self._recorded.add(key)
        recording = self._sessions.record(host, parent, event.cwd, event.session)
        self._tasks.start(self._stored(recording))

    async def _stored(self, change: Coroutine[Any, Any, None]) -> None:
        try:
            await change
        except StoreError as error:
            LOG.warning("a session was not recorded: %s", error)


class _Recent:
    def __init__(self) -> None:
        self._values: OrderedDict[Hashable, Any] = OrderedDict()

    def __contains__(self, key: Hashable) -> bool:
        return key in self._values

    def get(self, key: Hashable) -> Any:
        return self._values.get(key)

    def add(self, key: Hashable, value: Any = None) -> None:
        self._values[key] = value
        self._values.move_to_end(key)
        while len(self._values) > MAX_REMEMBERED:
            self._values.popitem(last=False)


class DuplicateEvents:
    """Recognises an event that arrives twice. Cursor, Copilot and VS Code run Claude Code's hooks
    besides their own, so one event may arrive under two hosts' names."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._answered = _Recent()

    def is_duplicate(self, host: str, event: HostEvent) -> bool:
        now, key = self._clock.monotonic(), _fingerprint(event)
        answered_host, answered_at = self._answered.get(key) or (host, now)
        if answered_host != host and now - answered_at < DUPLICATE_SECONDS:
            return True
        self._answered.add(key, (host, now))
        return False


def _fingerprint(event: HostEvent) -> bytes:
    """A digest of what is the same under every host's name. The session and the event's name are
    not."""
    text = event.text if event.kind is not EventKind.SESSION else ""
    args = sorted(str(value) for value in event.args.values() if isinstance(value, str | int))
    cwd = real_folder(event.cwd) if event.cwd else ""
    parts = [str(event.kind), cwd, text, args]
    return hashlib.sha256(repr(parts).encode()).digest()


def merged(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Objects under the same key are merged as well."""
    joined = {
        key: {**value, **second[key]}
        for key, value in first.items()
        if isinstance(value, Mapping) and key in second
    }
    return {**first, **second, **joined}


def _payload(body: bytes) -> Mapping[str, Any] | str:
    """Return an event, or why it cannot be read."""
    text = decoded(body)
    try:
        payload = loaded(text)
    except RecursionError:
        return "it is nested too deeply"
    except ValueError as fault:
        if (valid := text.decode(errors="replace").encode()) != text:
            return _payload(valid)
        return f"it is not JSON ({fault})"
    return payload if isinstance(payload, dict) else "it is not a JSON object"


def _cue(event: HostEvent, host: str, read_command: str = "") -> Cue:
    return Cue(
        door=_DOORS.get(event.kind, Door.TOOL),
        text=event.text,
        tool=event.tool or None,
        joined=event.joined,
        args=event.args,
        session=event.session,
        cwd=event.cwd,
        reply_chars=event.reply_chars,
        answer=event.answer,
        trace_id=present_trace_id(),
        host=host,
        transcript=event.transcript if event.kind is EventKind.SESSION else "",
        read_command=read_command,
    )


def _within(text: str, max_bytes: int) -> tuple[str, int]:
    """Drop the last entries of `text` until it is within the limit. Returns the rest, or "" if not
    even one entry fits, and the number of dropped entries.
    """
    lines = text.split("\n")
    entries = [number for number, line in enumerate(lines) if line.startswith(ENTRY_MARK)]
    omitted = 0
    while len("\n".join(lines).encode("utf-8", "replace")) > max_bytes:
        if not entries:
            return "", omitted
        del lines[entries.pop()]
        omitted += 1
    return ("\n".join(lines) if entries or not omitted else ""), omitted
