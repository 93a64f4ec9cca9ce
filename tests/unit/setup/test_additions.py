"""Settings and servers of another program, added to `config.toml`."""

import tomllib
from pathlib import Path

import pytest

from upwell.ground.errors import ConfigError
from upwell.setup.additions import SET_HERE, Additions

OURS = "# mine\n[surface]  # of mine\nenabled = true\n\n[server.x]\ncommand = 'a'\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "config.toml"
    path.write_text(OURS)
    return path


def accepting(path: Path) -> Additions:
    return Additions(path, lambda content: [])


def test_additions_keep_the_existing_entries(path: Path) -> None:
    accepting(path).write(
        [
            (("surface", "timeout_seconds"), 2),
            (("surface", "templates", "fs__read"), "{path}"),
            (("tool", "fs__read", "compress", "strategy"), "hybrid"),
            (("tool", "fs__list", "compress", "strategy"), "selective"),
            (("server", "fs"), {"command": "npx", "compress": {"strategy": "hybrid"}, "env": {}}),
        ]
    )
    written = path.read_text()
    assert written.startswith("# mine\n[surface]  # of mine\nenabled = true\n")
    assert tomllib.loads(written) == {
        "surface": {"enabled": True, "timeout_seconds": 2, "templates": {"fs__read": "{path}"}},
        "server": {
            "x": {"command": "a"},
            "fs": {"command": "npx", "compress": {"strategy": "hybrid"}},
        },
        "tool": {
            "fs__read": {"compress": {"strategy": "hybrid"}},
            "fs__list": {"compress": {"strategy": "selective"}},
        },
    }


def test_a_file_that_does_not_exist_is_created(tmp_path: Path) -> None:
    accepting(tmp_path / "config.toml").write([(("agent", "model"), "m")])
    assert tomllib.loads((tmp_path / "config.toml").read_text()) == {"agent": {"model": "m"}}


def test_the_users_own_settings_win(path: Path) -> None:
    additions = accepting(path)
    assert additions.obstacle(("surface", "enabled"), False) == SET_HERE
    assert additions.obstacle(("surface", "race_ms"), 1) == ""
    additions.write([(("surface", "enabled"), False), (("server", "x"), {"command": "b"})])
    assert path.read_text() == OURS


def test_a_value_in_the_place_of_a_section_is_left_alone(path: Path) -> None:
    path.write_text("surface = 3\n")
    assert accepting(path).obstacle(("surface", "enabled"), True) == SET_HERE
    accepting(path).write([(("surface", "enabled"), True)])
    assert path.read_text() == "surface = 3\n"


def test_only_a_new_mistake_is_an_obstacle(path: Path) -> None:
    def mistakes_in(content: str) -> list[ConfigError]:
        old = [ConfigError("an old mistake")]
        return [*old, ConfigError("too long", hint="shorten it")] if "long" in content else old

    additions = Additions(path, mistakes_in)
    assert additions.obstacle(("surface", "x"), "short") == ""
    refused = additions.obstacle(("surface", "x"), "long")
    assert refused == "upwell does not accept it: shorten it"
    assert path.read_text() == OURS


def test_a_file_that_is_not_toml_is_left_alone(path: Path) -> None:
    path.write_text("[")
    with pytest.raises(ConfigError, match="not TOML"):
        accepting(path).write([(("surface", "enabled"), True)])
    assert path.read_text() == "["
