"""The checks before and after a search. They decide which events may start one, which of the
memories found may reach the agent, and in what order (seeds 000, 003 and 004 in tests/NAMES.md)."""

import re
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime

from msgspec.structs import replace

from upwell.ground.clock import Clock
from upwell.ground.text.words import counted, jaccard, terms
from upwell.ground.types.cue import Door, Intent, Moment, Skip, SkipReason
from upwell.ground.types.memory import Hit, Memory, Query
from upwell.memory.team.sharing import own_name
from upwell.surface.event import Event, writes
from upwell.surface.learning import Learning
from upwell.surface.lessons import applicable
from upwell.surface.moments import case_of, suited
from upwell.surface.options import InjectionMode, PipelineOptions
from upwell.surface.query import messages_of, says_little, usable
from upwell.surface.seen_log import ContextSketches, SeenLog, SessionState
from upwell.surface.worth import lack_of, without_outdated

MAX_SAID = 2
"""The maximum number of memories that a search adds to one prompt or call, unless `surface.moments`
is `all`. In real sessions, a third memory was never useful."""
MIN_SHARE_ASKED = 0.2
"""For an explicit request, a hit must reach this share of the best score (our own constant)."""
RATE_SECONDS = 60.0


def silence_of(cue: Event, triggers: Sequence[str] = ()) -> Skip | None:
    """The reason to show no memories for this event, whatever its query; None if there is none.
    `StandingRules` decides separately about standing rules."""
    if cue.is_unasked and cue.options.pauses(cue.session):
        return Skip(reason=SkipReason.PAUSED)
    surface = cue.options.surface
    if not surface.enabled:
        return Skip(reason=SkipReason.DISABLED, detail="surface.enabled = false")
    is_bare_message = cue.tool is None and not triggers
    if is_bare_message and (why := messages_of(cue.options.lexicon).not_applicable(cue.text)):
        return Skip(reason=SkipReason.NOT_APPLICABLE, detail=why)
    if cue.progressive and surface.injection_mode is InjectionMode.PREPEND:
        detail = "surface.injection_mode = prepend would shift the offsets"
        return Skip(reason=SkipReason.PROGRESSIVE, detail=detail)
    chars = cue.reply_chars if cue.door == Door.TOOL else None
    if chars is not None and chars < surface.min_response_chars:
        return Skip(reason=SkipReason.RESPONSE_TOO_SHORT, detail=f"{chars} characters")
    if cue.tool is not None and (why := writes(cue)):
        return Skip(reason=SkipReason.WRITE_TOOL, detail=why)
    return None


def refusal_of(cue: Event, query: Query | None, intent: Intent) -> Skip | None:
    """The reason not to search for this query, or None. Call `silence_of()` first."""
    if query is None:
        return Skip(reason=SkipReason.NO_QUERY)
    if not (query.paths or query.symbols or query.triggers):
        if not any(usable(text) for text in query.texts):
            return Skip(reason=SkipReason.UNSUITABLE_QUERY, detail="only function words")
        if says_little(query, cue.options.lexicon):
            return Skip(reason=SkipReason.UNSUITABLE_QUERY, detail="only the tool's name is known")
    options = cue.options.intent
    if options.required and cue.tool is None and intent.confidence < options.min_confidence:
        detail = f"confidence {intent.confidence:.2f} < {options.min_confidence:.2f}"
        return Skip(reason=SkipReason.LOW_INTENT, detail=detail)
    return None


class Pace:
    """Limits how often a session gets memories unasked: at most `surface.rate_per_minute` times a
    minute, and not twice for similar queries within the cooldown. All of a session's tools share
    the counts; the limits are those of the tool being called."""

    def __init__(self, clock: Clock) -> None:
        self._recent = SessionState[tuple[float, frozenset[str]]](clock=clock)
        self._clock = clock

    def refusal(self, cue: Event, query: Query) -> Skip | None:
        """The reason to show nothing for this cue right now, or None."""
        if not cue.is_unasked or not cue.session:
            return None
        surface = cue.options.surface
        now, query_terms = self._clock.now(), _terms_of(query)
        recent = self._recent.get(cue.session).values()
        for time, words in recent:
            is_recent = now - time <= surface.cooldown_seconds
            if is_recent and jaccard(query_terms, words) > surface.cooldown_similarity:
                detail = f"a similar query within {surface.cooldown_seconds:g} s"
                return Skip(reason=SkipReason.COOLDOWN, detail=detail)
        if sum(now - time < RATE_SECONDS for time, _ in recent) >= surface.rate_per_minute:
            return Skip(reason=SkipReason.RATE, detail=f"{surface.rate_per_minute} a minute")
        return None

    def record(self, cue: Event, query: Query, surfacing_id: str) -> None:
        """Count this surfacing towards the limits of the cue's session."""
        if not cue.session:
            return
        entry = (self._clock.now(), _terms_of(query))
        ttl_seconds = max(RATE_SECONDS, cue.options.surface.cooldown_seconds)
        self._recent.put(cue.session, entry, key=surfacing_id, ttl_seconds=ttl_seconds)

    def withdraw(self, session: str, surfacing_id: str) -> None:
        """Stop counting a surfacing that did not reach the agent."""
        self._recent.pop(session, surfacing_id)


def _terms_of(query: Query) -> frozenset[str]:
    text_terms = {term for text in query.texts for term in terms(text)}
    return frozenset(text_terms.union(query.paths, query.symbols, query.triggers))


NOVELTY = "new"
"""The signal for the share of a memory's words that are missing from the agent's context."""


class PostFilter:
    """The checks on the hits from a search. Each hit must be probable enough, of a kind that helps
    at this moment, new to the session, and not rated down. For an explicit request, a hit only
    needs a sufficient score, on its own and relative to the best hit (`MIN_SHARE_ASKED`)."""

    def __init__(
        self,
        learning: Learning,
        seen_log: SeenLog,
        sketches: ContextSketches,
        clock: Clock,
    ) -> None:
        self._learning = learning
        self._seen_log = seen_log
        self._sketches = sketches
        self._clock = clock

    async def choose(
        self, cue: Event, hits: Sequence[Hit], intent: Intent, moment: Moment | None
    ) -> list[Hit] | Skip:
        """The hits that pass every check, in the order in which they are shown. If none passes,
        returns the `Skip` of the check that removed the last hits. Without a `moment`, memories of
        every kind may pass."""
        cases = [(case_of(moment or "", hit.memory), bool(hit.trigger)) for hit in hits]
        thresholds = {
            (case, exact): self._learning.min_score(cue, case, exact=exact)
            for case, exact in set(cases)
        }
        pairs = list(zip(hits, map(thresholds.__getitem__, cases), strict=True))
        probable = [hit for hit, threshold in pairs if hit.score >= threshold]
        if not probable:
            best, threshold = max(pairs, key=lambda pair: pair[0].score)
            detail = f"best {best.score:.2f} < {threshold:.2f}"
            return held_back_as(SkipReason.BELOW_MIN_SCORE, detail, hits)
        options, now = cue.options, self._clock.now()
        if not cue.is_unasked:
            ordered = ranked(probable, intent, options, now)
            best_score = max(hit.score for hit in ordered)
            return [hit for hit in ordered if hit.score >= MIN_SHARE_ASKED * best_score]
        helpful = await self._helpful(cue, moment, probable)
        if isinstance(helpful, Skip):
            return helpful
        # Near-duplicates are dropped only now: a commit that may not be shown displaces no note.
        episodes = [hit for hit in helpful if hit.trigger]
        others = [hit for hit in helpful if not hit.trigger]
        ordered = [*episodes, *ranked(others, intent, options, now)]
        if moment is not None:
            sketch = self._sketches.of(cue.session)
            ordered = [hit for hit in ordered if not sketch.holds(hit.memory, cue)]
            if not ordered:
                detail = f"{len(helpful)} known"
                return held_back_as(SkipReason.ALREADY_KNOWN, detail, helpful)
        fresh = await self._seen_log.fresh(ordered, cue.session, cue.principal.name)
        if not fresh:
            return held_back_as(
                SkipReason.REPEATED,
                f"{counted(len(ordered), 'memory', 'memories')} given before",
                ordered,
            )
        welcome = [hit for hit in fresh if not self._learning.is_demoted(hit.memory.id, cue)]
        if not welcome:
            return held_back_as(SkipReason.DEMOTED, f"{len(fresh)} rated down", fresh)
        if moment is None:
            return welcome
        share = self._sketches.of(cue.session).least_new_share
        return [
            replace(hit, signals={**hit.signals, NOVELTY: share(hit.memory.text)})
            for hit in welcome[:MAX_SAID]
        ]

    async def _helpful(
        self, cue: Event, moment: Moment | None, probable: Sequence[Hit]
    ) -> list[Hit] | Skip:
        """The hits of a kind that helps now, that still hold, and that are worth showing."""
        related = [hit for hit in probable if hit.trigger or not hit.memory.triggers]
        if moment is not None:
            related = suited(cue, moment, related)
        if not related:
            return held_back_as(SkipReason.UNSUITED, str(moment or "no trigger is met"), probable)
        holding = related
        if any(hit.trigger for hit in related):
            holding, stale = await applicable(related, cue.triggers, cue.project)
            if not holding:
                return held_back_as(SkipReason.STALE, stale, related)
        if moment is None:
            return holding
        prompts = self._sketches.of(cue.session).prompts
        lacks = [lack_of(cue.text, moment, prompts, hit) for hit in holding]
        worthy = [hit for hit, lack in zip(holding, lacks, strict=True) if not lack]
        if not worthy:
            return held_back_as(SkipReason.UNWORTHY, "; ".join(dict.fromkeys(lacks)), holding)
        return without_outdated(cue.text, worthy)

    async def candidates(
        self, cue: Event, hits: Sequence[Hit], intent: Intent, moment: Moment | None
    ) -> list[Hit]:
        """The hits that a judge may choose from, best first: those that could help at this moment
        and are new to the agent, whatever their score. Episodes are left out, because their
        triggers decide when they surface."""
        related = [hit for hit in hits if not hit.memory.triggers]
        helpful = suited(cue, moment, related) if moment is not None else related
        ordered = ranked(helpful, intent, cue.options, self._clock.now())
        return await self.new_to_agent(cue, ordered)

    async def new_to_agent(self, cue: Event, hits: Sequence[Hit]) -> list[Hit]:
        """The hits that the session has not received, that are not in its context, and that its
        principal has not demoted.
        """
        sketch = self._sketches.of(cue.session)
        unknown = [
            hit
            for hit in hits
            if not self._learning.is_demoted(hit.memory.id, cue)
            and not sketch.holds(hit.memory, cue)
        ]
        return await self._seen_log.fresh(unknown, cue.session, cue.principal.name)


def held_back_as(reason: SkipReason, detail: str, hits: Sequence[Hit]) -> Skip:
    """A `Skip` that lists these hits as held back."""
    best = max(hits, key=lambda hit: hit.score)
    return Skip(
        reason=reason,
        detail=detail,
        confidence=best.score,
        signals=best.signals,
        held_back=tuple(hits),
    )


_DAY_SECONDS = 86_400.0
_NEAR_IDENTICAL = 0.9
SHARE_OF_A_SOURCE = 3
"""A source gets at most one of every `SHARE_OF_A_SOURCE` positions, as long as other sources have
hits left (our own constant)."""
_DATED = re.compile(r"(?:^|/)(\d{4})-(\d{2})-(\d{2})[.-][^/]*$")


def ranked(hits: Sequence[Hit], intent: Intent, options: PipelineOptions, now: float) -> list[Hit]:
    """Sort `hits` by score × namespace weight × recency × multi-query boost (seeds 003 and 004 in
    tests/NAMES.md), drop near-identical texts, and mix the sources.
    """
    ordered = sorted(hits, key=lambda hit: (-_weight(hit, intent, options, now), hit.memory.id))
    return spread(distinct(ordered))


def spread(hits: Sequence[Hit]) -> list[Hit]:
    """Reorder `hits` so that no file dominates (`SHARE_OF_A_SOURCE`). A memory outside any file
    counts as its own source."""
    remaining, placed = list(hits), list[Hit]()
    places: Counter[str] = Counter()
    while remaining:
        allowed = max(1, -(-(len(placed) + 1) // SHARE_OF_A_SOURCE))
        rows = enumerate(remaining)
        index = next((index for index, hit in rows if places[_source(hit)] < allowed), 0)
        hit = remaining.pop(index)
        places[_source(hit)] += 1
        placed.append(hit)
    return placed


def _source(hit: Hit) -> str:
    return hit.memory.source if hit.memory.lines else hit.memory.id


def distinct(hits: Sequence[Hit]) -> list[Hit]:
    """`hits` in the same order, without near-duplicates of earlier ones."""
    retained: list[tuple[Hit, frozenset[str]]] = []
    for hit in hits:
        words = frozenset(terms(hit.memory.text))
        if all(jaccard(words, other) < _NEAR_IDENTICAL for _, other in retained):
            retained.append((hit, words))
    return [hit for hit, _ in retained]


def _weight(hit: Hit, intent: Intent, options: PipelineOptions, now: float) -> float:
    weight = hit.score
    weights = options.surface.namespace_weights.get(intent.kind, {})
    name = hit.memory.namespace
    weight *= weights.get(name, weights.get(own_name(name), 1.0))
    if options.memory_context.include_recency:
        weight *= recency(hit.memory, now, options.memory_context.half_life_days)
    if independent(hit.matched) >= 2:
        weight *= options.surface.multi_match_boost
    return weight


def independent(texts: Sequence[str]) -> int:
    """The number of texts that contain a word not found in any earlier text. A message's keywords
    all occur in the message, so a hit that matches both has matched only one independent query."""
    seen: set[str] = set()
    count = 0
    for text in texts:
        new = set(terms(text)) - seen
        count += bool(new)
        seen |= new
    return count


def recency(memory: Memory, now: float, half_life_days: float) -> float:
    """A weight that halves every `half_life_days` for memories with a dated path
    (`memory/2026-04-09.md`); 1.0 for all other memories."""
    match = _DATED.search(memory.source)
    if match is None:
        return 1.0
    try:
        day = datetime.strptime("-".join(match.groups()), "%Y-%m-%d").replace(tzinfo=UTC)
    except ValueError:
        return 1.0
    age_days = (now - day.timestamp()) / _DAY_SECONDS
    return float(0.5 ** (age_days / half_life_days)) if age_days > 0 else 1.0
