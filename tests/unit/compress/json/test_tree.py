"""Parsing JSON into spans: only valid JSON is read, in linear time."""

import json
import random
import time

import pytest

from upwell.compress.json.tree import ARRAY, OBJECT, JsonNode, parse

PIECES = [
    *'{}[],:"', '"a"', '"b\\n"', '"\\u00e9"', '"bad\\x"', "1", "-0.5e3", "01", "true", "null", " ",
    '{"a": 1', '"b": [2, 3]', '{"c": {}}', "[4, ", "\n", "x",
]  # fmt: skip


def as_value(node: JsonNode, text: str) -> object:
    if node.kind == ARRAY:
        return [as_value(item, text) for item in node.items]
    if node.kind == OBJECT:
        return {json.loads(item.key): as_value(item, text) for item in node.items}
    return json.loads(text[node.start : node.end])


def standard(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return ...


def test_the_tree_agrees_with_the_standard_parser() -> None:
    chance = random.Random(7)
    valid = 0
    for _ in range(30_000):
        text = "".join(chance.choice(PIECES) for _ in range(chance.randrange(1, 9)))
        root = parse(text)
        assert (... if root is None else as_value(root, text)) == standard(text), text
        valid += root is not None
    assert valid > 1_000


@pytest.mark.parametrize(
    "text",
    ["", " ", '"a",', '"a",1', "[1],", "[,1]", "[1,]", '{"a":1,}', '{"a":}', '{"a"}', "{1}",
     '["a":1]', '{"a":1 "b":2}', "[1 2]", "[1}", "]", "[[1]", '{"a":1,"b"', "[1]x", "-", "1.",
     '"\n"'],
)  # fmt: skip
def test_invalid_json_is_rejected(text: str) -> None:
    assert parse(text) is None


def test_spans_are_those_of_the_values_themselves() -> None:
    text = ' {"a" : 1.10 , "b":[ "x" , {} ]} '
    root = parse(text)
    assert root is not None
    first, second = root.items
    assert [text[node.start : node.end] for node in (root, first, second, *second.items)] == [
        text.strip(), "1.10", '[ "x" , {} ]', '"x"', "{}",
    ]  # fmt: skip
    assert (first.key, second.key) == ('"a"', '"b"')


def test_an_unterminated_string_is_rejected_at_once() -> None:
    began = time.process_time()
    assert parse('["' + '\\"' * 200_000) is None
    assert time.process_time() - began < 2.0
