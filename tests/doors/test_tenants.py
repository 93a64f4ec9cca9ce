"""Tenants through the real doors: tokens of an issuer, quotas, the audit log, export, deletion."""

import json
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import jwt
import psycopg
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
    url: str

    def of(self, tenant: str, subject: str = "ada", role: str = "writer") -> Address:
        claims = {"iss": self.issuer, "aud": "upwell", "sub": subject, "exp": time.time() + 600}
        more = {"org": tenant, "role": role}
        token = jwt.encode(claims | more, KEY, "RS256", headers={"kid": "k"})
        return Address(self.owner.port, token)


@pytest.fixture
def house(upwell: Upwell, home: Path, tmp_path: Path, issuer: str) -> Iterator[House]:
    url = cluster().emptied()
    write_config(
        home,
        {"up": script("upstream")},
        store={"url": url},
        oidc={"issuer": issuer, "audience": "upwell", "tenant_claim": "org"},
        limits={"requests_per_minute": 40, "tenant_notes": 3},
    )
    with serving(home, tmp_path / "serve.log") as owner:
        yield House(owner, issuer, url)


def add(one: Conversation, content: str, **labels: Any) -> Mapping[str, Any]:
    return one.call("upwell__add_memory", content=content, **labels)


def test_tenants_of_an_issuer_share_a_gateway_and_nothing_else(house: House) -> None:
    acme, globex = house.of("acme").begin(), house.of("globex").begin()
    add(acme, f"The settlement job runs at midnight, says {SECRET}.")
    seen = everything(acme.call("upwell__search_memory", query="settlement"))
    assert SECRET in seen
    colleague = house.of("acme", "bob", "reader").begin()
    assert SECRET in everything(colleague.call("upwell__memory_search", query="settlement"))
    assert colleague.call("upwell__add_memory", content="x")["isError"]
    for other in (globex, house.owner.begin()):
        for tool in ("search_memory", "memory_search"):
            shown = everything(other.call(f"upwell__{tool}", query=f"settlement {SECRET}"))
            assert "midnight" not in shown
    assert said(globex.call("up__echo", text="mine")) == "mine", "the servers are shared"
    stolen = house.of("globex").begin()
    stolen.session = acme.session
    assert stolen.post("tools/list", 1)[0] == 404
    assert SECRET not in json.dumps(str(house.owner.send("GET", None, "/metrics")))


def test_limits_are_answered_in_one_line(house: House) -> None:
    ada = house.of("initech").begin()
    for number in range(3):
        assert "isError" not in add(ada, f"Note number {number} on the printer.")
    refused = add(ada, "One more.")
    assert refused["isError"]
    assert "3 notes, which is the limit" in said(refused)
    statuses = [ada.post("ping", number)[0] for number in range(60)]
    assert 429 in statuses
    status, headers, answer = house.of("initech").send("POST", {"jsonrpc": "2.0"})
    assert status == 429
    assert int(headers["retry-after"]) >= 1
    assert answer == {"error": "you may make 40 requests a minute"}
    assert house.of("initech", "bob").send("POST", {"jsonrpc": "2.0"})[0] != 429


def test_a_tenant_is_audited_exported_and_deleted(upwell: Upwell, house: House, home: Path) -> None:
    assert house.of("acme").send("GET", None, "/metrics")[0] == 403
    ada = house.of("acme").begin()
    add(ada, f"The vault opens at noon, says {SECRET}.", namespace="team/ops")
    house.of("acme", "rae", "reader").begin().call("upwell__add_memory", content="no")
    forged = Address(house.owner.port, "made-up-" + SECRET)
    assert [forged.send("POST", {"jsonrpc": "2.0"})[0] for _ in range(5)] == [401] * 5
    ada.call("up__big_json")
    stored = {"UPWELL_STORE__TENANT": "acme"}
    upwell("remember", f"The vault closes at six, says {SECRET}", env=stored)
    upwell("remember", "The owner's own memory of the vault")
    assert upwell("token", "add", "tess", "--tenant", "acme").code == 0

    audit = upwell("tenant", "audit", "acme", "--json").json["events"]
    seen = {(event["actor"], event["action"], event["outcome"][:7]) for event in audit}
    assert ("oidc:ada", "add_memory", "done") in seen
    assert ("oidc:rae", "add_memory", "refused") in seen
    assert ("", "token_add", "done") in seen
    assert any(event["action"] == "store" for event in audit)
    assert SECRET not in json.dumps(audit)
    denials = upwell("tenant", "audit", "--json").json["events"]
    assert "oidc:ada of acme" in {event["actor"] for event in denials}
    strangers = [event["outcome"] for event in denials if event["actor"] == "unknown at 127.0.0.1"]
    assert strangers == ["denied: unknown token"]
    assert SECRET not in json.dumps(denials)

    exported = upwell("tenant", "export", "acme")
    assert exported.code == 0
    lines = [json.loads(line) for line in exported.out.splitlines()]
    assert {"memory", "audit", "tenant", "entry"} <= {line.get("table") for line in lines}
    assert exported.out.count(SECRET) >= 1
    assert "owner's own" not in exported.out

    mine = Address(house.owner.port, upwell("token", "add", "tim").out.strip())
    assert mine.send("POST", {"jsonrpc": "2.0"})[0] != 401
    upwell("recall", "vault", env=stored)
    upwell("token", "list", env=stored)
    assert mine.send("POST", {"jsonrpc": "2.0"})[0] != 401
    assert any(SECRET.encode() in path.read_bytes() for path in home.glob("index.db*"))
    refused = upwell("tenant", "delete", "acme")
    assert (refused.code, len(refused.err.splitlines())) == (2, 1)
    wait_until_quiet(house.url)
    deleted = upwell("tenant", "delete", "acme", "--yes", "--json").json["deleted"]
    assert deleted["memory"] == 1
    assert deleted["tokens"] == 1
    (latest, *_) = upwell("tenant", "audit", "--json").json["events"]
    assert (latest["action"], latest["subject"]) == ("tenant_delete", "acme")
    assert_gone(house.url, SECRET)
    for path in home.rglob("*"):
        if path.is_file():
            assert SECRET.encode() not in path.read_bytes(), path
    assert "owner's own" in upwell("recall", "vault").out


def wait_until_quiet(url: str) -> None:
    """Wait until the gateway has written what it writes after its answers."""
    counts: list[int] = []
    while len(counts) < 4 or len({*counts[-4:]}) > 1:
        with psycopg.connect(as_superuser(url)) as connection:
            row = connection.execute("SELECT count(*) FROM upwell.entry").fetchone()
            counts.append(row[0] if row else 0)
        time.sleep(0.3)


def as_superuser(url: str) -> str:
    return url.replace("upwell_app@", "postgres@")


def assert_gone(url: str, text: str) -> None:
    """Assert that no table of upwell in the database contains `text`."""
    with psycopg.connect(as_superuser(url)) as connection:
        tables = connection.execute(
            "SELECT schemaname, tablename FROM pg_tables WHERE schemaname = 'upwell'"
        ).fetchall()
        assert len(tables) >= 15
        for schema, table in tables:
            found = connection.execute(
                f"SELECT count(*) FROM {schema}.{table} AS t "  # type: ignore[arg-type]
                "WHERE t::text LIKE %s OR t::text LIKE %s",
                [f"%{text}%", f"%{text.encode().hex()}%"],
            ).fetchone()
            assert found == (0,), table
