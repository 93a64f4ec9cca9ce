"""JSON with comments, edited by text."""

import json
import time

import pytest

from upwell.ground.errors import ConfigError
from upwell.hosts.jsonc import parse, with_child


def test_the_rest_keeps_its_bytes() -> None:
    text = '{\n  "x": 1.50, // one and a half\n  "a": [1]\n}'
    grown = with_child(text, ("a",), 2)
    assert grown.startswith('{\n  "x": 1.50, // one and a half\n')
    assert parse(grown).value == {"x": 1.5, "a": [1, 2]}


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
