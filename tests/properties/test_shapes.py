"""Whatever a server lists, clients of the Python SDK can read what is left of it; valid definitions
stay as they are."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp import types

from upwell.gateway.shapes import accepted_capabilities, checked
from upwell.wire.rawjson import RawObject, dumps

LISTS = {
    "tools": types.ListToolsResult,
    "prompts": types.ListPromptsResult,
    "resources": types.ListResourcesResult,
    "resourceTemplates": types.ListResourceTemplatesResult,
}
NAMES = (
    *("name", "title", "description", "icons", "_meta", "inputSchema", "outputSchema"),
    *("annotations", "execution", "arguments", "uri", "uriTemplate", "mimeType", "size"),
    *("type", "properties", "required", "src", "sizes", "theme", "audience", "priority"),
    *("lastModified", "readOnlyHint", "taskSupport", "listChanged", "subscribe"),
)
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.sampled_from(["object", "x://y", "user", "light", "required", "", "\ud800", "2026-01-01"]),
    st.text(max_size=8),
)
VALUES = st.recursive(
    LEAVES,
    lambda part: (
        st.lists(part, max_size=3) | st.dictionaries(st.sampled_from(NAMES), part, max_size=6)
    ),
    max_leaves=12,
)
DEFINITIONS = st.builds(
    lambda named, rest: {**named, **rest},
    st.sampled_from(
        [
            {},
            {"name": "x", "inputSchema": {"type": "object"}},
            {"name": "x", "uri": "x://y", "uriTemplate": "x://{y}"},
        ]
    ),
    st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=8),
)


def raw(value: object) -> RawObject:
    return RawObject.parse(json.dumps(value).encode())


@pytest.mark.parametrize("member", LISTS)
@given(definition=DEFINITIONS)
def test_clients_accept_what_is_listed(member: str, definition: object) -> None:
    result = checked(member, raw(definition))
    assert (result.entry is None) == bool(result.fault)
    if result.entry is not None:
        listed = b'{"%b":[%b]}' % (member.encode(), result.entry.encode())
        LISTS[member].model_validate_json(listed)
        assert checked(member, result.entry).entry is result.entry, "one repair is enough"


@given(
    st.dictionaries(st.sampled_from(sorted(types.ServerCapabilities.model_fields)), VALUES) | VALUES
)
def test_clients_accept_the_capabilities(value: object) -> None:
    types.ServerCapabilities.model_validate_json(dumps(accepted_capabilities(value)))
