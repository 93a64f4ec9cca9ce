"""JSON with comments, edited by text."""

import json
import time

import pytest

from upwell.ground.errors import ConfigError
from upwell.hosts.jsonc import parse, with_child, without_child

TEXTS = [
    "{}",
    '{"a": [1, 2]}',
    '{\n  "a": [\n    1,\n    2\n  ]\n}\n',
    '{\n\t"a": [\n\t\t1, // one\n\t\t2 // two\n\t],\n}\n',
    '{ // head\n    "b": {"c": "}//]"},\n    "a": [ /* none */ ],\n}',
    '{"a":[],"z":1}',
    '\ufeff{"a": [1,]}',
    '{"a": [{"x": 1}, {"y": [2]}], "b": "é\\u00e9\\""}',
]


@pytest.mark.parametrize("text", TEXTS)
def test_added_children_can_be_removed_again(text: str) -> None:
    path = ("a",) if "a" in parse(text).value else ()
    grown = with_child(text, path, {"n": [1]}, "" if path else "new")
    node = parse(grown).under("a") if path else parse(grown)
    assert node is not None
    assert node.items[-1].value == {"n": [1]}
    back = without_child(grown, path, len(node.items) - 1)
    assert parse(back).value == parse(text).value
    if "/*" not in text and not text.startswith("{}") and "[]" not in text:
        assert back == text


def test_the_rest_keeps_its_bytes() -> None:
    text = '{\n  "x": 1.50, // one and a half\n  "a": [1]\n}'
    grown = with_child(text, ("a",), 2)
    assert grown.startswith('{\n  "x": 1.50, // one and a half\n')
    assert parse(grown).value == {"x": 1.5, "a": [1, 2]}


def test_strict_json_stays_strict() -> None:
    text = '{"a": [1, 2, 3]}'
    for entry in range(3):
        left = json.loads(without_child(text, ("a",), entry))["a"]
        assert left == [number for number in (1, 2, 3) if number != entry + 1]
    assert json.loads(with_child(text, (), [4], "b")) == {"a": [1, 2, 3], "b": [4]}


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "[1 2]", '{"a" 1}', "nul", '{"a": 1} x', "{'a': 1}", '{"a": "\n"}', "[" * 2_000),
        *("[01]", "[1,,2]", "[,]", '["\\x"]', '{"\\x": 1}', "[1] /*", "[-]", "[.5]", "[/*]"),
        *('{"a": ' * 200 + "1" + "}" * 200, "[1}", '{"a": [}]'),
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        parse(text)


def test_any_value_is_that_of_the_standard_parser() -> None:
    """With comments and trailing commas in the way, and without."""
    value = {"a": [[], {}, [1, -2.5e3, 'x"\\\n', None]], "b": {"c": {"d": [True, {"e": 0}]}}}
    strict = json.dumps(value)
    loose = strict.replace("[]", "[ // none\n]").replace("]}", "],}").replace("{", "{/* {[ */")
    for text in (strict, loose, json.dumps(value, indent=2)):
        assert parse(text).value == value
        under = parse(text).under("b")
        assert under is not None
        assert under.value == value["b"]


def test_megabytes_take_a_moment() -> None:
    """The time is linear in the text, and short: an agent's settings are read some thirty times."""
    shapes = {
        "list": {"hooks": {}, "x": ["y" * 100] * 10_000},
        "table": {"hooks": {}, "x": {f"k{number}": "y" * 90 for number in range(10_000)}},
        "deep": {"hooks": {}, "x": [[{"a": [1, {"b": 2}]}] * 20] * 1_000},
    }
    began = time.process_time()
    json.loads(json.dumps(shapes["list"]))
    unit = max(time.process_time() - began, 0.002)
    for name, value in shapes.items():
        text = json.dumps(value)
        began = time.process_time()
        grown = with_child(text, ("hooks",), [1], "Stop")
        assert time.process_time() - began < 100 * unit, name
        assert parse(grown).under("hooks").value == {"Stop": [1]}  # type: ignore[union-attr]
