"""The messages with which a developer's machine reads and changes a team's memories through a
gateway (`memory/team/gateway.py`, `web/team.py`). They are JSON over HTTP.

    GET  /team            → Greeting        the store, and whether the token may write
    GET  /team/snapshot   → SnapshotReply   what the token may read, compressed, with an ETag;
                                            304 if `If-None-Match` has the current one
    POST /team/writes     WritesRequest → WritesReply   writes of the machine's queue

Both sides check what they receive, because any program may have sent it.

The writes that have not arrived yet are in one file on the developer's machine, one on each line. A
write is on disk before it is shown or sent, and leaves the file only when the team's store has
acknowledged it, so a killed process loses none. The store recognises the token of a write that is
sent twice. If a memory has several writes, only the last one counts.
"""

import asyncio
import zlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from upwell.ground.errors import StoreError
from upwell.ground.files import Stamp, append_lines, exclusively, stamp, write_atomically, writing
from upwell.ground.trace import LOG
from upwell.ground.types.memory import Memory
from upwell.memory.ranking.terms import sound
from upwell.memory.records import MAX_COUNT, MAX_ID_CHARS, time_or_none

MAX_MEMORIES = 20_000
"""A snapshot with this many memories takes 2.7 MB on the network, and a gateway 1 s of CPU."""


class Snapshot(Struct, frozen=True):
    """The memories of the store `source` that a machine may see, as they were at one moment. `etag`
    differs when they may have changed."""

    source: str
    etag: str
    memories: Sequence[Memory]


class Removal(StrEnum):
    """What to do with a memory in a team's store: put it in the trash, or delete it permanently."""

    TRASH = "trash"
    PURGE = "purge"


class Outgoing(Struct, frozen=True):
    """A write to a team's store. Its `token` is unique, so a write that arrives twice takes effect
    once."""

    token: str
    id: str
    content: Memory | Removal


class RefusedWrite(Struct, frozen=True):
    """The token of a write that a team's store refused, and the reason."""

    token: str
    reason: str


class TeamMemories(Protocol):
    """A team's store. Every method raises StoreError if the store fails."""

    async def identity(self) -> str:
        """Return the name of the store, which does not change when the store is moved."""
        ...

    async def snapshot(self, etag: str = "") -> Snapshot | None:
        """Return the memories that this machine may see, or None if `etag` is still current."""
        ...

    async def receive(self, writes: Sequence[Outgoing]) -> Sequence[RefusedWrite]:
        """Apply these writes, except those that arrived earlier. Returns the refused writes, which
        were not applied."""
        ...


PROTOCOL = 2
"""The version of these messages. Both sides reject any other version."""
PATH, SNAPSHOT_PATH, WRITES_PATH = "/team", "/team/snapshot", "/team/writes"
MAX_WRITES = 100
MAX_REQUEST_BYTES = 4_000_000
MAX_REPLY_BYTES, MAX_UNPACKED_BYTES = 50_000_000, 100_000_000
"""The maximum size of a response, as it is sent and when it is unpacked: 5 KB for each memory of a
full snapshot. 20,000 memories of 30 words take 13 MB."""
MAX_MEMORY_BYTES = 8_000_000
MAX_LIST_ITEMS = 100 * MAX_MEMORIES
"""The maximum number of tags, paths, symbols and triggers in a whole snapshot."""
MAX_NAME_CHARS = 1_000
_GZIP = 16 + zlib.MAX_WBITS
_MAX_LINE = 2**31 - 1
_TOKEN_CHARS = range(16, 65)


class Greeting(Struct, frozen=True, kw_only=True):
    """The gateway's description of itself. `source` is the identity of the store, as returned by
    `TeamMemories.identity()`. `version` is the version of upwell. `may_write` is True if the
    token's role allows writes."""

    protocol: int
    source: str
    version: str = ""
    may_write: bool = True


class SnapshotReply(Struct, frozen=True, kw_only=True):
    """The memories of the store `source` that the token may read. The header `ETag` differs when
    they may have changed."""

    protocol: int
    source: str
    memories: tuple[Raw, ...]


class WritesRequest(Struct, frozen=True, kw_only=True):
    """Writes for the store `source`, which the machine has a snapshot of."""

    protocol: int
    source: str
    writes: tuple[Outgoing, ...]


class WritesReply(Struct, frozen=True, kw_only=True):
    """The reply to writes. All writes have arrived, and those in `refused` were not applied."""

    protocol: int
    refused: tuple[RefusedWrite, ...] = ()


class ErrorBody(Struct, frozen=True, kw_only=True):
    """The body of every error response."""

    error: str
    protocol: int = 0


class _Any(Struct, frozen=True, kw_only=True):
    """The field that messages of every version have."""

    protocol: int


class Malformed(Exception):
    """The body is not one of these messages."""


class TooLarge(Malformed):
    """The body would take too much memory. The message says what there is too much of."""


class OtherProtocol(Malformed):
    """The sender uses another version of the protocol."""


def encoded(message: Any) -> bytes:
    try:
        return msgspec.json.encode(message)
    except UnicodeEncodeError:  # a lone surrogate
        return msgspec.json.encode(_sound(msgspec.to_builtins(message)))


def decoded[T](kind: type[T], body: bytes) -> T:
    """Decode a message of this kind.

    Raises:
        OtherProtocol: the sender uses another version of the protocol.
        Malformed: the body is not a message of this kind.
    """
    protocol = _parsed(_Any, body).protocol
    if protocol != PROTOCOL:
        raise OtherProtocol(str(protocol))
    if kind is SnapshotReply:
        _check_count(body)
    return _parsed(kind, body)


def memories_in(reply: SnapshotReply) -> list[Memory]:
    """Decode the memories of a snapshot one by one.

    Raises:
        TooLarge: a memory is too long, or they have too many tags and paths.
        Malformed: a row is not a memory.
    """
    memories, items = list[Memory](), 0
    for row in reply.memories:
        if len(memoryview(row)) > MAX_MEMORY_BYTES:
            raise TooLarge(f"a memory of more than {MAX_MEMORY_BYTES:,} bytes")
        memory = _parsed(Memory, row)
        items += sum(map(len, (memory.tags, memory.paths, memory.symbols, memory.triggers)))
        if items > MAX_LIST_ITEMS:
            raise TooLarge(f"more than {MAX_LIST_ITEMS:,} tags and paths")
        memories.append(storable(memory))
    return memories


def packed(snapshot: Snapshot) -> bytes:
    memories = tuple(Raw(encoded(memory)) for memory in snapshot.memories)
    reply = SnapshotReply(protocol=PROTOCOL, source=snapshot.source, memories=memories)
    return zlib.compress(encoded(reply), wbits=_GZIP)


def unpacked(content: bytes) -> bytes:
    """Decompress a response. Raises Malformed if the content is damaged, or too long when it is
    unpacked."""
    unpacking = zlib.decompressobj(_GZIP)
    try:
        body = unpacking.decompress(content, MAX_UNPACKED_BYTES)
    except zlib.error as error:
        raise Malformed(str(error)) from error
    if not unpacking.eof:
        raise Malformed("too long, or incomplete")
    return body


def batches(writes: Sequence[Outgoing]) -> Iterator[list[Outgoing]]:
    """Divide writes into requests that a gateway accepts. A write that is too long by itself gets
    its own batch."""
    batch: list[Outgoing] = []
    size = MAX_NAME_CHARS
    for write in writes:
        length = len(encoded(write)) + 1
        if batch and (len(batch) == MAX_WRITES or size + length > MAX_REQUEST_BYTES):
            yield batch
            batch, size = [], MAX_NAME_CHARS
        batch.append(write)
        size += length
    if batch:
        yield batch


def problem_in(body: bytes) -> ErrorBody | None:
    """Return the error in the body of a response, or None if another program wrote the body."""
    try:
        return _parsed(ErrorBody, body)
    except Malformed:
        return None


def check_writes(writes: Sequence[Outgoing]) -> None:
    """Reject writes that cannot come from a machine's queue. Raises Malformed if there are too many
    writes, two of them have the same memory or token, or one has no valid id or token."""
    if len(writes) > MAX_WRITES:
        raise Malformed(f"more than {MAX_WRITES} writes at once")
    for names in ([write.id for write in writes], [write.token for write in writes]):
        if len(set(names)) < len(names):
            raise Malformed("two writes of one memory, or with one token")
    for write in writes:
        if len(write.token) not in _TOKEN_CHARS or not (
            write.token.isascii() and write.token.isalnum()
        ):
            raise Malformed("a write without a proper token")
        check_name(write.id, MAX_ID_CHARS)
        if not write.id:
            raise Malformed("a write without an id")


def storable(memory: Memory) -> Memory:
    """Return the memory with numbers that fit the database's columns. Impossible line ranges and
    times are dropped, and the number of occurrences is clamped."""
    first, last = memory.lines or (0, -1)
    return replace(
        memory,
        lines=memory.lines if 0 < first <= last <= _MAX_LINE else None,
        occurrences=min(max(memory.occurrences, 1), MAX_COUNT),
        expires_at=time_or_none(memory.expires_at),
        created_at=time_or_none(memory.created_at),
        updated_at=time_or_none(memory.updated_at),
        viewed_at=time_or_none(memory.viewed_at),
    )


def _check_count(body: bytes) -> None:
    # Before any of them takes memory: a few kilobytes unpack to millions of rows.
    count = 0

    class Row(Struct):
        def __post_init__(self) -> None:
            nonlocal count
            count += 1
            if count > MAX_MEMORIES:
                raise ValueError

    class Rows(Struct):
        memories: list[Row]

    try:
        _parsed(Rows, body)
    except Malformed as error:
        if count > MAX_MEMORIES:
            raise TooLarge(f"more than {MAX_MEMORIES:,} memories") from error
        raise


def _parsed[T](kind: type[T], body: bytes | Raw) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, RecursionError, ValueError) as error:
        raise Malformed(f"not a message of upwell: {str(error)[:200]}") from error


def check_name(name: str, most: int = MAX_NAME_CHARS) -> None:
    """Reject the name of a memory or project if the database cannot store it. Raises Malformed if
    the name is too long or has invalid characters."""
    if len(name) > most or sound(name) != name:
        raise Malformed("a name that no memory or project has")


def _sound(value: Any) -> Any:
    if isinstance(value, str):
        return sound(value)
    if isinstance(value, dict):
        return {name: _sound(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_sound(item) for item in value]
    return value


class QueuedWrite(Struct, frozen=True):
    """A write that waits since `at`, in epoch seconds. `reason` says why the team's store refused
    it; "" if it did not. A refused write is sent again from time to time."""

    write: Outgoing
    at: float
    reason: str = ""


class WriteQueue:
    """The queue in the file at `path`, which all processes of the home share."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def stamp(self) -> Stamp | None:
        return stamp(self.path)

    def read(self) -> list[QueuedWrite]:
        """Return the waiting writes, at most one for each memory, oldest first. A line that a
        killed process left incomplete is ignored. Raises StoreUnwritable if the file cannot be
        read."""
        try:
            lines = self.path.read_bytes().splitlines()
        except FileNotFoundError:
            return []
        except OSError as error:
            with writing(self.path):
                raise error
        latest: dict[str, QueuedWrite] = {}
        for line in filter(None, lines):
            try:
                entry = msgspec.json.decode(line, type=QueuedWrite)
            except msgspec.MsgspecError:
                continue
            latest.pop(entry.write.id, None)
            latest[entry.write.id] = entry
        return list(latest.values())

    def append(self, writes: Iterable[Outgoing], now: float) -> None:
        lines = b"".join(encoded(QueuedWrite(write, now)) + b"\n" for write in writes)
        with exclusively(self.path):
            append_lines(self.path, lines)

    def settle(self, sent: Collection[str], refused: Sequence[RefusedWrite]) -> None:
        """Remove the writes with the tokens `sent`, but keep the refused ones with the reasons.
        Raises StoreUnwritable if the file cannot be written."""
        reasons = {refusal.token: refusal.reason for refusal in refused}
        with exclusively(self.path), writing(self.path):
            kept = [
                replace(entry, reason=reasons.get(entry.write.token, entry.reason))
                for entry in self.read()
                if entry.write.token in reasons or entry.write.token not in sent
            ]
            self._replace(kept)

    def clear(self) -> None:
        with exclusively(self.path), writing(self.path):
            self._replace([])

    def _replace(self, entries: Sequence[QueuedWrite]) -> None:
        if entries:
            lines = b"".join(encoded(entry) + b"\n" for entry in entries)
            write_atomically(self.path, lines)
        else:
            self.path.unlink(missing_ok=True)


async def send(queue: WriteQueue, team: TeamMemories, *, again: bool = True) -> None:
    """Send the waiting writes, oldest first. If `again` is set, writes that were refused earlier
    are sent too, after the others. Raises StoreError if the team's store or the file failed. The
    writes that were not acknowledged wait."""
    entries = await asyncio.to_thread(queue.read)
    fresh = [entry.write for entry in entries if not entry.reason]
    refused = [entry.write for entry in entries if again and entry.reason]
    for writes in batches([*fresh, *refused]):
        try:
            refusals = await team.receive(writes)
        except StoreError:
            refusals = await _sent_each(team, writes)
        for refusal in refusals:
            LOG.warning("the team's store does not accept a write: %s", refusal.reason)
        tokens = {write.token for write in writes}
        await asyncio.to_thread(queue.settle, tokens, refusals)


async def _sent_each(team: TeamMemories, writes: Sequence[Outgoing]) -> Sequence[RefusedWrite]:
    """Send writes one by one, because sending them together failed. Returns those that fail
    although the team's store can be reached before and afterwards. Raises StoreError if the team's
    store cannot be reached."""
    refusals: list[RefusedWrite] = []
    await team.identity()
    for write in writes:
        try:
            refusals += await team.receive([write])
        except StoreError as error:
            await team.identity()
            refusals.append(RefusedWrite(write.token, error.message))
    return refusals
