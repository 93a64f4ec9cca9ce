"""Authenticate requests with a login, and renew the login when it expires.

A renewal is one POST (RFC 6749, section 6). The OAuth client in the official Python SDK is not
used, because it takes a second and 37 MB to load, ignores other processes that renew the same
login, and starts an interactive login even if there is no user. This code never asks the user.
"""

import asyncio
import base64
import dataclasses
import re
from collections.abc import AsyncGenerator
from typing import Any
from urllib.parse import quote

import httpx2
from filelock import Timeout

from upwell.ground.clock import SYSTEM_CLOCK, Clock
from upwell.ground.errors import StoreError
from upwell.ground.trace import LOG
from upwell.wire.logins import REQUIREMENT, Login, LoginNeeded, Logins

MAX_SCOPE_CHARS = 500
RENEW_SECONDS = 30.0
_PARAMETER = re.compile(r"(?<!\w)(\w++)\s*+=\s*+(?:\"([^\"\\]*)\"|([^\s,\"]+))")
_POLL_SECONDS = 0.05
_REFUSED = (400, 401, 403)


class LoginAuth(httpx2.Auth):
    """Adds the access token to requests to `server`. The user's login must be for `url`."""

    def __init__(self, logins: Logins, server: str, url: str, clock: Clock = SYSTEM_CLOCK) -> None:
        self._logins = logins
        self._server = server
        self._url = url
        self._clock = clock
        self._renewing = asyncio.Lock()

    async def async_auth_flow(
        self, request: httpx2.Request
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Send the request with the token. If the server does not accept the token, send the
        request again with a new one. Raises LoginNeeded if the server does not accept the login, or
        only the user can renew it, and httpx2.HTTPError if it cannot be renewed at the moment."""
        login = self._known()
        if not login.is_fresh(self._clock.now()):
            login = await self._renewed(login)
        request.headers["authorization"] = f"Bearer {login.access_token}"
        response = yield request
        if response.status_code == 403 and (scope := _missing_scope(response)):
            wider = login.wider(scope)
            if wider != login:
                self._save(wider)
            response.extensions[REQUIREMENT] = (
                f"server {self._server!r} wants a login with more rights ({scope}); "
                f"run `upwell login {self._server}` again"
            )
        if response.status_code == 401:
            login = await self._renewed(login)
            request.headers["authorization"] = f"Bearer {login.access_token}"
            response = yield request
            if response.status_code == 401:
                raise LoginNeeded("it does not accept the login")

    def _known(self) -> Login:
        try:
            login = self._logins.get(self._server, self._url)
        except StoreError as error:
            raise LoginNeeded(error.message) from error
        if login is None:
            raise LoginNeeded("there is no login")
        if not login.holds:
            raise LoginNeeded("the login has expired")
        return login

    async def _renewed(self, spent: Login) -> Login:
        async with self._renewing:
            lock = self._logins.renewing(self._server)
            try:
                async with asyncio.timeout(RENEW_SECONDS):
                    while True:
                        try:
                            lock.acquire(blocking=False)
                            break
                        except Timeout:
                            await asyncio.sleep(_POLL_SECONDS)
                    login = self._known()
                    if login.access_token != spent.access_token:
                        return login
                    return await self._renew(login)
            except TimeoutError as error:
                raise httpx2.ReadTimeout("the login could not be renewed in time") from error
            finally:
                lock.release()

    async def _renew(self, login: Login) -> Login:
        if not login.is_renewable:
            self._save(login.over())
            raise LoginNeeded("the login has expired")
        async with httpx2.AsyncClient(timeout=RENEW_SECONDS, follow_redirects=False) as client:
            response = await client.send(_request(login))
        if response.status_code in _REFUSED:
            self._save(login.over())
            raise LoginNeeded("the login has expired")
        fresh = self._read(login, response)
        self._save(fresh)
        LOG.info("the login to %s was renewed", self._server)
        return fresh

    def _read(self, login: Login, response: httpx2.Response) -> Login:
        try:
            body: Any = response.raise_for_status().json()
            token, kind = body["access_token"], body.get("token_type", "bearer")
            seconds = body.get("expires_in")
            if not (isinstance(token, str) and token and str(kind).lower() == "bearer"):
                raise TypeError("no bearer token")
            return dataclasses.replace(
                login,
                access_token=token,
                refresh_token=str(body.get("refresh_token") or login.refresh_token),
                expires_at=None if seconds is None else self._clock.now() + float(seconds),
                scope=str(body.get("scope") or login.scope),
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            why = f"the login could not be renewed: HTTP {response.status_code}, no token"
            raise httpx2.RemoteProtocolError(why) from error

    def _save(self, login: Login) -> None:
        """Save the login. A failure is only logged. The next request may then need a new login."""
        try:
            self._logins.put(self._server, login)
        except StoreError as error:
            LOG.error("the login to %s cannot be saved: %s", self._server, error)


def _missing_scope(response: httpx2.Response) -> str:
    """Return the scopes that a request lacks (RFC 6750, section 3.1), or "" if it was refused for
    another reason."""
    header = response.headers.get("www-authenticate", "")
    pairs = _PARAMETER.findall(header)
    parameters = {name.lower(): quoted or plain for name, quoted, plain in pairs}
    scope = " ".join(parameters.get("scope", "").split())
    is_missing = parameters.get("error") == "insufficient_scope" and scope.isascii()
    return scope if is_missing and len(scope) <= MAX_SCOPE_CHARS else ""


def _request(login: Login) -> httpx2.Request:
    data = {"grant_type": "refresh_token", "refresh_token": login.refresh_token}
    if login.is_machine:
        data = {"grant_type": "client_credentials", "scope": login.scope}
    data = {name: value for name, value in data.items() if value} | {"client_id": login.client_id}
    headers = {"accept": "application/json"}
    if login.resource:
        data["resource"] = login.resource
    if login.auth_method == "client_secret_basic":
        pair = f"{quote(login.client_id, safe='')}:{quote(login.client_secret, safe='')}"
        headers["authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
    elif login.auth_method == "client_secret_post":
        data["client_secret"] = login.client_secret
    return httpx2.Request("POST", login.token_endpoint, data=data, headers=headers)
