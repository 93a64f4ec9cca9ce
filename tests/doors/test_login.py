"""Servers that require OAuth: the login in a browser, and its life while a gateway runs."""

import json
import stat
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Done, Upwell
from tests.doors.conftest import Gateway, script
from tests.doors.peer import Peer, text_of
from tests.doors.reading import complaint

BROWSER = """
import sys, urllib.error, urllib.request
try:
    urllib.request.urlopen(sys.argv[1], timeout=20).read()
except urllib.error.HTTPError as error:
    error.close()
"""


class Guarded:
    """A server that requires a login, and its reports about itself."""

    def __init__(self, port: int) -> None:
        self.own = f"http://127.0.0.1:{port}"
        self.url = f"{self.own}/mcp"

    def control(self, what: str) -> dict[str, Any]:
        with urllib.request.urlopen(f"{self.own}/control/{what}", timeout=10) as answer:
            return dict(json.load(answer))

    @property
    def state(self) -> dict[str, Any]:
        return self.control("state")


@pytest.fixture
def guarded() -> Iterator[Guarded]:
    running = subprocess.Popen(script("oauth"), stdout=subprocess.PIPE, text=True)
    assert running.stdout
    try:
        yield Guarded(int(running.stdout.readline()))
    finally:
        running.terminate()
        running.wait(10)
        running.stdout.close()


@pytest.fixture
def browser(tmp_path: Path) -> str:
    """A browser that opens addresses and follows redirects."""
    path = tmp_path / "browser.py"
    path.write_text(BROWSER)
    return f"{sys.executable} {path} %s"


class Person:
    """A user with a shell and a browser."""

    def __init__(self, upwell: Upwell, browser: str) -> None:
        self._upwell = upwell
        self._browser = browser

    def add(self, url: str) -> None:
        assert self._upwell("add", "x", "--url", url, "--auth", "oauth").code == 0

    def log_in(self, *options: str) -> Done:
        return self._upwell("login", "x", *options, env={"BROWSER": self._browser})

    def run(self, *args: str) -> Done:
        return self._upwell(*args)

    def login(self) -> str:
        [row] = json.loads(self.run("list", "--json").out)["servers"]
        return str(row["login"])


@pytest.fixture
def person(upwell: Upwell, browser: str) -> Person:
    return Person(upwell, browser)


def whoami(peer: Peer) -> dict[str, Any]:
    return peer.ask("tools/call", {"name": "x__whoami", "arguments": {}}, 20)


def token(peer: Peer) -> str:
    return text_of(whoami(peer)["result"]).removeprefix("Bearer ")


def test_without_a_login_a_call_names_the_command_to_run(
    gateway: Gateway, guarded: Guarded, person: Person
) -> None:
    peer = gateway({"x": {"url": guarded.url, "auth": "oauth"}, "up": script("upstream")})
    peer.wait_for_tools("up__echo")
    message = complaint(whoami(peer))
    assert "'x' needs a login" in message
    assert "upwell login x" in message
    assert "\n" not in message
    assert text_of(peer.call("up__echo", text="on")) == "on"
    doctor = person.run("doctor")
    assert doctor.code == 1
    assert "upwell login x" in doctor.err
    state = guarded.state
    assert (state["registered"], state["authorized"]) == (0, 0), "nothing asks a person in serve"


def test_a_login_in_the_browser_is_used_by_a_running_gateway(
    gateway: Gateway, guarded: Guarded, person: Person, home: Path
) -> None:
    peer = gateway({"x": {"url": guarded.url, "auth": "oauth"}})
    assert "login" in complaint(whoami(peer))
    done = person.log_in()
    assert done.line == "signed in to x (renewed by itself)"
    assert f"{guarded.own}/authorize?" in done.err
    assert token(peer) in guarded.state["tokens"]
    assert person.login() == "renewed by itself"
    parts = json.loads(person.run("doctor", "--json").out)["parts"]
    assert parts["server x"]["detail"] == "1 tool; login: renewed by itself"


def test_tokens_are_in_one_private_file(
    gateway: Gateway, guarded: Guarded, person: Person, home: Path
) -> None:
    person.add(guarded.url)
    done = person.log_in()
    peer = gateway()
    peer.wait_for_tools("x__whoami")
    whoami(peer)
    guarded.control("expire")
    whoami(peer)
    peer.close()
    tokens = guarded.state["tokens"]
    path = home / "logins.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert all(entry in path.read_text() for entry in tokens)
    shown = done.out + done.err + peer.stderr() + person.run("config", "show", "--json").out
    files = [entry for entry in home.rglob("*") if entry.is_file() and entry != path]
    texts = [shown, *(entry.read_bytes().decode(errors="replace") for entry in files)]
    secrets = json.loads(path.read_text())["logins"]["x"]
    for secret in (*tokens, secrets["client_secret"]):
        assert not any(secret in text for text in texts)


def test_an_expired_token_is_renewed_once_for_all_calls(
    gateway: Gateway, guarded: Guarded, person: Person
) -> None:
    person.add(guarded.url)
    assert person.log_in().code == 0
    peers = [gateway(), gateway()]
    for peer in peers:
        peer.wait_for_tools("x__whoami")
    first = token(peers[0])
    guarded.control("expire")
    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda p: [p.start("tools/call", CALL) for _ in range(5)], peers))
    reply = {
        text_of(peer.reply(number, 20)["result"])
        for peer, numbers in zip(peers, answers, strict=True)
        for number in numbers
    }
    [renewed] = reply
    assert first not in renewed
    assert guarded.state["refreshed"] == 1, "by one of two processes"


CALL = {"name": "x__whoami", "arguments": {}}


def test_a_token_is_renewed_before_it_expires(
    gateway: Gateway, guarded: Guarded, person: Person
) -> None:
    person.add(guarded.url)
    guarded.control("set?lifetime=5")
    assert person.log_in().code == 0
    guarded.control("set?lifetime=3600")
    peer = gateway()
    peer.wait_for_tools("x__whoami")
    state = guarded.state
    assert state["refreshed"] == 1
    assert "at-" not in state["strangers"], "a token that is nearly over is not tried"


def test_a_revoked_login_names_the_command_to_run(
    gateway: Gateway, guarded: Guarded, person: Person
) -> None:
    person.add(guarded.url)
    assert person.log_in().code == 0
    peer = gateway()
    peer.wait_for_tools("x__whoami")
    guarded.control("revoke")
    message = complaint(whoami(peer))
    assert "'x' needs a login: the login has expired" in message
    assert "upwell login x" in message
    assert person.login() == "needed"
    asked = guarded.state["refused"]
    whoami(peer)
    assert guarded.state["refused"] == asked, "what is over is not asked for again"
    assert person.log_in().code == 0
    assert token(peer) in guarded.state["tokens"]


def test_a_login_with_too_few_scopes_names_the_command_to_run_and_gets_more(
    gateway: Gateway, guarded: Guarded, person: Person
) -> None:
    person.add(guarded.url)
    assert person.log_in().code == 0
    peer = gateway()
    peer.wait_for_tools("x__whoami")
    guarded.control('set?wider="notes:write%20notes:read"')
    message = complaint(whoami(peer))
    assert "more rights (notes:write notes:read)" in message
    assert "upwell login x" in message
    assert person.login() == "too narrow: log in again"
    assert peer.ask("tools/list", {}, 10)["result"]["tools"], "the server is not given up"
    assert person.log_in().code == 0
    assert person.login() == "renewed by itself"
    assert token(peer) in guarded.state["tokens"]


def test_a_machine_logs_in_with_a_secret_and_without_a_browser(
    gateway: Gateway, guarded: Guarded, upwell: Upwell, home: Path
) -> None:
    assert upwell("add", "x", "--url", guarded.url, "--auth", "oauth").code == 0
    args = ["login", "x", "--client-id", "robot", "--client-secret-env", "ROBOT"]
    assert "--issuer" in upwell(*args, env={"ROBOT": "hush-robot"}).err
    elsewhere = upwell(*args, "--issuer", "https://a.example", env={"ROBOT": "hush-robot"})
    assert elsewhere.code == 1
    assert guarded.state["machines"] == 0, "nobody else is told the secret"
    done = upwell(*args, "--issuer", guarded.own, env={"ROBOT": "hush-robot"})
    assert done.line == "signed in to x (renewed by itself)"
    assert "hush-robot" not in done.out + done.err + (home / "config.toml").read_text()
    peer = gateway()
    peer.wait_for_tools("x__whoami")
    guarded.control("expire")
    assert token(peer) in guarded.state["tokens"]
    assert guarded.state["machines"] == 2


def test_a_login_is_bound_to_its_address(
    gateway: Gateway, guarded: Guarded, person: Person
) -> None:
    person.add(guarded.url)
    assert person.log_in().code == 0
    peer = gateway({"x": {"url": f"{guarded.url}?other", "auth": "oauth"}})
    assert "needs a login" in complaint(whoami(peer))
    assert person.login() == "needed"
    assert "at-" not in guarded.state["strangers"]


def test_logging_in_changes_the_configuration_and_logging_out_removes_the_login(
    guarded: Guarded, person: Person, home: Path
) -> None:
    assert person.run("add", "x", "--url", guarded.url).code == 0
    doctor = person.run("doctor")
    assert "upwell login x" in doctor.err
    assert person.log_in().code == 0
    assert 'auth = "oauth"' in (home / "config.toml").read_text()
    assert person.run("logout", "x").line == "signed out of x"
    assert "at-" not in (home / "logins.json").read_text()
    assert person.login() == "needed"
    assert person.run("logout", "x").line == "not signed in to x"


def test_a_user_who_declines(guarded: Guarded, person: Person, home: Path) -> None:
    person.add(guarded.url)
    guarded.control("set?deny=true")
    done = person.log_in()
    assert done.code == 1
    assert "access_denied" in done.err
    assert "Traceback" not in done.err
    assert not (home / "logins.json").exists()


def test_a_client_id_given_beforehand_is_not_registered(guarded: Guarded, person: Person) -> None:
    person.add(guarded.url)
    assert person.log_in("--client-id", "agreed-on").code == 0
    state = guarded.state
    assert (state["registered"], state["exchanged"]) == (0, 1)


@pytest.mark.parametrize(
    ("args", "why"),
    [
        (("login", "nobody"), "there is no server 'nobody'"),
        (("login", "up"), "is a program"),
        (("add", "y", "--auth", "oauth", "--", "true"), "--auth takes only oauth, and needs --url"),
        (("add", "y", "--url", "http://x", "--auth", "basic"), "--auth takes only oauth"),
    ],
)
def test_impossible_logins(upwell: Upwell, args: tuple[str, ...], why: str) -> None:
    assert upwell("add", "up", "--", "true").code == 0
    done = upwell(*args)
    assert done.code in (1, 2)
    assert why in done.err
    assert len(done.err.splitlines()) == 1


def test_a_server_that_needs_no_login(person: Person, tmp_path: Path) -> None:
    running = subprocess.Popen(script("web"), stdout=subprocess.PIPE, text=True)
    assert running.stdout
    try:
        person.add(f"http://127.0.0.1:{running.stdout.readline().strip()}/mcp")
        done = person.log_in()
        assert done.code == 1
        assert "needs no login" in done.err
    finally:
        running.terminate()
        running.wait(10)
        running.stdout.close()
