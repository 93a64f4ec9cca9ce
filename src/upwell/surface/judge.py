"""The judge: a language model that chooses which of the memories found, if any, is worth mentioning
now.

Requests to the model run in separate threads. A prompt waits for the verdict, but only until the
deadline of its search. A call does not wait; its verdict is offered on the session's next call.
Without a usable verdict, the filters' choice stands.
"""

import asyncio
import secrets
from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from msgspec import Struct
from msgspec.structs import replace

from upwell.ground.background import BackgroundTasks, Breaker
from upwell.ground.clock import SYSTEM_CLOCK, Clock, Deadline
from upwell.ground.errors import LlmError
from upwell.ground.llm import Chat, Completion, LlmOptions, OpenAIChat
from upwell.ground.trace import LOG, conclude, contained, span
from upwell.ground.types.cue import Cue, Door, Intent, Moment, Skip, SkipReason
from upwell.ground.types.memory import LESSON, Hit, Query
from upwell.ground.types.rpc import Ping
from upwell.surface.event import Event
from upwell.surface.filters import MAX_SAID, PostFilter, held_back_as
from upwell.surface.options import JudgeOptions
from upwell.surface.seen_log import LateHits
from upwell.surface.verdict import (
    MAX_CANDIDATES,
    SYSTEM,
    JudgeQuestion,
    Steps,
    Verdict,
    parsed,
    question_of,
)
from upwell.usage.events import CountedEvent, Counts

JUDGED = "judged"
"""The signal that marks a hit chosen by the judge."""
VERDICT_SECONDS = 30.0
"""The time limit for a question. An agent's own program takes about ten seconds to answer. A later
verdict would be out of date even for the next event."""
MAX_CACHED = 500
MAX_SESSIONS = 1_000
_WORKERS = 2
_FAILURES, _RESET_SECONDS = 3, 60.0


class JudgeModel:
    """Asks the model, up to the session's limit of questions and not right after repeated failures.
    Counts questions, tokens and cost. `replaced` maps the ids of lessons to the texts that they
    replaced."""

    def __init__(
        self,
        chat: Chat,
        options: JudgeOptions,
        counts: Counts,
        clock: Clock = SYSTEM_CLOCK,
        replaced: Mapping[str, str] | None = None,
    ) -> None:
        self.steps = Steps()
        self.waits = options.waits
        self._chat = chat
        self._options = options
        self._counts = counts
        self._clock = clock
        self._replaced = {} if replaced is None else replaced
        # Even a replay needs the real clock here, because the model takes real time to answer.
        self._breaker = Breaker(_FAILURES, _RESET_SECONDS, SYSTEM_CLOCK)
        self._secret = secrets.token_bytes(16)
        self.totals = Counter[str]()
        """The counts in this process so far, keyed by kind."""
        self._cache: OrderedDict[str, int | None] = OrderedDict()
        self._calls: OrderedDict[str, int] = OrderedDict()
        self._threads: ThreadPoolExecutor | None = None

    def question(
        self, cue: Cue, moment: Moment | None, hits: Sequence[Hit]
    ) -> JudgeQuestion | None:
        """The question of which `hits` to mention in response to this cue."""
        now = self._clock.now()
        return question_of(cue, moment, hits, self.steps, self._secret, now, self._replaced)

    def remembered(self, cue: Cue, question: JudgeQuestion) -> Verdict | None:
        """The earlier verdict on the same question, if any."""
        if question.digest not in self._cache:
            return None
        self._cache.move_to_end(question.digest)
        self._count("cached", cue)
        number = self._cache[question.digest]
        hits = list(question.hits.values())
        return Verdict(
            hit=None if number is None else _with_verdict(hits[number]), candidates=len(hits)
        )

    def late(self, cue: Cue) -> None:
        """Count a choice that came too late for its event."""
        self._count("late", cue)

    def may_ask(self, cue: Cue) -> bool:
        """True if the session has not reached its limit of questions and the model has not just
        failed several times in a row. Counts each question that the limit prevents."""
        if cue.session and self._calls.get(cue.session, 0) >= self._options.calls:
            self._count("capped", cue)
            return False
        return self._breaker.allow()

    async def verdict(self, cue: Cue, question: JudgeQuestion) -> Verdict | None:
        """The model's verdict. None after a failure, which is counted and logged."""
        self._calls[cue.session] = self._calls.get(cue.session, 0) + 1
        self._calls.move_to_end(cue.session)
        if len(self._calls) > MAX_SESSIONS:
            self._calls.popitem(last=False)
        self._count("asked", cue)
        with span("upwell.judge", candidates=len(question.hits)) as current:
            try:
                completion = await self._ask(question)
                hit = parsed(completion.text, question)
            except LlmError as error:
                conclude(current, "failed", failed=True)
                self._failed("failed", cue, error.message)
                return None
            except (ValueError, RecursionError) as error:
                conclude(current, "unusable", failed=True)
                self._failed("unusable", cue, f"its answer is unusable: {error}")
                return None
            conclude(current, "chosen" if hit else "nothing")
        self._breaker.succeed()
        self._count("chosen" if hit else "nothing", cue)
        hits = list(question.hits.values())
        self._cache[question.digest] = None if hit is None else hits.index(hit)
        if len(self._cache) > MAX_CACHED:
            self._cache.popitem(last=False)
        return Verdict(
            hit=_with_verdict(hit) if hit else None,
            candidates=len(question.hits),
            tokens_in=completion.tokens_in,
            tokens_out=completion.tokens_out,
        )

    def close(self) -> None:
        """Abandon the threads. Each ends at its own deadline."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    async def _ask(self, question: JudgeQuestion) -> Completion:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(_WORKERS, thread_name_prefix="judge")
        deadline = Deadline.after(VERDICT_SECONDS)
        completion = await asyncio.get_running_loop().run_in_executor(
            self._threads, self._chat.complete, SYSTEM, question.text, deadline
        )
        self._count_cost(completion)
        return completion

    def _count_cost(self, completion: Completion) -> None:
        price_in, price_out = self._options.prices
        price = completion.tokens_in * price_in + completion.tokens_out * price_out
        # Prices are per million tokens, so this is the cost in millionths of the currency unit.
        for kind, number in (
            ("tokens_in", completion.tokens_in),
            ("tokens_out", completion.tokens_out),
            ("millionths", round(price)),
        ):
            if number:
                self.totals[kind] += number
                self._counts.add(CountedEvent.JUDGE, kind, by=number)

    def _failed(self, kind: str, cue: Cue, message: str) -> None:
        self._breaker.fail()
        self._count(kind, cue)
        LOG.info("no verdict: %s", message)

    def _count(self, kind: str, cue: Cue) -> None:
        self.totals[kind] += 1
        self._counts.add(CountedEvent.JUDGE, kind, door=str(cue.door), tool=cue.tool or "")


def judge_ping(llm: LlmOptions) -> Ping:
    """Check that the model behind `surface.judge` answers a small question in time."""
    if not llm.base_url:
        return Ping(ok=False, detail="surface.judge is on", hint="set llm.base_url and llm.model")
    began = SYSTEM_CLOCK.monotonic()
    try:
        OpenAIChat(llm).complete("Reply with: ok", "{}", Deadline.after(VERDICT_SECONDS))
    except LlmError as error:
        return Ping(ok=False, detail=error.message, hint=error.hint)
    took_ms = (SYSTEM_CLOCK.monotonic() - began) * 1000
    return Ping(ok=True, detail=f"{llm.model or 'the model'} answers in {took_ms:.0f} ms")


def _with_verdict(hit: Hit) -> Hit:
    return replace(hit, signals={**hit.signals, JUDGED: 1.0})


def is_judged(hit: Hit) -> bool:
    """True if the judge chose this hit."""
    return JUDGED in hit.signals


Choice = list[Hit] | Skip


class Case(Struct, frozen=True):
    """A search whose outcome the judge may change. `chosen` is the filters' choice."""

    cue: Event
    query: Query
    intent: Intent
    moment: Moment | None
    hits: Sequence[Hit]
    chosen: Choice


class Judge:
    """Chooses among the hits from a search, in place of the filters. If the filters chose an
    episode whose exact trigger was met, the judge is not consulted."""

    def __init__(self, model: JudgeModel, post_filter: PostFilter, late_hits: LateHits) -> None:
        self._model = model
        self._post_filter = post_filter
        self._late_hits = late_hits
        self._tasks = BackgroundTasks("the judge")
        self._waiting: set[str] = set()

    @property
    def totals(self) -> Mapping[str, int]:
        """How many questions the model has been asked in this process, and what they have cost."""
        return self._model.totals

    def note(self, cue: Cue) -> None:
        """Record a cue as a step of its session."""
        if cue.door == Door.SESSION:
            self._model.steps.forget(cue.session)
        elif cue.door in (Door.PROMPT, Door.TOOL):
            self._model.steps.note(cue)

    def forget(self, session: str) -> None:
        """Drop the steps of a session whose context is gone."""
        self._model.steps.forget(session)

    async def choose(self, case: Case, seconds: float) -> Choice:
        """The model's choice, or the filters' choice if the model is not asked or gives no verdict.
        A prompt waits up to `seconds` for the verdict, and a call does not wait. While the verdict
        is pending, the choice is a `Skip`."""
        cue, chosen = case.cue, case.chosen
        # The owner pays for the model, so other principals' clients must not use it.
        is_exact = isinstance(chosen, list) and any(hit.trigger for hit in chosen)
        if cue.door not in (Door.PROMPT, Door.TOOL) or cue.principal.name or is_exact:
            return chosen
        candidates = await self._post_filter.candidates(cue, case.hits, case.intent, case.moment)
        question = self._model.question(cue, case.moment, candidates)
        if question is None:
            return chosen
        if verdict := self._model.remembered(cue, question):
            return _choice(verdict, case)
        if cue.session in self._waiting and cue.door == Door.TOOL:
            waiting = candidates[:MAX_CANDIDATES]
            return held_back_as(SkipReason.JUDGING, "busy with an earlier event", waiting)
        if not self._model.may_ask(cue):
            return chosen
        verdict_task = self._tasks.start(self._model.verdict(cue, question))
        is_patient = cue.door == Door.PROMPT or not cue.session
        patience = None if self._model.waits else seconds if is_patient else 0.0
        await asyncio.wait({verdict_task}, timeout=patience)
        if verdict_task.done():
            return _choice(verdict_task.result(), case)
        self._waiting.add(cue.session)
        self._tasks.start(self._offer_later(case, verdict_task))
        return held_back_as(SkipReason.JUDGING, "", candidates[:MAX_CANDIDATES])

    async def take_late(self, cue: Event) -> tuple[Query, list[Hit]] | None:
        """The query and the hits from a late verdict, if any of the hits is still new to the
        agent."""
        late = await self._late_hits.take_judged(cue)
        if late is None:
            return None
        query, hits = late
        new = await self._post_filter.new_to_agent(cue, hits)
        return (query, new) if new else None

    async def aclose(self) -> None:
        """Abandon pending questions."""
        self._model.close()
        await self._tasks.aclose()

    async def _offer_later(self, case: Case, verdict_task: "asyncio.Task[Verdict | None]") -> None:
        try:
            with contained("waiting for a verdict"):
                verdict = await verdict_task
                choice = _choice(verdict, case)
                if isinstance(choice, list) and case.cue.session:
                    self._model.late(case.cue)
                    await self._late_hits.keep(
                        case.cue, case.query, choice, judged=verdict is not None
                    )
        finally:
            self._waiting.discard(case.cue.session)


def _choice(verdict: Verdict | None, case: Case) -> Choice:
    if verdict is None:
        return case.chosen
    if verdict.hit is None:
        return held_back_as(SkipReason.JUDGED, verdict.in_words, case.hits[:MAX_CANDIDATES])
    tokens = float(verdict.tokens_in + verdict.tokens_out)
    hit = replace(verdict.hit, signals={**verdict.hit.signals, "judge_tokens": tokens})
    return [hit, *_rest_of_rule(hit, case.chosen)][:MAX_SAID]


def _rest_of_rule(hit: Hit, chosen: Choice) -> list[Hit]:
    """Those of the filters' hits that belong to a rule of which the judge chose a part: lessons of
    the same session, if the filters chose that part too."""
    source = hit.memory.provenance
    ids = set() if isinstance(chosen, Skip) else {other.memory.id for other in chosen}
    if isinstance(chosen, Skip) or source.door != LESSON or hit.memory.id not in ids:
        return []
    return [
        other
        for other in chosen
        if other.memory.id != hit.memory.id
        and (other.memory.provenance.door, other.memory.provenance.session)
        == (source.door, source.session)
    ]
