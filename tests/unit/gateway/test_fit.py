"""A fitted result stays within its budget, and its notice counts what is really delivered."""

import gc
import json
import time

import pytest

from upwell.app import Settings, build
from upwell.compress.progressive import content
from upwell.ground.text.tokens import count
from upwell.ground.types.rpc import ToolCall
from upwell.wire.rawjson import RawObject, dumps

CALL = ToolCall(server="fs", tool="guide", params=b"{}", args={})
GUIDE = "# Guide\n\n" + "\n".join(
    f"## Part {n}\n\nWhat part {n} tells of subject{n}.\n\n" + "filler words " * 60
    for n in range(60)
)


async def fitted(app, text: str) -> list[str]:
    result = RawObject.parse(dumps({"content": [{"type": "text", "text": text}]}))
    reply = json.loads((await app.fitter.fit(CALL, result)).encode())
    return [block["text"] for block in reply["content"]]


async def app_with(tmp_path, **compress):
    environment = {"PATH": "/usr/bin:/bin"}
    environment |= {
        f"UPWELL_COMPRESS__{key.upper()}": str(value) for key, value in compress.items()
    }
    return await build(Settings(home=tmp_path, environment=environment))


@pytest.mark.parametrize("strategy", ["auto", "progressive", "hybrid"])
async def test_everything_delivered_is_within_the_budget(tmp_path, strategy) -> None:
    app = await app_with(tmp_path, strategy=strategy, max_result_tokens=2_000)
    texts = await fitted(app, GUIDE)
    assert sum(map(count, texts)) <= 2_000
    await app.aclose()


@pytest.mark.parametrize("strategy", ["auto", "progressive"])
async def test_a_budget_in_characters_holds_the_contents_and_the_notice(tmp_path, strategy) -> None:
    app = await app_with(tmp_path, strategy=strategy, max_result_chars=2_000)
    texts = await fitted(app, GUIDE)
    assert sum(map(len, texts)) <= 2_000
    await app.aclose()


async def test_the_notice_counts_the_contents(tmp_path) -> None:
    app = await app_with(tmp_path, strategy="progressive")
    *delivered, notice = await fitted(app, GUIDE)
    stated = int(notice.partition(" to ")[2].partition(" tokens")[0].replace(",", ""))
    assert abs(stated - sum(map(count, delivered))) <= 2
    await app.aclose()


async def test_less_than_a_quarter_is_not_worth_shortening(tmp_path) -> None:
    app = await app_with(tmp_path, max_result_tokens=int(count(GUIDE) * 0.8))
    assert await fitted(app, GUIDE) == [GUIDE]
    await app.aclose()


async def test_a_hundred_thousand_texts_are_shortened_as_one(tmp_path) -> None:
    app = await app_with(tmp_path, max_result_tokens=2_000)
    blocks = [{"type": "text", "text": f"crane {n} is idle"} for n in range(100_000)]
    blocks.insert(3, {"type": "image", "data": "aGFyYm91cg==", "mimeType": "image/png"})
    result = RawObject.parse(dumps({"content": blocks}))
    gc.collect()
    begun, collections = time.process_time(), gc.get_stats()[2]["collections"]
    reply = json.loads((await app.fitter.fit(CALL, result)).encode())
    collections = gc.get_stats()[2]["collections"] - collections
    assert collections <= 1, "each holds the event loop while it walks through all objects: 400 ms"
    assert time.process_time() - begun <= 20, "about 2 on an idle machine, minutes one by one"
    assert [block["type"] for block in reply["content"]] == ["text", "image", "text"]
    texts = [block["text"] for block in reply["content"] if block["type"] == "text"]
    assert sum(map(count, texts)) <= 2_000
    assert "crane 0 is idle" in texts[0]
    assert 'key="' in texts[-1]
    await app.aclose()


async def test_a_chunk_without_blocks_has_its_contents_above_it_and_ends_with_the_footer(
    tmp_path,
) -> None:
    app = await app_with(tmp_path, strategy="progressive")
    [text] = await app.fitter.fit_texts(CALL, [GUIDE], lambda key, has_lines: f"upwell read {key}")
    assert text is not None
    notice, contents, chunk = text.split("\n\n", 2)
    assert "upwell read" in notice
    assert json.loads(contents)["selection_key"] in notice
    assert GUIDE.startswith(content(chunk))
    stated = int(notice.partition(" to ")[2].partition(" tokens")[0].replace(",", ""))
    assert abs(stated - count(contents) - count(chunk)) <= 2
    assert count(text) <= 4_000
    await app.aclose()
