"""The sentences of a typed text."""

import re
from collections.abc import Iterator

MIN_CHARS, MAX_CHARS, MIN_WORDS = 20, 400, 5
MIN_WRAPPED_CHARS = 60
"""A line of at least this length that ends within a sentence counts as wrapped."""
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")
_MARKS = re.compile(r"^[\s>*#\-–•\d.)]+|(?<!/)[*_`]{2,}(?!/)")
_OPENING = re.compile(r"```|<[a-z-]{1,60}>")
_CLOSING_FENCE = re.compile(r"```")
_CLOSING_TAG = re.compile(r"</[a-z-]{1,60}>")


def sentences(text: str) -> Iterator[str]:
    """The sentences of a text, without code and fragments."""
    for part in _SENTENCE.split(_joined(_without_code(text))):
        sentence = " ".join(_MARKS.sub("", part).split())
        if MIN_CHARS <= len(sentence) <= MAX_CHARS and len(sentence.split()) >= MIN_WORDS:
            yield sentence


def _joined(text: str) -> str:
    """The text with its wrapped lines joined."""
    lines: list[str] = []
    for line in text.splitlines():
        before = lines[-1] if lines else ""
        is_open = len(before) >= MIN_WRAPPED_CHARS and before.rstrip()[-1:] not in ".!?:;"
        if is_open and line[:1].islower():
            lines[-1] = f"{before} {line}"
        else:
            lines.append(line)
    return "\n".join(lines)


def _without_code(text: str) -> str:
    """The text without fenced code and without the contents of tags. A tag that is never closed
    ends the search for further tags, because looking for the end of each would take quadratic
    time.
    """
    parts, at = [], 0
    while match := _OPENING.search(text, at):
        is_fence = match[0] == "```"
        closing = _CLOSING_FENCE if is_fence else _CLOSING_TAG
        end = closing.search(text, match.end())
        if end is None and not is_fence:
            fence = text.find("```", at)
            if fence < 0:
                break
            end = _CLOSING_FENCE.search(text, fence + 3)
            parts.append(text[at:fence])
        else:
            parts.append(text[at : match.start()])
        at = end.end() if end else len(text)
    return "\n".join([*parts, text[at:]])
