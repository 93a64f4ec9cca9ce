"""A wrong setting is ignored and reported once; everything else starts."""

from pathlib import Path

import pytest

from tests.conftest import Upwell
from tests.doors.conftest import Gateway, script, write_config
from tests.doors.hook_events import HOSTS
from tests.doors.hooked import House
from tests.doors.reading import everything

PIERS = "oak elm ash fir yew bay fig nut gum box plum pear lime kiwi date".split()
WINDOW = "UPWELL_AGENT__CONTEXT_WINDOW"
WRONG = {"surface": {"max_cuont": 3, "race_ms": 5_000}, "ltm": {"transport": "streamable_http"}}


def test_the_gateway_runs_with_every_valid_setting(
    gateway: Gateway, home: Path, tmp_path: Path
) -> None:
    servers = {
        "up": script("upstream"),
        "off": {"command": "true", "enabled": "flase"},
    }
    write_config(home, servers, **WRONG)
    peer = gateway()
    peer.wait_for_tools("up__echo")
    assert everything(peer.call("up__echo", text="on")) == "on"
    lines = (tmp_path / "serve-0.stderr").read_text().splitlines()
    told = [line for line in lines if line.startswith("upwell: ignoring an invalid setting: ")]
    assert len(told) == len(lines) == 3
    assert any("surface.max_cuont" in line for line in told)
    assert any("server.off.enabled" in line for line in told)
    assert any("needs ltm.url" in line for line in told)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[surface]\nmax_cuont = 3\n", ("surface.max_cuont", "config.toml:2", "'max_count'?")),
        ("[surfaec]\nx = 1\n", ("surfaec", "config.toml:1", "'surface'?")),
        ('[surface]\nmax_count = "x"\n', ("surface.max_count", "config.toml:2")),
        ("surface = 5\n", ("surface", "config.toml:1")),
        ("[server.x]\nargs = []\n", ("server.x", "config.toml:1")),
        ('[tool."a*"]\nstrategyy = "none"\n', ("strategyy", "config.toml:2")),
        ('[ltm]\ntransport = "sse"\n', ("needs ltm.url",)),
    ],
)
def test_a_command_goes_on_and_says_so_in_one_line(
    upwell: Upwell, home: Path, text: str, words: tuple[str, ...]
) -> None:
    upwell("remember", "The ferry timetable is published on Mondays")
    (home / "config.toml").write_text(text)
    done = upwell("recall", "ferry")
    assert done.code == 0
    assert "published on Mondays" in done.out
    (line,) = [line for line in done.err.splitlines() if "invalid setting" in line]
    assert line.startswith("upwell: ignoring an invalid setting: ")
    assert [word for word in words if word not in line] == []
    assert upwell("config", "check").code == 1


def test_commands_that_use_the_memory_go_on_and_those_that_write_settings_refuse(
    upwell: Upwell, home: Path
) -> None:
    write_config(home, {}, surface={"max_cuont": 3})
    settings = (home / "config.toml").read_text()
    used = ("remember x", "context x", "recall --topics", "explain", "stats", "stats gain", "list")
    for command in (*used, "backup", "rules", "inbox", "inbox review", "learn sessions"):
        done = upwell(*command.split())
        assert done.code == 0, (command, done.err)
        assert done.err.count("ignoring an invalid setting") == 1, command
    refused = ("setup --yes", "setup --only servers --yes", "hook install claude --apply")
    for command in (*refused, "config show"):
        done = upwell(*command.split())
        assert done.code == 1, command
        assert "ignoring" not in done.err
    assert (home / "config.toml").read_text() == settings


def test_a_mistake_in_the_store_stops_a_command(upwell: Upwell, home: Path) -> None:
    """It would read and write another store than the user's."""
    home.mkdir(exist_ok=True)
    (home / "config.toml").write_text("[store]\nurl = 5\n")
    done = upwell("remember", "a note")
    assert done.code == 1
    assert "store.url" in done.err


def test_a_file_that_is_not_toml_stops_every_command(upwell: Upwell, home: Path) -> None:
    write_config(home, {})
    (home / "config.toml").write_text("[surface\n")
    for command in ("recall x", "stats", "inbox", "config check"):
        done = upwell(*command.split())
        assert done.code == 1
        assert "is not TOML" in done.err


def test_a_model_without_a_known_window_is_named(upwell: Upwell) -> None:
    env = {"UPWELL_AGENT__MODEL": "foo-9"}
    done = upwell("config", "check", env=env)
    assert done.code == 0
    assert "no window is known for 'foo-9'" in done.err
    assert "no window is known for 'foo-9'" in upwell("doctor", env=env).out
    for known in ({"UPWELL_AGENT__MODEL": "claude-sonnet-5"}, {**env, WINDOW: "9000"}):
        assert "no window" not in upwell("config", "check", env=known).err


def test_doctor_examines_the_rest(upwell: Upwell, home: Path) -> None:
    write_config(home, {"up": script("upstream")}, **WRONG)
    done = upwell("doctor")
    assert done.code == 1
    parts = [line.split("\t")[0] for line in done.out.splitlines()]
    assert {"config 1", "config 2", "memory", "hooks", "server up"} <= set(parts)


def test_hooks_answer_with_every_valid_setting(tmp_path: Path) -> None:
    house = House(tmp_path)
    house.keep(
        [
            {"id": "ferry", "text": "The ferry timetable is published on Mondays by Ilse Brandt"},
            *({"id": word, "text": f"The tide gauge of pier {word} is blue"} for word in PIERS),
        ]
    )
    (house.home / "config.toml").write_text("[surface]\nmax_cuont = 3\n[hook]\nport = 'x'\n")
    try:
        house.start()
        prompt = HOSTS["claude"].prompt
        assert prompt is not None
        event = prompt(str(house.project), "Who publishes the ferry timetable on Mondays?")
        assert "ferry timetable" in str(house.hook("claude", event=event).json)
        log = (house.home / "log" / "upwell.log").read_text()
        assert log.count("ignoring an invalid setting") == 2
    finally:
        house.stop()


@pytest.mark.parametrize("text", ["[surface\n", "\xff"])
def test_a_file_that_cannot_be_read_stops_the_gateway_with_the_reason(
    gateway: Gateway, home: Path, text: str
) -> None:
    write_config(home, {})
    (home / "config.toml").write_bytes(text.encode("latin-1"))
    peer = gateway()
    answer = peer.ask("tools/list", {})
    assert "is not TOML" in answer["error"]["message"]
