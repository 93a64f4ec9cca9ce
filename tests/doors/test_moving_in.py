"""The scripts that print the memories of other programs, and the import of what they print."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Upwell
from tests.doors.conftest import Gateway
from tests.doors.peer import text_of

SCRIPTS = Path(__file__).parents[2] / "examples" / "import"
TOKEN = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
JULY = 1_753_012_800.0
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
- [security] Tokens are never logged
- [ ] write tests

## Relations
- depends_on [[Payment]]
"""
MEMORY = """---
name: feedback_testing
description: Tests use the real database
metadata:
  type: feedback
---

Mocks hid a broken migration.
"""
INDEX = """# Memory
- [Testing](feedback_testing.md): real database

## Build
- `make all` builds everything

See also the wiki.
"""
ROW = {
    "id": "7",
    "memory": f"Prices are integers. Floats lost a cent. The token is {TOKEN}.",
    "categories": ["decision"],
    "metadata": {"project": "shop", "files": ["src/price.py"]},
    "created_at": "2025-07-20T12:00:00+00:00",
}


def basic_memory(user: Path, shop: Path) -> list[str]:
    notes = shop / "notes"
    notes.mkdir()
    (notes / "Checkout.md").write_text(NOTE)
    (user / "private.md").write_text("a key")
    (notes / "linked.md").symlink_to(user / "private.md")
    (user / ".basic-memory").mkdir()
    projects = {"main": {"path": str(notes)}, "home": str(user)}
    (user / ".basic-memory" / "config.json").write_text(json.dumps({"projects": projects}))
    return []


def claude_code(user: Path, shop: Path) -> list[str]:
    project = user / ".claude" / "projects" / "-code-shop"
    memory = project / "memory"
    memory.mkdir(parents=True)
    (memory / "feedback_testing.md").write_text(MEMORY)
    (memory / "MEMORY.md").write_text(INDEX)
    (memory / "broken.md").write_bytes(b"\xff\xfe")
    (user / "private.md").write_text("a key")
    (memory / "linked.md").symlink_to(user / "private.md")
    entries = [{"type": "summary"}, {"type": "user", "cwd": str(shop / "src")}]
    (project / "s1.jsonl").write_text("\n".join(map(json.dumps, entries)))
    return []


def mem0(user: Path, shop: Path) -> list[str]:
    deleted = {**ROW, "id": "8", "state": "deleted"}
    (user / "export.json").write_text(json.dumps({"results": [ROW, deleted, 3]}))
    return [str(user / "export.json")]


STORES: dict[str, tuple[Callable[[Path, Path], list[str]], dict[str, str]]] = {
    "basic_memory": (
        basic_memory,
        {
            "basic-memory:specs/checkout": "Checkout\nHow the checkout works.\n\n\n"
            "- depends_on [[Payment]]",
            "basic-memory:specs/checkout#decision: Prices are integers of cents #money #cents "
            "(floats lost one)": "Checkout: Prices are integers of cents (floats lost one)",
            "basic-memory:specs/checkout#security: Tokens are never logged": "Checkout: Tokens are "
            "never logged",
        },
    ),
    "claude_code": (
        claude_code,
        {
            "claude-code:-code-shop/feedback_testing.md": "Tests use the real database:\n"
            "Mocks hid a broken migration.",
            "claude-code:-code-shop/MEMORY.md#`make all` builds everything": "Build: `make all` "
            "builds everything",
        },
    ),
    "mem0": (
        mem0,
        {"mem0:7": "Prices are integers. Floats lost a cent. The token is [REDACTED:github-pat]."},
    ),
}
"""Each script with a store that it reads, and the texts that upwell then has, by their sources."""


def printed(
    script: str, user: Path, *args: str, code: int = 0
) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-I", str(SCRIPTS / f"{script}.py"), *args]
    env = {**os.environ, "HOME": str(user)}
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    assert done.returncode == code, done.stderr
    return done


def exported(upwell: Upwell) -> list[dict[str, object]]:
    return [json.loads(line) for line in upwell("export").out.splitlines()]


@pytest.mark.parametrize("script", STORES)
def test_what_a_script_prints_is_imported_once(
    upwell: Upwell, user: Path, shop: Path, script: str
) -> None:
    store, texts = STORES[script]
    done = printed(script, user, *store(user, shop))
    lines = shop / "memories.jsonl"
    lines.write_text(done.stdout)
    named = ("--project", f"shop={shop}")
    assert upwell("import", "memories.jsonl", *named, cwd=shop).code == 0
    memories = exported(upwell)
    assert {memory["source"]: memory["text"] for memory in memories} == texts
    assert {memory["project"] for memory in memories} == {str(shop.resolve())}
    assert upwell("import", "memories.jsonl", *named, cwd=shop).code == 0
    assert exported(upwell) == memories


@pytest.mark.parametrize("script", STORES)
def test_what_cannot_be_read_is_one_clear_line(user: Path, script: str) -> None:
    (user / "odd.json").write_bytes(b"\xff\xfe{")
    for name in ("missing", "odd.json"):
        done = printed(script, user, str(user / name), code=1)
        assert done.stdout == ""
        assert len(done.stderr.splitlines()) == 1
        assert name in done.stderr


def test_kinds_tags_files_and_times_are_kept(upwell: Upwell, user: Path, shop: Path) -> None:
    both = [printed(name, user, *STORES[name][0](user, shop)) for name in ("mem0", "basic_memory")]
    assert "--project shop=FOLDER" in both[0].stderr
    (shop / "memories.jsonl").write_text("".join(done.stdout for done in both))
    upwell("import", "memories.jsonl", cwd=shop)
    found = {str(memory["source"])[:30]: memory for memory in exported(upwell)}
    row, note = found["mem0:7"], found["basic-memory:specs/checkout#de"]
    assert (row["namespace"], row["paths"], row["tags"]) == (
        "decisions",
        ["src/price.py"],
        ["decision"],
    )
    assert (note["namespace"], note["tags"]) == (
        "decisions",
        ["decision", "money", "cents", "shop"],
    )
    assert {row["created_at"], note["created_at"]} == {JULY}


def test_the_context_finds_imported_memories(upwell: Upwell, user: Path, shop: Path) -> None:
    lines = printed("mem0", user, *mem0(user, shop)).stdout
    (shop / "memories.jsonl").write_text(lines)
    upwell("import", "memories.jsonl", "--project", f"shop={shop}", cwd=shop)
    answer = upwell("context", "Why are prices integers?", "--format", "json", cwd=shop).json
    assert "Floats lost a cent" in json.dumps(answer["entries"])


@pytest.mark.parametrize(
    ("args", "hint"),
    [
        (("--from", "mem0", "--dry-run"), "examples/import/mem0.py EXPORT > memories.jsonl"),
        (("--from=basic-memory",), "examples/import/basic_memory.py > memories.jsonl"),
        (("notes", "--from", "claude-code"), "examples/import/claude_code.py > memories.jsonl"),
        (("--from", "memtomem-stm"), "docs/moving-in.md"),
        (("--from",), "docs/moving-in.md"),
    ],
)
def test_the_old_option_names_the_script(upwell: Upwell, args: tuple[str, ...], hint: str) -> None:
    done = upwell("import", *args)
    assert done.code == 2
    assert hint in done.err
    assert len(done.err.splitlines()) == 1


def test_the_tools_of_stm_find_the_notes_of_gemini(
    upwell: Upwell, gateway: Gateway, user: Path, home: Path
) -> None:
    notes = [
        {
            "id": "unique_memory_id_1",
            "content": "The kettle is in the galley.",
            "created_at": "2025-07-20T12:00:00Z",
            "viewed_at": "2025-07-20T12:00:00Z",
        }
    ]
    folder = user / ".gemini"
    folder.mkdir()
    (folder / "stm.json").write_text(json.dumps(notes))
    upwell("import", "--format", "stm", "stm.json", cwd=folder)
    (found,) = upwell("stm", "search", "kettle", "--json").json
    assert found["id"] == "unique_memory_id_1"
    assert found["created_at"] == "2025-07-20T12:00:00Z"
    assert [note["id"] for note in json.loads((home / "stm.json").read_text())] == [found["id"]]
    peer = gateway({})
    peer.wait_for_tools("upwell__search_memory")
    (note,) = json.loads(text_of(peer.call("upwell__search_memory", query="kettle")))
    assert note["content"] == "The kettle is in the galley."
