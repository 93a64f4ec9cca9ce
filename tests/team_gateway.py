"""A gateway that serves a team's memories: the routes, the guard and the server of `upwell serve
--http`, in the event loop of a test or in a thread of its own."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from upwell.app import App, Settings, build
from upwell.app.team import team_access
from upwell.ground.types.rpc import OWNER, Principal
from upwell.web.guard import Admission, Denials
from upwell.web.routes import http_app
from upwell.web.server import http_server, listen
from upwell.web.team import TeamDoor

OWNER_TOKEN = "the-token-of-the-owner"


class Gateway:
    """A running gateway. `tokens` may change while it runs."""

    def __init__(self, app: App, port: int, tokens: dict[str, Principal]) -> None:
        self.app = app
        self.tokens = tokens
        self.port = port
        self.url = f"http://127.0.0.1:{port}"


@asynccontextmanager
async def gateway(
    folder: Path,
    database: str,
    tokens: Mapping[str, Principal] | None = None,
    **environment: str,
) -> AsyncIterator[Gateway]:
    """A gateway over a database ("" for none) that accepts the owner's token and these."""
    environment = {"UPWELL_STORE__URL": database, **environment}
    app = await build(Settings(home=folder / "gateway", environment=environment))
    known = {OWNER_TOKEN: OWNER, **(tokens or {})}
    admission = Admission(
        known.get,
        denied=Denials(app.audit.denied, app.audit.stranger),
    )
    server = http_server(http_app(TeamDoor(team_access(app)).routes(), admission))
    with listen("127.0.0.1", 0) as listening:
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        while not server.started:
            await asyncio.sleep(0.005)
        try:
            yield Gateway(app, listening.getsockname()[1], known)
        finally:
            server.should_exit = True
            await serving
            await app.aclose()


@contextmanager
def gateway_in_thread(folder: Path, database: str) -> Iterator[Gateway]:
    """A gateway that accepts the owner's token, for tests without an event loop."""
    ready, end = threading.Event(), threading.Event()
    running: list[Gateway] = []

    async def serve() -> None:
        async with gateway(folder, database) as opened:
            running.append(opened)
            ready.set()
            await asyncio.to_thread(end.wait)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        assert ready.wait(30)
        yield running[0]
    finally:
        end.set()
        thread.join()
