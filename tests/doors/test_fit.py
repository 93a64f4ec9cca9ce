"""Large responses come back within budget, and no content is lost."""

import json
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.doors.conftest import Gateway, script
from tests.doors.peer import Peer, text_of
from tests.doors.reading import FOOTER, complaint, everything, key_in, read_all, texts
from tests.doors.servers.data import big_json, big_markdown

BUDGET_TOKENS = 4_000
MOST_CHARS = BUDGET_TOKENS * 5
"""In these tests, no text of 4,000 tokens has more characters than this."""


@pytest.fixture
def peer(gateway: Gateway) -> Iterator[Peer]:
    peer = gateway({"up": script("upstream")})
    peer.wait_for_tools("up__big_json", "upwell__read_more")
    return peer


@pytest.mark.parametrize(
    ("tool", "original"), [("big_json", big_json()), ("big_markdown", big_markdown())]
)
def test_read_more_rebuilds_a_large_response(peer: Peer, tool: str, original: str) -> None:
    result = peer.call(f"up__{tool}")
    shown = everything(result)
    assert len(shown) < MOST_CHARS
    assert len(shown) > 2_000
    key = key_in(result)
    assert read_all(peer, key, len(original)) == original
    middle = len(original) // 2 + 1
    assert read_all(peer, key, len(original), middle) == original[middle:]


def test_chunks_are_within_budget_too(peer: Peer) -> None:
    key = key_in(peer.call("up__big_markdown"))
    assert len(text_of(peer.call("upwell__read_more", key=key, offset=0))) < MOST_CHARS


def test_every_chunk_including_the_last_has_the_footer(peer: Peer) -> None:
    original = big_markdown()
    key = key_in(peer.call("up__big_markdown"))
    last = text_of(peer.call("upwell__read_more", key=key, offset=len(original) - 10))
    body, separator, _ = last.rpartition(FOOTER)
    assert separator
    assert body == original[-10:]


def test_short_json_stays_json(peer: Peer) -> None:
    """The JSON block is still JSON; our notices are in blocks of their own."""
    shown = texts(peer.call("up__big_json"))
    rows = json.loads(shown[0])
    assert rows
    assert len(shown) > 1


def test_a_search_finds_omitted_text(peer: Peer) -> None:
    """The search is the gateway's first access to the original: none of it is loaded yet."""
    key = key_in(peer.call("up__big_markdown"))
    result = everything(peer.call("upwell__search_original", key=key, query="species in pool 391"))
    assert "Pool 391 keeps species" in result
    assert len(result) < MOST_CHARS


def test_a_section_can_be_read_by_its_name(peer: Peer) -> None:
    key = key_in(peer.call("up__big_markdown"))
    expected = ["Section 391: pool 391"]
    assert "Pool 391 keeps species" in everything(
        peer.call("upwell__select_sections", key=key, sections=expected)
    )


def test_the_same_response_gives_the_same_bytes(peer: Peer) -> None:
    first = peer.call("up__big_json")["content"]
    second = peer.call("up__big_json")["content"]
    assert first == second


def test_structured_content_is_never_left_without_its_text(peer: Peer) -> None:
    """The tool is listed without `outputSchema`, so a shortened result breaks no promise."""
    assert "outputSchema" not in peer.tools()["up__structured_big"]
    result = peer.call("up__structured_big")
    assert len(everything(result)) < MOST_CHARS
    assert len(json.dumps(result.get("structuredContent", {}))) < MOST_CHARS


def test_small_structured_content_is_untouched(peer: Peer) -> None:
    assert peer.call("up__structured")["structuredContent"]["pi"] == 1.1


@pytest.mark.parametrize(("key", "offset"), [("0" * 16, 0), ("", 0), ("../../etc/passwd", 0)])
def test_an_unknown_key_is_an_error_with_a_hint(peer: Peer, key: str, offset: int) -> None:
    message = peer.ask(
        "tools/call", {"name": "upwell__read_more", "arguments": {"key": key, "offset": offset}}
    )
    assert "again" in complaint(message) or "key" in complaint(message)


@pytest.mark.parametrize("offset", [-1, 10**12, "five", 1.5])
def test_an_invalid_offset(peer: Peer, offset: object) -> None:
    key = key_in(peer.call("up__big_json"))
    arguments = {"key": key, "offset": offset}
    message = peer.ask("tools/call", {"name": "upwell__read_more", "arguments": arguments})
    if offset != 10**12 or message.get("result", {}).get("isError"):
        assert "offset" in complaint(message)


def test_paused_means_untouched(gateway: Gateway, upwell: object) -> None:
    peer = gateway({"up": script("upstream")})
    peer.wait_for_tools("up__big_json")
    assert upwell("off").code == 0
    assert text_of(peer.call("up__big_json")) == big_json()
    assert upwell("on").code == 0
    assert len(everything(peer.call("up__big_json"))) < MOST_CHARS


def test_a_key_outlives_the_gateway(gateway: Gateway, upwell: object, home: Path) -> None:
    peer = gateway({"up": script("upstream")})
    peer.wait_for_tools("up__big_json")
    key = key_in(peer.call("up__big_json"))
    peer.close()
    again = gateway()
    again.wait_for_tools("up__big_json")
    assert read_all(again, key, len(big_json())) == big_json()
    assert upwell("read", key).out.removesuffix("\n") == big_json()


def test_a_budget_of_its_own_for_a_tool(gateway: Gateway) -> None:
    small = {"compress": {"max_result_tokens": 500}}
    peer = gateway({"up": script("upstream")}, tool={"up__big_*": small})
    peer.wait_for_tools("up__big_json")
    assert len(everything(peer.call("up__big_json"))) < 3_500


def test_text_around_an_image_stays_around_it(gateway: Gateway) -> None:
    peer = gateway({"up": script("upstream")})
    peer.wait_for_tools("up__big_mixed")
    kinds = [block["type"] for block in peer.call("up__big_mixed")["content"]]
    assert kinds.index("image") > 0
    assert kinds[kinds.index("image") + 1] == "text"
    assert len(json.dumps(peer.call("up__big_mixed"))) < MOST_CHARS + 2_000


def test_a_shortened_error_is_still_an_error(gateway: Gateway) -> None:
    peer = gateway({"up": script("upstream")})
    peer.wait_for_tools("up__big_fail")
    result = peer.call("up__big_fail")
    assert result["isError"] is True
    assert len(everything(result)) < MOST_CHARS
    assert "exit status 2" in everything(result)


def test_a_locked_ledger_does_not_delay_calls(gateway: Gateway, home: Path) -> None:
    peer = gateway({"up": script("upstream")}, cache={"tools": ["up__*"]})
    peer.wait_for_tools("up__big_json", "upwell__read_more")
    peer.call("up__big_markdown")
    holder = sqlite3.connect(home / "ledger.db", isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    began = time.monotonic()
    result = peer.call("up__big_json")
    assert read_all(peer, key_in(result), len(big_json())) == big_json()
    assert time.monotonic() - began < 6
    assert "kept in memory only" in everything(result)
    holder.execute("ROLLBACK")
    holder.close()
