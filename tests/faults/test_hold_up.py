"""Ten megabytes from one server hold nobody up: no step of the gateway's loop takes long."""

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from upwell.app.memory import Settings
from upwell.app.wiring import build
from upwell.gateway.front.handshake import Hello
from upwell.wire.lines import Line

HUGE = Path(__file__).parents[1] / "doors" / "servers" / "huge.py"
MOST_SECONDS = 0.05


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The CPU seconds of each step of the loop: other programs on the machine do not count."""
    spent: list[float] = []
    step = asyncio.events.Handle._run

    def measured(handle: asyncio.Handle) -> None:
        began = time.thread_time()
        step(handle)
        spent.append(time.thread_time() - began)

    monkeypatch.setattr(asyncio.events.Handle, "_run", measured)
    return spent


class Client:
    """An agent in this process."""

    def __init__(self) -> None:
        self._lines: asyncio.Queue[Line | None] = asyncio.Queue()
        self._answers: asyncio.Queue[bytes] = asyncio.Queue()

    async def lines(self) -> AsyncIterator[Line]:
        while line := await self._lines.get():
            yield line

    async def write(self, line: bytes) -> None:
        self._answers.put_nowait(bytes(line))

    async def send(self, data: bytes) -> None:
        self._answers.put_nowait(bytes(data))

    async def call(self, tool: str) -> bytes:
        params = {"name": tool, "arguments": {}}
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        self._lines.put_nowait(Line(json.dumps(message).encode()))
        async with asyncio.timeout(60):
            return await self._answers.get()

    def leave(self) -> None:
        self._lines.put_nowait(None)


@pytest.mark.slow
async def test_no_step_takes_longer_than_fifty_milliseconds(
    tmp_path: Path, steps: list[float]
) -> None:
    command = f"command = {json.dumps(sys.executable)}\nargs = [{json.dumps(str(HUGE))}]\n"
    (tmp_path / "config.toml").write_text(f"[server.huge]\n{command}")
    app = await build(Settings(home=tmp_path))
    client, longest = Client(), {}
    gateway = app.gateway()
    serving = asyncio.create_task(gateway.serve(client.lines(), client, Hello()))
    try:
        await app.warm()
        await client.call("huge__small")
        for kind in ("log", "json", "structured", "blocks", "token", "secret"):
            steps.clear()
            await client.call(f"huge__{kind}")
            longest[kind] = round(max(steps), 3)
    finally:
        client.leave()
        await serving
        await app.aclose()
    assert max(longest.values()) <= MOST_SECONDS, longest
