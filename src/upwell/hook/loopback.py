"""The daemon where there are no Unix sockets: a port of 127.0.0.1, and a token in a private file.

On loopback anybody can connect, and a port that a killed daemon left may be another's. So either
side first proves that it knows the token, to a number that the other has chosen; the token itself
is never sent. `client._introduced` is the other half.
"""

import asyncio
import hmac
import os
import secrets
from collections.abc import Awaitable, Callable

from upwell.hook.place import proof_of

Connected = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def listen(connected: Connected, path: str) -> tuple[asyncio.Server, str]:
    """Listen at any free port, told with a new token in a file at `path` (0600). Gives the token.

    Raises:
        OSError: no port, or the file cannot be written.
    """
    token = secrets.token_hex(32)
    server = await asyncio.start_server(connected, "127.0.0.1", 0, backlog=128)
    port = server.sockets[0].getsockname()[1]
    descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(f"{port} {token}")
    return server, token


async def admit(token: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Prove to a client who we are, and let it do so.

    Raises:
        ValueError: it does not know the token.
    """
    nonce = (await reader.readuntil(b"\n")).decode("ascii").strip()
    writer.write(proof_of(token, "daemon", nonce))
    said = await reader.readuntil(b"\n")
    if not hmac.compare_digest(said, proof_of(token, "client", nonce)):
        raise ValueError("a stranger")
