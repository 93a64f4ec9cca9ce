"""Each server's latest tool list, saved for its next start.

A server that has to be downloaded or compiled may take longer to start than an agent waits for the
tool list, and many agents request the list only once. Until the server has listed its tools,
clients get the saved list, and calls wait for the server. A saved list is not used if the server's
command or address has changed. A list that is too large or contains a secret is not saved.
"""

import asyncio
import hashlib
from collections.abc import Sequence
from pathlib import Path

from upwell.gateway.options import ServerOptions
from upwell.ground.files import read_regular_file, write_atomically
from upwell.ground.secrets.redact import has_secret
from upwell.ground.trace import LOG
from upwell.wire.peer import LARGE_BYTES
from upwell.wire.rawjson import NotJson, RawArray, RawObject, dumps, kind_of

MAX_TOOLS = 6_000
"""The maximum number of tools that are read and listed per server."""
MAX_ENTRIES = 10_000
"""The maximum number of entries that are read from any other list."""
MAX_TOOL_BYTES = 256 * 1024


async def read_page(raw: bytes, member: str, limit: int) -> tuple[Sequence[RawObject], bytes]:
    """Return at most `limit` entries from one page of a list, and the cursor of the next page. A
    large page is parsed in a thread.

    Raises:
        NotJson: the page is malformed.
    """
    if len(raw) < LARGE_BYTES:
        return _opened(raw, member, limit)
    return await asyncio.to_thread(_opened, raw, member, limit)


def _opened(raw: bytes, member: str, limit: int) -> tuple[Sequence[RawObject], bytes]:
    page = RawObject.parse(raw)
    items = RawArray.parse(page.get(member) or b"[]").items
    objects = [RawObject.parse(item) for item in items[:limit] if kind_of(item) == "object"]
    return objects, page.get("nextCursor") or b""


def without_oversized(tools: Sequence[RawObject]) -> tuple[RawObject, ...]:
    """Return the tools that are not larger than `MAX_TOOL_BYTES`."""
    return tuple(tool for tool in tools if _size(tool) <= MAX_TOOL_BYTES)


def _size(entry: RawObject) -> int:
    return sum(len(key) + len(value) for key, value in entry.members)


MAX_BYTES = 256 * 1024
"""A larger list is not saved."""
MAX_FILE_BYTES = 4 * 1024 * 1024


class ToolLists:
    """The saved lists of all servers, in one file. Without a `path`, nothing is saved."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path

    def for_server(self, server: ServerOptions) -> tuple[RawObject, ...]:
        """Return the server's saved list. It is empty if the command or address has changed."""
        try:
            entry = RawObject.parse(self._read().get(server.name) or b"{}")
            if entry.value("of") != identity(server):
                return ()
            items = RawArray.parse(entry.get("tools") or b"[]").items
            return tuple(RawObject.parse(item) for item in items)
        except NotJson:
            return ()

    def save(self, server: ServerOptions, tools: Sequence[RawObject]) -> None:
        """Save the server's current list. Blocks on disk I/O. Errors are only logged."""
        raw = RawArray(tuple(tool.encode() for tool in tools)).encode()
        if len(raw) > MAX_BYTES or has_secret(raw.decode(errors="replace")):
            raw = b"[]"
        entry = RawObject(((b'"of"', dumps(identity(server))), (b'"tools"', raw))).encode()
        before = self._read()
        if self._path is None or before.get(server.name) == entry:
            return
        after = before.without(server.name).replaced(server.name, entry)
        while len(after.encode()) > MAX_FILE_BYTES:
            after = RawObject(after.members[1:])
        try:
            write_atomically(self._path, after.encode().decode())
        except (OSError, UnicodeDecodeError) as error:
            LOG.warning("the tools of %s cannot be saved: %s", server.name, error)

    def _read(self) -> RawObject:
        try:
            return RawObject.parse(read_regular_file(self._path) if self._path else b"{}")
        except (OSError, NotJson):
            return RawObject()


def identity(server: ServerOptions) -> str:
    """Return a digest of the server's command or address. It includes the names of variables and
    headers, but not their values, which may be secret."""
    program = [server.command, list(server.args), server.cwd, server.url, str(server.transport)]
    names = [sorted(server.env), sorted(server.headers)]
    return hashlib.sha256(dumps([*program, *names])).hexdigest()
