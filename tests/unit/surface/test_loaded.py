"""Texts that an agent already has, because a file that its host loads imports them."""

import time
from pathlib import Path

import pytest

from upwell.surface.loaded import MAX_DEPTH, imports_in, loaded_by

RULE = "Always answer in English."


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(Path, "home", lambda: tmp_path / "home")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for folder in ("home/.claude", "home/.gemini", "shop/.git", "shop/docs", "other"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "shop/docs/rules.md").write_text(f"# Rules\n\n- {RULE}\n")
    (tmp_path / "other/rules.md").write_text(RULE)
    return tmp_path


def is_loaded(root: Path, host: str, cwd: str = "shop") -> bool:
    return loaded_by(host, str(root / cwd), [RULE]) == {RULE}


@pytest.mark.parametrize(("host", "file"), [("claude", "CLAUDE.md"), ("gemini", "GEMINI.md")])
@pytest.mark.parametrize(
    ("text", "is_followed"),
    [
        ("@docs/rules.md", True),
        ("See @docs/rules.md", True),
        ("See @./docs/rules.md for the rules and @package.json for the rest", True),
        ("- Rules: @docs/rules.md, and others.", True),
        ("All of them are in @docs/rules.md.", True),
        ("1. one\n\n    see @docs/rules.md", True),
        ("See `other` and @docs/rules.md", True),
        ("See `@docs/rules.md`", False),
        ("See ``a ` b @docs/rules.md``", False),
        ("```\n@docs/rules.md\n```", False),
        ("~~~ text\n```\n@docs/rules.md\n~~~", False),
        ("Example:\n\n    @docs/rules.md", False),
        ("mail ada@docs/rules.md", False),
        ("See @docs/none.md", False),
    ],
)
def test_an_import_inside_a_sentence_is_followed(
    root: Path, host: str, file: str, text: str, is_followed: bool
) -> None:
    (root / "shop" / file).write_text(f"# Shop\n\n{text}\n")
    assert is_loaded(root, host) is is_followed


def test_hosts_without_imports_follow_none(root: Path) -> None:
    (root / "shop/AGENTS.md").write_text("See @docs/rules.md")
    assert not is_loaded(root, "codex")
    assert is_loaded(root, "claude"), "it reads AGENTS.md where there is no CLAUDE.md"


def test_imports_are_followed_up_to_a_depth(root: Path) -> None:
    for number in range(MAX_DEPTH + 1):
        (root / f"shop/{number}.md").write_text(f"More in @{number + 1}.md")
    (root / "shop/CLAUDE.md").write_text("See @1.md")
    (root / f"shop/{MAX_DEPTH + 1}.md").write_text(RULE)
    assert not is_loaded(root, "claude")
    (root / f"shop/{MAX_DEPTH}.md").write_text(RULE)
    assert is_loaded(root, "claude")


@pytest.mark.parametrize("name", ["../other/rules.md", "link.md", "{}/other/rules.md"])
def test_an_import_does_not_leave_the_project(root: Path, name: str) -> None:
    (root / "shop/link.md").symlink_to(root / "other/rules.md")
    for file in ("CLAUDE.md", "GEMINI.md"):
        (root / "shop" / file).write_text(f"See @{name.format(root)}")
    assert not is_loaded(root, "claude")
    assert not is_loaded(root, "gemini")


def test_imports_of_the_users_own_file(root: Path) -> None:
    for host, file in (("claude", ".claude/CLAUDE.md"), ("gemini", ".gemini/GEMINI.md")):
        own = root / "home" / file
        own.write_text(f"See @{root}/other/rules.md")
        assert is_loaded(root, host) is (host == "claude")
        own.write_text("See @rules.md")
        (own.parent / "rules.md").write_text(RULE)
        assert is_loaded(root, host)


def test_a_project_behind_a_link(root: Path) -> None:
    (root / "link").symlink_to("shop")
    (root / "shop/CLAUDE.md").write_text("See @docs/rules.md")
    assert is_loaded(root, "claude", "link")
    assert is_loaded(root, "claude", "link/docs")


@pytest.mark.parametrize(
    "text",
    [
        "`" * 100_000,
        "`a``b" * 40_000,
        " ".join("`" * length for length in range(1, 500)) + " `` x" * 20_000,
        "@" * 200_000,
        "@\\ " * 60_000,
    ],
)
def test_imports_are_found_in_linear_time(text: str) -> None:
    began = time.process_time()
    list(imports_in(text))
    assert time.process_time() - began < 1
