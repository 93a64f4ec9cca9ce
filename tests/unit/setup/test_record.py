"""The record of `upwell setup`: runs are joined, and only the changes of setup are reverted."""

from pathlib import Path

import pytest

from upwell.ground.errors import StoreUnwritable
from upwell.hosts.install import digest
from upwell.setup.record import (
    CAPTURE,
    SHORTEN,
    ConfigChange,
    SetupRecord,
    add_to_record,
    config_plan,
    read_record,
    reduce_record,
    switches_on,
)


def test_runs_are_joined_and_the_first_content_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "setup.json"
    first = ConfigChange(before="a = 1\n", written=digest("b = 2\n"), servers=("files",))
    second = ConfigChange(before="b = 2\n", written=digest("c = 3\n"), capture=True)
    add_to_record(path, SetupRecord(hooks=("claude",), config=first, learned={"places": ("x",)}))
    add_to_record(path, SetupRecord(hooks=("codex",), config=second, learned={"places": ("y",)}))
    record = read_record(path)
    assert record
    assert record.hooks == ("claude", "codex")
    assert record.learned == {"places": ("x", "y")}
    assert record.config == ConfigChange(
        before="a = 1\n", written=digest("c = 3\n"), servers=("files",), capture=True
    )


def test_an_edit_between_two_runs_survives(tmp_path: Path) -> None:
    first = ConfigChange(before=None, written=digest("[server.files]\n"), servers=("files",))
    second = ConfigChange(before="[server.files]\nmine = 1\n", written="x", servers=("docs",))
    joined = SetupRecord(config=first).joined(SetupRecord(config=second)).config
    assert joined
    config = tmp_path / "config.toml"
    config.write_text('[server.files]\n[server.docs]\n[server.mine]\ncommand = "m"\n')
    assert joined.after(config) == '[server.mine]\ncommand = "m"\n'


def test_the_findings_outlive_the_rest_of_the_record(tmp_path: Path) -> None:
    path = tmp_path / "setup.json"
    add_to_record(path, SetupRecord(clients=("cursor",), learned={"places": ("x",)}))
    reduce_record(path, undone=True)
    assert read_record(path) == SetupRecord(learned={"places": ("x",)})
    reduce_record(path, forgotten=True)
    assert read_record(path) is None


def test_a_damaged_record_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "setup.json"
    path.write_text("[]")
    with pytest.raises(StoreUnwritable, match=r"setup\.json"):
        read_record(path)


@pytest.mark.parametrize("decided", ["true", "false"])
def test_capture_stays_as_the_user_decided(decided: str) -> None:
    before = f"[hook]\ncapture = {decided}\n"
    plan = config_plan(Path("config.toml"), before, before)
    assert not plan.changes
    assert not switches_on(plan, CAPTURE)


def test_capture_is_switched_on_where_the_user_has_not_decided() -> None:
    plan = config_plan(Path("config.toml"), None, None)
    assert plan.after == "[hook]\ncapture = true\n"
    assert switches_on(plan, CAPTURE)


def test_shortening_is_switched_on_for_agents_only_when_asked_for() -> None:
    assert not switches_on(config_plan(Path("config.toml"), None, None), SHORTEN)
    plan = config_plan(Path("config.toml"), None, None, shorten=["claude"])
    assert plan.after == '[hook]\ncapture = true\ncompress = ["claude"]\n'
    assert switches_on(plan, SHORTEN)


def test_undoing_takes_shortening_out_of_an_edited_file(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text('[hook]\ncapture = true\ncompress = ["claude"]\nport = 900\n')
    change = ConfigChange(written="another", capture=True, shorten=True)
    assert change.after(path) == "[hook]\nport = 900\n"


def test_a_server_that_is_kept_is_removed_by_the_next_undo(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    text = '[server.a]\ncommand = "a"\n\n[server.b]\ncommand = "b"\n\n[hook]\ncapture = true\n'
    path.write_text(text)
    change = ConfigChange(written=digest(text), servers=("a", "b"), capture=True)
    kept = change.after(path, ["b"])
    assert kept == '[server.b]\ncommand = "b"\n\n'
    path.write_text(kept)
    assert change.after(path) is None, "there was no file before"
    path.write_text("# mine\n" + kept)
    assert (change.after(path) or "").strip() == "# mine"
