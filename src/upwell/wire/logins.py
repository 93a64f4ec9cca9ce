"""What lets us in at servers where the user logged in: one file of the home, 0600, nothing else.

A login is bound to the address it was made for: where the address in the configuration is another
one, there is no login. What is secret in one never stands in its `repr`.
"""

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from filelock import FileLock

from upwell.ground.errors import StoreCorrupt, StoreUnwritable
from upwell.ground.files import Stamp, exclusively, stamp, write_whole, writing
from upwell.ground.limits import SYSTEM_CLOCK, Clock

NEEDED = "needed"
WANTS = "upwell.wants"
"""In the extensions of a response: what is to be done so that the request is let in."""
EARLY_SECONDS = 10.0
"""A token is renewed so long before it ends."""


class LoginNeeded(Exception):
    """Nobody is logged in at a server, or the login is over. `str` says which."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """A user's login at the server at `url`. No `access_token`: it is over. `expires_at` is in
    seconds since the epoch, None where the server does not say; the rest is what renewing takes."""

    url: str
    access_token: str = field(repr=False)
    refresh_token: str = field(default="", repr=False)
    expires_at: float | None = None
    token_endpoint: str = ""
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    auth_method: str = "none"
    resource: str = ""
    scope: str = ""
    is_machine: bool = False
    """Made with a secret and no person (RFC 6749, section 4.4), and renewed in the same way."""
    wanted: str = ""
    """Scopes that the server asked for since: the next login asks for them too."""

    @property
    def holds(self) -> bool:
        return bool(self.access_token)

    @property
    def is_renewable(self) -> bool:
        return bool(self.token_endpoint and (self.refresh_token or self.is_machine))

    def is_fresh(self, now: float) -> bool:
        """Can it be used as it is?"""
        return self.holds and (self.expires_at is None or now < self.expires_at - EARLY_SECONDS)

    def described(self, now: float) -> str:
        """`renewed by itself`, until when it holds, that it is too narrow, or `needed` where it is
        over."""
        if not self.holds:
            return NEEDED
        if self.wanted:
            return "too narrow: log in again"
        if self.is_renewable or self.expires_at is None:
            return "renewed by itself" if self.is_renewable else "yes"
        until = datetime.fromtimestamp(self.expires_at, UTC).isoformat(timespec="minutes")
        return f"until {until.replace('+00:00', 'Z')}" if now < self.expires_at else NEEDED

    def wider(self, scope: str) -> "Login":
        """The login, of which the server says that it is too narrow: `scope` is needed."""
        asked = dict.fromkeys([*self.wanted.split(), *scope.split()])
        return dataclasses.replace(self, wanted=" ".join(asked))

    def over(self) -> "Login":
        """The login after the server has taken it back."""
        return dataclasses.replace(self, access_token="", refresh_token="")


class Logins:
    """The logins of a home, by the names of the servers. Read again whenever the file changed:
    other processes renew them as well."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp: Stamp | None = None
        self._known: Mapping[str, Login] = {}

    def get(self, server: str, url: str) -> Login | None:
        """The login at a server, if it was made for this address.

        Raises:
            StoreCorrupt, StoreUnwritable: the file cannot be read.
        """
        self._refresh()
        login = self._known.get(server)
        return login if login is not None and login.url == url else None

    def described(self, server: str, url: str, clock: Clock = SYSTEM_CLOCK) -> str:
        """How the login at a server is, in a word or two.

        Raises:
            StoreCorrupt, StoreUnwritable: the file cannot be read.
        """
        login = self.get(server, url)
        return login.described(clock.now()) if login else NEEDED

    def put(self, server: str, login: Login | None) -> bool:
        """Keep a login, or forget one. False where nothing was to be forgotten.

        Raises:
            StoreCorrupt, StoreUnwritable: nothing was changed.
        """
        with exclusively(self._path):
            self._refresh()
            if login is None and server not in self._known:
                return False
            known = {name: one for name, one in self._known.items() if name != server}
            if login is not None:
                known[server] = login
            body = {name: dataclasses.asdict(one) for name, one in known.items()}
            with writing(self._path):
                write_whole(self._path, json.dumps({"logins": body}, indent=2) + "\n")
            self._stamp = None
        return True

    def renewing(self, server: str) -> FileLock:
        """The lock under which one process renews the login at a server, and others wait."""
        path = self._path.with_name(f".login-{server}.lock")
        return FileLock(path, mode=0o600, thread_local=False)

    def _refresh(self) -> None:
        try:
            now = stamp(self._path)
            if now is None:
                self._known = {}
            elif now != self._stamp:
                self._known = _read(json.loads(self._path.read_text(encoding="utf-8")))
            self._stamp = now
        except OSError as error:
            raise StoreUnwritable(
                f"cannot use {self._path}: {error.strerror}", hint="check its owner and permissions"
            ) from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise StoreCorrupt(
                f"{self._path} is not as upwell wrote it", hint="remove it, and log in anew"
            ) from error


def _read(document: Any) -> Mapping[str, Login]:
    return {str(name): Login(**login) for name, login in document["logins"].items()}
