"""Verify JSON web tokens from an OpenID Connect issuer with the issuer's public keys, and find the
principal of each token.

A token must be signed with one of `ALGORITHMS`, and must contain the issuer, this gateway's
audience, a subject and an expiry time. The keys are fetched when the first token arrives, again
after `KEYS_SECONDS`, and when a token refers to an unknown key. A key rotation needs no restart.
"""

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from msgspec import Struct

from upwell.ground.clock import SYSTEM_CLOCK, Clock
from upwell.ground.errors import ConfigError, UsageError, extra_hint
from upwell.ground.trace import LOG
from upwell.ground.types.rpc import Principal, Role, granted
from upwell.memory.records import namespace_pattern
from upwell.web.options import OidcOptions

if TYPE_CHECKING:
    from jwt import PyJWK

LEEWAY_SECONDS = 30.0
"""How far the issuer's clock may differ from this machine's."""
ALGORITHMS = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "EdDSA"),
)
"""Only signatures with public keys are accepted. `none` proves nothing, and a signature with a
shared secret may come from anybody who has the secret.
"""
KEYS_SECONDS = 600.0
STALE_SECONDS = 3_600.0
"""How old the keys may become while the issuer cannot be reached."""
REFETCH_SECONDS = 5.0
"""The minimum time between two attempts to fetch the keys."""
FETCH_SECONDS = 5.0
MAX_TOKEN_CHARS = 16_384
MAX_ANSWER_BYTES = 1_000_000
MAX_NAME_CHARS = 120
MAX_NAMESPACES = 100
_DISCOVERY = "/.well-known/openid-configuration"

READER = Role.READER
NAMESPACES = "namespaces"
"""The claim that lists the namespaces which a user may see."""
_REASONS = {
    "InvalidAudienceError": "the token is for another audience",
    "InvalidIssuerError": "the token is from another issuer",
    "InvalidSignatureError": "the token's signature is wrong",
    "ImmatureSignatureError": "the token is not valid yet",
    "MissingRequiredClaimError": "the token lacks exp, iss, aud or sub",
}


class InvalidToken(Struct, frozen=True):
    """Why a token is not accepted, and the HTTP status of the response."""

    reason: str
    status: int = 401


Verify = Callable[[str], Awaitable[Principal | InvalidToken]]


class IssuerKeys:
    """An issuer's public keys, by id."""

    def __init__(self, options: OidcOptions, clock: Clock) -> None:
        self._options = options
        self._clock = clock
        self._keys: Mapping[str, PyJWK] = {}
        self._fetched_at = self._tried_at = float("-inf")
        self._fetching = asyncio.Lock()

    async def find(self, key_id: str) -> "PyJWK | None":
        """Raises OSError or ValueError if the keys cannot be fetched and the last ones are too
        old."""
        if self._age() > KEYS_SECONDS or key_id not in self._keys:
            await self._refresh(key_id)
        return self._keys.get(key_id)

    def _age(self) -> float:
        return self._clock.monotonic() - self._fetched_at

    async def _refresh(self, key_id: str) -> None:
        async with self._fetching:
            is_known = key_id in self._keys and self._age() <= KEYS_SECONDS
            since = self._clock.monotonic() - self._tried_at
            if is_known or (since < REFETCH_SECONDS and self._age() <= STALE_SECONDS):
                return
            if since < REFETCH_SECONDS:
                raise OSError("the issuer could not be reached a moment ago")
            self._tried_at = self._clock.monotonic()
            try:
                self._keys = _keys_in(await fetched(await self._address()))
                self._fetched_at = self._clock.monotonic()
            except (OSError, ValueError) as error:
                if self._age() > STALE_SECONDS:
                    self._keys = {}
                    raise
                LOG.warning("the keys of the issuer cannot be fetched: %s", error)

    async def _address(self) -> str:
        issuer = self._options.issuer
        document = _object_in(await fetched(f"{issuer.rstrip('/')}{_DISCOVERY}"))
        if document.get("issuer") != issuer:
            raise ValueError("the discovery document is for another issuer")
        address = document.get("jwks_uri")
        if not isinstance(address, str):
            raise ValueError("the discovery document contains no address of keys")
        check_address(address)
        return address


class Oidc:
    """Verifies the tokens of one issuer, and names their principals."""

    def __init__(self, options: OidcOptions, clock: Clock = SYSTEM_CLOCK) -> None:
        self._options = options
        self._keys = IssuerKeys(options, clock)

    async def verify(self, token: str) -> Principal | InvalidToken:
        import jwt

        if len(token) > MAX_TOKEN_CHARS:
            return InvalidToken("the token is too long")
        try:
            header = jwt.get_unverified_header(token)
        except (jwt.InvalidTokenError, ValueError, RecursionError):
            return InvalidToken("unknown token")
        if header.get("alg") not in ALGORITHMS:
            return InvalidToken("the token's signature algorithm is not accepted")
        try:
            key = await self._keys.find(str(header.get("kid", "")))
        except (OSError, ValueError) as error:
            LOG.warning("no token of the issuer can be verified: %s", error)
            return InvalidToken("the keys of the issuer cannot be fetched", 503)
        if key is None:
            return InvalidToken("the token is not signed by a key of the issuer")
        try:
            claims: Mapping[str, Any] = jwt.decode(
                token,
                key=key,
                algorithms=list(ALGORITHMS),
                issuer=self._options.issuer,
                audience=self._options.audience,
                leeway=LEEWAY_SECONDS,
                options={"require": ["exp", "iss", "aud", "sub"]},
            )
        except jwt.ExpiredSignatureError:
            return InvalidToken("the token has expired")
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError) as error:
            LOG.info("a token was refused: %s", type(error).__name__)
            return InvalidToken(_REASONS.get(type(error).__name__, "the token is not valid"))
        try:
            namespaces = [namespace_pattern(name) for name in self._namespaces(claims)]
        except UsageError as error:
            return InvalidToken(error.message, 403)
        return granted(name_of(str(claims["sub"])), namespaces, self._role(claims))

    def _namespaces(self, claims: Mapping[str, Any]) -> Sequence[str]:
        given = claims.get(NAMESPACES, ())
        listed = given.split() if isinstance(given, str) else given
        if not isinstance(listed, list | tuple) or not all(isinstance(n, str) for n in listed):
            raise UsageError("the token's namespaces are not a list of names")
        if len(listed) > MAX_NAMESPACES:
            raise UsageError(f"the token contains more than {MAX_NAMESPACES} namespaces")
        if not listed and NAMESPACES in claims:
            raise UsageError("the token contains no namespace")
        return listed

    def _role(self, claims: Mapping[str, Any]) -> Role:
        """Return the highest role in the claim, or `reader` if the claim has no role."""
        given = claims.get(self._options.role_claim)
        named = given if isinstance(given, list) else str(given or "").split()
        return max((role for role in Role if role in named), key=list(Role).index, default=READER)


def open_oidc(options: OidcOptions) -> Oidc | None:
    """None if no issuer is configured. Raises ConfigError if the audience is missing, an address is
    not safe, or the library is missing."""
    if not options.issuer:
        return None
    if not options.audience:
        raise ConfigError(
            "oidc.issuer needs oidc.audience",
            key="oidc.audience",
            hint="set it to this gateway's name at the issuer; tokens for others are refused",
        )
    try:
        check_address(options.issuer)
        import jwt.algorithms

        if not jwt.algorithms.has_crypto:
            raise ImportError
    except ValueError as error:
        raise ConfigError(str(error), key="oidc.issuer", hint="write https://…") from error
    except ImportError as error:
        raise ConfigError(
            "oidc.* needs the JWT library", key="oidc.issuer", hint=extra_hint("oidc")
        ) from error
    return Oidc(options)


def name_of(subject: str) -> str:
    """Return the name of the principal with this subject. The subject is percent-encoded or hashed,
    because some characters separate the parts of keys in upwell's stores. Names of upwell's own
    tokens contain no colon, so none of them can equal this name."""
    name = f"oidc:{quote(subject, safe='', errors='surrogatepass')}"
    if len(name) <= MAX_NAME_CHARS:
        return name
    digest = hashlib.sha256(subject.encode("utf-8", "surrogatepass")).hexdigest()
    return f"oidc:sha256:{digest}"


def check_address(address: str) -> None:
    """Raises ValueError unless the address is HTTPS or on this machine."""
    parts = urlsplit(address)
    local = parts.scheme == "http" and parts.hostname in ("127.0.0.1", "::1", "localhost")
    if not (local or parts.scheme == "https") or not parts.hostname:
        raise ValueError(f"{address!a:.80} is not an HTTPS address")


async def fetched(address: str) -> bytes:
    """Redirects are not followed. Raises OSError if the server cannot be reached, is too slow,
    sends too much, or does not respond with status 200."""
    import httpx2

    try:
        async with (
            asyncio.timeout(FETCH_SECONDS),
            httpx2.AsyncClient(trust_env=False) as client,
            client.stream("GET", address) as response,
        ):
            if response.status_code != httpx2.codes.OK:
                raise OSError(f"{urlsplit(address).hostname} answered {response.status_code}")
            body = b""
            async for chunk in response.aiter_bytes():
                body += chunk
                if len(body) > MAX_ANSWER_BYTES:
                    raise OSError(f"{urlsplit(address).hostname} sent too much")
            return body
    except (httpx2.HTTPError, httpx2.InvalidURL, TimeoutError) as error:
        raise OSError(f"{urlsplit(address).hostname}: {type(error).__name__}") from error


def _keys_in(body: bytes) -> "dict[str, PyJWK]":
    import jwt

    found: dict[str, PyJWK] = {}
    listed = _object_in(body).get("keys")
    if not isinstance(listed, list):
        raise ValueError("the issuer's keys are not a key set")
    for raw in listed:
        if not isinstance(raw, dict) or raw.get("kty") == "oct" or raw.get("use", "sig") != "sig":
            continue
        try:
            found[str(raw.get("kid", ""))] = jwt.PyJWK(raw)
        except jwt.PyJWTError:
            continue
    if not found:
        raise ValueError("the issuer has no usable key")
    return found


def _object_in(body: bytes) -> Mapping[str, Any]:
    document = json.loads(body)
    if not isinstance(document, dict):
        raise ValueError("the issuer's answer is not an object")
    return document
