"""Moving in from stores that the programs themselves wrote; `programs/install.py` pins them."""

import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.conftest import Upwell
from tests.doors.programs import install

TOKEN = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
NOTE = """# Checkout

How the checkout works.

## Observations
- [decision] Prices are integers of cents #money (floats lost one)
- [gotcha] The pool needs two connections
- [ ] write tests

## Relations
- depends_on [[Payment]]
"""


def run(*command: str | Path, env: Mapping[str, str], text: str = "", cwd: Path) -> str:
    done = subprocess.run(
        list(map(str, command)), env=env, input=text, cwd=cwd, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def moved(upwell: Upwell, program: str, shop: Path) -> dict[str, int]:
    """Import from the program; a second run must find nothing more. Returns how many things of each
    kind were imported."""
    shown = upwell("import", "--from", program, "--dry-run", "--json", cwd=shop).json
    done = upwell("import", "--from", program, "--json", cwd=shop).json
    assert {**shown, "dry_run": False} == done
    assert upwell("import", "--from", program, "--json", cwd=shop).json["total"] == 0
    return {row["kind"]: row["count"] for row in done["imported"]}


def found(upwell: Upwell, query: str, shop: Path) -> dict[str, object]:
    hit: dict[str, object] = upwell("recall", query, "--json", cwd=shop).json["hits"][0]
    return hit


def test_basic_memory(
    upwell: Upwell, user: Path, environment: Mapping[str, str], shop: Path
) -> None:
    python = install.python_with(install.BASIC_MEMORY)
    program = python.with_name("basic-memory")
    env = {
        **environment,
        "BASIC_MEMORY_SEMANTIC_SEARCH_ENABLED": "false",
        "HF_HUB_OFFLINE": "1",
    }
    options = ("--title", "Checkout", "--folder", "specs", "--tags", "shop", "--local")
    run(program, "tool", "write-note", *options, env=env, text=NOTE, cwd=shop)
    assert (user / "basic-memory" / "specs" / "Checkout.md").exists()
    assert moved(upwell, "basic-memory", shop) == {"context": 1, "decisions": 1, "learnings": 1}
    hit = found(upwell, "prices integers cents", shop)
    assert hit["text"] == "Checkout: Prices are integers of cents (floats lost one)"
    assert set(hit["tags"]) == {"decision", "money", "shop"}


def test_memtomem_stm(
    upwell: Upwell, user: Path, environment: Mapping[str, str], home: Path, shop: Path
) -> None:
    mms = install.python_with(install.MEMTOMEM_STM).with_name("mms")
    server = ("--command", "npx", "--args", "-y files-mcp", "--prefix", "fs")
    run(mms, "add", "filesystem", *server, env=environment, cwd=shop)
    run(mms, "register", "--client", "json", "--json", env=environment, cwd=shop)
    cursor = user / ".cursor" / "mcp.json"
    cursor.parent.mkdir()
    cursor.write_text((shop / ".mcp.json").read_text())
    settings = upwell("import", "--from", "memtomem-stm", "--json", cwd=shop).json["imported"]
    assert {row["kind"] for row in settings} == {"server", "setting"}
    shown = upwell("config", "show", "--json").json
    assert shown["surface.persist_query_text"]["value"] is False
    assert shown["server.fs.command"]["value"] == "npx"
    assert "fs → fs (already in upwell)" in upwell("add", "--from-clients").out
