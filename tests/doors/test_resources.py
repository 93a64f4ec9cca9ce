"""Our resources through the gateway, in both eras."""

import json

import pytest

from tests.conftest import Upwell
from tests.doors.conftest import Gateway

FACT = "The tide turns at noon"


@pytest.mark.parametrize("modern", [False, True])
def test_topics_searches_and_memories(gateway: Gateway, upwell: Upwell, modern: bool) -> None:
    id = upwell("remember", FACT, "--tag", "Deep Sea").line
    peer = gateway({}, modern=modern)
    listed = peer.result("resources/list")
    assert [resource["uri"] for resource in listed["resources"]] == ["upwell://topics"]
    templates = peer.result("resources/templates/list")
    assert {resource["uriTemplate"] for resource in templates["resourceTemplates"]} == {
        "upwell://topics/{topic}",
        "upwell://search/{query}",
        "upwell://memory/{id}",
    }
    results = [listed, templates]

    def read(uri: str) -> dict:
        results.append(peer.result("resources/read", {"uri": uri}))
        (content,) = results[-1]["contents"]
        assert content["uri"] == uri
        return json.loads(content["text"])

    names = {topic["name"]: topic["uri"] for topic in read("upwell://topics")["topics"]}
    (memory,) = read(names["deep-sea"])["memories"]
    assert memory["id"] == id
    assert read(memory["uri"])["text"] == FACT
    assert read("upwell://search/when%20does%20the%20tide%20turn")["memories"][0]["id"] == id
    for result in results:
        assert (result.get("resultType"), result.get("cacheScope"), result.get("ttlMs")) == (
            ("complete", "private", 0) if modern else (None, None, None)
        )


@pytest.mark.parametrize(("modern", "code"), [(False, -32002), (True, -32602)])
def test_a_missing_resource_is_an_error(gateway: Gateway, modern: bool, code: int) -> None:
    peer = gateway({}, modern=modern)
    for uri in ("upwell://memory/nobody", "upwell://topics/nothing", "file:///etc/passwd"):
        error = peer.ask("resources/read", {"uri": uri})["error"]
        assert (error["code"], error["data"]["uri"]) == (code, uri)
    assert peer.ask("resources/read", {"uri": 5})["error"]["code"] == -32602
    assert peer.ask("resources/read")["error"]["code"] == -32602


def test_resources_are_announced_and_follow_writes_of_others(
    gateway: Gateway, upwell: Upwell
) -> None:
    peer = gateway({}, hello=False)
    assert "resources" in peer.hello()["capabilities"]
    assert peer.ask("resources/read", {"uri": "upwell://topics/sea"})["error"]
    upwell("remember", FACT, "--tag", "sea")
    assert peer.result("resources/read", {"uri": "upwell://topics/sea"})["contents"]


def test_a_note_has_its_topics_at_the_next_request(gateway: Gateway) -> None:
    peer = gateway({})
    peer.result("resources/read", {"uri": "upwell://topics"})
    for tag in ("mill", "weir", "lock"):
        peer.call("upwell__add_memory", content=f"The {tag} keeper is on leave", tags=[tag])
        assert peer.result("resources/read", {"uri": f"upwell://topics/{tag}"})["contents"]


def test_topics_on_the_command_line(upwell: Upwell) -> None:
    assert upwell("topics", "--json").json == {"count": 0, "topics": []}
    upwell("remember", FACT, "--tag", "Deep Sea", "--namespace", "learnings")
    result = upwell("topics", "--json").json
    assert result["count"] == 2
    assert result["topics"][0] == {
        "name": "deep-sea",
        "memory_count": 1,
        "namespaces": ["learnings"],
        "uri": "upwell://topics/deep-sea",
    }
    assert "deep-sea\t1\tlearnings" in upwell("topics").out


def test_a_memory_with_an_odd_id_is_read_by_its_cited_address(
    gateway: Gateway, upwell: Upwell
) -> None:
    id = upwell("remember", FACT).line
    peer = gateway({})
    for name in (id, f"upwell://memory/{id}"):
        result = peer.call("upwell__memory_get", id=name)
        assert result["content"][0]["text"] == FACT
