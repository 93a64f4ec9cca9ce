"""Moving in from other programs, by the command line, and what the tools then find."""

import json
from pathlib import Path

import pytest

from tests.conftest import Upwell
from tests.doors.conftest import Gateway
from tests.doors.peer import text_of
from tests.unit.migration.test_mem0 import DECISION, store
from tests.unit.migration.test_memtomem_stm import SERVER, proxy
from upwell.migration.registry import PROGRAMS

TOKEN = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


def test_a_dry_run_and_a_run_have_the_same_counts(upwell: Upwell, user: Path, shop: Path) -> None:
    blog = {**DECISION, "id": "8", "metadata": {"project": "blog"}}
    store(user, {**DECISION, "memory": f"{DECISION['memory']} The token is {TOKEN}."}, blog)
    shown = upwell("import", "--from", "mem0", "--dry-run", cwd=shop)
    assert shown.out.splitlines()[-1] == "would import 1; nothing was written"
    assert "left out 1: no known folder is called blog" in shown.err
    assert "1 secret masked" in shown.err
    assert upwell("recall", "prices", "--json", cwd=shop).json["hits"] == []

    done = upwell("import", "--from", "mem0", cwd=shop)
    assert done.out.splitlines()[:-1] == shown.out.splitlines()[:-1]
    assert done.out.splitlines()[-1] == "imported 1"
    (hit,) = upwell("recall", "prices", "--json", cwd=shop).json["hits"]
    assert hit["source"] == "mem0:7"
    assert TOKEN not in hit["text"]

    again = upwell("import", "--from", "mem0", "--everywhere", "--json", cwd=shop).json
    assert again["imported"] == [{"kind": "decisions", "place": "", "count": 1}]
    last = upwell("import", "--from", "mem0", "--everywhere", "--json", cwd=shop).json
    assert (last["total"], last["left_out"][0]["why"]) == (0, "already here")


def test_the_context_and_the_search_tool_find_imported_memories(
    upwell: Upwell, user: Path, shop: Path
) -> None:
    store(user, DECISION)
    upwell("import", "--from", "mem0", cwd=shop)
    answer = upwell("context", "Why are prices integers?", "--format", "json", cwd=shop).json
    assert answer["found"]
    assert "Floats lost a cent" in json.dumps(answer["entries"])


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


def test_settings_and_servers_of_memtomem_become_ours(
    upwell: Upwell, user: Path, home: Path
) -> None:
    proxy(user, upstream_servers={"files": SERVER}, min_result_retention=0.5)
    home.mkdir()
    (home / "config.toml").write_text("# mine\n[surface]\ncooldown_seconds = 1.0\n")
    variables = {
        "MEMTOMEM_STM_SURFACING__COOLDOWN_SECONDS": "9",
        "MEMTOMEM_STM_SURFACING__MAX_INJECTION_CHARS": "many",
    }
    done = upwell("import", "--from", "memtomem-stm", env=variables)
    assert done.code == 0
    assert "left out 1: already set in config.toml" in done.err
    assert "surface.max_injection_chars in config.toml:" in done.err
    shown = upwell("config", "show", "--json").json
    assert shown["compress.min_result_retention"]["value"] == 0.5
    assert shown["surface.cooldown_seconds"]["value"] == 1.0
    assert (home / "config.toml").read_text().startswith("# mine\n")
    assert "fs" in upwell("list").out
    assert upwell("import", "--from", "memtomem-stm", "--json", env=variables).json["total"] == 0


def test_the_servers_behind_memtomem_are_copied(upwell: Upwell, user: Path, home: Path) -> None:
    path = proxy(user, upstream_servers={"files": SERVER})
    (user / ".cursor").mkdir()
    settings = user / ".cursor" / "mcp.json"
    env = {"MEMTOMEM_STM_SURFACING__PERSIST_QUERY_TEXT": "false"}
    entry = {"command": "python", "args": ["-m", "memtomem_stm"], "env": env}
    settings.write_text(json.dumps({"mcpServers": {"memtomem-stm": entry}}, indent=4))
    before = settings.read_bytes()
    done = upwell("add", "--from-clients")
    assert "cursor: memtomem-stm: fs → fs" in done.out
    assert "upwell import --from memtomem-stm" in done.err
    assert settings.read_bytes() == before
    assert "memtomem" not in (home / "config.toml").read_text()
    upwell("import", "--from", "memtomem-stm")
    assert upwell("config", "show", "--json").json["surface.persist_query_text"]["value"] is False
    path.unlink()
    assert "memtomem-stm → memtomem-stm" in upwell("add", "--from-clients").out


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_that_is_not_there(upwell: Upwell, program: str) -> None:
    done = upwell("import", "--from", program)
    assert done.code == 2
    assert f"no {program} on this machine" in done.err
    assert f"upwell import --from {program} PATH" in done.err


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--from", "mem"), "did you mean mem0?"),
        (("--from", "mem0", "no/such.json"), "no such file"),
        (("--from", "mem0", "--format", "stm"), "--from takes none of"),
        (("--dry-run",), "need --from"),
        (("--from", "mem0", "--project", "shop"), "is not NAME=FOLDER"),
    ],
)
def test_wrong_usage_is_reported_in_one_line(
    upwell: Upwell, args: tuple[str, ...], message: str
) -> None:
    done = upwell("import", *args)
    assert done.code == 2
    assert message in done.err
    assert len(done.err.splitlines()) == 1


def test_setup_lists_the_stores_that_it_finds(upwell: Upwell, user: Path, shop: Path) -> None:
    (user / ".claude").mkdir()
    assert "import --from" not in upwell("setup", "--dry-run", cwd=shop).out
    path = store(user, DECISION)
    lines = upwell("setup", "--dry-run", cwd=shop).out.splitlines()
    (line,) = (line for line in lines if "import --from" in line)
    assert line.split() == ["upwell", "import", "--from", "mem0", str(path)]
