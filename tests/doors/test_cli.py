"""The command line: exit statuses, one-line errors with a hint, `--json`, plain text in a pipe."""

import json
import os
import pty
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path

import click
import pytest

from tests.conftest import Done, Upwell
from upwell.cli.main import COMMAND, GROUPS, PLACES

VERBS = [
    *("demo", "serve", "add", "list", "remove", "remember", "recall", "forget", "restore"),
    *("context", "compress", "read", "config", "doctor", "on", "off"),
]


def complaint(done: Done, code: int) -> str:
    """The one line of a failed command."""
    assert done.code == code, f"exit {done.code}\n{done.out}\n{done.err}"
    assert done.out == ""
    lines = [line for line in done.err.splitlines() if line]
    assert len(lines) == 1, done.err
    assert "Traceback" not in lines[0]
    return lines[0]


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help(upwell: Upwell, verb: str) -> None:
    done = upwell(verb, "--help")
    assert done.code == 0
    assert "Usage" in done.out
    assert verb in upwell("--help").out


@pytest.mark.parametrize(
    "args",
    [
        ("nosuchverb",),
        ("remember",),
        ("recall", "x", "-k", "many"),
        ("forget",),
        ("list", "--nosuchoption"),
        ("add", "x"),
        ("add",),
        ("context", "x", "--door", "window"),
        ("context", "x", "--format", "xml"),
        ("compress", "--strategy", "magic"),
        ("compress", "--max-tokens", "-5"),
        ("config", "nosuch"),
    ],
    ids=" ".join,
)
def test_wrong_usage_is_exit_2_and_one_line(upwell: Upwell, args: tuple[str, ...]) -> None:
    done = upwell(*args, input="some text")
    assert done.code == 2, f"{done.code}\n{done.out}\n{done.err}"
    assert len([line for line in done.err.splitlines() if line]) == 1, done.err


@pytest.mark.parametrize(
    "args",
    [
        ("forget", "no-such-id"),
        ("restore", "no-such-id"),
        ("read", "no-such-key"),
        ("remove", "nobody"),
    ],
    ids=" ".join,
)
def test_a_failure_is_exit_1_and_one_line_with_a_hint(
    upwell: Upwell, args: tuple[str, ...]
) -> None:
    assert args[1] in complaint(upwell(*args), 1)


def test_a_home_with_a_path_that_is_too_long_for_sqlite(upwell: Upwell, tmp_path: Path) -> None:
    home = tmp_path.joinpath("a" * 200, "b" * 200, "c" * 150)
    done = upwell("remember", "the door opens", env={"UPWELL_HOME": str(home)})
    assert done.code == 1
    assert done.err.count("\n") == 1
    assert "its path is too long (set UPWELL_HOME to a folder" in done.err


def test_a_missing_file(upwell: Upwell) -> None:
    assert "file.txt" in complaint(upwell("compress", "/no/such/file.txt"), 2)


def test_servers_are_added_and_removed(upwell: Upwell) -> None:
    assert upwell("list", "--json").json == {"servers": []}
    assert (
        upwell("add", "fs", "--env", "TOKEN=hush", "--", "node", "x.js", "--flag", "a b").code == 0
    )
    (server,) = upwell("list", "--json").json["servers"]
    assert server["name"] == "fs"
    assert "node" in json.dumps(server)
    assert "hush" not in json.dumps(server)
    plain = upwell("list")
    assert "fs" in plain.out
    assert "hush" not in plain.out
    assert upwell("remove", "fs").code == 0
    assert upwell("list", "--json").json == {"servers": []}


def test_a_server_is_not_overwritten_by_accident(upwell: Upwell) -> None:
    assert upwell("add", "fs", "--", "one").code == 0
    assert "fs" in complaint(upwell("add", "fs", "--", "two"), 2)
    assert "one" in upwell("list").out


@pytest.mark.parametrize("name", ["upwell", "a__b", "a b", "", "x" * 65, "a/b", "é"])
def test_an_invalid_name(upwell: Upwell, name: str) -> None:
    done = upwell("add", name, "--", "cmd")
    assert done.code in (1, 2)
    assert upwell("list", "--json").json == {"servers": []}


def test_adding_preserves_the_users_text(upwell: Upwell, home: Path) -> None:
    home.mkdir(mode=0o700)
    written = "# my notes\n[surface]\nmax_count = 7  # seven\n"
    (home / "config.toml").write_text(written)
    assert upwell("add", "fs", "--", "cmd").code == 0
    assert (home / "config.toml").read_text().startswith(written)
    assert upwell("remove", "fs").code == 0
    assert "# seven" in (home / "config.toml").read_text()


def test_config_show_is_toml(upwell: Upwell) -> None:
    shown = tomllib.loads(upwell("config", "show").out)
    assert shown["surface"]["namespace_weights"]["howto"] == {"patterns": 1.5, "learnings": 1.3}
    assert "context_window" not in shown.get("agent", {})


def test_config_show_prints_origins(upwell: Upwell, home: Path) -> None:
    home.mkdir(mode=0o700)
    (home / "config.toml").write_text("[surface]\nmax_count = 7\n")
    shown = upwell("config", "show", "--json", env={"UPWELL_SURFACE__MAX_COUNT": "9"}).json
    assert shown["surface.max_count"] == {
        "value": 9,
        "origin": shown["surface.max_count"]["origin"],
    }
    assert "UPWELL_SURFACE__MAX_COUNT" in shown["surface.max_count"]["origin"]
    shown = upwell("config", "show", "--json").json
    assert shown["surface.max_count"]["value"] == 7
    assert "config.toml" in shown["surface.max_count"]["origin"]
    assert shown["surface.race_ms"]["value"] == 300
    assert shown["surface.race_ms"]["origin"] == "default"


BAD_CONFIGS = {
    "unknown key": ("[surface]\nmax_cuont = 3\n", ["max_cuont", "max_count"]),
    "unknown section": ("[surfaec]\nx = 1\n", ["surfaec", "surface"]),
    "wrong type": ('[surface]\nmax_count = "many"\n', ["surface.max_count"]),
    "no toml": ("[surface\n", ["config.toml"]),
    "no table": ("surface = 5\n", ["surface"]),
    "no command": ("[server.x]\nargs = []\n", ["server.x", "command"]),
    "wrong args": ('[server.x]\ncommand = "c"\nargs = "a"\n', ["server.x.args"]),
    "bad tool table": ('[tool."fs__*"]\nstrategyy = "none"\n', ["strategyy"]),
}


@pytest.mark.parametrize("case", BAD_CONFIGS)
def test_a_bad_configuration_is_reported(upwell: Upwell, home: Path, case: str) -> None:
    text, words = BAD_CONFIGS[case]
    home.mkdir(mode=0o700)
    (home / "config.toml").write_text(text)
    for args in (("config", "check"), ("config", "show")):
        message = complaint(upwell(*args), 1)
        assert [word for word in words if word not in message] == []


def test_a_bad_variable_is_reported(upwell: Upwell) -> None:
    message = complaint(upwell("config", "check", env={"UPWELL_SURFACE__MAX_CUONT": "3"}), 1)
    assert "max_cuont" in message
    assert "UPWELL_SURFACE__MAX_CUONT" in message


def test_secrets_are_masked(upwell: Upwell, home: Path) -> None:
    upwell("add", "fs", "--env", "API_KEY=hush-hush", "--", "cmd")
    for args in (("config", "show"), ("config", "show", "--json"), ("list",), ("doctor",)):
        done = upwell(*args)
        assert "hush-hush" not in done.out + done.err
    assert "***" in upwell("config", "show").out
    assert (home / "config.toml").stat().st_mode & 0o777 == 0o600


def test_doctor_reports_healthy_parts(upwell: Upwell) -> None:
    done = upwell("doctor")
    assert done.code == 0, done.out + done.err
    assert "memory" in done.out
    report = upwell("doctor", "--json").json
    assert report["ok"] is True


def test_doctor_lists_every_mistake_of_the_configuration(upwell: Upwell, home: Path) -> None:
    home.mkdir(mode=0o700)
    (home / "config.toml").write_text("[surface]\nmin_scor = 1\nrace_ms = 'soon'\n")
    done = upwell("doctor")
    assert done.code == 1
    assert "surface.min_scor" in done.out
    assert "surface.race_ms" in done.out
    assert "min_score" in done.err, "the hint names the nearest key"


def test_doctor_reports_faults(upwell: Upwell, home: Path) -> None:
    upwell("add", "gone", "--", "/no/such/program")
    done = upwell("doctor")
    assert done.code == 1
    assert "gone" in done.out + done.err


def test_on_and_off(upwell: Upwell) -> None:
    assert upwell("on").code == 0
    assert upwell("off").code == 0
    assert upwell("off").code == 0
    assert upwell("on").code == 0


def test_a_home_that_cannot_be_written(upwell: Upwell, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    message = complaint(upwell("recall", "x", env={"UPWELL_HOME": str(tmp_path / "file")}), 1)
    assert "UPWELL_HOME" in message


def test_a_pipe_that_closes_early(environment: Mapping[str, str]) -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "upwell", "config", "show"],
        env=environment,
        stdout=write,
        stderr=subprocess.PIPE,
        timeout=30,
    )
    os.close(write)
    assert b"Traceback" not in done.stderr
    assert b"Exception ignored" not in done.stderr


def test_colours_and_boxes_only_on_a_terminal(
    upwell: Upwell, environment: Mapping[str, str]
) -> None:
    upwell("remember", "tides turn twice a day")
    piped = upwell("recall", "tides").out
    assert "\x1b[" not in piped
    parent, child = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "upwell", "recall", "tides"],
        env={**environment, "TERM": "xterm-256color"},
        stdin=subprocess.DEVNULL,
        stdout=child,
        stderr=subprocess.DEVNULL,
    )
    os.close(child)
    shown = b""
    try:
        while chunk := os.read(parent, 65536):
            shown += chunk
    except OSError:
        pass  # Linux reports EIO when the other end is closed
    assert process.wait(30) == 0
    os.close(parent)
    assert b"\x1b[" in shown
    assert b"tides turn" in shown


WRONG_NUMBERS = {
    ("recall", "x", "-k", "high"): "-k is 'high': must be a whole number, 1 to 1000000",
    ("recall", "x", "-k", "0"): "-k is '0': must be a whole number, 1 to 1000000",
    ("stats", "--days", "1.5"): "--days is '1.5': must be a whole number, 1 to 90",
    ("login", "x", "--port", "abc"): "--port is 'abc': must be a whole number",
}


@pytest.mark.parametrize("args", WRONG_NUMBERS)
def test_a_number_option_rejects_other_text(upwell: Upwell, args: tuple[str, ...]) -> None:
    assert WRONG_NUMBERS[args] in complaint(upwell(*args), 2)


def test_no_line_of_a_list_of_commands_is_cut_off(upwell: Upwell) -> None:
    groups = "stm hook daemon inbox learn token rules team config cache".split()
    for group in ((), *zip(groups, strict=True)):
        listing = upwell(*group, "--help", env={"COLUMNS": "80"}).out.split("\n\n", 2)[2]
        assert "..." not in listing, listing


def test_help_names_the_values_to_type(upwell: Upwell) -> None:
    output = upwell("recall", "--help").out
    assert "recall [OPTIONS] [QUERY]..." in output
    assert "-k N" in output
    assert "--namespace TEXT" in output
    for verb in ("recall", "compress", "stats", "import", "login", "learn"):
        output = upwell(verb, "--help").out
        assert not re.search(r"<\w|\bint\b|x>=|list\[|\bstr\b", output), output


def test_every_command_is_in_one_group_of_the_help() -> None:
    assert sum(map(len, GROUPS.values())) == len(PLACES)
    with click.Context(COMMAND) as context:
        for name in PLACES:
            command = COMMAND.get_command(context, name)
            assert command is not None
            assert command.help, name


def test_the_version_names_the_commit(upwell: Upwell) -> None:
    assert re.fullmatch(r"upwell \d+\.\d+\.\d+ \([0-9a-f]{7,}\)\n", upwell("--version").out)


@pytest.mark.parametrize(
    "args", [("add", "files", "npx", "-y", "a server"), ("add", "x", "uvx", "--y")]
)
def test_a_command_without_the_two_dashes_is_repeated_with_them(
    upwell: Upwell, args: tuple[str, ...]
) -> None:
    verb, name, *line = args
    assert f"did you mean `upwell {verb} {name} -- {shlex.join(line)}`?" in complaint(
        upwell(*args), 2
    )


def test_the_shell_completes_commands(upwell: Upwell) -> None:
    asked = {"_UPWELL_COMPLETE": "bash_complete", "COMP_WORDS": "upwell rec", "COMP_CWORD": "1"}
    assert upwell(env=asked).out.split() == ["plain,recall"]
    assert "complete" in upwell(env={"_UPWELL_COMPLETE": "bash_source"}).out
