"""Connects the judge to the filters: it chooses where relevance would otherwise decide."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from upwell.ground.background import BackgroundTasks
from upwell.ground.trace import contained
from upwell.ground.types.cue import Cue, Door
from upwell.ground.types.memory import Hit, Query
from upwell.ground.types.surfacing import Intent, Skip, SkipReason
from upwell.surface.background import LateHits
from upwell.surface.filters import PostFilter
from upwell.surface.judge import Judge
from upwell.surface.moments import Moment
from upwell.surface.verdict import MAX_CANDIDATES, Verdict

Choice = list[Hit] | Skip


@dataclass(frozen=True, slots=True)
class Case:
    """A search whose outcome the judge may decide: its cue, its hits, and the filters' choice."""

    cue: Cue
    query: Query
    intent: Intent
    moment: Moment | None
    hits: Sequence[Hit]
    chosen: Choice


class Judging:
    """Lets the judge choose between the candidates of a search. Exact triggers need no judge."""

    def __init__(self, judge: Judge, post_filter: PostFilter, late_hits: LateHits) -> None:
        self._judge = judge
        self._post_filter = post_filter
        self._late_hits = late_hits
        self._tasks = BackgroundTasks("the judge")
        self._waiting: set[str] = set()

    @property
    def totals(self) -> Mapping[str, int]:
        """The questions to the judge and their cost so far in this process."""
        return self._judge.totals

    def note(self, cue: Cue) -> None:
        """Record a cue as a step of its session."""
        if cue.door == Door.SESSION:
            self._judge.steps.forget(cue.session)
        elif cue.door in (Door.PROMPT, Door.TOOL):
            self._judge.steps.note(cue)

    def forget(self, session: str) -> None:
        """Drop the steps of a session whose context is gone."""
        self._judge.steps.forget(session)

    async def choose(self, case: Case, seconds: float) -> Choice:
        """The judge's choice, or that of the filters if the judge is not asked or gives no verdict.
        A prompt waits for the verdict, at most `seconds`; after a call, a late verdict is offered
        at the next call.
        """
        cue, chosen = case.cue, case.chosen
        # The owner pays for the model, so other principals' clients must not use it.
        if cue.door not in (Door.PROMPT, Door.TOOL) or cue.principal.name or _is_exact(chosen):
            return chosen
        candidates = await self._post_filter.candidates(cue, case.hits, case.intent, case.moment)
        question = self._judge.question(cue, case.moment, candidates)
        if question is None:
            return chosen
        if verdict := self._judge.remembered(cue, question):
            return _choice(verdict, case)
        if cue.session in self._waiting and cue.door == Door.TOOL:
            return _silence(SkipReason.JUDGING, "busy with an earlier event", candidates)
        if not self._judge.may_ask(cue):
            return chosen
        verdict_task = self._tasks.start(self._judge.verdict(cue, question))
        await asyncio.wait({verdict_task}, timeout=self._patience(cue, seconds))
        if verdict_task.done():
            return _choice(verdict_task.result(), case)
        self._waiting.add(cue.session)
        self._tasks.start(self._offer_later(case, verdict_task))
        return _silence(SkipReason.JUDGING, "", candidates)

    async def take_late(self, cue: Cue) -> tuple[Query, list[Hit]] | None:
        """A late verdict that still holds at this call, and its query."""
        late = await self._late_hits.take_judged(cue)
        if late is None:
            return None
        query, hits = late
        new = await self._post_filter.new_to_agent(cue, hits)
        return (query, new) if new else None

    async def aclose(self) -> None:
        """Abandon the questions under way."""
        self._judge.close()
        await self._tasks.aclose()

    def _patience(self, cue: Cue, seconds: float) -> float | None:
        if self._judge.waits:
            return None
        return seconds if cue.door == Door.PROMPT or not cue.session else 0.0

    async def _offer_later(self, case: Case, verdict_task: "asyncio.Task[Verdict | None]") -> None:
        """Keep a late verdict for the session's next event; without one, the filters' choice."""
        try:
            with contained("waiting for a verdict"):
                verdict = await verdict_task
                choice = _choice(verdict, case)
                if isinstance(choice, list) and case.cue.session:
                    self._judge.late(case.cue)
                    await self._late_hits.keep(
                        case.cue, case.query, choice, judged=verdict is not None
                    )
        finally:
            self._waiting.discard(case.cue.session)


def _is_exact(choice: Choice) -> bool:
    return isinstance(choice, list) and any(hit.trigger for hit in choice)


def _choice(verdict: Verdict | None, case: Case) -> Choice:
    if verdict is None:
        return case.chosen
    if verdict.hit is None:
        return _silence(SkipReason.JUDGED, verdict.in_words, case.hits)
    tokens = float(verdict.tokens_in + verdict.tokens_out)
    return [replace(verdict.hit, signals={**verdict.hit.signals, "judge_tokens": tokens})]


def _silence(reason: SkipReason, detail: str, hits: Sequence[Hit]) -> Skip:
    best = max(hits, key=lambda hit: hit.score)
    return Skip(
        reason=reason,
        detail=detail,
        confidence=best.score,
        signals=best.signals,
        held_back=tuple(hits[:MAX_CANDIDATES]),
    )
