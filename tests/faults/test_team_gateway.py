"""Attacks on `/team` of a gateway, by holders of tokens, over real HTTP and a real PostgreSQL."""

import asyncio
import json
import secrets
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import psycopg
import pytest

from tests.postgres import APPLICATION, cluster
from tests.team_gateway import OWNER_TOKEN, Gateway, gateway
from upwell.ground.postgres.connection import Postgres
from upwell.ground.types.memory import Memory, Scope, Trust
from upwell.ground.types.rpc import Role, granted, private_of
from upwell.memory.postgres.store import PostgresStore

pytestmark = pytest.mark.slow  # every attack opens a gateway and a PostgreSQL
TOKENS = {
    "ada-token": granted("ada"),
    "ben-token": granted("ben"),
    "reader-token": granted("rita", role=Role.READER),
    "web-token": granted("wes", ["team/web"]),
    "admin-token": granted("amy", role=Role.ADMIN),
}


class Attacker:
    """Sends requests of its own making with a token."""

    def __init__(self, opened: Gateway, token: str) -> None:
        self._opened = opened
        self._headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
        self.source = ""

    async def begin(self) -> "Attacker":
        self.source = (await self.send("GET", "/team")).json()["source"]
        return self

    async def send(self, method: str, path: str, **more: Any) -> httpx2.Response:
        headers = {**self._headers, **more.pop("headers", {})}
        async with httpx2.AsyncClient(trust_env=False, timeout=30) as client:
            return await client.request(method, self._opened.url + path, headers=headers, **more)

    async def read(self) -> list[dict[str, Any]]:
        """Every memory of the snapshot."""
        answer = await self.send("GET", "/team/snapshot")
        assert answer.status_code == 200, answer.text
        memories: list[dict[str, Any]] = answer.json()["memories"]
        return memories

    async def write(self, *writes: dict[str, Any], **more: Any) -> httpx2.Response:
        message = {"protocol": 2, "source": self.source, "writes": writes, **more}
        return await self.send("POST", "/team/writes", content=json.dumps(message))

    async def refusal(self, content: Any, id: str = "m") -> str:
        """The reason why a write is refused, "" if it is not."""
        answer = await self.write(a_write(id, content))
        assert answer.status_code == 200, answer.text
        refused = answer.json()["refused"]
        return refused[0]["reason"] if refused else ""


def a_write(id: str, content: Any, token: str = "") -> dict[str, Any]:
    if isinstance(content, dict):
        content = {"text": "tide", "id": id, "namespace": "team", **content}
    return {"token": token or secrets.token_hex(16), "id": id, "content": content}


class Site:
    """A gateway, its attackers by the start of their tokens, and the store of the team."""

    def __init__(self, opened: Gateway, url: str) -> None:
        self.gateway = opened
        self.url = url
        self.store = PostgresStore(Postgres(url))

    async def attacker(self, name: str) -> Attacker:
        token = OWNER_TOKEN if name == "owner" else f"{name}-token"
        return await Attacker(self.gateway, token).begin()

    async def texts(self) -> dict[str, str]:
        return {memory.id: memory.text for memory in await self.store.list(Scope())}

    def audited(self, action: str) -> list[tuple[str, str, str]]:
        with psycopg.connect(self.url.replace(APPLICATION, "postgres")) as connection:
            sql = "SELECT actor, subject, outcome FROM upwell.audit WHERE action = %s"
            return [(str(a), str(b), str(c)) for a, b, c in connection.execute(sql, [action])]


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    url = cluster().emptied()
    settings = {"UPWELL_STORE__READ_ONLY": '["standards"]'}
    async with gateway(tmp_path, url, TOKENS, **settings) as opened:
        built = Site(opened, url)
        yield built
        await built.store.aclose()


async def test_another_tenant_in_a_body_is_refused(site: Site) -> None:
    ada = await site.attacker("ada")
    assert "tenant" in await ada.refusal({"tenant": "acme"})
    assert "tenant" in await ada.refusal({"tenant": "upwell"})
    assert await site.texts() == {}


async def test_private_memories_of_others_do_not_leave_not_even_by_their_ids(site: Site) -> None:
    await site.store.add(
        [
            Memory(text="tide of ben", id="secret-of-ben", namespace=f"{private_of('ben')}x"),
            Memory(text="tide", id="open"),
        ]
    )
    await site.store.delete("secret-of-ben")
    await site.store.restore("secret-of-ben")
    for name in ("ada", "ben", "admin", "owner"):
        attacker = await site.attacker(name)
        assert [memory["id"] for memory in await attacker.read()] == ["open"]


async def test_nobody_changes_deletes_or_supersedes_what_is_not_theirs(site: Site) -> None:
    private = f"{private_of('ben')}x"
    await site.store.add(
        [
            Memory(text="tide of ben", id="b", namespace=private),
            Memory(text="gone of ben", id="trashed", namespace=private),
            Memory(text="tide standard", id="s", namespace="standards"),
            Memory(text="tide else", id="e", namespace="team/api"),
        ]
    )
    await site.store.delete("trashed")
    ada, wes = await site.attacker("ada"), await site.attacker("web")
    for content in ({"text": "of ada"}, "trash", "purge"):
        for id in ("b", "s", "trashed"):
            assert "not yours" in await ada.refusal(content, id=id)
        wests = {**content, "namespace": "team/web"} if isinstance(content, dict) else content
        assert "not yours" in await wes.refusal(wests, id="e")
    for id in ("b", "s", "trashed"):
        assert "not yours" in await ada.refusal({"supersedes": id}, id="new")
    assert "may not write" in await ada.refusal({"namespace": "standards"})
    assert "private" in await ada.refusal({"namespace": "me/x"})
    assert "private" in await ada.refusal({"namespace": f"{private_of('ada')}x"})
    assert "may not write" in await wes.refusal({"namespace": "team/api"})
    amy = await site.attacker("admin")
    assert await amy.refusal({"namespace": "standards", "text": "of amy"}, id="s") == ""
    texts = await site.texts()
    assert texts == {"b": "tide of ben", "s": "of amy", "e": "tide else"}
    assert [memory.id for memory in await site.store.trash()] == ["trashed"]


async def test_two_writes_of_one_memory_cannot_hide_one_another(site: Site) -> None:
    await site.store.add([Memory(text="tide", id="b", namespace=f"{private_of('ben')}x")])
    ada = await site.attacker("ada")
    pair = [a_write("n", {"supersedes": "b"}), a_write("n", {})]
    assert (await ada.write(*pair)).status_code == 400
    token = secrets.token_hex(16)
    answer = await ada.write(a_write("x", {}, token), a_write("y", {}, token))
    assert answer.status_code == 400
    assert (await ada.write(a_write("x", {}, "'; DROP TABLE--"))).status_code == 400
    assert (await ada.write(a_write("x", {}, "é" * 16))).status_code == 400
    assert (await ada.write(a_write("x" * 201, {}))).status_code == 400
    assert (await ada.write(a_write("x\0y", {}))).status_code == 400
    assert await site.texts() == {"b": "tide"}


async def test_a_reader_reads_and_changes_nothing(site: Site) -> None:
    await site.store.add([Memory(text="tide", id="m")])
    rita = await site.attacker("reader")
    assert [memory["id"] for memory in await rita.read()] == ["m"]
    assert (await rita.send("GET", "/team")).json()["may_write"] is False
    for content in ({"text": "of rita"}, "trash", "purge"):
        assert "only read" in await rita.refusal(content)
    assert await site.texts() == {"m": "tide"}


async def test_a_token_for_some_namespaces_sees_no_word_of_the_others(site: Site) -> None:
    await site.store.add(
        [
            Memory(text="tide web", id="w", namespace="team/web"),
            Memory(text="tide xylograph", id="e", namespace="team/api", tags=("xylo",)),
        ]
    )
    wes = await site.attacker("web")
    first = await wes.send("GET", "/team/snapshot")
    assert [memory["id"] for memory in first.json()["memories"]] == ["w"]
    assert "xylo" not in first.text
    # With another token's ETag, or with more namespaces, the answer is a snapshot of one's own.
    known = {"if-none-match": first.headers["etag"]}
    assert (await wes.send("GET", "/team/snapshot", headers=known)).status_code == 304
    ada = await (await site.attacker("ada")).send("GET", "/team/snapshot", headers=known)
    assert len(ada.json()["memories"]) == 2
    stolen = {"if-none-match": ada.headers["etag"]}
    assert "xylo" not in (await wes.send("GET", "/team/snapshot", headers=stolen)).text
    site.gateway.tokens["web-token"] = granted("wes", ["team/web", "team/api"])
    assert len((await wes.send("GET", "/team/snapshot", headers=known)).json()["memories"]) == 2
    site.gateway.tokens["web-token"] = granted("wes", [private_of("ben")])
    assert await wes.read() == []


async def test_a_write_cannot_claim_another_session_or_a_later_time(site: Site) -> None:
    ada = await site.attacker("ada")
    claims = {
        "provenance": {"door": "cli" * 50, "server": "s", "tool": "t", "session": "of ben"},
        "created_at": 99_999_999_999.0,
        "updated_at": 1e300,
        "content_hash": "0" * 32,
        "source": "/home/ben/notes.md",
        "paths": ["/home/ben/x.py", "~/y.py", "src/z.py"],
        "lines": [5, 99_999_999_999_999_999_999],
        "occurrences": -5,
        "expires_at": -1e300,
    }
    assert await ada.refusal(claims) == ""
    stored = await site.store.get("m")
    assert stored is not None
    assert (stored.provenance.session, stored.provenance.server) == ("", "")
    assert len(stored.provenance.door) == 40
    assert stored.created_at is not None
    assert stored.created_at < 10_000_000_000
    assert (stored.source, stored.paths) == ("", ("src/z.py",))
    assert stored.lines is None
    assert (stored.occurrences, stored.expires_at) == (1, None)
    assert stored.content_hash != "0" * 32
    assert "pin" in await ada.refusal({"pinned": True, "trust": str(Trust.AGENT)})
    assert "folder" in await ada.refusal({"project": "/home/ben/shop"})
    assert "different ids" in await ada.refusal({"id": "other"})
    assert "characters" in await ada.refusal({"text": "x" * 1_000_001})
    assert "text" in await ada.refusal({"text": "  "})
    assert "name" in await ada.refusal({"project": "a\0b"})
    assert "name" in await ada.refusal({"supersedes": "x" * 1_001})


async def test_a_rule_of_a_writer_is_always_the_teams(site: Site) -> None:
    ada, amy = await site.attacker("ada"), await site.attacker("admin")
    for id, namespace in (("a", "context"), ("b", "patterns"), ("c", "team/web")):
        rule = {"namespace": namespace, "pinned": True, "supersedes": "01victim"}
        assert await ada.refusal(rule, id=id) == ""
    assert await amy.refusal({"namespace": "standards", "pinned": True}, id="d") == ""
    wes = await site.attacker("web")
    assert "may not write" in await wes.refusal({"namespace": "context", "pinned": True}, id="e")
    found = {memory.id: memory.namespace for memory in await site.store.pinned(Scope())}
    assert found == {"a": "team", "b": "team/patterns", "c": "team/web", "d": "standards"}


async def test_a_secret_is_masked_before_it_is_stored(site: Site) -> None:
    ada = await site.attacker("ada")
    key = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    assert await ada.refusal({"text": f"the key is {key}", "tags": [key]}) == ""
    stored = await site.store.get("m")
    assert stored is not None
    assert key not in f"{stored.text} {stored.tags}"
    assert key not in json.dumps(await ada.read())


async def test_a_batch_that_is_replayed_takes_effect_once(site: Site) -> None:
    ada, ben = await site.attacker("ada"), await site.attacker("ben")
    batch = [a_write("m", {"text": "of ada"}), a_write("n", {})]
    for _ in range(3):
        assert (await ada.write(*batch)).json()["refused"] == []
    assert await ben.refusal({"text": "of ben"}) == ""
    assert (await ada.write(*batch)).json()["refused"] == []
    # A stolen token of a write is of no use with other content.
    assert (await ben.write({**batch[1], "content": "purge"})).json()["refused"] == []
    assert await site.texts() == {"m": "of ben", "n": "tide"}


async def test_writes_and_denials_are_audited_once(site: Site) -> None:
    ada, rita = await site.attacker("ada"), await site.attacker("reader")
    batch = [a_write("m", {})]
    for _ in range(2):
        await ada.write(*batch)
    await ada.refusal("trash")
    for _ in range(3):
        await rita.refusal({})
        await ada.refusal({"namespace": "me/x"})
    for _ in range(100):
        if site.audited("trash shared") and len(site.audited("request")) == 2:
            break
        await asyncio.sleep(0.05)
    assert site.audited("share") == [("ada", "m", "done")]
    assert site.audited("trash shared") == [("ada", "m", "done")]
    denied = {actor for actor, _, outcome in site.audited("request") if "sharing" in outcome}
    assert denied == {"ada", "rita"}


async def test_huge_and_bottomless_bodies_are_refused_and_others_served(site: Site) -> None:
    ada = await site.attacker("ada")

    async def endless() -> AsyncIterator[bytes]:
        for _ in range(1_600):
            yield b"x" * 65_536

    huge = b"x" * 5_000_000
    assert (await ada.send("POST", "/team/writes", content=huge)).status_code == 413
    try:
        answer = await ada.send("POST", "/team/writes", content=endless())  # 100 MB, no length
        assert answer.status_code == 413
    except httpx2.HTTPError:
        pass  # the connection is closed before all of it is sent
    head = b'{"protocol": 2, "source": "", "writes": '
    for bomb in (
        b"[" * 2_000_000,
        head + b"[" * 2_000_000,
        b'{"protocol": 2, "x": ' + b'{"a":' * 500_000,
        b'{"protocol": ' + b"9" * 3_000_000 + b"}",
        b'{"protocol": 2e999}',
        b'{"protocol": 2, "source": "\\ud800", "writes": []}',
        b"\xff\xfe",
        b"null",
        b"",
        head + b"[" + b"{}," * 1_000_000 + b"{}]}",
    ):
        answer = await ada.send("POST", "/team/writes", content=bomb)
        assert answer.status_code in (400, 415), bomb[:40]
    packed = {"content-encoding": "gzip"}
    answer = await ada.send("POST", "/team/writes", content=b"{}", headers=packed)
    assert answer.status_code == 415
    plain = {"content-type": "text/plain"}
    answer = await ada.send("POST", "/team/writes", content=b"{}", headers=plain)
    assert answer.status_code == 415
    too_many = [a_write(f"m{n}", "trash") for n in range(101)]
    assert (await ada.write(*too_many)).status_code == 400
    assert await ada.refusal({}) == ""


async def test_a_message_of_another_version_is_named(site: Site) -> None:
    ada = await site.attacker("ada")
    answer = await ada.write(protocol=1)
    assert answer.status_code == 409
    assert "version 2" in answer.json()["error"]


async def test_other_methods_paths_and_tokens_get_nothing(site: Site) -> None:
    ada = await site.attacker("ada")
    assert (await ada.send("POST", "/team")).status_code == 405
    assert (await ada.send("POST", "/team/snapshot")).status_code == 405
    assert (await ada.send("GET", "/team/pages")).status_code in (403, 404)
    assert (await ada.send("GET", "/team/")).status_code == 403
    assert (await ada.send("GET", "/team/../metrics")).status_code in (403, 404)
    for token in ("wrong", "ada-toke", "ada-token2"):
        headers = {"authorization": f"Bearer {token}"}
        assert (await ada.send("GET", "/team", headers=headers)).status_code == 401
    del site.gateway.tokens["ada-token"]
    assert (await ada.send("GET", "/team")).status_code == 401
    foreign = {"origin": "https://evil.example"}
    ben = await site.attacker("ben")
    assert (await ben.send("GET", "/team", headers=foreign)).status_code == 403


async def test_a_gateway_without_a_database_says_so(tmp_path: Path) -> None:
    async with gateway(tmp_path, "", TOKENS) as opened:
        answer = await Attacker(opened, "ada-token").send("GET", "/team")
        assert answer.status_code == 404
        assert "store.url" in answer.json()["error"]


async def test_a_lost_database_is_no_answer_with_details(tmp_path: Path) -> None:
    lost = "postgresql://upwell@127.0.0.1:9/planted-name"
    async with gateway(tmp_path, lost, TOKENS) as opened:
        answer = await Attacker(opened, "ada-token").send("GET", "/team")
        assert answer.status_code == 503
        assert answer.headers["retry-after"]
        assert "planted" not in answer.text
        assert "127" not in answer.text
