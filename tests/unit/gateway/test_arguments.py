"""Arguments that a schema certainly rejects are refused; acceptable ones never are."""

import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from upwell.gateway.routing.definitions import argument_fault, loosest
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
    return argument_fault(RawObject.parse(dumps(schema)), arguments)


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        ({"path": "a", "edits": [EDIT]}, ""),
        ({"path": "a", "edits": [EDIT], "mode": "first", "where": None}, ""),
        ({"path": "a"}, "edits is missing"),
        ({"path": "a", "edits": EDIT}, "edits must be array"),
        ({"path": "a", "edits": [{"old": "a"}]}, "edits[0].new is missing"),
        (
            {"path": "a", "edits": [{**EDIT, "all": True}]},
            "edits[0] may not have 'all', only old, new",
        ),
        ({"path": "a", "edits": [], "mode": "last"}, "mode must be one of 'all', 'first'"),
        ({"path": "a", "edits": [], "where": [1]}, "where must be object"),
        (
            {"path": "a", "edits": [], "dry": 1},
            "arguments may not have 'dry', only path, edits, mode, where",
        ),
        ([], "arguments must be object"),
    ],
)
def test_a_fault_is_reported_with_its_path(arguments, fault):
    assert wrong(EDITS, arguments) == fault


def test_lenient_values_are_left_to_the_server():
    loose = {"path": 7, "edits": json.dumps([EDIT])}
    assert wrong(EDITS, loose) == ""


def test_a_circular_schema_terminates():
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
def test_accepted_arguments_are_never_refused_and_fit_the_short_schema_too(schema, arguments):
    if not Draft202012Validator(schema).is_valid(arguments):
        return
    assert wrong(schema, arguments) == ""
    assert Draft202012Validator(loosest(schema)).is_valid(arguments)


@settings(max_examples=100, deadline=None)
@given(schemas(ANY), ARGUMENTS)
def test_the_schema_refuses_every_refused_call(schema, arguments):
    if wrong(schema, arguments):
        assert not Draft202012Validator(schema).is_valid(arguments)


@given(schemas(ANY))
def test_the_short_schema_is_a_schema(schema):
    Draft202012Validator.check_schema(loosest(schema))


def doubling(levels):
    """A schema of `levels` definitions, each of which refers to the next one twice."""
    definitions = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(levels)}
    return {"$defs": {**definitions, f"d{levels}": {"type": "object"}}, "$ref": "#/$defs/d0"}


HOSTILE = {
    "backtracking": {"properties": {"a": {"pattern": "^(a+)+$"}}},
    "backtracking names": {"patternProperties": {"^(a+)+$": {"type": "array"}}},
    "another dialect": {
        "properties": {
            "a": {"$schema": "http://json-schema.org/draft-07/schema#", "pattern": "^(a+)+$"}
        }
    },
    "a dialect behind a reference": {
        "enum": [{"$schema": "http://json-schema.org/draft-07/schema#", "pattern": "^(a+)+$"}, {}],
        "properties": {"a": {"$ref": "#/enum/0"}},
    },
    "a doubling reference": doubling(40),
    "deep": json.loads('{"properties":{"a":' * 500 + "{}" + "}}" * 500),
    "unique items": {"properties": {"list": {"uniqueItems": True}}},
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_schema_hangs_nothing(name):
    arguments = {"a": "a" * 60 + "!", "a" * 60 + "!": 1, "list": [[n] for n in range(20_000)]}
    began = time.monotonic()
    assert wrong(HOSTILE[name], arguments) in ("", "arguments must be one of " + ENUMERATED)
    assert time.monotonic() - began < 5


ENUMERATED = repr(HOSTILE["a dialect behind a reference"]["enum"])[1:-1]


@pytest.mark.parametrize(
    "reference",
    ["http://127.0.0.1:9/x", "file:///etc/passwd", "other.json#/a", "#anchor", "https://x.invalid"],
)
def test_no_document_is_ever_fetched(reference, monkeypatch):
    def fetch(*args, **options):
        raise AssertionError(args)

    monkeypatch.setattr("urllib.request.urlopen", fetch)
    monkeypatch.setattr("socket.socket.connect", fetch)
    schema = {"properties": {"a": {"$ref": reference}}, "$id": "http://127.0.0.1:9/base"}
    assert wrong(schema, {"a": [1]}) == ""
    assert wrong({**schema, "required": ["b"]}, {"a": [1]}) == "b is missing", "the rest holds"


def test_a_schema_with_embedded_documents_refuses_nothing():
    schema = {
        "$defs": {"a": {"$id": "http://x/a", "properties": {"b": {"$ref": "#/$defs/c"}}}},
        "properties": {"a": {"$ref": "#/$defs/a"}},
        "required": ["z"],
    }
    assert wrong(schema, {"a": {"b": 1}}) == ""


def test_a_limit_is_checked_only_for_values_of_its_type():
    schema = {"properties": {"n": {"type": "integer", "maximum": 5}}}
    assert wrong(schema, {"n": 7}) == "n must satisfy maximum 5"
    assert wrong(schema, {"n": "7"}) == ""


@pytest.mark.parametrize("name", ["pattern", "$schema", "format", "properties", "enum"])
def test_a_property_may_be_named_like_a_keyword(name):
    schema = {"properties": {name: {"type": "object"}}, "additionalProperties": False}
    assert wrong(schema, {name: {}}) == ""
    assert wrong(schema, {name: [1]}) == f"{name} must be object"


MALFORMED = [
    {"type": 5},
    {"properties": []},
    {"required": "a"},
    {"required": [["a"]]},
    {"items": [{"type": "object"}], "type": "array"},
    {"anyOf": {}},
    {"allOf": "a"},
    {"enum": {}},
    {"minimum": "1"},
    {"$ref": 1},
    {"$defs": 1},
    {"additionalProperties": 1},
]


@pytest.mark.parametrize("schema", MALFORMED)
def test_a_malformed_keyword_refuses_nothing_by_itself(schema):
    assert wrong({"properties": {"v": schema}}, {"v": {"a": 1}}) in ("", "v must be array")
