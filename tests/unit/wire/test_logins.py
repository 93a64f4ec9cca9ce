"""Logins: bound to an address, private, shared by processes."""

import json
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import httpx2
import pytest

from upwell.ground.errors import StoreCorrupt
from upwell.testing import ManualClock
from upwell.wire.logins import NEEDED, REQUIREMENT, Login, LoginNeeded, Logins
from upwell.wire.oauth import LoginAuth

URL = "https://example.org/mcp"
LOGIN = Login(
    url=URL,
    access_token="at-1",
    refresh_token="rt-1",
    expires_at=1_000.0,
    token_endpoint="https://example.org/token",
    client_id="c",
    client_secret="cs-1",
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "logins.json"


def test_a_login_applies_only_to_its_address(path: Path) -> None:
    logins = Logins(path)
    assert logins.get("x", URL) is None
    logins.put("x", LOGIN)
    assert logins.get("x", URL) == LOGIN
    assert logins.get("x", f"{URL}/other") is None
    assert logins.get("y", URL) is None
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_changes_of_another_process_are_read(path: Path) -> None:
    first, other = Logins(path), Logins(path)
    first.put("x", LOGIN)
    assert other.get("x", URL) == LOGIN
    first.put("y", replace(LOGIN, access_token="at-2"))
    other.put("x", replace(LOGIN, access_token="at-3"))
    assert [first.get(name, URL).access_token for name in "xy"] == ["at-3", "at-2"]
    assert first.put("x", None)
    assert not first.put("x", None)
    assert other.get("x", URL) is None


def test_nothing_secret_is_shown(path: Path) -> None:
    assert not {"at-1", "rt-1", "cs-1"} & set(repr(LOGIN).replace("'", " ").split())


@pytest.mark.parametrize(
    ("login", "description"),
    [
        (LOGIN, "renewed by itself"),
        (replace(LOGIN, refresh_token=""), "until 1970-01-01T00:16Z"),
        (replace(LOGIN, refresh_token="", expires_at=500.0), NEEDED),
        (replace(LOGIN, refresh_token="", expires_at=None), "yes"),
        (LOGIN.over(), NEEDED),
    ],
)
def test_the_description_of_a_login(login: Login, description: str) -> None:
    assert login.described(600.0) == description


@pytest.mark.parametrize("content", ["", "{}", '{"logins":[]}', '{"logins":{"x":{"no":1}}}'])
def test_an_invalid_file_is_reported(path: Path, content: str) -> None:
    path.write_text(content)
    with pytest.raises(StoreCorrupt):
        Logins(path).get("x", URL)


async def test_without_a_login_no_request_is_sent(path: Path) -> None:
    sent: list[httpx2.Request] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        sent.append(request)
        return httpx2.Response(200)

    auth = LoginAuth(Logins(path), "x", URL, ManualClock())
    async with httpx2.AsyncClient(transport=httpx2.MockTransport(answer), auth=auth) as client:
        with pytest.raises(LoginNeeded):
            await client.post(URL)
        path.write_text(json.dumps({"logins": "no"}))
        with pytest.raises(LoginNeeded):
            await client.post(URL)
    assert sent == []


async def test_a_login_that_cannot_be_renewed_has_expired(path: Path) -> None:
    logins = Logins(path)
    logins.put("x", replace(LOGIN, refresh_token="", expires_at=None))
    auth = LoginAuth(logins, "x", URL, ManualClock())
    transport = httpx2.MockTransport(lambda _: httpx2.Response(401))
    async with httpx2.AsyncClient(transport=transport, auth=auth) as client:
        with pytest.raises(LoginNeeded, match="expired"):
            await client.post(URL)
    result = logins.get("x", URL)
    assert result
    assert not result.holds


def test_the_sdk_is_not_loaded_for_a_server_that_runs() -> None:
    code = (
        "import sys, upwell.app, upwell.gateway.upstreams.connection;"
        "import upwell.wire.http, upwell.wire.oauth;"
        "sys.exit('mcp' in sys.modules or 'pydantic' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


@pytest.mark.parametrize(
    ("description", "wanted"),
    [
        ('Bearer error="insufficient_scope", scope="a b"', "a b"),
        ("Bearer error=insufficient_scope, scope=a, realm=x", "a"),
        ('Bearer scope="a", error="invalid_token"', ""),
        ('Bearer error="insufficient_scope"', ""),
        (f'Bearer error="insufficient_scope", scope="{"a" * 501}"', ""),
        ("", ""),
    ],
)
async def test_missing_scopes_are_recorded_for_the_next_login(
    path: Path, description: str, wanted: str
) -> None:
    logins = Logins(path)
    logins.put("x", replace(LOGIN, wanted="b"))
    flow = LoginAuth(logins, "x", URL, ManualClock(0.0)).async_auth_flow(
        httpx2.Request("POST", URL)
    )
    await anext(flow)
    response = httpx2.Response(403, headers={"www-authenticate": description})
    with pytest.raises(StopAsyncIteration):
        await flow.asend(response)
    assert (REQUIREMENT in response.extensions) == bool(wanted)
    login = logins.get("x", URL)
    assert login is not None
    assert login.wanted.split() == list(dict.fromkeys(["b", *wanted.split()]))
