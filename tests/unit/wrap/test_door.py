"""The daemon's side of a relay, on a home without a daemon."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from upwell.app import Settings, build
from upwell.app.wiring import App
from upwell.ground.background import Receipt
from upwell.hook.daemon import PROTOCOL, WRAP, HookRequest
from upwell.wrap.asking import CALL, LIST, NEW, SAME
from upwell.wrap.door import WrapDoor, server_name

LONG = "".join(f"12:{n % 60:02d} worker-{n % 7} took job {n * 7919 % 10007}\n" for n in range(3000))
ABOUT = json.dumps({"session": "wrap-1", "name": "logs", "cwd": "", "client": "peer"}).encode()
FACTS = b'{"annotations":{"readOnlyHint":true},"schema":false}'
ASKED = b'{"id":1,"method":"tools/call","params":{"name":"tail","arguments":{"n":1.0}}}'
CONFIG = '[tool."logs__whole"]\ncompress.strategy = "none"\n'


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[App]:
    (tmp_path / "config.toml").write_text(CONFIG)
    app = await build(Settings(home=tmp_path, environment={}))
    yield app
    await app.aclose()


@pytest.fixture
async def door(app: App) -> AsyncIterator[WrapDoor]:
    door = WrapDoor(app.pipeline, app.may_shorten, "upwell read", lambda: None)
    yield door
    await door.aclose()


async def answer(door: WrapDoor, what: str, body: bytes) -> bytes:
    request = HookRequest(PROTOCOL, "1.0", WRAP, what, 10_000, 1, len(body))
    return await door.answer(request, body, Receipt())


def response(text: str, head: str = '"jsonrpc":"2.0", "id":1,', tail: str = "") -> bytes:
    block = json.dumps([{"type": "text", "text": text}])
    return f'{{{head}"result":{{"content":{block},"x":1.10}}{tail}}}\r\n'.encode()


@pytest.mark.parametrize(
    ("head", "tail"), [('"jsonrpc":"2.0", "id":1,', ""), ("", ' ,"jsonrpc":"2.0","id":"a}b"')]
)
async def test_only_the_result_of_a_message_is_replaced(
    door: WrapDoor, head: str, tail: str
) -> None:
    whole = response(LONG, head, tail)
    answered = await answer(door, CALL, b"\n".join((ABOUT, FACTS, ASKED, whole)))
    if tail:
        assert answered == SAME, "a brace in the id hides where the result ends"
        return
    assert answered.startswith(NEW + b'{"jsonrpc":"2.0", "id":1,"result":{')
    assert answered.endswith(b"}\r\n")
    assert b'"x":1.10' in answered
    assert b"`upwell read " in answered
    assert len(answered) < len(whole) / 3


@pytest.mark.parametrize("text", ["short", "x" * 3_000])
async def test_a_result_within_its_budget_stays(door: WrapDoor, text: str) -> None:
    body = b"\n".join((ABOUT, FACTS, ASKED, response(text)))
    assert await answer(door, CALL, body) == SAME


async def test_a_tool_that_is_listed_with_its_schema_is_not_shortened(door: WrapDoor) -> None:
    facts = FACTS.replace(b"false", b"true")
    assert await answer(door, CALL, b"\n".join((ABOUT, facts, ASKED, response(LONG)))) == SAME


async def test_a_large_result_is_shortened_without_being_split_here(door: WrapDoor) -> None:
    body = b"\n".join((ABOUT, FACTS, ASKED, response(LONG * 20)))
    answered = await answer(door, CALL, body)
    assert answered.startswith(NEW)
    assert len(answered) < 40_000
    json.loads(answered.removeprefix(NEW))


async def test_the_schemas_of_tools_that_are_never_shortened_stay(door: WrapDoor) -> None:
    answered = await answer(door, LIST, ABOUT + b'\n["whole","tail"]')
    assert json.loads(answered.removeprefix(NEW)) == ["whole"]


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"\n", b"{}", b"null\n\n\n", b"\xff\n\xff\n\xff\n\xff", ABOUT, ABOUT + b"\n\n\n"),
        b"\n".join((ABOUT, FACTS, b"{}", response(LONG)[:-10])),
        b"\n".join((ABOUT, FACTS, ASKED, b"")),
        b"\n".join((ABOUT, FACTS, ASKED, b'{"id":1,"result":7}')),
        b"\n".join((ABOUT, FACTS, ASKED, b'{"id":1,"result":{"a":1}x}')),
        b"\n".join((ABOUT, FACTS, ASKED, b'{"id":1,"error":{"code":1}}')),
        b"\n".join((ABOUT, FACTS, ASKED, b'{"result":{},"x":{},"id":1}')),
        b"\n".join((ABOUT, b"[]", ASKED, response(LONG))),
        b"\n".join((ABOUT, FACTS, b"[1]", response(LONG))),
        b"\n".join((ABOUT, FACTS, ASKED, b'{"id":1,"result":{"content":"' + b"[" * 9_000 + b"}}")),
    ],
)
@pytest.mark.parametrize("what", [CALL, LIST, "other"])
async def test_what_cannot_be_read_passes_as_it_is(door: WrapDoor, what: str, body: bytes) -> None:
    assert await answer(door, what, body) == SAME


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (["npx", "-y", "@modelcontextprotocol/server-filesystem@1.2", "/x"], "server-filesystem"),
        (["uvx", "mcp-server-git", "--repository", "."], "mcp-server-git"),
        (["uv", "run", "tickets.py"], "tickets"),
        (["/usr/bin/python3", "-m", "weather_server"], "weather_server"),
        (["/opt/tools/notes-server", "--port", "1"], "notes-server"),
        (["docker", "run", "-i", "--rm", "mcp/time"], "time"),
        (["node"], "node"),
        (["./Ünï__code.sh"], "n_code_sh"),
        (["npx", "@scope/"], "scope"),
        ([], "server"),
        (["@@@"], "server"),
    ],
)
def test_a_server_is_named_after_its_program_or_package(command: list[str], name: str) -> None:
    assert server_name(command) == name
