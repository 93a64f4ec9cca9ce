"""Rates of principals, and who is admitted."""

from typing import Any

import pytest
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from upwell.ground.types.principal import OWNER, granted
from upwell.testing import ManualClock
from upwell.web import admission as admission_module
from upwell.web.admission import Admission, Denials, Rates, TooMany
from upwell.web.options import LimitOptions
from upwell.web.routes import http_app

ADA, BOB = granted("ada"), granted("bob")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def limited(clock: ManualClock, **limits: int) -> Rates:
    return Rates(LimitOptions(**limits), clock)


def test_a_principal_has_a_rate_of_its_own(clock: ManualClock) -> None:
    rates = limited(clock, requests_per_minute=3)
    assert [rates.take(ADA) for _ in range(3)] == [None] * 3
    assert rates.take(ADA) == TooMany("you may make 3 requests a minute", 20)
    assert rates.take(BOB) is None
    assert [rates.take(OWNER) for _ in range(50)] == [None] * 50
    clock.advance(20)
    assert rates.take(ADA) is None
    assert rates.take(ADA) is not None


def test_what_is_remembered_is_bounded(clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission_module, "MAX_TRACKED", 10)
    rates = limited(clock, requests_per_minute=1)
    for number in range(100):
        assert rates.take(granted(f"p{number}")) is None
    assert len(rates._buckets) == 10


def test_without_limits_nothing_is_counted(clock: ManualClock) -> None:
    rates = limited(clock)
    assert [rates.take(ADA) for _ in range(1_000)] == [None] * 1_000
    assert not rates._buckets


async def asked(app: Any, token: str, path: str = "/mcp") -> tuple[int, dict[str, str], bytes]:
    sent: list[Any] = []
    headers = [(b"host", b"localhost"), (b"authorization", f"Bearer {token}".encode())]
    scope = {
        "type": "http",
        "method": "POST",
        "path": path,
        "headers": headers,
        "query_string": b"",
        "client": ("192.0.2.7", 40_000),
    }

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    await app(scope, receive, send)
    names = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], names, sent[1]["body"]


async def test_an_excess_is_answered_with_429_and_recorded(clock: ManualClock) -> None:
    denials: list[tuple[str, str]] = []
    strangers: list[tuple[str, str]] = []

    async def endpoint(request: Any) -> Any:
        return PlainTextResponse("in")

    admission = Admission(
        {"a": ADA, "b": BOB}.get,
        rates=limited(clock, requests_per_minute=2),
        denied=Denials(
            lambda actor, why: denials.append((actor, why)),
            lambda address, why: strangers.append((address, why)),
        ),
    )
    app = http_app([Route("/mcp", endpoint, methods=["POST"])], admission)
    assert [(await asked(app, "a"))[0] for _ in range(3)] == [200, 200, 429]
    status, headers, body = await asked(app, "a")
    assert (status, headers["retry-after"]) == (429, "30")
    assert body == b'{"error":"you may make 2 requests a minute"}'
    assert (await asked(app, "b", "/metrics"))[0] == 403
    assert denials[0] == ("ada", "you may make 2 requests a minute")
    assert denials[-1] == ("bob", "only the owner of the home may use this path")
    assert not strangers
    assert (await asked(app, "made-up"))[0] == 401
    assert strangers == [("192.0.2.7", "unknown token")]
