"""Give one principal access to a team's memories through a gateway. The principal reads only the
memories visible to it, never private ones, and writes only what its role and namespaces allow.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from upwell.ground.clock import SYSTEM_CLOCK
from upwell.ground.errors import UsageError
from upwell.ground.types.memory import DEFAULT_TENANT, Memory, Provenance
from upwell.ground.types.rpc import EVERY, PRIVATE, Principal, Role
from upwell.memory.records import check, check_pin, masked, memory_of, namespace, stamped
from upwell.memory.team.exchange import (
    Malformed,
    Outgoing,
    RefusedWrite,
    Removal,
    Snapshot,
    check_name,
    storable,
)
from upwell.memory.team.sharing import FOLDERS, teams_namespace, without_machine

MAX_DOOR_CHARS = 40
READER = "your token may only read the team's memories"


class Received(Struct, frozen=True):
    """The outcome of a batch of writes. `fresh` has the tokens of the writes that took effect.
    Writes that are neither in `fresh` nor in `refused` had arrived earlier."""

    fresh: frozenset[str]
    refused: Sequence[RefusedWrite]


class LimitedMemories(Protocol):
    """The team's store in the database."""

    async def identity(self) -> str: ...
    async def etag(self, namespaces: Sequence[str] | None) -> str: ...
    async def snapshot_of(self, namespaces: Sequence[str] | None) -> Snapshot: ...
    async def receive_within(
        self, writes: Sequence[Outgoing], may_change: Callable[[str], bool]
    ) -> Received: ...


class AuditTrail(Protocol):
    """Records who changed something and who was denied a change."""

    def record(self, actor: str, action: str, subject: str, outcome: str) -> None: ...
    def denied(self, actor: str, why: str) -> None: ...


class AccessedMemories:
    """Limits the store `shared` to what `principal` may do. Only admins may write to the namespaces
    in `read_only`."""

    def __init__(
        self,
        shared: LimitedMemories,
        principal: Principal,
        audit: AuditTrail,
        *,
        read_only: Sequence[str] = (),
    ) -> None:
        self._shared = shared
        self._principal = principal
        self._audit = audit
        self._read_only = read_only

    @property
    def may_write(self) -> bool:
        return self._principal.may_write

    async def identity(self) -> str:
        return await self._shared.identity()

    async def etag(self) -> str:
        return await self._shared.etag(self._patterns)

    async def snapshot(self) -> Snapshot:
        """Return the memories that the principal may see, without anyone's private ones. Raises
        StoreError if the database failed."""
        snapshot = await self._shared.snapshot_of(self._patterns)
        seen = [memory for memory in snapshot.memories if self._sees(memory.namespace)]
        return replace(snapshot, memories=seen)

    @property
    def _patterns(self) -> Sequence[str] | None:
        patterns = [p for p in self._principal.namespaces if not p.startswith(PRIVATE)]
        is_whole = not self._principal.namespaces or EVERY in patterns
        return None if is_whole else sorted(patterns)

    async def receive(self, writes: Sequence[Outgoing]) -> Sequence[RefusedWrite]:
        # Masking a batch of long texts would block the event loop for too long.
        outcomes = await asyncio.to_thread(lambda: [self._admitted(write) for write in writes])
        admitted = [outcome for outcome in outcomes if isinstance(outcome, Outgoing)]
        refused = [outcome for outcome in outcomes if isinstance(outcome, RefusedWrite)]
        received = Received(frozenset(), ())
        if admitted:
            received = await self._shared.receive_within(admitted, self._may_change)
        refused += received.refused
        actor = self._principal.name
        for write in writes:
            if write.token in received.fresh:
                is_memory = isinstance(write.content, Memory)
                action = "share" if is_memory else f"{write.content} shared"
                self._audit.record(actor, action, write.id, "done")
        for reason in {refusal.reason for refusal in refused}:
            self._audit.denied(actor, f"sharing: {reason}")
        return refused

    def _sees(self, namespace: str) -> bool:
        return not namespace.startswith(PRIVATE) and self._principal.sees(namespace)

    def _may_change(self, namespace: str) -> bool:
        return self._sees(namespace) and self._principal.may_write_to(namespace, self._read_only)

    def _admitted(self, write: Outgoing) -> Outgoing | RefusedWrite:
        if not self._principal.may_write:
            return RefusedWrite(write.token, READER)
        if isinstance(write.content, Removal):
            return write
        try:
            return replace(write, content=self._checked(write.id, write.content))
        except UsageError as error:
            return RefusedWrite(write.token, error.message)
        except Malformed as error:
            return RefusedWrite(write.token, str(error))

    def _checked(self, id: str, sent: Memory) -> Memory:
        """Return the memory as it will be stored: without secrets, folders on the sender's machine
        or references to sessions. A writer's standing rule goes into one of the team's namespaces:
        in another, it would look like a rule of the person who reads it.

        Raises:
            UsageError: the memory is invalid, or the principal may not store it.
            Malformed: the database cannot store the project's name or the superseded id.
        """
        if sent.tenant != DEFAULT_TENANT:
            raise UsageError("the memory names another tenant")
        if sent.id != id:
            raise UsageError("the memory and its write have different ids")
        check_pin(sent)
        if sent.project is not None and sent.project.startswith(FOLDERS):
            raise UsageError("the memory belongs to a folder of one machine")
        for name in (sent.project, sent.supersedes):
            check_name(name or "")
        memory = memory_of(storable(sent))
        if memory.namespace.startswith(PRIVATE):
            raise UsageError(f"{memory.namespace!r} is private")
        if memory.pinned and self._principal.role is not Role.ADMIN:
            memory = replace(memory, namespace=namespace(teams_namespace(memory.namespace)))
        if not self._may_change(memory.namespace):
            raise UsageError(f"you may not write to {memory.namespace!r}")
        now = SYSTEM_CLOCK.now()
        memory = replace(
            without_machine(memory),
            provenance=Provenance(door=memory.provenance.door[:MAX_DOOR_CHARS]),
            created_at=_past(memory.created_at, now),
            updated_at=_past(memory.updated_at, now),
            viewed_at=_past(memory.viewed_at, now),
        )
        clean, _ = masked(memory)
        check(clean)
        return stamped(clean, now)


def _past(seconds: float | None, now: float) -> float | None:
    """Return the time, or `now` if it is in the future. Otherwise, the memory would count as the
    newest until then."""
    return None if seconds is None else min(seconds, now)
