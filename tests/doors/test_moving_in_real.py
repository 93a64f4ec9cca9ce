"""Moving in from a store that the program itself wrote; `programs/install.py` pins it."""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.conftest import Upwell
from tests.doors.programs import install

SCRIPT = Path(__file__).parents[2] / "examples" / "import" / "basic_memory.py"
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
    (shop / "memories.jsonl").write_text(run(sys.executable, SCRIPT, env=env, cwd=shop))
    assert "3 memories stored" in upwell("import", "memories.jsonl", cwd=shop).out
    hit = found(upwell, "prices integers cents", shop)
    assert hit["text"] == "Checkout: Prices are integers of cents (floats lost one)"
    assert set(hit["tags"]) == {"decision", "money", "shop"}
