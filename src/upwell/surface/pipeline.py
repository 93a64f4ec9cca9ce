"""The pipeline that decides what to say. A `Cue` (a prompt, a tool call, the start of a session …)
goes in. A `Surfacing` (a text with memories) or a `Skip` (the reason for silence) comes out."""

import asyncio
import secrets
from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from upwell.ground.background import Breaker
from upwell.ground.clock import SYSTEM_CLOCK, Clock, Deadline
from upwell.ground.errors import RecallUnavailable, UpwellError
from upwell.ground.ledger import TtlStore
from upwell.ground.llm import Chat
from upwell.ground.text.words import terms
from upwell.ground.trace import DECISION_SECONDS, DECISIONS, LOG, conclude, contained, span
from upwell.ground.types.cue import (
    AUTOMATIC_DOORS,
    NO_INTENT,
    Cue,
    Door,
    Intent,
    Moment,
    Skip,
    SkipReason,
    Surfacing,
)
from upwell.ground.types.memory import Found, Hit, Memory, Query, Trust
from upwell.memory.base import MemoryReader
from upwell.memory.ranking.scoring import SUPERSEDED
from upwell.surface.event import Event
from upwell.surface.filters import Pace, PostFilter, refusal_of, silence_of
from upwell.surface.intent import Classifier, detector_of
from upwell.surface.journal import Journal
from upwell.surface.judge import Case, Judge, JudgeModel
from upwell.surface.learning import Learning
from upwell.surface.lessons import ProjectLessons, joined, situation_of
from upwell.surface.moments import UNASKED, case_of, moment_of, named_by_failure
from upwell.surface.options import PipelineOptions
from upwell.surface.query import CueReader
from upwell.surface.record import DecisionRecord, Deliveries, SurfacingRatings
from upwell.surface.render import (
    beneath,
    digest,
    fitting,
    frame_of,
    profile_of,
    without_heading,
)
from upwell.surface.rules import StandingRules, rule_hit
from upwell.surface.seen_log import ContextSketches, LateHits, SeenLog
from upwell.surface.session_start import SessionStart

Outcome = Surfacing | Skip
_OVERSAMPLING = 2
_LACKS_QUERY = frozenset({SkipReason.NO_QUERY, SkipReason.UNSUITABLE_QUERY})
MAX_EPISODES = 16
"""The maximum number of memories that a search by triggers alone returns."""


class _Question(Struct, frozen=True):
    """A cue that may start a search, and its query. `missing` lists the places that could not be
    searched. `asked` contains the texts that were sent to other programs and servers instead of the
    query's own texts. `moment` is None for an explicit request, or if `surface.moments` is
    `all`. `lessons` contains the lessons that bear on the cue."""

    cue: Event
    query: Query
    intent: Intent
    moment: Moment | None = None
    lessons: tuple[Hit, ...] = ()
    missing: tuple[str, ...] = ()
    asked: tuple[str, ...] = ()

    def answered(self, outcome: Outcome) -> Outcome:
        queries = (*self.query.texts, *self.asked)
        return replace(outcome, intent=self.intent, queries=queries, missing=self.missing)


class Surfacer:
    """Decides whether to speak and what to say. Callers report to `deliveries` which memories
    arrived, and pass ratings to `ratings`. `journal` stores the decisions.

    `reader` reads the memory. `ttl_store` contains the home's log of deliveries and its journal.
    `chat` is the model behind `intent.use_llm` and `surface.judge`. `learning` contains the learned
    thresholds and demotions.
    """

    def __init__(
        self,
        reader: MemoryReader,
        ttl_store: TtlStore,
        options: PipelineOptions,
        *,
        chat: Chat | None = None,
        learning: Learning | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        surface = options.surface
        ttl_seconds = surface.dedup_ttl_seconds
        failures, reset_seconds = surface.circuit_max_failures, surface.circuit_reset_seconds
        self._reader = reader
        self._options = options
        self._clock = clock
        self._learning = learning or Learning.none(ttl_store, surface, clock)
        self._cue_reader = CueReader(surface.templates, options.lexicon)
        self._breaker = Breaker(failures, reset_seconds, clock)
        self._classifier = Classifier(
            chat,
            self._learning.counts,
            options.intent,
            Breaker(failures, reset_seconds, clock),
            clock,
        )
        self._sketches = ContextSketches()
        self._pace = Pace(clock)
        self._lessons = ProjectLessons(reader, clock)
        self._late_hits = LateHits(reader, clock)
        self._seen_log = SeenLog(ttl_store, ttl_seconds, self._learning.was_ignored_twice)
        self._post_filter = PostFilter(self._learning, self._seen_log, self._sketches, clock)
        self._rules = StandingRules(reader, ttl_store, ttl_seconds)
        self._session_start = SessionStart(
            reader, self._learning, self._rules, self._seen_log, ttl_store, options
        )
        self._judge: Judge | None = None
        if chat and surface.judge:
            counts, replaced = self._learning.counts, self._lessons.replaced
            model = JudgeModel(chat, options.judge, counts, clock, replaced)
            self._judge = Judge(model, self._post_filter, self._late_hits)
        self.journal = Journal(ttl_store, options, clock)
        self._record = DecisionRecord(self.journal, self._learning, options)
        self.deliveries = Deliveries(
            self._record,
            self._seen_log,
            self._pace,
            self._late_hits,
            self._rules,
            self._session_start,
            lambda cue: self._query(Event.of(cue, options, clock.now())),
        )
        self.ratings = SurfacingRatings(self._record, self._seen_log, clock)
        self.missed = self._session_start.missed

    @property
    def verdicts(self) -> Mapping[str, int]:
        """The judge's work and cost so far in this process. Empty without a judge."""
        return self._judge.totals if self._judge else {}

    async def surface(self, cue: Cue) -> Outcome:
        """Decide what to say in response to this cue, and record it as delivered. An error is
        logged and becomes `Skip(FAULT)`. Only a cancellation is raised."""
        outcome = await self.offer(cue)
        if isinstance(outcome, Surfacing):
            await self.deliveries.delivered(outcome, cue)
        return outcome

    async def offer(self, cue: Cue) -> Outcome:
        """Decide like `surface()`, but do not record a delivery. The caller must tell `deliveries`
        as soon as it knows whether the memories reached the agent. Until then, but for at most a
        minute, they count as delivered."""
        if self._is_excluded(cue):
            return Skip(reason=SkipReason.EXCLUDED_PROJECT)
        started = self._clock.monotonic()
        event = Event.of(cue, self._options, self._clock.now())
        with span("upwell.surface", trace_id=cue.trace_id, door=str(cue.door)) as current:
            outcome = await self._without_faults(event)
            reason = str(outcome.reason) if isinstance(outcome, Skip) else "surfaced"
            if current.is_recording():
                has_failed = reason in (SkipReason.FAULT, SkipReason.DEADLINE)
                label = f"skip {reason}"
                if isinstance(outcome, Surfacing):
                    label = f"surfaced {len(outcome.hits)}"
                conclude(current, label, failed=has_failed)
        took_ms = (self._clock.monotonic() - started) * 1000
        DECISIONS.add(str(cue.door), reason)
        DECISION_SECONDS.observe(took_ms / 1000, str(cue.door))
        self._record.note(event, outcome, took_ms)
        return replace(outcome, took_ms=took_ms) if isinstance(outcome, Surfacing) else outcome

    async def preview(self, cue: Cue) -> Outcome:
        """Decide as in a new session, without recording anything."""
        if self._is_excluded(cue):
            return Skip(reason=SkipReason.EXCLUDED_PROJECT)
        now = self._clock.now()
        event = Event.of(replace(cue, session="", at=now), self._options, now)
        return await self._without_faults(event)

    def refused(self, cue: Cue, rule: Memory) -> None:
        """Record that a guard refused a call."""
        refusal = Skip(
            reason=SkipReason.REFUSED, detail=f"rule {rule.id}", held_back=(rule_hit(rule),)
        )
        self._record.note(cue, refusal, 0.0)

    def unreadable(self, cue: Cue, why: str) -> None:
        """Record that an event could not be read. The cue has what is known about it."""
        self._record.note(cue, Skip(reason=SkipReason.UNREADABLE, detail=why), 0.0)

    def last_request(self, session: str) -> str:
        """The last request of the session's user; "" if unknown."""
        return self._sketches.of(session).request

    async def compacting(self, session: str) -> None:
        """Allow repeats, because the session's agent is about to lose its context."""
        self._sketches.compacted(session)
        self._lessons.forget(session)
        if self._judge:
            self._judge.forget(session)
        with contained("preparing for a compaction"):
            await self._session_start.compacting(session)

    async def aclose(self) -> None:
        """Write everything that is pending."""
        self._classifier.close()
        if self._judge:
            await self._judge.aclose()
        await self._record.aclose()

    async def _without_faults(self, event: Event) -> Outcome:
        try:
            return await self._outcome(event)
        except Exception as error:
            return _fault(error)

    async def _outcome(self, cue: Event) -> Outcome:
        if self._judge:
            self._judge.note(cue)
        moment = self._note_moment(cue)
        if cue.door == Door.SESSION:
            if not self._options.surface.enabled:
                return Skip(reason=SkipReason.DISABLED, detail="surface.enabled = false")
            if self._options.pauses(cue.session):
                return Skip(reason=SkipReason.PAUSED)
            return await self._session_start.begin(cue, self._clock.now())
        lessons: Sequence[Hit] = ()
        if cue.tool is None or cue.answer is not None:
            with contained("reading the lessons"):
                lessons = await self._lessons.bearing_on(cue, moment)
        if moment is Moment.ROUTINE and self._has_strong(lessons, cue):
            moment = Moment.LESSON
        outcome = await self._decide(cue, moment, lessons)
        if cue.session in self._session_start.owed:
            outcome = await self._session_start.add_if_due(cue, outcome, self._clock.now())
        outcome = await self._rules.add_if_due(cue, outcome)
        return replace(outcome, moment=str(moment)) if moment else outcome

    def _is_excluded(self, cue: Cue) -> bool:
        return cue.door in AUTOMATIC_DOORS and self._options.excludes(cue.cwd)

    def _note_moment(self, cue: Event) -> Moment | None:
        """Note a cue in its session's sketch, and return its moment. None if `surface.moments` is
        `all`. An explicit request is not noted and has no moment."""
        if not cue.is_unasked:
            return None
        moment = moment_of(cue, self._sketches.of(cue.session).prompts)
        has_templates = bool(self._options.surface.templates)
        if has_templates and moment in UNASKED and self._cue_reader.asks_by_template(cue):
            moment = Moment.ASKING_CALL
        self._sketches.note(cue)
        return None if cue.options.surface.moments == "all" else moment

    def _has_strong(self, lessons: Sequence[Hit], cue: Event) -> bool:
        """True if one of these lessons may start a decision by itself. A judge also considers
        weaker ones."""
        least = self._learning.min_score
        return any(
            self._judge or hit.score >= least(cue, case_of(Moment.LESSON, hit.memory))
            for hit in lessons
        )

    async def _decide(self, cue: Event, moment: Moment | None, lessons: Sequence[Hit]) -> Outcome:
        if self._judge and not silence_of(cue) and (late := await self._judge.take_late(cue)):
            self._learning.offered_late(cue)
            query, verdict = late
            return await self._speak(_Question(cue, query, NO_INTENT, moment), verdict, verdict)
        if moment is not None and moment not in self._options.surface.moments:
            detail = "" if moment is Moment.ROUTINE else str(moment)
            return silence_of(cue) or Skip(reason=SkipReason.ROUTINE, detail=detail)
        deadline = Deadline.after(cue.options.surface.timeout_seconds, self._clock)
        question = await self._question(cue, moment, deadline, may_lack_query=bool(lessons))
        if isinstance(question, Skip):
            return question
        question = replace(question, lessons=tuple(lessons))
        if refusal := self._pace.refusal(cue, question.query):
            return replace(refusal, intent=question.intent)
        late_hits = await self._take_late_hits(question)
        if late_hits:
            return await self._speak(question, late_hits, late_hits)
        hits, question = await self._search(question, deadline)
        if isinstance(hits, Skip):
            return question.answered(hits)
        choice = await self._post_filter.choose(cue, hits, question.intent, moment)
        if self._judge:
            case = Case(cue, question.query, question.intent, moment, hits, choice)
            choice = await self._judge.choose(case, deadline.remaining())
        if isinstance(choice, Skip):
            return question.answered(choice)
        return await self._speak(question, choice, hits)

    async def _question(
        self,
        cue: Event,
        moment: Moment | None,
        deadline: Deadline,
        *,
        may_lack_query: bool,
    ) -> _Question | Skip:
        intent = detector_of(self._options.lexicon).intent(cue.text) if cue.text else NO_INTENT
        if silence := silence_of(cue, cue.triggers):
            return replace(silence, intent=intent)
        query = self._query(cue, intent) if moment is not Moment.TRIGGER else None
        if query is not None and moment is Moment.FILE and self._judge is None:
            query = replace(query, file=cue.file)
        if cue.triggers and query is None:
            query = self._cue_reader.exact(cue, MAX_EPISODES, cue.triggers)
        elif query is not None:
            query = replace(query, triggers=cue.triggers)
        refusal = refusal_of(cue, query, intent)
        if refusal is not None and refusal.reason is SkipReason.LOW_INTENT:
            intent = await self._classifier.refined(cue.text, intent, deadline.remaining())
            refusal = refusal_of(cue, query, intent)
        if refusal is not None and may_lack_query and refusal.reason in _LACKS_QUERY:
            query, refusal = self._cue_reader.exact(cue, MAX_EPISODES, cue.triggers), None
        if refusal is not None:
            return replace(refusal, intent=intent)
        assert query is not None
        return _Question(cue, query, intent, moment)

    def _query(self, cue: Event, intent: Intent = NO_INTENT) -> Query | None:
        items = profile_of(cue.door, intent, cue.options).items
        query = self._cue_reader.query(cue, items * _OVERSAMPLING)
        if query is None or cue.tool is not None:
            return query
        prompts = self._sketches.of(cue.session).prompts
        return replace(query, session=cue.session, prompts=prompts)

    async def _take_late_hits(self, question: _Question) -> list[Hit]:
        hits = await self._late_hits.take(question.cue, question.query)
        if not hits:
            return []
        choice = await self._post_filter.choose(
            question.cue, hits, question.intent, question.moment
        )
        if isinstance(choice, Skip):
            return []
        self._learning.offered_late(question.cue)
        return choice

    async def _search(
        self, question: _Question, deadline: Deadline
    ) -> tuple[list[Hit] | Skip, _Question]:
        cue, intent = question.cue, question.intent
        if question.moment is Moment.LESSON:
            return list(question.lessons), question
        if not self._classifier.can_refine(cue.text, intent):
            result = await self._recall(question, deadline)
        else:
            async with asyncio.TaskGroup() as tasks:
                refining = tasks.create_task(
                    self._classifier.refined(cue.text, intent, deadline.remaining())
                )
                result = await self._recall(question, deadline)
                if isinstance(result, Skip):
                    refining.cancel()
            intent = intent if refining.cancelled() else refining.result()
        question = replace(question, intent=intent, missing=result.missing)
        if isinstance(result, Skip):
            return list(question.lessons) or result, question
        question = replace(question, asked=result.asked)
        if intent.source != "keyword":
            question, result = await self._recall_topics(question, result, deadline)
        current = [
            hit
            for hit in result.hits
            if not hit.signals.get(SUPERSEDED) and hit.memory.trust is not Trust.TOOL
        ]
        weighed = await self._lessons.weighed(current, cue)
        named: Sequence[Hit] = ()
        if question.moment is Moment.FAILED:
            named = await named_by_failure(self._reader, cue, question.query, deadline)
        named_ids = {hit.memory.id for hit in named}
        others = [hit for hit in weighed if hit.memory.id not in named_ids]
        hits = [*joined(others, question.lessons), *named]
        return hits or Skip(reason=SkipReason.NO_CANDIDATES), question

    async def _recall_topics(
        self, question: _Question, result: Found, deadline: Deadline
    ) -> tuple[_Question, Found]:
        """Search again with the topics that only the model found (ADR-001). If there are none, the
        search fails or no time is left, return the first result."""
        texts = question.query.texts
        known = set(terms(" ".join(texts)))
        topics = [topic for topic in question.intent.topics if not known.issuperset(terms(topic))]
        if not topics or deadline.passed():
            return question, result
        query = replace(question.query, texts=(*texts, " ".join(topics)))
        wider = replace(question, query=query)
        more = await self._recall(wider, deadline)
        if isinstance(more, Skip):
            return question, result
        return replace(wider, missing=more.missing, asked=more.asked), more

    async def _recall(self, question: _Question, deadline: Deadline) -> Found | Skip:
        """Search until the deadline of the whole call. If the breaker is open after failed
        searches, return a `Skip` at once."""
        if not self._breaker.allow():
            return Skip(reason=SkipReason.BREAKER_OPEN)
        try:
            async with asyncio.timeout(deadline.remaining()):
                result = await self._reader.search(question.query, deadline)
        except TimeoutError:
            self._breaker.fail()
            limit = question.cue.options.surface.timeout_seconds
            return Skip(reason=SkipReason.DEADLINE, detail=f"{limit:g} s")
        except Exception as error:
            self._breaker.fail()
            missing = error.missing if isinstance(error, RecallUnavailable) else ()
            return replace(_fault(error), missing=missing)
        self._breaker.succeed()
        return result

    async def _speak(
        self, question: _Question, chosen_hits: Sequence[Hit], all_hits: Sequence[Hit]
    ) -> Outcome:
        cue, texts = question.cue, question.query.texts
        profile = profile_of(cue.door, question.intent, cue.options)
        is_digest = cue.door == Door.ASK
        shown = map(without_heading, chosen_hits) if is_digest else chosen_hits
        frame = frame_of(cue.door, cue.read_command)
        lines = fitting(list(shown), texts, profile, frame)
        if not lines:
            return question.answered(Skip(reason=SkipReason.OVER_BUDGET))
        hits = chosen_hits[: len(lines)]
        surfacing_id = f"s_{secrets.token_hex(6)}"
        best = max(hits, key=lambda hit: hit.score)
        ids = {hit.memory.id for hit in hits}
        surfacing = Surfacing(
            id=surfacing_id,
            hits=tuple(hits),
            text=digest(lines) if is_digest else beneath(lines, surfacing_id),
            confidence=best.score,
            signals=best.signals,
            held_back=tuple(hit for hit in all_hits if hit.memory.id not in ids),
            situation=next((situation_of(cue, hit.trigger) for hit in hits if hit.trigger), ""),
        )
        await self.deliveries.reserve(surfacing, cue, question.query)
        return question.answered(surfacing)


def _fault(error: Exception) -> Skip:
    """The `Skip` for an error. Our own errors get one line in the log, others a traceback."""
    if isinstance(error, UpwellError):
        LOG.warning("surfacing failed: %s", error)
        return Skip(reason=SkipReason.FAULT, detail=error.message)
    LOG.error("surfacing failed", exc_info=error)
    return Skip(reason=SkipReason.FAULT, detail=f"unexpected {type(error).__name__}, see the log")
