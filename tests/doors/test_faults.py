"""Upstreams that get everything wrong: each request is answered exactly once, within its deadline,
with an error that names the upstream; the other upstreams go on.
"""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.doors.conftest import QUICK, Gateway, script
from tests.doors.peer import Peer, exact, member
from tests.doors.reading import complaint, everything

CALL_SECONDS = 3.0
SLACK_SECONDS = 20.0
"""A time limit that holds on a busy machine."""
PATIENT = {**QUICK, "call_timeout_seconds": 90.0}
AT_ONCE_SECONDS = 30.0
"""Far less than the timeout, far more than a busy machine needs."""


@pytest.fixture
def pair(gateway: Gateway, tmp_path: Path) -> Iterator[Peer]:
    """A gateway with a bad server and a good one."""
    peer = gateway(
        {
            "bad": script("odd", "--state", str(tmp_path), "--pids", str(tmp_path / "pids")),
            "good": script("upstream"),
        },
        gateway=PATIENT,
    )
    peer.wait_for_tools("bad__ok", "good__echo")
    yield peer
    peer.drain(0.1)
    assert everything(peer.call("good__echo", 30, text="still here")) == "still here"


def back_again(peer: Peer, seconds: float = 30.0) -> None:
    """Wait until the bad server can be used again, without a manual restart."""
    end = time.monotonic() + seconds
    while True:
        message = peer.ask("tools/call", {"name": "bad__ok", "arguments": {}})
        if "result" in message and not message["result"].get("isError"):
            assert everything(message["result"]) == "fine"
            return
        assert time.monotonic() < end, message
        peer.drain(0.1)


def call(peer: Peer, tool: str) -> dict[str, Any]:
    message = {"name": f"bad__{tool}", "arguments": {}}
    return peer.ask("tools/call", message, 2 * AT_ONCE_SECONDS)


@pytest.mark.parametrize("tool", ["half_line", "hang"])
def test_a_call_without_an_answer_ends_at_its_deadline(gateway: Gateway, tool: str) -> None:
    peer = gateway({"bad": script("odd"), "good": script("upstream")})
    peer.wait_for_tools("bad__ok", "good__echo")
    began = time.monotonic()
    message_text = complaint(call(peer, tool))
    assert CALL_SECONDS * 0.8 < time.monotonic() - began < CALL_SECONDS + SLACK_SECONDS
    assert "'bad'" in message_text
    assert everything(peer.call("good__echo", text="on")) == "on"


def test_a_hanging_call_delays_no_other_call(pair: Peer) -> None:
    hanging = pair.start("tools/call", {"name": "bad__hang", "arguments": {}})
    assert everything(pair.call("good__echo", text="quick")) == "quick"
    assert everything(pair.call("bad__ok")) == "fine"
    assert hanging not in pair._replies


@pytest.mark.parametrize("tool", ["die", "half_then_die"])
def test_a_server_that_dies_during_a_call(pair: Peer, tool: str) -> None:
    began = time.monotonic()
    message_text = complaint(call(pair, tool))
    assert time.monotonic() - began < AT_ONCE_SECONDS
    assert "bad" in message_text
    back_again(pair)


def test_the_error_names_the_reason_of_the_exit(pair: Peer) -> None:
    message_text = complaint(call(pair, "die"))
    assert "7" in message_text
    assert "the tide went out" in message_text


def test_a_call_is_not_repeated_after_a_crash(pair: Peer, tmp_path: Path) -> None:
    assert "bad" in complaint(call(pair, "effect_then_die"))
    back_again(pair)
    assert (tmp_path / "effects.txt").read_text() == "done\n"


def test_all_calls_in_flight_are_answered_when_it_dies(pair: Peer) -> None:
    waiting = [pair.start("tools/call", {"name": "bad__hang", "arguments": {}}) for _ in range(5)]
    waiting.append(pair.start("tools/call", {"name": "bad__die", "arguments": {}}))
    began = time.monotonic()
    for id in waiting:
        assert "bad" in complaint(pair.reply(id, AT_ONCE_SECONDS))
    assert time.monotonic() - began < AT_ONCE_SECONDS


WRONG_SHAPES = ["result_null", "result_list", "result_string", "result_number", "neither"]


@pytest.mark.parametrize("tool", [*WRONG_SHAPES, "string_error"])
def test_a_malformed_answer_settles_the_call(pair: Peer, tool: str) -> None:
    began = time.monotonic()
    message_text = complaint(call(pair, tool))
    assert time.monotonic() - began < AT_ONCE_SECONDS
    assert "bad" in message_text
    back_again(pair)


ODD_SHAPES = ["result_empty", "content_string", "content_null", "block_string", "text_number"]


@pytest.mark.parametrize("tool", ODD_SHAPES)
def test_an_odd_result_is_answered(pair: Peer, tool: str) -> None:
    """Only an answer is promised: the result may pass unchanged or become an error."""
    began = time.monotonic()
    call(pair, tool)
    assert time.monotonic() - began < AT_ONCE_SECONDS


def test_an_answer_with_both_result_and_error(pair: Peer) -> None:
    message = call(pair, "result_and_error")
    assert ("result" in message) != ("error" in message)


AFTER_NOISE = {
    "junk_lines": "after the junk",
    "bad_utf8_line": "after the bad line",
    "split_line": "in pieces é 🌊",
    "duplicate": "once",
    "foreign_id": "for me",
    "stderr_flood": "after the flood",
    "no_newline": "after the long line",
}


@pytest.mark.parametrize("tool", AFTER_NOISE)
def test_noise_changes_nothing(pair: Peer, tool: str) -> None:
    message = pair.ask("tools/call", {"name": f"bad__{tool}", "arguments": {}}, 60)
    assert everything(message["result"]) == AFTER_NOISE[tool]
    assert everything(pair.call("bad__ok")) == "fine"


def test_a_batch_settles_the_call(pair: Peer) -> None:
    began = time.monotonic()
    call(pair, "two_in_a_line")
    assert time.monotonic() - began < AT_ONCE_SECONDS


def test_bytes_that_are_not_utf8(pair: Peer) -> None:
    """The text is delivered with replacement characters, and the loss is reported."""
    message = call(pair, "bad_utf8_inside")
    message_text = everything(message["result"])
    assert "before" in message_text
    assert "after" in message_text
    assert "\ufffd" in message_text
    assert "bad" in message_text.replace("before", "").replace("after", "")
    assert everything(pair.call("bad__ok")) == "fine"


UNCHANGED = [
    *("lone_surrogate", "nul", "crlf", "long_integer", "duplicate_keys", "separators"),
    *("controls", "empty_text", "block_unknown"),
]


def test_structured_content_that_nobody_can_parse_has_a_key(pair: Peer) -> None:
    notice = everything(pair.call("bad__deep_result"))
    assert "structuredContent: shortened" in notice
    key = notice.partition('key="')[2].partition('"')[0]
    assert "[[[[[[[[" in everything(pair.call("upwell__read_more", key=key))


@pytest.mark.parametrize("modern", [False, True])
@pytest.mark.parametrize("tool", UNCHANGED)
def test_odd_text_passes_unchanged(
    gateway: Gateway, direct: Gateway, tool: str, modern: bool
) -> None:
    """Compared as bytes, because a decoder would hide repairs."""
    through = gateway({"bad": script("odd")}, modern=modern)
    plain = direct(script("odd"), modern=modern)
    through.wait_for_tools(f"bad__{tool}")
    ours, theirs = bytes_of(through, f"bad__{tool}"), bytes_of(plain, tool)
    start = theirs.index(b'"content":')
    assert theirs[start : theirs.rindex(b"]") + 1] in ours


def bytes_of(peer: Peer, tool: str) -> bytes:
    """The reply as a line, without decoding it: it may be nested deeper than Python can."""
    peer._ids += 1
    meta = ""
    if peer.modern:
        from tests.doors.peer import ENVELOPE

        meta = f',"_meta":{__import__("json").dumps(ENVELOPE)}'
    request = f'"method":"tools/call","params":{{"name":"{tool}","arguments":{{}}{meta}}}'
    peer.send_bytes(f'{{"jsonrpc":"2.0","id":{peer._ids},{request}}}\n'.encode())
    while True:
        line = peer.line(30)
        if f'"id":{peer._ids},'.encode() in line[:200] or line.endswith(
            f'"id":{peer._ids}}}'.encode()
        ):
            return line


@pytest.mark.parametrize("tool", ["deep_text", "open_brackets"])
def test_deep_json_in_a_text(gateway: Gateway, tool: str) -> None:
    """Over budget, so it is shortened; nothing crashes, and all of it can be read."""
    peer = gateway({"bad": script("odd"), "good": script("upstream")})
    peer.wait_for_tools("bad__ok", "good__echo")
    result = peer.call(f"bad__{tool}", 30)
    assert not result.get("isError"), everything(result)[:300]
    from tests.doors.reading import key_in, read_all

    full = "[" * 100_000 + ("]" * 100_000 if tool == "deep_text" else "")
    assert len(everything(result)) < 40_000
    assert read_all(peer, key_in(result), len(full)) == full
    assert everything(peer.call("good__echo", text="on")) == "on"


def test_number_lexemes_of_the_agent_reach_an_odd_server(pair: Peer) -> None:
    line = pair.call_raw("good__received", '{"n":123456789012345678901234567890,"m":1.10}')
    seen = exact(member(exact(line), "result", "content", 0, "text"))
    sent = exact(member(seen, "line"))
    assert member(sent, "params", "arguments", "n") == "123456789012345678901234567890"
    assert member(sent, "params", "arguments", "m") == "1.10"
