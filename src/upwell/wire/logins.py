"""The user's logins to servers, kept in one file in upwell's home, with mode 0600.

A login is valid for one URL. If the configured URL changes, the login no longer applies. The `repr`
of a login contains neither tokens nor the client secret.
"""

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from filelock import FileLock

from upwell.ground.clock import SYSTEM_CLOCK, Clock
from upwell.ground.errors import StoreCorrupt, StoreUnwritable
from upwell.ground.files import Stamp, exclusively, stamp, write_atomically, writing

NEEDED = "needed"
REQUIREMENT = "upwell.requirement"
"""The key in an HTTP response's `extensions` whose value tells the user how to get access."""
EARLY_SECONDS = 10.0
"""A token that expires within this time is renewed before it is used."""


class LoginNeeded(Exception):
    """The user has to log in to a server. The message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """A user's login to the server at `url`. If `access_token` is empty, the login has expired.
    `expires_at` is in epoch seconds, or None if the server does not report it. The other fields are
    needed to renew the login.
    """

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
    """True if the login is obtained and renewed with client credentials instead of by a user (RFC
    6749, section 4.4).
    """
    wanted: str = ""
    """Scopes that the server has demanded since this login. The next login requests them too."""

    @property
    def holds(self) -> bool:
        return bool(self.access_token)

    @property
    def is_renewable(self) -> bool:
        return bool(self.token_endpoint and (self.refresh_token or self.is_machine))

    def is_fresh(self, now: float) -> bool:
        return self.holds and (self.expires_at is None or now < self.expires_at - EARLY_SECONDS)

    def described(self, now: float) -> str:
        """Describe the state of the login in a few words, or as `needed` if it has expired."""
        if not self.holds:
            return NEEDED
        if self.wanted:
            return "too narrow: log in again"
        if self.is_renewable or self.expires_at is None:
            return "renewed by itself" if self.is_renewable else "yes"
        expiry = datetime.fromtimestamp(self.expires_at, UTC).isoformat(timespec="minutes")
        return f"until {expiry.replace('+00:00', 'Z')}" if now < self.expires_at else NEEDED

    def wider(self, scope: str) -> "Login":
        """Return the login with a note that the server also demands `scope`."""
        scopes = dict.fromkeys([*self.wanted.split(), *scope.split()])
        return dataclasses.replace(self, wanted=" ".join(scopes))

    def over(self) -> "Login":
        """Without its tokens, a login counts as expired."""
        return dataclasses.replace(self, access_token="", refresh_token="")


class Logins:
    """A home's logins, keyed by server name. The file is read again whenever it has changed,
    because other processes also renew logins.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp: Stamp | None = None
        self._known: Mapping[str, Login] = {}

    def get(self, server: str, url: str) -> Login | None:
        """Return the login to a server, if it is valid for this URL. Raises StoreCorrupt or
        StoreUnwritable if the file cannot be read."""
        self._refresh()
        login = self._known.get(server)
        return login if login is not None and login.url == url else None

    def described(self, server: str, url: str, clock: Clock = SYSTEM_CLOCK) -> str:
        login = self.get(server, url)
        return login.described(clock.now()) if login else NEEDED

    def put(self, server: str, login: Login | None) -> bool:
        """Save a login, or remove it with None. Returns False if there was none to remove. Raises
        StoreCorrupt or StoreUnwritable, with the file unchanged, if it cannot be read or
        written."""
        with exclusively(self._path):
            self._refresh()
            if login is None and server not in self._known:
                return False
            logins = {name: known for name, known in self._known.items() if name != server}
            if login is not None:
                logins[server] = login
            body = {name: dataclasses.asdict(known) for name, known in logins.items()}
            with writing(self._path):
                write_atomically(self._path, json.dumps({"logins": body}, indent=2) + "\n")
            self._stamp = None
        return True

    def renewing(self, server: str) -> FileLock:
        """Return the lock that a process must hold while it renews the login to a server."""
        path = self._path.with_name(f".login-{server}.lock")
        return FileLock(path, mode=0o600, thread_local=False)

    def _refresh(self) -> None:
        try:
            now = stamp(self._path)
            if now is None:
                self._known = {}
            elif now != self._stamp:
                rows = json.loads(self._path.read_text(encoding="utf-8"))["logins"]
                self._known = {str(name): Login(**row) for name, row in rows.items()}
            self._stamp = now
        except OSError as error:
            raise StoreUnwritable(
                f"cannot use {self._path}: {error.strerror}", hint="check its owner and permissions"
            ) from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise StoreCorrupt(
                f"{self._path} is damaged", hint="remove it, and log in again"
            ) from error
