"""Arguments of upwell's own tools, as models and clients send them."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from upwell.tools.base import READ_ONLY, Result, Tool, Toolbox, text_result


async def echo(args: Mapping[str, Any], _: str) -> Result:
    return text_result(json.dumps(args))


TOOL = Tool(
    name="look",
    description="",
    properties={
        "query": {"type": "string"},
        "limit": {"type": "integer"},
        "deep": {"type": "boolean"},
        "paths": {"type": "array"},
        "format": {"type": "string", "enum": ["json", "digest"]},
    },
    required=["query"],
    run=echo,
    annotations=READ_ONLY,
)


async def called(**args: Any) -> Any:
    result = json.loads((await Toolbox([TOOL]).call("look", args, "s")).result or b"")
    text = result["content"][0]["text"]
    return text if result.get("isError") else json.loads(text)


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        ({"limit": None}, {}),
        ({"limit": None, "deep": None, "paths": None, "format": None}, {}),
        ({"limit": "5"}, {"limit": 5}),
        ({"limit": " 5 "}, {"limit": 5}),
        ({"limit": "-5"}, {"limit": -5}),
        ({"limit": "5.0"}, {"limit": 5}),
        ({"limit": 5.0}, {"limit": 5}),
        ({"limit": 5}, {"limit": 5}),
        ({"query": 42}, {"query": "42"}),
        ({"deep": "true"}, {"deep": True}),
        ({"deep": "False"}, {"deep": False}),
        ({"format": "json"}, {"format": "json"}),
    ],
)
async def test_a_value_with_one_meaning_is_taken(given: Any, taken: Any) -> None:
    assert await called(**{"query": "x", **given}) == {"query": "x", **taken}


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ({"limit": "five"}, "'limit' must be of type integer"),
        ({"limit": "5.5"}, "'limit' must be of type integer"),
        ({"limit": 5.5}, "'limit' must be of type integer"),
        ({"limit": 1e300}, "'limit' must be of type integer"),
        ({"limit": float("inf")}, "'limit' must be of type integer"),
        ({"limit": "9" * 5_000}, "'limit' must be of type integer"),
        ({"limit": ""}, "'limit' must be of type integer"),
        ({"limit": True}, "'limit' must be of type integer"),
        ({"limit": [5]}, "'limit' must be of type integer"),
        ({"query": True}, "'query' must be of type string"),
        ({"query": 4.2}, "'query' must be of type string"),
        ({"query": ["x"]}, "'query' must be of type string"),
        ({"query": None}, "look needs 'query'"),
        ({"deep": "yes"}, "'deep' must be of type boolean"),
        ({"deep": 1}, "'deep' must be of type boolean"),
        ({"paths": "a.py"}, "'paths' must be of type array"),
        ({"format": 5}, "'format' must be one of json, digest"),
        ({"other": None}, "look has no argument 'other'"),
    ],
)
async def test_any_other_value_is_one_clear_line(given: Any, fault: str) -> None:
    text = await called(**{"query": "x", **given})
    assert fault in text
    assert len(text.splitlines()) <= 2
