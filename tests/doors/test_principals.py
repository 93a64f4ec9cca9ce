"""Several principals at one gateway: each has a token, sessions, namespaces and keys of its own."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.doors.address import Address, Conversation, said, serving
from tests.doors.agent import CAPABILITIES
from tests.doors.conftest import listening, script, write_config
from tests.doors.peer import ENVELOPE, MODERN
from tests.doors.reading import everything

FACT = "The settlement job in src/billing/settle.py runs before midnight UTC, or refunds double."
SETTLE = "src/billing/settle.py"
CLIENTS = 50
TURNS = 4


@dataclass(frozen=True)
class House:
    """A gateway with two servers, and the tokens of its principals."""

    owner: Address
    ada: Address
    """Sees `decisions`, where FACT is."""
    bob: Address
    """Sees `patterns`."""
    fact: str
    home: Path

    def run(self, *args: str) -> str:
        return run(self.home, *args)


def run(home: Path, *args: str) -> str:
    env = {"PATH": os.environ["PATH"], "HOME": str(home.parent), "UPWELL_HOME": str(home)}
    command = [sys.executable, "-m", "upwell", *args]
    done = subprocess.run(command, env=env, cwd=home.parent, capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode().strip()


@pytest.fixture(scope="module")
def web() -> Iterator[str]:
    with listening("web") as url:
        yield url


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory, web: str) -> Iterator[House]:
    folder = tmp_path_factory.mktemp("principals")
    home = folder / "home"
    servers: Mapping[str, Any] = {
        "up": script("upstream"),
        "talk": script("talk", "--era", "legacy"),
        "web": {"url": web, "headers": {"X-Ours": "ours"}},
    }
    limits = {"call_timeout_seconds": 60.0, "connect_timeout_seconds": 20.0}
    write_config(home, servers, gateway=limits, cache={"tools": ["up__read"]})
    stored = run(home, "remember", FACT, "--namespace", "decisions", "--path", SETTLE)
    run(home, "remember", "The blue room is locked on Sundays.", "--namespace", "patterns")
    ada = run(home, "token", "add", "ada", "--namespace", "decisions")
    bob = run(home, "token", "add", "bob", "--namespace", "patterns")
    with serving(home, folder / "serve.log") as owner:
        yield House(
            owner,
            Address(owner.port, ada),
            Address(owner.port, bob),
            stored.split()[-1],
            home,
        )


def read(one: Conversation, path: str) -> dict[str, Any]:
    return one.call("up__read", path=path)


def resource(one: Conversation, uri: str) -> str:
    _, _, message = one.post("resources/read", 1, {"uri": uri})
    return json.dumps(message)


def test_a_session_belongs_to_its_principal(house: House) -> None:
    session = house.ada.begin()
    stolen = house.bob.begin()
    stolen.session = session.session
    assert stolen.post("tools/list", 1)[0] == 404
    assert (
        house.bob.send("GET", Mcp_Session_Id=session.session, Accept="text/event-stream")[0] == 404
    )
    assert house.bob.send("DELETE", Mcp_Session_Id=session.session)[0] == 404
    assert house.owner.send("DELETE", Mcp_Session_Id=session.session)[0] == 404
    assert said(session.call("up__echo", text="mine")) == "mine"


def test_memories_stay_in_their_namespaces(house: House) -> None:
    bob, ada, owner = house.bob.begin(), house.ada.begin(), house.owner.begin()
    assert FACT not in everything(read(bob, SETTLE))
    assert FACT in everything(read(ada, SETTLE))
    assert FACT in everything(read(owner, SETTLE)), "what ada was told, the owner was not"


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("memory_search", {"query": "settlement job refunds double"}),
        ("memory_context", {"message": "when does the settlement job in settle.py run?"}),
        ("memory_get", {"id": ""}),
    ],
)
def test_tools_show_only_memories_that_their_caller_may_see(
    house: House, tool: str, arguments: dict[str, str]
) -> None:
    options = {"id": house.fact} if "id" in arguments else arguments
    assert "settlement job" in everything(house.ada.begin().call(f"upwell__{tool}", **options))
    assert FACT not in everything(house.bob.begin().call(f"upwell__{tool}", **options))


def test_resources_show_only_memories_that_their_reader_may_see(house: House) -> None:
    bob, ada = house.bob.begin(), house.ada.begin()
    for uri in (
        f"upwell://memory/{house.fact}",
        f"upwell://search/{quote('settlement job refunds')}",
        "upwell://topics/decisions",
    ):
        assert "midnight" in resource(ada, uri)
        assert "midnight" not in resource(bob, uri)
    assert "decisions" in resource(ada, "upwell://topics")
    assert "decisions" not in resource(bob, "upwell://topics")


def test_notes_are_for_principals_that_see_their_namespace(house: House) -> None:
    added = house.owner.begin().call("upwell__add_memory", content="The kite is crimson.")
    assert "isError" not in added
    bob = house.bob.begin()
    refused = bob.call("upwell__search_memory", query="kite")
    assert refused["isError"]
    assert "not available to you" in said(refused)
    assert "crimson" not in everything(bob.call("upwell__memory_search", query="kite"))


def test_a_reader_may_read_and_change_nothing(house: House) -> None:
    reader = Address(house.owner.port, house.run("token", "add", "rae", "--role", "reader"))
    rae = reader.begin()
    assert "settlement job" in everything(rae.call("upwell__memory_get", id=house.fact))
    for tool, arguments in (
        ("add_memory", {"content": "The kite is crimson."}),
        ("delete_memory", {"id": house.fact}),
        ("feedback", {"surfacing_id": "s", "rating": "helpful"}),
    ):
        refused = rae.call(f"upwell__{tool}", **arguments)
        assert refused["isError"]
        assert "you may only read it" in said(refused)


def test_a_private_note_stays_private_through_the_gateway(house: House) -> None:
    tokens = [house.run("token", "add", name) for name in ("mia", "max")]
    one, other = (Address(house.owner.port, token).begin() for token in tokens)
    one.call("upwell__add_memory", content="The lantern is amber.", namespace="me/ideas")
    assert "amber" in everything(one.call("upwell__search_memory", query="lantern"))
    for tool in ("search_memory", "memory_search"):
        assert "amber" not in everything(other.call(f"upwell__{tool}", query="lantern"))
    assert "me/" not in resource(other, "upwell://topics")


def test_cached_answers_are_not_shared_between_principals(house: House) -> None:
    """`up__read` answers with the line that it received, which differs for every call."""
    path = "docs/garden/tulips.txt"
    answers = [said(read(house.ada.begin(), path))]
    # Answers are cached in the background: on a busy machine the next read may come first.
    while answers.count(answers[-1]) < 2 and len(answers) < 10:
        answers.append(said(read(house.ada.begin(), path)))
    assert answers.count(answers[-1]) == 2, "cached for ada"
    assert said(read(house.bob.begin(), path)) != answers[-1]


def test_a_key_opens_an_original_only_for_its_principal(house: House) -> None:
    ada, bob = house.ada.begin(), house.bob.begin()
    key = json.dumps(ada.call("up__big_json")).partition('key=\\"')[2].partition("\\")[0]
    assert key
    assert "isError" not in ada.call("upwell__read_more", key=key)
    for other in (bob, house.owner.begin()):
        refused = other.call("upwell__read_more", key=key)
        assert refused["isError"]
        assert key in said(refused)
    mine = json.dumps(bob.call("up__big_json")).partition('key=\\"')[2].partition("\\")[0]
    assert mine
    assert mine != key


def test_a_question_to_one_principal_cannot_be_answered_by_another(house: House) -> None:
    meta = {**ENVELOPE, "io.modelcontextprotocol/clientCapabilities": CAPABILITIES}
    call = {"name": "talk__roots", "arguments": {}, "_meta": meta}
    sent_headers = {
        "MCP_Protocol_Version": MODERN,
        "Mcp_Method": "tools/call",
        "Mcp_Name": "talk__roots",
    }

    def post(address: Address, **more: Any) -> dict[str, Any]:
        params = {**call, **more}
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        return dict(address.send("POST", body, **sent_headers)[2])

    first = post(house.ada)["result"]
    [key] = first["inputRequests"]
    answer = {"inputResponses": {key: {"roots": []}}, "requestState": first["requestState"]}
    assert post(house.bob, **answer)["error"]["code"] == -32602
    assert json.loads(said(post(house.ada, **answer)["result"])) == {"roots": []}


def test_other_doors_are_for_the_owner_only(house: House) -> None:
    for path in ("/metrics", "/hook/claude", "/nothing"):
        assert house.ada.send("POST", {}, path)[0] == 403
    assert house.owner.send("GET", None, "/metrics")[0] == 200
    assert b"upwell_sessions" in house.owner.send("GET", None, "/metrics")[2]


def test_a_revoked_token_is_rejected(house: House) -> None:
    token = house.run("token", "add", "carol")
    carol = Address(house.owner.port, token)
    session = carol.begin()
    assert FACT in everything(session.call("upwell__memory_get", id=house.fact))
    shown = house.run("token", "list", "--json")
    assert token not in shown
    assert {"carol", "ada", "bob"} <= {row["name"] for row in json.loads(shown)["tokens"]}
    house.run("token", "remove", "carol")
    assert session.post("ping", 1)[0] == 401


def test_no_header_of_a_request_reaches_a_server(house: House) -> None:
    for address in (house.owner, house.ada):
        session = address.begin()
        params = {"name": "web__headers", "arguments": {}}
        more = {"X_Private": "p", "Cookie": "c=1", "X_Forwarded_For": "203.0.113.9"}
        seen = json.loads(said(session.post("tools/call", 1, params, **more)[2]["result"]))
        names = {name.lower() for name in seen}
        assert not names & {"authorization", "cookie", "x-private", "x-forwarded-for"}
        assert "x-ours" in names
        assert address.token not in json.dumps(seen)
        assert session.session not in json.dumps(seen)
        assert address.token not in said(session.call("up__received"))


def progress_faults(conversation: Conversation, number: int) -> list[str]:
    """Make a call with a progress token that all clients use. Returns faults in the progress."""
    meta = {"progressToken": "p"}
    params = {"name": "up__progress", "arguments": {"seconds": 0.1}, "_meta": meta}
    body = {"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": params}
    *steps, last = conversation.address.events(conversation.session, body)
    answer = [step["params"]["message"] for step in steps]
    if answer != ["step 1", "step 2", "step 3"] or last["id"] != 9:
        return [f"client {number}: {answer} {last}"]
    return []


@pytest.mark.parametrize("server", ["up", "web"])
def test_fifty_clients_at_once(house: House, server: str) -> None:
    """All use the same request ids, but every client gets its own answers."""
    wrong: list[str] = []
    addresses = (house.owner, house.ada, house.bob)
    together = threading.Barrier(CLIENTS)

    def talk(number: int) -> None:
        try:
            first = addresses[number % 3].begin()
            together.wait(60)
            for turn in range(TURNS):
                text = f"client {number} turn {turn}"
                if said(first.call(f"{server}__echo", turn, text=text)) != text:
                    wrong.append(text)
            wrong.extend(progress_faults(first, number))
        except Exception as error:
            wrong.append(f"client {number}: {error!r}")

    threads = [threading.Thread(target=talk, args=(n,)) for n in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert wrong == []
