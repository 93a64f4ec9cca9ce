"""The memory side never costs the reply, whatever happens to it."""

import asyncio

import pytest

from upwell.gateway.client import NOBODY, Nobody
from upwell.gateway.pipeline import Pipeline
from upwell.gateway.workshop import HEAVY_BYTES
from upwell.ground.errors import UsageError
from upwell.ground.shelf import MemoryShelf
from upwell.ground.types import Hit, Memory, Reply, ToolCall
from upwell.surface.engine import Surfacer
from upwell.surface.options import InjectionMode, Options, SurfaceOptions

CALL = ToolCall(server="fs", tool="read", params=b"{}")
ANSWER = b'{"content":[{"type":"text","text":"1.10"}],"x":1.10}'


class Upstream:
    async def call(self, method, params, client, *, again):
        return Reply(result=ANSWER)


class Somebody(Nobody):
    session = "s"


class Broken:
    async def surface(self, cue):
        raise RuntimeError("a bug")


class SlowRecall:
    """Finds one memory, and takes its time."""

    def __init__(self):
        self.asked = 0
        self.memory = Memory(id="m1", text="the cache reloads on SIGHUP", content_hash="h")

    async def search(self, query, deadline):
        self.asked += 1
        await asyncio.sleep(0.2)
        return [Hit(memory=self.memory, score=0.9)]


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


async def test_what_misses_the_race_is_beside_the_next_reply_about_the_same_file():
    recall = SlowRecall()
    surfacer = Surfacer(recall.search, MemoryShelf(), Options())
    pipeline = Pipeline(
        surfacer,
        as_it_is,
        as_it_is,
        lambda server, tool: SurfaceOptions(race_ms=20),
        paused=lambda session: False,
    )
    call = ToolCall(server="fs", tool="read", params=b"{}", args={"path": "src/cache.py"})
    first = await pipeline.call(call, Upstream(), Somebody())
    assert first.result == ANSWER
    await asyncio.gather(*pipeline._behind)
    second = await pipeline.call(call, Upstream(), Somebody())
    assert b"SIGHUP" in second.result
    assert recall.asked == 1
    third = await pipeline.call(call, Upstream(), Somebody())
    assert third.result == ANSWER
    await surfacer.aclose()


@pytest.mark.parametrize(
    ("mode", "said"), [("prepend", False), ("append", True), ("section", True)]
)
async def test_nothing_is_put_before_what_is_read_on_by_offsets(mode: str, said: bool) -> None:
    surface = SurfaceOptions(race_ms=5_000, injection_mode=InjectionMode(mode))
    surfacer = Surfacer(SlowRecall().search, MemoryShelf(), Options(surface=surface))
    pipeline = Pipeline(
        surfacer,
        as_it_is,
        as_it_is,
        lambda server, tool: surface,
        paused=lambda session: False,
        progressive=lambda server, tool: (server, tool) == ("fs", "read"),
    )
    for tool, speaks in (("read", said), ("open", True)):
        call = ToolCall(server="fs", tool=tool, params=b"{}", args={"path": f"src/{tool}.py"})
        reply = await pipeline.call(call, Upstream(), NOBODY)
        assert (b"SIGHUP" in reply.result) == speaks
    await surfacer.aclose()


class OutOfReach:
    """The store that knows the agent's session does not answer."""

    def known(self, own):
        return own

    async def session(self, own):
        await asyncio.Event().wait()


async def test_a_session_that_cannot_be_looked_up_holds_no_call_up():
    """Nor does it let a later call overtake: each is with its server before anything is awaited."""
    recall = SlowRecall()
    pipeline = Pipeline(
        Surfacer(recall.search, MemoryShelf(), Options()),
        as_it_is,
        as_it_is,
        lambda server, tool: SurfaceOptions(race_ms=20),
        paused=lambda session: False,
        sessions=OutOfReach(),
    )
    arrived: list[str] = []

    class Noting(Upstream):
        async def call(self, method, params, client, *, again):
            arrived.append(params.encode().decode())
            return Reply(result=ANSWER)

    calls = [ToolCall(server="fs", tool="read", params=b'{"n":%d}' % n) for n in range(5)]
    async with asyncio.timeout(5):
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(pipeline.call(c, Noting(), Somebody())) for c in calls]
    assert [task.result().result for task in tasks] == [ANSWER] * 5
    assert arrived == ['{"n":%d}' % n for n in range(5)]


@pytest.mark.parametrize("size", [10, HEAVY_BYTES])
async def test_what_goes_wrong_in_fitting_never_costs_the_result(size):
    """The server has done the call by then."""

    async def broken(call, result):
        raise UsageError("no compression strategy is called 'fast'")

    answer = b'{"content":[{"type":"text","text":"%b"}]}' % (b"x" * size)

    class Long(Upstream):
        async def call(self, method, params, client, *, again):
            return Reply(result=answer)

    pipeline = Pipeline(
        Broken(),
        broken,
        broken,
        lambda server, tool: SurfaceOptions(race_ms=20),
        paused=lambda session: False,
    )
    reply = await pipeline.call(CALL, Long(), NOBODY)
    assert (reply.result, reply.error) == (answer, b"")
