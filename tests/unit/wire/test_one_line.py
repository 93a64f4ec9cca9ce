"""No content of a message can end its line, and only its line endings change."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from upwell.wire.lines import unbroken
from upwell.wire.peer import LARGE_BYTES, read_message
from upwell.wire.rawjson import NotJson, check, one_line

VALUES = st.recursive(
    st.none() | st.integers() | st.text(alphabet='"\\\n\r\tné '),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(alphabet='"\\\n '), inner),
)


@given(VALUES, st.sampled_from(["\n", "\r\n", "\r"]))
def test_line_ends_between_parts_become_spaces(value: object, end: str) -> None:
    pretty = json.dumps(value, indent=1).replace("\n", end).encode()
    flat = one_line(pretty)
    assert flat == pretty.replace(b"\r", b" ").replace(b"\n", b" ")
    assert json.loads(flat) == value


def test_lexemes_and_repeated_members_stay() -> None:
    assert one_line(b'{"a":1.10,\n"a":1E400}') == b'{"a":1.10, "a":1E400}'
    full = b'{"a":"\\n"}'
    assert one_line(full) is full


@pytest.mark.parametrize(
    "raw", [b'{"a":"x\ny"}', b'{"a\r":1}', b'["\\"\n"]', b'["\\\\\\"\n"]', b'[1,\n"x\n\n"]']
)
def test_a_line_end_inside_a_string_is_refused(raw: bytes) -> None:
    with pytest.raises(NotJson, match="inside a string"):
        one_line(raw)


@pytest.mark.parametrize("more", [b"", b" " * LARGE_BYTES])
def test_every_message_becomes_one_line(more: bytes) -> None:
    smuggled = b'{"jsonrpc":"2.0","id":777,"method":"sampling/createMessage"}'
    message = read_message(
        b'{\n "jsonrpc":"2.0",\r\n "id":1,\n "result":{"x":[\n' + smuggled + b"\n]" + more + b"}}\r"
    )
    assert message.id == b"1"
    inside = message.body.get("result") or b""
    assert smuggled in inside
    assert b"\n" not in inside
    assert b"\r" not in inside


def test_a_sent_line_has_no_line_end_inside() -> None:
    assert unbroken(b'{"a":\r\n[\n1]}') == b'{"a":  [ 1]}'


@pytest.mark.parametrize("raw", [b'{"n":' + b"9" * 6000 + b"}", b"[" * 50_000 + b"]" * 50_000])
def test_json_of_any_size_passes_the_check(raw: bytes) -> None:
    check(raw)


@pytest.mark.parametrize("raw", [b'{"a":nonsense}', b"[1,]", b'{"a":1 2}', b'{"a"}', b""])
def test_malformed_json_fails_the_check(raw: bytes) -> None:
    with pytest.raises(NotJson):
        check(raw)
