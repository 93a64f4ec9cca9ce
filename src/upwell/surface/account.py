"""An account of a decision in plain words: which gate was shut, what was close, what spoke for
it."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from upwell.ground.text.counts import counted
from upwell.ground.types import Door, Hit, IntentKind, Skip, SkipReason, Surfacing
from upwell.surface.journal import DIGEST
from upwell.surface.render import citation, preview

NEXT_BEST = 2
SHOWN_CHARS = 76
NOTHING_LATELY = "nothing of this project is recent, and nothing is pinned"
REASONS: Mapping[SkipReason, str] = {
    SkipReason.DISABLED: "surfacing is switched off",
    SkipReason.PAUSED: "`upwell off` asked for silence; `upwell on` ends it",
    SkipReason.NOT_APPLICABLE: "the message needs no memory",
    SkipReason.NO_QUERY: "there is nothing to look for in it",
    SkipReason.UNSUITABLE_QUERY: "no word in it says what it is about",
    SkipReason.WRITE_TOOL: "the tool changes something, and writes are left alone",
    SkipReason.EXCLUDED_TOOL: "surface.exclude_tools names this tool",
    SkipReason.RESPONSE_TOO_SHORT: "the response is shorter than surface.min_response_chars",
    SkipReason.PROGRESSIVE: "a continued read would lose its offsets",
    SkipReason.COOLDOWN: "the same was asked a moment ago",
    SkipReason.RATE: "enough was said this minute",
    SkipReason.BREAKER_OPEN: "memory failed several times; it is tried again soon",
    SkipReason.LOW_INTENT: "intent.required is on, and the message asks nothing",
    SkipReason.DEADLINE: "the search took too long",
    SkipReason.FAULT: "memory failed",
    SkipReason.NO_CANDIDATES: "no memory shares a telling word, file or name with it",
    SkipReason.BELOW_MIN_SCORE: "something matches, but is not likely enough to be relevant",
    SkipReason.REPEATED: "what is relevant was said before",
    SkipReason.DEMOTED: "what is relevant was rated as not helpful too often",
    SkipReason.OVER_BUDGET: "what is relevant does not fit the budget",
}


def account_of(outcome: Surfacing | Skip, min_score: float, door: Door | str) -> list[str]:
    """Lines for a person: why it spoke or kept silent, by what, and what came next."""
    if isinstance(outcome, Skip):
        why = NOTHING_LATELY if _began_empty(outcome, door) else REASONS[outcome.reason]
        lines = [f"upwell kept silent: {why} ({_reason(outcome)})"]
        left = list(outcome.held_back)
    else:
        lines = [_headline(outcome, min_score), *_spoken(outcome)]
        left = [hit for hit in outcome.held_back if hit.score < min_score]
    return [*lines, *_left_out(left, min_score), *_looked_for(outcome)]


def account_of_past(decision: Mapping[str, Any], texts: Mapping[str, str]) -> list[str]:
    """Lines for a person about a decision of the journal. `texts`: memory id → text, of those that
    are still there."""
    said = decision["memories"]
    if said:
        late = ", too late for this one: it is offered with the next" if decision["late"] else ""
        head = f"spoke, {_count(len(said))}{late} ({decision['id']})"
    else:
        reason = decision["outcome"]
        more = f", {decision['detail']}" if decision["detail"] else ""
        why = REASONS.get(reason, "for a reason that this version does not know")
        head = f"silent: {why} ({reason}{more})"
    lines = [f"{decision['tool'] or decision['door']}: {head}"]
    for memory_id, score in said:
        text = texts.get(memory_id)
        shown = preview(text, (), SHOWN_CHARS) if text else f"{memory_id}, which is gone"
        lines.append(f"  {score:.2f} {shown}")
    clear = [text for text in decision["queries"] if not text.startswith(DIGEST)]
    return [*lines, *_queries(clear)]


def _began_empty(skip: Skip, door: Door | str) -> bool:
    return door == Door.SESSION and skip.reason is SkipReason.NO_CANDIDATES


def _reason(skip: Skip) -> str:
    return f"{skip.reason}, {skip.detail}" if skip.detail else str(skip.reason)


def _headline(surfacing: Surfacing, min_score: float) -> str:
    found = [hit for hit in surfacing.hits if "pinned" not in hit.signals]
    if not found or "kind" in found[0].signals:
        return f"upwell spoke: {_count(len(surfacing.hits))} for this session to begin with"
    return (
        f"upwell spoke: {_count(len(found))} likely enough to be relevant "
        f"(at least {min_score:.2f}, surface.min_score)"
    )


def _count(number: int) -> str:
    return counted(number, "memory", "memories")


def _spoken(surfacing: Surfacing) -> Iterator[str]:
    for number, hit in enumerate(surfacing.hits, 1):
        if hit.signals.get("pinned"):
            yield f"  {number}. a standing rule"
        else:
            said = _standing(hit.signals) if "kind" in hit.signals else in_words(hit.signals)
            yield f"  {number}. {hit.score:.2f}: {said}"


def _left_out(hits: Sequence[Hit], min_score: float) -> Iterator[str]:
    for hit in sorted(hits, key=lambda hit: -hit.score)[:NEXT_BEST]:
        sign = "under" if hit.score < min_score else "over"
        said = preview(hit.memory.text, hit.matched, SHOWN_CHARS)
        yield f"  not said, {hit.score:.2f} is {sign} {min_score:.2f}: {said}"
        yield f"     [{citation(hit.memory)}] {in_words(hit.signals)}"


def _looked_for(outcome: Surfacing | Skip) -> Iterator[str]:
    yield from _queries(outcome.queries)
    intent = outcome.intent
    if intent.kind is not IntentKind.NONE:
        yield f"  intent: {intent.kind}, {intent.confidence:.2f} by {intent.source}"


def _queries(texts: Sequence[str]) -> Iterator[str]:
    if texts:
        yield f"  looked for: {' | '.join(preview(text, (), SHOWN_CHARS) for text in texts)}"


def in_words(signals: Mapping[str, float]) -> str:
    """The raw figures of a hit, as a person would put them."""
    return ", ".join(_phrases(signals)) or "nothing in particular"


def _phrases(signals: Mapping[str, float]) -> Iterator[str]:
    get = signals.get
    path, rarity = get("path_join", 0.0), get("path_rarity", 0.0)
    if path > 0.0:
        same = "the same file" if path >= 0.8 else "a file of that name" if path >= 0.5 else ""
        yield (same or "a related file") + (", which many memories are about" * (rarity < 0.5))
    if get("symbol_join", 0.0) > 0.0:
        yield "the same name in code"
    asked, matched = get("informative_words", 0.0), get("matched_words", 0.0)
    if matched:
        yield f"{matched:.0f} of {asked:.0f} words that say something{_kind_of_words(signals)}"
        lift = get("bm25", 0.0) - get("chance", 0.0)
        if lift > max(0.1, get("chance_spread", 1.0)):
            yield "more than chance"
        elif matched < asked:
            yield "as by chance"
    if get("cosine", 0.0):
        yield f"similar in meaning ({signals['cosine']:.2f})"
    if get("speaker", 0.0):
        yield "said by whom the question names"


def _kind_of_words(signals: Mapping[str, float]) -> str:
    if not signals.get("telling_words"):
        return " (everyday ones)"
    return " (a rare one)" if signals.get("rarest", 0.0) >= 0.8 else ""


def _standing(signals: Mapping[str, float]) -> str:
    recent = signals.get("recency", 0.0)
    said = ["recent" if recent > 0.7 else "of the last months" if recent > 0.1 else "old"]
    if signals.get("used"):
        said.append("looked up since")
    if signals.get("touched"):
        said.append("about a file that was changed lately")
    return ", ".join(said)
