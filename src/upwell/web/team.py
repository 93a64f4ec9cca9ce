"""Serve the team's memories at `/team` to machines that keep a copy of them. The messages are
defined in `memory/team/exchange.py`."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from http import HTTPStatus
from typing import Protocol

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from upwell import __version__
from upwell.ground.errors import StoreError
from upwell.ground.trace import LOG
from upwell.ground.types.principal import IN_SCOPE, Principal
from upwell.memory.team import exchange
from upwell.memory.team.access import AccessedMemories
from upwell.memory.team.exchange import (
    PAGES_PATH,
    PATH,
    PROTOCOL,
    WRITES_PATH,
    ErrorBody,
    Greeting,
    Malformed,
    OtherProtocol,
    PagesReply,
    PagesRequest,
    WritesReply,
    WritesRequest,
)

TEAM_PATHS = frozenset({PATH, PAGES_PATH, WRITES_PATH})
MAX_AT_ONCE = 8
MAX_WAITING = 64
"""How many requests are served at once, and how many more may wait. Both numbers are small, because
machines that update a copy can wait, but agents' calls cannot.
"""
BODY_SECONDS = 20.0
RETRY_SECONDS = 2


class OpenFor(Protocol):
    """Opens the team's memories for a principal. They are closed at the end of the `async with`
    block."""

    def __call__(self, principal: Principal) -> AbstractAsyncContextManager[AccessedMemories]: ...


class _Refusal(Exception):
    """The error response to a request that is not served."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status
        self.why = why


class TeamDoor:
    """Serves the routes. `open_for` is None for a gateway without a team's database."""

    def __init__(self, open_for: OpenFor | None) -> None:
        self._open_for = open_for
        self._turns = asyncio.Semaphore(MAX_AT_ONCE)
        self._waiting = 0

    def routes(self) -> list[BaseRoute]:
        return [
            Route(PATH, self._served(self._greet), methods=["GET"]),
            Route(PAGES_PATH, self._served(self._pages), methods=["POST"]),
            Route(WRITES_PATH, self._served(self._writes), methods=["POST"]),
        ]

    async def _greet(self, memories: AccessedMemories, _: bytes) -> Greeting:
        return Greeting(
            protocol=PROTOCOL,
            source=await memories.identity(),
            version=__version__,
            may_write=memories.may_write,
        )

    async def _pages(self, memories: AccessedMemories, body: bytes) -> PagesReply:
        request = exchange.decoded(PagesRequest, body)
        exchange.check_cursors(request.cursors)
        await _check_source(memories, request.source)
        pages = await memories.pages(request.cursors)
        cut = await asyncio.to_thread(exchange.cut, request.cursors, pages, exchange.PAGES_BYTES)
        return PagesReply(protocol=PROTOCOL, pages=cut)

    async def _writes(self, memories: AccessedMemories, body: bytes) -> WritesReply:
        request = await asyncio.to_thread(exchange.decoded, WritesRequest, body)
        exchange.check_writes(request.writes)
        await _check_source(memories, request.source)
        return WritesReply(protocol=PROTOCOL, refused=tuple(await memories.receive(request.writes)))

    def _served(
        self, serve: Callable[[AccessedMemories, bytes], Awaitable[object]]
    ) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            try:
                body = await _body(request)
                async with self._turn(), self._opened(request.scope[IN_SCOPE]) as memories:
                    answer = await serve(memories, body)
                return _response(200, await asyncio.to_thread(exchange.encoded, answer))
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

    def _opened(self, principal: Principal) -> AbstractAsyncContextManager[AccessedMemories]:
        if self._open_for is None:
            raise _Refusal(404, "this gateway has no team's database: its store.url is not set")
        return self._open_for(principal)

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


async def _body(request: Request) -> bytes:
    headers = request.headers
    if request.method == "GET":
        return b""
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json" or headers.get("content-encoding", "identity") != "identity":
        raise _Refusal(415, "send JSON, uncompressed")
    try:
        async with asyncio.timeout(BODY_SECONDS):
            return await request.body()
    except TimeoutError:
        raise _Refusal(408, "the body did not arrive in time") from None
    except ClientDisconnect:
        raise _Refusal(400, "the body broke off") from None


async def _check_source(memories: AccessedMemories, source: str) -> None:
    """Check that a machine has copied this store, or the part of it that the principal may see now.
    `source` names what the machine has copied.

    Raises:
        _Refusal: the machine must fill its copy again.
    """
    if await memories.identity() != source:
        raise _Refusal(409, "the team's store, or what you may see of it, has changed")


def _problem(status: int, why: str) -> Response:
    answer = _response(status, exchange.encoded(ErrorBody(error=why, protocol=PROTOCOL)))
    if status == HTTPStatus.SERVICE_UNAVAILABLE:
        answer.headers["retry-after"] = str(RETRY_SECONDS)
    return answer


def _response(status: int, body: bytes) -> Response:
    return Response(body, status_code=status, media_type="application/json")
