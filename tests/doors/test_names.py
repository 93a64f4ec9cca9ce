"""Public tool names through the gateway: hosts accept every name, and every name leads back to its
tool."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.doors.conftest import Gateway, script
from tests.doors.peer import Peer, text_of

TAKEN_BY_HOSTS = re.compile(r"[A-Za-z0-9_-]{1,51}")
ODD = ["read.file", "wiki/page", "日本語", "naïve tool", "t" * 200]


def added(peer: Peer, add: str, name: str) -> str:
    """The public name of a tool that a server has now."""
    before = {tool["name"] for tool in peer.result("tools/list")["tools"]}
    peer.call(add, name=name)
    fresh: set[str] = set()

    def there() -> bool:
        fresh.update({tool["name"] for tool in peer.result("tools/list")["tools"]} - before)
        return bool(fresh)

    until(peer, there)
    (result,) = fresh
    return result


def until(peer: Peer, true: Callable[[], bool], looks: int = 100) -> None:
    for _ in range(looks):
        if true():
            return
        peer.drain(0.1)
    raise AssertionError("it did not come to pass")


@pytest.mark.parametrize("modern", [False, True], ids=["legacy", "modern"])
def test_odd_names_are_listed_in_a_form_that_hosts_accept_and_can_be_called(
    gateway: Gateway, modern: bool
) -> None:
    peer = gateway({"up": script("upstream")}, modern=modern)
    peer.wait_for_tools("up__echo")
    for name in ODD:
        front = added(peer, "up__add_tool", name)
        assert TAKEN_BY_HOSTS.fullmatch(front)
        assert front.startswith("up__")
        assert text_of(peer.call(front)) == f"I am {name}"


def test_a_server_without_prefix_cannot_take_another_servers_names_or_ours(
    gateway: Gateway,
) -> None:
    def server(**more: Any) -> dict[str, Any]:
        command, *args = script("upstream")
        return {"command": command, "args": args, **more}

    peer = gateway({"loud": server(prefix=False), "up": server()})
    peer.wait_for_tools("echo", "up__echo")
    for name in ("upwell__read_more", "up__late", "plain"):
        peer.call("add_tool", name=name)
    until(peer, lambda: "plain" in listed(peer))
    names = listed(peer)
    assert "up__late" not in names
    assert names.count("upwell__read_more") == 1
    refused = peer.call("upwell__read_more", key="0" * 16)
    assert "no original under key" in text_of(refused)


def listed(peer: Peer) -> list[str]:
    return [tool["name"] for tool in peer.result("tools/list")["tools"]]
