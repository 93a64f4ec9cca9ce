"""A server that gets every message wrong at random, beside one in good health: no call of the other
is lost, and whatever reaches the client is what clients accept.

200 rounds here; UPWELL_WILD_ROUNDS=10000 is run by hand before a release.
"""

import os
from pathlib import Path
from typing import Any

from mcp import types

from tests.doors.conftest import Gateway, script
from tests.doors.peer import Peer

ROUNDS = int(os.environ.get("UPWELL_WILD_ROUNDS", "200"))
ROUNDS_A_START = 50
ROUNDS_A_LIST = 5
"""A list may wait five seconds for the wild server."""
LIMITS = {"call_timeout_seconds": 10.0, "connect_timeout_seconds": 10.0}
HEALTHY_SECONDS = 30.0
"""How long a call of the healthy server may take on a busy machine."""
LISTS: dict[str, Any] = {
    "tools/list": types.ListToolsResult,
    "prompts/list": types.ListPromptsResult,
    "resources/list": types.ListResourcesResult,
    "resources/templates/list": types.ListResourceTemplatesResult,
}
REQUESTS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("tools/call", {"name": "wild__x", "arguments": {}, "_meta": {"progressToken": 1}}),
    ("resources/read", {"uri": "wild://a"}),
    ("prompts/get", {"name": "wild__p"}),
    ("resources/subscribe", {"uri": "wild://a"}),
    ("tasks/get", {"taskId": "1"}),
    ("logging/setLevel", {"level": "debug"}),
)


def test_a_wild_server_costs_another_no_call(gateway: Gateway, tmp_path: Path) -> None:
    seed = os.environ.get("UPWELL_WILD_SEED", "1")
    servers = {
        "wild": script("wild", str(tmp_path / "starts"), seed),
        "good": script("upstream"),
    }
    for first in range(0, ROUNDS, ROUNDS_A_START):
        peer = gateway(servers, hello=False, gateway=LIMITS)
        types.InitializeResult.model_validate(peer.hello(HEALTHY_SECONDS))
        peer.wait_for_tools("good__echo", "upwell__read_more", deadline=HEALTHY_SECONDS)
        asked: list[int] = []
        for number in range(first, min(first + ROUNDS_A_START, ROUNDS)):
            asked.append(peer.start(*REQUESTS[number % len(REQUESTS)]))
            check_the_healthy_server(peer, number)
            if number % ROUNDS_A_LIST == 0:
                check_a_list(peer, list(LISTS)[number // ROUNDS_A_LIST % len(LISTS)])
        for id in asked:
            peer.reply(id, HEALTHY_SECONDS)
        assert peer.close(HEALTHY_SECONDS) == 0, peer.stderr()[-2000:]


def check_the_healthy_server(peer: Peer, number: int) -> None:
    result = peer.call("good__echo", HEALTHY_SECONDS, text=str(number))
    assert result["content"][0]["text"] == str(number)
    assert not result.get("isError")


def check_a_list(peer: Peer, method: str) -> None:
    listed = peer.result(method, {}, HEALTHY_SECONDS)
    LISTS[method].model_validate(listed)
    if method == "tools/list":
        assert {"good__echo", "upwell__read_more"} <= {tool["name"] for tool in listed["tools"]}
