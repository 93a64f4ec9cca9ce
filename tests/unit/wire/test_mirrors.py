"""Arguments that headers repeat (SEP-2243), compared with the official SDK's rules."""

import json
from typing import Any

import pytest
from mcp.shared.inbound import (
    encode_header_value,
    find_invalid_x_mcp_header,
    mcp_param_headers,
    validate_mcp_param_headers,
    x_mcp_header_map,
)

from upwell.wire.mirrors import (
    BadMirror,
    Mirrors,
    argument_headers,
    decoded,
    differing,
    encoded,
    mirrors_of,
)
from upwell.wire.rawjson import RawObject


def argument(name: object = "Region", kind: object = "string") -> dict[str, Any]:
    return {"type": kind, "x-mcp-header": name}


def schema(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


GOOD = schema(
    region=argument(),
    count=argument("Count", "integer"),
    dry=argument("Dry-Run", "boolean"),
    place={"type": "object", "properties": {"zone": argument("Zone")}},
    free={"type": "string", "default": {"x-mcp-header": "no"}, "enum": ["x-mcp-header"]},
)
BAD = [
    argument(),
    schema(a=argument("")),
    schema(a=argument("two words")),
    schema(a=argument("é")),
    schema(a=argument(7)),
    schema(a=argument(kind="number")),
    schema(a=argument(kind="object")),
    schema(a=argument(kind=["string", "null"])),
    schema(a={"x-mcp-header": "A"}),
    schema(a=argument("Same"), b=argument("same")),
    schema(a={"type": "array", "items": argument()}),
    {"anyOf": [schema(a=argument())]},
    {"$defs": {"a": argument()}},
    {"patternProperties": {"a": argument()}},
    schema(a={"if": schema(b=argument())}),
]
ARGUMENTS: list[dict[str, Any]] = [
    {},
    {"region": "eu-west1", "count": 42, "dry": False, "place": {"zone": "b"}},
    {"region": None, "count": None, "place": {}},
    {"region": "", "place": "none"},
    {"region": "é 🌊"},
    {"region": " edge "},
    {"region": "=?base64?eA==?="},
    {"region": "line\nend\r\nX-Evil: 1"},
    {"region": ["no"], "count": {"no": 1}},
    {"count": 2**80, "dry": True},
    {"count": -0, "region": "x" * 9000},
]


def raw(arguments: dict[str, Any]) -> bytes:
    return json.dumps(arguments).encode()


def test_declarations_are_read_as_the_sdk_reads_them() -> None:
    ours = {mirror.path: mirror.header for mirror in mirrors_of(GOOD)}
    theirs = {path: f"mcp-param-{name}".lower() for path, name in x_mcp_header_map(GOOD).items()}
    assert ours == theirs
    assert len(ours) == 4
    assert [mirrors_of(nothing) for nothing in (None, [], "x", {}, schema())] == [()] * 5


@pytest.mark.parametrize("bad", BAD, ids=json.dumps)
def test_declarations_that_are_forbidden(bad: dict[str, Any]) -> None:
    assert find_invalid_x_mcp_header(bad)
    with pytest.raises(BadMirror):
        mirrors_of(bad)


@pytest.mark.parametrize("arguments", ARGUMENTS, ids=lambda a: json.dumps(a)[:40])
def test_headers_equal_those_of_the_sdk_and_both_accept_them(arguments: dict[str, Any]) -> None:
    mirrors = mirrors_of(GOOD)
    ours = argument_headers(mirrors, raw(arguments))
    theirs = mcp_param_headers(x_mcp_header_map(GOOD), arguments)
    assert {name: decoded(value) for name, value in ours.items()} == {
        name.lower(): decoded(value) for name, value in theirs.items()
    }
    assert validate_mcp_param_headers(GOOD, arguments, ours) is None
    folded = {name.lower(): value for name, value in theirs.items()}
    assert differing(mirrors, raw(arguments), folded) is None
    assert all(value.isascii() and value.isprintable() for value in ours.values())


@pytest.mark.parametrize(
    ("arguments", "headers"),
    [
        ({"region": "eu"}, {}),
        ({"region": "eu"}, {"mcp-param-region": "us"}),
        ({"region": "eu"}, {"mcp-param-region": "=?base64?!?="}),
        ({"region": "eu"}, {"mcp-param-region": "=?base64?ZXV=?="}),
        ({}, {"mcp-param-region": "eu"}),
        ({"region": None}, {"mcp-param-region": ""}),
        ({"region": ["eu"]}, {"mcp-param-region": "eu"}),
        ({"count": 42}, {"mcp-param-count": "43"}),
        ({"count": 42}, {"mcp-param-count": "4.2e1"}),
        ({"dry": True}, {"mcp-param-dry-run": "True"}),
        ({"place": {"zone": "a"}}, {"mcp-param-zone": "b"}),
    ],
)
def test_headers_that_say_something_else(
    arguments: dict[str, Any], headers: dict[str, str]
) -> None:
    assert validate_mcp_param_headers(GOOD, arguments, headers) is not None
    assert differing(mirrors_of(GOOD), raw(arguments), headers) is not None


@pytest.mark.parametrize(
    ("lexeme", "header"),
    [(b"42", "42.0"), (b"42.0", "42"), (b"42", "042"), (b"1e2", "100"), (b"-7", "-7.00")],
)
def test_integers_are_compared_as_numbers(lexeme: bytes, header: str) -> None:
    arguments = b'{"count": %b }' % lexeme
    assert differing(mirrors_of(GOOD), arguments, {"mcp-param-count": header}) is None


@pytest.mark.parametrize("lexeme", [b"1e999999999", b"1.5e0", b'"\\ud800"', b"{}", b"null"])
def test_values_that_no_header_can_carry_are_left_out(lexeme: bytes) -> None:
    assert argument_headers(mirrors_of(GOOD), b'{"count":%b,"region":%b}' % (lexeme, lexeme)) == {}


@pytest.mark.parametrize("value", ["", "a", "a b", " a", "é", "=?base64?eA==?=", "\x7f", "\t"])
def test_any_value_survives_as_the_sdk_writes_it(value: str) -> None:
    assert decoded(encoded(value)) == value
    assert decoded(encode_header_value(value)) == value


def test_a_tool_whose_schema_cannot_be_decoded_is_left_out_alone() -> None:
    deep = b'{"x-mcp-header":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    tools = [
        RawObject.parse(b'{"name":"good","inputSchema":{}}'),
        RawObject((((b'"name"'), b'"deep"'), (b'"inputSchema"', deep))),
    ]
    assert [tool.value("name") for tool in Mirrors("up").listed(tools)] == ["good"]
