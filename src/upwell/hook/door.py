"""The hooks' door: a host's event in, what the host takes as an answer out."""

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

import orjson

from upwell.ground.errors import StoreError
from upwell.ground.limits import SYSTEM_CLOCK, Clock
from upwell.ground.sessions import HostSessions
from upwell.ground.trace import LOG, new_trace_id, span
from upwell.ground.types import Cue, Door, Skip, Surfacing
from upwell.hook.events import HOSTS, Event, EventKind, Host
from upwell.hook.once import Heard, Once
from upwell.hook.options import HookOptions
from upwell.hook.replies import Shorten, as_they_are, replaceable, shortened
from upwell.surface.engine import Outcome, Surfacer

NEUTRAL = b"{}"
MAX_TOLD = 1_000
_ENTRY = "- ["
_DOORS = {
    EventKind.SESSION: Door.SESSION,
    EventKind.PROMPT: Door.PROMPT,
    EventKind.TOOL: Door.TOOL,
}
Settle = Callable[[Event], Awaitable[None]]
"""What is done when a turn or a session ends, or before the agent forgets."""


async def nothing_to_settle(_: Event) -> None:
    """Nothing."""


class HookDoor:
    """Answers events within a deadline, neutrally where there is nothing to say or no time left.

    `elsewhere(host, payload)` says that another hook of ours answers this host's event; `shorten`
    fits what a tool answered, for the hosts of `hook.compress`.
    """

    def __init__(
        self,
        surfacer: Surfacer,
        sessions: HostSessions,
        options: HookOptions,
        *,
        settle: Settle = nothing_to_settle,
        elsewhere: Callable[[str, Mapping[str, Any]], bool] = lambda host, payload: False,
        shorten: Shorten = as_they_are,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._surfacer = surfacer
        self._sessions = sessions
        self._options = options
        self._settle = settle
        self._elsewhere = elsewhere
        self._shorten = shorten
        self._once = Once(clock)
        self._behind: set[asyncio.Future[object]] = set()
        self._told: set[tuple[str, str | None, int]] = set()
        self._heard = Heard()
        self.outcomes: Counter[tuple[str, str]] = Counter()
        """What came of events, by host and outcome."""

    async def answer(
        self, host: str, name: str, body: bytes, *, left_ms: int | None = None, parent: int = 0
    ) -> bytes:
        """The JSON that `host` takes for its event `name` ("" when the payload says it).

        `left_ms` is what the caller can wait; `parent` the process that runs its hooks.
        """
        known = HOSTS.get(host)
        event = self._event(known, name, body) if known else None
        if known is None or event is None:
            self.outcomes[host if known else "unknown", "not eligible"] += 1
            return NEUTRAL
        with span("upwell.hook", host=host, kind=str(event.kind)):
            self._note(event, parent)
            if event.kind not in _DOORS:
                self.outcomes[host, str(event.kind)] += 1
                self._later(self._settle(event))
                return NEUTRAL
            until = asyncio.get_running_loop().time() + self._patience(event, left_ms)
            cue = _cue(event)
            if self._heard.missed(event):
                self._surfacer.missed(cue)
            shortening = self._shortening(known, event, cue)
            outcome = await self._raced(cue, event.name, until)
            self.outcomes[host, _name(outcome)] += 1
            said = self._said(known, event, outcome) if isinstance(outcome, Surfacing) else {}
            reply = await self._in_time(shortening, until) if shortening else {}
            return orjson.dumps(merged(said, reply))

    async def aclose(self) -> None:
        """Finish what was left for later."""
        await asyncio.gather(*self._behind, return_exceptions=True)

    def _event(self, host: Host, name: str, body: bytes) -> Event | None:
        """What happened, None where it is nothing to us."""
        payload = _payload(body) if self._options.enabled else None
        if payload is None or self._elsewhere(host.name, payload):
            return None
        event = host.read(name, payload)
        if event is None or event.kind not in _DOORS:
            return event
        return event if self._once.first(host.name, event) else None

    def _patience(self, event: Event, left_ms: int | None) -> float:
        """Seconds that may be used: as a session begins, all that its caller can wait."""
        if event.kind is EventKind.SESSION and left_ms is not None:
            return left_ms / 1000
        prompt = event.kind is EventKind.PROMPT
        most = self._options.prompt_ms if prompt else self._options.tool_ms
        return min(most, most if left_ms is None else left_ms) / 1000

    def _shortening(
        self, host: Host, event: Event, cue: Cue
    ) -> "asyncio.Task[Mapping[str, Any]] | None":
        """What the tool answered is being shortened, where that is wanted."""
        if host.name not in self._options.compress or not replaceable(event, cue):
            return None
        return asyncio.create_task(shortened(host, event, self._shorten))

    async def _in_time(
        self, shortening: "asyncio.Task[Mapping[str, Any]]", until: float
    ) -> Mapping[str, Any]:
        """The shortened answer where it is there in time, else none: the tool's own stands."""
        left = until - asyncio.get_running_loop().time()
        done, _ = await asyncio.wait({shortening}, timeout=max(0.0, left))
        if done:
            return await _settled(shortening)
        LOG.info("what a tool answered was not shortened in time")
        self._later(_settled(shortening))
        return {}

    async def _raced(self, cue: Cue, name: str, until: float) -> Outcome | None:
        """What was decided in time; else None, and it is taken back when it comes, for the
        session's next call."""
        left = until - asyncio.get_running_loop().time()
        surfacing = asyncio.create_task(self._surfacer.surface(cue))
        done, _ = await asyncio.wait({surfacing}, timeout=max(0.0, left))
        if not done:
            LOG.info("a hook's answer came too late (%s)", name)
            self._later(self._taken_back(surfacing, cue))
            return None
        return await surfacing

    def _said(self, host: Host, event: Event, surfacing: Surfacing) -> Mapping[str, Any]:
        """The answer within the host's limit; entries that do not fit are left for later."""
        text, left_out = _within(surfacing.text, host.max_bytes)
        if left_out:
            rest = replace(surfacing, hits=surfacing.hits[-left_out:])
            self._later(self._surfacer.take_back(rest, session=event.session))
        return host.said(event, text) if text else {}

    async def _taken_back(self, surfacing: "asyncio.Task[Outcome]", cue: Cue) -> None:
        outcome = await surfacing
        if isinstance(outcome, Surfacing):
            await self._surfacer.take_back(outcome, cue, late=True)

    def _note(self, event: Event, parent: int) -> None:
        """Write down, once, whose session this is; as it begins in any case. A subagent's is not
        that of the host's process."""
        if event.agent:
            return
        known = (event.session, event.cwd, parent)
        if known in self._told and event.kind is not EventKind.SESSION:
            return
        if len(self._told) >= MAX_TOLD:
            self._told.clear()
        self._told.add(known)
        self._later(self._noted(event, parent))

    async def _noted(self, event: Event, parent: int) -> None:
        try:
            await self._sessions.record(parent, event.cwd, event.session)
        except StoreError as error:
            LOG.warning("a session was not noted: %s", error)

    def _later(self, work: Awaitable[object]) -> None:
        task = asyncio.ensure_future(work)
        self._behind.add(task)
        task.add_done_callback(self._behind.discard)


async def _settled(shortening: "asyncio.Task[Mapping[str, Any]]") -> Mapping[str, Any]:
    """What came of it; nothing where it failed, which never costs the rest of the answer."""
    try:
        return await shortening
    except Exception:
        LOG.exception("what a tool answered was not shortened")
        return {}


def merged(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Two parts of an answer as one; tables that both have are joined."""
    both = {
        key: {**value, **other[key]}
        for key, value in one.items()
        if isinstance(value, Mapping) and key in other
    }
    return {**one, **other, **both}


def _name(outcome: Outcome | None) -> str:
    if outcome is None:
        return "late"
    return str(outcome.reason) if isinstance(outcome, Skip) else "surfaced"


def _payload(body: bytes) -> Mapping[str, Any] | None:
    """The event as a table, None for anything else. Lone surrogates are read, too."""
    try:
        payload = orjson.loads(body)
    except orjson.JSONDecodeError:
        try:
            payload = json.loads(body) if b"\\u" in body else None
        except (ValueError, RecursionError):
            return None
    return payload if isinstance(payload, dict) else None


def _cue(event: Event) -> Cue:
    return Cue(
        door=_DOORS[event.kind],
        text=event.text,
        tool=event.tool or None,
        args=event.args,
        session=event.session,
        cwd=event.cwd,
        reply_chars=event.reply_chars,
        trace_id=new_trace_id(),
    )


def _within(text: str, max_bytes: int) -> tuple[str, int]:
    """`text` without as many of its last entries as do not fit, and how many those were; nothing
    where not even one does."""
    lines = text.split("\n")
    entries = [place for place, line in enumerate(lines) if line.startswith(_ENTRY)]
    left_out = 0
    while len("\n".join(lines).encode("utf-8", "replace")) > max_bytes:
        if not entries:
            return "", left_out
        del lines[entries.pop()]
        left_out += 1
    return ("\n".join(lines) if entries or not left_out else ""), left_out
