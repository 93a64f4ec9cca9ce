"""Memory files of Claude Code, in the layout that it writes (not documented)."""

import json
import subprocess
from pathlib import Path

import pytest
from tests.unit.migration.reading import items_of, left_out_of, memories_of, place_at

from upwell.ground.errors import UsageError
from upwell.migration.base import Record
from upwell.migration.projects import projects_at
from upwell.migration.registry import program_named

FEEDBACK = """---
name: feedback_testing
description: Tests use the real database
metadata:
  type: feedback
  originSessionId: s1
---

Tests use the real database. **Why:** mocks hid a broken migration.
"""


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    root = tmp_path / "code" / "shop"
    root.mkdir(parents=True)
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    return root


def memory_folder(home: Path, folder: Path, *, transcript: bool = True) -> Path:
    slug = "".join(char if char.isalnum() else "-" for char in str(folder))
    memory = home / ".claude" / "projects" / slug / "memory"
    memory.mkdir(parents=True)
    if transcript:
        lines = [{"type": "summary"}, {"type": "user", "cwd": str(folder)}]
        (memory.parent / "s1.jsonl").write_text("\n".join(map(json.dumps, lines)))
    return memory


def test_a_file_is_a_memory_of_the_project_of_its_transcripts(tmp_path: Path, shop: Path) -> None:
    memory = memory_folder(tmp_path, shop / "src")
    (shop / "src").mkdir()
    (memory / "feedback_testing.md").write_text(FEEDBACK)
    (found,) = memories_of("claude-code", memory)
    assert found.text == "Tests use the real database. **Why:** mocks hid a broken migration."
    assert (found.namespace, found.tags, found.project) == ("patterns", ("feedback",), str(shop))
    assert found.provenance.session == "s1"
    assert found.source.endswith("/feedback_testing.md")


def test_the_description_leads_unless_the_text_repeats_it(tmp_path: Path, shop: Path) -> None:
    memory = memory_folder(tmp_path, shop)
    (memory / "a.md").write_text("---\ndescription: Deploys\ntype: project\n---\nOn Fridays never.")
    (found,) = memories_of("claude-code", memory)
    assert (found.text, found.namespace) == ("Deploys:\nOn Fridays never.", "context")


def test_the_index_gives_its_own_memories_and_no_links(tmp_path: Path, shop: Path) -> None:
    memory = memory_folder(tmp_path, shop)
    (memory / "MEMORY.md").write_text(
        "# Memory\n- [Testing](feedback_testing.md) — real database\n\n## Build\n"
        "- `make all` builds everything\n\nSee also the wiki.\n"
    )
    (found,) = memories_of("claude-code", memory)
    assert found.text == "Build: `make all` builds everything"
    assert len(left_out_of("claude-code", memory)) == 2


def test_without_a_transcript_the_project_has_the_name_of_its_folder(
    tmp_path: Path, shop: Path
) -> None:
    memory = memory_folder(tmp_path, shop, transcript=False)
    (memory / "a.md").write_text("Deploys are on Mondays.")
    (record,) = items_of("claude-code", memory)
    assert isinstance(record, Record)
    assert record.memory.project is None
    (tmp_path / ".claude.json").write_text(json.dumps({"projects": {str(shop): {}}}))
    known = projects_at(place_at(tmp_path))
    assert known.place(record.project_name) == (str(shop), "")


def test_an_unreadable_file_leaves_the_others(tmp_path: Path, shop: Path) -> None:
    memory = memory_folder(tmp_path, shop)
    (memory / "a.md").write_text("Deploys are on Mondays.")
    (memory / "b.md").write_bytes(b"\xff\xfe")
    assert len(memories_of("claude-code", memory)) == 1
    assert "not UTF-8" in left_out_of("claude-code", memory)[0]


def test_a_folder_of_projects_has_the_memory_of_each(tmp_path: Path, shop: Path) -> None:
    blog = tmp_path / "code" / "blog"
    blog.mkdir()
    for project in (shop, blog):
        (memory_folder(tmp_path, project) / "a.md").write_text(f"About {project.name}.")
    found = memories_of("claude-code", tmp_path / ".claude" / "projects")
    assert {memory.text: memory.project for memory in found} == {
        "About shop.": str(shop),
        "About blog.": str(blog),
    }


def test_every_projects_memory_is_found(tmp_path: Path, shop: Path) -> None:
    memory = memory_folder(tmp_path, shop)
    program = program_named("claude-code")
    assert program.stores(place_at(tmp_path)) == []
    (memory / "a.md").write_text("x")
    assert program.stores(place_at(tmp_path)) == [memory]
    moved = place_at(tmp_path / "other", {"CLAUDE_CONFIG_DIR": str(tmp_path / ".claude")})
    assert program.stores(moved) == [memory]


def test_a_folder_without_memory_files_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no memory files"):
        items_of("claude-code", tmp_path)


def test_a_link_out_of_the_memory_folder_is_not_read(tmp_path: Path, shop: Path) -> None:
    memory = memory_folder(tmp_path, shop)
    (memory / "a.md").write_text(FEEDBACK)
    (tmp_path / "private.md").write_text("a key")
    (memory / "b.md").symlink_to(tmp_path / "private.md")
    assert len(memories_of("claude-code", memory)) == 1
    assert left_out_of("claude-code", memory) == ["a link out of the folder"]
