"""The memory side never costs the reply, whatever happens to it."""

import asyncio

import pytest

from upwell.gateway.client import NOBODY
from upwell.gateway.pipeline import Pipeline
from upwell.ground.types import Reply, ToolCall
from upwell.surface.options import SurfaceOptions

CALL = ToolCall(server="fs", tool="read", params=b"{}")
ANSWER = b'{"content":[{"type":"text","text":"1.10"}],"x":1.10}'


class Upstream:
    async def call(self, method, params, client, *, again):
        return Reply(result=ANSWER)


class Broken:
    async def surface(self, cue):
        raise RuntimeError("a bug")


class Stuck:
    async def surface(self, cue):
        await asyncio.Event().wait()


async def as_it_is(call, result):
    return result


@pytest.mark.parametrize("surfacer", [Broken(), Stuck()])
async def test_the_reply_arrives_as_it_was_sent(surfacer):
    pipeline = Pipeline(
        surfacer,
        as_it_is,
        as_it_is,
        lambda server, tool: SurfaceOptions(race_ms=20),
        paused=lambda session: False,
    )
    async with asyncio.timeout(5):
        reply = await pipeline.call(CALL, Upstream(), NOBODY)
    assert reply.result == ANSWER
