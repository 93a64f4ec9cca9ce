"""Another memory server beside our own memory, through the real doors. One works. The other does
everything wrong, and still no answer changes.
"""

import json
import os
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from tests.conftest import Upwell
from tests.doors.conformance.run import free_port, program
from tests.doors.conftest import Gateway, listening, script
from tests.doors.peer import Peer
from tests.doors.reading import everything
from upwell.app.ltm import LtmServer, server_of
from upwell.gateway.options import GatewayOptions
from upwell.ground.clock import Deadline
from upwell.memory.options import LtmOptions, LtmTransport

FACT = "The settlement job in src/billing/settle.py runs before midnight UTC, or refunds double."
OTHERS = [
    "The mobile team prefers Kotlin coroutines over RxJava.",
    "Design review happens every second Thursday in the blue room.",
    "Staging certificates are renewed by the ops calendar in March.",
]
ASKED = "the settlement job in src/billing/settle.py and refunds"
UP = {"up": script("upstream")}
HOSTILE = ["hang", "crash", "error", "garbage", "schema", "large"]
PATIENT = {"race_ms": 3000}
"""A race so long that memories win it even on a busy machine."""


def ltm(command: Sequence[str]) -> dict[str, object]:
    return {"command": list(command)}


def env_of(command: Sequence[str]) -> Mapping[str, str]:
    return {"UPWELL_LTM__COMMAND": json.dumps(list(command))}


def echo(peer: Peer) -> bytes:
    """The bytes of an answer, except for the request's id and random parts: the surfacing's id and
    the mark of the process.
    """
    peer.wait_for_tools("up__echo")
    raw = peer.call_raw("up__echo", json.dumps({"text": "é 1.10", "_context_query": ASKED}))
    raw = re.sub(rb'mark=\\"[^"]*"', b"mark=", re.sub(rb'"id":\d+', b'"id":0', raw))
    return re.sub(rb"s_[0-9a-f]{12}", b"s_", raw)


def asked(log: Path, method: str = "tools/call") -> int:
    return log.read_text().count(f'"{method}"') if log.exists() else 0


def without(gateway: Gateway, home: Path) -> bytes:
    """The answer without a memory server. Deletes the ledger afterwards, so that the same memory
    may be given again."""
    peer = gateway(UP, surface=PATIENT)
    reply = echo(peer)
    assert FACT.encode() in reply
    peer.close()
    for file in home.glob("ledger.db*"):
        file.unlink()
    return reply


def until_asked(peer: Peer, log: Path) -> None:
    """Read files without memories until the memory server is up and has been asked."""
    peer.wait_for_tools("up__read")
    for number in range(60):
        peer.call("up__read", path=f"docs/garden/{number * 7}/tulips{number}.txt")
        if asked(log):
            return
        time.sleep(0.5)
    raise AssertionError("the memory server was never asked")


@pytest.fixture
def remembered(upwell: Upwell) -> None:
    for text in OTHERS:
        assert upwell("remember", text).code == 0
    assert upwell("remember", FACT, "--path", "src/billing/settle.py").code == 0


def test_memories_of_another_server_come_with_the_file(
    gateway: Gateway, upwell: Upwell, tmp_path: Path
) -> None:
    for text in OTHERS:
        assert upwell("remember", text).code == 0
    log = tmp_path / "ltm.log"
    server = script("ltm", "--log", str(log), "--fact", FACT)
    peer = gateway(UP, ltm=ltm(server), surface={**PATIENT, "moments": "all"})
    until_asked(peer, log)
    assert FACT in everything(peer.call("up__read", path="src/billing/settle.py"))
    result = everything(peer.call("upwell__memory_search", query="when does the settlement run"))
    id = result.split("id ")[1].split(")")[0]
    assert FACT in everything(peer.call("upwell__memory_get", id=id))


@pytest.mark.parametrize("how", HOSTILE)
def test_answers_are_the_same_whatever_the_memory_server_does(
    gateway: Gateway, remembered: None, home: Path, tmp_path: Path, how: str
) -> None:
    expected = without(gateway, home)
    log = tmp_path / "ltm.log"
    server = script("ltm", "--log", str(log), "--how", how, "--fact", FACT)
    peer = gateway(UP, ltm=ltm(server), surface=PATIENT)
    until_asked(peer, log)
    assert echo(peer) == expected


def test_a_memory_server_that_cannot_start_changes_nothing(
    gateway: Gateway, remembered: None, home: Path
) -> None:
    expected = without(gateway, home)
    peer = gateway(UP, ltm={"command": "no-such-program"}, surface=PATIENT)
    assert echo(peer) == expected


def test_a_hanging_memory_server_is_soon_left_alone_and_named(
    gateway: Gateway, upwell: Upwell, tmp_path: Path
) -> None:
    log = tmp_path / "ltm.log"
    peer = gateway(UP, ltm=ltm(script("ltm", "--log", str(log), "--how", "hang")))
    until_asked(peer, log)
    for name in ("harbour", "lanterns", "violins", "meadow", "copper", "glacier"):
        peer.call("up__read", path=f"{name}/{name}_{name}.py")
    end = time.monotonic() + 30
    while asked(log, "notifications/cancelled") < 3:
        assert time.monotonic() < end, "it was not told that nobody waits"
        time.sleep(0.05)
    assert asked(log) == asked(log, "notifications/cancelled") == 3
    peer.close()
    assert "not searched: ltm: " in upwell("explain").out
    assert upwell("stats", "--json").json["missing"]["ltm"] >= 3
    assert "ltm could not be searched" in upwell("stats").out


def test_a_late_answer_comes_with_the_next_call_about_the_file(
    gateway: Gateway, tmp_path: Path
) -> None:
    log = tmp_path / "ltm.log"
    server = script("ltm", "--log", str(log), "--how", "slow", "--fact", FACT)
    peer = gateway(UP, ltm=ltm(server), surface={"moments": "all"})
    until_asked(peer, log)
    end = time.monotonic() + 30
    while FACT not in (text := everything(peer.call("up__read", path="src/billing/settle.py"))):
        assert time.monotonic() < end, "the late answer was never delivered"
        time.sleep(1.0)
    assert text.count(FACT) == 1


@pytest.mark.parametrize(("how", "why"), [("error", "database is locked"), ("absent", "no data")])
def test_a_search_names_the_places_that_it_went_without(
    upwell: Upwell, remembered: None, how: str, why: str
) -> None:
    env = env_of(script("ltm", "--how", how))
    done = upwell("recall", "settlement", "--json", env=env)
    assert [hit["text"] for hit in json.loads(done.out)["hits"]] == [FACT]
    assert "could not search ltm" in done.err
    assert why in done.err


def test_an_agent_sees_missing_places_too(gateway: Gateway, remembered: None) -> None:
    peer = gateway({}, env=env_of(script("ltm", "--how", "schema")))
    result = everything(peer.call("upwell__memory_search", query="settlement"))
    assert FACT in result
    assert "[upwell] searched without ltm: the memory server gave no hits" in result
    context = peer.call("upwell__memory_context", message="when does the settlement job run?")
    digest, notice = (block["text"] for block in context["content"])
    assert FACT in digest
    assert notice.startswith("[upwell] searched without ltm: the memory server gave no hits")
    as_json = peer.call("upwell__memory_context", message="settlement job?", format="json")
    assert json.loads(everything(as_json))["missing"][0].startswith("ltm: ")


def test_a_digest_on_the_command_line_names_missing_places_too(
    upwell: Upwell, remembered: None
) -> None:
    done = upwell("context", "the settlement job", env=env_of(script("ltm", "--how", "error")))
    assert FACT[:40] in done.out
    assert "could not search ltm" in done.err


def test_doctor_tries_the_memory_server(upwell: Upwell) -> None:
    def part(*args: str) -> dict[str, object]:
        env = env_of(script("ltm", *args))
        return json.loads(upwell("doctor", "--json", env=env).out)["parts"]["ltm"]

    found = part()
    assert found["ok"]
    assert str(found["detail"]).startswith(
        "memtomem, searched with mem_search, 1 tools; searched in "
    )
    assert not part("--how", "absent")["ok"]
    hanging = part("--how", "hang")
    assert not hanging["ok"]
    assert "search" in str(hanging["detail"])
    assert "ltm" not in json.loads(upwell("doctor", "--json").out)["parts"]


def test_upwell_of_another_home_works_as_a_memory_server(upwell: Upwell, tmp_path: Path) -> None:
    other = tmp_path / "another"
    for text in (*OTHERS, FACT):
        upwell("remember", text, env={"UPWELL_HOME": str(other)})
    env = env_of(["env", f"UPWELL_HOME={other}", sys.executable, "-m", "upwell", "serve"])
    (hit,) = upwell("recall", "when does the settlement run", "--json", env=env).json["hits"]
    assert hit["text"] == FACT
    assert hit["id"].startswith("ltm:")


def test_upwell_at_an_address_works_as_a_memory_server(upwell: Upwell, tmp_path: Path) -> None:
    other, port = tmp_path / "another", free_port()
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "UPWELL_HOME": str(other)}
    for text in (*OTHERS, FACT):
        upwell("remember", text, env={"UPWELL_HOME": str(other)})
    command = [sys.executable, "-m", "upwell", "serve", "--http", f"127.0.0.1:{port}"]
    with program(command, port, env, tmp_path / "serve.log"):
        token = (other / "token").read_text().strip()
        settings = {
            "UPWELL_LTM__TRANSPORT": "streamable_http",
            "UPWELL_LTM__URL": f"http://127.0.0.1:{port}/mcp",
        }
        headers = {"UPWELL_LTM__HEADERS": json.dumps({"Authorization": f"Bearer {token}"})}
        hits = upwell("recall", "when does the settlement run", "--json", env=settings | headers)
        assert [hit["text"] for hit in hits.json["hits"]] == [FACT]
        refused = upwell("recall", "when does the settlement run", "--json", env=settings)
    assert refused.json["hits"] == []
    assert "could not search ltm" in refused.err
    shown = upwell("config", "show", "--json", env=settings | headers).out
    assert token not in shown


def test_the_official_memory_server_works(
    upwell: Upwell, npm_servers: Callable[..., list[str]], tmp_path: Path
) -> None:
    graph = tmp_path / "memory.jsonl"
    entity = {"type": "entity", "name": "billing", "entityType": "service", "observations": [FACT]}
    garden = {"type": "entity", "name": "garden", "entityType": "place", "observations": OTHERS}
    graph.write_text(f"{json.dumps(entity)}\n{json.dumps(garden)}\n")
    env = env_of(["env", f"MEMORY_FILE_PATH={graph}", *npm_servers("memory")])
    (hit,) = upwell("recall", "when does the settlement run", "--json", env=env).json["hits"]
    assert hit["text"] == f"billing (service)\n{FACT}"
    assert hit["source"] == "ltm:billing"


@pytest.mark.parametrize("politely", [False, True])
async def test_a_search_goes_on_in_a_new_session_of_the_memory_server(politely: bool) -> None:
    with listening("web") as url:
        options = LtmOptions(transport=LtmTransport.STREAMABLE_HTTP, url=url)
        server = LtmServer(server_of(options, "/"), GatewayOptions(), os.environ)
        try:
            assert "forget" in await server.tools(Deadline.after(20.0))
            arguments = {"politely": politely}
            result = await server.call("forget", arguments, Deadline.after(20.0))
        finally:
            await server.aclose()
    assert result["content"][0]["text"] == "known again"
