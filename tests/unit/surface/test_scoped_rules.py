"""Rules with a scope are given with a matching file or command, once a session, unless the host
loads the same text by itself."""

from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.unit.surface.test_rules import FOUND, RULE, Pinned, prompt, surfacer, told

from upwell.ground.types.cue import Cue, Surfacing
from upwell.ground.types.memory import Memory
from upwell.surface.loaded import loaded_by
from upwell.surface.rules import PAUSED, RuleScope

API = Memory(
    id="api",
    text="Answer errors of the API with a problem document",
    pinned=True,
    triggers=RuleScope(paths=("src/api/**",)).triggers(),
)


def read(file: str, session: str = "s") -> Cue:
    return Cue(door="tool", tool="Read", args={"file_path": file}, session=session, cwd="/repo")


async def test_a_scoped_rule_surfaces_once_beside_a_matching_file() -> None:
    stage = surfacer(Pinned(API), moments=("question",))
    assert await told(stage, Cue(door="session", session="s", cwd="/repo")) == []
    assert await told(stage, prompt()) == []
    assert await told(stage, read("/repo/src/web/page.py")) == []
    assert await told(stage, read("/repo/src/api/orders.py")) == ["api"]
    assert await told(stage, read("/repo/src/api/orders.py")) == []
    assert await told(stage, read("/repo/src/api/orders.py", "another")) == ["api"]


async def test_it_comes_after_the_memories_that_the_cue_finds() -> None:
    outcome = await surfacer(Pinned(API), FOUND).surface(read("src/api/orders.py"))
    assert isinstance(outcome, Surfacing)
    assert [memory.id for memory in outcome.memories] == ["m1", "api"]


async def test_the_session_start_has_no_scoped_rule_and_both_come_together_once() -> None:
    stage = surfacer(Pinned(RULE, API))
    asked = prompt("why does src/api/orders.py fail for old orders?")
    assert await told(stage, asked) == ["api", "r1"]
    assert await told(stage, asked) == []


async def test_a_compaction_makes_it_due_again() -> None:
    stage = surfacer(Pinned(API))
    assert await told(stage, read("src/api/orders.py")) == ["api"]
    await stage.compacting("s")
    assert await told(stage, read("src/api/orders.py")) == ["api"]


async def test_a_rule_that_was_not_delivered_is_due_again() -> None:
    stage = surfacer(Pinned(RULE, API))
    await told(stage, prompt())
    cue = read("src/api/orders.py")
    offered = await stage.offer(cue)
    assert isinstance(offered, Surfacing)
    await stage.deliveries.take_back(offered, cue, late=True)
    assert await told(stage, read("/repo/README.md")) == [], "late, and not where it belongs"
    assert await told(stage, cue) == ["api"]
    assert await told(stage, prompt("what else is there to know?")) == []


@pytest.mark.parametrize("rule", [RULE, API])
async def test_a_paused_rule_is_not_given(rule: Memory) -> None:
    stage = surfacer(Pinned(replace(rule, tags=(PAUSED,))))
    assert await told(stage, prompt()) == []
    assert await told(stage, read("src/api/orders.py")) == []


async def test_an_excluded_tool_and_a_cue_without_a_session_get_none() -> None:
    assert await told(surfacer(Pinned(API)), read("src/api/orders.py", "")) == []
    assert await told(surfacer(Pinned(API), enabled=False), read("src/api/orders.py")) == []


async def test_a_rule_that_the_host_loads_itself_is_not_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    project = tmp_path / "shop"
    (project / ".git").mkdir(parents=True)
    (project / "CLAUDE.md").write_text(f"# Rules\n\n- {RULE.text}.\n\n@docs/more.md\n")
    (project / "docs").mkdir()
    (project / "docs/more.md").write_text(API.text.replace("the API", "the\n  API"))
    for host, heard in (("claude", []), ("codex", ["api", "r1"]), ("", ["api", "r1"])):
        cue = replace(prompt("why is src/api/x.py slow?"), cwd=str(project), host=host)
        assert await told(surfacer(Pinned(RULE, API)), cue) == heard, host
        begins = Cue(door="session", session="s", cwd=str(project), host=host)
        assert await told(surfacer(Pinned(RULE)), begins) == heard[1:], host


def test_the_files_of_the_user_and_of_folders_above_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    (tmp_path / "me/.codex").mkdir(parents=True)
    (tmp_path / "me/.codex/AGENTS.md").write_text("Write plain English.")
    (tmp_path / "shop/.git").mkdir(parents=True)
    (tmp_path / "shop/AGENTS.md").write_text("Use tabs.")
    (tmp_path / "shop/web").mkdir()
    (tmp_path / "AGENTS.md").write_text("Outside of the project.")
    texts = ["Write plain English", "use tabs", "Outside of the project", "Never"]
    cwd = str(tmp_path / "shop/web")
    assert loaded_by("codex", cwd, texts) == {"Write plain English", "use tabs"}
    assert loaded_by("", cwd, texts) == set()
    assert loaded_by("codex", None, texts) == {"Write plain English"}
