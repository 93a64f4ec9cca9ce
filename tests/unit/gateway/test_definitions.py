"""Long lists of tools: the short form of each, and the search for the rest."""

import json

import pytest
from tests.unit.gateway.offered import Server, catalog_of, names_of, tools_of

from upwell.gateway.clients import RequestContext, Session
from upwell.gateway.routing.definitions import Definitions, loosest, one_line, with_schema
from upwell.ground.text.tokens import count
from upwell.ground.types.rpc import Reply
from upwell.tools.base import Toolbox
from upwell.tools.describe import describe_tool
from upwell.wire.rawjson import dumps

EDIT = {
    "name": "edit_file",
    "title": "Edit",
    "description": "Make edits to a text file. Each edit replaces lines.\n\n## Notes\n"
    + "more " * 90,
    "inputSchema": {
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "where it is " * 9},
            "edits": {"type": "array", "items": {"type": "object", "properties": {"old": {}}}},
            "dry": {"anyOf": [{"type": "boolean"}, {"type": "null"}], "default": None},
        },
        "required": ["path", "edits"],
        "additionalProperties": False,
    },
    "outputSchema": {"type": "object", "properties": {"diff": {"type": "string"}}},
    "annotations": {"destructiveHint": True, "x": 1.10},
    "_meta": {"ui": "ui://edit"},
}
CLOCK = {"name": "now", "description": "The time.", "inputSchema": {"type": "object"}}
OWN = ("read_more", "describe_tools")


def lazy_catalog(*tools, most=100):
    definitions = Definitions(most)
    server = Server("fs", *tools)
    catalog = catalog_of(
        server, own=OWN, definitions=definitions, may_compress=lambda server, tool: False
    )
    return catalog, definitions, server


def test_a_list_within_the_limit_is_complete_and_without_describe_tools():
    catalog, _, _ = lazy_catalog(EDIT, CLOCK, most=100_000)
    assert tools_of(catalog)[0] == {**EDIT, "name": "fs__edit_file"}
    assert names_of(catalog) == ["fs__edit_file", "fs__now", "upwell__read_more"]
    assert catalog.hidden_schema("fs__edit_file") == b""


def test_a_changed_tool_is_listed_again():
    catalog, definitions, server = lazy_catalog(EDIT)
    server.has({**EDIT, "description": "Something else."})
    catalog.rebuild()
    assert tools_of(catalog)[0]["description"] == "Something else."
    assert "Something else." in definitions.named(["fs__edit_file"])[0]["fs__edit_file"]


def test_by_default_no_list_is_short():
    catalog = catalog_of(Server("fs", *({**EDIT, "name": f"edit{n}"} for n in range(99))))
    assert tools_of(catalog)[0]["description"] == EDIT["description"]


def test_in_a_long_list_every_tool_keeps_its_name_and_annotations():
    catalog, _, _ = lazy_catalog(EDIT, CLOCK)
    first = tools_of(catalog)[0]
    assert names_of(catalog) == [
        "fs__edit_file",
        "fs__now",
        "upwell__read_more",
        "upwell__describe_tools",
    ]
    assert first == {
        "name": "fs__edit_file",
        "title": "Edit",
        "description": "Make edits to a text file. Each edit replaces lines.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "path": {"type": "string"},
                "edits": {"type": "array", "items": {}},
                "dry": {},
            },
            "required": ["path", "edits"],
        },
        "annotations": {"destructiveHint": True, "x": 1.10},
        "_meta": {"ui": "ui://edit"},
    }
    assert b'"x":1.1' in catalog.listing
    assert json.loads(catalog.hidden_schema("fs__edit_file")) == EDIT["inputSchema"]


def test_a_schema_with_arguments_in_headers_stays():
    """Clients read the required headers there."""
    region = {"type": "string", "x-mcp-header": "Region", "description": "where " * 50}
    tool = {**EDIT, "inputSchema": {"type": "object", "properties": {"region": region}}}
    catalog, _, _ = lazy_catalog(tool)
    assert tools_of(catalog)[0]["inputSchema"] == tool["inputSchema"]
    assert tools_of(catalog)[0]["description"] != tool["description"]


def test_a_list_that_has_become_small_is_complete_again():
    catalog, _, server = lazy_catalog(EDIT, CLOCK)
    server.has(CLOCK)
    catalog.rebuild()
    assert tools_of(catalog)[0] == {**CLOCK, "name": "fs__now"}
    assert catalog.hidden_schema("fs__now") == b""


@pytest.mark.parametrize("schema", [None, {}, {"type": "object"}, {"properties": 3}, [1], "x"])
def test_a_schema_without_content_becomes_the_plainest_one(schema):
    assert loosest(schema) == {"type": "object", "properties": {}}


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("\n    Say it.\n\n    Args: x\n", "Say it."),
        ("# Search\n\nFind things", "Search"),
        ("", ""),
        (None, ""),
        ("a " * 100, "a " * 58 + "a…"),
        (
            "First sentence of a fair length here. " + "b" * 200,
            "First sentence of a fair length here.",
        ),
        ("See e.g. " + "b" * 200, "See e.g.…"),
    ],
)
def test_one_line_of_a_description(text, line):
    assert one_line(text) == line


async def ask(definitions, **args):
    reply = json.loads(
        (await Toolbox([describe_tool(definitions)]).call("describe_tools", args, "s")).result
    )
    return reply.get("isError", False), reply["content"][0]["text"]


async def test_tools_are_described_by_name():
    _, definitions, _ = lazy_catalog(EDIT, CLOCK)
    failed, reply = await ask(definitions, names=["fs__edit_file", "fs__now"])
    assert not failed
    full = [json.loads(line) for line in reply.splitlines()]
    assert full == [{**EDIT, "name": "fs__edit_file"}, {**CLOCK, "name": "fs__now"}]


async def test_tools_are_described_by_purpose():
    _, definitions, _ = lazy_catalog(EDIT, CLOCK, {**CLOCK, "name": "zone", "description": "Where"})
    failed, reply = await ask(definitions, query="what time is it")
    assert not failed
    assert json.loads(reply.splitlines()[0])["name"] == "fs__now"
    assert "edit_file" not in reply


async def test_an_unknown_tool_is_reported_with_similar_names():
    _, definitions, _ = lazy_catalog(EDIT, CLOCK)
    assert await ask(definitions, names=["fs__edit_files"]) == (
        True,
        "no tool is called fs__edit_files (did you mean fs__edit_file?)",
    )
    assert (await ask(definitions, query="xyzzy"))[0]
    assert (await ask(definitions))[0]


async def test_an_answer_to_a_query_stays_within_bounds():
    many = [{**EDIT, "name": f"edit{n}", "description": "edit " * 1_000} for n in range(10)]
    _, definitions, _ = lazy_catalog(*many)
    _, reply = await ask(definitions, query="edit")
    assert count(reply) < 6_000
    assert len(reply.splitlines()) == 10
    assert "inputSchema" not in reply.splitlines()[-1]


def test_an_error_about_arguments_gets_the_schema_and_keeps_code_and_data():
    error = {"code": -32602, "message": "bad", "data": {"n": 1}}
    answer = json.loads(with_schema("fs__x", b'{"type":"object"}', Reply(error=dumps(error))).error)
    assert answer["message"].startswith("bad\n")
    assert '{"type":"object"}' in answer["message"]
    assert {**answer, "message": "bad"} == error


@pytest.mark.parametrize(
    "message",
    [
        "MCP error -32602: Input validation error: Invalid arguments for tool echo",
        "Error executing tool x: 1 validation error for xArguments",
    ],
)
def test_argument_errors_of_the_sdks_get_the_schema(message):
    result = {"content": [{"type": "text", "text": message}], "isError": True}
    answer = json.loads(with_schema("fs__x", b'{"a":1}', Reply(result=dumps(result))).result)
    assert answer["content"][0]["text"] == message
    assert '{"a":1}' in answer["content"][1]["text"]


@pytest.mark.parametrize(
    "reply",
    [
        Reply(error=b'{"code":-32042,"message":"custom"}'),
        Reply(result=b'{"content":[{"type":"text","text":"no such file"}],"isError":true}'),
        Reply(result=b'{"content":[{"type":"text","text":"validation error"}]}'),
        Reply(result=b'{"content":[{"type":"text","text":"validation error"}],"isError":false}'),
        Reply(result=b'{"content":[],"isError":true}'),
    ],
)
def test_every_other_reply_stays_as_it_is(reply):
    assert with_schema("fs__x", b"{}", reply) is reply


def test_the_descriptions_of_our_own_tools_are_counted_once_for_each_session() -> None:
    added: list[tuple[str, int]] = []
    own = ("read_more", "describe_tools")
    catalog = catalog_of(
        Server("fs", EDIT), own=own, added=lambda host, tokens: added.append((host, tokens))
    )
    for session in (Session(None), Session(None)):
        session.host = "claude"
        for _ in range(2):
            listing = catalog.listing_for(RequestContext(session, None, None))
            assert listing == catalog.listing
    shown = tools_of(catalog)[-1]
    assert shown["name"] == "upwell__read_more", "the other is listed beside short forms only"
    assert added == [("claude", count(dumps(shown).decode()))] * 2
