"""Everything passes in both directions: requests, notifications and what a server offers, for every
client era with every server era."""

import json
import os
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.doors.agent import ANSWERS, CAPABILITIES, Agent
from tests.doors.conftest import QUICK, script, write_config
from tests.doors.peer import exact, member, text_of
from tests.doors.test_relay import ERAS

LISTEN = {
    "toolsListChanged": True,
    "promptsListChanged": True,
    "resourcesListChanged": True,
    "resourceSubscriptions": ["talk://one"],
}
STAMP = "io.modelcontextprotocol/subscriptionId"


@pytest.fixture(scope="module", params=ERAS)
def running(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    """A client in front of two talkative servers."""
    modern, background = request.param
    folder = tmp_path_factory.mktemp("passes")
    env = {"PATH": os.environ["PATH"], "HOME": str(folder), "UPWELL_HOME": str(folder / "home")}
    servers = {
        "talk": script("talk", "--era", background, "--name", "talk"),
        "other": script("talk", "--era", background, "--name", "other"),
    }
    write_config(folder / "home", servers, gateway={**QUICK, "call_timeout_seconds": 20.0})
    serve = [sys.executable, "-m", "upwell", "serve"]
    with Agent(serve, env=env, cwd=folder, modern=modern, errors=folder / "stderr") as peer:
        peer.hello()
        peer.wait_for_tools("talk__sample", "other__sample")
        peer.folder = folder
        yield peer


@pytest.fixture
def agent(running: Agent) -> Iterator[Agent]:
    """The same client, without the messages of earlier tests."""
    running.drain(0.05)
    running.notifications.clear()
    running.requests.clear()
    running.lines.clear()
    running.level, running.answers = "", ANSWERS
    yield running
    for identity in running.streams:
        running.send({"method": "notifications/cancelled", "params": {"requestId": identity}})
    running.streams.clear()


def seen(agent: Agent, server: str = "talk", **meta: Any) -> dict[str, Any]:
    """The client as the server sees it."""
    params = {"name": f"{server}__seen", "arguments": {}, "_meta": meta}
    return dict(json.loads(text_of(agent.result("tools/call", params))))


QUESTIONS = {
    "sample": "sampling/createMessage",
    "elicit": "elicitation/create",
    "roots": "roots/list",
}


@pytest.mark.parametrize("tool", QUESTIONS)
def test_a_server_asks_its_client(agent: Agent, tool: str) -> None:
    reply = json.loads(text_of(agent.use(f"talk__{tool}")))
    assert reply == ANSWERS[QUESTIONS[tool]]
    [asked] = [request for request in agent.requests if request["method"] == QUESTIONS[tool]]
    if tool == "sample":
        assert asked["params"]["messages"][0]["content"]["text"] == "Say 1.10"


def test_questions_arrive_as_they_were_asked(agent: Agent) -> None:
    agent.use("talk__sample")
    [line] = [line for line in agent.lines if b"sampling/createMessage" in line]
    assert b'"temperature":0.10' in line


def test_two_servers_ask_at_once(agent: Agent) -> None:
    first, second = (
        agent.start("tools/call", {"name": f"{server}__elicit", "arguments": {}})
        for server in ("talk", "other")
    )
    results = [agent.reply(entry)["result"] for entry in (first, second)]
    if agent.modern:
        assert {result["resultType"] for result in results} == {"input_required"}
    else:
        accepted = ANSWERS["elicitation/create"]
        assert [json.loads(text_of(result)) for result in results] == [accepted, accepted]


def test_prompts_are_listed_and_fetched(agent: Agent) -> None:
    agent.result("prompts/list")
    listed = member(exact(agent.lines[-1]), "result", "prompts")
    assert [member(entry, "name") for entry in listed] == ["talk__hello", "other__hello"]
    assert member(listed[0], "x") == "1.10"
    prompt = agent.result("prompts/get", {"name": "other__hello", "arguments": {"who": "Ada"}})
    assert prompt["messages"][0]["content"]["text"] == "Hello Ada"
    assert b'"x":1.10' in agent.lines[-1]
    refused = agent.ask("prompts/get", {"name": "talk__nothing", "arguments": {}})["error"]
    assert refused == {"code": -32602, "message": "no such prompt", "data": {"n": 1.1}}
    assert agent.ask("prompts/get", {"name": "nowhere__x"})["error"]["code"] == -32602


def test_resources_of_all_pages_and_servers(agent: Agent) -> None:
    listed = agent.result("resources/list")["resources"]
    uris = [entry["uri"] for entry in listed]
    assert uris == ["talk://one", "talk://two", "shared://x", "upwell://topics"]
    assert b'"size":1.0' in agent.lines[-1]
    templates = agent.result("resources/templates/list")["resourceTemplates"]
    assert templates[0]["uriTemplate"] == "talk://item/{id}"
    assert len(templates) == 4


@pytest.mark.parametrize("first", [True, False])
def test_a_uri_of_two_servers_belongs_to_the_first(agent: Agent, first: bool) -> None:
    if first:
        agent.result("resources/list")
    for _ in range(2):
        contents = agent.result("resources/read", {"uri": "shared://x"})["contents"]
        assert contents[0]["text"] == "Mine of talk"
        agent.result("resources/list")


@pytest.mark.parametrize("uri", ["talk://two", "talk://hidden/page", "talk://item/5"])
def test_resources_are_read_listed_or_not(agent: Agent, uri: str) -> None:
    result = agent.result("resources/read", {"uri": uri})
    assert result["contents"][0]["uri"] == uri
    assert b'"x":1.10' in agent.lines[-1]
    if agent.modern:
        assert (result["ttlMs"], result["cacheScope"]) == (0, "private")


def test_an_unknown_uri(agent: Agent) -> None:
    refused = agent.ask("resources/read", {"uri": "talk://nothing"})["error"]
    code = -32602 if agent.modern else -32002
    assert refused == {"code": code, "message": "not here", "data": {"n": 1.1}}


def test_completions(agent: Agent) -> None:
    asked = {"name": "who", "value": "A"}
    ref = {"type": "ref/prompt", "name": "talk__hello"}
    reply = agent.result("completion/complete", {"ref": ref, "argument": asked})
    assert reply["completion"]["values"] == ["hello", "A!"]
    ref = {"type": "ref/resource", "uri": "talk://item/{id}"}
    reply = agent.result("completion/complete", {"ref": ref, "argument": asked})
    assert reply["completion"]["values"] == ["talk://item/{id}", "A!"]


def test_progress_under_the_client_s_own_name(agent: Agent) -> None:
    for token in ("mine", 7):
        params = {"name": "talk__progress", "arguments": {}, "_meta": {"progressToken": token}}
        sent = json.loads(text_of(agent.result("tools/call", params)))
        assert sent != token
        agent.await_note("notifications/progress")
        notes = [n["params"] for n in agent.notifications if "progress" in n["method"]]
        assert [(n["progressToken"], n["progress"]) for n in notes] == [(token, 1), (token, 2)]
        agent.notifications.clear()
    assert b'"total":2.0' in b"".join(agent.lines)


def test_two_calls_with_progress_do_not_mix(agent: Agent) -> None:
    ids = [
        agent.start(
            "tools/call",
            {"name": f"{server}__progress", "arguments": {}, "_meta": {"progressToken": server}},
        )
        for server in ("talk", "other", "talk")
    ]
    for identity in ids:
        agent.reply(identity)
    agent.drain(0.2)
    tokens = [
        n["params"]["progressToken"] for n in agent.notifications if "progress" in n["method"]
    ]
    assert sorted(tokens) == ["other"] * 2 + ["talk"] * 4


def test_a_cancelled_call_is_cancelled_at_the_server(agent: Agent) -> None:
    waiting = agent.start("tools/call", {"name": "talk__wait", "arguments": {}})
    before = seen(agent)["cancelled"]
    agent.send({"method": "notifications/cancelled", "params": {"requestId": waiting}})
    end = time.monotonic() + 30
    while seen(agent)["cancelled"] == before:
        assert time.monotonic() < end
    agent.drain(0.2)
    assert waiting not in agent._replies


def test_a_withdrawn_question(agent: Agent) -> None:
    if agent.modern or '"elicit' not in json.dumps(dict(agent.answers)):
        pytest.skip("a client of the modern era is not asked by requests")
    agent.answers = {}
    seen_before = seen(agent)
    if not seen_before["client"]:
        pytest.skip("a server of the modern era has no requests")
    withdrawing = agent.start("tools/call", {"name": "talk__ask_and_withdraw", "arguments": {}})
    agent.wait_until_asked("elicitation/create", 30)
    agent.send({"method": "notifications/vendor/asked"})
    assert text_of(agent.reply(withdrawing, 30)["result"]) == "withdrawn"
    asked = next(request for request in agent.requests if request["method"] == "elicitation/create")
    note = agent.await_note("notifications/cancelled")
    assert note["params"]["requestId"] == asked["id"]


def set_level(agent: Agent, level: str) -> None:
    if agent.modern:
        agent.level = level
    else:
        assert agent.result("logging/setLevel", {"level": level}) == {}


def test_log_messages_from_the_requested_level_on(agent: Agent) -> None:
    set_level(agent, "info")
    agent.call("talk__log")
    agent.drain(0.3)
    levels = [n["params"]["level"] for n in agent.notifications if n["method"].endswith("message")]
    assert levels == ["info", "error"]
    assert b'"data":{"n":1.10,"level":"error"}' in b"".join(agent.lines)


def test_the_level_reaches_the_server(agent: Agent) -> None:
    set_level(agent, "warning")
    known = seen(agent)
    in_envelope = (known["meta"] or {}).get("io.modelcontextprotocol/logLevel")
    behind_is_modern = not known["client"]
    assert (in_envelope if behind_is_modern else known["level"]) == (
        "warning" if behind_is_modern or not agent.modern else ""
    )


def test_a_level_that_does_not_exist(agent: Agent) -> None:
    if agent.modern:
        assert agent.ask("logging/setLevel", {"level": "info"})["error"]["code"] == -32601
    else:
        assert agent.ask("logging/setLevel", {"level": "loud"})["error"]["code"] == -32602


def listen(agent: Agent) -> int | None:
    """Subscribe to every notification."""
    agent.result("prompts/list")
    agent.result("resources/list")
    if not agent.modern:
        agent.result("resources/subscribe", {"uri": "talk://one"})
        return None
    identity = agent.start("subscriptions/listen", {"notifications": LISTEN})
    agent.streams.append(identity)
    note = agent.await_note("notifications/subscriptions/acknowledged")
    assert note["params"]["notifications"] == LISTEN
    assert note["params"]["_meta"][STAMP] == identity
    end = time.monotonic() + 30
    while True:
        known = seen(agent)
        answer = [
            uri for entry in known["listens"] for uri in entry.get("resourceSubscriptions", [])
        ]
        if "talk://one" in [*known["followed"], *answer]:
            return identity
        assert time.monotonic() < end, known


@pytest.mark.parametrize("what", ["prompts", "resources", "tools"])
def test_changed_lists_are_announced(agent: Agent, what: str) -> None:
    identity = listen(agent)
    if what == "tools" and not agent.modern:
        pytest.skip("tools that did not change are not announced")
    agent.call("talk__change", what=what)
    note = agent.await_note(f"notifications/{what}/list_changed", 30)
    stamp = note.get("params", {}).get("_meta", {}).get(STAMP)
    assert stamp == identity


def test_updated_resources_are_announced(agent: Agent) -> None:
    identity = listen(agent)
    agent.call("talk__change", what="talk://two")
    agent.call("talk__change", what="talk://one")
    note = agent.await_note("notifications/resources/updated", 30)
    assert note["params"]["uri"] == "talk://one"
    assert note["params"].get("_meta", {}).get(STAMP) == identity
    if identity:
        agent.send({"method": "notifications/cancelled", "params": {"requestId": identity}})
    else:
        agent.result("resources/unsubscribe", {"uri": "talk://one"})
    end = time.monotonic() + 30
    while "talk://one" in json.dumps([seen(agent)["followed"], seen(agent)["listens"]]):
        assert time.monotonic() < end


def test_unknown_methods_reach_the_server(agent: Agent) -> None:
    assert agent.result("vendor/echo", {"x": [1, None, "é"]})["echo"] == [1, None, "é"]
    assert agent.ask("vendor/nothing", {})["error"]["code"] == -32601


def test_a_task_belongs_to_its_server(agent: Agent) -> None:
    agent.call("other__begin_task")
    assert agent.result("tasks/get", {"taskId": "task-of-other"})["status"] == "working"
    error = agent.ask("tasks/get", {"taskId": "task-of-nobody"})["error"]
    assert error["message"] == "Unknown task: task-of-nobody", "no server hears of it"


def test_the_offer_combines_all_servers(agent: Agent) -> None:
    """The gateway saves the capabilities and instructions of its servers, and announces them at
    once when it starts again."""
    folder = agent.folder
    env = {"PATH": os.environ["PATH"], "HOME": str(folder), "UPWELL_HOME": str(folder / "home")}
    end = time.monotonic() + 30
    while not (folder / "home" / "offer.json").exists():
        assert time.monotonic() < end
        agent.drain(0.05)
    serve = [sys.executable, "-m", "upwell", "serve"]
    with Agent(serve, env=env, cwd=folder, modern=agent.modern) as peer:
        reply = peer.hello()
    assert reply["instructions"].count("Talk softly.") == 2
    assert "## Server talk" in reply["instructions"]
    offered = reply["capabilities"]
    assert offered["extensions"] == {"vendor/thing": {"v": 1}}
    assert offered["resources"] == {"listChanged": True, "subscribe": True}
    assert {"tools", "prompts", "completions", "logging"} <= set(offered)


def test_a_server_learns_the_clients_capabilities(agent: Agent) -> None:
    known = seen(agent)
    key = "io.modelcontextprotocol/clientCapabilities"
    assert (known["client"] or known["meta"][key]) == CAPABILITIES


def test_changed_roots_are_announced_to_servers(agent: Agent) -> None:
    if agent.modern or not seen(agent)["client"]:
        pytest.skip("there are no roots to tell of in the modern era")
    agent.send({"method": "notifications/roots/list_changed"})
    end = time.monotonic() + 30
    while not any("roots" in note["method"] for note in seen(agent)["notes"]):
        assert time.monotonic() < end
