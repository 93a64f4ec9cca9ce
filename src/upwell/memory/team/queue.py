"""The writes to a team's store that have not arrived yet, in one file on the developer's machine.

Each line is a write. A write is on disk before it is shown or sent, and leaves the file only when
the team's store has acknowledged it, so a killed process loses none. The store recognises the
token of a write that is sent twice. If a memory has several writes, only the last one counts.
"""

import asyncio
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from upwell.ground.errors import StoreError
from upwell.ground.files import Stamp, append_lines, exclusively, stamp, write_atomically, writing
from upwell.ground.trace import LOG
from upwell.memory.team import exchange
from upwell.memory.team.exchange import Outgoing, RefusedWrite, TeamMemories


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
        killed process left incomplete is ignored.

        Raises:
            StoreUnwritable: the file cannot be read.
        """
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
        lines = b"".join(exchange.encoded(QueuedWrite(write, now)) + b"\n" for write in writes)
        with exclusively(self.path):
            append_lines(self.path, lines)

    def settle(self, sent: Collection[str], refused: Sequence[RefusedWrite]) -> None:
        """Remove the writes with the tokens `sent`, but keep the refused ones with the reasons.

        Raises:
            StoreUnwritable: the file cannot be written.
        """
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
            lines = b"".join(exchange.encoded(entry) + b"\n" for entry in entries)
            write_atomically(self.path, lines)
        else:
            self.path.unlink(missing_ok=True)


async def send(queue: WriteQueue, team: TeamMemories, *, again: bool = True) -> None:
    """Send the waiting writes, oldest first. If `again` is set, writes that were refused earlier
    are sent too, after the others.

    Raises:
        StoreError: the team's store or the file failed. The writes that were not acknowledged wait.
    """
    entries = await asyncio.to_thread(queue.read)
    fresh = [entry.write for entry in entries if not entry.reason]
    refused = [entry.write for entry in entries if again and entry.reason]
    for writes in exchange.batches([*fresh, *refused]):
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
    although the team's store can be reached before and afterwards.

    Raises:
        StoreError: the team's store cannot be reached.
    """
    refusals: list[RefusedWrite] = []
    await team.identity()
    for write in writes:
        try:
            refusals += await team.receive([write])
        except StoreError as error:
            await team.identity()
            refusals.append(RefusedWrite(write.token, error.message))
    return refusals
