"""Reads the pages of a server's lists, and saves its latest tool list for its next start.

A server that has to be downloaded or compiled may take longer to start than an agent waits for the
tool list, and many agents request the list only once. Until the server has listed its tools,
clients get the saved list, and calls wait for the server. A saved list is not used if the server's
command or address has changed. A list that is too large or contains a secret is not saved.
"""

import asyncio
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct, field

from upwell.gateway.options import ServerOptions
from upwell.gateway.shapes import CheckedDefinition, checked
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


class ListPage(Struct, frozen=True):
    """One page of a list. `cursor` is the raw JSON string that requests the next page, or b"" at
    the end of the list. `faults` has the reason for each entry that is left out, keyed by what the
    entry is called."""

    entries: Sequence[RawObject]
    cursor: bytes = b""
    faults: Mapping[str, str] = field(default_factory=dict)


async def read_page(raw: bytes, member: str, limit: int) -> ListPage:
    """Read at most `limit` entries from one page of the list `member`. Entries that clients would
    reject are repaired or left out. A large page is parsed in a thread. Raises NotJson if the page
    is malformed."""
    if len(raw) < LARGE_BYTES:
        return _opened(raw, member, limit)
    return await asyncio.to_thread(_opened, raw, member, limit)


def _opened(raw: bytes, member: str, limit: int) -> ListPage:
    page = RawObject.parse(raw)
    listed = page.get(member) or b"null"
    items = () if listed.strip() == b"null" else RawArray.parse(listed).items
    results = [_entry(member, item) for item in items[:limit]]
    cursor = page.get("nextCursor") or b""
    return ListPage(
        [result.entry for result in results if result.entry is not None],
        cursor if kind_of(cursor) == "string" else b"",
        {result.label: result.fault for result in results if result.entry is None},
    )


def _entry(member: str, raw: bytes) -> CheckedDefinition:
    if kind_of(raw) != "object":
        return CheckedDefinition(f"an entry of {member}", fault="is not an object")
    result = checked(member, RawObject.parse(raw))
    if member == "tools" and len(raw) > MAX_TOOL_BYTES:
        return CheckedDefinition(result.label, fault=f"is larger than {MAX_TOOL_BYTES // 1024} KiB")
    return result


MAX_BYTES = 256 * 1024
"""A larger list is not saved."""
MAX_FILE_BYTES = 4 * 1024 * 1024


class ToolLists:
    """The saved lists of all servers, in one file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def for_server(self, server: ServerOptions) -> tuple[RawObject, ...]:
        """Empty if the server's command or address has changed."""
        try:
            entry = RawObject.parse(self._read().get(server.name) or b"{}")
            if entry.value("of") != identity(server):
                return ()
            items = RawArray.parse(entry.get("tools") or b"[]").items
            saved = (checked("tools", RawObject.parse(item)).entry for item in items)
            return tuple(tool for tool in saved if tool is not None)
        except NotJson:
            return ()

    def save(self, server: ServerOptions, tools: Sequence[RawObject]) -> None:
        """Blocks on disk I/O. Errors are only logged."""
        raw = RawArray(tuple(tool.encode() for tool in tools)).encode()
        if len(raw) > MAX_BYTES or has_secret(raw.decode(errors="replace")):
            raw = b"[]"
        entry = RawObject(((b'"of"', dumps(identity(server))), (b'"tools"', raw))).encode()
        before = self._read()
        if before.get(server.name) == entry:
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
            return RawObject.parse(read_regular_file(self._path))
        except (OSError, NotJson):
            return RawObject()


def identity(server: ServerOptions) -> str:
    """Return a digest of the server's command or address. It includes the names of variables and
    headers, but not their values, which may be secret."""
    program = [server.command, list(server.args), server.cwd, server.url, str(server.transport)]
    names = [sorted(server.env), sorted(server.headers)]
    return hashlib.sha256(dumps([*program, *names])).hexdigest()
