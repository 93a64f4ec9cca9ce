"""What a prompt is after (seed 004): six types found by the phrases of the lexicon.

The type with the strongest signal wins, between equals the more specific one; confidence grows with
the number of signals and with what else says that something is being asked (ADR-001, ADR-006).
"""

import re
from functools import lru_cache

from upwell.ground.text.lexicon import KINDS, Lexicon
from upwell.ground.text.words import informative, terms
from upwell.ground.types import Intent, IntentKind
from upwell.memory.everyday import EVERYDAY_WORDS
from upwell.surface.phrases import Phrases

HEAD_CHARS, TAIL_CHARS = 1200, 600
"""Of a longer prompt the beginning and the end are read: what is pasted stands between them."""
MAX_TOPICS = 5
MIN_WEIGHT = 2
"""Weak signals only support others."""
CAP = 0.95
_SENTENCE_ENDS = re.compile(r"[.?!]+(?:\s|$)")
_QUESTION_MARKS = "?？؟"


class Detector:
    """Finds intents by the signals of a lexicon."""

    def __init__(self, lexicon: Lexicon) -> None:
        self._signals = lexicon.signals
        known = lexicon.stop_words | EVERYDAY_WORDS
        phrases = [signal.phrase for signal in lexicon.signals]
        self._phrases = Phrases(phrases, lexicon.openings, known)

    def intent(self, prompt: str) -> Intent:
        """The intent that keywords show; of type `none` where they show none."""
        text = _read(prompt)
        places = self._phrases.found_in(text)
        found = [self._signals[number] for number in places]
        topics = topics_in(prompt[:HEAD_CHARS])
        strength = {
            kind: max(weights)
            for kind in KINDS
            if (weights := [signal.weight for signal in found if signal.kind == kind])
        }
        best = max(strength, key=lambda kind: strength[kind], default=None)
        if best is None or strength[best] < MIN_WEIGHT:
            return Intent(topics=topics)
        confidence = _confidence(text, len(set(places.values())))
        return Intent(kind=IntentKind(best), confidence=confidence, topics=topics)


@lru_cache(maxsize=4)
def detector_of(lexicon: Lexicon) -> Detector:
    """The detector of a lexicon, made once."""
    return Detector(lexicon)


def _read(prompt: str) -> str:
    if len(prompt) <= HEAD_CHARS + TAIL_CHARS:
        return prompt
    return f"{prompt[:HEAD_CHARS]}\n{prompt[-TAIL_CHARS:]}"


def _confidence(text: str, signals: int) -> float:
    value = 0.5 + min(0.15, 0.05 * signals)
    value += 0.1 * (len(text) > 50)
    value += 0.1 * (len(_SENTENCE_ENDS.findall(text)) > 1)
    value += 0.1 * any(mark in text for mark in _QUESTION_MARKS)
    return min(CAP, round(value, 4))


def topics_in(prompt: str) -> tuple[str, ...]:
    """The first five words that say something, three letters or more, no bare numbers."""
    found = [word for word in informative(terms(prompt)) if len(word) >= 3 and not word.isdigit()]
    return tuple(found[:MAX_TOPICS])
