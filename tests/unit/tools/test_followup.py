"""Reading on, selecting, searching, and reporting missing content: through the toolbox of an
app."""

import json

import pytest
from msgspec.structs import replace

from upwell.app import Settings, build
from upwell.compress.progressive import rejoin
from upwell.ground.text.tokens import count
from upwell.ground.types.rpc import ToolCall
from upwell.wire.rawjson import RawObject, dumps

CALL = ToolCall(server="fs", tool="guide", params=b"{}", args={"path": "guide.md"})
GUIDE = "# Guide\n\n" + "\n".join(
    f"## Part {n}\n\nWhat part {n} says about subject{n}.\n\n" + "filler words " * 60
    for n in range(40)
)


@pytest.fixture
async def app(tmp_path):
    (tmp_path / "config.toml").write_text('[server.fs]\ncommand = "/nonexistent"\n')
    app = await build(Settings(home=tmp_path, environment={"PATH": "/usr/bin:/bin"}))
    yield app
    await app.aclose()


@pytest.fixture
async def key(app):
    result = RawObject.parse(dumps({"content": [{"type": "text", "text": GUIDE}]}))
    fitted = json.loads((await app.fitter.fit(CALL, result)).encode())
    return fitted["content"][-1]["text"].partition('key="')[2].partition('"')[0]


async def fitted(app, tool="guide"):
    """The text of a guide of about 100,000 characters, as a call of `fs__{tool}` delivers it."""
    long_guide = "\n\n".join(f"## Part {n}\n\n" + "filler words " * 75 for n in range(100))
    result = RawObject.parse(dumps({"content": [{"type": "text", "text": long_guide}]}))
    reply = json.loads((await app.fitter.fit(replace(CALL, tool=tool), result)).encode())
    return reply["content"][0]["text"]


async def call(app, name, **args):
    reply = json.loads((await app.toolbox().call(name, args, "s")).result)
    return reply.get("isError", False), [block["text"] for block in reply["content"]]


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("read_more", {"key": "0" * 16}),
        ("read_more", {}),
        ("read_more", {"key": 5}),
        ("read_more", {"key": "k", "ofset": 3}),
        ("select_sections", {"key": "0" * 16, "sections": ["a"]}),
        ("search_original", {"key": "0" * 16, "query": "x"}),
        ("compression_feedback", {"server": "fs", "tool": "read", "kind": "bad"}),
    ],
)
async def test_invalid_arguments_are_clear_errors(app, name, args):
    failed, (text,) = await call(app, name, **args)
    assert failed
    assert "\n" not in text


async def test_an_offset_past_the_end_and_an_unknown_section(app, key):
    for name, args, complaint in (
        ("read_more", {"offset": len(GUIDE) + 1}, f"the text has {len(GUIDE):,} characters"),
        ("read_more", {"offset": -1}, "offset must be 0 or more"),
        ("select_sections", {"sections": ["No such part"]}, "Part 7"),
    ):
        failed, (text,) = await call(app, name, key=key, **args)
        assert failed
        assert complaint in text
    last = len(GUIDE) - 1
    failed, (text,) = await call(app, "read_more", key=key, offset=last)
    assert not failed
    assert rejoin([text]) == GUIDE[last:]


async def test_feedback_changes_the_next_session_within_bounds(app):
    for _ in range(40):
        failed, _ = await call(
            app, "compression_feedback", server="fs", tool="guide", kind="truncated"
        )
        assert not failed
    (ratio,) = await app.budgets.learned()
    assert ratio.ratio == 3.0, "40 reports would ask for far more"
    before = await fitted(app)
    assert await fitted(app) == before, "nothing changes within a session"
    await app.budgets.load_learned()
    after = await fitted(app)
    assert count(before) <= 4_000 < count(after) <= 12_000
    assert await app.budgets.forget() == 1
    assert await app.budgets.learned() == []
    await app.budgets.load_learned()
    assert await fitted(app) == before


async def test_learned_ratios_are_used_early_only_on_request(app):
    await app.budgets.load_learned()
    for _ in range(3):
        await call(app, "compression_feedback", server="fs", tool="guide", kind="too_long")
    await app.budgets.load_learned_if_requested()
    assert app.budgets.ratios == {}
    await app.budgets.ask()
    await app.budgets.load_learned_if_requested()
    assert 0.5 <= app.budgets.ratios["fs__guide"] < 1.0


async def test_reading_on_is_counted_once_for_each_delivery(app, key):
    for _ in range(3):
        await call(app, "read_more", key=key)
    await app.run_housekeeping()
    counts = {item.key: item.number for item in await app._ttl_store.scan("compression_feedback")}
    assert counts == {"fs__guide|served": 1, "fs__guide|came_back": 1}


async def test_progressive_brings_contents_and_key_in_blocks_of_their_own(tmp_path):
    flags = {"compress.strategy": "progressive"}
    settings = Settings(home=tmp_path, flags=flags, environment={"PATH": "/usr/bin:/bin"})
    app = await build(settings)
    try:
        result = RawObject.parse(dumps({"content": [{"type": "text", "text": GUIDE}]}))
        fitted = json.loads((await app.fitter.fit(CALL, result)).encode())
    finally:
        await app.aclose()
    first, contents, notice = (block["text"] for block in fitted["content"])
    assert GUIDE.startswith(rejoin([first]))
    assert json.loads(contents)["type"] == "toc"
    assert 'key="' in notice


async def test_lines_are_those_that_marks_name(app, key):
    failed, (text,) = await call(app, "read_more", key=key, lines="3-5")
    assert not failed
    assert text == "\n".join(GUIDE.split("\n")[2:5])


async def test_many_lines_come_in_parts(app):
    rows = [f"{n} " + "filler words " * 60 for n in range(200)]
    result = RawObject.parse(dumps({"content": [{"type": "text", "text": "\n".join(rows)}]}))
    notice = json.loads((await app.fitter.fit(CALL, result)).encode())["content"][-1]["text"]
    key = notice.partition('key="')[2].partition('"')[0]
    read, lines = [], "1-200"
    while lines:
        failed, (part, *more) = await call(app, "read_more", key=key, lines=lines)
        assert not failed
        assert len(part) <= 40_000
        read += part.split("\n")
        lines = more[0].partition('lines="')[2].rstrip('"') if more else ""
    assert read == rows


async def test_lines_past_the_end(app, key):
    failed, (text,) = await call(app, "read_more", key=key, lines="9000-9001")
    assert failed
    assert "no lines" in text
