"""Resources: every address in an answer can be read, and none shows another project's memories."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from upwell.ground.errors import UsageError
from upwell.ground.sqlite.database import open_database
from upwell.memory.library import Library
from upwell.memory.sqlite.store import OWNER, SqliteStore
from upwell.memory.topics import Topics
from upwell.tools.resources import Resources

ODD = "a/b c%20?#[é]"


@pytest.fixture
async def resources(tmp_path: Path) -> AsyncIterator[Resources]:
    database = open_database(tmp_path / "memory.db", [OWNER], synchronous="NORMAL")
    library = Library(SqliteStore(database))
    await library.add_many(
        [
            {
                "id": "sea",
                "text": "the tide turns at noon in café Azul",
                "tags": ["Deep Sea", "c++"],
            },
            {"id": ODD, "text": "the tide is odd", "tags": ["sea/shore", "100%"]},
            {"id": "theirs", "text": "the tide of another project", "project": "/other"},
        ]
    )
    yield Resources(library, Topics([library.store]), "/repo")
    await database.aclose()


async def read(resources: Resources, uri: str) -> Any:
    (content,) = await resources.read(uri)
    assert (content["uri"], content["mimeType"]) == (uri, "application/json")
    return json.loads(content["text"])


def addresses(value: Any) -> list[str]:
    if isinstance(value, dict):
        result = [value["uri"]] if "uri" in value else []
        return result + [uri for part in value.values() for uri in addresses(part)]
    return [uri for part in value for uri in addresses(part)] if isinstance(value, list) else []


async def test_every_address_in_an_answer_can_be_read(resources: Resources) -> None:
    queue, seen = [entry["uri"] for entry in resources.listed()], set()
    while queue:
        uri = queue.pop()
        if uri not in seen:
            seen.add(uri)
            queue += addresses(await read(resources, uri))
    assert sum("/memory/" in uri for uri in seen) == 2
    assert sum("/topics/" in uri for uri in seen) >= 5


async def test_a_memory_whole(resources: Resources) -> None:
    memory = await read(resources, "upwell://memory/sea")
    assert memory["text"] == "the tide turns at noon in café Azul"
    assert memory["tags"] == ["Deep Sea", "c++"]
    assert memory["citation"] == "upwell://memory/sea"
    assert memory["created_at"].endswith("Z")


async def test_memories_of_another_project_do_not_exist(resources: Resources) -> None:
    result = await read(resources, "upwell://search/tide%20of%20another%20project")
    assert "theirs" not in [memory["id"] for memory in result["memories"]]
    with pytest.raises(UsageError):
        await resources.read("upwell://memory/theirs")
    with pytest.raises(UsageError):
        await resources.read("upwell://topics/another")


@pytest.mark.parametrize(
    "uri",
    [
        "upwell://memory/nobody",
        "upwell://memory/",
        "upwell://topics/nothing",
        "upwell://topics/",
        "upwell://search/",
        "upwell://search/%20",
        "upwell://elsewhere",
        "file:///etc/passwd",
        "",
    ],
)
async def test_a_missing_resource_is_reported(resources: Resources, uri: str) -> None:
    with pytest.raises(UsageError):
        await resources.read(uri)
