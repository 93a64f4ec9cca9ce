"""What can go wrong, drawn as a tree. Every error carries a hint: what to do about it.

    UpwellError(message, *, hint)
    ├─ UsageError                 the caller asked for something that cannot be
    ├─ ConfigError                a key, and where it stands
    ├─ UpstreamError              server
    │   ├─ UpstreamUnavailable    not started, gone, or over its in-flight limit
    │   │   └─ UpstreamLocked     it wants to know who we are
    │   ├─ UpstreamProtocolError  it answered, but not with MCP
    │   └─ UpstreamTimeout        no answer within the deadline
    ├─ RecallError                a place to recall from
    │   └─ RecallUnavailable
    ├─ StoreError                 a database or file of ours
    │   ├─ StoreCorrupt
    │   ├─ StoreTooNew            written by a later upwell
    │   └─ StoreUnwritable        disk full, read-only, foreign owner, locked too long
    ├─ CompressionError           strategy
    ├─ KeyUnknown                 an original that expired, was evicted or never was
    └─ LlmError                   the endpoint failed, was slow or answered rubbish

Foreign errors (SQLite's, sockets', HTTP's, a child's) become one of these at the border:
`ground/{sqlite_file,db,embed,llm}.py`, `wire/`, and the stores that speak to something outside.
"""


class UpwellError(Exception):
    """Root of every error that upwell raises on purpose.

    `message` says what happened in one line, `hint` what to do about it (may be empty).
    """

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class UsageError(UpwellError):
    """The caller asked for something that cannot be."""


class ConfigError(UpwellError):
    """A setting is wrong. `key` is its dotted name, `origin` the file or variable it stands in."""

    def __init__(self, message: str, *, key: str = "", origin: str = "", hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.key = key
        self.origin = origin


class UpstreamError(UpwellError):
    """An upstream server failed. `server` is its configured name. The model reads the message, so
    what is known as a secret in it, as where a server's last words are cited, is masked."""

    def __init__(self, message: str, *, server: str, hint: str = "") -> None:
        from upwell.ground.redact import redact

        super().__init__(redact(message)[0], hint=hint)
        self.server = server


class UpstreamUnavailable(UpstreamError):
    """It is not running, died, or is over its limits."""


class UpstreamLocked(UpstreamUnavailable):
    """It wants a login that is not there, or is over."""


class UpstreamProtocolError(UpstreamError):
    """It answered, but not with what the protocol asks for."""


class UpstreamTimeout(UpstreamError):
    """It did not answer within the deadline."""


class RecallError(UpwellError):
    """A place to recall from failed. `source` names it."""

    def __init__(self, message: str, *, source: str, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.source = source


class RecallUnavailable(RecallError):
    """It cannot be reached."""


class StoreError(UpwellError):
    """A database or file of ours failed."""


class StoreCorrupt(StoreError):
    """The file is damaged."""


class StoreTooNew(StoreError):
    """The file was written by a later version of upwell."""


class StoreUnwritable(StoreError):
    """Disk full, read-only, foreign owner, or locked for too long."""


class CompressionError(UpwellError):
    """A strategy could not do its work. `strategy` names it."""

    def __init__(self, message: str, *, strategy: str, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.strategy = strategy


class KeyUnknown(UpwellError):
    """No original under this key: expired, evicted, or never there."""

    def __init__(self, key: str) -> None:
        super().__init__(
            f"nothing is kept under key {key!r}: it expired, was evicted, or never was",
            hint="call the tool again to get a fresh key",
        )
        self.key = key


class LlmError(UpwellError):
    """A language-model endpoint failed, was slow, or answered rubbish."""
