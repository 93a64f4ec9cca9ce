"""What a prompt is after (seed 004): six types found by keywords, English and Spanish.

The first type in order of how specific it is wins; confidence grows with the number of signals
and with what else says that something is being asked (ADR-001, ADR-006).
"""

import re

from upwell.ground.text.words import fold, informative, terms
from upwell.ground.types import Intent, IntentKind

MAX_SCANNED_CHARS = 2000
MAX_TOPICS = 5
_CAP = 0.95

_SIGNALS: tuple[tuple[IntentKind, tuple[str, ...]], ...] = (
    (
        IntentKind.COMPARISON,
        (
            r"\bdifferen(?:ce|ces|t) (?:between|from)\b|\bdiferencias? (?:entre|de)\b",
            r"\bcompar(?:e|es|ed|ing|ison|ar|acion|ativa)\b|\b(?:vs|versus)\b\.?",
            r"\b(?:better|best|prefer|preferable|mejor|preferible|conviene)\b.*"
            r"\b(?:or|o|than|que|between|entre|should)\b|\bwhich (?:one|is|should)\b.*\bor\b",
            r"\b(?:pros? and cons?|advantages?|disadvantages?|trade-?offs?|ventajas?)\b",
        ),
    ),
    (
        IntentKind.TROUBLESHOOT,
        (
            r"\b(?:why|por que)\b.*\b(?:err\w*|fail\w*|wrong|issue\w*|broken|crash\w*|slow|not|"
            r"hang\w*|fall\w*|rompe\w*|no)\b|\b(?:why|por que)\b.*n't\b",
            r"\b(?:errors?|exceptions?|failures?|failing|failed|fails|crash(?:es|ed|ing)?|bugs?|"
            r"tracebacks?|segfaults?|fallos?|fallas?|falla|fallan)\b",
            r"\b(?:not|isn'?t|doesn'?t|won'?t|don'?t|no longer|stopped) (?:work\w*|start\w*|"
            r"load\w*|build\w*|compil\w*|respond\w*)\b|\bbroken\b|"
            r"\bno (?:funciona|arranca|compila|carga)\b",
            r"\b(?:fix|fixes|fixing|solve|resolve|debug|debugging|troubleshoot|diagnose|arregl\w+|"
            r"solucion\w+|depur\w+|corrig\w+)\b",
            r"\b(?:issues?|problems?|problemas?) (?:with|in|con|en)\b|\bgoes wrong\b|\bstuck\b",
        ),
    ),
    (
        IntentKind.HOWTO,
        (
            r"\bhow (?:do|can|should|would|could|to|does one)\b|\bcomo (?:puedo|hago|se|debo|"
            r"implement\w+|cre\w+|añad\w+|anad\w+|configur\w+|instal\w+|us\w+)\b",
            r"\b(?:implement|create|build|add|write|set ?up|configure|install|integrate|migrate)"
            r"(?:ing|ed|s)?\b (?:a|an|the|some|new|support|our|my)\b",
            r"\bsteps? (?:to|for)\b|\bpasos? para\b|\bbest way to\b|\bla mejor forma de\b",
            r"\b(?:guide|walk|help) (?:me|us)\b.*\b(?:to|through|with)\b|\bayudame a\b",
        ),
    ),
    (
        IntentKind.LOCATION,
        (
            r"\bwhere (?:is|are|was|were|do|does|did|can|should|to)\b|\bdonde (?:esta|estan|se|"
            r"queda|puedo|defin\w+|encuentr\w+)\b",
            r"\b(?:find|locate|show me)\b (?:the|a|an|our|my|all|every|where)\b|\b(?:encuentra|"
            r"localiza|busca) (?:el|la|los|las|un|una)\b",
            r"\b(?:which|what) (?:file|files|module|folder|directory|function|class|line)\b|"
            r"\b(?:que|cual|en que) (?:archivo|fichero|modulo|carpeta|funcion|clase)\b",
            r"\blook(?:ing)? (?:for|at|up)\b",
        ),
    ),
    (
        IntentKind.EXPLANATION,
        (
            r"\bwhat(?:'s| is| are| does| do| was| were)\b|\bque (?:es|son|hace|hacen|significa)\b",
            r"\b(?:explain|explains|explaining|explique|explica|explicame)\b",
            r"\b(?:tell|teach|help) (?:me|us) (?:about|understand)\b|\bcuentame (?:sobre|de)\b",
            r"\b(?:purpose|meaning|role|proposito|significado) (?:of|de|del)\b",
            r"\bdescri(?:be|bes|bed)\b|\bdescrib\w+\b|\bhow (?:does|is|are|did)\b|"
            r"\bwhy\b|\bpor que\b",
        ),
    ),
    (
        IntentKind.GENERAL,
        (
            r"\b(?:search|find|look ?up|query|recall|remember|busca|buscar|recuerda|recuerdas)\b",
            r"\bshow (?:me|us)\b|\bmuestra(?:me)?\b|\bdo (?:we|you) (?:have|know)\b|\btenemos\b",
        ),
    ),
)
_COMPILED = tuple(
    (kind, tuple(re.compile(pattern) for pattern in patterns)) for kind, patterns in _SIGNALS
)
_SENTENCE_ENDS = re.compile(r"[.?!]+(?:\s|$)")


def keyword_intent(prompt: str) -> Intent:
    """The intent that keywords show. Bounded: only the first 2 000 characters are read."""
    head = prompt[:MAX_SCANNED_CHARS]
    text = fold(head).replace("’", "'")
    for kind, patterns in _COMPILED:
        found = sum(1 for pattern in patterns if pattern.search(text))
        if found:
            return Intent(kind=kind, confidence=_confidence(head, found), topics=topics_in(head))
    return Intent(topics=topics_in(head))


def _confidence(text: str, signals: int) -> float:
    value = 0.5 + min(0.15, 0.05 * signals)
    value += 0.1 * (len(text) > 50)
    value += 0.1 * (len(_SENTENCE_ENDS.findall(text)) > 1)
    value += 0.1 * any(mark in text for mark in "?？؟")
    return min(_CAP, round(value, 4))


def topics_in(prompt: str) -> tuple[str, ...]:
    """The first five words that say something, three letters or more, no bare numbers."""
    found = [word for word in informative(terms(prompt)) if len(word) >= 3 and not word.isdigit()]
    return tuple(found[:MAX_TOPICS])
