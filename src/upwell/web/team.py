"""Serve the team's memories at `/team` to machines that keep a snapshot of them. The messages are
defined in `memory/team/exchange.py`."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from upwell import __version__
from upwell.ground.errors import StoreError
from upwell.ground.trace import LOG
from upwell.ground.types.rpc import IN_SCOPE, Principal
from upwell.memory.team import exchange
from upwell.memory.team.exchange import (
    PATH,
    PROTOCOL,
    SNAPSHOT_PATH,
    WRITES_PATH,
    ErrorBody,
    Greeting,
    Malformed,
    OtherProtocol,
    WritesReply,
    WritesRequest,
)
from upwell.memory.team.gateway import AccessedMemories

TEAM_PATHS = frozenset({PATH, SNAPSHOT_PATH, WRITES_PATH})
MAX_AT_ONCE = 8
MAX_WAITING = 64
"""How many requests are served at once, and how many more may wait. Both numbers are small, because
machines that update a snapshot can wait, but agents' calls cannot.
"""
MAX_PACKED = 4
"""How many packed snapshots are kept, so that machines which ask for the same one share it."""
BODY_SECONDS = 20.0
RETRY_SECONDS = 2


OpenFor = Callable[[Principal], AccessedMemories]
"""Opens the team's memories for a principal."""


class _Refusal(Exception):
    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status
        self.why = why


class TeamDoor:
    """`open_for` is None for a gateway without a team's database."""

    def __init__(self, open_for: OpenFor | None) -> None:
        self._open_for = open_for
        self._turns = asyncio.Semaphore(MAX_AT_ONCE)
        self._waiting = 0
        self._packing = asyncio.Lock()
        self._packed: dict[str, bytes] = {}

    def routes(self) -> list[BaseRoute]:
        return [
            Route(PATH, self._served(self._greet), methods=["GET"]),
            Route(SNAPSHOT_PATH, self._served(self._snapshot), methods=["GET"]),
            Route(WRITES_PATH, self._served(self._writes), methods=["POST"]),
        ]

    async def _greet(self, memories: AccessedMemories, _: Request) -> Response:
        return _response(
            Greeting(
                protocol=PROTOCOL,
                source=await memories.identity(),
                version=__version__,
                may_write=memories.may_write,
            )
        )

    async def _snapshot(self, memories: AccessedMemories, request: Request) -> Response:
        etag = await memories.etag()
        known = request.headers.get("if-none-match", "").removeprefix("W/").strip('"')
        body = b""
        if known != etag:
            async with self._packing:
                if etag not in self._packed:
                    snapshot = await memories.snapshot()
                    etag = snapshot.etag
                    self._packed[etag] = await asyncio.to_thread(exchange.packed, snapshot)
                    while len(self._packed) > MAX_PACKED:
                        del self._packed[next(iter(self._packed))]
                body = self._packed[etag]
        headers = {"etag": f'"{etag}"', "cache-control": "private, no-cache"}
        if not body:
            return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
        headers["content-encoding"] = "gzip"
        return Response(body, media_type="application/json", headers=headers)

    async def _writes(self, memories: AccessedMemories, request: Request) -> Response:
        body = await request.body()
        message = await asyncio.to_thread(exchange.decoded, WritesRequest, body)
        exchange.check_writes(message.writes)
        if await memories.identity() != message.source:
            raise _Refusal(409, "the team's store has been replaced")
        refused = await memories.receive(message.writes)
        return _response(WritesReply(protocol=PROTOCOL, refused=tuple(refused)))

    def _served(
        self, serve: Callable[[AccessedMemories, Request], Awaitable[Response]]
    ) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            try:
                if request.method == "POST":
                    await _read_body(request)  # before the turn, because it may arrive slowly
                async with self._turn():
                    if self._open_for is None:
                        why = "this gateway has no team's database: its store.url is not set"
                        raise _Refusal(404, why)
                    return await serve(self._open_for(request.scope[IN_SCOPE]), request)
            except _Refusal as refusal:
                return _problem(refusal.status, refusal.why)
            except OtherProtocol as error:
                why = f"this gateway speaks version {PROTOCOL} of these messages, not {error!s:.20}"
                return _problem(409, why)
            except Malformed as error:
                return _problem(400, str(error))
            except StoreError as error:
                # The response does not contain the error, which may name the database's host.
                LOG.warning("a request for the team's memories failed: %s", error)
                return _problem(503, "the team's database failed")

        return endpoint

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        if self._waiting >= MAX_WAITING:
            raise _Refusal(503, "too many requests for the team's memories at once")
        self._waiting += 1
        try:
            await self._turns.acquire()
        finally:
            self._waiting -= 1
        try:
            yield
        finally:
            self._turns.release()


async def _read_body(request: Request) -> None:
    headers = request.headers
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json" or headers.get("content-encoding", "identity") != "identity":
        raise _Refusal(415, "send JSON, uncompressed")
    try:
        async with asyncio.timeout(BODY_SECONDS):
            await request.body()
    except TimeoutError:
        raise _Refusal(408, "the body did not arrive in time") from None
    except ClientDisconnect:
        raise _Refusal(400, "the body broke off") from None


def _problem(status: int, why: str) -> Response:
    answer = _response(ErrorBody(error=why, protocol=PROTOCOL), status)
    if status == HTTPStatus.SERVICE_UNAVAILABLE:
        answer.headers["retry-after"] = str(RETRY_SECONDS)
    return answer


def _response(message: object, status: int = HTTPStatus.OK) -> Response:
    return Response(exchange.encoded(message), status_code=status, media_type="application/json")
