"""Tokens of an issuer through the real doors, the rate limit, and the audit log."""

import json
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

from tests.conftest import Upwell
from tests.doors.address import Address, Conversation, said, serving
from tests.doors.conftest import script, write_config
from tests.doors.reading import everything
from tests.postgres import cluster

KEY = rsa.generate_private_key(65537, 2048)
SECRET = "kestrelkestrel"


@pytest.fixture(scope="module")
def issuer() -> Iterator[str]:
    """The address of an issuer with one key."""
    public = {**RSAAlgorithm.to_jwk(KEY.public_key(), as_dict=True), "kid": "k"}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            url = f"http://127.0.0.1:{self.server.server_port}"
            document = {"issuer": url, "jwks_uri": f"{url}/keys"}
            body = document if "openid" in self.path else {"keys": [public]}
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


@dataclass(frozen=True)
class House:
    owner: Address
    issuer: str

    def of(self, subject: str = "ada", role: str = "writer") -> Address:
        claims = {"iss": self.issuer, "aud": "upwell", "sub": subject, "exp": time.time() + 600}
        token = jwt.encode(claims | {"role": role}, KEY, "RS256", headers={"kid": "k"})
        return Address(self.owner.port, token)


@pytest.fixture
def house(upwell: Upwell, home: Path, tmp_path: Path, issuer: str) -> Iterator[House]:
    url = cluster().emptied()
    write_config(
        home,
        {"up": script("upstream")},
        store={"url": url},
        oidc={"issuer": issuer, "audience": "upwell"},
    )
    with serving(home, tmp_path / "serve.log") as owner:
        yield House(owner, issuer)


def add(one: Conversation, content: str, **labels: Any) -> Mapping[str, Any]:
    return one.call("upwell__add_memory", content=content, **labels)


def test_users_of_an_issuer_share_memories_and_no_sessions(house: House) -> None:
    ada, bob = house.of("ada").begin(), house.of("bob", "reader").begin()
    add(ada, f"The settlement job runs at midnight, says {SECRET}.", namespace="team/ops")
    assert SECRET in everything(bob.call("upwell__search_memory", query="settlement"))
    assert bob.call("upwell__add_memory", content="x")["isError"]
    assert said(bob.call("up__echo", text="mine")) == "mine"
    stolen = house.of("bob").begin()
    stolen.session = ada.session
    assert stolen.post("tools/list", 1)[0] == 404
    assert SECRET not in json.dumps(str(house.owner.send("GET", None, "/metrics")))


def test_changes_and_denials_are_in_the_audit_log(upwell: Upwell, house: House) -> None:
    assert house.of("ada").send("GET", None, "/metrics")[0] == 403
    ada = house.of("ada").begin()
    add(ada, f"The vault opens at noon, says {SECRET}.", namespace="team/ops")
    house.of("rae", "reader").begin().call("upwell__add_memory", content="no")
    forged = Address(house.owner.port, "made-up-" + SECRET)
    assert [forged.send("POST", {"jsonrpc": "2.0"})[0] for _ in range(5)] == [401] * 5
    upwell("remember", f"The vault closes at six, says {SECRET}")
    assert upwell("token", "add", "tess").code == 0
    events = upwell("team", "audit", "--json").json["events"]
    seen = {(event["actor"], event["action"], event["outcome"][:7]) for event in events}
    assert ("oidc:ada", "add_memory", "done") in seen
    assert ("oidc:ada", "request", "denied:") in seen
    assert ("oidc:rae", "add_memory", "refused") in seen
    assert ("", "token_add", "done") in seen
    assert any(event["action"] == "store" for event in events)
    strangers = [event["outcome"] for event in events if event["actor"] == "unknown at 127.0.0.1"]
    assert strangers == ["denied: unknown token"]
    assert SECRET not in json.dumps(events)
    assert "oidc:ada" in upwell("team", "audit", "-n", "50").out


def test_a_mistake_in_oidc_stops_the_gateway(upwell: Upwell, home: Path, issuer: str) -> None:
    """A claim that an earlier version read must not be ignored: it kept users apart."""
    oidc = {"issuer": issuer, "audience": "upwell", "tenant_claim": "org"}
    write_config(home, {}, oidc=oidc)
    refused = upwell("serve", "--http", "127.0.0.1:0")
    assert (refused.code, len(refused.err.splitlines())) == (1, 1)
    assert "oidc.tenant_claim" in refused.err
