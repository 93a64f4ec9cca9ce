"""The record of shortened results."""

import asyncio
from pathlib import Path

import pytest
from tests.browser.past import shorten

from upwell.app import App, Settings, build
from upwell.gateway.calls.fit import Cut
from upwell.ground.secrets.redact import redact
from upwell.ground.types.rpc import ToolCall
from upwell.testing import ManualClock
from upwell.usage.report import UsageMetric, UsageRow, stats_of, whole
from upwell.wire.rawjson import RawObject, dumps

LINES = "\n".join(
    f"line {number} of the harbour log: ship {number % 13} left" for number in range(3_000)
)
SECRET = "ghp_" + "aB3dE5gH7jK9mN1pQ3sT5vW7yZ9bC1dE3fG5"


async def shortened(app: App, text: str) -> None:
    call = ToolCall(
        server="claude", tool="Bash", params=b"{}", args={"command": "cat log"},
        host="claude", session="s", cwd="/srv/shop",
    )  # fmt: skip
    await shorten(app, call, text)


async def test_a_shortened_result_is_recorded_with_both_texts(tmp_path: Path) -> None:
    clock = ManualClock(2_000_000_000.0)
    app = await build(Settings(home=tmp_path, environment={}, clock=clock))
    try:
        await shortened(app, LINES)
        [cut] = await app.cuts.latest(5, matching={"session": "s"})
        assert cut["at"] == clock.now(), "a replay has a simulated time"
        assert (cut["tool"], cut["host"], cut["project"]) == ("claude__Bash", "claude", "/srv/shop")
        assert cut["before"] > 10 * cut["after"] > 0
        assert await app.cuts.latest(5, matching={"session": "other"}) == []
        [(original, seen, left_out)] = await app.cuts.texts(cut["id"])
        assert original == LINES
        assert f"[{left_out} left out; " in seen
        assert 0 < len(seen) < len(LINES) / 4
    finally:
        await app.aclose()


async def test_reading_the_original_again_lowers_the_gain(app: App) -> None:
    await shortened(app, LINES)
    [cut] = await app.cuts.latest(5)
    before = await _total(app)
    await app.texts.read(cut["keys"][0], "1-200")
    after = await _total(app)
    assert after[UsageMetric.READ_AGAIN] > 1_000
    assert after.net == before.net - after[UsageMetric.READ_AGAIN]


async def test_another_process_sees_the_savings_at_once(tmp_path: Path) -> None:
    app = await build(Settings(home=tmp_path, environment={}))
    other = await build(Settings(home=tmp_path, environment={}))
    try:
        await shortened(app, LINES)
        [cut] = await app.cuts.latest(5)
        await app.texts.read(cut["keys"][0], "1-200")
        async with asyncio.timeout(10):
            while (total := await _total(other))[UsageMetric.READ_AGAIN] == 0:
                await asyncio.sleep(0.01)
        assert total.saved > 0
        assert stats_of(await other.learning.counts.since(1)).saved
    finally:
        await other.aclose()
        await app.aclose()


async def test_the_file_of_a_shortened_result_is_stored_as_queries_are(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text('[tool."fs__*".surface]\npersist_query_text = false\n')
    app = await build(Settings(home=tmp_path, environment={}))
    try:
        for server in ("fs", "git"):
            call = ToolCall(server=server, tool="show", params=b"{}", args={"uri": "file:///a/log"})
            await shorten(app, call, LINES)
        files = {cut["tool"]: cut["file"] for cut in await app.cuts.latest(5)}
        assert files == {"fs__show": "", "git__show": "/a/log"}
    finally:
        await app.aclose()
    config.write_text('[tool."git__*".surface]\npersist_query_text = false\n')
    app = await build(Settings(home=tmp_path, environment={}))
    try:
        assert await app.surfacer.journal.clear_queries() == 1
        assert [cut["file"] for cut in await app.cuts.latest(5)] == ["", ""]
    finally:
        await app.aclose()


async def test_a_result_with_a_secret_leaves_no_text_on_the_disk(tmp_path: Path) -> None:
    app = await build(Settings(home=tmp_path, environment={}))
    try:
        call = ToolCall(server="up", tool="log", params=b"{}", session="s")
        text = LINES.replace("line 7 ", f"token {SECRET} ")
        result = RawObject.parse(dumps({"content": [{"type": "text", "text": text}]}))
        await app.fitter.fit(call, result)
        [cut] = await app.cuts.latest(5)
        assert not cut["has_text"] or SECRET not in str(await app.cuts.texts(cut["id"]))
    finally:
        await app.aclose()
    assert SECRET.encode() not in b"".join(path.read_bytes() for path in tmp_path.glob("*.db*"))


@pytest.mark.parametrize(
    ("said", "is_compared"), [("", True), (f" and token {SECRET}", False)], ids=["key", "secret"]
)
async def test_a_key_that_looks_like_a_secret_does_not_cost_the_comparison(
    app: App, said: str, is_compared: bool
) -> None:
    key = "d29e49538a9c670f"
    seen = f'[9 of 12 lines left out; all of it: key="{key}"]'
    assert redact(seen)[1]
    call = ToolCall(server="up", tool="log", params=b"{}", session="s")
    app.cuts.note(call, Cut((key,), 900, 20, (seen + said,)))
    [cut] = await app.cuts.latest(5)
    assert cut["has_text"] is is_compared


async def _total(app: App) -> UsageRow:
    return whole(await app.learning.counts.since(1))
