"""Large results are fitted in a process of their own, with the same outcome as here."""

import asyncio
import json
import os
import signal

import pytest
from msgspec.structs import replace
from tests.doors.seeds.model import serving

from upwell.app import Settings, build
from upwell.ground.types.rpc import ToolCall
from upwell.wire.rawjson import NotJson, RawObject, dumps

CALL = ToolCall(server="fs", tool="read", params=b"{}", args={"path": "a.json"}, query="user 4711")


@pytest.fixture
async def app(tmp_path):
    app = await build(Settings(home=tmp_path, environment={"PATH": "/usr/bin:/bin"}))
    yield app
    await app.aclose()


def result_of(text: str) -> bytes:
    return dumps({"content": [{"type": "text", "text": text}], "structuredContent": {"a": 1}})


def records(count: int) -> str:
    return json.dumps([{"id": n, "name": f"user {n}", "note": "n" * 20} for n in range(count)])


async def test_a_worker_fits_a_result_as_this_process_does(app):
    text = records(6000)
    other = await app.worker_pool.fit(CALL, result_of(text))
    here = await app.fitter.fit(CALL, RawObject.parse(result_of(text)))
    assert other == here.encode()
    opened = json.loads(other)
    assert opened["structuredContent"] == {"a": 1}
    key = opened["content"][-1]["text"].partition('key="')[2].partition('"')[0]
    assert await app.texts.read(key) == text


async def test_an_original_with_a_secret_stays_in_this_process(app, tmp_path):
    secret = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"[:36]
    text = records(6000) + f"\ntoken {secret}"
    opened = json.loads(await app.worker_pool.fit(CALL, result_of(text)))
    key = opened["content"][-1]["text"].partition('key="')[2].partition('"')[0]
    assert await app.texts.read(key) == text
    assert "in memory only" in opened["content"][-1]["text"]
    stored = b"".join(path.read_bytes() for path in tmp_path.iterdir() if path.is_file())
    assert secret.encode() not in stored


async def test_a_result_that_fits_comes_back_as_the_same_bytes(app):
    result = result_of("short")
    assert await app.worker_pool.fit(CALL, result) is result


async def test_malformed_json_is_reported_and_the_next_job_runs(app):
    with pytest.raises(NotJson):
        await app.worker_pool.fit(CALL, b'{"content":[],"x":1},"id":7')
    assert await app.worker_pool.fit(CALL, b"{}") == b"{}"


async def test_an_ended_worker_is_started_again(app):
    for _ in range(2):
        await asyncio.gather(app.worker_pool.aclose(), app.worker_pool.aclose())
        assert await app.worker_pool.fit(CALL, b"{}") == b"{}"


async def test_one_servers_result_does_not_delay_anothers(app):
    """The first server's child is stopped in the middle of its job."""
    await app.worker_pool.warm()
    first = app.worker_pool._first._child._process.pid
    os.kill(first, signal.SIGSTOP)
    stuck = asyncio.create_task(app.worker_pool.fit(CALL, result_of(records(6000))))
    second = asyncio.create_task(app.worker_pool.fit(CALL, result_of(records(5000))))
    try:
        await asyncio.sleep(0.1)
        async with asyncio.timeout(30):
            other = await app.worker_pool.fit(
                replace(CALL, server="other"), result_of(records(6000))
            )
        assert not stuck.done()
        assert not second.done()
    finally:
        os.kill(first, signal.SIGCONT)
    assert "id" in json.loads(other)["content"][0]["text"]
    assert await stuck == other
    await second
    async with asyncio.timeout(10):
        while app.worker_pool._second._child is not None:
            await asyncio.sleep(0.01)


async def test_a_worker_that_takes_too_long_is_ended_and_the_result_is_cut(app, monkeypatch):
    await app.worker_pool.warm()
    first = app.worker_pool._first._child._process.pid
    os.kill(first, signal.SIGSTOP)
    monkeypatch.setattr("upwell.gateway.calls.worker_pool.JOB_SECONDS", 0.2)
    monkeypatch.setattr("upwell.gateway.calls.worker_pool.MEGABYTE_SECONDS", 0.0)
    text = records(6000)
    opened = json.loads(await app.worker_pool.fit(CALL, result_of(text)))
    assert opened["content"][0]["text"][:1000] == text[:1000]
    key = opened["content"][-1]["text"].partition('key="')[2].partition('"')[0]
    assert await app.texts.read(key) == text
    monkeypatch.undo()
    assert await app.worker_pool.fit(CALL, b"{}") == b"{}"


async def test_a_job_may_wait_for_a_model_beyond_its_own_limit(tmp_path, monkeypatch):
    with serving("the summary of the model", seconds=2) as model:
        environment = {
            "PATH": "/usr/bin:/bin",
            "UPWELL_COMPRESS__STRATEGY": "llm_summary",
            "UPWELL_LLM__BASE_URL": model.address,
            "UPWELL_LLM__MODEL": "m",
        }
        app = await build(Settings(home=tmp_path, environment=environment))
        await app.worker_pool.warm()
        monkeypatch.setattr("upwell.gateway.calls.worker_pool.JOB_SECONDS", 0.5)
        monkeypatch.setattr("upwell.gateway.calls.worker_pool.MEGABYTE_SECONDS", 0.0)
        opened = json.loads(await app.worker_pool.fit(CALL, result_of(records(6000))))
        await app.aclose()
    assert opened["content"][0]["text"] == "the summary of the model"
