"""The record of shortened results: the call, the tokens before and after, the keys of the
originals, and the texts that the agent saw.
"""

import asyncio
import secrets
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import orjson
from msgspec import Struct

from upwell.compress.originals import Originals
from upwell.ground.background import BackgroundTasks
from upwell.ground.clock import Clock
from upwell.ground.errors import KeyUnknown, StoreError
from upwell.ground.text.invisible import dumped
from upwell.ground.trace import LOG
from upwell.ground.ttl_store import EntryKind, TtlStore
from upwell.ground.types.rpc import ToolCall
from upwell.surface.journal import Journal, shown_project
from upwell.usage.events import CUT, CUT_SECONDS, Event, Events

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
            if pending:
                await self._write(pending)

    async def _write(self, pending: Sequence[_Pending]) -> None:
        written = await asyncio.to_thread(lambda: [self._encoded(entry) for entry in pending])
        texts = {event.id: text for event, text in written if text}
        try:
            await asyncio.gather(
                self._events.put([event for event, _ in written]),
                self._ttl_store.put(EntryKind.CUT, texts, ttl_seconds=CUT_SECONDS),
            )
        except StoreError as error:
            LOG.warning("shortened results were not recorded: %s", error)

    def described(self, event: Event) -> dict[str, Any]:
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
        left_out = row.get("left_out") or [""] * len(row["keys"])  # recorded since 0.2
        for key, shown, counts in zip(row["keys"], row["shown"], left_out, strict=False):
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

    def _encoded(self, entry: _Pending) -> tuple[Event, bytes]:
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
        event = Event(
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
