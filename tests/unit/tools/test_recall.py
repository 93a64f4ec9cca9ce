"""`memory_get`: by citation, from a given line on, as much as fits into one answer."""

import json
from collections.abc import Sequence

import pytest

from upwell.ground.errors import UsageError
from upwell.ground.types.memory import Found, Memory
from upwell.tools.base import Toolbox
from upwell.tools.recall import MAX_READ_CHARS, get_tool, numbered, search_tool

ROWS = [f"line {n}" for n in range(1, 201)]


class FakeLibrary:
    async def find(self, text: str, *, limit: int = 10, project: str | None = None) -> Found:
        return Found()

    async def get(self, memory_id: str) -> Memory | None:
        known = {"m1": None, "m2": "/other"}
        if memory_id not in known:
            return None
        return Memory(id=memory_id, text=f"text of {memory_id}", project=known[memory_id])


async def document(path: str, project: str | None, namespaces: Sequence[str]) -> list[str]:
    if path != "memory/a.md":
        raise UsageError(f"no imported document is called {path!r}")
    return ROWS


async def get(**args: object) -> str:
    box = Toolbox([get_tool(FakeLibrary(), document, "/mine")])
    reply = json.loads((await box.call("memory_get", args, "")).result)
    return reply["content"][0]["text"]


@pytest.mark.parametrize(
    ("args", "first", "count"),
    [
        ({"path": "memory/a.md"}, 1, 200),
        ({"path": "memory/a.md", "from": 20}, 20, 50),
        ({"path": "memory/a.md", "from": 20, "lines": 3}, 20, 3),
        ({"path": "memory/a.md", "from": 199, "lines": 30}, 199, 2),
        ({"path": "memory/a.md", "lines": 2}, 1, 2),
        ({"path": "memory/a.md#L3-L5"}, 3, 3),
        ({"path": "[memory/a.md#L7]"}, 7, 1),
        ({"path": "memory/a.md#L3-L5", "from": 9, "lines": 1}, 9, 1),
        ({"path": "memory/a.md", "from": 0, "lines": 1}, 1, 1),
    ],
)
async def test_lines_come_with_their_numbers(args: dict, first: int, count: int):
    head, *rows = (await get(**args)).split("\n")
    assert head == "## memory/a.md"
    assert rows == [f"{n}\tline {n}" for n in range(first, first + count)]


async def test_an_id_gives_the_full_text_of_a_visible_memory():
    assert await get(id="m1") == "text of m1"
    assert await get(id="upwell://memory/m1") == "text of m1"
    assert await get(path="upwell://memory/m1") == "text of m1"
    assert await get(path="[stm:m1]") == "text of m1"
    assert "no memory 'm2'" in await get(id="m2")
    assert "no memory 'm3'" in await get(id="m3")


async def test_a_read_that_finds_nothing_says_why():
    assert "needs a path or an id" in await get()
    assert "has only 200 lines" in await get(path="memory/a.md", **{"from": 201})
    assert "no imported document" in await get(path="memory/b.md")


def test_a_long_document_gives_the_line_to_continue_from():
    rows = ["x" * 990] * 40
    shown = numbered("a.md", rows, None, None)
    assert len(shown) <= MAX_READ_CHARS + 100
    last = shown.split("\n")[-1]
    assert last == "… 40 lines in total; continue with from=17"
    assert numbered("a.md", rows, 17, None).startswith("## a.md\n17\t")


def test_control_characters_are_made_harmless():
    assert "\x1b" not in numbered("a.md", ["\x1b[2J"], None, None)


@pytest.mark.parametrize("most", [0, -3])
async def test_a_search_for_less_than_one_result_is_refused(most: int):
    box = Toolbox([search_tool(FakeLibrary(), "/mine")])
    reply = await box.call("memory_search", {"query": "x", "max_results": most}, "")
    assert b"pass 1 or more" in reply.result
