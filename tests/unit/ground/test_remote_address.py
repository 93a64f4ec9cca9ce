"""The address that all clones of a repository share, and the main worktree of linked ones."""

import os
import subprocess
import time
from pathlib import Path

import pytest

from upwell.ground.project import address_of, is_seen, main_worktree_of, normal_address, owners_of

SHOP = "github.com/acme/shop"


@pytest.mark.parametrize(
    "url",
    [
        "https://github.com/acme/shop.git",
        "https://GitHub.com/acme/shop",
        "https://ada:t0ken@github.com/acme/shop.git/",
        "https://t0ken@github.com:443//acme/shop.git?private=t0ken#main",
        "http://github.com:80/acme/shop",
        "ssh://git@github.com/acme/shop.git",
        "ssh://git@github.com:22/acme/shop.git",
        "git+ssh://git@github.com/acme/shop",
        "git://github.com/acme/./shop.git",
        "git@github.com:acme/shop.git",
        "git@GITHUB.com:/acme/shop.git",
        "github.com:acme/shop",
        "https://github.com./acme/sho%70",
    ],
)
def test_every_form_of_an_address_is_one_name(url: str) -> None:
    assert normal_address(url) == SHOP


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("ssh://git@host:2222/a/b.git", "host:2222/a/b"),
        ("https://Host/Acme/Shop", "host/Acme/Shop"),
        ("git@[::1]:a/b.git", "::1/a/b"),
        ("https://host/~ada/notes.git", "host/~ada/notes"),
        ("https://host/.git", "host/.git"),
    ],
)
def test_parts_that_name_another_repository_stay(url: str, address: str) -> None:
    assert normal_address(url) == address


@pytest.mark.parametrize(
    "url",
    [
        "",
        "/srv/git/shop.git",
        "../shop",
        "./a:b",
        "file:///srv/git/shop.git",
        "C:/work/shop",
        "https:///acme/shop",
        "https://github.com",
        "https://github.com:x/acme/shop",
        "https://[::1/acme/shop",
        "git@github.com:",
        "https://github.com/../shop",
        "ext::sh -c id",
        "https://github.com/acme/sh%0aop",
        "git@github.com:" + "a" * 600,
    ],
)
def test_a_place_that_others_cannot_name_has_no_address(url: str) -> None:
    assert normal_address(url) is None


def test_a_long_address_is_read_in_linear_time() -> None:
    began = time.process_time()
    for part in ("@", ":", "[", "a", "@a", "[a]"):
        normal_address(part * 200_000)
    assert time.process_time() - began < 2


def git(folder: Path, *args: str) -> None:
    own = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "protocol.file.allow=always")
    subprocess.run(["git", *own, *args], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repo"
    folder.mkdir()
    git(folder, "init", "-q")
    return folder


def test_origin_comes_before_other_remotes(repository: Path) -> None:
    assert address_of(str(repository)) is None
    git(repository, "remote", "add", "fork", "git@github.com:ada/shop.git")
    assert address_of(str(repository)) == "github.com/ada/shop"
    git(repository, "remote", "add", "mirror", "https://mirror.example.org/shop")
    assert address_of(str(repository)) is None
    git(repository, "remote", "add", "origin", "https://github.com/acme/shop.git")
    assert address_of(str(repository)) == SHOP
    git(repository, "remote", "set-url", "--add", "origin", "https://mirror.example.org/shop")
    assert address_of(str(repository)) == SHOP
    git(repository, "remote", "remove", "origin")
    assert address_of(str(repository)) is None


def test_worktrees_and_submodules_have_the_address_of_their_repository(repository: Path) -> None:
    git(repository, "remote", "add", "origin", "https://github.com/acme/shop.git")
    git(repository, "commit", "-q", "--allow-empty", "-m", "x")
    git(repository, "worktree", "add", "-q", str(repository.parent / "tree"))
    assert address_of(str(repository.parent / "tree")) == SHOP
    git(repository.parent, "clone", "-q", "repo", "part")
    git(repository, "submodule", "add", "-q", str(repository.parent / "part"), "part")
    assert address_of(str(repository / "part")) is None
    git(repository / "part", "remote", "set-url", "origin", "git@github.com:acme/part.git")
    assert address_of(str(repository / "part")) == "github.com/acme/part"


@pytest.mark.parametrize("content", [b"gitdir: \0", b"gitdir: /nowhere", b"", b"\xff" * 10])
def test_a_damaged_repository_has_no_address(tmp_path: Path, content: bytes) -> None:
    (tmp_path / ".git").write_bytes(content)
    assert address_of(str(tmp_path)) is None
    (tmp_path / "other").mkdir()
    (tmp_path / "other/.git").mkdir()
    (tmp_path / "other/.git/config").write_bytes(b'[remote "origin"\nurl = x\n[remote]\n' + content)
    assert address_of(str(tmp_path / "other")) is None


def test_a_pipe_in_place_of_the_configuration_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    os.mkfifo(tmp_path / ".git/config")
    assert address_of(str(tmp_path)) is None


def test_a_project_sees_what_belongs_to_its_address(repository: Path) -> None:
    root = str(repository)
    assert owners_of(root) == (root, root, root)
    git(repository, "remote", "add", "origin", "git@github.com:acme/shop.git")
    assert owners_of(root) == (root, SHOP, root)
    assert is_seen(SHOP, root)
    assert is_seen(root, root)
    assert not is_seen("github.com/acme/other", root)
    assert not is_seen(root, SHOP)


def test_a_linked_worktree_sees_what_belongs_to_the_main_one(repository: Path) -> None:
    git(repository, "commit", "-q", "--allow-empty", "-m", "x")
    beside, inside = repository.parent / "tree", repository / ".agent/tree"
    for tree in (beside, inside):
        git(repository, "worktree", "add", "-q", "--detach", str(tree))
        assert main_worktree_of(str(tree)) == str(repository)
        assert owners_of(str(tree)) == (str(tree), str(tree), str(repository))
        assert is_seen(str(repository), str(tree))
        assert not is_seen(str(tree), str(repository))
    assert not is_seen(str(beside), str(inside))
    git(repository, "worktree", "move", str(beside), str(repository.parent / "moved"))
    assert main_worktree_of(str(beside)) is None
    assert main_worktree_of(str(repository.parent / "moved")) == str(repository)


def test_worktrees_of_a_bare_repository_share_its_folder(repository: Path) -> None:
    git(repository, "commit", "-q", "--allow-empty", "-m", "x")
    bare, tree = repository.parent / "bare.git", repository.parent / "tree"
    git(repository.parent, "clone", "-q", "--bare", "repo", "bare.git")
    git(bare, "worktree", "add", "-q", str(tree))
    assert main_worktree_of(str(tree)) == str(bare)


def test_repositories_submodules_and_folders_are_no_linked_worktrees(repository: Path) -> None:
    git(repository.parent, "clone", "-q", "repo", "part")
    git(repository.parent / "part", "commit", "-q", "--allow-empty", "-m", "x")
    git(repository, "submodule", "add", "-q", str(repository.parent / "part"), "part")
    for folder in (repository, repository / "part", repository.parent):
        assert main_worktree_of(str(folder)) is None
    assert main_worktree_of(None) is None
    assert main_worktree_of("repo") is None


def test_a_folder_that_claims_to_be_a_worktree_is_not_believed(repository: Path) -> None:
    git(repository, "commit", "-q", "--allow-empty", "-m", "x")
    git(repository, "worktree", "add", "-q", str(repository.parent / "tree"))
    download = repository.parent / "download"
    (download / "claim").mkdir(parents=True)
    (download / "claim/commondir").write_text(f"{repository}/.git\n")
    (download / "claim/gitdir").write_text(f"{download}/.git\n")
    for pointer in (f"{repository}/.git/worktrees/tree", "claim"):
        (download / ".git").write_text(f"gitdir: {pointer}\n")
        assert main_worktree_of(str(download)) is None
