"""Invalid definitions: which are repaired, which are left out, and what `upwell doctor` says."""

import pytest

from upwell.gateway.eras import MAX_INSTRUCTIONS_CHARS, introduction, offer_of
from upwell.gateway.shapes import accepted_capabilities, checked, compiles
from upwell.gateway.upstreams.tool_lists import MAX_TOOL_BYTES, read_page
from upwell.wire.rawjson import RawObject, dumps, loads

OBJECT = {"type": "object"}


def repaired(member, definition):
    entry = checked(member, RawObject.parse(dumps(definition))).entry
    return None if entry is None else loads(entry.encode())


def tool(schema=OBJECT, **members):
    return {"name": "x", "inputSchema": schema, **members}


@pytest.mark.parametrize(
    ("schema", "listed"),
    [
        (None, OBJECT),
        ([], OBJECT),
        ({}, OBJECT),
        ({"anyOf": [OBJECT]}, {"anyOf": [OBJECT], **OBJECT}),
        ({"type": ["object", "null"]}, OBJECT),
        ({**OBJECT, "properties": []}, OBJECT),
        ({**OBJECT, "properties": None, "required": None}, {**OBJECT, "required": []}),
        ({**OBJECT, "required": ["a", 1]}, {**OBJECT, "required": ["a"]}),
        (
            {**OBJECT, "properties": {"a": True, "b": False, "c": None}},
            {**OBJECT, "properties": {"a": {}, "b": {"not": {}}, "c": {}}},
        ),
    ],
)
def test_a_schema_is_repaired_where_no_argument_is_lost(schema, listed):
    assert repaired("tools", tool(schema)) == tool(listed)


@pytest.mark.parametrize(
    ("member", "definition", "fault"),
    [
        ("tools", tool({"type": "string"}), 'inputSchema.type is "string", not "object"'),
        ("tools", tool({**OBJECT, "properties": {"a": 5}}), "inputSchema.properties.a is 5"),
        ("tools", {"inputSchema": OBJECT}, "name is null, not a string"),
        ("prompts", {"name": "x", "arguments": [{}]}, "arguments[0].name is null"),
        ("resources", {"uri": "readme", "name": "x"}, 'uri is "readme", not a URI'),
        ("resourceTemplates", {"name": "x"}, "uriTemplate is null"),
    ],
)
def test_any_other_definition_is_left_out_with_the_reason(member, definition, fault):
    result = checked(member, RawObject.parse(dumps(definition)))
    assert result.entry is None
    assert result.fault.startswith(fault)


@pytest.mark.parametrize(
    "extra",
    [
        {"description": None},
        {"title": 5},
        {"annotations": {"readOnlyHint": "yes"}},
        {"icons": [{}]},
        {"outputSchema": {}},
        {"execution": {"taskSupport": "never"}},
        {"_meta": []},
    ],
)
def test_an_optional_member_of_a_wrong_type_is_removed(extra):
    [name] = extra
    assert repaired("tools", tool(**extra)).get(name) in (None, {})


def test_the_rest_of_a_repaired_definition_keeps_its_bytes():
    raw = b'{"name":"x","title":null,"inputSchema":{"type":"object"},"y": 1.10}'
    entry = checked("tools", RawObject.parse(raw)).entry
    assert entry.encode() == b'{"name":"x","inputSchema":{"type":"object"},"y":1.10}'


def test_what_is_not_json_everywhere_is_not_listed():
    cut = RawObject.parse(b'{"name":"x","description":"\\ud83d","inputSchema":{"type":"object"}}')
    assert loads(checked("tools", cut).entry.get("description")) == "\ufffd"
    nan = b'{"name":"x","inputSchema":{"type":"object","default":NaN}}'
    assert "NaN" in checked("tools", RawObject.parse(nan)).fault
    deep = b'{"name":"x","inputSchema":' + b'{"a":' * 200 + b"1" + b"}" * 201
    assert "levels" in checked("tools", RawObject.parse(deep)).fault


async def test_a_page_names_what_it_leaves_out():
    large = tool(description="x" * MAX_TOOL_BYTES)
    page = await read_page(dumps({"tools": [tool(), 5, {**large, "name": "big"}]}), "tools", 10)
    assert len(page.entries) == 1
    assert page.faults == {
        "an entry of tools": "is not an object",
        'tool "big"': "is larger than 256 KiB",
    }
    assert (await read_page(b'{"tools":null,"nextCursor":""}', "tools", 10)).cursor == b'""'


def test_capabilities_of_a_wrong_type_count_as_absent():
    declared = {"tools": [], "prompts": None, "logging": None, "resources": {"subscribe": "yes"}}
    assert accepted_capabilities(declared) == {"tools": {}, "resources": {}}
    about = introduction(RawObject.parse(dumps({"capabilities": declared})))
    assert set(about.faults) == {"capability prompts", "capability logging"}


def test_long_instructions_are_cut_and_unreadable_ones_mended():
    long = "x" * 4_000_000
    about = introduction(RawObject.parse(dumps({"instructions": long})))
    assert len(about.instructions) == MAX_INSTRUCTIONS_CHARS + 1
    assert "its instructions" in about.faults

    class Server:
        name = "s"

    Server.about = introduction(RawObject.parse(b'{"instructions":"cut \\ud83d"}'))
    offer_of([Server]).instructions.encode()


@pytest.mark.parametrize(
    ("schema", "usable"),
    [
        ({**OBJECT, "properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": {"A": OBJECT}}, True),
        ({**OBJECT, "properties": {"a": {"$ref": "#/$defs/B"}}}, False),
        ({**OBJECT, "properties": {"a": {"type": "text"}}}, False),
        ({**OBJECT, "properties": {"a": {"pattern": "^[a-z]+$"}}}, True),
        ({**OBJECT, "properties": {"a": {"pattern": "(?P<x>a)"}}}, False),
    ],
)
def test_an_output_schema_is_listed_only_if_clients_can_compile_it(schema, usable):
    assert compiles(schema) is usable
