"""Large results are fitted in a process of their own, with the same outcome as here."""

import json
import os
import signal
from pathlib import Path

import pytest
from tests.doors.peer import alive, processes

from upwell.app import Settings, build
from upwell.gateway.workshop import _Bench
from upwell.ground.errors import CompressionError, KeyUnknown
from upwell.ground.types import ToolCall
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


async def test_the_outcome_is_the_same_as_here(app):
    text = records(6000)
    there = await app.workshop.fit(CALL, result_of(text))
    here = await app.fitter.fit(CALL, RawObject.parse(result_of(text)))
    assert there == here.encode()
    opened = json.loads(there)
    assert "structuredContent" not in opened
    key = opened["content"][-1]["text"].partition('key="')[2].partition('"')[0]
    assert await app.original(key) == text


async def test_an_original_with_a_secret_comes_back_to_this_process_only(app, tmp_path):
    secret = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"[:36]
    text = records(6000) + f"\ntoken {secret}"
    opened = json.loads(await app.workshop.fit(CALL, result_of(text)))
    key = opened["content"][-1]["text"].partition('key="')[2].partition('"')[0]
    assert await app.original(key) == text
    assert "in memory only" in opened["content"][-1]["text"]
    kept = b"".join(path.read_bytes() for path in tmp_path.iterdir() if path.is_file())
    assert secret.encode() not in kept


async def test_what_fits_comes_back_as_the_same_bytes(app):
    result = result_of("short")
    assert await app.workshop.fit(CALL, result) is result


async def test_what_is_no_json_is_said_so_and_the_next_job_is_done(app):
    with pytest.raises(NotJson):
        await app.workshop.fit(CALL, b'{"content":[],"x":1},"id":7')
    assert await app.workshop.fit(CALL, b"{}") == b"{}"


async def test_an_unknown_key_is_said_so(app):
    with pytest.raises(KeyUnknown):
        await app.original("0123456789abcdef")


async def test_one_that_hangs_is_ended_and_the_next_job_is_done(tmp_path):
    environment = {"PATH": "/usr/bin:/bin", "UPWELL_HOME": str(tmp_path)}
    job = {"server": "fs", "tool": "read", "args": {}, "query": "", "principal": "", "ratio": 1.0}
    bench = _Bench(environment)
    await bench.warm()
    (child,) = [pid for pid in processes(os.getpid()) if b"cli.workshop" in _command(pid)]
    os.kill(child, signal.SIGSTOP)
    with pytest.raises(CompressionError, match="took longer than 1 s"):
        await bench.do(job, result_of(records(6000)), 1.0)
    assert not alive(child)
    head, fitted = await bench.do(job, result_of(records(6000)), 120.0)
    assert head["shortened"]
    assert json.loads(fitted)["content"]
    await bench.aclose()


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
