"""The tools of seed 001: data always, status lines only when asked for."""

import json
from pathlib import Path

import pytest

from upwell.memory.notes import Origins
from upwell.memory.stm import ShortTerm
from upwell.tools.base import Toolbox
from upwell.tools.notes import add_tool, delete_tool, search_tool

PROJECT = "/repo"


@pytest.fixture
def notes(tmp_path: Path) -> ShortTerm:
    return ShortTerm(tmp_path / "stm.json", origins=Origins(tmp_path / "origins.json"))


def toolbox(notes: ShortTerm, *, status: bool = False, project: str = PROJECT) -> Toolbox:
    makers = (add_tool, search_tool, delete_tool)
    return Toolbox([make(notes, project, status=status) for make in makers])


async def said(box: Toolbox, tool: str, **args: object) -> list[str]:
    reply = json.loads((await box.call(tool, args, "s")).result)
    assert not reply.get("isError"), reply
    return [block["text"] for block in reply["content"]]


async def complaint(box: Toolbox, tool: str, **args: object) -> str:
    reply = json.loads((await box.call(tool, args, "s")).result)
    assert reply.get("isError"), reply
    return str(reply["content"][0]["text"])


async def test_invalid_arguments_are_reported(notes: ShortTerm) -> None:
    box = toolbox(notes)
    for args in ({}, {"query": "  "}):
        text = await complaint(box, "search_memory", **args)
        assert all(name in text for name in ("query", "id", "date"))
    assert "date" in await complaint(box, "search_memory", date="2025-02-30")
    assert "content" in await complaint(box, "add_memory", content="  ")
    note_id, _ = await said(box, "add_memory", content="x")
    await said(box, "delete_memory", id=note_id)
    assert note_id in await complaint(box, "delete_memory", id=note_id)


async def test_a_masked_secret_is_reported(notes: ShortTerm) -> None:
    token = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    text, _ = await said(toolbox(notes), "add_memory", content=f"use {token}")
    assert "github-pat" in text
    assert token not in notes.file.path.read_text()


async def test_a_file_that_was_moved_aside_is_reported_once(notes: ShortTerm) -> None:
    notes.file.path.write_text("{")
    box = toolbox(notes)
    first = await said(box, "add_memory", content="x")
    assert "corrupt-" in first[1]
    assert len(await said(box, "search_memory", query="x")) == 1


async def test_another_project_does_not_see_the_note(notes: ShortTerm) -> None:
    note_id, _ = await said(toolbox(notes), "add_memory", content="the tide turns")
    other = toolbox(notes, project="/other")
    assert await said(other, "search_memory", query="tide") == ["[]"]
    assert note_id in await complaint(other, "delete_memory", id=note_id)


def test_the_model_is_told_that_notes_are_forgotten_and_cannot_clear(notes: ShortTerm) -> None:
    tools = {tool["name"]: tool for tool in toolbox(notes).listed()}
    assert set(tools) == {"add_memory", "search_memory", "delete_memory"}
    assert all("35 days" in tool["description"] for tool in tools.values())
