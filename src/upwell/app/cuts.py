"""The record of shortened results: the call, the tokens before and after, the keys of the
originals, and the texts that the agent saw.
"""

import asyncio
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from msgspec import Struct

from upwell.compress.originals import Originals
from upwell.gateway.calls.fit import Cut
from upwell.ground.background import BackgroundTasks
from upwell.ground.clock import Clock
from upwell.ground.errors import KeyUnknown, StoreError
from upwell.ground.text.surrogates import dumped
from upwell.ground.trace import LOG
from upwell.ground.ttl_store import Entries, EntryKind, TtlStore
from upwell.ground.types.rpc import ToolCall
from upwell.surface.journal import Journal, file_key, file_of, shown_project

RETENTION_SECONDS = 30 * 86_400.0
MAX_SHOWN_CHARS = 40_000
_SEPARATOR = "\t"


class _Pending(Struct, frozen=True):
    call: ToolCall
    cut: Cut
    at: float


class Cuts:
    """Records shortened results in the TTL store. The texts that the agent saw are recorded only
    for the owner of the home, and only if none of them contains a secret. The path of the file
    that a call works on is recorded only if `journal` may store it, and for as long as `journal`
    keeps paths. The methods raise StoreError if the store cannot be read.
    """

    def __init__(
        self, ttl_store: TtlStore, originals: Originals, journal: Journal, clock: Clock
    ) -> None:
        self._ttl_store = ttl_store
        self._originals = originals
        self._journal = journal
        self._clock = clock
        self._pending: list[_Pending] = []
        self._writing = asyncio.Lock()
        self._tasks = BackgroundTasks("cuts")

    def note(self, call: ToolCall, cut: Cut) -> None:
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
        values = await asyncio.to_thread(self._encoded, pending)
        writes = [Entries(EntryKind.CUT, values, RETENTION_SECONDS)]
        if files := self._files_of(dict(zip(values, pending, strict=True))):
            writes.append(Entries(EntryKind.STEP, files, self._journal.retention_seconds()))
        try:
            await self._ttl_store.put_all(*writes)
        except StoreError as error:
            LOG.warning("shortened results were not recorded: %s", error)

    async def latest(
        self, limit: int, *, matching: Mapping[str, str] | None = None
    ) -> list[dict[str, Any]]:
        """The latest shortened results without their texts, newest first. `matching` maps fields to
        the exact values required.
        """
        await self.flush()
        holding = [dumped({name: value})[1:-1] for name, value in (matching or {}).items()]
        items = await self._ttl_store.newest(EntryKind.CUT, limit=limit, holding=holding)
        names = [file_key(item.key) for item in items]
        files = await self._ttl_store.get(EntryKind.STEP, names)
        rows = [
            {"file": files[name].value.decode() if name in files else ""}
            | orjson.loads(item.value)
            | {"id": item.key, "written": item.created_at}
            for name, item in zip(names, items, strict=True)
        ]
        for row in rows:
            row["has_text"] = bool(row.pop("shown"))
            row |= {"kind": "shortened", "memories": []}
        return rows

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
        item = (await self._ttl_store.get(EntryKind.CUT, [cut_id])).get(cut_id)
        return str(orjson.loads(item.value)["session"]) if item else ""

    async def call_of(self, key: str) -> Mapping[str, Any] | None:
        """The latest shortened result whose first original has this key; None if there is none."""
        items = await self._ttl_store.scan(EntryKind.CUT, f"{key}{_SEPARATOR}")
        row: Mapping[str, Any] | None = orjson.loads(items[-1].value) if items else None
        return row

    def _encoded(self, pending: Sequence[_Pending]) -> dict[str, bytes]:
        return {
            _SEPARATOR.join((next(iter(entry.cut.keys), ""), secrets.token_hex(6))): dumped(
                self._described(entry)
            )
            for entry in pending
        }

    def _files_of(self, pending: Mapping[str, _Pending]) -> dict[str, bytes]:
        if self._journal.retention_seconds() <= 0:
            return {}
        calls = {key: entry.call for key, entry in pending.items()}
        return {
            file_key(key): file.encode()
            for key, call in calls.items()
            if self._journal.may_persist(f"{call.server}__{call.tool}")
            and (file := file_of(call.args, call.cwd))
        }

    def _described(self, entry: _Pending) -> dict[str, Any]:
        call, cut = entry.call, entry.cut
        own = call.principal == ""
        shown = [text[:MAX_SHOWN_CHARS] for text in cut.shown] if own else []
        # A notice contains `key="…"` with sixteen random digits, which can look like a secret.
        if any(self._originals.is_secret(_without(text, cut.keys)) for text in shown):
            shown = []
        return {
            "at": entry.at,
            "tool": f"{call.server}__{call.tool}",
            "host": call.host,
            "project": shown_project(call.cwd),
            "session": call.session,
            "trace_id": call.trace_id,
            "before": cut.tokens_before,
            "after": cut.tokens_after,
            "keys": list(cut.keys),
            "shown": [text.encode(errors="replace").decode() for text in shown],
            "left_out": cut.left_out,
        }

    async def aclose(self) -> None:
        """Write all pending records."""
        await self._tasks.drain()
        await self.flush()


def _without(text: str, keys: Sequence[str]) -> str:
    for key in keys:
        text = text.replace(key, "")
    return text
