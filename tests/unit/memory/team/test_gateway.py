"""What a machine says when the gateway of its team misbehaves: one line, with what to do, and never
the token."""

import asyncio
import gzip
import json
import logging
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from tests.contracts.stores import open_team
from tests.postgres import cluster
from tests.team_gateway import OWNER_TOKEN, gateway

from upwell.ground.errors import StoreError
from upwell.ground.postgres.connection import Postgres
from upwell.ground.types.memory import Memory, Scope
from upwell.ground.types.rpc import Role, granted
from upwell.memory.postgres.store import PostgresStore
from upwell.memory.sqlite.team_store import TeamStore
from upwell.memory.team import exchange
from upwell.memory.team import gateway as gateway_source
from upwell.memory.team.exchange import send
from upwell.memory.team.gateway import GatewayMemories, checked_token
from upwell.testing import ManualClock

TOKEN = "planted-token-1234567890"
GREETING = json.dumps({"protocol": 2, "source": "s"}).encode()
GZIPPED, BOMB = gzip.compress(GREETING), gzip.compress(b" " * 1_000_001)


def answer(status: int, body: bytes = b"", length: int | None = None, **headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status} X", f"content-length: {len(body) if length is None else length}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "connection: close", "", ""]).encode() + body


@asynccontextmanager
async def server(reply: bytes | None) -> AsyncIterator[GatewayMemories]:
    """A source whose gateway sends these bytes to every request; for None, nothing at all."""
    ended = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        if reply is None:
            await ended.wait()
        with suppress(ConnectionError):
            writer.write(reply or b"")
            await writer.drain()
        writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    source = GatewayMemories(f"http://127.0.0.1:{port}/mcp", lambda: TOKEN)
    try:
        yield source
    finally:
        await source.aclose()
        ended.set()
        listening.close()
        await listening.wait_closed()


async def failure_of(source: GatewayMemories) -> StoreError:
    with pytest.raises(StoreError) as caught:
        await source.identity()
    shown = str(caught.value)
    assert TOKEN not in shown
    assert "\n" not in shown
    assert caught.value.hint
    return caught.value


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (answer(401, b'{"error": "the token has expired"}'), "does not accept the token: the tok"),
        (answer(401), "does not accept the token"),
        (answer(403, b'{"error": "this gateway does not serve your tenant"}'), "403: this gateway"),
        (
            answer(404, b"<html>nothing</html>"),
            "no route for teams: not an upwell gateway, or an o",
        ),
        (
            answer(404, b'{"protocol": 2, "error": "no team\'s database"}'),
            "404: no team's database",
        ),
        (answer(421, b'{"error": "unknown host name"}'), "421: unknown host name"),
        (answer(502, b"Bad gateway"), "answers 502"),
        (answer(301, location="http://gateway.example/team?key=abc"), "redirects to http://gate"),
        (answer(307, location="https://evil.example/team"), "redirects to https://evil"),
        (answer(200, b"<html>a captive portal</html>"), "sent something else, which no upwell"),
        (answer(200, b'{"protocol": 1}'), "speaks version 1 of the protocol, and upwell"),
        (answer(200, b'{"protocol": 2, "sou', length=100), "broke off"),
        (answer(200, GREETING[:-1]), "sent something else"),
        (b"", "broke off"),
        (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", "broke off"),
        (answer(200, b"x" * 100_001), "too long"),
        (answer(200, GREETING, content_encoding="gzip"), "cannot be unpacked"),
        (answer(200, GZIPPED[:-1], content_encoding="gzip"), "cannot be unpacked"),
        (answer(200, BOMB, content_encoding="gzip"), "cannot be unpacked"),
        (
            answer(500, b'{"error": "a\\nb\\u001b[31m' + b"c" * 999 + b'"}'),
            "answers 500: a b [31mccc",
        ),
    ],
)
async def test_every_failure_is_one_line(
    reply: bytes, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "MAX_REPLY_BYTES", 100_000)
    monkeypatch.setattr(exchange, "MAX_UNPACKED_BYTES", 1_000_000)
    async with server(reply) as source:
        assert expected in (await failure_of(source)).message


def snapshot_of(rows: bytes) -> bytes:
    body = gzip.compress(b'{"protocol": 2, "source": "s", "memories": [' + rows + b"]}")
    return answer(200, body, etag='"e"', content_encoding="gzip")


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (b'{"text":""},' * 1_000_000 + b'{"text":""}', "sent more than 20,000 memories, which"),
        (b'{"text":"' + b"x" * 8_000_000 + b'"}', "sent a memory of more than 8,000,000 bytes"),
        (
            b",".join([b'{"text":"","tags":[' + b'"a",' * 1_000_000 + b'"a"]}'] * 3),
            "sent more than 2,000,000 tags and paths",
        ),
        (b"0," * 1_000_000 + b"0", "sent something else"),
    ],
    ids=["rows", "text", "tags", "numbers"],
)
async def test_a_snapshot_that_unpacks_to_too_much_is_refused_before_it_takes_memory(
    rows: bytes, expected: str
) -> None:
    async with server(snapshot_of(rows)) as source:
        tracemalloc.start()
        try:
            with pytest.raises(StoreError, match=expected):
                await source.snapshot()
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert peak < 250_000_000


async def test_a_full_snapshot_without_its_private_memories_is_accepted() -> None:
    rows = [b'{"text":"tide","id":"%d"}' % n for n in range(19_999)]
    private = b'{"text":"tide","id":"p","namespace":"me/x"}'
    async with server(snapshot_of(b",".join([private, *rows]))) as source:
        snapshot = await source.snapshot()
    assert snapshot is not None
    assert [memory.id for memory in snapshot.memories] == [str(n) for n in range(19_999)]


async def test_a_redirect_is_not_followed_with_the_token() -> None:
    asked = []

    async def elsewhere(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.close()

    other = await asyncio.start_server(elsewhere, "127.0.0.1", 0)
    port = other.sockets[0].getsockname()[1]
    async with server(answer(307, location=f"http://127.0.0.1:{port}/team")) as source:
        await failure_of(source)
    assert asked == []
    other.close()


async def test_a_gateway_that_is_down_or_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    down = GatewayMemories("http://127.0.0.1:9", lambda: TOKEN)
    assert "cannot be reached" in (await failure_of(down)).message
    await down.aclose()
    monkeypatch.setattr(gateway_source, "SILENCE_SECONDS", 0.3)

    async with server(None) as source:
        assert "does not answer" in (await failure_of(source)).message


@pytest.mark.parametrize("token", ["", "  \n", "two words", "a\nb", "schlüssel", "a\x00b"])
async def test_a_token_that_cannot_be_sent_is_not_shown(token: str) -> None:
    with pytest.raises(StoreError) as caught:
        checked_token(token)
    assert not token.strip() or token not in str(caught.value)


async def test_a_gateway_that_asks_to_wait_is_left_alone() -> None:
    async with server(answer(429, b'{"error": "you may make 5"}', retry_after="20")) as source:
        assert "429: you may make 5" in (await failure_of(source)).message
        assert "asks to wait" in (await failure_of(source)).message


async def test_long_texts_take_several_requests(tmp_path: Path) -> None:
    url = cluster().emptied()
    async with gateway(tmp_path, url) as opened:
        source = GatewayMemories(opened.url, lambda: OWNER_TOKEN)
        store = PostgresStore(Postgres(url))
        copy, close = open_team(tmp_path, ManualClock())
        assert isinstance(copy, TeamStore)
        long = [Memory(text="é" * 900_000, id=f"m{n}", namespace="team") for n in range(4)]
        await copy.add([*long, Memory(text="\0" * 999_999 + "x", id="n", namespace="team")])
        await copy.add([Memory(text="odd \ud800 tide", id="odd", namespace="team")])
        await synced(copy, source)
        (refused,) = copy.queue.read()
        assert refused.reason == "the memory is too long for the gateway"
        arrived = {memory.id for memory in await store.list(Scope(), limit=1_000)}
        assert arrived == {"m0", "m1", "m2", "m3", "odd"}
        odd = await copy.get("odd")
        assert odd is not None
        assert odd.text == "odd \ufffd tide"
        await close()
        await store.aclose()
        await source.aclose()


async def synced(copy: TeamStore, source: GatewayMemories) -> set[str]:
    """Send and read, as the daemon does. Returns the ids that the machine has then."""
    await copy.begin(await source.identity())
    await send(copy.queue, source)
    await copy.refresh(source)
    return {memory.id for memory in await copy.list(Scope())}


async def test_a_change_of_what_a_token_shows_loses_no_waiting_write(tmp_path: Path) -> None:
    url, tokens = cluster().emptied(), {TOKEN: granted("ada", ["team", "team/*"])}
    async with gateway(tmp_path, url, tokens) as opened:
        source = GatewayMemories(opened.url, lambda: TOKEN)
        store = PostgresStore(Postgres(url))
        for id in ("web", "api"):
            await store.add([Memory(text=f"tide {id}", id=id, namespace=f"team/{id}")])
        copy, close = open_team(tmp_path, ManualClock())
        assert isinstance(copy, TeamStore)
        assert await synced(copy, source) == {"web", "api"}
        await copy.add([Memory(text="tide", id="own", namespace="team/web")])
        opened.tokens[TOKEN] = granted("ada", ["team/web"])
        assert await synced(copy, source) == {"web", "own"}
        assert await store.get("own")
        opened.tokens[TOKEN] = granted("ada", role=Role.READER)
        await copy.add([Memory(text="tide", id="late", namespace="team")])
        assert await synced(copy, source) == {"web", "api", "own", "late"}
        assert ["only read" in entry.reason for entry in copy.queue.read()] == [True]
        await close()
        await store.aclose()
        await source.aclose()


async def test_no_log_has_the_token(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    caplog.set_level(logging.DEBUG)
    async with gateway(tmp_path, cluster().emptied(), {TOKEN: granted("ada")}) as opened:
        source: Any = GatewayMemories(opened.url, lambda: TOKEN)
        await source.snapshot()
        await source.aclose()
    async with server(answer(401)) as source:
        await failure_of(source)
    assert caplog.text
    assert TOKEN not in caplog.text
