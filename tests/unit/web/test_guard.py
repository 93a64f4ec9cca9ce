"""The guard before every HTTP route, without a server: ASGI in, ASGI out."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from upwell.ground.background import Receipt
from upwell.ground.errors import StoreUnwritable
from upwell.ground.types.rpc import IN_SCOPE, OWNER, granted
from upwell.web.guard import Admission, Guard
from upwell.web.routes import exposition, gauge, health_routes, hook_metric, hook_routes, http_app
from upwell.web.tokens import Tokens, issue, token_of

TOKEN = "t" * 43
NOWHERE = Path("/nonexistent/tokens.json")
GOOD = {"host": "127.0.0.1:8765", "authorization": f"Bearer {TOKEN}"}


async def answer(host: str, event: str, body: bytes, *, receipt: Receipt) -> bytes:
    return b'{"host":"%s","event":"%s","size":%d}' % (host.encode(), event.encode(), len(body))


async def metrics() -> list[Any]:
    return [gauge("upwell_up", "Up", 1)]


def application() -> Any:
    routes = [*hook_routes(answer), *health_routes(lambda: {"version": "1"}, metrics)]
    return http_app(routes, Admission(Tokens(TOKEN, NOWHERE).principal_of), ["gateway.lan"])


async def asked(
    path: str,
    headers: Mapping[str, str | list[str]],
    body: bytes = b"{}",
    method: str = "POST",
    app: Any = None,
    chunks: int = 1,
) -> tuple[int, bytes, dict[str, str]]:
    """Status, body and headers of the answer to a request whose body comes in this many chunks."""
    path, _, query = path.partition("?")
    step = max(1, -(-len(body) // chunks))
    parts = [body[at : at + step] for at in range(0, len(body), step)] or [b""]
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        if not parts:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": parts.pop(0), "more_body": bool(parts)}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "scheme": "http",
        "http_version": "1.1",
        "headers": [
            (name.encode(), value.encode("latin-1"))
            for name, values in headers.items()
            for value in ([values] if isinstance(values, str) else values)
        ],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 8765),
    }
    await (app or application())(scope, receive, send)
    head = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], b"".join(part.get("body", b"") for part in sent[1:]), head


async def test_a_request_with_the_token_is_answered() -> None:
    status, body, head = await asked("/hook/claude", GOOD)
    assert (status, body) == (200, b'{"host":"claude","event":"","size":2}')
    assert head["x-content-type-options"] == "nosniff"
    status, body, _ = await asked("/hook/copilot/postToolUse", GOOD, b"12345", chunks=3)
    assert body == b'{"host":"copilot","event":"postToolUse","size":5}'


@pytest.mark.parametrize(
    ("status", "change"),
    [
        (401, {"authorization": ""}),
        (401, {"authorization": "Bearer"}),
        (401, {"authorization": f"Basic {TOKEN}"}),
        (401, {"authorization": f"Bearer {TOKEN}x"}),
        (401, {"authorization": f"Bearer {TOKEN[:-1]}"}),
        (401, {"authorization": "Bearer \xff\xfe"}),
        (421, {"host": "evil.example"}),
        (421, {"host": "127.0.0.1.evil.example:8765"}),
        (421, {"host": ""}),
        (421, {"host": "127.0.0.1:@evil.example"}),
        (421, {"host": "127.0.0.1:8765@evil.example"}),
        (421, {"host": "user@127.0.0.1"}),
        (421, {"host": "[::1]evil.example"}),
        (421, {"host": "[::1].evil.example:8765"}),
        (421, {"host": "[[::1]]"}),
        (421, {"host": "[127.0.0.1]:x"}),
        (421, {"host": "127.0.0.1:80:80"}),
        (421, {"host": "127.0.0.1:\xb2"}),
        (421, {"host": "127.0.0.1:80\n"}),
        (421, {"host": "localhost."}),
        (403, {"origin": "http://127.0.0.1:@evil.example"}),
        (403, {"origin": "http://[::1]evil.example"}),
        (403, {"origin": "http://localhost/page"}),
        (403, {"origin": "http://localhost http://evil.example"}),
        (403, {"origin": "file://localhost"}),
        (403, {"origin": "//localhost"}),
        (403, {"origin": ""}),
        (403, {"origin": "https://evil.example"}),
        (403, {"origin": "null"}),
        (403, {"origin": "http://["}),
        (403, {"origin": "http://localhost.evil.example:8765"}),
        (400, {"content-length": "-1"}),
        (400, {"content-length": "\xb2"}),
        (400, {"content-length": "9" * 5_000}),
        (413, {"content-length": "999999999"}),
    ],
)
async def test_other_requests_are_refused(status: int, change: Mapping[str, str]) -> None:
    result, body, _ = await asked("/hook/claude", {**GOOD, **change})
    assert result == status
    assert b"size" not in body


@pytest.mark.parametrize(
    "change",
    [
        {"host": "localhost"},
        {"host": "[::1]:8765"},
        {"host": "GATEWAY.lan:80"},
        {"origin": "http://localhost:8765"},
        {"authorization": f"bearer  {TOKEN} "},
    ],
)
async def test_our_own_host_names_are_accepted(change: Mapping[str, str]) -> None:
    assert (await asked("/hook/claude", {**GOOD, **change}))[0] == 200


@pytest.mark.parametrize(
    ("status", "change"),
    [
        (421, {"host": ["127.0.0.1:8765", "evil.example"]}),
        (421, {"host": ["evil.example", "127.0.0.1:8765"]}),
        (421, {"host": []}),
        (403, {"origin": ["http://localhost", "https://evil.example"]}),
        (403, {"origin": ["https://evil.example", "http://localhost"]}),
    ],
)
async def test_a_header_that_is_there_twice_is_not_chosen_from(
    status: int, change: Mapping[str, list[str]]
) -> None:
    assert (await asked("/hook/claude", {**GOOD, **change}))[0] == status
    assert (await asked("/healthz", {**GOOD, **change}, method="GET"))[0] == status


async def test_a_body_that_grows_is_cut_off() -> None:
    status, _, _ = await asked("/hook/claude", GOOD, b"x" * 5_000_000, chunks=50)
    assert status == 413


async def test_health_needs_no_token_and_metrics_need_one() -> None:
    bare = {"host": "127.0.0.1"}
    status, body, _ = await asked("/healthz", bare, method="GET")
    assert (status, body) == (200, b'{"ok":true,"version":"1"}')
    assert (await asked("/metrics", bare, method="GET"))[0] == 401
    _, body, _ = await asked("/metrics", GOOD, method="GET")
    assert body == b"# HELP upwell_up Up\n# TYPE upwell_up gauge\nupwell_up 1\n"
    assert (await asked("/healthz", {"host": "evil.example"}, method="GET"))[0] == 421


async def test_a_given_token_opens_only_mcp(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    token = issue(path, "ada", ["decisions"])
    came: list[Any] = []

    async def mcp(request: Any) -> Any:
        came.append(request.scope[IN_SCOPE])
        return PlainTextResponse("in")

    routes = [Route("/mcp", mcp, methods=["POST"]), *hook_routes(answer)]
    app = http_app(routes, Admission(Tokens(TOKEN, path).principal_of))
    ada = {**GOOD, "authorization": f"Bearer {token}"}
    assert (await asked("/mcp", ada, app=app))[0] == 200
    assert (await asked("/hook/claude", ada, app=app))[0] == 403
    assert (await asked("/mcp", GOOD, app=app))[0] == 200
    assert (await asked("/hook/claude", GOOD, app=app))[0] == 200
    assert came == [granted("ada", ["decisions"]), OWNER]


async def test_unknown_paths_and_methods() -> None:
    assert (await asked("/nothing", GOOD))[0] == 404
    assert (await asked("/hook/claude", GOOD, method="GET"))[0] == 405


async def test_websockets_are_refused() -> None:
    async def never(*_: Any) -> None:
        raise AssertionError("let in")

    tokens = Tokens(TOKEN, NOWHERE)
    await Guard(never, Admission(tokens.principal_of), ["localhost"])(
        {"type": "websocket"}, never, never
    )


def test_labels_are_escaped() -> None:
    text = exposition([hook_metric({("claude", 'a"\n\\'): 3})])
    assert text.splitlines()[-1] == (
        'upwell_hook_events_total{host="claude",outcome="a\\"\\n\\\\"} 3'
    )


def test_the_token_is_created_once(tmp_path: Path) -> None:
    path = tmp_path / "token"
    token = token_of(path)
    assert len(token) > 40
    assert path.stat().st_mode & 0o777 == 0o600
    assert token_of(path) == token


def test_a_token_that_protects_nothing_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "token"
    for content in (b"", b"short\n", b"\xff" * 40):
        path.write_bytes(content)
        with pytest.raises(StoreUnwritable):
            token_of(path)
