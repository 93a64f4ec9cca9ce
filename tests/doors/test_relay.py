"""A client cannot tell the gateway from the server: results are compared byte for byte with the
server's own, for every client era with every server era."""

import json
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.doors.conftest import QUICK, script, write_config
from tests.doors.peer import Peer, exact, member, text_of
from tests.doors.reading import complaint, everything

ERAS = [
    pytest.param((False, "legacy"), id="legacy-legacy"),
    pytest.param((False, "modern"), id="legacy-modern"),
    pytest.param((True, "legacy"), id="modern-legacy"),
    pytest.param((True, "modern"), id="modern-modern"),
]
MODERN_ONLY = {"resultType", "ttlMs", "cacheScope"}
SERVER_INFO = "io.modelcontextprotocol/serverInfo"


@pytest.fixture(scope="module", params=ERAS)
def pair(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Peer, Peer]]:
    """The same server through the gateway and without it."""
    front, background = request.param
    folder = tmp_path_factory.mktemp("relay")
    env = {"PATH": os.environ["PATH"], "HOME": str(folder), "UPWELL_HOME": str(folder / "home")}
    plain = {"compress": {"strategy": "none"}}
    write_config(
        folder / "home",
        {"up": script("upstream", "--era", background)},
        gateway={**QUICK, "call_timeout_seconds": 20.0},
        tool={"up__structured": plain, "up__structured_big": plain},
    )
    serve = [sys.executable, "-m", "upwell", "serve"]
    with (
        Peer(serve, env=env, cwd=folder, modern=front, errors=folder / "stderr") as through,
        Peer(
            script("upstream", "--era", background), env=env, modern=background == "modern"
        ) as direct,
    ):
        through.hello()
        direct.hello()
        through.wait_for_tools("up__echo")
        yield through, direct


def without_era(pairs: Any) -> Any:
    """A result without the fields of the modern era, and without the server's identity."""
    stored = []
    for name, value in pairs:
        if name in MODERN_ONLY:
            continue
        if name == "_meta":
            value = tuple(item for item in value if item[0] != SERVER_INFO)
            if not value:
                continue
        stored.append((name, value))
    return tuple(stored)


def listed(peer: Peer) -> dict[str, Any]:
    """Every tool by name, exactly as on the wire."""
    peer.result("tools/list")
    tools = member(exact(peer.lines[-1]), "result", "tools")
    return {member(tool, "name"): tool for tool in tools}


def renamed(tool: Any, name: str) -> Any:
    return tuple((key, name if key == "name" else value) for key, value in tool)


def test_tools_are_listed_unchanged(pair: tuple[Peer, Peer]) -> None:
    through, direct = pair
    ours, theirs = listed(through), listed(direct)
    assert len(theirs) > 15
    for name, tool in theirs.items():
        if name.startswith("structured"):
            continue
        assert ours[f"up__{name}"] == renamed(tool, f"up__{name}")


def test_a_tool_that_is_never_compressed_keeps_its_output_schema(pair: tuple[Peer, Peer]) -> None:
    through, direct = pair
    theirs = listed(direct)["structured"]
    assert listed(through)["up__structured"] == renamed(theirs, "up__structured")


def test_tools_are_in_a_stable_order(pair: tuple[Peer, Peer]) -> None:
    through, direct = pair
    ours = [name for name in listed(through) if name.startswith("up__")]
    assert ours == [f"up__{name}" for name in listed(direct)]
    assert ours == [name for name in listed(through) if name.startswith("up__")]


PLAIN_CALLS = [
    ("echo", '{"text":"héllo \\ud83c\\udf0a"}'),
    ("mixed", "{}"),
    ("empty", "{}"),
    ("fail", "{}"),
    ("numbers", "{}"),
    ("structured", "{}"),
    ("structured_big", "{}"),
    ("structured_list", "{}"),
]


@pytest.mark.parametrize(("tool", "arguments"), PLAIN_CALLS)
def test_results_pass_untouched(pair: tuple[Peer, Peer], tool: str, arguments: str) -> None:
    through, direct = pair
    ours = member(exact(through.call_raw(f"up__{tool}", arguments)), "result")
    theirs = member(exact(direct.call_raw(tool, arguments)), "result")
    assert without_era(ours) == without_era(theirs)
    if through.modern:
        assert member(ours, "resultType") == "complete"
    else:
        assert "resultType" not in dict(ours)


def test_text_within_budget_is_the_same_bytes(pair: tuple[Peer, Peer]) -> None:
    through, direct = pair
    ours = through.call_raw("up__numbers")
    theirs = direct.call_raw("numbers")
    start = theirs.index(b'"text":')
    literal = theirs[start : theirs.index(b"}]", start)]
    assert literal in ours


def test_an_error_keeps_code_message_and_data(pair: tuple[Peer, Peer]) -> None:
    through, direct = pair
    ours = member(exact(through.call_raw("up__rpc_error")), "error")
    assert ours == member(exact(direct.call_raw("rpc_error")), "error")
    assert member(ours, "code") == "-32042"


ARGUMENTS = (
    '{"z":1,"a":1.10,"big":123456789012345678901234567890,"e":1e2,"s":"\\u00e9\\/",'
    '"deep":{"y":[1.0,{"b":2,"a":1}]},"empty":{}}'
)


def test_arguments_arrive_as_they_were_sent(pair: tuple[Peer, Peer]) -> None:
    through, _ = pair
    seen = json.loads(text_of(json.loads(through.call_raw("up__received", ARGUMENTS))["result"]))
    assert member(exact(seen["line"]), "params", "arguments") == exact(ARGUMENTS)


def test_no_argument_is_added(pair: tuple[Peer, Peer]) -> None:
    through, _ = pair
    bare = {"name": "up__received", "arguments": {}}
    seen = json.loads(text_of(through.result("tools/call", bare)))
    assert seen["arguments"] == {}
    params = dict(member(exact(seen["line"]), "params"))
    assert set(params) - {"_meta"} == {"name", "arguments"}


def test_a_call_without_arguments_gets_none(pair: tuple[Peer, Peer]) -> None:
    through, _ = pair
    seen = json.loads(text_of(through.result("tools/call", {"name": "up__received"})))
    assert seen["arguments"] in (None, {})


def test_request_meta_is_passed_on(pair: tuple[Peer, Peer]) -> None:
    through, _ = pair
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    meta: Mapping[str, Any] = {"traceparent": trace, "vendor/own": {"n": 1}}
    seen = json.loads(
        text_of(through.result("tools/call", {"name": "up__received", "_meta": dict(meta)}))
    )
    arrived = dict(member(exact(seen["line"]), "params", "_meta"))
    assert arrived["traceparent"] == trace
    assert "vendor/own" in arrived


def test_the_context_query_is_removed_from_arguments(pair: tuple[Peer, Peer]) -> None:
    through, _ = pair
    seen = json.loads(text_of(through.call("up__received", _context_query="tides", text="x")))
    assert seen["arguments"] == {"text": "x"}
    assert "tides" not in seen["line"]


def test_the_context_query_belongs_to_a_tool_that_declares_it(pair: tuple[Peer, Peer]) -> None:
    through, _ = pair
    seen = json.loads(text_of(through.call("up__asks_for_query", _context_query="tides")))
    assert seen["arguments"] == {"_context_query": "tides"}


def test_an_unknown_tool_of_a_known_server(pair: tuple[Peer, Peer]) -> None:
    through, _ = pair
    message = through.ask("tools/call", {"name": "up__nothing_like_it", "arguments": {}}, 10)
    assert "nothing_like_it" in complaint(message)


@pytest.mark.parametrize("name", ["nowhere__tool", "tool", "", "up__", "__", "upwell__nothing"])
def test_an_unknown_server_or_tool(pair: tuple[Peer, Peer], name: str) -> None:
    through, _ = pair
    assert complaint(through.ask("tools/call", {"name": name, "arguments": {}}, 10))


BAD_PARAMS = ["null", "[]", '"x"', "5", "{}", '{"name":5}', '{"name":null}', '{"name":{"a":1}}']


@pytest.mark.parametrize("params", BAD_PARAMS)
def test_a_malformed_call_is_refused(pair: tuple[Peer, Peer], params: str) -> None:
    through, _ = pair
    through._ids += 1
    line = f'{{"jsonrpc":"2.0","id":{through._ids},"method":"tools/call","params":{params}}}\n'
    through.send_bytes(line.encode())
    assert "error" in through.reply(through._ids, 10)


@pytest.mark.parametrize("arguments", ["null", "[]", '"x"', "5"])
def test_arguments_that_are_not_an_object_are_answered(
    pair: tuple[Peer, Peer], arguments: str
) -> None:
    through, _ = pair
    through.call_raw("up__echo", arguments, 10)
    assert everything(through.call("up__echo", text="still here")) == "still here"


def test_upwells_own_tools_take_null_for_no_arguments(pair: tuple[Peer, Peer]) -> None:
    through, _ = pair
    reply = through.call_raw("upwell__memory_search", "null", 10)
    assert b"memory_search needs 'query'" in reply
    assert b'"error":' not in through.call_raw(
        "upwell__memory_search", '{"query":"x","max_results":null}', 10
    )


def test_an_unknown_method(pair: tuple[Peer, Peer]) -> None:
    through, _ = pair
    assert through.ask("no/such/method", {}, 10)["error"]["code"] == -32601


def test_a_write_goes_through_once(gateway: Any, tmp_path: Path) -> None:
    peer = gateway({"up": script("upstream", "--state", str(tmp_path))})
    assert everything(peer.call("up__write_note", text="once")) == "written"
    assert (tmp_path / "notes.txt").read_text() == "once\n"
