"""Names and texts that others chose do not act on the terminal of the user who sees them."""

import json
import re
import sys
import unicodedata
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.conftest import Upwell
from tests.doors.terminal import typed

HOSTILE = "\x1b]0;t\x07\x1b[2J\x9b31m\u202eevil\u202c\u200b\u2066x\u2069\x7f\U000e0041"
UPWELL = [sys.executable, "-P", "-m", "upwell"]


def acting(shown: str) -> set[str]:
    """The characters on the terminal that act on it, other than those that our own progress bars
    and tables use."""
    own = re.sub(r"\x1b\[(?:[0-9;]*[mAK]|\?25[hl])", "", shown)
    return {
        f"U+{ord(char):04X}"
        for char in own
        if unicodedata.category(char) in ("Cc", "Cf", "Co") and char not in "\r\n\t"
    }


ARGUMENTS = (
    (["import", "/nope" + HOSTILE], 2),
    (["compress", "/nope" + HOSTILE], 2),
    (["learn", "git", "/nope" + HOSTILE], 2),
    (["learn", "sessions", "/nope" + HOSTILE], 2),
    (["forget", "x" + HOSTILE], 1),
    (["read", "x" + HOSTILE], 1),
    (["x" + HOSTILE], 2),
)


@pytest.mark.parametrize(("args", "status"), ARGUMENTS, ids=lambda value: str(value)[:20])
def test_an_argument_in_an_error_is_shown_harmlessly(
    args: list[str], status: int, environment: Mapping[str, str], tmp_path: Path
) -> None:
    shown = typed([*UPWELL, *args], [], environment, tmp_path, status)
    assert acting(shown) == set()
    assert "evil" in shown


def test_a_file_name_in_a_progress_bar_is_shown_harmlessly(
    environment: Mapping[str, str], tmp_path: Path
) -> None:
    (tmp_path / "b\x1b[2J\u202e[bold].md").write_text("# A title\n\nA text.\n")
    shown = typed([*UPWELL, "import", "b\x1b[2J\u202e[bold].md"], [], environment, tmp_path)
    assert acting(shown) == set()
    assert "1 file" in shown


def test_an_original_is_read_harmlessly_on_a_terminal_and_exactly_in_a_pipe(
    upwell: Upwell, environment: Mapping[str, str], tmp_path: Path
) -> None:
    memory_id = upwell("remember", f"the value {HOSTILE} of staging").out.strip()
    address = f"upwell://memory/{memory_id}"
    assert acting(typed([*UPWELL, "read", address], [], environment, tmp_path)) == set()
    (tmp_path / "a.txt").write_text(f"a {HOSTILE} b")
    assert acting(typed([*UPWELL, "compress", "a.txt"], [], environment, tmp_path)) == set()
    assert f"a {HOSTILE} b" in upwell("compress", str(tmp_path / "a.txt")).out


def test_the_names_of_a_client_s_servers_are_shown_harmlessly(
    environment: Mapping[str, str], tmp_path: Path
) -> None:
    folder = Path(environment["HOME"]) / ".cursor"
    folder.mkdir(parents=True)
    server = {"command": "c" + HOSTILE, "args": [HOSTILE], "env": {"K": HOSTILE}}
    (folder / "mcp.json").write_text(json.dumps({"mcpServers": {"n" + HOSTILE: server}}))
    shown = typed([*UPWELL, "setup", "--only", "servers", "--dry-run"], [], environment, tmp_path)
    assert acting(shown) == set()
