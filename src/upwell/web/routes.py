"""Metrics in Prometheus' text format 0.0.4, and the HTTP application, with all routes behind the
guard.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, Protocol

from msgspec import Struct, field
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from upwell.ground.background import Receipt
from upwell.ground.trace import SECONDS, Histogram, Meter
from upwell.web.dashboard.routes import OPEN_PATHS as DASHBOARD_PATHS
from upwell.web.guard import Admission, Guard

Labels = tuple[tuple[str, str], ...]


class Metric(Struct, frozen=True):
    """One metric. `samples` maps labels to values. For a histogram, `buckets` maps labels to a
    pair: the cumulative count for each bound, and the sum of all values."""

    name: str
    help: str
    kind: str = "counter"
    samples: Mapping[Labels, float] = field(default_factory=dict)
    buckets: Mapping[Labels, tuple[Mapping[str, int], float]] = field(default_factory=dict)

    def lines(self) -> Iterator[str]:
        yield f"# HELP {self.name} {self.help}"
        yield f"# TYPE {self.name} {self.kind}"
        for labels, value in sorted(self.samples.items()):
            yield f"{self.name}{_labels(labels)} {_number(value)}"
        for labels, (bounds, total) in sorted(self.buckets.items()):
            for bound, count in bounds.items():
                yield f"{self.name}_bucket{_labels((*labels, ('le', bound)))} {count}"
            yield f"{self.name}_sum{_labels(labels)} {_number(total)}"
            yield f"{self.name}_count{_labels(labels)} {bounds['+Inf']}"


def hook_metric(outcomes: Mapping[tuple[str, str], int]) -> Metric:
    samples: dict[Labels, float] = {
        (("host", host), ("outcome", outcome)): float(count)
        for (host, outcome), count in outcomes.items()
    }
    return Metric("upwell_hook_events_total", "Hook events since the start", samples=samples)


def gauge(name: str, help: str, value: float) -> Metric:
    """A metric that goes up and down."""
    return Metric(name, help, "gauge", {(): float(value)})


def counted(name: str, help: str, value: float) -> Metric:
    """A metric that only increases."""
    return Metric(name, help, "counter", {(): value})


def of_meter(meter: Meter) -> Metric:
    samples = {_named(meter.labels, key): total for key, total in meter.totals.items()}
    return Metric(meter.name, meter.help, samples=samples)


def of_histogram(histogram: Histogram) -> Metric:
    bounds = [*(f"{bound:g}" for bound in SECONDS), "+Inf"]
    buckets = {
        _named(histogram.labels, key): (dict(zip(bounds, accumulate(counts), strict=True)), total)
        for key, (counts, total) in histogram.totals.items()
    }
    return Metric(histogram.name, histogram.help, "histogram", buckets=buckets)


def exposition(metrics: Iterable[Metric]) -> str:
    return "".join(f"{line}\n" for metric in metrics for line in metric.lines())


def _named(names: tuple[str, ...], values: tuple[str, ...]) -> Labels:
    return tuple(zip(names, values, strict=True))


def _number(value: float) -> str:
    return str(int(value)) if value.is_integer() else repr(value)


_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


def _labels(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in labels) + "}"


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
    """Put all routes behind one guard. `hosts` are accepted besides the loopback names."""
    application = Starlette(routes=list(routes))
    return Guard(application, admission, {*LOOPBACK, *hosts}, open_paths=DASHBOARD_PATHS)


def hook_routes(answer: AnswerHook) -> list[BaseRoute]:
    """`POST /hook/HOST` and `/hook/HOST/EVENT` answer an agent's event."""

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
    """`/healthz` and `/readyz` are for everybody, `/metrics` for Prometheus. `unready()` returns
    why this process should not get requests now, or ""."""

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
