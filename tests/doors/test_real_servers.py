"""Foreign servers behind the gateway, driven by the official SDK's client."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError

from tests.doors.agent import Agent
from tests.doors.conftest import Gateway, Sdk, write_config
from tests.doors.peer import Peer, exact, member
from tests.doors.reading import FOOTER, everything
from tests.doors.servers.data import big_json, big_markdown

MODES = ["legacy", "2026-07-28", "auto"]
LIMITS = {"call_timeout_seconds": 30.0, "connect_timeout_seconds": 20.0}
MOST_CHARS = 5 * 10_000  # `READ_TOKENS`, with five characters a token
Npm = Callable[..., list[str]]

Servers = Mapping[str, list[str]]


def python_server(name: str) -> list[str]:
    return [str(Path(sys.executable).parent / name)]


@pytest.fixture
def files(tmp_path: Path) -> Path:
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "rows.json").write_text(big_json())
    (folder / "guide.md").write_text(big_markdown(), newline="")
    (folder / "small.txt").write_text("short and sweet\n")
    return folder


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repo"
    folder.mkdir()
    env = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    who = ["-c", "user.name=T", "-c", "user.email=t@example.org"]
    (folder / "a.txt").write_text("one\n")
    for args in (["init", "-q"], ["add", "."], [*who, "commit", "-qm", "Found the harbour"]):
        subprocess.run(["git", *args], cwd=folder, env=env, check=True)
    return folder


@pytest.fixture
def servers(npm_servers: Npm, files: Path, repository: Path) -> Servers:
    return {
        "fs": npm_servers("filesystem", files),
        "every": npm_servers("everything"),
        "git": [*python_server("mcp-server-git"), "--repository", str(repository)],
        "time": [*python_server("mcp-server-time"), "--local-timezone", "UTC"],
    }


async def read_all(client: Client, key: str, length: int) -> str:
    parts, offset = [], 0
    while offset < length:
        result = await client.call_tool("upwell__read_more", {"key": key, "offset": offset})
        body, separator, _ = result.content[0].text.rpartition(FOOTER)
        assert separator
        assert body
        parts.append(body)
        offset += len(body)
    return "".join(parts)


def shown(result: Any) -> str:
    return "\n".join(block.text for block in result.content if block.type == "text")


def key_of(result: Any) -> str:
    return shown(result).partition('key="')[2].partition('"')[0]


@pytest.mark.parametrize("mode", MODES)
async def test_four_real_servers_in_one(
    sdk: Sdk, servers: Servers, files: Path, repository: Path, mode: str
) -> None:
    async with sdk(servers, mode=mode, gateway=LIMITS) as client:
        names = {tool.name for tool in (await client.list_tools()).tools}
        assert {"fs__read_text_file", "every__echo", "git__git_log", "time__convert_time"} <= names
        assert "upwell__read_more" in names

        small = await client.call_tool("fs__read_text_file", {"path": str(files / "small.txt")})
        assert small.content[0].text == "short and sweet\n"
        log = await client.call_tool("git__git_log", {"repo_path": str(repository)})
        assert "Found the harbour" in shown(log)
        now = await client.call_tool("time__get_current_time", {"timezone": "UTC"})
        assert "UTC" in shown(now)
        total = await client.call_tool("every__get-sum", {"a": 2, "b": 3})
        assert "5" in shown(total)
        image = await client.call_tool("every__get-tiny-image", {})
        assert [block.type for block in image.content] == ["text", "image", "text"]
        links = await client.call_tool("every__get-resource-links", {"count": 3})
        assert [block.type for block in links.content[1:]] == ["resource_link"] * 3

        for name, original in (("rows.json", big_json()), ("guide.md", big_markdown())):
            result = await client.call_tool("fs__read_text_file", {"path": str(files / name)})
            assert len(shown(result)) < MOST_CHARS
            assert await read_all(client, key_of(result), len(original)) == original


@pytest.mark.parametrize("mode", MODES)
async def test_errors_of_a_real_server(sdk: Sdk, servers: Servers, mode: str, files: Path) -> None:
    async with sdk(servers, mode=mode, gateway=LIMITS) as client:
        refused = await client.call_tool("fs__read_text_file", {"path": "/etc/hostname"})
        assert refused.is_error
        assert "denied" in shown(refused).lower()
        with pytest.raises(MCPError):
            await client.call_tool("nowhere__x", {})
        after = await client.call_tool("fs__read_text_file", {"path": str(files / "small.txt")})
        assert not after.is_error


CALLS = {
    "echo": {"message": "hello"},
    "get-annotated-message": {"messageType": "error", "includeImage": True},
    "get-resource-links": {"count": 4},
    "get-resource-reference": {"resourceType": "Blob", "resourceId": 1},
    "get-structured-content": {"location": "New York"},
    "get-sum": {"a": 1.5, "b": 2},
    "get-tiny-image": {},
}


def test_everything_is_the_same_through_the_gateway(
    gateway: Gateway, direct: Gateway, npm_servers: Npm
) -> None:
    plain = direct(npm_servers("everything"))
    through = gateway(
        {"every": npm_servers("everything")},
        gateway=LIMITS,
        compress={"strategy": "none"},
    )
    through.wait_for_tools("every__echo")
    theirs, ours = listing(plain, ""), listing(through, "every__")
    assert len(theirs) > 10
    assert ours == theirs
    for name, arguments in CALLS.items():
        answer = plain.call_raw(name, json.dumps(arguments))
        got = through.call_raw(f"every__{name}", json.dumps(arguments))
        for part in ("result", "error"):
            assert dict(exact(got)).get(part) == dict(exact(answer)).get(part), name


def listing(peer: Peer, prefix: str) -> dict[str, Any]:
    """The tools of one server, exactly as on the wire, but under the server's own names."""
    peer.result("tools/list")
    collected = {}
    for tool in member(exact(peer.lines[-1]), "result", "tools"):
        name = member(tool, "name")
        if name.startswith(prefix) and not name.startswith("upwell__"):
            rest = tuple(pair for pair in tool if pair[0] != "name")
            collected[name.removeprefix(prefix)] = rest
    return collected


def test_writing_with_a_real_server(gateway: Gateway, npm_servers: Npm, files: Path) -> None:
    peer = gateway({"fs": npm_servers("filesystem", files)}, gateway=LIMITS)
    peer.wait_for_tools("fs__write_file")
    text = "naïve 🌊\r\nsecond\n"
    result = peer.call("fs__write_file", path=str(files / "new.txt"), content=text)
    assert "Successfully" in everything(result)
    assert (files / "new.txt").read_bytes() == text.encode()
    back = peer.call("fs__read_text_file", path=str(files / "new.txt"))
    assert everything(back) == text


async def test_a_large_answer_with_a_question(sdk: Sdk, servers: Servers, files: Path) -> None:
    async with sdk(servers, mode="legacy", gateway=LIMITS) as client:
        await client.list_tools()
        arguments = {"path": str(files / "rows.json"), "_context_query": "which service failed?"}
        assert '"failed"' in shown(await client.call_tool("fs__read_text_file", arguments))


ASKED = {"trigger-sampling-request": {"prompt": "hi"}, "trigger-elicitation-request": {}}


def test_everything_of_the_everything_server_passes(
    gateway: Gateway, direct: Gateway, npm_servers: Npm, environment: Mapping[str, str], home: Path
) -> None:
    """Prompts, resources, templates, completions, questions to the client, logs and progress, the
    same as without upwell.
    """
    every = npm_servers("everything")
    write_config(home, {"every": every}, gateway=LIMITS, compress={"strategy": "none"})
    serve = [sys.executable, "-m", "upwell", "serve"]
    with (
        Agent(every, env=environment) as plain,
        Agent(serve, env=environment) as through,
    ):
        for entry in (plain, through):
            entry.hello()
            entry.wait_for_tools(*[f"{'every__' * (entry is through)}{name}" for name in ASKED])
        assert both(plain, through, "resources/list", "resources") > 5
        assert both(plain, through, "resources/templates/list", "resourceTemplates") >= 2
        named = [(entry["name"], entry) for entry in plain.result("prompts/list")["prompts"]]
        assert len(named) >= 3
        for ours, (name, theirs) in zip(
            through.result("prompts/list")["prompts"], named, strict=True
        ):
            assert ours == {**theirs, "name": f"every__{name}"}
        uri = plain.result("resources/list")["resources"][0]["uri"]
        for entry in (uri, "demo://resource/dynamic/text/3", "demo://nothing"):
            answer = plain.ask("resources/read", {"uri": entry})
            got = through.ask("resources/read", {"uri": entry})
            assert (got.get("error") or timeless(got)) == (answer.get("error") or timeless(answer))
        for name, arguments in ASKED.items():
            reply = [
                entry.call(f"{'every__' * (entry is through)}{name}", 20, **arguments)
                for entry in (plain, through)
            ]
            assert reply[0] == reply[1], name
        for entry in (plain, through):
            entry.wait_until_asked("roots/list")
        assert sorted(entry["method"] for entry in through.requests) == sorted(
            entry["method"] for entry in plain.requests
        )
        long = {"duration": 1, "steps": 2}
        for entry, prefix in ((plain, ""), (through, "every__")):
            params = {"name": f"{prefix}trigger-long-running-operation", "arguments": long}
            entry.result("tools/call", {**params, "_meta": {"progressToken": "p"}}, 20)
            notes = [n["params"] for n in entry.notifications if n["method"].endswith("progress")]
            assert [(n["progressToken"], n["progress"]) for n in notes] == [("p", 1), ("p", 2)]


def timeless(message: dict[str, Any]) -> Any:
    """The contents without the time in them."""
    return re.sub(r"\d{1,2}:\d\d:\d\d( [AP]M)?", "", json.dumps(message["result"]))


def both(plain: Peer, through: Peer, method: str, member: str) -> int:
    """Compare a list with upwell and without. Returns its length."""
    theirs = plain.result(method)[member]
    ours = [
        entry
        for entry in through.result(method)[member]
        if not entry.get("uri", entry.get("uriTemplate")).startswith("upwell://")
    ]
    assert ours == theirs
    return len(theirs)
