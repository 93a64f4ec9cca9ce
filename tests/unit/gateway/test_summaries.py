"""Work that waits for a language model has a few threads of its own, and limited time."""

import asyncio
import json
import threading
import time

import pytest
from tests.doors.seeds.model import serving

from upwell.app import Settings, build
from upwell.gateway.calls.fit import SummaryThreads
from upwell.ground.types.rpc import ToolCall
from upwell.wire.rawjson import RawObject, dumps

CALL = ToolCall(server="fs", tool="guide", params=b"{}", args={})


async def test_a_place_is_free_again_when_its_work_has_ended_and_not_when_its_caller_has() -> None:
    threads, may_end = SummaryThreads(1), threading.Event()
    caller = asyncio.create_task(threads.run(may_end.wait))
    await asyncio.sleep(0)
    assert threads.is_full
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert threads.is_full
    may_end.set()
    async with asyncio.timeout(10):
        while threads.is_full:
            await asyncio.sleep(0.001)
    assert await threads.run(lambda: 7) == 7


async def test_an_exception_reaches_the_caller() -> None:
    with pytest.raises(ZeroDivisionError):
        await SummaryThreads().run(lambda: 1 // 0)


async def test_the_texts_of_one_result_share_the_time_for_the_model(tmp_path) -> None:
    with serving("a summary", seconds=30) as model:
        environment = {
            "PATH": "/usr/bin:/bin",
            "UPWELL_COMPRESS__STRATEGY": "llm_summary",
            "UPWELL_COMPRESS__LLM_TIMEOUT_SECONDS": "2",
            "UPWELL_COMPRESS__MAX_RESULT_TOKENS": "1500",
            "UPWELL_LLM__BASE_URL": model.address,
            "UPWELL_LLM__MODEL": "m",
        }
        app = await build(Settings(home=tmp_path, environment=environment))
        texts = [f"{word} stands beside the river. " * 400 for word in ("Ash", "Elm", "Oak", "Fir")]
        blocks = [{"type": "text", "text": text} for text in texts]
        began = time.monotonic()
        fitted = await app.fitter.fit(CALL, RawObject.parse(dumps({"content": blocks})))
        took = time.monotonic() - began
        questions = len(model.prompts)
        await app.aclose()
    assert questions == 1
    assert took < 6, "2 s and some work; 8 s if each text waits by itself"
    shown = [block["text"] for block in json.loads(fitted.encode())["content"]]
    assert [text[:3] for text in shown[:4]] == ["Ash", "Elm", "Oak", "Fir"]
    assert all(len(short) < len(text) for short, text in zip(shown, texts, strict=False))
