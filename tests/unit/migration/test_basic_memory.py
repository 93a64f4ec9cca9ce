"""Notes of basic-memory, in its format; `test_moving_in_real` has notes that it wrote itself."""

import json
from pathlib import Path

import pytest
from tests.unit.migration.reading import (
    EPOCH,
    items_of,
    left_out_of,
    memories_of,
    place_at,
)

from upwell.ground.errors import UsageError
from upwell.ground.types.memory import Memory
from upwell.migration.registry import program_named

NOTE = """---
title: Checkout
type: note
permalink: specs/checkout
tags:
- shop
created: '2025-07-20T12:00:00+00:00'
---

# Checkout

How the checkout works.

## Observations
- [decision] Prices are integers of cents #money #cents (floats lost one)
- [gotcha] The pool needs two connections
- [ ] write tests
- [security] Tokens are never logged

## Relations
- depends_on [[Payment]]
"""


def notes(folder: Path, text: str = NOTE) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "Checkout.md").write_text(text)
    return folder


def by_kind(path: Path) -> dict[str, Memory]:
    return {memory.namespace: memory for memory in memories_of("basic-memory", path)}


def test_each_observation_is_a_memory_of_its_kind(tmp_path: Path) -> None:
    found = by_kind(notes(tmp_path / "notes"))
    decision = found["decisions"]
    assert decision.text == "Checkout: Prices are integers of cents (floats lost one)"
    assert decision.tags == ("decision", "money", "cents", "shop")
    assert decision.created_at == EPOCH
    assert decision.source.startswith("basic-memory:specs/checkout#decision")
    assert found["learnings"].text == "Checkout: The pool needs two connections"
    assert found["security"].text == "Checkout: Tokens are never logged"


def test_the_rest_of_the_note_is_one_memory_with_its_relations(tmp_path: Path) -> None:
    whole = by_kind(notes(tmp_path / "notes"))["context"]
    assert whole.text == "Checkout\nHow the checkout works.\n\n\n- depends_on [[Payment]]"
    assert whole.source == "basic-memory:specs/checkout"


def test_a_long_note_is_divided_at_its_headings(tmp_path: Path) -> None:
    body = f"Intro.\n\n## Setup\n```\n## not a heading\n```\n{'x ' * 1_000}\n\n## Use\nRun it.\n"
    found = {m.source: m.text for m in memories_of("basic-memory", notes(tmp_path / "n", body))}
    assert list(found) == [
        "basic-memory:Checkout.md",
        "basic-memory:Checkout.md#Setup",
        "basic-memory:Checkout.md#Use",
    ]
    assert found["basic-memory:Checkout.md"] == "Checkout\nIntro."
    assert "## not a heading" in found["basic-memory:Checkout.md#Setup"]
    assert found["basic-memory:Checkout.md#Use"] == "Checkout\n## Use\nRun it."


def test_tasks_stay_out(tmp_path: Path) -> None:
    assert left_out_of("basic-memory", notes(tmp_path / "notes")) == ["a task"]


def test_a_note_without_front_matter_has_the_name_of_its_file(tmp_path: Path) -> None:
    (memory,) = memories_of("basic-memory", notes(tmp_path / "notes", "Just a thought."))
    assert (memory.text, memory.source) == (
        "Checkout\nJust a thought.",
        "basic-memory:Checkout.md",
    )
    assert memory.created_at


@pytest.mark.parametrize("shape", [str, lambda path: {"path": str(path)}])
def test_the_folders_of_its_projects_are_found(tmp_path: Path, shape: object) -> None:
    folder = notes(tmp_path / "somewhere")
    config = tmp_path / ".basic-memory" / "config.json"
    config.parent.mkdir()
    config.write_text(json.dumps({"projects": {"main": shape(folder)}}))
    assert program_named("basic-memory").stores(place_at(tmp_path)) == [folder]


def test_the_usual_folder_is_found_without_a_configuration(tmp_path: Path) -> None:
    folder = notes(tmp_path / "basic-memory")
    assert program_named("basic-memory").stores(place_at(tmp_path)) == [folder]


def test_the_home_folder_is_not_searched(tmp_path: Path) -> None:
    config = notes(tmp_path) / ".basic-memory" / "config.json"
    config.parent.mkdir()
    config.write_text(json.dumps({"projects": {"all": str(tmp_path), "root": "/"}}))
    assert program_named("basic-memory").stores(place_at(tmp_path)) == []


def test_a_folder_without_notes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no notes of basic-memory"):
        items_of("basic-memory", tmp_path)


def test_a_link_out_of_the_folder_is_not_read(tmp_path: Path) -> None:
    folder = notes(tmp_path / "notes", "---\ntitle: A\n---\nText.\n")
    (tmp_path / "private.md").write_text("a key")
    (folder / "b.md").symlink_to(tmp_path / "private.md")
    assert len(memories_of("basic-memory", folder)) == 1
    assert "a link out of the folder" in left_out_of("basic-memory", folder)
