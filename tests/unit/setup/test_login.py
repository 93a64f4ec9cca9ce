"""The return from the browser, and the addresses to which a server may send us."""

import asyncio
import sys
from urllib.parse import parse_qs, urlsplit

import pytest

from upwell.ground.errors import UsageError
from upwell.setup.login import Callback, LoginRequest, check, log_in, with_scope

OWN = "https://mcp.example.org/mcp"


async def ask(callback: Callback, request: str) -> bytes:
    port = int(callback.uri.rpartition(":")[2].partition("/")[0])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request.encode())
    await writer.drain()
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer.split(b"\r\n")[0]


async def test_a_missing_sdk_is_one_line_with_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)
    with pytest.raises(UsageError, match="SDK") as missing:
        await log_in(LoginRequest(server="s", url=OWN))
    assert missing.value.hint == "in upwell's checkout, run: uv tool install '.[login]'"


async def test_only_the_current_login_is_accepted() -> None:
    async with Callback() as callback:
        early = await ask(callback, "GET /callback?code=c&state= HTTP/1.1\r\n\r\n")
        callback.expect("s3cret", "<b>x</b>")
        coming = asyncio.create_task(callback.answer())
        for other in (
            "/callback?code=evil&state=other",
            "/callback?code=evil",
            "/?code=evil&state=s3cret",
        ):
            assert b"200" not in await ask(callback, f"GET {other} HTTP/1.1\r\n\r\n")
        assert await ask(callback, "POST /callback?state=s3cret HTTP/1.1\r\n\r\n") == b""
        assert await ask(callback, "nonsense\r\n\r\n") == b""
        assert not coming.done()
        good = "GET /callback?code=c%2F1&state=s3cret&iss=i HTTP/1.1\r\nHost: x\r\n\r\n"
        assert b"200" in await ask(callback, good)
        again = "GET /callback?code=late&state=s3cret HTTP/1.1\r\n\r\n"
        await ask(callback, again)
        assert await coming == {"code": "c/1", "state": "s3cret", "iss": "i"}
    assert b"400" in early


@pytest.mark.parametrize(
    ("address", "url"),
    [
        ("https://login.example.net/authorize?x=1", OWN),
        ("http://127.0.0.1:9/token", "http://localhost:8/mcp"),
        ("http://intranet:8080/token", "http://intranet:8080/mcp"),
    ],
)
def test_addresses_that_may_be_contacted(address: str, url: str) -> None:
    check(address, url)


@pytest.mark.parametrize(
    ("address", "url"),
    [
        ("http://login.example.net/token", OWN),
        ("http://127.0.0.1:9/token", OWN),
        ("http://169.254.169.254/latest", OWN),
        ("https://169.254.169.254/latest", OWN),
        ("https://[fe80::1]/token", OWN),
        ("https://metadata.google.internal/", OWN),
        ("http://intranet:8081/token", "http://intranet:8080/mcp"),
        ("javascript:alert(1)", OWN),
        ("file:///etc/passwd", OWN),
    ],
)
def test_addresses_that_may_not_be_contacted(address: str, url: str) -> None:
    with pytest.raises(PermissionError):
        check(address, url)


@pytest.mark.parametrize(
    ("address", "scope", "asked"),
    [
        ("https://a.example/authorize?state=s&scope=read", "", ["read"]),
        ("https://a.example/authorize?state=s&scope=read+list", "write read", ["read list write"]),
        ("https://a.example/authorize?state=s", "write", ["write"]),
    ],
)
def test_extra_scopes_are_requested_besides_the_usual_ones(
    address: str, scope: str, asked: list[str]
) -> None:
    options = parse_qs(urlsplit(with_scope(address, scope)).query)
    assert options == {"state": ["s"], "scope": asked}
