"""compress and read: text in, shorter text out, and the rest by its key."""

import json
from pathlib import Path

import pytest

from tests.conftest import Upwell
from tests.doors.servers.data import big_json, big_log, big_markdown

SHAPE = {"text", "strategy", "before", "after", "tokens", "lossless", "omitted", "tried"}
TEXTS = {"json": big_json(), "markdown": big_markdown(), "log": big_log()}


@pytest.mark.parametrize("kind", TEXTS)
def test_within_the_budget_in_tokens(upwell: Upwell, kind: str) -> None:
    text = TEXTS[kind]
    result = upwell("compress", "--max-tokens", "500", "--json", input=text).json
    assert set(result) >= SHAPE
    assert result["before"] == len(text)
    assert result["after"] == len(result["text"]) < 500 * 5
    assert result["tokens"] <= 500
    assert result["lossless"] is False
    assert result["omitted"]
    assert result["strategy"]


@pytest.mark.parametrize("kind", TEXTS)
@pytest.mark.parametrize("limit", [10, 200, 5000])
def test_within_the_budget_in_characters(upwell: Upwell, kind: str, limit: int) -> None:
    done = upwell("compress", "--max-chars", str(limit), "--json", input=TEXTS[kind])
    assert len(done.json["text"]) <= limit


def test_json_stays_json(upwell: Upwell) -> None:
    result = upwell("compress", "--max-chars", "3000", "--json", input=big_json()).json
    assert json.loads(result["text"])


def test_a_text_that_fits_is_unchanged(upwell: Upwell) -> None:
    text = "short é 🌊\r\nand sweet\n\n"
    assert upwell("compress", "--max-tokens", "500", input=text).out == text
    result = upwell("compress", "--max-tokens", "500", "--json", input=text).json
    assert result["text"] == text
    assert result["lossless"] is True
    assert result["omitted"] == []


def test_from_a_file(upwell: Upwell, tmp_path: Path) -> None:
    (tmp_path / "guide.md").write_text(big_markdown())
    result = upwell("compress", "guide.md", "--max-tokens", "500", "--json").json
    assert result["tokens"] <= 500


SECRET = "ghp_MTX6T5bC6O3hDpHJanr4VjXiMha2mn82r7HQ"
UNSTORED = [
    (f"token {SECRET}\n", {}),
    ("", {"UPWELL_COMPRESS__ORIGINAL_TTL_SECONDS": "0"}),
]


@pytest.mark.parametrize("strategy", ["auto", "selective", "progressive", "hybrid"])
@pytest.mark.parametrize(("secret", "env"), UNSTORED, ids=["secret", "expired"])
def test_no_key_is_named_that_a_later_process_cannot_read(
    upwell: Upwell, secret: str, env: dict[str, str], strategy: str
) -> None:
    text = secret + big_markdown()
    for limit in (["--max-chars", "2000"], []):
        args = ("compress", *limit, "--strategy", strategy)
        result = upwell(*args, "--json", input=text, env=env).json
        assert "key" not in result
        assert 'key="' not in result["text"]
        assert result["strategy"] not in ("selective", "progressive")
        assert limit or result["after"] >= 0.65 * result["before"]
        assert "the whole text was not stored" in upwell(*args, input=text, env=env).err


def test_the_rest_can_be_read(upwell: Upwell) -> None:
    result = upwell("compress", "--max-tokens", "500", "--json", input=big_markdown()).json
    if result.get("key"):
        assert upwell("read", result["key"]).out == big_markdown()


HOSTILE = {
    "empty": b"",
    "nul": b"a\x00b\x00" * 2000,
    "crlf": b"one\r\ntwo\r\n" * 2000,
    "deep": b"[" * 100_000 + b"]" * 100_000,
    "open": b"[" * 100_000,
    "long integer": b'{"n": 123456789012345678901234567890, "m": 1.10}',
    "one line": b"x" * 500_000,
    "many lines": b"\n" * 200_000,
    "fence": b"```python\n" + b"x = 1\n" * 5000,
    "emoji": "👩‍👩‍👧‍👦".encode() * 3000,
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_text(upwell: Upwell, case: str) -> None:
    done = upwell("compress", "--max-chars", "300", "--json", input=HOSTILE[case])
    assert "Traceback" not in done.err
    assert len(done.json["text"]) <= 300
    again = upwell("compress", "--max-chars", "300", "--json", input=HOSTILE[case])
    assert again.json["text"] == done.json["text"]


def test_binary_input_is_refused_in_one_line(upwell: Upwell) -> None:
    done = upwell("compress", "--max-chars", "300", input=b"caf\xe9 " * 200)
    assert done.code == 2
    assert done.out == ""
    (line,) = done.err.splitlines()
    assert "UTF-8" in line


def test_no_grapheme_is_split(upwell: Upwell) -> None:
    family = "👩‍👩‍👧‍👦"
    result = upwell("compress", "--max-chars", "300", "--json", input=family * 3000).json["text"]
    rest = result.replace(family, "")
    assert "\u200d" not in rest
