"""The record of agents' files with our entries: written first, shared by processes, and never
missed when it is damaged."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from msgspec.structs import replace

from upwell.hosts import HOSTS
from upwell.hosts.install import (
    Installer,
    read_record,
    write_record,
)
from upwell.hosts.installation import Installation

SETTINGS = '{"model": "opus"}\n'


@pytest.fixture
def record(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    return tmp_path / "home" / "hooks.json"


@pytest.fixture
def hooks(tmp_path: Path, record: Path) -> Installer:
    where = Installation(user_folder=tmp_path / "me", environment={}, command=("/x/upwell-hook",))
    hooks = Installer(where, record, {name: host.hooks for name, host in HOSTS.items()})
    path = hooks.path_of("claude")
    path.parent.mkdir(parents=True)
    path.write_text(SETTINGS)
    return hooks


def test_a_record_of_an_older_version_is_read(record: Path, hooks: Installer) -> None:
    hooks.apply(hooks.installing("claude"))
    entry = read_record(record)[0]["claude"]
    older = f'{{"claude": {{"path": "{entry.path}", "written": "{entry.written}", '
    record.write_text(f'{older}"backup": "{entry.backup}"}}}}')
    hooks.apply(hooks.uninstalling("claude"))
    assert hooks.path_of("claude").read_text() == SETTINGS
    assert record.read_text() == "{}"


def test_a_damaged_record_is_named_and_kept(record: Path, hooks: Installer) -> None:
    record.write_text("{")
    assert hooks.damage.startswith(f"{record} is damaged: ")
    hooks.apply(hooks.installing("claude"))
    assert hooks.damage == ""
    (copy,) = record.parent.glob("hooks.json.corrupt-*")
    assert copy.read_text() == "{"


@pytest.mark.parametrize("content", ["", "{}", '{"model": "op'])
def test_a_damaged_backup_does_not_replace_the_settings(hooks: Installer, content: str) -> None:
    Path(hooks.apply(hooks.installing("claude"))).write_text(content)
    hooks.apply(hooks.uninstalling("claude"))
    assert hooks.path_of("claude").read_text() == SETTINGS


@pytest.mark.parametrize("text", ["", "{}", '{"hooks": {}}', '{"hooks": {"Stop": []}}'])
def test_settings_without_our_hooks_are_left_alone(hooks: Installer, text: str) -> None:
    hooks.path_of("claude").write_text(text)
    assert "claude" not in hooks.installed()
    assert not hooks.uninstalling("claude").changes


def test_an_installation_that_only_reached_the_record_is_undone_and_repeated(
    hooks: Installer, record: Path
) -> None:
    path = hooks.path_of("claude")
    backup = hooks.apply(hooks.installing("claude"))
    recorded = record.read_bytes()
    path.write_text(SETTINGS)
    hooks.apply(hooks.uninstalling("claude"))
    assert (record.read_text(), Path(backup).exists()) == ("{}", False)

    record.write_bytes(recorded)
    path.write_text('{"model": "sonnet"}\n')
    hooks.apply(hooks.installing("claude"))
    hooks.apply(hooks.uninstalling("claude"))
    assert path.read_text() == '{"model": "sonnet"}\n'
    assert list(path.parent.iterdir()) == [path]


def test_an_update_that_only_reached_the_record_is_undone(hooks: Installer, record: Path) -> None:
    hooks.apply(hooks.installing("claude"))
    entry = read_record(record)[0]["claude"]
    write_record(record, {"claude": replace(entry, written="new", previous=entry.written)})
    hooks.apply(hooks.uninstalling("claude"))
    assert hooks.path_of("claude").read_text() == SETTINGS


def test_installations_at_the_same_time_are_all_recorded(hooks: Installer, record: Path) -> None:
    plans = [hooks.installing(name) for name in (*HOSTS, "claude")]
    with ThreadPoolExecutor(max_workers=len(plans)) as pool:
        list(pool.map(hooks.apply, plans))
    assert read_record(record)[0].keys() == HOSTS.keys()
