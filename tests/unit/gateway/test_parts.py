"""Whatever is shortened in a result has a key, and whatever is not text is measured, too."""

import json
import re

import pytest

from upwell.app import Settings, build
from upwell.gateway.calls.results import is_repeated
from upwell.ground.text.tokens import count
from upwell.ground.types.rpc import ToolCall
from upwell.wire.rawjson import RawObject, dumps

CALL = ToolCall(server="port", tool="lift", params=b"{}", args={})
LOG = "\n".join(
    f"step {n * 7919 % 1000} lifted crane_{n} in {n * 13 % 400} ms" for n in range(1500)
)
ROWS = {"rows": [{"crane": f"crane_{n}", "weight": n * 7919} for n in range(3_000)]}
KEY = re.compile(r'key="([0-9a-f]{16})"')


@pytest.fixture
async def app(tmp_path):
    app = await build(Settings(home=tmp_path, environment={"PATH": "/usr/bin:/bin"}))
    yield app
    await app.aclose()


async def fitted(app, result: dict) -> dict:
    return json.loads((await app.fitter.fit(CALL, RawObject.parse(dumps(result)))).encode())


def text(string: str) -> dict:
    return {"type": "text", "text": string}


def notice_of(result: dict) -> str:
    return result["content"][-1]["text"]


async def test_structured_content_that_no_text_repeats_stays(app) -> None:
    structured = {"exit_code": 3, "artifact": "/out/fw-9f3c.bin", "failed": ["unit_gamma"]}
    result = await fitted(app, {"content": [text(LOG)], "structuredContent": structured})
    assert result["structuredContent"] == structured
    assert len(result["content"][0]["text"]) < len(LOG) / 2


@pytest.mark.parametrize("strategy", ["auto", "progressive", "truncate"])
@pytest.mark.parametrize("content", [[], [text("done")], [text(LOG)]])
async def test_large_structured_content_is_fitted_and_has_a_key(app, content, strategy) -> None:
    raw = RawObject.parse(dumps({"content": content, "structuredContent": ROWS}))
    result = json.loads((await app.fitter.fit(CALL, raw, strategy=strategy)).encode())
    assert sum(count(part) for part in everything(result)) <= app.fitter.result_tokens.usual
    (line,) = [line for line in notice_of(result).split("\n") if "structuredContent" in line]
    assert json.loads(await app.texts.read(KEY.search(line)[1])) == ROWS


async def test_of_deep_structured_content_as_much_is_delivered_as_the_notice_says(app) -> None:
    deep = '{"a":' * 5_000 + "1" + "}" * 5_000
    raw = RawObject.parse(b'{"content":[],"structuredContent":%b}' % deep.encode())
    result = json.loads((await app.fitter.fit(CALL, raw)).encode())
    stub = json.dumps(result["structuredContent"], ensure_ascii=False, separators=(",", ":"))
    assert f"to {count(stub)} tokens" in notice_of(result)
    assert await app.texts.read(KEY.search(notice_of(result))[1]) == deep


def everything(result: dict) -> list[str]:
    texts = [block["text"] for block in result["content"] if block["type"] == "text"]
    return [*texts, json.dumps(result["structuredContent"])]


@pytest.mark.parametrize("body", [ROWS, {"result": LOG}, {"result": ROWS["rows"]}])
async def test_structured_content_that_a_text_repeats_goes_with_it(app, body) -> None:
    shown = LOG if body == {"result": LOG} else json.dumps(body.get("result", body))
    result = await fitted(app, {"content": [text(shown)], "structuredContent": body})
    assert "structuredContent" not in result
    assert await app.texts.read(KEY.search(notice_of(result))[1]) == shown


def test_texts_that_give_the_items_of_a_list_repeat_it() -> None:
    assert is_repeated(b'{"result": ["a", "b"]}', ["a", "b"])
    assert is_repeated(b'{"result": [{"a": 1}, {"b": 2}]}', ['{"a": 1}', '{"b": 2}'])
    assert not is_repeated(b'{"exit_code": 3}', ["exit_code 3"])
    assert not is_repeated(b"[" * 100_000, ["["])


async def test_an_embedded_file_is_fitted_by_its_name(app) -> None:
    code = "\n".join(f"def crane_{n}(load):\n    return load + {n}\n" for n in range(3_000))
    file = {"uri": "file:///src/crane.py", "mimeType": "text/x-python", "text": code}
    result = await fitted(app, {"content": [{"type": "resource", "resource": file}]})
    shown = result["content"][0]["resource"]
    assert (shown["uri"], shown["mimeType"]) == (file["uri"], file["mimeType"])
    assert "def crane_0(load):" in shown["text"]
    assert count(shown["text"]) <= app.fitter.result_tokens.usual
    assert "file:///src/crane.py: shortened" in notice_of(result)
    assert await app.texts.read(KEY.search(notice_of(result))[1]) == code


async def test_an_image_that_repeats_is_referred_to(app) -> None:
    image = {"type": "image", "data": "QUJD" * 15_000, "mimeType": "image/png"}
    other = {**image, "data": "REVG" * 15_000}
    result = await fitted(app, {"content": [text("two"), image, other, image]})
    assert result["content"][1:3] == [image, other]
    assert result["content"][3] == text("[upwell] The same image as in block 2 of this result.")


async def test_the_same_data_in_another_form_is_referred_to(app) -> None:
    data = "QUJD" * 15_000
    image = {"type": "image", "data": data, "mimeType": "image/png"}
    turned = {"mimeType": "image/png", "annotations": {"priority": 1}, **image}
    jpeg = {**image, "mimeType": "image/jpeg"}
    files = [
        {"type": "resource", "resource": {"uri": f"file:///{name}.bin", "blob": data}}
        for name in ("a", "b")
    ]
    result = await fitted(app, {"content": [image, turned, jpeg, *files]})
    assert result["content"] == [
        image,
        text("[upwell] The same image as in block 1 of this result."),
        jpeg,
        files[0],
        text("[upwell] file:///b.bin: the same data as in block 4 of this result."),
    ]


@pytest.mark.parametrize(("shown", "part"), [(LOG, 'lines="'), (json.dumps(ROWS), 'query="')])
async def test_a_notice_offers_lines_only_where_there_are_lines(app, shown, part) -> None:
    notice = notice_of(await fitted(app, {"content": [text(shown)]}))
    assert f"(a part: {part}" in notice
