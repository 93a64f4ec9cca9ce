"""An answer is cached only where that is sound, and found only by its principal."""

import asyncio
import dataclasses

import pytest
from msgspec.structs import replace

from upwell.gateway.calls.cache import Cache
from upwell.gateway.clients import Nobody
from upwell.gateway.options import Auth, CacheOptions, ServerOptions, Transport
from upwell.ground.ledger import TtlStore
from upwell.ground.secrets.redact import has_secret
from upwell.ground.types.rpc import Principal, Reply, ToolCall

ANSWER = b'{"content":[{"type":"text","text":"1.10"}]}'
SERVER = ServerOptions(name="fs", command="fs", env={"REGION": "eu"})
CALL = ToolCall(
    server="fs",
    tool="read",
    params=b'{"name":"read","arguments":{"a":1,"b":2}}',
    annotations={"readOnlyHint": True},
    declared="d",
)
KEY = "AKIA" + "Q3EGRDAZ5MFXN2WB"


class Client(Nobody):
    def __init__(self, principal="", capabilities=b"{}"):
        self.principal = Principal(principal)
        self.capabilities = capabilities


class Server:
    """Counts the calls."""

    def __init__(self, reply=None):
        self.reply = reply or Reply(result=ANSWER)
        self.asked = 0

    async def ask(self):
        self.asked += 1
        await asyncio.sleep(0.01)
        return self.reply


@pytest.fixture
def cache():
    options = CacheOptions(tools=("fs__*",))
    return Cache(TtlStore(), b"s" * 32, options, has_secret)


async def asked(cache, server, call=CALL, options=SERVER, client=None):
    reply = await cache.through(call, options, client or Client(), server.ask)
    await cache.aclose()
    return reply


async def test_the_second_call_is_answered_from_the_cache(cache):
    server = Server()
    for _ in range(3):
        assert (await asked(cache, server)).result == ANSWER
    assert server.asked == 1


SAME = [
    b'{"name":"read","arguments":{"b":2,"a":1}}',
    b'{"arguments":{"a":1, "b":2},"name":"read"}',
    b'{"name":"read","arguments":{"\\u0061":1,"b":2}}',
    b'{"name":"read","arguments":{"a":1,"b":2},"_meta":{"progressToken":7,"traceparent":"00-a"}}',
]


@pytest.mark.parametrize("params", SAME)
async def test_order_and_spaces_do_not_count(cache, params):
    server = Server()
    await asked(cache, server)
    await asked(cache, server, replace(CALL, params=params))
    assert server.asked == 1


ARGUMENTS = [
    b'{"a":1.0,"b":2}',
    b'{"a":1e0,"b":2}',
    b'{"a":"1","b":2}',
    b'{"a":[1],"b":2}',
    b'{"a":{"number":"1"},"b":2}',
    b'{"a":true,"b":2}',
    b'{"a":1,"b":2,"c":null}',
    b'{"A":1,"b":2}',
    b'{"a":2,"b":1}',
    b'{"a":9,"a":1,"b":2}',
    b'{"a":1,"a":1,"b":2}',
    '{"a":1,"b":2,"\u00e9":0}'.encode(),
    b'{"a":1,"b":2,"e\\u0301":0}',
]
OTHER_SERVERS = {
    "name": "fs2",
    "command": "fs2",
    "args": ("--root", "/"),
    "env": {"REGION": "us"},
    "cwd": "/elsewhere",
    "url": "https://fs.example",
    "headers": {"Authorization": "Bearer another"},
    "transport": Transport.SSE,
    "auth": Auth.OAUTH,
    "enabled": False,
    "call_timeout_seconds": 5.0,
    "max_in_flight": 3,
    "prefix": False,
}
OTHER = [
    *({"call": replace(CALL, params=b'{"name":"read","arguments":%b}' % one)} for one in ARGUMENTS),
    {"call": replace(CALL, params=b'{"name":"read"}')},
    {"call": replace(CALL, params=CALL.params[:-1] + b',"_meta":{"vendor/tenant":"b"}}')},
    {"call": replace(CALL, declared="another")},
    {"call": replace(CALL, tool="list")},
    *(
        {"options": dataclasses.replace(SERVER, **{name: value})}
        for name, value in OTHER_SERVERS.items()
    ),
    {"client": Client("somebody else")},
    {"client": Client("Somebody")},
    {"client": Client(capabilities=b'{"extensions":{"vendor/ui":{}}}')},
]


def test_every_part_of_a_servers_configuration_is_in_the_key():
    assert set(OTHER_SERVERS) == {field.name for field in dataclasses.fields(ServerOptions)}


async def test_two_different_calls_never_share_an_answer(cache):
    """Each variant differs from all others, and each is found again."""
    server = Server()
    for _ in range(2):
        for other in OTHER:
            await asked(cache, server, **other)
        assert server.asked == len(OTHER)


@pytest.mark.parametrize("number", range(len(OTHER)))
async def test_one_difference_is_a_miss(cache, number):
    server = Server()
    await asked(cache, server)
    await asked(cache, server, **OTHER[number])
    assert server.asked == 2


NEVER = [
    replace(CALL, annotations={}),
    replace(CALL, annotations={"readOnlyHint": False}),
    replace(CALL, annotations={"idempotentHint": True}),
    replace(CALL, server="git"),
    replace(CALL, params=b'{"name":"read","task":{}}'),
    replace(CALL, params=b'{"name":"read","requestState":"x"}'),
]


@pytest.mark.parametrize("number", range(len(NEVER)))
async def test_answers_that_are_never_cached(cache, number):
    server = Server()
    for _ in range(2):
        await asked(cache, server, NEVER[number])
    assert server.asked == 2


UNFIT = [
    Reply(error=b'{"code":1,"message":"no"}'),
    Reply(result=b'{"content":[],"isError":true}'),
    Reply(result=b'{"resultType":"input_required","requestState":"s"}'),
    Reply(result=b'{"task":{"taskId":"1"},"content":[]}'),
    Reply(result=ANSWER, repaired=1),
    Reply(result=b'{"content":[{"type":"text","text":"aws_key = %b"}]}' % KEY.encode()),
    Reply(result=b'{"content":[{"type":"text","text":"%b"}]}' % (b"x" * 1_100_000)),
]


@pytest.mark.parametrize("number", range(len(UNFIT)))
async def test_answers_that_are_not_cached(cache, number):
    server = Server(UNFIT[number])
    for _ in range(2):
        await asked(cache, server)
    assert server.asked == 2


async def test_the_same_calls_at_once_are_made_once(cache):
    server = Server()
    replies = await asyncio.gather(*(asked(cache, server) for _ in range(20)))
    assert {reply.result for reply in replies} == {ANSWER}
    assert server.asked == 1


async def test_a_cancelled_caller_does_not_affect_the_others(cache):
    server = Server()
    first = asyncio.create_task(asked(cache, server))
    second = asyncio.create_task(asked(cache, server))
    await asyncio.sleep(0.001)
    first.cancel()
    assert (await second).result == ANSWER
    assert server.asked == 1
