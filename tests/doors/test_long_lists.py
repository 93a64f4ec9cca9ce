"""Long lists of tools through the door, in either era."""

import json
from typing import Any

import pytest

from tests.doors.conftest import QUICK, Gateway, Sdk, script
from tests.doors.peer import Peer, text_of

LAZY = {**QUICK, "call_timeout_seconds": 20.0, "lazy_tools_tokens": 500}
MODES = ["legacy", "2026-07-28"]
UP = {"up": script("upstream")}


@pytest.fixture(params=[False, True], ids=["legacy", "modern"])
def peer(request: Any, gateway: Gateway) -> Peer:
    peer = gateway(UP, modern=request.param, gateway=LAZY)
    peer.wait_for_tools("up__echo")
    return peer


def listed(peer: Peer) -> dict[str, dict[str, Any]]:
    return {tool["name"]: tool for tool in peer.result("tools/list")["tools"]}


def test_each_tool_is_listed_in_short_form_and_described_in_full(peer: Peer) -> None:
    tools = listed(peer)
    echo = tools["up__echo"]
    assert echo["inputSchema"] == {
        "type": "object",
        "properties": {"text": {}, "ratio": {"type": "number"}},
        "required": ["text"],
    }
    assert echo["annotations"]["readOnlyHint"] is True
    assert not any("outputSchema" in tool for tool in tools.values())
    assert tools["upwell__read_more"]["inputSchema"]["properties"]["offset"]["description"]
    reply = peer.call("upwell__describe_tools", names=["up__echo"])
    full = json.loads(text_of(reply))
    assert full["name"] == "up__echo"
    assert full["inputSchema"]["additionalProperties"] is False
    assert '"default":1.10,"maximum":123456789012345678901234567890' in text_of(reply)


def test_a_call_with_wrong_arguments_gets_the_schema_and_others_pass(
    peer: Peer,
) -> None:
    refused = peer.call("up__echo", words="x")
    assert refused["isError"] is True
    assert "text is missing" in refused["content"][0]["text"]
    assert '"$ref":"#/$defs/word"' in refused["content"][1]["text"]
    assert text_of(peer.call("up__echo", text="hi", _context_query="what")) == "hi"


def test_a_changed_list_is_announced_and_stays_short(peer: Peer) -> None:
    listed(peer)
    peer.call("up__add_tool", name="fresh")
    peer.wait_for_tools("up__fresh")
    methods = [note["method"] for note in peer.notifications]
    assert peer.modern or "notifications/tools/list_changed" in methods
    assert listed(peer)["up__echo"]["inputSchema"]["properties"]["text"] == {}
    assert json.loads(text_of(peer.call("upwell__describe_tools", names=["up__fresh"])))


def test_without_the_key_lists_are_complete_and_describe_tools_is_absent(gateway: Gateway) -> None:
    peer = gateway(UP)
    peer.wait_for_tools("up__echo")
    tools = listed(peer)
    assert "$defs" in tools["up__echo"]["inputSchema"]
    assert "upwell__describe_tools" not in tools


@pytest.mark.parametrize("mode", MODES)
async def test_a_client_that_validates_structures_accepts_the_answers(sdk: Sdk, mode: str) -> None:
    plain = {"up__structured": {"compress": {"strategy": "none"}}}
    async with sdk(UP, mode=mode, gateway=LAZY, tool=plain) as client:
        await client.list_tools()
        result = await client.call_tool("up__structured", {})
        assert result.structured_content["pi"] == 1.1
        assert not result.is_error
