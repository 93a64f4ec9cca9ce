"""Plain rules that find sentences worth proposing as memories. Precision comes first: users stop
reading an inbox full of noise."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

MIN_CHARS, MAX_CHARS = 20, 400
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")
_MARKS = re.compile(r"^[\s>*#\-–•\d.)]+|[*_`]{2,}")
_QUESTION = re.compile(r"\?\s*$")
_STANDING = re.compile(
    r"^(?:please\s+)?(?:always|never|from now on|in this (?:repo|project|codebase)|remember"
    r"(?: that| to)?|don'?t ever|do not ever|make sure (?:to|you) always|we (?:always|never))\b",
    re.IGNORECASE,
)
_DECISION = re.compile(
    r"\b(?:(?:we|i)(?:'ve| have)? decided|decision:|let'?s go with|we(?:'re| are) going with|"
    r"we(?:'ll| will) (?:use|keep|stay with|go with)|we chose|instead of \w+.{0,60} because)\b",
    re.IGNORECASE,
)
_CAUSE = re.compile(
    r"\b(?:root cause|the (?:bug|problem|issue|failure|culprit) (?:was|is that)|turns? out|"
    r"fixed (?:it )?by|this (?:failed|fails) because|the reason (?:was|is))\b",
    re.IGNORECASE,
)
_REASON = re.compile(
    r"\b(?:because|so that|since|instead of|otherwise|to avoid|avoids?|prevents?|must|never|"
    r"workaround|work around|regression|root cause|race|deadlock|breaks?|broke|revert|too slow|"
    r"compatib\w+|security|fails? (?:when|if|on)|on purpose|deliberately|decided|due to|"
    r"hence|therefore|which is why|that is why|as a result)\b|"
    r"[,;] (?:and )?so (?!far\b|on\b|forth\b|long\b|what\b|please\b)\w+(?: \w+){2}",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Finding:
    """A sentence, the rule that found it, and the namespace for it."""

    text: str
    why: str
    namespace: str


def user_findings(text: str) -> Iterator[Finding]:
    """Standing rules and decisions in a message of the user."""
    for sentence in sentences(text):
        if _STANDING.search(sentence):
            yield Finding(sentence, "standing rule", "patterns")
        elif _DECISION.search(sentence):
            yield Finding(sentence, "decision", "decisions")


def agent_findings(text: str) -> Iterator[Finding]:
    """Causes and decisions in a message of the agent."""
    for sentence in sentences(text):
        if _CAUSE.search(sentence):
            yield Finding(sentence, "cause found", "learnings")
        elif re.match(r"decision:", sentence, re.IGNORECASE):
            yield Finding(sentence, "decision", "decisions")


def gives_reasons(text: str) -> bool:
    """Does the text explain why something is as it is?"""
    return bool(_REASON.search(text))


def sentences(text: str) -> Iterator[str]:
    """The sentences that can stand alone: no questions, no code, no fragments."""
    for part in _SENTENCE.split(_without_code(text)):
        sentence = " ".join(_MARKS.sub("", part).split())
        if MIN_CHARS <= len(sentence) <= MAX_CHARS and not _QUESTION.search(sentence):
            yield sentence


def _without_code(text: str) -> str:
    return re.sub(r"```.*?(?:```|\Z)|<[a-z-]+>.*?</[a-z-]+>", "\n", text, flags=re.DOTALL)
