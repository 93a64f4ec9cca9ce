"""Both ends of a gateway (`upwell serve --http`) to a team's store. The messages are in
`memory/team/exchange.py`.

At the gateway, a principal reads only the memories visible to it, never private ones, and writes
only what its role and namespaces allow.

On a machine that has a token but no password for the database, every failure is a `StoreError` with
a one-line message and a hint, which never contains the token.
"""

import asyncio
import ssl
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct
from msgspec.structs import replace

from upwell import __version__
from upwell.ground.clock import SYSTEM_CLOCK
from upwell.ground.errors import StoreError, UsageError
from upwell.ground.secrets.mask import masked_address
from upwell.ground.secrets.redact import redacted_start
from upwell.ground.types.memory import DEFAULT_TENANT, Memory, Provenance
from upwell.ground.types.rpc import EVERY, PRIVATE, Principal, Role
from upwell.memory.records import check, check_pin, masked, memory_of, namespace, stamped
from upwell.memory.team import exchange
from upwell.memory.team.exchange import (
    PROTOCOL,
    Greeting,
    Malformed,
    OtherProtocol,
    Outgoing,
    RefusedWrite,
    Removal,
    Snapshot,
    SnapshotReply,
    TooLarge,
    WritesReply,
    WritesRequest,
    check_name,
    storable,
)
from upwell.memory.team.sharing import FOLDERS, teams_namespace, without_machine

if TYPE_CHECKING:
    import httpx2

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


EXCHANGE_SECONDS, SILENCE_SECONDS, CONNECT_SECONDS = 120.0, 10.0, 5.0
"""How long a request may take, how long nothing may arrive meanwhile, and how long connecting may
take."""
MAX_REST_SECONDS, KEEPALIVE_SECONDS = 60.0, 20.0
MAX_REASON_CHARS = 200
_NO_HEADERS: Mapping[str, str] = MappingProxyType({})
_HELP = "see `upwell team`; meanwhile, upwell works from its snapshot"


class GatewayMemories:
    """`TeamMemories` for a token's tenant and namespaces. `token()` returns the token or raises
    StoreError. It is called before every request, so a new token needs no restart."""

    def __init__(self, url: str, token: Callable[[], str]) -> None:
        self._url = url.rstrip("/").removesuffix("/mcp")
        self._token = token
        self._source = ""
        self._client: httpx2.AsyncClient | None = None
        self._rest_until = 0.0

    async def identity(self) -> str:
        self._source = (await self.greeting()).source
        return self._source

    async def greeting(self) -> Greeting:
        """Return the gateway's description of itself and of the token's role. Raises StoreError if
        the gateway cannot be reached, does not accept the token, or sends no greeting that this
        version understands."""
        _, body = await self._exchange("GET", exchange.PATH)
        return self._read(Greeting, body)

    async def snapshot(self, etag: str = "") -> Snapshot | None:
        headers = {"if-none-match": f'"{etag}"'} if etag else {}
        current, body = await self._exchange("GET", exchange.SNAPSHOT_PATH, headers=headers)
        if etag and not body:
            return None
        return await asyncio.to_thread(self._snapshot_in, body, current)

    def _snapshot_in(self, body: bytes, etag: str) -> Snapshot:
        """Return the snapshot without private memories, which no upwell gateway sends."""
        reply = self._read(SnapshotReply, body)
        with self._understanding():
            sent = exchange.memories_in(reply)
        memories = [memory for memory in sent if not memory.namespace.startswith(PRIVATE)]
        return Snapshot(reply.source, etag, memories)

    async def receive(self, writes: Sequence[Outgoing]) -> Sequence[RefusedWrite]:
        source = self._source or await self.identity()
        message = WritesRequest(protocol=PROTOCOL, source=source, writes=tuple(writes))
        body = exchange.encoded(message)
        if len(body) > exchange.MAX_REQUEST_BYTES:
            reason = "the memory is too long for the gateway"
            return [RefusedWrite(write.token, reason) for write in writes]
        _, reply = await self._exchange("POST", exchange.WRITES_PATH, body)
        refused = self._read(WritesReply, reply).refused
        return [RefusedWrite(refusal.token, _line(refusal.reason)) for refusal in refused]

    async def aclose(self) -> None:
        if self._client is not None:
            await self._client.aclose()

    async def _exchange(
        self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] = _NO_HEADERS
    ) -> tuple[str, bytes]:
        """Send a request. Returns the ETag and the body of the response. Raises StoreError if the
        gateway did not respond, or responded with an error."""
        import httpx2

        if (rest := self._rest_until - time.monotonic()) > 0:
            raise self._failed(f"asks to wait {rest:.0f} s more")
        sent = {"authorization": f"Bearer {self._token()}", "accept-encoding": "gzip", **headers}
        if self._client is None:
            self._client = await asyncio.to_thread(_client)
        if body:
            sent["content-type"] = "application/json"
        try:
            async with (
                asyncio.timeout(EXCHANGE_SECONDS),
                self._client.stream(
                    method, self._url + path, content=body or None, headers=sent
                ) as response,
            ):
                content = self._body_of(response, await self._content(response))
                return response.headers.get("etag", "").removeprefix("W/").strip('"'), content
        except (httpx2.TimeoutException, TimeoutError) as error:
            raise self._failed("does not answer") from error
        except httpx2.ConnectError as error:
            raise self._failed(f"cannot be reached: {_line(str(error))}") from error
        except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError) as error:
            raise self._failed(f"broke off: {_line(str(error))}") from error

    async def _content(self, response: "httpx2.Response") -> bytes:
        content = bytearray()
        async for chunk in response.aiter_raw():
            content += chunk
            if len(content) > exchange.MAX_REPLY_BYTES:
                raise self._wrong("an answer that is too long")
        if response.headers.get("content-encoding", "identity") == "identity":
            return bytes(content)
        try:
            return await asyncio.to_thread(exchange.unpacked, bytes(content))
        except Malformed as error:
            raise self._wrong("an answer that cannot be unpacked") from error

    def _body_of(self, response: "httpx2.Response", content: bytes) -> bytes:
        status = response.status_code
        if status in (HTTPStatus.OK, HTTPStatus.NOT_MODIFIED):
            return content
        if response.is_redirect:
            place = masked_address(response.headers.get("location", ""))
            raise self._failed(
                f"redirects to {_line(place)}, but upwell sends its token only to store.url",
                "set store.url to the address of the gateway itself",
            )
        problem = exchange.problem_in(content)
        reason = f": {_line(problem.error)}" if problem else ""
        wait = response.headers.get("retry-after", "")
        if wait.isascii() and wait.isdigit():
            self._rest_until = time.monotonic() + min(float(wait), MAX_REST_SECONDS)
        if status == HTTPStatus.UNAUTHORIZED:
            raise self._failed(
                f"does not accept the token{reason}",
                "ask its owner for a new one, and run `upwell team join URL`",
            )
        if status == HTTPStatus.NOT_FOUND and not (problem and problem.protocol):
            raise self._failed(
                "has no route for teams: not an upwell gateway, or an older one",
                "check store.url, and upgrade the gateway first",
            )
        raise self._failed(f"answers {status}{reason}")

    def _read[T](self, kind: type[T], body: bytes) -> T:
        with self._understanding():
            return exchange.decoded(kind, body)

    @contextmanager
    def _understanding(self) -> Iterator[None]:
        try:
            yield
        except OtherProtocol as error:
            raise self._failed(
                f"speaks version {_line(str(error))} of the protocol, and upwell {__version__} "
                f"speaks version {PROTOCOL}",
                "upgrade the older of the two",
            ) from error
        except TooLarge as error:
            raise self._wrong(str(error)) from error
        except Malformed as error:
            raise self._wrong("something else") from error

    def _wrong(self, what: str) -> StoreError:
        return self._failed(
            f"sent {what}, which no upwell gateway sends",
            "check store.url: it may lead to another server or a proxy",
        )

    def _failed(self, how: str, hint: str = _HELP) -> StoreError:
        return StoreError(f"the team's gateway {masked_address(self._url)} {how}", hint=hint)


def checked_token(token: str) -> str:
    """Return `token` without the whitespace around it. Raises StoreError if the token is empty or
    contains invalid characters. The HTTP client would reject it too, but with an error that shows
    the token."""
    bare = token.strip()
    if not bare:
        raise StoreError(
            "there is no token for the team's gateway",
            hint="run `upwell team join URL`, or set UPWELL_STORE__TOKEN",
        )
    if not (bare.isascii() and bare.isprintable() and " " not in bare):
        raise StoreError(
            "the token for the team's gateway contains invalid characters",
            hint="run `upwell team join URL` to replace it",
        )
    return bare


def _client() -> "httpx2.AsyncClient":
    """Create the HTTP client. This reads the system's certificates, which takes about 0.1 s."""
    import httpx2

    return httpx2.AsyncClient(
        verify=ssl.create_default_context(),
        timeout=httpx2.Timeout(SILENCE_SECONDS, connect=CONNECT_SECONDS),
        limits=httpx2.Limits(max_connections=2, keepalive_expiry=KEEPALIVE_SECONDS),
        follow_redirects=False,
        trust_env=False,
    )


def _line(text: str) -> str:
    """Make text from the gateway safe for one log line."""
    shown = "".join(char if char.isprintable() else " " for char in text[:MAX_REASON_CHARS])
    return redacted_start(shown, MAX_REASON_CHARS)
