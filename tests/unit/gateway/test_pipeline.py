"""Whatever goes wrong with memories, the reply to a call still arrives."""

import asyncio
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from upwell.gateway.calls import pipeline as pipelines
from upwell.gateway.calls.pipeline import CallSurfacing, Fitting, Pipeline
from upwell.gateway.calls.worker_pool import HEAVY_BYTES
from upwell.gateway.clients import NOBODY, Nobody
from upwell.ground.background import Receipt
from upwell.ground.errors import UsageError
from upwell.ground.ledger import TtlStore
from upwell.ground.types.memory import Found, Hit, Memory
from upwell.ground.types.rpc import Reply, ToolCall
from upwell.surface.options import InjectionMode, PipelineOptions, SurfaceOptions
from upwell.surface.pipeline import Surfacer
from upwell.testing import FakeRecall
from upwell.wire.rawjson import loads

CALL = ToolCall(server="fs", tool="read", params=b"{}")
ANSWER = b'{"content":[{"type":"text","text":"1.10"}],"x":1.10}'


class Upstream:
    def __init__(self, answer=ANSWER, seconds=0.0):
        self.answer, self.seconds = answer, seconds

    async def call(self, method, params, client, *, idempotent):
        await asyncio.sleep(self.seconds)
        return Reply(result=self.answer)


class Somebody(Nobody):
    session = "s"


class Broken:
    async def offer(self, cue):
        raise RuntimeError("a bug")


class SlowRecall(FakeRecall):
    """Finds one memory, slowly."""

    def __init__(self):
        memory = Memory(id="m1", text="the cache reloads on SIGHUP", content_hash="h")
        super().__init__([Hit(memory=memory, score=0.9)])

    async def search(self, query, deadline):
        result = await super().search(query, deadline)
        await asyncio.sleep(0.2)
        return result


class Stuck:
    async def offer(self, cue):
        await asyncio.Event().wait()


async def unchanged(call, result):
    return result


def never_paused(session):
    return False


def pipeline_of(surfacing, fit=unchanged):
    fitter = SimpleNamespace(fit=fit)
    return Pipeline(Fitting(fitter, fitter), surfacing, is_untouched=never_paused)


def hurried(server, tool):
    return SurfaceOptions(race_ms=20)


@pytest.mark.parametrize("surfacer", [Broken(), Stuck()])
async def test_the_reply_arrives_unchanged(surfacer):
    pipeline = pipeline_of(CallSurfacing(surfacer, hurried))
    async with asyncio.timeout(5):
        reply = await pipeline.call(CALL, Upstream(), NOBODY)
    assert reply.result == ANSWER


async def test_a_late_memory_comes_with_the_next_reply_about_the_same_file():
    recall = SlowRecall()
    surfacer = Surfacer(recall, TtlStore(), PipelineOptions(surface=SurfaceOptions(moments="all")))
    race_ms = [20]
    surfacing = CallSurfacing(surfacer, lambda *_: SurfaceOptions(race_ms=race_ms[-1]))
    pipeline = pipeline_of(surfacing)
    call = ToolCall(server="fs", tool="read", params=b"{}", args={"path": "src/cache.py"})
    first = await pipeline.call(call, Upstream(), Somebody())
    assert first.result == ANSWER
    await surfacing.offers.drain()
    race_ms.append(20_000)
    second = await pipeline.call(call, Upstream(), Somebody())
    assert b"SIGHUP" in second.result
    assert len(recall.asked) == 1
    third = await pipeline.call(call, Upstream(), Somebody())
    assert third.result == ANSWER
    await surfacer.aclose()


@pytest.mark.parametrize(
    ("mode", "said"), [("prepend", False), ("append", True), ("section", True)]
)
async def test_no_memory_precedes_a_reply_that_is_read_by_offsets(mode: str, said: bool) -> None:
    surface = SurfaceOptions(moments="all", race_ms=5_000, injection_mode=InjectionMode(mode))
    surfacer = Surfacer(SlowRecall(), TtlStore(), PipelineOptions(surface=surface))
    surfacing = CallSurfacing(
        surfacer,
        lambda server, tool: surface,
        progressive=lambda server, tool: (server, tool) == ("fs", "read"),
    )
    pipeline = pipeline_of(surfacing)
    for tool, speaks in (("read", said), ("open", True)):
        call = ToolCall(server="fs", tool=tool, params=b"{}", args={"path": f"src/{tool}.py"})
        reply = await pipeline.call(call, Upstream(), NOBODY)
        assert (b"SIGHUP" in reply.result) == speaks
    await surfacer.aclose()


MISSING = b'{"content":[{"type":"text","text":"ENOENT: no such file or directory"}],"isError":true}'
TRIGGER = "file:/settings.toml"


class Placed(FakeRecall):
    """Finds a place for a trigger, and nothing else."""

    async def search(self, query, deadline):
        await super().search(query, deadline)
        memory = Memory(id="p", text="`settings.toml` is at `config/settings.toml`.")
        memory = replace(memory, triggers=(TRIGGER,), content_hash="h")
        hit = Hit(memory=memory, score=0.9, trigger=TRIGGER)
        return Found((hit,) if TRIGGER in query.triggers else ())


@pytest.mark.parametrize(("answer", "is_said"), [(MISSING, True), (ANSWER, False)])
async def test_an_answer_in_vain_is_looked_up_as_well(answer: bytes, is_said: bool) -> None:
    recall = Placed()
    surfacer = Surfacer(recall, TtlStore(), PipelineOptions())
    surfacing = CallSurfacing(surfacer, lambda *_: SurfaceOptions(), cwd="/kitchen")
    args = {"path": "/kitchen/settings.toml"}
    call = ToolCall(server="fs", tool="read_file", params=b"{}", args=args)
    reply = await pipeline_of(surfacing).call(call, Upstream(answer, 0.05), Somebody())
    assert (b"config/settings.toml" in reply.result) is is_said
    assert len(recall.asked) == 1 + is_said
    await surfacer.aclose()


@pytest.mark.parametrize("surfacer", [Broken(), Stuck()])
async def test_a_second_look_costs_no_failed_reply_either(surfacer) -> None:
    pipeline = pipeline_of(CallSurfacing(surfacer, hurried))
    async with asyncio.timeout(5):
        reply = await pipeline.call(CALL, Upstream(MISSING), NOBODY)
    assert reply.result == MISSING


class OutOfReach:
    """The store that knows the agent's session does not answer."""

    def known(self, host, own):
        return own

    async def session(self, host, own):
        await asyncio.Event().wait()


async def test_a_failing_session_lookup_delays_no_call():
    """The calls also stay in order, because each one reaches its server before anything is
    awaited.
    """
    recall = SlowRecall()
    surfacer = Surfacer(recall, TtlStore(), PipelineOptions(surface=SurfaceOptions(moments="all")))
    pipeline = pipeline_of(CallSurfacing(surfacer, hurried, sessions=OutOfReach()))
    arrived: list[str] = []

    class Noting(Upstream):
        async def call(self, method, params, client, *, idempotent):
            arrived.append(params.encode().decode())
            return Reply(result=ANSWER)

    calls = [ToolCall(server="fs", tool="read", params=b'{"n":%d}' % n) for n in range(5)]
    async with asyncio.timeout(5):
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(pipeline.call(c, Noting(), Somebody())) for c in calls]
    assert [task.result().result for task in tasks] == [ANSWER] * 5
    assert arrived == ['{"n":%d}' % n for n in range(5)]


@pytest.mark.parametrize("size", [10, HEAVY_BYTES])
async def test_a_fault_in_fitting_never_costs_the_result(size):
    """The server has already executed the call."""

    async def broken(call, result):
        raise UsageError("no compression strategy is called 'fast'")

    answer = b'{"content":[{"type":"text","text":"%b"}]}' % (b"x" * size)
    pipeline = pipeline_of(CallSurfacing(Broken(), hurried), fit=broken)
    reply = await pipeline.call(CALL, Upstream(answer), NOBODY)
    assert (reply.result, reply.error) == (answer, b"")


class Remote(Somebody):
    """A client whose reply is still to be written."""

    def __init__(self):
        self.receipt = Receipt()


@pytest.mark.parametrize("arrives", [True, False])
async def test_memories_in_a_reply_that_does_not_arrive_are_given_again(arrives):
    recall = SlowRecall()
    surfacer = Surfacer(recall, TtlStore(), PipelineOptions(surface=SurfaceOptions(moments="all")))
    surfacing = CallSurfacing(surfacer, lambda server, tool: SurfaceOptions(race_ms=5_000))
    pipeline, client = pipeline_of(surfacing), Remote()
    call = ToolCall(server="fs", tool="read", params=b"{}", args={"path": "src/cache.py"})
    first = await pipeline.call(call, Upstream(), client)
    assert b"SIGHUP" in first.result
    client.receipt.settle(arrives)
    await surfacing.offers.drain()
    second = await pipeline.call(call, Upstream(), Remote())
    assert (b"SIGHUP" in second.result) is not arrives
    outcomes = [decision["outcome"] for decision in await surfacer.journal.latest(9)]
    assert ("not_delivered" in outcomes) is not arrives
    await surfacer.aclose()


@pytest.mark.parametrize("head", ['{"content":[', '{ "content" : [ ', '{"x":1,"content":['])
async def test_a_result_too_large_to_shorten_passes_whole_with_a_notice(monkeypatch, head):
    monkeypatch.setattr(pipelines, "MAX_FITTED_BYTES", 100)
    result = f'{head}{{"type":"text","text":"{"x" * 200}"}}],"isError":false}}'.encode()
    fitted = await Fitting(None, None).fit(CALL, Reply(result=result))
    blocks = loads(fitted.encode())["content"]
    assert blocks[-1]["text"] == "x" * 200
    if "1" not in head:
        assert "Not shortened" in blocks[0]["text"]
    assert await Fitting(None, None).shortened(CALL, result) is None


async def test_numbers_that_are_not_json_pass_and_are_reported():
    given = b'{"content":[],"structuredContent":{"x":NaN,"y":"NaN"}}'
    fitter = SimpleNamespace(fit=unchanged)
    fitted = await Fitting(fitter, fitter).fit(CALL, Reply(result=given))
    assert fitted.get("structuredContent") == b'{"x":NaN,"y":"NaN"}'
    assert b"NaN or Infinity" in fitted.get("content")
    given = b'{"content":[],"structuredContent":{"y":"NaN"}}'
    fitted = await Fitting(fitter, fitter).fit(CALL, Reply(result=given))
    assert fitted.encode() == given
