"""A language model that decides which candidate an excellent colleague would mention now, or none.

It is asked beside the events, in threads of its own. A prompt waits for the verdict up to the
door's deadline; a verdict that comes later is offered at the session's next event. If the model is
slow, gone or wrong, everything works as it does without a judge.
"""

import asyncio
import secrets
from collections import Counter, OrderedDict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from upwell.ground.clock import SYSTEM_CLOCK, Clock, Deadline
from upwell.ground.errors import LlmError
from upwell.ground.limits import Breaker
from upwell.ground.llm import Chat, Completion, LlmOptions, OpenAIChat
from upwell.ground.trace import LOG, conclude, span
from upwell.ground.types.cue import Cue
from upwell.ground.types.memory import Hit
from upwell.ground.types.rpc import Ping
from upwell.surface.moments import Moment
from upwell.surface.options import JudgeOptions
from upwell.surface.verdict import SYSTEM, Question, Steps, Verdict, parsed, question_of
from upwell.usage.counts import Counts, Event

JUDGED = "judged"
"""The signal of a hit that the judge chose."""
VERDICT_SECONDS = 10.0
"""The time limit of a question: a later verdict is of no use to the next event either."""
MAX_CACHED = 500
MAX_SESSIONS = 1_000
_WORKERS = 2
_FAILURES, _RESET_SECONDS = 3, 60.0


class Judge:
    """Asks the model, within the limits, and counts the questions, tokens and money."""

    def __init__(
        self, chat: Chat, options: JudgeOptions, counts: Counts, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self.steps = Steps()
        self.waits = options.waits
        self._chat = chat
        self._options = options
        self._counts = counts
        self._clock = clock
        # A real clock even in a replay, because the model's answer takes real time.
        self._breaker = Breaker(_FAILURES, _RESET_SECONDS, SYSTEM_CLOCK)
        self._secret = secrets.token_bytes(16)
        self.totals = Counter[str]()
        """The counts of this process so far, by kind."""
        self._cache: OrderedDict[str, int | None] = OrderedDict()
        self._calls: OrderedDict[str, int] = OrderedDict()
        self._threads: ThreadPoolExecutor | None = None

    def question(self, cue: Cue, moment: Moment | None, hits: Sequence[Hit]) -> Question | None:
        """The question which of `hits` to mention at this cue."""
        return question_of(cue, moment, hits, self.steps, self._secret, self._clock.now())

    def remembered(self, cue: Cue, question: Question) -> Verdict | None:
        """The verdict on this very question, if it was given before."""
        if question.digest not in self._cache:
            return None
        self._cache.move_to_end(question.digest)
        self._count("cached", cue)
        number = self._cache[question.digest]
        hits = list(question.hits.values())
        return Verdict(hit=None if number is None else _chosen(hits[number]), candidates=len(hits))

    def late(self, cue: Cue) -> None:
        """Count a chosen hit that is offered after its event."""
        self._count("late", cue)

    def may_ask(self, cue: Cue) -> bool:
        """True if the session is within its limit and the model is answering."""
        if cue.session and self._calls.get(cue.session, 0) >= self._options.calls:
            self._count("capped", cue)
            return False
        return self._breaker.allow()

    async def verdict(self, cue: Cue, question: Question) -> Verdict | None:
        """The model's verdict; None, counted and logged, if there is no usable one."""
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
        self._remember(question, hit)
        return Verdict(
            hit=_chosen(hit) if hit else None,
            candidates=len(question.hits),
            tokens_in=completion.tokens_in,
            tokens_out=completion.tokens_out,
        )

    def close(self) -> None:
        """Abandon the threads; each ends at its own deadline."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    async def _ask(self, question: Question) -> Completion:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(_WORKERS, thread_name_prefix="judge")
        deadline = Deadline.after(VERDICT_SECONDS)
        completion = await asyncio.get_running_loop().run_in_executor(
            self._threads, self._chat.complete, SYSTEM, question.text, deadline
        )
        self._pay(completion)
        return completion

    def _pay(self, completion: Completion) -> None:
        price = (
            completion.tokens_in * self._options.input_price
            + completion.tokens_out * self._options.output_price
        )
        # Prices are for a million tokens, so this is the cost in millionths.
        for kind, number in (
            ("tokens_in", completion.tokens_in),
            ("tokens_out", completion.tokens_out),
            ("millionths", round(price)),
        ):
            if number:
                self.totals[kind] += number
                self._counts.add(Event.JUDGE, kind, by=number)

    def _failed(self, kind: str, cue: Cue, message: str) -> None:
        self._breaker.fail()
        self._count(kind, cue)
        LOG.info("no verdict: %s", message)

    def _remember(self, question: Question, hit: Hit | None) -> None:
        hits = list(question.hits.values())
        self._cache[question.digest] = None if hit is None else hits.index(hit)
        if len(self._cache) > MAX_CACHED:
            self._cache.popitem(last=False)

    def _count(self, kind: str, cue: Cue) -> None:
        self.totals[kind] += 1
        self._counts.add(Event.JUDGE, kind, door=str(cue.door), tool=cue.tool or "")


def judge_ping(llm: LlmOptions) -> Ping:
    """The health of the model of `surface.judge`: whether it answers a small question in time."""
    if not llm.base_url:
        return Ping(ok=False, detail="surface.judge is on", hint="set llm.base_url and llm.model")
    began = SYSTEM_CLOCK.monotonic()
    try:
        OpenAIChat(llm).complete("Reply with: ok", "{}", Deadline.after(VERDICT_SECONDS))
    except LlmError as error:
        return Ping(ok=False, detail=error.message, hint=error.hint)
    took_ms = (SYSTEM_CLOCK.monotonic() - began) * 1000
    return Ping(ok=True, detail=f"{llm.model or 'the model'} answers in {took_ms:.0f} ms")


def _chosen(hit: Hit) -> Hit:
    return replace(hit, signals={**hit.signals, JUDGED: 1.0})


def is_judged(hit: Hit) -> bool:
    """True if the judge chose this hit."""
    return JUDGED in hit.signals
