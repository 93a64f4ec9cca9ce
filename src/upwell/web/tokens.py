"""Who may come in by which token: the home's own, and those that its owner gave to others.

Of a token that was given away only a digest is kept. Every one has 256 random bits, so that a plain
digest can neither be guessed nor reversed.
"""

import hashlib
import json
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from upwell.ground.errors import StoreCorrupt, StoreUnwritable, UsageError
from upwell.ground.files import Stamp, exclusively, read_whole, stamp, write_whole, writing
from upwell.ground.names import check_name
from upwell.ground.principal import OWNER, Principal
from upwell.ground.trace import LOG
from upwell.memory.namespaces import namespace

PrincipalOf = Callable[[str], Principal | None]
"""Who has this token; None for nobody."""


@dataclass(frozen=True, slots=True)
class Given:
    """A token that was given to somebody. `made_at` is ISO 8601, UTC."""

    principal: Principal
    digest: str
    made_at: str


class Tokens:
    """Looks tokens up: the `owner`'s own, and those in the file at `path`, read again when it
    changes."""

    def __init__(self, owner: str, path: Path) -> None:
        self._owner = _digest(owner)
        self._path = path
        self._stamp: Stamp | None = None
        self._given: Sequence[Given] = ()

    def principal_of(self, token: str) -> Principal | None:
        """Who has this token. Takes as long whoever it is, and for nobody."""
        self._refresh()
        said, found = _digest(token), None
        for known, principal in (
            (self._owner, OWNER),
            *((given.digest, given.principal) for given in self._given),
        ):
            if secrets.compare_digest(said, known):
                found = principal
        return found

    def _refresh(self) -> None:
        """Take up what was given or taken back. A file that cannot be read lets nobody in."""
        now = stamp(self._path)
        if now == self._stamp:
            return
        self._stamp = now
        try:
            self._given = given_in(self._path)
        except (StoreCorrupt, StoreUnwritable) as error:
            LOG.error("%s; only the owner's token holds", error)
            self._given = ()


def give(path: Path, name: str, namespaces: Sequence[str] = ()) -> str:
    """Make a token for `name`, who sees these namespaces (every one, when none is named).

    Raises:
        UsageError: the name will not do or has a token, or one of these is no namespace.
        StoreUnwritable: it was not kept.
    """
    check_name(name, "token name")
    token = secrets.token_urlsafe(32)
    principal = Principal(name, tuple(dict.fromkeys(map(namespace, namespaces))))
    with exclusively(path):
        given = given_in(path)
        if any(one.principal.name == name for one in given):
            raise UsageError(
                f"{name!r} has a token already", hint=f"upwell token remove {name} first"
            )
        made_at = datetime.now(UTC).isoformat(timespec="seconds")
        _write(path, [*given, Given(principal, _digest(token), made_at)])
    return token


def take_back(path: Path, name: str) -> None:
    """The token of `name` lets nobody in from now on.

    Raises:
        UsageError: nobody is called so.
        StoreUnwritable: nothing was changed.
    """
    with exclusively(path):
        given = given_in(path)
        left = [one for one in given if one.principal.name != name]
        if len(left) == len(given):
            raise UsageError(f"nobody is called {name!r}", hint="`upwell token list` shows them")
        _write(path, left)


def given_in(path: Path) -> list[Given]:
    """Whom the owner gave tokens.

    Raises:
        StoreCorrupt: the file says something else.
        StoreUnwritable: it cannot be read.
    """
    try:
        rows = json.loads(read_whole(path))["tokens"]
        return [
            Given(
                Principal(str(row["name"]), tuple(map(str, row["namespaces"]))),
                str(row["sha256"]),
                str(row["made_at"]),
            )
            for row in rows
        ]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StoreUnwritable(
            f"cannot read {path}: {error.strerror}", hint="check its owner and permissions"
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise StoreCorrupt(
            f"{path} is not as upwell wrote it", hint="remove it, and give the tokens anew"
        ) from error


def _write(path: Path, given: Sequence[Given]) -> None:
    rows = [
        {
            "name": one.principal.name,
            "namespaces": list(one.principal.namespaces),
            "sha256": one.digest,
            "made_at": one.made_at,
        }
        for one in given
    ]
    with writing(path):
        write_whole(path, json.dumps({"tokens": rows}, indent=2) + "\n")


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()
