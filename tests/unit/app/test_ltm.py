"""The memory server that `ltm.*` configures: without any of these keys, there is none."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from upwell.app.ltm import server_of
from upwell.app.memory import MemoryApp
from upwell.app.store import Settings
from upwell.config import Config, load
from upwell.gateway.options import Transport
from upwell.ground.errors import ConfigError


def environment(**keys: str) -> Mapping[str, str]:
    return {f"UPWELL_LTM__{name}": value for name, value in keys.items()}


def config(home: Path, **keys: str) -> Config:
    result = load(home, environment=environment(**keys))
    result.home.prepare()
    return result


async def test_a_memory_server_exists_only_with_a_key(tmp_path: Path) -> None:
    for keys, expected in (({}, False), ({"COMMAND": "memtomem-server"}, True)):
        app = MemoryApp(Settings(home=tmp_path, environment=environment(**keys)))
        names = [place.name for place in app.memory.recall.places]
        assert ("ltm" in names) is expected
        assert len(names) == 3 + expected
        await app.aclose()


def test_a_transport_alone_runs_memtomem_in_the_home(tmp_path: Path) -> None:
    server = server_of(config(tmp_path, TRANSPORT="stdio").ltm, str(tmp_path))
    assert (server.command, server.args, server.cwd) == ("memtomem-server", (), str(tmp_path))
    assert not server.url


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, Transport.HTTP),
        ({"TRANSPORT": "streamable_http"}, Transport.HTTP),
        ({"TRANSPORT": "sse"}, Transport.SSE),
    ],
)
def test_an_address_is_reached_with_its_headers(
    tmp_path: Path, given: Mapping[str, str], expected: Transport
) -> None:
    headers = '{"Authorization": "Bearer abc"}'
    result = config(tmp_path, URL="https://ltm.example/mcp", HEADERS=headers, **given)
    server = server_of(result.ltm, str(tmp_path))
    assert server.url == "https://ltm.example/mcp"
    assert server.headers == {"Authorization": "Bearer abc"}
    assert server.transport is expected
    assert "abc" not in str(result.shown())


def test_missing_keys_and_unknown_transports_are_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"needs ltm\.url"):
        server_of(config(tmp_path, TRANSPORT="sse").ltm, str(tmp_path))
    with pytest.raises(ConfigError, match=r"ltm\.transport"):
        config(tmp_path, TRANSPORT="pigeon")
