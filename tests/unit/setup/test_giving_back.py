"""Servers are given back whatever is lost: the record, the backups, `config.toml`, or several."""

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.doors.older import moved_by_init

from upwell.ground.files import Home
from upwell.hosts import server_files
from upwell.hosts.installation import Installation
from upwell.hosts.servers import ServerFile
from upwell.setup.takeover import Clients, GivingBack, compared

FILES = {
    ".claude.json": '{"n": 7, "mcpServers": {"fs": {"type": "stdio", "command": "fs-mcp", '
    '"timeout": 9}, "web": {"type": "http", "url": "https://w.example/mcp"}}}',
    ".codex/config.toml": '# mine\n[mcp_servers.git]   # keep\ncommand = "git-mcp"\n',
    ".cursor/mcp.json": '{"mcpServers": {"fs": {"command": "other-mcp", "env": {"K": "v"}}}}\n',
}
OURS = {name: {"fs", "web"} if "claude" in name else {"git"} for name in FILES} | {
    ".cursor/mcp.json": {"fs"}
}
ALL = {"fs", "web", "git", "fs-cursor"}
Damage = Callable[[Path], object]
LOST_RECORDS: dict[str, Damage] = {
    "gone": lambda path: path.unlink(),
    "empty": lambda path: path.write_text(""),
    "garbage": lambda path: path.write_bytes(b"\0\xff\0"),
    "no entries": lambda path: path.write_text("{}"),
    "another shape": lambda path: path.write_text('{"claude": {"path": 3}, "codex": []}'),
}


@pytest.fixture
def user(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        path = tmp_path / "user" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "user"


@pytest.fixture
def clients(user: Path, tmp_path: Path) -> Clients:
    where = Installation(user_folder=user, environment={}, command=("/opt/upwell", "serve"))
    return Clients(where, Home(tmp_path / "home").prepare())


def take_over(user: Path, tmp_path: Path) -> None:
    moved_by_init(tmp_path / "home", {"HOME": str(user)}, command=("/opt/upwell", "serve"))


def give_back(clients: Clients, *expected: str) -> GivingBack:
    back = clients.giving_back(expected)
    for plan in (*back.plans, *back.settled):
        clients.apply(plan)
    return back


def state(user: Path) -> dict[str, str]:
    return {str(p.relative_to(user)): p.read_text() for p in user.rglob("*") if p.is_file()}


def names(user: Path, name: str) -> set[str]:
    text = (user / name).read_text()
    content = tomllib.loads(text) if name.endswith(".toml") else json.loads(text)
    return set(content.get("mcp_servers" if name.endswith(".toml") else "mcpServers", {}))


def remove_backups(user: Path) -> None:
    for copy in user.rglob("*.upwell-backup*"):
        copy.unlink()


def test_the_record_alone_has_every_server_as_it_was(
    clients: Clients, user: Path, tmp_path: Path
) -> None:
    take_over(user, tmp_path)
    remove_backups(user)
    assert give_back(clients).refused == {}
    claude = json.loads((user / ".claude.json").read_text())
    assert claude == json.loads(FILES[".claude.json"])
    assert {name: names(user, name) for name in FILES} == OURS


@pytest.mark.parametrize("damage", LOST_RECORDS)
def test_without_a_record_the_backups_restore_every_byte(
    clients: Clients, user: Path, tmp_path: Path, damage: str
) -> None:
    take_over(user, tmp_path)
    file = tmp_path / "home" / "clients.json"
    LOST_RECORDS[damage](file)
    assert (str(file) in clients.damage) is (damage not in ("gone", "no entries"))
    back = give_back(clients)
    assert {name: (user / name).read_text() for name in FILES} == FILES
    assert all(plan.source == f"{plan.path}.upwell-backup" for plan in back.plans)


@pytest.mark.parametrize("damage", LOST_RECORDS)
def test_without_record_and_backups_config_toml_gives_the_servers_back(
    clients: Clients, user: Path, tmp_path: Path, damage: str
) -> None:
    take_over(user, tmp_path)
    taken = state(user)
    LOST_RECORDS[damage](tmp_path / "home" / "clients.json")
    remove_backups(user)
    back = give_back(clients)
    assert back.refused == {}
    for name in FILES:
        assert names(user, name) == ALL
        assert (user / f"{name}.upwell-backup").read_text() == taken[name]
    assert all("fs-cursor" in plan.source for plan in back.plans)
    assert clients.missing(ALL, back, done=True) == []


def test_an_edited_file_gets_the_servers_of_its_own_backup(
    clients: Clients, user: Path, tmp_path: Path
) -> None:
    take_over(user, tmp_path)
    (tmp_path / "home" / "clients.json").unlink()
    for name in FILES:
        text = (user / name).read_text()
        edited = text.replace('"n": 7', '"n": 8').replace("# mine", "# my own")
        (user / name).write_text(edited + "\n")
    give_back(clients)
    assert {name: names(user, name) for name in FILES} == OURS
    assert json.loads((user / ".claude.json").read_text())["n"] == 8


def test_an_old_backup_restores_only_what_upwell_still_has(
    clients: Clients, user: Path, tmp_path: Path
) -> None:
    old = '{"n": 1, "mcpServers": {"gone": {"command": "gone-mcp"}, "fs": {"command": "fs-mcp"}}}'
    (user / ".claude.json.upwell-backup").write_text(old)
    take_over(user, tmp_path)
    (tmp_path / "home" / "clients.json").unlink()
    (user / ".claude.json.upwell-backup.1").unlink()
    give_back(clients)
    assert names(user, ".claude.json") == {"fs"}


@pytest.mark.parametrize("content", ["", "{}", "{", '{"mcpServers": {}}'])
def test_a_damaged_backup_is_not_restored(
    clients: Clients, user: Path, content: str, tmp_path: Path
) -> None:
    take_over(user, tmp_path)
    for copy in user.rglob("*.upwell-backup"):
        copy.write_text(content)
    give_back(clients)
    assert {name: names(user, name) for name in FILES} == OURS


def test_a_server_that_is_nowhere_leaves_every_file_as_it_is(
    clients: Clients, user: Path, tmp_path: Path
) -> None:
    take_over(user, tmp_path)
    remove_backups(user)
    for name in ("clients.json", "config.toml"):
        (tmp_path / "home" / name).unlink()
    before = state(user)
    back = give_back(clients, "fs", "web")
    assert back.plans == []
    assert back.refused.keys() == {str(user / name) for name in FILES}
    assert all("upwell took fs, web" in why for why in back.refused.values())
    assert state(user) == before
    assert give_back(clients).refused.keys() == back.refused.keys(), "without names as well"


def test_a_server_that_config_toml_lost_is_restored_from_the_backup(
    clients: Clients, user: Path, tmp_path: Path
) -> None:
    take_over(user, tmp_path)
    for name in ("clients.json", "config.toml"):
        (tmp_path / "home" / name).unlink()
    give_back(clients, *ALL)
    assert {name: (user / name).read_text() for name in FILES} == FILES


def test_what_no_agent_has_is_missing(clients: Clients, user: Path, tmp_path: Path) -> None:
    take_over(user, tmp_path)
    back = clients.giving_back()
    assert clients.missing(ALL, back, done=False) == []
    assert clients.missing(sorted(ALL), back, done=True) == sorted(ALL)
    (user / ".cursor" / "mcp.json").unlink()
    back = give_back(clients)
    assert clients.missing(sorted(ALL), back, done=True) == ["fs-cursor"]


def test_a_server_that_is_to_stay_with_its_agent_from_now_on_is_not_missing(
    clients: Clients, user: Path, tmp_path: Path
) -> None:
    take_over(user, tmp_path)
    where = Installation(user_folder=user, environment={}, command=("/opt/upwell", "serve"))
    back = give_back(later := Clients(where, Home(tmp_path / "home"), leave=["fs", "git"]))
    assert later.missing(ALL, back, done=True) == []


def test_a_file_without_our_entry_is_left_alone(
    clients: Clients, user: Path, tmp_path: Path
) -> None:
    (user / ".gemini").mkdir()
    (user / ".gemini" / "settings.json").write_text("{}")
    before = state(user)
    back = clients.giving_back()
    assert (back.plans, back.refused) == ([], {})
    assert state(user) == before


@pytest.mark.parametrize("file", server_files().values(), ids=server_files())
@pytest.mark.parametrize(
    "server",
    [
        {"command": "x", "args": ["-v"], "env": {"K": "v"}, "cwd": "/tmp"},
        {"url": "https://x.example/mcp", "headers": {"A": "b"}},
        {"url": "https://x.example/sse", "transport": "sse"},
    ],
    ids=["program", "http", "sse"],
)
def test_an_agent_reads_a_server_of_config_toml_as_the_same_server(
    file: ServerFile, server: dict[str, Any]
) -> None:
    if file.shape == "listed" or file.name == "codex":
        server = {**server, "transport": ""}  # they have no word for it
    (entry,) = file.entries(file.holding({"x": server}))
    assert compared(entry.table) == compared(server)
