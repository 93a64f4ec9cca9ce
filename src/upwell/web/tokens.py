"""Who may come in by which token: the home's own, and those that its owner gave to others.

Of a token that was given away only a digest is kept. Every one has 256 random bits, so that a plain
digest can neither be guessed nor reversed.
"""

import hashlib
import json
import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from filelock import FileLock, Timeout

from upwell.ground.errors import StoreCorrupt, StoreUnwritable, UsageError
from upwell.ground.files import read_whole, write_whole
from upwell.ground.names import check_name
from upwell.ground.principal import OWNER, Principal
from upwell.ground.trace import LOG
from upwell.memory.namespaces import namespace

LOCK_SECONDS = 10.0

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
        self._stamp: tuple[int, int, int] | None = None
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
        try:
            info = os.stat(self._path)
            stamp = info.st_mtime_ns, info.st_size, info.st_ino
        except OSError:
            self._stamp, self._given = None, ()
            return
        if stamp == self._stamp:
            return
        self._stamp = stamp
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
    with _locked(path):
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
    with _locked(path):
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
    try:
        write_whole(path, json.dumps({"tokens": rows}, indent=2) + "\n")
    except OSError as error:
        raise StoreUnwritable(
            f"cannot write {path}: {error.strerror}", hint="check its owner and permissions"
        ) from error


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """While the file of tokens is changed."""
    lock = FileLock(path.with_name(".tokens.lock"), timeout=LOCK_SECONDS, mode=0o600)
    try:
        lock.acquire()
    except (OSError, Timeout) as error:
        raise StoreUnwritable(
            f"the tokens cannot be changed: {error}", hint="is another upwell changing them?"
        ) from error
    try:
        yield
    finally:
        lock.release()


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()
