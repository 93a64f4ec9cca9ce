"""Replays the events of past sessions through today's surfacing, on a clock that shows the time of
the current event."""

from collections import Counter
from collections.abc import AsyncIterator, Iterable, Sequence
from functools import partial
from typing import Any, Protocol

from msgspec import Struct, field

from upwell.episodes.events import Kind, SessionEvent
from upwell.ground.text.tokens import count
from upwell.ground.text.words import iso
from upwell.ground.types.cue import Cue, Door, Moment, Skip, Surfacing, ToolAnswer
from upwell.ground.types.memory import Hit, Memory
from upwell.hosts import claude
from upwell.hosts.events import STARTED
from upwell.replay.memories import Arrivals, PathRelocation, ReplayProjects, With
from upwell.surface.event import Event
from upwell.surface.moments import moment_of
from upwell.surface.options import PipelineOptions

SESSION_START, COMPACTION = "session_start", "compaction"
"""The moments at which upwell shows the standing rules without searching."""
SAID = "said"
NO_HOOK = "no_hook"
"""The outcome of an event that hooks do not report."""
_DECIDED = frozenset({Kind.START, Kind.COMPACT, Kind.PROMPT, Kind.TOOL})
_MAX_TEXTS = 500


class SimulatedClock:
    """A clock that shows the time of the current event and never runs backwards."""

    def __init__(self, at: float = 0.0) -> None:
        self._at = at

    def now(self) -> float:
        return self._at

    def monotonic(self) -> float:
        return self._at

    def advance(self, at: float) -> None:
        """Set the time to `at` unless it is already later."""
        self._at = max(self._at, at)


class Product(Protocol):
    """The parts of upwell that a replay drives, in a scratch home."""

    async def surface(self, cue: Cue) -> Surfacing | Skip:
        """Decide whether to show memories for a cue."""
        ...

    async def compacting(self, session: str) -> None:
        """Prepare for the loss of the session's context."""
        ...

    async def turn_ended(
        self, session: str, written: Sequence[tuple[float, str]], *, over: bool
    ) -> None:
        """Record the end of a turn. `written` holds the agent's texts and their times, in seconds
        since the epoch. `over` is True if the session ended too.
        """
        ...

    async def remember(self, memories: Sequence[Memory]) -> None:
        """Store memories."""
        ...

    async def read_documents(self, folder: str) -> None:
        """Index the documents of a checkout that have changed."""
        ...

    def commits(self, root: str) -> list[Memory]:
        """Memories from a repository's commits, but only from those that give a reason."""
        ...

    async def learn(self, events: Sequence[SessionEvent], project: str) -> None:
        """Learn from a session's events in `project`, as capture does at the end of a turn."""
        ...

    async def keep_record(self, session: str) -> None:
        """Keep the record of a session that has ended, from the events it was given to `learn`."""
        ...


class ReplayDecision(Struct, frozen=True, kw_only=True):
    """The outcome of an event: the memories that surfaced, or the reason for silence. `subject` is
    the event on one line."""

    session: str
    i: int
    t: float
    door: str
    moment: str
    outcome: str
    hits: tuple[Hit, ...] = ()
    tokens: int = 0
    subject: str = ""
    detail: str = ""


class Summary(Struct):
    """The totals of a replay. `events` counts session starts, compactions, prompts and calls."""

    sessions: int = 0
    events: int = 0
    said: int = 0
    memories: int = 0
    tokens: int = 0
    outcomes: Counter[str] = field(default_factory=Counter[str])
    doors: Counter[str] = field(default_factory=Counter[str])

    def add(self, decision: ReplayDecision) -> None:
        """Add a decision to the totals."""
        self.sessions += decision.moment == SESSION_START
        self.events += 1
        self.said += decision.outcome == SAID
        self.memories += len(decision.hits)
        self.tokens += decision.tokens
        self.outcomes[decision.outcome] += 1
        self.doors[decision.door] += 1

    def described(self) -> dict[str, int]:
        """The totals as `--json` shows them."""
        return {
            "sessions": self.sessions,
            "events": self.events,
            "said": self.said,
            "memories": self.memories,
            "tokens": self.tokens,
        }


class _Session(Struct):
    """A session in progress. `turn` holds what the agent has written since the last prompt, and
    `events` holds what capture reads at the end of the turn."""

    relocation: PathRelocation | None
    prompts: int = 0
    turn: list[tuple[float, str]] = field(default_factory=list[tuple[float, str]])
    events: list[SessionEvent] = field(default_factory=list[SessionEvent])


class Replay:
    """Runs events through `product`. `choices` are the kinds of memory to use, and `memories` are
    the user's own.
    """

    def __init__(
        self,
        product: Product,
        clock: SimulatedClock,
        projects: ReplayProjects,
        choices: frozenset[With],
        memories: Iterable[Memory] = (),
    ) -> None:
        self._product = product
        self._clock = clock
        self._projects = projects
        self._choices = choices
        self._notes = Arrivals(memories if With.MEMORY in choices else ())
        self._sessions: dict[str, _Session] = {}

    async def decisions(self, events: Iterable[SessionEvent]) -> AsyncIterator[ReplayDecision]:
        """Yield a decision for every session start, compaction, prompt and call.

        Raises:
            UpwellError: the scratch home or a repository failed.
        """
        for event in events:
            self._clock.advance(event.t)
            if notes := self._notes.until(self._clock.now()):
                await self._product.remember([self._projects.moved(note) for note in notes])
            session = self._sessions.get(event.session)
            if session is None:
                session = self._sessions[event.session] = await self._begin(event)
            if event.kind in (Kind.PROMPT, Kind.END):
                await self._end_turn(event, session)
            event_here = session.relocation.event(event) if session.relocation else event
            if event.kind in _DECIDED:
                yield await self._decide(event, event_here, session)
            self._record(event, event_here, session)
            if event.kind is Kind.END:
                del self._sessions[event.session]

    @property
    def later_notes(self) -> int:
        """The number of the user's notes that are newer than every event so far."""
        return self._notes.left

    async def _begin(self, event: SessionEvent) -> _Session:
        root = self._projects.root_of(event.cwd)
        is_new = root is not None and not self._projects.knows(root)
        project = self._projects.at(root) if root else None
        if root is None or project is None:
            return _Session(None)
        if is_new and With.GIT in self._choices:
            commits = self._product.commits(root)
            project.commits = Arrivals(map(self._projects.moved, commits))
        if project.checkout.move(event.t) and With.DOCS in self._choices:
            await self._product.read_documents(project.folder)
        if arrivals := project.commits.until(event.t):
            await self._product.remember(arrivals)
        return _Session(PathRelocation(project, event.cwd))

    async def _decide(
        self, event: SessionEvent, event_here: SessionEvent, session: _Session
    ) -> ReplayDecision:
        cue = cue_of(event_here, event_here.cwd)
        moment = moment_named(event_here, cue, session.prompts)
        if event.kind is Kind.COMPACT:
            await self._product.compacting(event.session)
        outcome = await self._product.surface(cue) if cue else None
        surfacing = outcome if isinstance(outcome, Surfacing) else None
        skip = outcome if isinstance(outcome, Skip) else None
        text = surfacing.text if surfacing else ""
        if surfacing:
            # The id is random, and the number of tokens must be the same in every run.
            text = text.replace(surfacing.id, "s_" + "0" * (len(surfacing.id) - 2))
        return ReplayDecision(
            session=event.session,
            i=event.i,
            t=event.t,
            door=str(cue.door) if cue else "tool",
            moment=moment,
            outcome=SAID if surfacing else str(skip.reason) if skip else NO_HOOK,
            hits=surfacing.hits if surfacing else (),
            tokens=count(text) if surfacing else 0,
            subject=_line(event),
            detail=skip.detail if skip else "",
        )

    def _record(self, event: SessionEvent, event_here: SessionEvent, session: _Session) -> None:
        session.prompts += event.kind is Kind.PROMPT
        if len(session.turn) < _MAX_TEXTS:
            session.turn += _texts_written(event)
        if With.LEARNED in self._choices:
            session.events.append(event_here)

    async def _end_turn(self, event: SessionEvent, session: _Session) -> None:
        turn, session.turn = session.turn, []
        over = event.kind is Kind.END
        if turn or over:
            await self._product.turn_ended(event.session, turn, over=over)
        events, session.events = session.events, []
        if events and session.relocation is not None:
            await self._product.learn(events, session.relocation.folder)
        if over and With.LEARNED in self._choices:
            await self._product.keep_record(event.session)


def described(decision: ReplayDecision, projects: ReplayProjects) -> dict[str, Any]:
    """The decision as `--json` shows it."""
    return {
        "session": decision.session,
        "i": decision.i,
        "t": decision.t,
        "door": decision.door,
        "moment": decision.moment,
        "outcome": decision.outcome,
        "memories": [
            {
                "id": name_of(hit.memory),
                "kind": kind_of(hit.memory),
                "source": projects.shown(hit.memory.source),
                "score": round(hit.score, 4),
                "text": projects.shown(hit.memory.text),
                "trigger": hit.trigger,
                "created_at": iso(hit.memory.created_at),
            }
            for hit in decision.hits
        ],
        "tokens": decision.tokens,
    }


def kind_of(memory: Memory) -> str:
    """The kind of a memory: `rule`, `episode`, `commit`, `learned` (from a session), `doc` or
    `note`."""
    if memory.pinned:
        return "rule"
    if memory.triggers:
        return "episode"
    if memory.source.startswith("git:"):
        return "commit"
    if memory.provenance.door == "capture":
        return "learned"
    return "doc" if memory.lines else "note"


def name_of(memory: Memory) -> str:
    """The id of a memory. A passage of a document is identified by its file and lines instead,
    because its id depends on the folder of the checkout."""
    if memory.lines is None:
        return memory.id
    return f"{memory.source}#L{memory.lines[0]}-L{memory.lines[1]}"


def _texts_written(event: SessionEvent) -> list[tuple[float, str]]:
    if event.kind is Kind.SAY:
        return [(event.t, event.text)]
    if event.kind is Kind.TOOL:
        values = [value for value in event.args.values() if isinstance(value, str)]
        return [(event.t, "\n".join(values))]
    return []


def _line(event: SessionEvent) -> str:
    if event.kind is not Kind.TOOL:
        return " ".join(event.text.split())
    subject = next((value for value in event.args.values() if isinstance(value, str)), "")
    return " ".join(f"{event.tool} {subject}".split())


def cue_of(event: SessionEvent, cwd: str | None) -> Cue | None:
    """The cue for an event in the folder `cwd`; None if hooks do not report the event. Events from
    all hosts use Claude Code's names for tools."""
    cue = partial(Cue, session=event.session, cwd=cwd, at=event.t)
    if event.kind in (Kind.START, Kind.COMPACT):
        reason = "compact" if event.kind is Kind.COMPACT else event.text or STARTED
        return cue(door=Door.SESSION, text=reason)
    if event.kind is Kind.PROMPT:
        return cue(door=Door.PROMPT, text=event.text)
    tool = claude.EVENTS.surfacing_tool(event.tool) if event.kind is Kind.TOOL else ""
    if not tool:
        return None
    answer = ToolAnswer(text=event.out, failed=event.failed)
    chars = len(event.out)
    return cue(door=Door.TOOL, tool=tool, args=event.args, reply_chars=chars, answer=answer)


def moment_named(event: SessionEvent, cue: Cue | None, prompts_before: int) -> str:
    """The name of an event's moment. `prompts_before` is the number of earlier prompts in the
    session."""
    if event.kind is Kind.START:
        return SESSION_START
    if event.kind is Kind.COMPACT:
        return COMPACTION
    if cue is None:
        return str(Moment.ROUTINE)
    return str(moment_of(Event.of(cue, PipelineOptions(), 0.0), prompts_before))
