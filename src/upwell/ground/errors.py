"""The errors that upwell reports. A few modules add subclasses of their own.

    UpwellError
    ├─ UsageError
    ├─ ConfigError
    ├─ UpstreamError
    │   ├─ UpstreamUnavailable
    │   │   └─ UpstreamLocked
    │   ├─ UpstreamProtocolError
    │   └─ UpstreamTimeout
    ├─ RecallError
    │   └─ RecallUnavailable
    ├─ StoreError
    │   ├─ StoreCorrupt
    │   ├─ StoreTooNew
    │   ├─ StoreTooOld
    │   └─ StoreUnwritable
    ├─ CompressionError
    ├─ KeyUnknown
    └─ LlmError

Errors from libraries (SQLite, sockets, HTTP, child processes) are converted to these errors near
where they occur, mainly in `ground/{sqlite,postgres}/`, `ground/{files,llm}.py`,
`gateway/upstreams/connection.py` and `memory/external/`.
"""


class UpwellError(Exception):
    """The base class of the errors that upwell reports.

    `message`: the problem, in one line. `hint`: how to solve it, or "".
    """

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class UsageError(UpwellError):
    """The request cannot be carried out as stated."""


class ConfigError(UpwellError):
    """A setting is wrong. `key`: its dotted name. `origin`: the file or variable that set it."""

    def __init__(self, message: str, *, key: str = "", origin: str = "", hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.key = key
        self.origin = origin


class UpstreamError(UpwellError):
    """A server behind the gateway failed. `server` is its configured name.

    Secrets in the message are masked, because it may quote the server, and models read it.
    """

    def __init__(self, message: str, *, server: str, hint: str = "") -> None:
        from upwell.ground.secrets.redact import redact

        super().__init__(redact(message)[0], hint=hint)
        self.server = server


class UpstreamUnavailable(UpstreamError):
    """The server is not running, has died, has lost a request, or has too many in flight. If
    `did_not_run` is True, the request may be repeated.
    """

    did_not_run = False


class UpstreamLocked(UpstreamUnavailable):
    """The server requires a login that is missing or has expired."""


class UpstreamProtocolError(UpstreamError):
    """The exchange with the server failed, usually because its response is not valid MCP."""


class UpstreamTimeout(UpstreamError):
    """The server did not respond within the deadline."""


class RecallError(UpwellError):
    """A source of memories failed. `source` is its name."""

    def __init__(self, message: str, *, source: str, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.source = source


class RecallUnavailable(RecallError):
    """The source cannot be reached. If several sources failed, `missing` lists each of them as
    `name: reason`.
    """

    def __init__(
        self, message: str, *, source: str, hint: str = "", missing: tuple[str, ...] = ()
    ) -> None:
        super().__init__(message, source=source, hint=hint)
        self.missing = missing


class StoreError(UpwellError):
    """One of upwell's databases or files failed."""


class StoreCorrupt(StoreError):
    """The file is damaged."""


class StoreTooNew(StoreError):
    """The file or database was written by a later version of upwell."""


class StoreTooOld(StoreError):
    """The file was written by a version of upwell whose files are no longer read."""


class StoreUnwritable(StoreError):
    """The disk is full or read-only, or the file has another owner or was locked for too long."""


class CompressionError(UpwellError):
    """The strategy named `strategy` cannot compress a passage."""

    def __init__(self, message: str, *, strategy: str, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.strategy = strategy


class KeyUnknown(UpwellError):
    """No original exists under this key: it expired, was evicted, or never existed."""

    def __init__(self, key: str) -> None:
        super().__init__(
            f"no original under key {key!r}: it expired, was evicted, or never existed",
            hint="call the tool again to get a fresh key",
        )
        self.key = key


class LlmError(UpwellError):
    """A language model or an embedder failed, was slow, or sent a bad response."""


def extra_hint(extra: str) -> str:
    """Return the hint for an extra that is not installed. Its command installs from a checkout,
    because upwell is not in a package registry."""
    return f"in upwell's checkout, run: uv tool install '.[{extra}]'"
