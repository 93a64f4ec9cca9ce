"""Plain rules that find sentences worth proposing as memories. Precision comes first: users stop
reading an inbox full of noise."""

import re
from collections.abc import Iterator

MIN_CHARS, MAX_CHARS, MIN_WORDS = 20, 400, 5
MAX_MESSAGE_CHARS = 1_500
"""A longer message is a paste or a plan."""
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")
_MARKS = re.compile(r"^[\s>*#\-–•\d.)]+|[*_`]{2,}")
_OPENING = re.compile(r"```|<[a-z-]{1,60}>")
_CLOSING_FENCE = re.compile(r"```")
_CLOSING_TAG = re.compile(r"</[a-z-]{1,60}>")
_STANDING = re.compile(
    r"^(?:please\s+)?(?:always|never|from now on|in this (?:repo|project|codebase)|"
    r"don'?t ever|do not ever|make sure (?:to|you) always|we (?:always|never))\b",
    re.IGNORECASE,
)
_POINTS_ELSEWHERE = re.compile(
    r"\b(?:this|these|those|it|its|they|them|above|below|here|again)\b|\bthat(?=[.,;!]|$)|"
    r"(?:\w|^)[^\w:?…]*+[:?…]\W*+$",
    re.IGNORECASE,
)
"""Words that refer to another sentence."""
_THIS_PROJECT = re.compile(r"\bin this (?:repo|repository|project|codebase)\b", re.IGNORECASE)
_REASON = re.compile(
    r"\b(?:because|so that|since|instead of|otherwise|to avoid|avoids?|prevents?|must|never|"
    r"workaround|work around|regression|root cause|race|deadlock|breaks?|broke|revert|too slow|"
    r"compatib\w+|security|fails? (?:when|if|on)|on purpose|deliberately|decided|due to|"
    r"hence|therefore|which is why|that is why|as a result)\b|"
    r"[,;] (?:and )?so (?!far\b|on\b|forth\b|long\b|what\b|please\b)\w+(?: \w+){2}",
    re.IGNORECASE,
)


def standing_rules(message: str) -> Iterator[str]:
    """The sentences of a user's message that lay down a rule and can be understood alone."""
    if len(message) > MAX_MESSAGE_CHARS:
        return
    for sentence in sentences(message):
        rest = _THIS_PROJECT.sub("", sentence)
        if _STANDING.search(sentence) and not _POINTS_ELSEWHERE.search(rest):
            yield sentence


def gives_reasons(text: str) -> bool:
    """Does the text give a reason?"""
    return bool(_REASON.search(text))


def sentences(text: str) -> Iterator[str]:
    """The sentences of a text, without code and fragments."""
    for part in _SENTENCE.split(_without_code(text)):
        sentence = " ".join(_MARKS.sub("", part).split())
        if MIN_CHARS <= len(sentence) <= MAX_CHARS and len(sentence.split()) >= MIN_WORDS:
            yield sentence


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
