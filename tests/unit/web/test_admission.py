"""Who is admitted, and what is recorded of the others."""

from typing import Any

from starlette.responses import PlainTextResponse
from starlette.routing import Route

from upwell.ground.types.rpc import granted
from upwell.web.guard import Admission, Denials
from upwell.web.routes import http_app

ADA, BOB = granted("ada"), granted("bob")


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


async def test_denials_are_recorded() -> None:
    denials: list[tuple[str, str]] = []
    strangers: list[tuple[str, str]] = []

    async def endpoint(request: Any) -> Any:
        return PlainTextResponse("in")

    admission = Admission(
        {"a": ADA, "b": BOB}.get,
        denied=Denials(
            lambda actor, why: denials.append((actor, why)),
            lambda address, why: strangers.append((address, why)),
        ),
    )
    app = http_app([Route("/mcp", endpoint, methods=["POST"])], admission)
    assert (await asked(app, "a"))[0] == 200
    assert (await asked(app, "b", "/metrics"))[0] == 403
    assert denials == [("bob", "only the owner of the home may use this path")]
    assert not strangers
    assert (await asked(app, "made-up"))[0] == 401
    assert strangers == [("192.0.2.7", "unknown token")]
