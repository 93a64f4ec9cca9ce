"""Replaces lone surrogates, which are halves of characters. They come from escapes in JSON and from
file names that are not UTF-8. Encoders reject them, so a lone surrogate in the name of a session or
folder would make every entry in the same batch fail.
"""

import json
from typing import Any

import orjson


def dumped(value: Any) -> bytes:
    """Return `value` as JSON, with lone surrogates replaced by question marks."""
    try:
        return orjson.dumps(value)
    except TypeError:
        return json.dumps(value, ensure_ascii=False).encode(errors="replace")


def loaded(document: bytes) -> Any:
    """Return the value of a JSON document written by another program, with lone surrogates replaced
    by question marks.

    Raises:
        ValueError, RecursionError: the document is not JSON, or is nested too deeply.
    """
    try:
        return orjson.loads(document)
    except orjson.JSONDecodeError:
        # A document without escapes has no surrogates, so it is invalid for another reason.
        if b"\\u" not in document:
            raise
    text = json.dumps(json.loads(document), ensure_ascii=False)
    return json.loads(text.encode(errors="replace"))
