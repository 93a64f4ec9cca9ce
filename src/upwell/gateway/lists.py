"""The tools that each server listed last, kept for its next start.

A server that is downloaded or compiled first may take longer than an agent waits for the list, and
many agents ask but once. So what it had last is listed until it says what it has now; a call waits
for it. Kept is only what is of the same command or address, within bounds, and holds no secret.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path

from upwell.gateway.options import ServerOptions
from upwell.ground.files import read_whole, write_whole
from upwell.ground.redact import has_secret
from upwell.ground.trace import LOG
from upwell.wire.rawjson import NotJson, RawArray, RawObject, dumps

MAX_BYTES = 256 * 1024
"""Of one server."""
MAX_FILE_BYTES = 4 * 1024 * 1024


class ToolLists:
    """Lists by server, in one file; without a `path` nothing is kept."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path

    def of(self, server: ServerOptions) -> tuple[RawObject, ...]:
        """What the server listed last; nothing where it was another program or address."""
        try:
            entry = RawObject.parse(self._read().get(server.name) or b"{}")
            if entry.value("of") != identity(server):
                return ()
            items = RawArray.parse(entry.get("tools") or b"[]").items
            return tuple(RawObject.parse(item) for item in items)
        except NotJson:
            return ()

    def keep(self, server: ServerOptions, tools: Sequence[RawObject]) -> None:
        """Write down what the server lists now. Blocking. What cannot be kept is not: the next
        start then waits as the first did."""
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
            write_whole(self._path, after.encode().decode())
        except (OSError, UnicodeDecodeError) as error:
            LOG.warning("what %s lists cannot be written down: %s", server.name, error)

    def _read(self) -> RawObject:
        try:
            return RawObject.parse(read_whole(self._path) if self._path else b"{}")
        except (OSError, NotJson):
            return RawObject()


def identity(server: ServerOptions) -> str:
    """What makes it the same server: its program or address. Of secrets only their names."""
    said = [server.command, list(server.args), server.cwd, server.url, str(server.transport)]
    return hashlib.sha256(dumps([*said, sorted(server.env), sorted(server.headers)])).hexdigest()
