"""What a replay knows of the past: dated memories, a repository's files, and where it lay."""

import subprocess
from pathlib import Path

import pytest
from tests.unit.replay.repository import ENVIRONMENT, at, commit, git, repository

from upwell.episodes.events import Kind, SessionEvent
from upwell.ground.errors import UsageError
from upwell.ground.types.memory import Memory
from upwell.replay.memories import (
    MAX_FILE_BYTES,
    Checkout,
    PathRelocation,
    ReplayProjects,
    Repository,
)


def memory(text: str, when: float | None) -> Memory:
    return Memory(text=text, created_at=when)


@pytest.fixture
def harbour(tmp_path: Path) -> Path:
    folder = repository(tmp_path / "code/harbour")
    commit(folder, at(1), "Begin", {"README.md": "one", "docs/pump.md": "old", "src/a/b.py": ""})
    commit(folder, at(3), "Change", {"docs/pump.md": "new", "src/a/b.py": None, "src/c.py": "c"})
    return folder


def files_in(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): path.read_text()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_a_checkout_follows_the_main_line(tmp_path: Path, harbour: Path) -> None:
    folder = tmp_path / "scratch"
    checkout = Checkout(Repository(harbour, ENVIRONMENT), folder)
    assert checkout.move(at(1, 0)) is False
    assert files_in(folder) == {}
    assert checkout.move(at(2)) is True
    assert files_in(folder) == {"README.md": "one", "docs/pump.md": "old", "src/a/b.py": ""}
    assert checkout.move(at(2, 13)) is False
    assert checkout.move(at(4)) is True
    assert files_in(folder) == {"README.md": "one", "docs/pump.md": "new", "src/c.py": "c"}
    assert checkout.files == set(files_in(folder))
    assert (folder / "README.md").stat().st_mtime == at(1)
    assert (folder / "docs/pump.md").stat().st_mtime == at(3)


def test_a_folder_becomes_a_file_and_back(tmp_path: Path) -> None:
    folder = repository(tmp_path / "r")
    commit(folder, at(1), "1", {"a/b": "x"})
    commit(folder, at(2), "2", {"a/b": None})
    (folder / "a").rmdir()
    commit(folder, at(3), "3", {"a": "file"})
    commit(folder, at(4), "4", {"a": None})
    commit(folder, at(5), "5", {"a/c": "y"})
    checkout = Checkout(Repository(folder, ENVIRONMENT), tmp_path / "scratch")
    checkout.move(at(1))
    checkout.move(at(3))
    assert files_in(tmp_path / "scratch") == {"a": "file"}
    checkout.move(at(5))
    assert files_in(tmp_path / "scratch") == {"a/c": "y"}


def test_large_files_and_links_are_ignored(tmp_path: Path) -> None:
    folder = repository(tmp_path / "r")
    (folder / "link").symlink_to("/etc/passwd")
    commit(folder, at(1), "1", {"big.bin": "x" * (MAX_FILE_BYTES + 1)})
    checkout = Checkout(Repository(folder, ENVIRONMENT), tmp_path / "scratch")
    checkout.move(at(2))
    assert files_in(tmp_path / "scratch") == {"big.bin": ""}


def test_nothing_of_a_repository_runs(tmp_path: Path, harbour: Path) -> None:
    trap = tmp_path / "trap"
    script = tmp_path / "trap.sh"
    script.write_text(f"#!/bin/sh\ntouch {trap}\ncat\n")
    script.chmod(0o755)
    (harbour / ".gitattributes").write_text("* filter=trap diff=trap\n")
    commit(harbour, at(5), "Traps", {"docs/more.md": "more"})
    for key in (
        "core.fsmonitor",
        "core.pager",
        "filter.trap.smudge",
        "filter.trap.clean",
        "filter.trap.process",
        "diff.trap.textconv",
        "diff.trap.command",
        "diff.external",
        "log.showSignature",
        "gpg.program",
        "core.sshCommand",
    ):
        git(harbour, "config", key, "true" if key == "log.showSignature" else str(script))
    for hook in ("post-checkout", "post-index-change", "reference-transaction"):
        (harbour / ".git/hooks").mkdir(exist_ok=True)
        (harbour / ".git/hooks" / hook).write_text(script.read_text())
        (harbour / ".git/hooks" / hook).chmod(0o755)
    git_index = (harbour / ".git/index").read_bytes()
    checkout = Checkout(Repository(harbour, ENVIRONMENT), tmp_path / "scratch")
    checkout.move(at(4))
    checkout.move(at(6))
    assert "docs/more.md" in checkout.files
    assert not trap.exists()
    assert (harbour / ".git/index").read_bytes() == git_index
    subprocess.run([str(script)], input=b"", check=True, capture_output=True)
    assert trap.exists(), "the trap would have shown it"


def test_a_folder_without_a_repository_is_reported(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="git cannot read"):
        Repository(tmp_path, ENVIRONMENT)


def test_git_variables_of_a_hook_are_ignored(tmp_path: Path, harbour: Path) -> None:
    other = repository(tmp_path / "other")
    result = Repository(harbour, {**ENVIRONMENT, "GIT_DIR": str(other / ".git")})
    assert result.root == str(harbour)


def call(path: str, cwd: str | None, **more: str) -> SessionEvent:
    args = {"file_path": path, **more}
    return SessionEvent(session="s", i=0, t=0, kind=Kind.TOOL, tool="Read", args=args, cwd=cwd)


def relocation(tmp_path: Path, harbour: Path, cwd: str | None) -> tuple[PathRelocation, str]:
    project = ReplayProjects(tmp_path / "s", ENVIRONMENT, harbour).at(str(harbour))
    assert project is not None
    project.checkout.move(at(4))
    return PathRelocation(project, cwd), project.folder


@pytest.mark.parametrize("cwd", ["/Users/x/harbour", "/Users/x/harbour/docs"])
def test_a_session_of_another_machine_is_moved(tmp_path: Path, harbour: Path, cwd: str) -> None:
    moved, folder = relocation(tmp_path, harbour, cwd)
    event = moved.event(call("/Users/x/harbour/docs/pump.md", cwd, note="see /Users/x/harbours"))
    assert event.args["file_path"] == f"{folder}/docs/pump.md"
    assert event.args["note"] == "see /Users/x/harbours"
    assert event.cwd == cwd.replace("/Users/x/harbour", folder)


def test_a_path_shows_where_the_repository_lay(tmp_path: Path, harbour: Path) -> None:
    moved, folder = relocation(tmp_path, harbour, None)
    event = moved.event(call("/home/y/harbour/docs/pump.md", None))
    assert event.args["file_path"] == f"{folder}/docs/pump.md"
    assert event.cwd == folder
    elsewhere = moved.event(call("/etc/README.md", None))
    assert elsewhere.args["file_path"] == "/etc/README.md"


def test_memories_of_a_repository_are_those_of_its_checkout(tmp_path: Path, harbour: Path) -> None:
    projects = ReplayProjects(tmp_path / "s", ENVIRONMENT, harbour)
    own = Memory(text="x", project=str(harbour), paths=(f"{harbour}/docs/pump.md", "src/c.py"))
    folder = projects.folder_of(str(harbour))
    moved = projects.moved(own)
    assert moved.project == folder
    assert moved.paths == (f"{folder}/docs/pump.md", "src/c.py")
    assert projects.moved(Memory(text="x")).project is None


def test_sessions_find_their_own_repository(tmp_path: Path, harbour: Path) -> None:
    projects = ReplayProjects(tmp_path / "s", ENVIRONMENT)
    assert projects.root_of(str(harbour / "docs")) == str(harbour)
    assert projects.root_of("/nowhere/at/all") is None
    assert projects.root_of(None) is None
    (tmp_path / "broken/.git").mkdir(parents=True)
    assert projects.at(str(tmp_path / "broken")) is None
