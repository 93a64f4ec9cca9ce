"""Replaces lone surrogates: halves of characters, from escapes in JSON or from file names that are
not UTF-8. No encoder accepts them, so one of them in the name of a session or folder would make
every entry of the same batch fail.
"""

import json
from typing import Any

import orjson


def dumped(value: Any) -> bytes:
    """Return `value` as JSON, with a question mark in place of each lone surrogate."""
    try:
        return orjson.dumps(value)
    except TypeError:
        return json.dumps(value, ensure_ascii=False).encode(errors="replace")


def loaded(document: bytes) -> Any:
    """Return the value of a JSON document written by another program, with a question mark in place
    of each lone surrogate.

    Raises:
        ValueError, RecursionError: the document is not JSON, or is nested too deeply.
    """
    try:
        return orjson.loads(document)
    except orjson.JSONDecodeError:
        # Without an escape there are no surrogates, so the document has another defect.
        if b"\\u" not in document:
            raise
    text = json.dumps(json.loads(document), ensure_ascii=False)
    return json.loads(text.encode(errors="replace"))
