"""The HTTP application, with all routes behind the guard."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from upwell.ground.background import Receipt
from upwell.web.admission import Admission
from upwell.web.dashboard.routes import OPEN_PATHS as DASHBOARD_PATHS
from upwell.web.guard import Guard
from upwell.web.metrics import Metric, exposition

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
LOOPBACK = ("127.0.0.1", "localhost", "::1")


class AnswerHook(Protocol):
    """Answers an event with JSON. `name` is the event's name, or "" if the body contains it.
    `receipt` is settled once it is known whether the answer arrived.
    """

    async def __call__(self, host: str, name: str, body: bytes, *, receipt: Receipt) -> bytes: ...


def http_app(
    routes: Sequence[BaseRoute], admission: Admission, hosts: Iterable[str] = ()
) -> ASGIApp:
    """Put all routes behind one guard. `hosts` are accepted in addition to the loopback names."""
    application = Starlette(routes=list(routes))
    return Guard(application, admission, {*LOOPBACK, *hosts}, open_paths=DASHBOARD_PATHS)


def hook_routes(answer: AnswerHook) -> list[BaseRoute]:
    """Return `POST /hook/HOST` and `/hook/HOST/EVENT`, which answer an agent's event."""

    async def hook(request: Request) -> Response:
        names = request.path_params
        receipt = Receipt()
        try:
            body = await request.body()
            reply = await answer(names["host"], names.get("event", ""), body, receipt=receipt)
            return _Received(reply, receipt)
        except BaseException:
            receipt.settle(False)
            raise

    return [
        Route("/hook/{host}", hook, methods=["POST"]),
        Route("/hook/{host}/{event}", hook, methods=["POST"]),
    ]


class _Received(Response):
    """A JSON response whose receipt records whether the client was still connected when the whole
    response had been sent.
    """

    media_type = "application/json"

    def __init__(self, content: bytes, receipt: Receipt) -> None:
        super().__init__(content)
        self._receipt = receipt

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        disconnection = asyncio.ensure_future(receive())
        try:
            # Let the event loop notice a disconnection that has already happened.
            await asyncio.sleep(0)
            await super().__call__(scope, receive, send)
            self._receipt.settle(not disconnection.done())
        finally:
            self._receipt.settle(False)
            disconnection.cancel()


def health_routes(
    state: Callable[[], Mapping[str, Any]],
    metrics: Callable[[], Awaitable[Iterable[Metric]]],
    unready: Callable[[], str] = str,
) -> list[BaseRoute]:
    """Return `/healthz` and `/readyz` for everybody, and `/metrics` for Prometheus. `unready()`
    returns why this process should not get requests now, or "".
    """

    async def readyz(_: Request) -> Response:
        reason = unready()
        body = {"ready": not reason, **({"reason": reason} if reason else {})}
        return JSONResponse(body, status_code=503 if reason else 200)

    async def healthz(_: Request) -> Response:
        return JSONResponse({"ok": True, **state()})

    async def figures(_: Request) -> Response:
        return PlainTextResponse(exposition(await metrics()), media_type=METRICS_TYPE)

    return [
        Route("/healthz", healthz),
        Route("/readyz", readyz),
        Route("/metrics", figures),
    ]
