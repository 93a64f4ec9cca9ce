"""Explains decisions to people in plain words: why upwell spoke or stayed silent, on what evidence,
and which memories came close."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from upwell.ground.text.words import counted
from upwell.ground.types.cue import Door, IntentKind, Skip, SkipReason, Surfacing
from upwell.ground.types.memory import Hit
from upwell.memory.ranking.scoring import TRIGGER
from upwell.surface.filters import NOVELTY
from upwell.surface.journal import DIGEST
from upwell.surface.render import citation, preview

NEXT_BEST = 2
SHOWN_CHARS = 76
LIKELY = 0.5
"""A memory with this score is more likely relevant than not."""
INCOMPLETE = "no memory was found, and a place could not be searched"
EXACT = "an earlier session met exactly this situation"
EMPTY_MEMORY = "the memory is empty"
EMPTY_START = "no standing rule or recent note is due at the start of a session"
REASONS: Mapping[SkipReason, str] = {
    SkipReason.DISABLED: "surfacing is turned off",
    SkipReason.PAUSED: "paused by `upwell off`; `upwell on` resumes",
    SkipReason.EXCLUDED_PROJECT: "projects.exclude lists this project",
    SkipReason.NOT_APPLICABLE: "memory cannot help with a message like this",
    SkipReason.NO_QUERY: "the call contains nothing to search for",
    SkipReason.UNSUITABLE_QUERY: "no word of the query is specific enough to search for",
    SkipReason.WRITE_TOOL: "the tool changes something; upwell never comments on writes",
    SkipReason.RESPONSE_TOO_SHORT: "the response is shorter than surface.min_response_chars",
    SkipReason.ROUTINE: "memory does not help with an event like this; see surface.moments",
    SkipReason.UNSUITED: "the matches are of a kind that does not help with an event like this",
    SkipReason.UNWORTHY: "no match would change the next step",
    SkipReason.ALREADY_KNOWN: "every match is already in the agent's context",
    SkipReason.STALE: "the finding of an earlier session no longer holds",
    SkipReason.PROGRESSIVE: "a memory placed first would shift the offsets of a progressive read",
    SkipReason.COOLDOWN: "a nearly identical query came moments ago",
    SkipReason.RATE: "this session has reached surface.rate_per_minute",
    SkipReason.BREAKER_OPEN: "memory failed several times in a row; upwell retries shortly",
    SkipReason.LOW_INTENT: "intent.required is on, and the message shows no clear question",
    SkipReason.DEADLINE: "the search ran out of time",
    SkipReason.FAULT: "memory failed; the log has the details",
    SkipReason.NO_CANDIDATES: "no memory shares a specific word, file or name with this event",
    SkipReason.BELOW_MIN_SCORE: "the best match is too unlikely to be relevant",
    SkipReason.REPEATED: "every relevant memory was delivered before",
    SkipReason.DEMOTED: "every relevant memory was rated unhelpful too often",
    SkipReason.JUDGED: "the judge found no candidate worth mentioning",
    SkipReason.JUDGING: "the judge's verdict comes later, with the session's next event",
    SkipReason.OVER_BUDGET: "no relevant memory fits the size limit",
    SkipReason.UNREADABLE: "the event that the agent's hook sent cannot be read",
    SkipReason.REFUSED: "one of your guards refused the call, once in this session",
    SkipReason.NOT_DELIVERED: "not delivered: the agent did not receive the answer",
}


def account_of(
    outcome: Surfacing | Skip,
    min_score: float,
    door: Door | str,
    *,
    unasked: Surfacing | Skip | None = None,
    is_empty: bool = False,
) -> list[str]:
    """An outcome as lines for a person: the decision, its evidence, and the memories that came
    close. For an explicit question, `unasked` is what a hook would decide (`Surfacer.preview`). Its
    scores are shown, because a question raises the score of every memory that shares its words."""
    if isinstance(outcome, Skip):
        reason = _reason(outcome.reason, outcome.missing, door, is_empty)
        lines = [f"upwell stayed silent: {reason} ({_code(outcome.reason, outcome.detail)})"]
        omitted = list(outcome.held_back)
    else:
        scored = outcome if door != Door.ASK else unasked
        hits = scored.hits if isinstance(scored, Surfacing) else ()
        held_back = scored.held_back if scored is not None else ()
        scores = {hit.memory.id: hit.score for hit in (*held_back, *hits)}
        lines = [_headline(outcome, min_score, door, unasked)]
        for number, hit in enumerate(outcome.hits, 1):
            score = scores.get(hit.memory.id)
            is_note = "kind" in hit.signals
            reasons = _note_in_words(hit.signals) if is_note else _reasons(hit, score)
            told = reasons if score is None else f"{score:.2f}: {reasons}"
            is_rule = bool(hit.signals.get("pinned"))
            lines.append(f"  {number}. {'a standing rule' if is_rule else told}")
        lines += _situation(outcome.situation)
        omitted = [hit for hit in outcome.held_back if hit.score < min_score]
    lines += _moment(outcome.moment)
    for hit in sorted(omitted, key=lambda hit: -hit.score)[:NEXT_BEST]:
        relation = "below" if hit.score < min_score else "above"
        text = preview(hit.memory.text, hit.matched, SHOWN_CHARS)
        lines.append(f"  not shown, {hit.score:.2f} is {relation} {min_score:.2f}: {text}")
        lines.append(f"     [{citation(hit.memory)}] {_reasons(hit, hit.score)}")
    lines += _queries(outcome.queries)
    intent = outcome.intent
    if intent.kind is not IntentKind.NONE:
        shown = f"{intent.kind}, confidence {intent.confidence:.2f}, from {intent.source}"
        lines.append(f"  intent: {shown}")
    return lines


def account_of_past(
    decision: Mapping[str, Any], texts: Mapping[str, str], *, is_empty: bool = False
) -> list[str]:
    """A decision from the journal as lines for a person. `texts` maps the ids of memories that
    still exist to their texts."""
    lines = [f"{decision['tool'] or decision['door']}: {_past_headline(decision, is_empty)}"]
    for memory_id, score in decision["memories"]:
        text = texts.get(memory_id)
        shown = preview(text, (), SHOWN_CHARS) if text else "(deleted since)"
        lines.append(f"  {score:.2f} {memory_id} {shown}")
        if novelty := decision["evidence"].get(memory_id, {}).get(NOVELTY):
            lines.append(f"       {_novelty_in_words(novelty)}")
    lines += [*_moment(decision["moment"]), *_situation(decision["situation"])]
    readable = [text for text in decision["queries"] if not text.startswith(DIGEST)]
    missing = (f"  not searched: {place}" for place in decision["missing"])
    return [*lines, *_queries(readable), *missing]


def reason_of(decision: Mapping[str, Any], *, is_empty: bool = False) -> str:
    """Why upwell stayed silent, according to this decision in the journal."""
    if decision["late"]:
        return "not delivered: too late for this event; offered at the session's next one"
    if decision["outcome"] == SkipReason.REFUSED:
        return f"refused by one of your guards, once in this session ({decision['detail']})"
    return _reason(decision["outcome"], decision["missing"], decision["door"], is_empty)


def why_shown(decision: Mapping[str, Any], memory_id: str) -> str:
    """Why this memory surfaced, according to this decision in the journal. "" for a standing rule,
    or if the journal has no signals for the memory."""
    signals = decision["evidence"].get(memory_id, {})
    if signals.get("pinned"):
        return ""
    if "kind" in signals:
        return f"a note for the start of a session: {_note_in_words(signals)}"
    if signals.get(TRIGGER) and decision["situation"]:
        return f"an earlier session met {decision['situation']}"
    score = dict(decision["memories"]).get(memory_id)
    return EXACT if signals.get(TRIGGER) else ", ".join(_phrases(signals, score))


def _past_headline(decision: Mapping[str, Any], is_empty: bool) -> str:
    if decision["memories"]:
        return f"spoke, {_memories(len(decision['memories']))} ({decision['id']})"
    code = decision["outcome"]
    if decision["late"] or code == SkipReason.REFUSED:
        return reason_of(decision)
    return f"silent: {reason_of(decision, is_empty=is_empty)} ({_code(code, decision['detail'])})"


def _reason(code: str, missing: Sequence[str], door: Door | str, is_empty: bool) -> str:
    if code == SkipReason.NO_CANDIDATES and (missing or is_empty):
        return INCOMPLETE if missing else EMPTY_MEMORY
    if code == SkipReason.NO_CANDIDATES and door == Door.SESSION:
        return EMPTY_START
    known = code in SkipReason.__members__.values()
    return REASONS[SkipReason(code)] if known else "for a reason that this version does not know"


def _code(reason: str, detail: str) -> str:
    return f"{reason}, {detail}" if detail else reason


def _headline(
    surfacing: Surfacing, min_score: float, door: Door | str, unasked: Surfacing | Skip | None
) -> str:
    hits = [hit for hit in surfacing.hits if "pinned" not in hit.signals]
    if not hits or "kind" in hits[0].signals:
        return f"upwell spoke: {_memories(len(surfacing.hits))} to open this session"
    if door == Door.ASK:
        answer = f"upwell spoke: {_memories(len(hits))} for an explicit question"
        number = "what the judge chooses"
        if isinstance(unasked, Skip):
            number = f"none ({_code(unasked.reason, unasked.detail)})"
        elif unasked is not None:
            number = str(len(unasked.hits))
        return f"{answer}; unasked, a new session would get {number}"
    return (
        f"upwell spoke: {_memories(len(hits))} likely enough to be relevant "
        f"(surface.min_score {min_score:.2f})"
    )


def _memories(number: int) -> str:
    return counted(number, "memory", "memories")


def _moment(moment: str) -> list[str]:
    return [f"  moment: {moment.replace('_', ' ')}"] if moment else []


def _novelty_in_words(share: float) -> str:
    return f"{share:.0%} of its words new to the session"


def _situation(situation: str) -> list[str]:
    return [f"  an earlier session met {situation}"] if situation else []


def _queries(texts: Sequence[str]) -> Iterator[str]:
    if texts:
        yield f"  searched for: {' | '.join(preview(text, (), SHOWN_CHARS) for text in texts)}"


def _reasons(hit: Hit, score: float | None) -> str:
    return EXACT if hit.trigger else in_words(hit.signals, score)


def in_words(signals: Mapping[str, float], score: float | None = None) -> str:
    """The signals of a hit, in plain words that agree with its score."""
    return ", ".join(_phrases(signals, score)) or "no specific match"


def _phrases(signals: Mapping[str, float], score: float | None) -> Iterator[str]:
    get = signals.get
    if get("judged"):
        yield f"chosen by the judge ({get('judge_tokens', 0.0):,.0f} tokens)"
    if (join := get("path_join", 0.0)) > 0.0:
        relation = "the same file" if join >= 0.8 else "a related file"
        relation = "a file of that name" if 0.5 <= join < 0.8 else relation
        crowded = get("path_rarity", 0.0) < 0.5
        yield f"about {relation}{', as are many memories' if crowded else ''}"
    if get("symbol_join", 0.0) > 0.0:
        yield "about the same name in code"
    total, matched = get("informative_words", 0.0), get("matched_words", 0.0)
    if matched:
        rare = " (one of them rare)" if get("rarest", 0.0) >= 0.8 else ""
        kind = rare if get("telling_words") else " (everyday words)"
        yield f"shares {matched:.0f} of {total:.0f} informative words{kind}"
        yield from _chance_in_words(signals, score)
    if get("cosine", 0.0):
        yield f"similar in meaning ({signals['cosine']:.2f})"
    if get("speaker", 0.0):
        yield "by the person named in the question"
    if get(NOVELTY, 0.0):
        yield _novelty_in_words(signals[NOVELTY])


def _chance_in_words(signals: Mapping[str, float], score: float | None) -> Iterator[str]:
    """How the shared words compare with those that unrelated texts share. Left out if the score,
    which depends on more than that, says the opposite."""
    get = signals.get
    lift = get("bm25", 0.0) - get("chance", 0.0)
    is_above = lift > max(0.1, get("chance_spread", 1.0))
    if score is None or is_above != (score >= LIKELY):
        return
    if is_above:
        yield "more than by chance"
    elif get("matched_words", 0.0) < get("informative_words", 0.0):
        yield "no more than by chance"


def _note_in_words(signals: Mapping[str, float]) -> str:
    recency = signals.get("recency", 0.0)
    reasons = ["recent" if recency > 0.7 else "some months old" if recency > 0.1 else "old"]
    if signals.get("used"):
        reasons.append("read since")
    if signals.get("touched"):
        reasons.append("about a file that changed lately")
    return ", ".join(reasons)
