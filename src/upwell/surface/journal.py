"""The record of decisions, for `explain`, feedback and the dashboard. It is written after the call.

Query texts, steps (the user's prompts and the agent's commands) and the paths of the files that
calls are about are stored with secrets masked, and only for `query_retention_days`. If
`persist_query_text` is off, queries are stored as digests, and steps and paths are not stored.
"""

import asyncio
import hashlib
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import orjson
from msgspec import Struct
from msgspec.structs import replace

from upwell.ground.clock import SYSTEM_CLOCK, Clock
from upwell.ground.errors import StoreError
from upwell.ground.ledger import TtlStore
from upwell.ground.project import project_of
from upwell.ground.secrets.redact import redact, redacted_start
from upwell.ground.text.safe import dumped
from upwell.ground.text.tokens import count
from upwell.ground.trace import LOG
from upwell.ground.types.cue import Cue, Skip, SkipReason, Surfacing
from upwell.ground.types.memory import Hit
from upwell.surface.options import PipelineOptions
from upwell.usage.events import EventRow, Events

KIND = "decision"
"""The kind of a decision among the events."""
DIGEST = "sha256:"
_OWN_TRACE_ID = re.compile(r"[0-9a-f]{32}")
"""The format of our own trace ids and of those in W3C Trace Context. Such an id cannot hold a
secret."""
_DAY_SECONDS = 86_400.0
_MAX_HELD_BACK = 5
STEP_CHARS = 200
"""How many characters of a prompt or a command are stored."""
_FILE_ARGUMENTS = ("file_path", "path", "notebook_path", "filename", "file", "uri")
_STEP_ARGUMENTS = ("command", "cmd", "query", "pattern", "url", "question", "prompt")
_MAX_INLINE = 3
"""Encoding up to this many decisions takes less time than handing them to a thread."""


class _Decision(Struct, frozen=True):
    """A decision to be written. `late` is True if it came too late for its call. `omitted_tokens`
    belong to memories in the text that were dropped."""

    cue: Cue
    outcome: Surfacing | Skip
    took_ms: float
    late: bool = False
    omitted_tokens: int = 0


class Journal:
    """Queues decisions, writes them as events, and reads them back. What reads raises `StoreError`
    if the store fails."""

    def __init__(
        self, ttl_store: TtlStore, options: PipelineOptions, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._events = Events(ttl_store, clock)
        self._options = options
        self._clock = clock
        self._pending: dict[str, _Decision] = {}
        self._writing = asyncio.Lock()

    def note(
        self,
        cue: Cue,
        outcome: Surfacing | Skip,
        key: str,
        took_ms: float,
        *,
        late: bool = False,
        omitted_tokens: int = 0,
    ) -> None:
        """Queue a decision. It replaces any earlier decision with the same key."""
        if cue.at is None:
            earlier = self._pending.get(key)
            cue = earlier.cue if earlier else replace(cue, at=self._clock.now())
        self._pending[key] = _Decision(cue, outcome, took_ms, late, omitted_tokens)

    async def flush(self) -> None:
        """Write pending decisions, after any write in progress. If the store fails, only these
        decisions are lost."""
        async with self._writing:
            pending, self._pending = self._pending, {}
            if not pending:
                return
            if len(pending) <= _MAX_INLINE:
                events = self._encoded(pending)
            else:
                events = await asyncio.to_thread(self._encoded, pending)
            try:
                await self._events.put(events)
            except StoreError as error:
                LOG.warning("decisions were not stored: %s", error)

    async def find(self, key: str) -> dict[str, Any] | None:
        """The decision with this key; None if it does not exist or has expired."""
        await self.flush()
        event = await self._events.find(key)
        return self.described(event) if event and event.kind == KIND else None

    async def latest(
        self, limit: int, *, before: float = math.inf, matching: Mapping[str, str] | None = None
    ) -> list[dict[str, Any]]:
        """The latest decisions written before `before`, newest first. Each has the time at which it
        was `written`, and its `queries`, `step` and `file` if they are still stored. `matching`
        maps fields to the exact values required."""
        await self.flush()
        events = await self._events.latest(limit, kind=KIND, before=before, matching=matching)
        return [self.described(event) for event in events]

    async def clear_queries(self) -> int:
        """Remove query texts, steps and paths that are older than the configured retention or that
        may no longer be stored. Returns the number of decisions that had such texts."""
        horizon = self._clock.now() - self.retention_seconds()
        tools = [tool for tool in await self._events.tools() if not self.may_persist(tool or None)]
        return await self._events.clear_texts(horizon, tools)

    def retention_seconds(self) -> float:
        """How long readable texts are stored; 0 or less means not at all."""
        return self._options.surface.query_retention_days * _DAY_SECONDS

    def texts_of(self, event: EventRow) -> dict[str, str]:
        """The step and the file of an event; "" if they may no longer be read."""
        is_kept = self._keeps_texts(event)
        return {name: (is_kept and getattr(event, name)) or "" for name in ("step", "file")}

    def _keeps_texts(self, event: EventRow) -> bool:
        return event.written > self._clock.now() - self.retention_seconds()

    def file_for(self, tool: str | None, args: Mapping[str, Any], cwd: str | None) -> str | None:
        """The file that a call is about, if its path may be stored."""
        return self._kept(tool, lambda: file_of(args, cwd))

    def _kept(self, tool: str | None, text: Callable[[], str]) -> str | None:
        may_keep = self.retention_seconds() > 0 and self.may_persist(tool)
        return (text() or None) if may_keep else None

    def described(self, event: EventRow) -> dict[str, Any]:
        """A decision, with its texts if they are still stored."""
        # Earlier versions wrote fewer fields.
        is_kept = self._keeps_texts(event)
        return {
            **_DEFAULTS,
            **orjson.loads(event.data or "{}"),
            **{name: getattr(event, name) for name in _COLUMNS},
            **self.texts_of(event),
            "tool": event.tool or None,
            "queries": orjson.loads(event.queries) if is_kept and event.queries else [],
        }

    def _encoded(self, pending: Mapping[str, _Decision]) -> list[EventRow]:
        return [self._event_of(key, decision) for key, decision in pending.items()]

    def _event_of(self, key: str, decision: _Decision) -> EventRow:
        cue, outcome = decision.cue, decision.outcome
        said = outcome if isinstance(outcome, Surfacing) else None
        tokens = count(said.text) - decision.omitted_tokens if said else 0
        details = _details(decision, tokens)
        subject = subject_of(cue.args) if cue.tool else cue.text
        step = redacted_start(" ".join(subject[: 4 * STEP_CHARS].split()), STEP_CHARS)
        queries: Sequence[str] = ()
        if self.may_persist(cue.tool):
            queries = list(map(_masked, outcome.queries))
            # The situation of an episode may contain words from the cue.
            details["situation"] = _masked(said.situation) if said else ""
        else:
            encoded = (text.encode(errors="replace") for text in outcome.queries)
            queries = [DIGEST + hashlib.sha256(text).hexdigest() for text in encoded]
        data = {key: value for key, value in details.items() if _DEFAULTS.get(key, ...) != value}
        has_queries = bool(queries) and self.retention_seconds() > 0
        return EventRow(
            id=key,
            kind=KIND,
            at=cue.at or 0.0,
            host=cue.host,
            project=shown_project(cue.cwd),
            session=_shown_session(cue.session),
            door=str(cue.door),
            tool=cue.tool or "",
            outcome=str(outcome.reason) if isinstance(outcome, Skip) else "surfaced",
            times=1,
            memories=len(said.hits) if said else 0,
            tokens=tokens,
            late=int(decision.late),
            file=self.file_for(cue.tool, cue.args, cue.cwd),
            step=self._kept(cue.tool, lambda: step),
            queries=dumped(queries).decode() if has_queries else None,
            data=dumped(data).decode(),
        )

    def may_persist(self, tool: str | None) -> bool:
        """True if readable text from this tool (from messages, if `tool` is None) may be stored."""
        return self._options.for_cue(Cue(door="", tool=tool)).surface.persist_query_text


def undelivered(surfacing: Surfacing, *, late: bool) -> Skip:
    """The record of `surfacing` if it did not reach the agent."""
    return Skip(
        reason=SkipReason.NOT_DELIVERED,
        detail="too late" if late else "",
        confidence=surfacing.confidence,
        signals=surfacing.signals,
        intent=surfacing.intent,
        queries=surfacing.queries,
        held_back=surfacing.hits,
        missing=surfacing.missing,
        moment=surfacing.moment,
    )


def _details(decision: _Decision, tokens: int) -> dict[str, Any]:
    cue, outcome = decision.cue, decision.outcome
    hits = outcome.hits if isinstance(outcome, Surfacing) else ()
    return {
        "principal": cue.principal.name,
        "moment": outcome.moment,
        "trace_id": cue.trace_id
        if _OWN_TRACE_ID.fullmatch(cue.trace_id)
        else redacted_start(cue.trace_id, 64),
        "detail": outcome.detail if isinstance(outcome, Skip) else "",
        "late": decision.late,
        "confidence": round(outcome.confidence, 4),
        "signals": dict(outcome.signals),
        "intent": [str(outcome.intent.kind), outcome.intent.confidence, outcome.intent.source],
        "memories": [_scored(hit) for hit in hits],
        "evidence": {hit.memory.id: dict(hit.signals) for hit in hits},
        "held_back": [_scored(hit) for hit in outcome.held_back[:_MAX_HELD_BACK]],
        "tokens": tokens,
        "took_ms": round(decision.took_ms, 2),
        "missing": [redacted_start(place, 200) for place in outcome.missing],
    }


@lru_cache(maxsize=64)
def _shown_session(session: str) -> str:
    return redacted_start(session, 200)


@lru_cache(maxsize=256)
def shown_project(cwd: str | None) -> str:
    """The project that contains a folder, with secrets masked; "" if there is none."""
    return redacted_start(project_of(cwd) or "", 300)


def file_of(args: Mapping[str, Any], cwd: str | None) -> str:
    """The file that a call with these arguments is about, relative to its project; "" if there is
    none."""
    for name in _FILE_ARGUMENTS:
        value = args.get(name)
        if isinstance(value, str) and value:
            path = value.removeprefix("file://")
            root = project_of(cwd)
            if root and path.startswith(f"{root}{os.sep}"):
                path = path[len(root) + 1 :]
            return redacted_start(path, 300).encode(errors="replace").decode()
    return ""


def subject_of(args: Mapping[str, Any]) -> str:
    """The command, pattern or question in the arguments of a call; "" if there is none."""
    values = (args.get(name) for name in _STEP_ARGUMENTS)
    return next((value for value in values if isinstance(value, str) and value), "")


_DEFAULTS: Mapping[str, Any] = {
    "trace_id": "",
    "detail": "",
    "late": False,
    "moment": "",
    "principal": "",
    "confidence": 0.0,
    "signals": {},
    "intent": ["none", 0.0, "keyword"],
    "memories": [],
    "held_back": [],
    "evidence": {},
    "situation": "",
    "tokens": 0,
    "took_ms": 0.0,
    "missing": [],
}
"""Fields with these values are not written, because most decisions have them."""
_COLUMNS = ("id", "at", "written", "host", "project", "session", "door", "outcome")


def _masked(text: str) -> str:
    return redact(text)[0].encode(errors="replace").decode()


def _scored(hit: Hit) -> list[Any]:
    return [hit.memory.id, round(hit.score, 4)]
