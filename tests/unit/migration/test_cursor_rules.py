"""Rules of Cursor, written as its documentation shows them."""

import subprocess
from pathlib import Path

import pytest
from tests.unit.migration.reading import items_of, left_out_of, memories_of, place_at

from upwell.ground.errors import UsageError
from upwell.ground.types.cue import Cue, Door
from upwell.migration.registry import program_named
from upwell.surface.loaded import loaded_by
from upwell.surface.scopes import scope_of


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "shop"
    root.mkdir()
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    return root


def rule(root: Path, front: str, body: str = "Use const.", name: str = "a.mdc") -> Path:
    path = root / ".cursor" / "rules" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"---\n{front}\n---\n{body}\n" if front else body)
    return path


def test_a_rule_that_always_applies_opens_every_session(repository: Path) -> None:
    rule(repository, "description: Style\nglobs:\nalwaysApply: true")
    (memory,) = memories_of("cursor-rules", repository)
    assert (memory.text, memory.pinned, memory.triggers) == ("Use const.", True, ())
    assert memory.project == str(repository)


@pytest.mark.parametrize("front", ["alwaysApply: true", "globs: *.ts\nalwaysApply: false"])
def test_cursor_gets_no_rule_that_it_loads_itself(repository: Path, front: str) -> None:
    rule(repository, f"description: Style\n{front}", "# Style\n\n- Use const.\n- Never var.")
    (memory,) = memories_of("cursor-rules", repository)
    assert loaded_by("cursor", str(repository), [memory.text]) == {memory.text}
    assert loaded_by("claude", str(repository), [memory.text]) == set()


@pytest.mark.parametrize(
    ("globs", "patterns"),
    [
        ("globs: **/*.ts, web/*.js", ("**/*.ts", "web/*.js")),
        ('globs: ["src/*.py"]', ("src/*.py",)),
        ("globs:\n  - src/*.py\n  - '*.toml'", ("src/*.py", "*.toml")),
        ("globs: src/**/*.{ts,tsx}", ("src/**/*.ts", "src/**/*.tsx")),
    ],
)
def test_globs_become_the_scope(repository: Path, globs: str, patterns: tuple[str, ...]) -> None:
    rule(repository, f"description: Style\n{globs}\nalwaysApply: false")
    (memory,) = memories_of("cursor-rules", repository)
    assert memory.pinned
    assert scope_of(memory).paths == patterns


def test_the_scope_matches_the_files_that_cursor_would_match(repository: Path) -> None:
    rule(repository, "globs: src/**/*.{ts,tsx}\nalwaysApply: false")
    (memory,) = memories_of("cursor-rules", repository)
    for file, matches in (("src/web/a.tsx", True), ("src/a.ts", True), ("lib/a.ts", False)):
        cue = Cue(
            door=Door.TOOL,
            tool="Read",
            args={"file_path": f"{repository}/{file}"},
            cwd=str(repository),
        )
        assert scope_of(memory).matches(cue) is matches


def test_a_rule_that_the_agent_asks_for_is_a_memory(repository: Path) -> None:
    rule(repository, "description: How to release\nglobs:\nalwaysApply: false", "Tag, then push.")
    (memory,) = memories_of("cursor-rules", repository)
    assert (memory.text, memory.pinned) == ("How to release\nTag, then push.", False)
    assert memory.namespace == "patterns"


def test_rules_of_a_part_of_the_project_hold_there(repository: Path) -> None:
    rule(repository / "web", "alwaysApply: true", name="all.mdc")
    rule(repository / "web", "globs: *.css\nalwaysApply: false", name="css.mdc")
    scopes = {
        m.source.rsplit("/")[-1]: scope_of(m).paths for m in memories_of("cursor-rules", repository)
    }
    assert scopes == {"all.mdc": ("web/**",), "css.mdc": ("web/*.css",)}


def test_the_older_file_is_one_standing_rule(repository: Path) -> None:
    (repository / ".cursorrules").write_text("Never use var.\n")
    (memory,) = memories_of("cursor-rules", repository / ".cursorrules")
    assert (memory.text, memory.pinned, memory.project) == ("Never use var.", True, str(repository))


def test_rules_of_dependencies_stay_out(repository: Path) -> None:
    rule(repository / "node_modules" / "x", "alwaysApply: true")
    assert program_named("cursor-rules").stores(place_at(repository)) == []
    with pytest.raises(UsageError, match="no rules of Cursor"):
        items_of("cursor-rules", repository)


def test_a_link_out_of_the_project_is_not_read(repository: Path, tmp_path: Path) -> None:
    private = tmp_path / "private"
    private.write_text("a key")
    rule(repository, "alwaysApply: true")
    (repository / ".cursor" / "rules" / "b.mdc").symlink_to(private)
    assert len(memories_of("cursor-rules", repository)) == 1
    assert left_out_of("cursor-rules", repository) == ["a link out of the project"]


def test_a_rule_that_cannot_be_read_leaves_the_others(repository: Path) -> None:
    rule(repository, "alwaysApply: true")
    rule(repository, "globs: /etc/*\nalwaysApply: false", name="absolute.mdc")
    rule(repository, "", name="broken.mdc").write_bytes(b"\xff\xfe")
    assert len(memories_of("cursor-rules", repository)) == 1
    assert len(left_out_of("cursor-rules", repository)) == 2
