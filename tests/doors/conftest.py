"""Gateways as subprocesses, and the servers behind them."""

import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.doors.npm import install
from tests.doors.peer import Peer

SERVERS = Path(__file__).parent / "servers"
QUICK = {"call_timeout_seconds": 3.0, "connect_timeout_seconds": 4.0}
"""Limits short enough for a test to wait for."""

Server = Sequence[str] | Mapping[str, Any]


def script(name: str, *args: str) -> list[str]:
    """The command line of one of the test upstreams."""
    return [sys.executable, str(SERVERS / f"{name}.py"), *args]


@contextmanager
def listening(name: str, *args: str, end: int = signal.SIGTERM) -> Iterator[str]:
    """The address of a running test server on HTTP. On exit, the signal `end` stops it."""
    running = subprocess.Popen(script(name, *args), stdout=subprocess.PIPE, text=True)
    assert running.stdout
    try:
        yield f"http://127.0.0.1:{running.stdout.readline().strip()}/mcp"
    finally:
        running.send_signal(end)
        running.wait(10)
        running.stdout.close()


def toml(value: Any) -> str:
    """A TOML value. Strings, numbers and arrays are the same as in JSON."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{json.dumps(k)} = {toml(v)}" for k, v in value.items()) + "}"
    return json.dumps(value)


def write_config(home: Path, servers: Mapping[str, Server], **tables: Mapping[str, Any]) -> None:
    """Write `config.toml` with these servers and tables. `tool` holds one table per pattern."""
    lines = []
    for name, server in servers.items():
        table = (
            server
            if isinstance(server, Mapping)
            else {"command": server[0], "args": list(server[1:])}
        )
        lines.append(f'[server."{name}"]')
        lines += [f"{key} = {toml(value)}" for key, value in table.items()]
    tables = {"gateway": QUICK, **tables}
    for name, table in tables.items():
        lines.append(f"[{name}]")
        lines += [f"{json.dumps(key)} = {toml(value)}" for key, value in table.items()]
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    (home / "config.toml").write_text("\n".join(lines) + "\n")


Gateway = Callable[..., Peer]


@pytest.fixture
def gateway(home: Path, environment: Mapping[str, str], tmp_path: Path) -> Iterator[Gateway]:
    """`gateway({"fs": [...]}, modern=True)` starts `upwell serve` over a fresh configuration, and
    shakes hands. Without servers it uses the existing configuration."""
    peers: list[Peer] = []

    def start(
        servers: Mapping[str, Server] | None = None,
        *,
        modern: bool = False,
        hello: bool = True,
        env: Mapping[str, str] | None = None,
        cwd: Path = tmp_path,
        **tables: Mapping[str, Any],
    ) -> Peer:
        if servers is not None:
            write_config(home, servers, **tables)
        peer = Peer(
            [sys.executable, "-m", "upwell", "serve"],
            env={**environment, **(env or {})},
            cwd=cwd,
            errors=tmp_path / f"serve-{len(peers)}.stderr",
            modern=modern,
        )
        peers.append(peer)
        if hello:
            peer.hello()
        return peer

    yield start
    for peer in peers:
        with peer:
            pass


@pytest.fixture
def direct(tmp_path: Path, environment: Mapping[str, str]) -> Iterator[Gateway]:
    """`direct(command)` speaks to a server without upwell in between."""
    peers: list[Peer] = []

    def start(command: Sequence[str], *, modern: bool = False) -> Peer:
        peer = Peer(command, env=environment, modern=modern, errors=tmp_path / "direct.stderr")
        peers.append(peer)
        peer.hello()
        return peer

    yield start
    for peer in peers:
        with peer:
            pass


@pytest.fixture(scope="session")
def npm_servers() -> Callable[..., list[str]]:
    """`npm_servers("filesystem", root)`: the command line of a foreign server."""
    install.ensure()
    return lambda name, *args: [*install.server(name), *map(str, args)]


Sdk = Callable[..., Any]


@pytest.fixture
def sdk(home: Path, environment: Mapping[str, str], tmp_path: Path) -> Sdk:
    """`async with sdk(servers, mode="legacy") as client`: the official client on our gateway."""
    from mcp import Client, StdioServerParameters

    @asynccontextmanager
    async def connect(
        servers: Mapping[str, Server], mode: str = "auto", **tables: Mapping[str, Any]
    ) -> AsyncIterator[Any]:
        write_config(home, servers, **tables)
        parameters = StdioServerParameters(
            command=sys.executable,
            args=["-m", "upwell", "serve"],
            env=dict(environment),
            cwd=tmp_path,
        )
        async with Client(parameters, mode=mode, read_timeout_seconds=30, cache=None) as client:
            yield client

    return connect


@pytest.fixture
def user(environment: Mapping[str, str]) -> Path:
    """The user's home folder."""
    return Path(environment["HOME"])


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """An empty repository."""
    root = tmp_path / "shop"
    root.mkdir()
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    return root
