"""The one pipeline behind every door: `Cue` in, `Surfacing` or `Skip` out."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from upwell.ground.errors import UpwellError
from upwell.ground.limits import SYSTEM_CLOCK, Breaker, Clock, Deadline
from upwell.ground.llm import Chat
from upwell.ground.shelf import Shelf
from upwell.ground.trace import LOG, span
from upwell.ground.types import (
    AUTOMATIC_DOORS,
    NO_INTENT,
    Cue,
    Door,
    Feedback,
    Hit,
    Intent,
    Query,
    Rating,
    Skip,
    SkipReason,
    Surfacing,
    Trust,
)
from upwell.learn.feedback import Rated
from upwell.memory.successors import SUPERSEDED
from upwell.surface.behind import Behind
from upwell.surface.classify import Classifier
from upwell.surface.compaction import Compaction, Known, nothing_known
from upwell.surface.context import CueReader
from upwell.surface.gate import Gate
from upwell.surface.intent import detector_of
from upwell.surface.journal import Journal
from upwell.surface.late import Late
from upwell.surface.lessons import Lessons
from upwell.surface.opening import MISSED, Latest, Opening, nothing_lately
from upwell.surface.options import Options
from upwell.surface.ratings import rated
from upwell.surface.render import FRAME_CHARS, block, digest, fitting, profile_of
from upwell.surface.rules import Pinned, Rules, no_rules
from upwell.surface.seen import Seen
from upwell.surface.sieve import Sieve

Searching = Callable[[Query, Deadline], Awaitable[list[Hit]]]
Missing = Callable[[], Sequence[str]]
"""The places that the search that ended last did without."""
Outcome = Surfacing | Skip
_OVERSAMPLING = 2


class Surfacer:
    """Decides whether to speak and what to say.

    `search` finds candidates, `missing` says what it did without; `pinned` gives the standing
    rules, `latest` the newest memories of a scope, `known` those with given ids; `paused` says
    whether a session asked for silence; `mask` takes secrets out of what the journal keeps; `chat`
    is the model that is asked for intents where `intent.use_llm` says so; `lessons` is what was
    learned, and whoever learns.
    """

    def __init__(
        self,
        search: Searching,
        shelf: Shelf,
        options: Options,
        *,
        missing: Missing = lambda: (),
        paused: Callable[[str], bool] = lambda _: False,
        mask: Callable[[str], str] = str,
        pinned: Pinned = no_rules,
        latest: Latest = nothing_lately,
        known: Known = nothing_known,
        chat: Chat | None = None,
        lessons: Lessons | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._search = search
        self._missing = missing
        self._options = options
        self._seconds = options.surface.timeout_seconds
        self._paused = paused
        self._clock = clock
        self._reader = CueReader(options.surface.templates, options.lexicon)
        self._classifier = Classifier(
            chat, shelf, options.intent, is_safe=lambda text: mask(text) == text, clock=clock
        )
        self._gate = Gate(options, clock)
        self._rules = Rules(pinned, shelf, options.surface.dedup_ttl_seconds)
        self._seen = Seen(shelf, options.surface.dedup_ttl_seconds)
        self._late = Late(clock)
        self._lessons = lessons or Lessons.none(shelf, options.surface, clock)
        self._sieve = Sieve(options, self._lessons, self._seen, clock)
        self._journal = Journal(shelf, options.surface, mask, clock)
        self._behind = Behind([self._journal.flush, *self._lessons.work()])
        self._compaction = Compaction(
            shelf, self._seen, self._rules, known, self._lessons.is_demoted
        )
        self._opening = Opening(
            self._rules,
            self._lessons.welcome(latest),
            self._compaction,
            shelf,
            self._seen,
            options.surface,
        )
        self._breaker = Breaker(
            options.surface.circuit_max_failures, options.surface.circuit_reset_seconds, clock
        )

    @property
    def journal(self) -> Journal:
        """What was decided."""
        return self._journal

    async def surface(self, cue: Cue) -> Outcome:
        """What to say to this cue, or why nothing. Never raises for a fault of the memory side."""
        started = self._clock.monotonic()
        cue = cue if cue.at is not None else replace(cue, at=self._clock.now())
        traced = {"trace_id": cue.trace_id} if cue.trace_id else {}
        with span("upwell.surface", door=str(cue.door), **traced) as current:
            try:
                outcome = await self._outcome(cue)
            except UpwellError as error:
                LOG.warning("surfacing failed: %s", error)
                outcome = Skip(reason=SkipReason.FAULT, detail=error.message)
            current.set_attribute("outcome", _name(outcome))
        took_ms = (self._clock.monotonic() - started) * 1000
        self._journal.note(cue, outcome, _key_of(outcome), took_ms)
        self._lessons.noticed(cue, outcome)
        self._behind.soon()
        return replace(outcome, took_ms=took_ms) if isinstance(outcome, Surfacing) else outcome

    def threshold(self, cue: Cue) -> float:
        """The score that a memory needs to be said to this cue: `min_score`, as it was learned."""
        return self._lessons.min_score(cue)

    async def compacting(self, session: str) -> None:
        """This session's agent is about to forget what it was told: it may be told again."""
        try:
            await self._compaction.before(session)
        except UpwellError as error:
            LOG.warning("what a session was told was not written down: %s", error)

    async def aclose(self) -> None:
        """Bring what is pending to the shelf."""
        self._classifier.close()
        await self._behind.aclose()

    async def take_back(
        self,
        surfacing: Surfacing,
        cue: Cue | None = None,
        *,
        late: bool = False,
        session: str = "",
    ) -> None:
        """What was decided did not reach the agent: it may be said again at the next call. What
        came `late` for its cue is offered there; what a session begins with is made up there."""
        self._lessons.unsaid(surfacing, cue, late=late)
        begins = cue is not None and cue.door == Door.SESSION
        query = self._query_of(cue) if cue is not None and not begins else None
        if late:
            self._journal.late(surfacing.id)
        if cue is not None and query is not None:
            self._gate.unspoke(cue, query)
            if late:
                version = await self._lessons.learned.version()
                self._late.keep(cue, query, surfacing.hits, version)
        self._behind.soon()
        try:
            told, who = (cue.session, cue.principal.name) if cue else (session, "")
            await self._seen.untold(surfacing.memories, told, who)
            if cue is not None and begins:
                await self._opening.take_back(cue, surfacing)
            elif any(hit.memory.pinned for hit in surfacing.hits):
                await self._rules.untold(cue.session if cue else session)
        except UpwellError as error:
            LOG.warning("a surfacing could not be taken back: %s", error)

    def missed(self, cue: Cue) -> None:
        """Nobody answered when the session of this cue began: its rules come with what is said to
        this cue, where it has not got them."""
        if cue.session:
            began = Cue(door=Door.SESSION, text=MISSED, session=cue.session, cwd=cue.cwd)
            self._opening.owe(began)

    async def rate(self, feedback: Feedback) -> list[Rated]:
        """Learn from what was thought of a surfacing. Gives what was said of which memories.

        Raises:
            UsageError: no such surfacing, or no such memory in it.
            StoreError: it could not be kept.
        """
        decision = await self._journal.find(feedback.surfacing_id)
        said = rated(feedback, decision, self._clock.now())
        with span(
            "upwell.feedback",
            surfacing=feedback.surfacing_id,
            rating=str(feedback.rating),
            trace_id=str(decision and decision["trace_id"]),
        ):
            await self._lessons.rate(said)
        if feedback.rating is Rating.ALREADY_KNOWN:
            for one in said:
                await self._seen.renew(one.memory)
        self._behind.soon()
        return said

    async def _outcome(self, cue: Cue) -> Outcome:
        if cue.door == Door.SESSION:
            if not self._options.surface.enabled:
                return Skip(reason=SkipReason.DISABLED, detail="surface.enabled = false")
            if self._paused(cue.session):
                return Skip(reason=SkipReason.PAUSED)
            return await self._opening.begin(cue, self._clock.now())
        decided = await self._decide(cue)
        outcome = await self._opening.beside(cue, decided, self._clock.now())
        return await self._rules.beside(cue, outcome)

    async def _decide(self, cue: Cue) -> Outcome:
        intent = detector_of(self._options.lexicon).intent(cue.text) if cue.text else NO_INTENT
        if self._paused(cue.session) and cue.door in AUTOMATIC_DOORS:
            return Skip(reason=SkipReason.PAUSED, intent=intent)
        query = self._query_of(cue, intent)
        refusal = self._gate.refusal(cue, query, intent)
        if refusal is not None and refusal.reason is SkipReason.LOW_INTENT:
            intent = await self._classifier.settled(cue.text, intent, self._seconds)
            refusal = self._gate.refusal(cue, query, intent)
        if refusal is not None:
            return Skip(reason=refusal.reason, detail=refusal.detail, intent=intent)
        assert query is not None
        left_over = await self._left_over(cue, query, intent)
        if left_over:
            return await self._speak(cue, query, intent, left_over, left_over)
        settling = self._classifier.settling(cue.text, intent, self._seconds)
        found, missing = await self._found(query)
        if isinstance(found, Skip):
            if settling is not None:
                settling.cancel()
            return replace(found, intent=intent, queries=query.texts, missing=missing)
        intent = await settling if settling is not None else intent
        worth = await self._sieve.sift(cue, found, intent)
        if isinstance(worth, Skip):
            return replace(worth, intent=intent, queries=query.texts, missing=missing)
        return replace(await self._speak(cue, query, intent, worth, found), missing=missing)

    async def _left_over(self, cue: Cue, query: Query, intent: Intent) -> list[Hit]:
        """What came too late for the session's last call, where it is worth saying to this one."""
        late = await self._late.offered(cue, query, self._lessons.learned.version)
        worth = await self._sieve.sift(cue, late, intent) if late else []
        if isinstance(worth, Skip) or not worth:
            return []
        self._lessons.offered_late(cue)
        return worth

    def _query_of(self, cue: Cue, intent: Intent = NO_INTENT) -> Query | None:
        items = profile_of(cue.door, intent, self._options.beside(cue)).items
        return self._reader.query(cue, items * _OVERSAMPLING)

    async def _found(self, query: Query) -> tuple[list[Hit] | Skip, tuple[str, ...]]:
        """Candidates within the deadline, through the breaker; and what was searched without."""
        if not self._breaker.allow():
            return Skip(reason=SkipReason.BREAKER_OPEN), ()
        try:
            async with asyncio.timeout(self._seconds):
                hits = await self._search(query, Deadline.after(self._seconds, self._clock))
        except TimeoutError:
            self._breaker.fail()
            return Skip(reason=SkipReason.DEADLINE, detail=f"{self._seconds:g} s"), ()
        except UpwellError as error:
            self._breaker.fail()
            LOG.warning("recall failed: %s", error)
            return Skip(reason=SkipReason.FAULT, detail=error.message), tuple(self._missing())
        missing = tuple(self._missing())
        self._breaker.succeed()
        current = [hit for hit in hits if _may_be_said(hit)]
        return current or Skip(reason=SkipReason.NO_CANDIDATES), missing

    async def _speak(
        self, cue: Cue, query: Query, intent: Intent, worth: list[Hit], found: Sequence[Hit]
    ) -> Outcome:
        """As many of `worth` as fit the budget of the door, said."""
        profile = profile_of(cue.door, intent, self._options.beside(cue))
        said = fitting(worth, query.texts, profile, FRAME_CHARS)
        if not said:
            return Skip(reason=SkipReason.OVER_BUDGET, intent=intent, queries=query.texts)
        surfacing_id = f"s_{secrets.token_hex(6)}"
        text = (
            digest(said, query.texts, profile)
            if cue.door == Door.ASK
            else block(said, query.texts, profile, surfacing_id)
        )
        if cue.session:
            told = [hit.memory for hit in said]
            await self._seen.told(told, cue.session, cue.principal.name)
            self._gate.spoke(cue, query)
        best = max(said, key=lambda hit: hit.score)
        ids = {hit.memory.id for hit in said}
        return Surfacing(
            id=surfacing_id,
            hits=tuple(said),
            text=text,
            confidence=best.score,
            signals=best.signals,
            intent=intent,
            queries=query.texts,
            held_back=tuple(hit for hit in found if hit.memory.id not in ids),
        )


def _may_be_said(hit: Hit) -> bool:
    """Not what something newer stands for, and never what a tool said (DESIGN 4.12)."""
    return not hit.signals.get(SUPERSEDED) and hit.memory.trust is not Trust.TOOL


def _key_of(outcome: Outcome) -> str:
    return outcome.id if isinstance(outcome, Surfacing) else f"k_{secrets.token_hex(6)}"


def _name(outcome: Outcome) -> str:
    if isinstance(outcome, Skip):
        return f"skip {outcome.reason}"
    return f"surfaced {len(outcome.hits)}"
