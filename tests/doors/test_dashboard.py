"""`upwell dashboard`, the dashboard of a gateway over HTTP, and the commands that print the same
figures."""

import asyncio
import http.client
import json
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest

from tests.browser.past import live
from tests.doors.address import serving
from tests.doors.conformance.run import free_port
from tests.doors.conftest import script, write_config
from upwell.app import Settings, build


def asked(
    port: int, token: str, path: str, fields: Mapping[str, str] | None = None, **changed: str
) -> tuple[int, str]:
    """The status and body of the answer to a GET or, if there are fields, to a POST of a form."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    if fields is not None:
        headers |= {"HX-Request": "true", "Content-Type": "application/x-www-form-urlencoded"}
        headers |= {"Origin": f"http://127.0.0.1:{port}"}
    headers |= {name.replace("_", "-"): value for name, value in changed.items()}
    body = None if fields is None else urlencode(fields)
    connection.request("GET" if fields is None else "POST", f"/dashboard{path}", body, headers)
    response = connection.getresponse()
    raw = response.read().decode()
    connection.close()
    return response.status, raw


@contextmanager
def dashboard(environment: Mapping[str, str]) -> Iterator[tuple[int, str]]:
    """The port and the token of a running `upwell dashboard`."""
    running = subprocess.Popen(
        [sys.executable, "-m", "upwell", "dashboard", "--no-open"],
        env=dict(environment), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert running.stdout
    try:
        address = urlsplit(running.stdout.readline().strip())
        assert (address.hostname, address.path) == ("127.0.0.1", "/dashboard")
        yield address.port or 0, address.fragment.removeprefix("token=")
    finally:
        running.send_signal(signal.SIGINT)
        complaints = running.communicate(timeout=20)[1]
    assert running.returncode == 0, complaints


def test_the_command_serves_pages_with_the_figures_of_the_command_line(
    environment: Mapping[str, str], upwell: Callable[..., Any]
) -> None:
    upwell("remember", "The kettle whistles in B flat", "--path", "kettle.py")
    assert upwell("context", "which note does the kettle whistle?", "--session", "s").code == 0
    with dashboard(environment) as (port, token):
        status, shell = asked(port, "", "")
        assert (status, token in shell, "kettle" in shell) == (200, False, False)
        assert asked(port, "", "/view/now")[0] == 401
        events = asked(port, token, "/view/now")[1]
        assert "The kettle whistles in B flat" in events
        assert "kettle whistles" in asked(port, token, "/view/memories?q=kettle+whistle")[1]
        savings = asked(port, token, "/view/savings?days=1")[1]
        stats = upwell("stats", "--days", "1", "--json").json
        assert (stats["surfaced"], stats["asked"], stats["answered"]) == (0, 1, 1)
        assert "Nothing here yet" in savings, "an answer to a question is no event"
        rows = upwell("stats", "--by", "tool", "--since", "1d", "--json").json["rows"]
        assert [(row["name"], row["events"], row["asked"]) for row in rows] == [("ask", 0, 1)]
        total = upwell("gain", "--json").json["total"]
        assert (total["net"], total["said_tokens"]) == (0, 0)


def test_savings_shows_the_figures_of_the_ledger(
    environment: Mapping[str, str], upwell: Callable[..., Any], tmp_path: Path
) -> None:
    """A home with memories that surfaced, silences and a long result."""
    home, folder = Path(environment["UPWELL_HOME"]), tmp_path / "kitchen"
    home.mkdir()
    home.joinpath("config.toml").write_text("[agent]\ninput_price = 3.0\n")

    async def fill() -> None:
        app = await build(Settings(home=home, environment={}))
        try:
            await live(app, folder)
        finally:
            await app.aclose()

    asyncio.run(fill())
    stats = upwell("stats", "--days", "1", "--json").json
    gain = upwell("gain", "--days", "1", "--json").json
    total = gain["total"]
    assert stats["decisions"] == 14
    assert total["results"] == 1
    assert total["before"] > total["after"] > 0
    with dashboard(environment) as (port, token):
        savings = asked(port, token, "/view/savings?days=1")[1]
    assert tiles(savings) == {
        "long result": "1",
        "tokens before": f"{total['before']:,}",
        "tokens after": f"{total['after']:,}",
        "tokens that agents read again": f"{total['read_again']:,}",
        "tokens of memories added": f"{total['said_tokens']:,}",
        "tokens saved, net": f"{total['net']:,}",
        "said per 100 events": f"{stats['said_per_100']:.1f}",
        "used, where known": "–" if stats["used_share"] is None else f"{stats['used_share']:.0%}",
        "rated helpful": "0",
        "rated not helpful": "0",
        "events": "14",
    }
    assert total["said_tokens"] > 0
    assert (
        total["net"]
        == total["before"] - total["after"] - total["read_again"] - total["said_tokens"]
    )
    assert f'<p class="big">{total["net"]:,}</p>' in savings
    assert f"<b>${total['money']:.2f}</b>" in savings
    cells = dict(
        re.findall(r'<td title="[^"]*">([^<]+)</td><td class="n">([-0-9,]+)</td>', savings)
    )
    for row in (*gain["by_host"], *gain["by_tool"]):
        assert cells.get(row["name"], "0") == f"{row['net']:,}", "a row of zero is not listed"
    assert cells["kitchen"] == f"{total['net']:,}"


def test_a_changed_price_is_shown_without_a_restart(environment: Mapping[str, str]) -> None:
    home = Path(environment["UPWELL_HOME"])
    home.mkdir()

    async def fill() -> None:
        app = await build(Settings(home=home, environment={}))
        try:
            await live(app, home.parent / "kitchen")
        finally:
            await app.aclose()

    asyncio.run(fill())
    with dashboard(environment) as (port, token):

        def money() -> float | None:
            shown = re.search(r"about <b>\$([0-9.]+)</b>", asked(port, token, "/view/savings")[1])
            return float(shown[1]) if shown else None

        assert money() is None
        config = home / "config.toml"
        config.write_text("[agent]\ninput_price = 300.0\n")
        dear = money()
        assert dear
        config.write_text("[agent]\ninput_price = 30.00\n")
        assert money() == pytest.approx(dear / 10, abs=0.01)
        config.write_text("[agent\ninput_price = 3.0\n")
        assert money() == pytest.approx(dear / 10, abs=0.01), "a mistake changes nothing"


def tiles(page: str) -> dict[str, str]:
    """The figures at the top of a page, by their names."""
    return {name: text for name, text in re.findall(r"<dt>([^<]+)</dt><dd>([^<]+)</dd>", page)}


def test_changes_need_the_token_and_our_own_page(
    environment: Mapping[str, str], upwell: Callable[..., Any]
) -> None:
    memory = upwell("remember", "The kettle whistles in B flat").line
    fields = {"id": memory, "text": "The kettle hums"}
    with dashboard(environment) as (port, token):
        path = "/do/memory/edit"
        assert asked(port, "", path, fields)[0] == 401
        assert asked(port, token, path, fields, Origin="http://evil.example")[0] == 403
        assert asked(port, token, path, fields, Host="evil.example")[0] == 421
        assert asked(port, token, path, fields, HX_Request="")[0] == 403
        assert asked(port, token, path, fields, Content_Type="text/plain")[0] == 403
        assert upwell("read", memory).out == "The kettle whistles in B flat\n"
        assert asked(port, token, path, fields) == (200, "Saved.")
        assert upwell("read", memory).out == "The kettle hums\n"
        asked(port, token, "/do/off", {})
        assert upwell("doctor", "--json").out.find("`upwell on` resumes") > 0
        secret = "glpat-" + "Zk3vQ9wX7rT2bN5mL8pY"
        said = asked(port, token, "/do/remember", {"text": f"The token is {secret}"})[1]
        assert "A secret was masked" in said
        assert secret not in upwell("recall", "--json").out


def test_what_an_agent_did_is_stored_without_secrets(
    environment: Mapping[str, str], upwell: Callable[..., Any], tmp_path: Path
) -> None:
    secret = "ghp_" + "aB3dE5gH7jK9mN1pQ3sT5vW7yZ9bC1dE3fG5"
    event = {
        "hook_event_name": "PostToolUse", "session_id": "s", "cwd": str(tmp_path),
        "tool_name": "Bash", "tool_input": {"command": f"curl -H 'token: {secret}' example.org"},
        "tool_response": {"stdout": "ok"},
    }  # fmt: skip
    upwell("daemon", "start")
    upwell("hook", "claude", input=json.dumps(event))
    upwell("daemon", "stop")
    [shown] = [json.loads(line) for line in upwell("top", "--once", "--json").out.splitlines()]
    assert (shown["host"], shown["project"], shown["tool"]) == ("claude", str(tmp_path), "Bash")
    assert shown["step"].startswith("curl -H")
    home = Path(environment["UPWELL_HOME"])
    stored = b"".join(path.read_bytes() for path in home.glob("ledger.db*"))
    assert secret.encode() not in stored


def test_a_gateway_over_http_has_the_pages_and_shows_its_servers(tmp_path: Path) -> None:
    home = tmp_path / "home"
    write_config(home, {"up": script("upstream"), "gone": ["/nonexistent/server"]})
    with serving(home, tmp_path / "serve.log") as address:
        address.begin().call("up__echo", text="hi")
        health = asked(address.port, address.token, "/view/health")[1]
        states = re.findall(r"<td>(up|gone)</td><td><span[^>]*>(\w+)</span>", health)
        assert dict(states) == {"up": "ready", "gone": "failed"}
        assert "up__echo" in asked(address.port, address.token, "/view/now")[1]
        assert asked(address.port, "", "/view/now")[0] == 401


def test_the_daemon_has_the_pages_where_it_takes_hooks_over_http(
    environment: Mapping[str, str], upwell: Callable[..., Any]
) -> None:
    home, port = Path(environment["UPWELL_HOME"]), free_port()
    home.mkdir()
    (home / "config.toml").write_text(f"hook.port = {port}\n")
    upwell("remember", "The kettle whistles in B flat")
    upwell("daemon", "start")
    try:
        deadline = time.monotonic() + 30
        while not (home / "token").exists() or not is_open(port):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        token = (home / "token").read_text().strip()
        assert "B flat" in asked(port, token, "/view/memory")[1]
        assert asked(port, "", "/view/memory")[0] == 401
    finally:
        upwell("daemon", "stop")


def is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
