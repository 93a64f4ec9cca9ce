"""What a schema certainly refuses, and that what it takes is never refused."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from upwell.gateway.arguments import fault
from upwell.gateway.definitions import loosest
from upwell.wire.rawjson import RawObject, dumps

EDITS = {
    "type": "object",
    "$defs": {
        "edit": {
            "type": "object",
            "properties": {"old": {"type": "string"}, "new": {"type": "string"}},
            "required": ["old", "new"],
            "additionalProperties": False,
        }
    },
    "properties": {
        "path": {"type": "string"},
        "edits": {"type": "array", "items": {"$ref": "#/$defs/edit"}},
        "mode": {"enum": ["all", "first"]},
        "where": {"anyOf": [{"type": "object"}, {"type": "null"}]},
    },
    "required": ["path", "edits"],
    "additionalProperties": False,
}
EDIT = {"old": "a", "new": "b"}


def wrong(schema, arguments):
    return fault(RawObject.parse(dumps(schema)), arguments)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"path": "a", "edits": [EDIT]}, ""),
        ({"path": "a", "edits": [EDIT], "mode": "first", "where": None}, ""),
        ({"path": "a"}, "edits is missing"),
        ({"path": "a", "edits": EDIT}, "edits must be array"),
        ({"path": "a", "edits": [{"old": "a"}]}, "edits[0].new is missing"),
        (
            {"path": "a", "edits": [{**EDIT, "all": True}]},
            "edits[0] takes no 'all', only old, new",
        ),
        ({"path": "a", "edits": [], "mode": "last"}, "mode must be one of 'all', 'first'"),
        ({"path": "a", "edits": [], "where": [1]}, "where must be object"),
        ({"path": "a", "edits": [], "dry": 1}, "it takes no 'dry', only path, edits, mode, where"),
        ([], "arguments must be object"),
    ],
)
def test_what_is_wrong_is_said_where_it_is(arguments, said):
    assert wrong(EDITS, arguments) == said


def test_what_servers_read_all_the_same_is_left_to_them():
    loose = {"path": 7, "edits": json.dumps([EDIT])}
    assert wrong(EDITS, loose) == ""


def test_a_schema_that_leads_round_in_circles_ends():
    circle = {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}
    assert wrong({**circle, "properties": {"x": {"$ref": "#/$defs/a"}}}, {"x": 1}) == ""
    wide = {"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}] * 9}}, "$ref": "#/$defs/a"}
    assert wrong(wide, {}) == ""


NAMES = st.sampled_from(["a", "b", "c"])
SCALARS = st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["x", "5", ""])
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(NAMES, inner), max_leaves=6
)
KIND = st.sampled_from(["string", "integer", "number", "boolean", "null", "array", "object"])


def schemas(inner):
    return st.fixed_dictionaries(
        {},
        optional={
            "type": KIND | st.lists(KIND, min_size=1, unique=True),
            "properties": st.dictionaries(NAMES, inner, max_size=3),
            "required": st.lists(NAMES, unique=True, max_size=2),
            "additionalProperties": st.booleans(),
            "items": inner,
            "enum": st.lists(SCALARS, min_size=1, max_size=2),
            "anyOf": st.lists(inner, min_size=1, max_size=2),
            "oneOf": st.lists(inner, min_size=1, max_size=2),
            "allOf": st.lists(inner, min_size=1, max_size=2),
            "minimum": st.integers(-2, 2),
        },
    )


ANY = st.recursive(st.just({}), schemas, max_leaves=8)
ARGUMENTS = st.dictionaries(NAMES, VALUES, max_size=3)


@settings(max_examples=150, deadline=None)
@given(schemas(ANY), ARGUMENTS)
def test_what_the_schema_takes_is_never_refused_and_the_short_one_takes_it_too(schema, arguments):
    if not Draft202012Validator(schema).is_valid(arguments):
        return
    assert wrong(schema, arguments) == ""
    assert Draft202012Validator(loosest(schema)).is_valid(arguments)


@settings(max_examples=100, deadline=None)
@given(schemas(ANY), ARGUMENTS)
def test_what_is_refused_the_schema_refuses(schema, arguments):
    if wrong(schema, arguments):
        assert not Draft202012Validator(schema).is_valid(arguments)


@given(schemas(ANY))
def test_the_short_schema_is_a_schema(schema):
    Draft202012Validator.check_schema(loosest(schema))
