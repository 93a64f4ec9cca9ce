"""Tokens of an issuer: real signatures, a real server of keys, rotation, and forgeries."""

import base64
import json
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given, settings
from hypothesis import strategies as st
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from upwell.ground.errors import ConfigError
from upwell.ground.types.rpc import Principal, Role, granted, private_of
from upwell.testing import ManualClock
from upwell.web.oidc import (
    KEYS_SECONDS,
    REFETCH_SECONDS,
    STALE_SECONDS,
    InvalidToken,
    Oidc,
    OidcOptions,
    name_of,
    open_oidc,
)

KEYS: dict[str, Any] = {
    "RS256": rsa.generate_private_key(65537, 2048),
    "other": rsa.generate_private_key(65537, 2048),
    "ES256": ec.generate_private_key(ec.SECP256R1()),
    "EdDSA": ed25519.Ed25519PrivateKey.generate(),
}
_FORMS: Mapping[str, Any] = {"ES256": ECAlgorithm, "EdDSA": OKPAlgorithm}


def public(name: str, **more: Any) -> dict[str, Any]:
    form = _FORMS.get(name, RSAAlgorithm)
    return {**form.to_jwk(KEYS[name].public_key(), as_dict=True), "kid": name, **more}


@dataclass
class Issuer:
    """A server of keys on loopback."""

    url: str = ""
    keys: list[dict[str, Any]] = field(default_factory=list)
    requests: int = 0
    status: int = 200
    named_issuer: str = ""

    def answer(self, path: str) -> object:
        self.requests += 1
        if path.endswith("openid-configuration"):
            return {"issuer": self.named_issuer or self.url, "jwks_uri": f"{self.url}/keys"}
        return {"keys": self.keys}


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    issuer = Issuer(keys=[public("RS256")])

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps(issuer.answer(self.path)).encode()
            self.send_response(issuer.status)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    issuer.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield issuer
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def opened(issuer: Issuer, clock: ManualClock, **more: Any) -> Oidc:
    options = OidcOptions(issuer=issuer.url, audience="upwell", **more)
    return Oidc(options, clock=clock)


def token(issuer: Issuer, key: str = "RS256", kid: str | None = None, **claims: Any) -> str:
    now = time.time()
    usual = {"iss": issuer.url, "aud": "upwell", "sub": "ada", "iat": now, "exp": now + 300}
    held = {name: value for name, value in (usual | claims).items() if value is not None}
    algorithm = key if key in ("ES256", "EdDSA") else "RS256"
    return jwt.encode(held, KEYS[key], algorithm, headers={"kid": kid or key})


async def reason(oidc: Oidc, text: str) -> str:
    refused = await oidc.verify(text)
    assert isinstance(refused, InvalidToken)
    return refused.reason


@pytest.mark.parametrize("key", ["RS256", "ES256", "EdDSA"])
async def test_a_signed_token_names_its_principal(issuer, clock, key: str) -> None:
    issuer.keys = [public(name) for name in KEYS]
    assert await opened(issuer, clock).verify(token(issuer, key)) == granted(
        "oidc:ada", role=Role.READER
    )


async def test_claims_hold_the_role_and_the_namespaces(issuer, clock) -> None:
    oidc = opened(issuer, clock, role_claim="roles")
    claims = {"roles": ["x", "reader", "admin"], "namespaces": ["team/*", "Decision"]}
    principal = await oidc.verify(token(issuer, **claims))
    assert principal == granted("oidc:ada", ["team/*", "decisions"], Role.ADMIN)
    for names in ([], [7], {"a": 1}, "a b;c", ["x" * 99]):
        refused = await oidc.verify(token(issuer, **(claims | {"namespaces": names})))
        assert isinstance(refused, InvalidToken), names


async def test_no_claim_opens_anothers_private_namespaces(issuer, clock) -> None:
    for name in ("me/*", "me/", f"{private_of('oidc:bob')}*", "me"):
        principal = await opened(issuer, clock).verify(token(issuer, namespaces=[name]))
        if isinstance(principal, Principal):
            assert not principal.sees(granted("oidc:bob").stored("me/ideas"))
            assert not principal.sees("decisions")


async def test_invalid_tokens_are_refused_with_their_reason(issuer, clock) -> None:
    oidc, past = opened(issuer, clock), time.time() - 3_600
    for text, why in (
        (token(issuer, exp=past), "has expired"),
        (token(issuer, aud="another"), "another audience"),
        (token(issuer, aud=None), "lacks"),
        (token(issuer, iss="https://evil.example"), "another issuer"),
        (token(issuer, exp=None), "lacks"),
        (token(issuer, sub=None), "lacks"),
        (token(issuer, nbf=time.time() + 3_600), "not valid yet"),
        (token(issuer, "other", kid="RS256"), "signature is wrong"),
        (token(issuer, "other"), "not signed by a key of the issuer"),
        (token(issuer)[:-4] + "AAAA", "signature is wrong"),
        ("a.b.c", "unknown token"),
        ("..", "unknown token"),
        ("x" * 20_000, "too long"),
    ):
        assert why in await reason(oidc, text), why


def part(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


async def test_unsigned_tokens_and_shared_secrets_are_refused(issuer, clock) -> None:
    oidc, now = opened(issuer, clock), time.time()
    claims = {"iss": issuer.url, "aud": "upwell", "sub": "ada", "exp": now + 300}
    for alg in ("none", "None", "NONE", ""):
        forged = f"{part({'alg': alg, 'kid': 'RS256'})}.{part(claims)}."
        assert "algorithm is not accepted" in await reason(oidc, forged)
    # The public key as the secret of an HMAC: the classic confusion of algorithms.
    pem = KEYS["RS256"].public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    header = part({"alg": "HS256", "kid": "RS256"})
    hmac = jwt.algorithms.HMACAlgorithm(jwt.algorithms.HMACAlgorithm.SHA256)
    signed = f"{header}.{part(claims)}"
    mac = base64.urlsafe_b64encode(hmac.sign(signed.encode(), pem)).rstrip(b"=").decode()
    assert "algorithm is not accepted" in await reason(oidc, f"{signed}.{mac}")


async def test_keys_that_are_no_public_signing_keys_are_not_used(issuer, clock) -> None:
    secret = {"kty": "oct", "k": part("x" * 40), "kid": "RS256", "alg": "HS256"}
    issuer.keys = [secret, public("other", use="enc"), {"kty": "??", "kid": "y"}]
    refused = await opened(issuer, clock).verify(token(issuer))
    assert refused == InvalidToken("the keys of the issuer cannot be fetched", 503)


async def test_a_rotated_key_is_fetched_and_the_old_one_stops(issuer, clock) -> None:
    oidc = opened(issuer, clock)
    assert isinstance(await oidc.verify(token(issuer)), Principal)
    issuer.keys = [public("other")]
    clock.advance(REFETCH_SECONDS + 1)
    assert isinstance(await oidc.verify(token(issuer, "other")), Principal)
    assert "not signed by a key" in await reason(oidc, token(issuer))


async def test_a_withdrawn_key_stops_without_a_new_one(issuer, clock) -> None:
    issuer.keys = [public("RS256"), public("other")]
    oidc = opened(issuer, clock)
    assert isinstance(await oidc.verify(token(issuer)), Principal)
    issuer.keys = [public("other")]
    assert isinstance(await oidc.verify(token(issuer)), Principal)
    clock.advance(KEYS_SECONDS + 1)
    assert "not signed by a key" in await reason(oidc, token(issuer))


async def test_unknown_keys_do_not_flood_the_issuer(issuer, clock) -> None:
    oidc = opened(issuer, clock)
    for number in range(50):
        await oidc.verify(token(issuer, "other", kid=f"made up {number}"))
    assert issuer.requests == 2, "discovery and keys, once"
    assert isinstance(await oidc.verify(token(issuer)), Principal)


async def test_a_lost_issuer_is_survived_for_an_hour(issuer, clock) -> None:
    oidc = opened(issuer, clock)
    assert isinstance(await oidc.verify(token(issuer)), Principal)
    issuer.status = 500
    clock.advance(KEYS_SECONDS + 1)
    assert isinstance(await oidc.verify(token(issuer)), Principal)
    clock.advance(STALE_SECONDS)
    lost = InvalidToken("the keys of the issuer cannot be fetched", 503)
    assert await oidc.verify(token(issuer)) == lost
    assert await oidc.verify(token(issuer)) == lost
    issuer.status = 200
    clock.advance(REFETCH_SECONDS + 1)
    assert isinstance(await oidc.verify(token(issuer)), Principal)


async def test_discovery_for_another_issuer_is_not_believed(issuer, clock) -> None:
    issuer.named_issuer = "https://evil.example"
    refused = await opened(issuer, clock).verify(token(issuer))
    assert refused == InvalidToken("the keys of the issuer cannot be fetched", 503)


@settings(max_examples=200)
@given(st.text(), st.text())
def test_subjects_never_share_a_name(one: str, other: str) -> None:
    assert (name_of(one) == name_of(other)) == (one == other)
    assert name_of(one).startswith("oidc:")
    assert not set(name_of(one).removeprefix("oidc:")) & set("@ /\n\0\\'\"#")


@pytest.mark.parametrize(
    "options",
    [
        {"issuer": "https://id.example"},
        {"issuer": "http://id.example", "audience": "upwell"},
        {"issuer": "file:///etc", "audience": "a"},
    ],
)
def test_unsafe_settings_are_refused(options: dict[str, str]) -> None:
    with pytest.raises(ConfigError):
        open_oidc(OidcOptions(**options))
    assert open_oidc(OidcOptions()) is None
