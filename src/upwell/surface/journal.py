"""The record of decisions, for `explain`, feedback and the dashboard. It is written after the call.

Query texts, steps (the user's prompts and the agent's commands) and the paths of the files that
calls are about are stored separately from decisions, with secrets masked, and only for
`query_retention_days`. If `persist_query_text` is off, queries are stored as digests, and steps and
paths are not stored.
"""

import asyncio
import hashlib
import math
import os
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import orjson
from msgspec import Struct
from msgspec.structs import replace

from upwell.ground.clock import SYSTEM_CLOCK, Clock
from upwell.ground.errors import StoreError
from upwell.ground.project import project_of
from upwell.ground.secrets.redact import redact, redacted_start
from upwell.ground.text.surrogates import dumped
from upwell.ground.text.tokens import count
from upwell.ground.trace import LOG
from upwell.ground.ttl_store import Entries, EntryKind, Item, TtlStore
from upwell.ground.types.cue import Cue
from upwell.ground.types.memory import Hit
from upwell.ground.types.surfacing import Skip, SkipReason, Surfacing
from upwell.surface.options import PipelineOptions

RETENTION_DAYS = 90
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
_FILE = "\tfile"
_MAX_KEYS = 800
_MAX_INLINE = 3
"""Encoding up to this many decisions takes less time than handing them to a thread."""


class _Decision(Struct, frozen=True):
    """A decision to be written. `late` is True if it came too late for its call."""

    cue: Cue
    outcome: Surfacing | Skip
    took_ms: float
    late: bool = False


class Journal:
    """Queues decisions, writes them to the TTL store, and reads them back."""

    def __init__(
        self, ttl_store: TtlStore, options: PipelineOptions, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._ttl_store = ttl_store
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
    ) -> None:
        """Queue a decision. It replaces any earlier decision with the same key."""
        if cue.at is None:
            earlier = self._pending.get(key)
            cue = earlier.cue if earlier else replace(cue, at=self._clock.now())
        self._pending[key] = _Decision(cue, outcome, took_ms, late)

    async def flush(self) -> None:
        """Write pending decisions, after any write in progress. If the store fails, only these
        decisions are lost."""
        async with self._writing:
            pending, self._pending = self._pending, {}
            if pending:
                await self._write(pending)

    async def find(self, key: str) -> dict[str, Any] | None:
        """The decision with this key; None if it does not exist or has expired.

        Raises:
            StoreError: the store cannot be read.
        """
        await self.flush()
        item = (await self._ttl_store.get(EntryKind.DECISION, [key])).get(key)
        return _decoded(item) if item else None

    async def recent(self) -> list[dict[str, Any]]:
        """All stored decisions, oldest first, with their queries if those are still stored.

        Raises:
            StoreError: the store cannot be read.
        """
        await self.flush()
        texts = await self._ttl_store.scan(EntryKind.QUERY)
        queries = {item.key: {"queries": orjson.loads(item.value)} for item in texts}
        items = await self._ttl_store.scan(EntryKind.DECISION)
        decisions = [_decoded(item) | queries.get(item.key, {}) for item in items]
        return sorted(decisions, key=lambda decision: decision["at"])

    async def latest(
        self, limit: int, *, before: float = math.inf, matching: Mapping[str, str] | None = None
    ) -> list[dict[str, Any]]:
        """The latest decisions written before `before`, newest first. Each has the time at which it
        was `written`, and its `step` and `file` if they are still stored. `matching` maps fields to
        the exact values required.

        Raises:
            StoreError: the store cannot be read.
        """
        decisions = await self.latest_without_texts(limit, before=before, matching=matching)
        keys = [decision["id"] for decision in decisions]
        steps = await self.texts([name for key in keys for name in (key, file_key(key))])
        for decision in decisions:
            decision["step"] = steps.get(decision["id"], "")
            decision["file"] = steps.get(file_key(decision["id"]), "")
        return decisions

    async def latest_without_texts(
        self, limit: int, *, before: float = math.inf, matching: Mapping[str, str] | None = None
    ) -> list[dict[str, Any]]:
        """Like `latest()`, but without steps and files. Three times as fast.

        Raises:
            StoreError: the store cannot be read.
        """
        await self.flush()
        holding = [dumped({name: value})[1:-1] for name, value in (matching or {}).items()]
        items = await self._ttl_store.newest(
            EntryKind.DECISION, limit=limit, before=before, holding=holding
        )
        return [_decoded(item) | {"written": item.created_at} for item in items]

    async def texts(self, keys: Sequence[str]) -> dict[str, str]:
        """The steps and file paths under these keys that are still stored. The key of a step is the
        id of its decision. The key of a path is `file_key()` of that id.

        Raises:
            StoreError: the store cannot be read.
        """
        texts: dict[str, str] = {}
        for start in range(0, len(keys), _MAX_KEYS):
            items = await self._ttl_store.get(EntryKind.STEP, keys[start : start + _MAX_KEYS])
            texts |= {key: item.value.decode() for key, item in items.items()}
        return texts

    async def clear_queries(self) -> int:
        """Remove query texts and steps that are older than the configured retention or that may no
        longer be stored. Returns the number of removed texts.

        Raises:
            StoreError: the store failed.
        """
        return await self._clear_texts() + await self._clear_steps()

    async def _clear_steps(self) -> int:
        horizon = self._clock.now() - self.retention_seconds()
        if not self._options.surface.persist_query_text:
            return await self._ttl_store.drop(EntryKind.STEP)
        items = await self._ttl_store.scan(EntryKind.STEP)
        expired = [item.key for item in items if item.created_at <= horizon]
        owners = {item.key: item.key.removesuffix(_FILE) for item in items}
        tools: dict[str, str | None] = {}
        for kind in (EntryKind.DECISION, EntryKind.CUT):
            rows = await self._ttl_store.get(kind, list(set(owners.values())))
            tools |= {key: orjson.loads(row.value).get("tool") for key, row in rows.items()}
        forbidden = [k for k, owner in owners.items() if not self.may_persist(tools.get(owner))]
        return await self._ttl_store.delete(EntryKind.STEP, list({*expired, *forbidden}))

    async def _clear_texts(self) -> int:
        horizon = self._clock.now() - self.retention_seconds()
        items = await self._ttl_store.scan(EntryKind.QUERY)
        expired = [item.key for item in items if item.created_at <= horizon]
        readable = [item.key for item in items if _is_readable(item)]
        decisions = await self._ttl_store.get(EntryKind.DECISION, readable)
        tools = {key: orjson.loads(item.value).get("tool") for key, item in decisions.items()}
        forbidden = [key for key in readable if not self.may_persist(tools.get(key))]
        return await self._ttl_store.delete(EntryKind.QUERY, list({*expired, *forbidden}))

    async def _write(self, pending: Mapping[str, _Decision]) -> None:
        if len(pending) <= _MAX_INLINE:
            entries, queries, steps = self._encoded(pending)
        else:
            entries, queries, steps = await asyncio.to_thread(self._encoded, pending)
        writes = [Entries(EntryKind.DECISION, entries, RETENTION_DAYS * _DAY_SECONDS)]
        if self._options.surface.query_retention_days > 0:
            texts = ((EntryKind.QUERY, queries), (EntryKind.STEP, steps))
            writes += [Entries(kind, t, self.retention_seconds()) for kind, t in texts if t]
        try:
            await self._ttl_store.put_all(*writes)
        except StoreError as error:
            LOG.warning("decisions were not stored: %s", error)

    def retention_seconds(self) -> float:
        """How long readable texts are stored; 0 or less means not at all."""
        return self._options.surface.query_retention_days * _DAY_SECONDS

    def _encoded(
        self, pending: Mapping[str, _Decision]
    ) -> tuple[dict[str, bytes], dict[str, bytes], dict[str, bytes]]:
        entries = {
            key: dumped(_without_defaults(_described(key, decision)) | self._situation(decision))
            for key, decision in pending.items()
        }
        queries = {
            key: dumped(self._query_texts(decision))
            for key, decision in pending.items()
            if decision.outcome.queries
        }
        steps = {
            key: step.encode(errors="replace")
            for key, decision in pending.items()
            if self.may_persist(decision.cue.tool) and (step := _step_of(decision.cue))
        }
        steps |= {
            file_key(key): file.encode()
            for key, decision in pending.items()
            if self.may_persist(decision.cue.tool)
            and (file := file_of(decision.cue.args, decision.cue.cwd))
        }
        return entries, queries, steps

    def _situation(self, decision: _Decision) -> dict[str, str]:
        """The situation of an episode. It may contain words from the cue, so it is stored only if
        texts may be stored."""
        outcome = decision.outcome
        if (
            isinstance(outcome, Skip)
            or not outcome.situation
            or not self.may_persist(decision.cue.tool)
        ):
            return {}
        return {"situation": _masked(outcome.situation).encode(errors="replace").decode()}

    def _query_texts(self, decision: _Decision) -> list[str]:
        texts = decision.outcome.queries
        if self.may_persist(decision.cue.tool):
            return [_masked(text).encode(errors="replace").decode() for text in texts]
        return [_digest(text) for text in texts]

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


def _described(key: str, decision: _Decision) -> dict[str, Any]:
    cue, outcome = decision.cue, decision.outcome
    skip = outcome if isinstance(outcome, Skip) else None
    hits = outcome.hits if isinstance(outcome, Surfacing) else ()
    return {
        "id": key,
        "at": cue.at,
        "door": str(cue.door),
        "principal": cue.principal.name,
        "tool": cue.tool,
        "moment": outcome.moment,
        "session": _shown_session(cue.session),
        "host": cue.host,
        "project": shown_project(cue.cwd),
        "trace_id": cue.trace_id
        if _OWN_TRACE_ID.fullmatch(cue.trace_id)
        else redacted_start(cue.trace_id, 64),
        "outcome": str(skip.reason) if skip else "surfaced",
        "detail": skip.detail if skip else "",
        "late": decision.late,
        "confidence": round(outcome.confidence, 4),
        "signals": dict(outcome.signals),
        "intent": [str(outcome.intent.kind), outcome.intent.confidence, outcome.intent.source],
        "memories": [_scored(hit) for hit in hits],
        "evidence": {hit.memory.id: dict(hit.signals) for hit in hits},
        "held_back": [_scored(hit) for hit in outcome.held_back[:_MAX_HELD_BACK]],
        "tokens": count(outcome.text) if isinstance(outcome, Surfacing) else 0,
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


def file_key(key: str) -> str:
    """The key under which a file's path is stored among the steps. `key` is the key of the decision
    or of the shortened result that the file belongs to."""
    return key + _FILE


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


def _step_of(cue: Cue) -> str:
    """The beginning of the prompt or of the call's subject, on one line, with secrets masked."""
    text = subject_of(cue.args) if cue.tool else cue.text
    return redacted_start(" ".join(text[: 4 * STEP_CHARS].split()), STEP_CHARS)


def subject_of(args: Mapping[str, Any]) -> str:
    """The command, pattern or question in the arguments of a call; "" if there is none."""
    values = (args.get(name) for name in _STEP_ARGUMENTS)
    return next((value for value in values if isinstance(value, str) and value), "")


_DEFAULTS: Mapping[str, Any] = {
    "door": "",
    "tool": None,
    "session": "",
    "trace_id": "",
    "detail": "",
    "late": False,
    "moment": "",
    "principal": "",
    "host": "",
    "project": "",
    "file": "",
    "confidence": 0.0,
    "signals": {},
    "intent": ["none", 0.0, "keyword"],
    "memories": [],
    "held_back": [],
    "queries": [],
    "evidence": {},
    "situation": "",
    "tokens": 0,
    "took_ms": 0.0,
    "missing": [],
}
"""Fields with these values are not written, because most decisions have them."""


def _without_defaults(decision: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: value
        for name, value in decision.items()
        if name not in _DEFAULTS or value != _DEFAULTS[name]
    }


def _decoded(item: Item) -> dict[str, Any]:
    # Earlier versions wrote fewer fields.
    decision: dict[str, Any] = orjson.loads(item.value)
    return {"id": item.key, **_DEFAULTS, **decision}


def _is_readable(item: Item) -> bool:
    return any(not text.startswith(DIGEST) for text in orjson.loads(item.value))


def _masked(text: str) -> str:
    return redact(text)[0]


def _digest(text: str) -> str:
    return DIGEST + hashlib.sha256(text.encode(errors="replace")).hexdigest()


def _scored(hit: Hit) -> list[Any]:
    return [hit.memory.id, round(hit.score, 4)]
