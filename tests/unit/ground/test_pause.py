"""Where upwell does nothing by itself: paused sessions and excluded projects."""

import subprocess
from pathlib import Path

import pytest

from upwell.ground.errors import UsageError
from upwell.ground.pause import HEADLESS_FOLDER, Pause, ProjectOptions


def test_one_session_is_paused_and_resumed(tmp_path: Path) -> None:
    pause = Pause(tmp_path / "pause")
    pause.begin("s 1")
    assert pause.holds("s 1")
    assert not pause.holds("s")
    pause.end("s 1")
    assert not pause.anybody()


@pytest.mark.parametrize("name", ["", "*", "a\n*", "a\r", "\udcff", "\0", "\u202e"])
def test_a_name_that_no_session_has_pauses_and_resumes_nobody(tmp_path: Path, name: str) -> None:
    """An empty variable in `--session "$NAME"` would otherwise pause everybody."""
    pause = Pause(tmp_path / "pause")
    with pytest.raises(UsageError, match="is not a session"):
        pause.begin(name)
    assert not pause.anybody()
    pause.begin("other")
    with pytest.raises(UsageError, match="is not a session"):
        pause.end(name)
    assert pause.holds("other")


def test_it_says_what_is_paused(tmp_path: Path) -> None:
    pause = Pause(tmp_path / "paused")
    assert (pause.described(), pause.ping().detail) == ("", "not paused")
    pause.begin("a")
    assert pause.described() == "1 session is paused"
    pause.begin("b")
    assert pause.ping().detail == "2 sessions are paused: `upwell on` resumes"
    pause.begin(None)
    assert pause.described() == "everything is paused"


@pytest.mark.parametrize(
    ("pattern", "folder", "is_excluded"),
    [
        ("/srv/shop", "/srv/shop", True),
        ("/srv/shop", "/srv/shop/src/deep", True),
        ("/srv/shop/", "/srv/shop/", True),
        ("/srv/shop", "/srv/shopping", False),
        ("/srv/shop", "/srv", False),
        ("/srv/clients/*", "/srv/clients/acme/web", True),
        ("/srv/clients/*", "/srv/clients", False),
        ("acme-*", "/srv/acme-web/src", True),
        ("acme-*", "/srv/web", False),
        ("~/secret", str(Path.home() / "secret" / "src"), True),
        ("/srv/shop", "/srv/other/../shop", True),
    ],
)
def test_a_pattern_covers_a_folder_and_those_below_it(
    pattern: str, folder: str, is_excluded: bool
) -> None:
    assert ProjectOptions(exclude=(pattern,)).excludes(folder) is is_excluded


def test_a_link_is_its_target(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert ProjectOptions(exclude=(str(tmp_path / "real"),)).excludes(str(tmp_path / "link"))
    assert ProjectOptions(exclude=(str(tmp_path / "link"),)).excludes(str(tmp_path / "real"))
    assert ProjectOptions(exclude=(str(tmp_path / "li*"),)).excludes(str(tmp_path / "real" / "src"))
    assert not ProjectOptions(exclude=(str(tmp_path / "l?"),)).excludes(str(tmp_path / "real"))


def test_nothing_is_excluded_without_a_pattern_or_a_folder() -> None:
    assert not ProjectOptions().excludes("/srv/shop")
    assert not ProjectOptions(exclude=("*",)).excludes(None)


def test_the_refusal_names_the_pattern() -> None:
    with pytest.raises(UsageError, match="excluded project") as refused:
        ProjectOptions(exclude=("shop",)).check(Path("/srv/shop/notes.md"))
    assert "'shop'" in refused.value.hint


def test_a_worktree_is_excluded_with_its_repository(tmp_path: Path) -> None:
    author = ("-c", "user.name=a", "-c", "user.email=a@b")
    for args in (
        ["init", "-q", "shop"],
        ["-C", "shop", *author, "commit", "-q", "--allow-empty", "-m", "x"],
        ["-C", "shop", "worktree", "add", "-q", str(tmp_path / "tree")],
    ):
        subprocess.run(["git", *args], cwd=tmp_path, check=True, capture_output=True)
    (tmp_path / "tree/src").mkdir()
    for options in (
        ProjectOptions(exclude=("shop",)),
        ProjectOptions(exclude=(f"{tmp_path}/shop",)),
    ):
        assert options.excludes(str(tmp_path / "tree"))
        assert options.excludes(str(tmp_path / "tree/src"))
        with pytest.raises(UsageError, match="excluded project"):
            options.check(tmp_path / "tree/notes.md")
    assert not ProjectOptions(exclude=(f"{tmp_path}/tree",)).excludes(str(tmp_path / "shop"))


def test_the_folder_of_our_own_runs_is_always_excluded() -> None:
    options = ProjectOptions()
    assert options.excludes(f"/home/ada/.local/share/upwell/{HEADLESS_FOLDER}")
    assert options.excludes(f"/any/where/{HEADLESS_FOLDER}/deep")
    assert not options.excludes(f"/home/ada/{HEADLESS_FOLDER}-notes")
    assert not options.excludes(None)
