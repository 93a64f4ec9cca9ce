"""Texts that an agent already has, because a file that its host loads imports them."""

import time
from itertools import chain, repeat
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


SCOPED = {"claude": (".claude/rules", "md"), "cursor": (".cursor/rules", "mdc")}


@pytest.mark.parametrize("host", SCOPED)
def test_rules_in_folders_of_the_project_count(root: Path, host: str) -> None:
    folder, suffix = SCOPED[host]
    deep = root / "shop" / folder / "web/forms"
    deep.mkdir(parents=True)
    (deep / f"style.{suffix}").write_text(RULE)
    assert is_loaded(root, host)


def test_a_file_for_some_paths_is_not_loaded_into_every_session(root: Path) -> None:
    rules = root / "shop/.claude/rules"
    rules.mkdir(parents=True)
    (rules / "web.md").write_text(f"---\npaths:\n  - none/**\n---\n{RULE}")
    cwd = str(root / "shop")
    assert loaded_by("claude", cwd, [RULE], always={RULE}) == set()
    assert loaded_by("claude", cwd, [RULE]) == {RULE}, "a rule with a scope of its own"


@pytest.mark.parametrize("host", SCOPED)
@pytest.mark.parametrize("target", ["/", "/usr", "../../other", "rules", "../.."])
def test_links_in_place_of_the_rules_are_bounded(root: Path, host: str, target: str) -> None:
    folder, suffix = SCOPED[host]
    place = root / "shop" / folder
    place.parent.mkdir()
    place.symlink_to(target)
    (root / f"other/style.{suffix}").write_text(RULE)
    began = time.process_time()
    assert not is_loaded(root, host)
    assert time.process_time() - began < 0.2


def test_links_among_the_rules_are_not_followed_out(root: Path) -> None:
    rules = root / "shop/.claude/rules"
    rules.mkdir(parents=True)
    (rules / "all").symlink_to("/usr")
    (rules / "other").symlink_to(root / "other")
    (rules / "style.md").symlink_to(root / "other/rules.md")
    (root / "shop/CLAUDE.md").symlink_to(root / "other/rules.md")
    assert not is_loaded(root, "claude")
    (rules / "own.md").symlink_to(root / "shop/docs/rules.md")
    assert is_loaded(root, "claude")


@pytest.mark.parametrize(("width", "depth"), [(4_000, 1), (1, 300), (60, 2)])
def test_any_number_of_folders_takes_a_moment(root: Path, width: int, depth: int) -> None:
    for number in range(width):
        (root / f"shop/.claude/rules/{number}/{'d/' * depth}").mkdir(parents=True)
    began = time.process_time()
    assert not is_loaded(root, "claude")
    assert time.process_time() - began < 0.2


def test_a_working_directory_in_hundreds_of_folders_takes_a_moment(root: Path) -> None:
    deep = root / "shop" / ("d/" * 300)
    deep.mkdir(parents=True)
    began = time.process_time()
    assert not is_loaded(deep, "claude")
    assert time.process_time() - began < 0.2


def test_files_that_are_not_read_in_time_do_not_count(root: Path) -> None:
    (root / "shop/CLAUDE.md").write_text(f"@docs/rules.md\n\n{RULE}")
    clock = chain([0.0], repeat(10.0))
    assert not loaded_by("claude", str(root / "shop"), [RULE], now=lambda: next(clock))


def test_the_end_of_a_file_that_was_cut_is_in_doubt(root: Path) -> None:
    file = root / "shop/CLAUDE.md"
    file.write_text("word\n" * 40_000 + f"\n{RULE}\n" + "is not true\n" * 10)
    assert not is_loaded(root, "claude")
    file.write_text(f"{RULE}\n\n" + "word\n" * 60_000)
    assert is_loaded(root, "claude")
