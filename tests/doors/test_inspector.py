"""A session of the official inspector's command line looks the same through the gateway.

`inspector --cli` is a separate program on top of the official TypeScript client. Each request is
made twice: to the server itself, and to `upwell serve` with only that server in its home. Apart
from a field that only one era has, just three things may differ: the `{server}__` prefix of names,
the entries that upwell adds, and the `outputSchema` of tools whose results may be shortened
(docs/decisions.md, structuredContent).
"""

import json
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.doors.npm import install

PREFIX = "every__"
OWN_TOOL = "upwell__"
OWN_RESOURCE = "upwell://"
OWN_TOOLS = {"read_more", "memory_context", "add_memory", "search_memory", "feedback"}
"""Some of upwell's own tools: they must be listed before our tools are left out of a comparison."""
DEADLINE = 90
TIME_OF_DAY = re.compile(r"\d{1,2}:\d\d:\d\d( [AP]M)?")


@dataclass(frozen=True)
class Session:
    """The output and exit status of the inspector."""

    code: int
    out: Any
    err: Any


Inspect = Callable[..., tuple[Session, Session]]


@pytest.fixture
def inspect(environment: Mapping[str, str], home: Path, tmp_path: Path) -> Inspect:
    """`inspect("--method", "tools/list")` returns the output directly and through upwell. `@`
    stands for the prefix of names, which only upwell adds."""
    install.ensure()
    server = install.server("everything")
    command = [sys.executable, "-m", "upwell"]
    added = subprocess.run(
        [*command, "add", "every", "--", *server],
        env=environment,
        capture_output=True,
        timeout=DEADLINE,
        check=False,
    )
    assert added.returncode == 0, added.stderr

    def run(name: str, target: Sequence[str], asked: Sequence[str]) -> Session:
        user = tmp_path / name
        user.mkdir()
        done = subprocess.run(
            [*install.inspector(), "--cli", "-q", *target, *asked],
            env={**environment, "HOME": str(user)},
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=DEADLINE,
            check=False,
        )
        return Session(done.returncode, decoded(done.stdout), decoded(done.stderr))

    def both(*asked: str) -> tuple[Session, Session]:
        through = [*command, "serve", "-e", f"UPWELL_HOME={home}"]
        with ThreadPoolExecutor(2) as pool:
            theirs = pool.submit(
                run, "direct", server, [entry.removeprefix("@") for entry in asked]
            )
            ours = pool.submit(run, "upwell", through, [named(entry) for entry in asked])
            return theirs.result(), ours.result()

    return both


def named(one: str) -> str:
    return PREFIX + one[1:] if one.startswith("@") else one


def decoded(printed: str) -> Any:
    """The JSON that was printed, else the text."""
    try:
        return json.loads(printed)
    except ValueError:
        return printed


def unprefixed(value: Any) -> Any:
    """The value with every name as the server has it."""
    if isinstance(value, str):
        return value.replace(PREFIX, "")
    if isinstance(value, dict):
        return {name: unprefixed(item) for name, item in value.items()}
    return [unprefixed(item) for item in value] if isinstance(value, list) else value


def same(asked: tuple[Session, Session]) -> Session:
    """Assert that both outputs are equal except for names. Returns the output."""
    theirs, ours = asked
    assert (ours.code, unprefixed(ours.out), unprefixed(ours.err)) == (
        theirs.code,
        theirs.out,
        theirs.err,
    )
    return theirs


LEFT_OUT = {"legacy": {"outputSchema"}, "auto": {"outputSchema", "execution"}}
"""The fields that a tool lacks through upwell, by the era that the inspector asks for. If that is
the newest one, upwell speaks it, but the server still speaks the older one. Tools of the newest era
have no `execution`, so the inspector drops that field.
"""
CALLS = [
    ("echo", {"message": "héllo 🌊"}),
    ("get-structured-content", {"location": "New York"}),
    ("get-annotated-message", {"messageType": "error", "includeImage": True}),
    ("get-resource-links", {"count": 3}),
    ("get-tiny-image", {}),
]


@pytest.mark.slow
@pytest.mark.parametrize("era", LEFT_OUT)
def test_tools_are_listed_the_same(inspect: Inspect, era: str) -> None:
    theirs, ours = inspect("--method", "tools/list", "--protocol-era", era)
    assert (ours.code, ours.err) == (theirs.code, theirs.err) == (0, "")
    listed = [tool for tool in ours.out["tools"] if not tool["name"].startswith(OWN_TOOL)]
    own = {tool["name"].removeprefix(OWN_TOOL) for tool in ours.out["tools"]} - {
        tool["name"] for tool in listed
    }
    assert own >= OWN_TOOLS
    assert len(theirs.out["tools"]) > 10
    assert [unprefixed(tool) for tool in listed] == [
        {name: value for name, value in tool.items() if name not in LEFT_OUT[era]}
        for tool in theirs.out["tools"]
    ]
    assert any("outputSchema" in tool for tool in theirs.out["tools"])


@pytest.mark.slow
@pytest.mark.parametrize(("tool", "arguments"), CALLS, ids=[tool for tool, _ in CALLS])
def test_a_call_shows_the_same(inspect: Inspect, tool: str, arguments: Any) -> None:
    options = ["--tool-args-json", json.dumps(arguments)]
    seen = same(inspect("--method", "tools/call", "--tool-name", f"@{tool}", *options))
    assert seen.code == 0
    assert seen.out["content"]


ERRORS = {
    "a tool that is not there": ["tools/call", "--tool-name", "@nothing"],
    "arguments that do not fit": ["tools/call", "--tool-name", "@get-sum", "--tool-arg", "a=x"],
    "a resource that is not there": ["resources/read", "--uri", "demo://nothing"],
    "a prompt that is not there": ["prompts/get", "--prompt-name", "@nothing"],
    "a prompt without what it needs": ["prompts/get", "--prompt-name", "@args-prompt"],
}


@pytest.mark.slow
@pytest.mark.parametrize("asked", ERRORS.values(), ids=ERRORS)
def test_an_error_shows_the_same(inspect: Inspect, asked: Sequence[str]) -> None:
    seen = same(inspect("--method", *asked))
    assert seen.code != 0 or seen.out.get("isError") is True


@pytest.mark.slow
def test_resources_are_listed_the_same(inspect: Inspect) -> None:
    theirs, ours = inspect("--method", "resources/list")
    assert len(theirs.out["resources"]) > 5
    stored = [
        resource
        for resource in ours.out["resources"]
        if not resource["uri"].startswith(OWN_RESOURCE)
    ]
    own = [resource["uri"] for resource in ours.out["resources"] if resource not in stored]
    assert (stored, own) == (theirs.out["resources"], ["upwell://topics"])


@pytest.mark.slow
@pytest.mark.parametrize("number", [1, 2])
def test_a_resource_reads_the_same(inspect: Inspect, number: int) -> None:
    kind = "text" if number == 1 else "blob"
    uri = f"demo://resource/dynamic/{kind}/{number}"
    theirs, ours = inspect("--method", "resources/read", "--uri", uri)
    assert theirs.out["contents"][0]["uri"] == uri
    if kind == "text":
        theirs, ours = timeless(theirs), timeless(ours)
    else:
        for entry in (theirs, ours):
            assert len(entry.out["contents"][0].pop("blob")) > 20
    same((theirs, ours))


def timeless(session: Session) -> Session:
    """The contents without the time that the server writes into them."""
    return Session(
        session.code, json.loads(TIME_OF_DAY.sub("", json.dumps(session.out))), session.err
    )


@pytest.mark.slow
@pytest.mark.parametrize("asked", ["prompts/list", "logging/setLevel --log-level debug"])
def test_everything_else_shows_the_same(inspect: Inspect, asked: str) -> None:
    assert same(inspect("--method", *asked.split())).code == 0


@pytest.mark.slow
def test_a_prompt_shows_the_same(inspect: Inspect) -> None:
    options = ["--prompt-args", "city=Paris", "state=Texas"]
    seen = same(inspect("--method", "prompts/get", "--prompt-name", "@args-prompt", *options))
    assert "Paris" in seen.out["messages"][0]["content"]["text"]
