"""What the relay reads in messages, and that it leaves the rest alone."""

import json

import pytest

from upwell.wrap.messages import END_BYTES, ListedTool, Malformed, ToolList, member, outline, parsed


def ends(message: bytes) -> dict[str, str]:
    return outline(message[:END_BYTES], message[-END_BYTES:])


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (b'{"jsonrpc":"2.0","id":1,"result":{"id":2}}', ("1", "{", None)),
        (b'{"result":{"content":[]},"jsonrpc":"2.0","id":1}', ("1", "{", None)),
        (b' { "result" : { } , "id" : "a-b" } \r\n', ('"a-b"', "{", None)),
        (b'{"id":1.0,"result":{"text":"} \\"id\\":7, ]"}}', ("1.0", "{", None)),
        (b'{"id":4,"method":"roots/list"}', ("4", None, '"roots/list"')),
        (b'{"params":{"a":[1]},"method":"ping","id":5}', ("5", None, '"ping"')),
        (b'{"jsonrpc":"2.0","id":"\\u0061","error":{"code":1}}', ('"\\u0061"', None, None)),
    ],
)
def test_id_result_and_method_are_found_at_either_end(
    message: bytes, expected: tuple[str | None, ...]
) -> None:
    found = ends(message)
    assert (found.get("id"), found.get("result"), found.get("method")) == expected


def test_the_middle_of_a_long_message_is_not_read() -> None:
    long = json.dumps({"result": {"text": 'x","id":3}' * 400_000}, "id": 9}).encode()
    assert ends(long) == {"result": "{", "id": "9"}


@pytest.mark.parametrize(
    "message",
    [
        *(b"", b"\n", b"{", b"[]", b"null", b'{"id"', b'{"id":}', b'{"id":1', b'{"id" 1}'),
        *(b'[{"id":1,"result":{}}]', b"\xef\xbb\xbf{}", b'{"a":"\xff', b'{"id":1 "x":2}', b"{1:2}"),
    ],
)
def test_another_shape_has_no_id_and_result(message: bytes) -> None:
    found = ends(message)
    assert not {"id", "result"} <= set(found)


def test_numbers_stay_as_they_are_written() -> None:
    assert parsed('{"a":[1.10,1e400,NaN]}') == {"a": ["1.10", "1e400", "NaN"]}


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, '{"a":1} x', '"\\ud8"'])
def test_malformed_json_has_no_value(text: str) -> None:
    assert parsed(text) is None


def test_a_member_is_a_string_or_missing() -> None:
    assert member({"a": {"b": "c"}}, "a", "b") == "c"
    assert member({"a": ["b"]}, "a", "b") == member({"a": 1}, "a") == member(None, "a") == ""


LIST = """{"jsonrpc":"2.0", "result": {"x":1.10,"tools": [ {"name":"a","outputSchema":{"type":"o"},
"annotations":{"readOnlyHint":true},"n":1e2} , {"outputSchema" : {}, "name":"b\\u00e9"},{"name":"c"}
], "nextCursor":"é"},"id":3}""".replace("\n", "")


def test_tools_are_noted_with_their_annotations() -> None:
    tools = ToolList(LIST.encode()).tools
    assert list(tools) == ["a", "bé", "c"]
    assert [tool.schema for tool in tools.values()] == [True, True, False]
    facts = json.loads(tools["a"].facts())
    assert facts == {"annotations": {"readOnlyHint": True}, "schema": True}


def test_a_schema_is_cut_out_and_the_rest_stays() -> None:
    listed = ToolList(LIST.encode())
    cut = listed.without_schemas({"a", "bé"}).decode()
    assert cut == LIST.replace(',"outputSchema":{"type":"o"}', "").replace(
        '{"outputSchema" : {}, "name":"b\\u00e9"}', '{"name":"b\\u00e9"}'
    ).replace('"annotations"', '"annotations"')
    assert not any(tool.schema for tool in listed.tools.values())
    assert ToolList(LIST.encode()).without_schemas(set()) == LIST.encode()


@pytest.mark.parametrize(
    "line",
    [b'{"result":{"tools":{}}}', b'{"result":{}}', b"{}", b'{"result":{"tools":[1]}}', b"\xff"],
)
def test_what_is_no_list_of_tools_is_left_alone(line: bytes) -> None:
    with pytest.raises(Malformed):
        ToolList(line)


@pytest.mark.parametrize(
    ("annotations", "writes"),
    [
        ("{}", False),
        ('{"readOnlyHint":false}', True),
        ('{"readOnlyHint":true,"destructiveHint":true}', False),
        ('{"destructiveHint":true}', True),
        ('{"destructiveHint":false}', False),
        ('{"readOnlyHint":"no"}', False),
    ],
)
def test_a_tool_writes_if_its_annotations_say_so(annotations: str, writes: bool) -> None:
    assert ListedTool(annotations).writes is writes
