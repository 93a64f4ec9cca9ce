"""Servers wrapped in their places, and given back from the agent's own file alone."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from upwell.ground.errors import ConfigError
from upwell.hosts import server_files
from upwell.hosts.installation import Installation
from upwell.hosts.plugins import WrappedServers
from upwell.hosts.servers import words_of, wrapped_words

CLAUDE = """{
  // the first server
  "mcpServers": {
    "files": {
      "type": "stdio",
      "command": "npx", // from npm
      "args": [
        "-y", "server-files", // the folder comes next
        "."
      ],
      "env": {"TOKEN": "é"},
      "trust": true
    },
    "bare": {"command": "bare-server"},
    "far": {"type": "http", "url": "https://mcp.example.org/mcp"}
  },
  "projects": {
    "/work/one": {"mcpServers": {"local": {"command": "uvx", "args": ["local-server"]}}},
    "/work/two": {"history": []}
  },
  "numStartups": 1e400
}
"""
CODEX = """model = "o" # mine

# above files
[mcp_servers.files] # the files
command = "uvx" # via uv
args = [
  "server-files", # the package
  ".",
]
env = { TOKEN = "x" }

[mcp_servers."with space"]
command = "bare-server"
args = []

# above projects
[projects."/work/one"]
trust_level = "trusted"
"""
OPENCODE = """{
\t"mcp": {
\t\t"files": {"type": "local", "command": ["npx", "-y", "files"], "environment": {"A": "1"}},
\t\t"far": {"type": "remote", "url": "https://mcp.example.org/mcp"},
\t},
}
"""
TEXTS = {"claude": CLAUDE, "codex": CODEX, "opencode": OPENCODE}


def user(**environment: str) -> Installation:
    command = ("/opt/upwell",)
    return Installation(user_folder=Path("/home/u"), environment=environment, command=command)


def wrapped(agent: str, text: str = "", **environment: str) -> tuple[WrappedServers, str]:
    file = WrappedServers(server_files()[agent])
    return file, file.with_ours(text or TEXTS[agent], user(**environment))


def servers(agent: str, text: str) -> dict[str, Any]:
    raw = server_files()[agent].raw_entries(text)
    return {name: entry for _, name, entry in raw}


def test_only_the_command_changes() -> None:
    _, text = wrapped("claude")
    after = servers("claude", text)
    assert after["files"]["command"] == "/opt/upwell"
    options = ["wrap", "--name", "files", "--"]
    assert after["files"]["args"] == [*options, "npx", "-y", "server-files", "."]
    assert after["files"]["env"] == {"TOKEN": "é"}
    assert after["bare"]["args"][-2:] == ["--", "bare-server"]
    assert after["local"]["args"][-2:] == ["uvx", "local-server"]
    assert after["far"] == {"type": "http", "url": "https://mcp.example.org/mcp"}
    own = {"type": "stdio", "command": "/opt/upwell", "args": ["serve", "--tools"]}
    assert after.pop("upwell") == own
    assert list(after) == list(servers("claude", CLAUDE))
    for comment in ("// the first server", "// from npm", "// the folder comes next", "1e400"):
        assert comment in text


def test_comments_of_toml_stay_in_their_places() -> None:
    _, text = wrapped("codex")
    after = tomllib.loads(text)
    command = after["mcp_servers"]["files"]
    assert [command["command"], *command["args"]][-4:] == ["--", "uvx", "server-files", "."]
    for line in ("# via uv", '"server-files", # the package', "# above projects\n[projects."):
        assert line in text


@pytest.mark.parametrize("agent", TEXTS)
def test_the_agents_own_file_is_enough_to_undo(agent: str) -> None:
    file, text = wrapped(agent)
    assert text != TEXTS[agent]
    assert file.with_ours(text, user()) == text, "nothing is wrapped twice"
    restored = file.without_ours(text)
    assert restored == TEXTS[agent]


@pytest.mark.parametrize("rest", ["", "args = []\n", 'env = { A = "1" }\n\n[other]\nx = 1\n'])
def test_arguments_that_toml_did_not_have_go_again(rest: str) -> None:
    text = f'[mcp_servers.bare]\ncommand = "bare-server"\n{rest}'
    file, after = wrapped("codex", text)
    assert "--" in tomllib.loads(after)["mcp_servers"]["bare"]["args"]
    assert file.without_ours(after) == text


@pytest.mark.parametrize("allowed", ['["git"]', '[\n    "git", // mine\n    "fs"\n  ]'])
def test_gemini_may_use_our_tools_where_it_may_use_only_some_servers(allowed: str) -> None:
    text = (
        f'{{\n  "mcp": {{"allowed": {allowed}}},\n  "mcpServers": {{"git": {{"url": "u"}}}}\n}}\n'
    )
    file, after = wrapped("gemini", text)
    names = file.servers.format.value(after)["mcp"]["allowed"]
    assert names[0] == "upwell"
    assert "git" in names
    assert file.without_ours(after) == text


@pytest.mark.parametrize("mcp", ['{"allowed": []}', '{"allowed": "git"}', '{"excluded": []}', "[]"])
def test_a_list_that_gemini_does_not_have_is_not_begun(mcp: str) -> None:
    text = f'{{"mcp": {mcp}, "mcpServers": {{}}}}'
    assert f'"mcp": {mcp}' in wrapped("gemini", text)[1]


def test_windows_line_endings_stay() -> None:
    text = CLAUDE.replace("\n", "\r\n")
    file, after = wrapped("claude", text)
    assert "\n" not in after.replace("\r\n", "")
    assert "\n" not in file.without_ours(after).replace("\r\n", "")


ODD = [
    ("claude", '{"mcpServers": {"s": {"command": "x", "args": null}}}'),
    ("claude", '{"mcpServers": {"s": {"args": ["a", "b"], "env": {}, "command": "x"}}}'),
    ("claude", '{"mcpServers": {"s": {"command": "x", "args": [ /* none */ ], }, }, }'),
    ("claude", '{"mcpServers": {"s": {"command": "x",\n\t"args": [\n\t\t"a",\n\t],}}}'),
    ("claude", '{"mcpServers": {"s": {"command": "x", "args": ["--", "wrap", "x", "x"]}}}'),
    ("claude", '{"mcpServers": {"s": {"command": "a"}, "s": {"command": "x", "args": ["é"]}}}'),
    ("claude", '{"mcpServers": {"s": {"command": "x", "command": "y", "args": ["\\u00e9"]}}}'),
    ("opencode", '{"mcp": {"s": {"type": "local", "command": ["x"]}}}'),
    ("opencode", '{"mcp": {"s": {"command": [\n // first\n "x", // program\n "y"]}}}'),
    ("codex", '[mcp_servers]\ns = { command = "x", args = ["y"] }\n'),
    ("codex", 'mcp_servers.s.command = "x"\n'),
    ("codex", '[mcp_servers.s]\nargs = ["a", "b"]\ncommand = "x"\n[mcp_servers.s.env]\nA = "1"\n'),
    ("codex", '[mcp_servers.s]\ncommand = "x"\nargs = ""\n'),
    ("codex", '\ufeff[mcp_servers.s]\r\ncommand = "x"\r\nargs = ["a"]\r\n# end\r\n'),
]


@pytest.mark.parametrize(("agent", "text"), ODD)
def test_odd_entries_keep_their_command_and_get_it_back(agent: str, text: str) -> None:
    original = servers(agent, text)["s"]
    file, after = wrapped(agent, text)
    assert words_of(servers(agent, after)["s"])[-len(words_of(original)) :] == words_of(original)
    assert wrapped_words(servers(agent, after)["s"]) == words_of(original)
    restored = file.without_ours(after)
    assert words_of(servers(agent, restored)["s"]) == words_of(original)
    if '"args": null' not in text and agent == "claude":
        assert restored == text
    if "\r\n" in text:
        assert restored == text


def test_toml_that_cannot_be_edited_safely_is_refused() -> None:
    text = '[mcp_servers.s.env]\nA = "1"\n[mcp_servers.s]\ncommand = "x"\n'
    with pytest.raises(ConfigError, match="cannot be edited safely"):
        wrapped("codex", text)


REASONS = {
    "its entry is not a table": 5,
    "it has no command": {"command": ""},
    "it is upwell": {"command": "/bin/upwell", "args": ["serve"]},
    "it is wrapped already": {"command": "upwell", "args": ["wrap", "--", "x"]},
    "it is at an address, where the agent itself signs in": {"url": "https://a.example"},
    "only the agent can fill in ${BIN}": {"command": "${BIN}/server"},
}


@pytest.mark.parametrize("reason", REASONS)
def test_a_server_is_left_for_a_reason(reason: str) -> None:
    file = WrappedServers(server_files()["claude"])
    assert file.left("s", REASONS[reason]) == reason
    text = json.dumps({"mcpServers": {"s": REASONS[reason]}})
    assert servers("claude", file.with_ours(text, user()))["s"] == REASONS[reason]


def test_a_file_that_only_had_our_tools_is_removed() -> None:
    file, after = wrapped("cursor", "{}")
    assert list(servers("cursor", after)) == ["upwell"]
    assert file.without_ours(after) == ""


COMMANDS = [
    (["upwell", "wrap", "--", "npx", "-y", "x"], ["npx", "-y", "x"]),
    (["/a/upwell", "wrap", "--name=--", "--home", "--", "--", "x"], ["x"]),
    (["python3", "-P", "-m", "upwell", "wrap", "--", "x", "--", "y"], ["x", "--", "y"]),
    (["npx", "inspector", "upwell", "wrap", "--", "x"], []),
    (["upwell", "wrap", "--url", "https://a.example"], []),
    (["upwell", "serve"], []),
    (["upwell"], []),
]


@pytest.mark.parametrize(("words", "original"), COMMANDS)
def test_the_original_command_is_found(words: list[str], original: list[str]) -> None:
    assert wrapped_words({"command": words[0], "args": words[1:]}) == original
    assert wrapped_words({"command": words}) == original


def test_a_wrapped_server_does_not_move_behind_the_gateway() -> None:
    entry = server_files()["claude"].entry(
        "s", {"command": "upwell", "args": ["wrap", "--", "npx"]}
    )
    assert not entry.table
    assert "upwell wrap" in entry.left
    assert not entry.ours
