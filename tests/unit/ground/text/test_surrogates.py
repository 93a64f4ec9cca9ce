"""When JSON is read or written, a lone surrogate becomes a question mark."""

import json

import pytest

from upwell.ground.text.safe import dumped, loaded


def test_a_value_with_a_lone_surrogate_is_written_and_read() -> None:
    value = {"session": "s\ud800", "cwd": "/a\udcff", "list": ["é 🌊", "\udfff"], "n": 2**70}
    expected = {"session": "s?", "cwd": "/a?", "list": ["é 🌊", "?"], "n": 2**70}
    assert json.loads(dumped(value).decode()) == expected
    assert loaded(json.dumps(value).encode()) == expected


@pytest.mark.parametrize("document", [b"", b"{", b'{"a":"\\ud800"', b"\xff", b'"\\u12"'])
def test_a_broken_document_stays_an_error(document: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        loaded(document)


def test_a_document_without_surrogates_is_unchanged() -> None:
    assert loaded(b'{"a":"\\ud83c\\udf0a","b":[1.5,null]}') == {"a": "🌊", "b": [1.5, None]}
