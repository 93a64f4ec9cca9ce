"""The owner's own access token, and the tokens that the owner gave to others.

upwell stores only the digests of tokens given to others. A token has 256 random bits, so it cannot
be recovered even from an unsalted digest. Tokens begin with `upw_`, so that they are recognised and
masked everywhere. Older tokens without this prefix stay valid.
"""

import hashlib
import json
import secrets
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from msgspec import Struct

from upwell.ground.errors import StoreCorrupt, StoreUnwritable, UsageError
from upwell.ground.files import (
    Stamp,
    create_once,
    exclusively,
    read_regular_file,
    stamp,
    write_atomically,
    writing,
)
from upwell.ground.names import check_name
from upwell.ground.trace import LOG
from upwell.ground.types.rpc import OWNER, Principal, Role, granted
from upwell.memory.records import namespace_pattern

PrincipalOf = Callable[[str], Principal | None]
"""Returns the principal of a token, or None for an unknown token."""
PREFIX = "upw_"
MIN_CHARS = 16
"""The minimum length of a token that the owner writes into the file."""


def token_of(path: Path) -> str:
    """The first call creates the file with mode 0600. Raises StoreUnwritable if the file cannot be
    read or written, or the token is too short."""
    try:
        create_once(path, f"{_new_token()}\n".encode())
        token = read_regular_file(path).decode().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise StoreUnwritable(
            f"cannot use {path}: {error}", hint="remove the file; upwell creates a new one"
        ) from error
    if len(token) < MIN_CHARS:
        raise StoreUnwritable(
            f"the token in {path} has fewer than {MIN_CHARS} characters",
            hint="remove the file; upwell creates a new one",
        )
    return token


class AccessToken(Struct, frozen=True):
    """`made_at` is ISO 8601 in UTC."""

    principal: Principal
    """The principal as the owner entered it. Requests with the token use `admitted`, which
    also sees its own private namespaces."""
    digest: str
    made_at: str

    @property
    def admitted(self) -> Principal:
        own = self.principal
        return granted(own.name, own.namespaces, own.role)


class Tokens:
    """Looks up tokens. `owner` is the owner's token. The file at `path` has the tokens given to
    others, and is read again when it changes.
    """

    def __init__(self, owner: str, path: Path) -> None:
        self._owner = _digest(owner)
        self._path = path
        self._stamp: Stamp | None = None
        self._issued: Sequence[AccessToken] = ()

    def principal_of(self, token: str) -> Principal | None:
        """Return the principal of a token. Takes the same time for every token, known or not."""
        self._refresh()
        digest, found = _digest(token), None
        for known, principal in (
            (self._owner, OWNER),
            *((issued.digest, issued.admitted) for issued in self._issued),
        ):
            if secrets.compare_digest(digest, known):
                found = principal
        return found

    def _refresh(self) -> None:
        now = stamp(self._path)
        if now == self._stamp:
            return
        self._stamp = now
        try:
            self._issued = tokens_in(self._path)
        except (StoreCorrupt, StoreUnwritable) as error:
            LOG.error("%s; only the owner's token is valid", error)
            self._issued = ()


def issue(
    path: Path,
    name: str,
    namespaces: Sequence[str] = (),
    *,
    role: Role = Role.WRITER,
) -> str:
    """Create a token for `name`, who may see these namespaces (by default, all shared ones). Raises
    UsageError if the name or a namespace is invalid, or the name already has a token."""
    check_name(name, "token name")
    secret = _new_token()
    patterns = tuple(dict.fromkeys(map(namespace_pattern, namespaces)))
    principal = Principal(name, patterns, role)
    with exclusively(path):
        issued = tokens_in(path)
        if any(token.principal.name == name for token in issued):
            raise UsageError(
                f"{name!r} already has a token", hint=f"run `upwell token remove {name}` first"
            )
        made_at = datetime.now(UTC).isoformat(timespec="seconds")
        _write(path, [*issued, AccessToken(principal, _digest(secret), made_at)])
    return secret


def revoke(path: Path, name: str) -> AccessToken:
    """Revoke the token of `name`, and return it. Raises UsageError if no token has this name."""
    with exclusively(path):
        issued = tokens_in(path)
        revoked = next((token for token in issued if token.principal.name == name), None)
        if revoked is None:
            raise UsageError(f"no token for {name!r}", hint="`upwell token list` lists them")
        _write(path, [token for token in issued if token is not revoked])
    return revoked


def tokens_in(path: Path) -> list[AccessToken]:
    """Return the tokens that the owner gave to others. Those that an earlier version gave to the
    users of another tenant are left out, because they must not open this home's memories. Raises
    StoreCorrupt if the file is damaged, and StoreUnwritable if it cannot be read."""
    try:
        rows = json.loads(read_regular_file(path))["tokens"]
        return [
            AccessToken(
                Principal(
                    str(row["name"]),
                    tuple(map(str, row["namespaces"])),
                    Role(row.get("role", Role.WRITER)),
                ),
                str(row["sha256"]),
                str(row["made_at"]),
            )
            for row in rows
            if not row.get("tenant")
        ]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StoreUnwritable(
            f"cannot read {path}: {error.strerror}", hint="check its owner and permissions"
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise StoreCorrupt(
            f"{path} is damaged", hint="remove the file and create the tokens again"
        ) from error


def _write(path: Path, issued: Sequence[AccessToken]) -> None:
    rows = [
        {
            "name": token.principal.name,
            "namespaces": list(token.principal.namespaces),
            "role": str(token.principal.role),
            "sha256": token.digest,
            "made_at": token.made_at,
        }
        for token in issued
    ]
    with writing(path):
        write_atomically(path, json.dumps({"tokens": rows}, indent=2) + "\n")


def _new_token() -> str:
    return PREFIX + secrets.token_urlsafe(32)


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()
