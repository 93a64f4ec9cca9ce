"""Trying a server out: is it fit for service?"""

from upwell.gateway.client import Client
from upwell.gateway.connection import Connecting
from upwell.gateway.options import GatewayOptions, ServerOptions
from upwell.ground.errors import UpstreamError
from upwell.ground.text.counts import counted
from upwell.ground.types import Ping
from upwell.wire.peer import Message


class _Alone:
    """Around a server that is only tried out."""

    def declared(self) -> bytes:
        return b"{}"

    async def heard(self, message: Message, clients: list[Client]) -> None:
        return None

    def only_client(self) -> Client | None:
        return None


async def probe(server: ServerOptions, options: GatewayOptions, connecting: Connecting) -> Ping:
    """Start a server, ask for its tools, end it: what came of it?"""
    try:
        connection = await connecting(server, options, _Alone())
        try:
            tools = await connection.greet(options.connect_timeout_seconds)
        finally:
            await connection.aclose()
    except UpstreamError as error:
        return Ping(ok=False, detail=error.message, hint=error.hint)
    return Ping(ok=True, detail=counted(len(tools), "tool"))
