"""A replay's report for people: the sessions in which a memory surfaced, and the totals."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct, field

from upwell.ground.secrets.redact import redact
from upwell.ground.text.format import counted, iso
from upwell.ground.types.memory import Hit
from upwell.replay.memories import ReplayProjects
from upwell.replay.run import SAID, ReplayDecision, Summary, kind_of, name_of
from upwell.replay.silence import Material, in_words

SHOWN = 3
"""For each session, the report shows at most this many decisions in which a memory surfaced."""
SUBJECT_CHARS, TEXT_CHARS, LABEL_CHARS = 90, 160, 600
_CITED = ("commit", "learned")
"""The kinds of memory that the report identifies by their source."""
COLUMNS = ("moment", "events", "spoke", "memories", "per 100", "tokens")


class _Moment(Struct):
    events: int = 0
    spoke: int = 0
    memories: int = 0
    tokens: int = 0


class _Session(Struct):
    """A session: `events` counts all its decisions, and `spoken` holds those in which a memory
    surfaced."""

    began: float
    events: int = 0
    spoken: list[ReplayDecision] = field(default_factory=list[ReplayDecision])


class ReplayReport:
    """Collects the decisions of a replay and formats them."""

    def __init__(self, projects: ReplayProjects) -> None:
        self.summary = Summary()
        self.verdicts: Mapping[str, int] = {}
        """How many verdicts the judge gave and what they cost; empty without a judge."""
        self.shortening: Mapping[str, int] = {}
        """What `hook.compress` would have saved: `results`, `shortened`, `tokens`, `saved`."""
        self.material: Material | None = None
        """The memories that were available to the replay, counted only if none of them surfaced."""
        self.incomplete: Sequence[str] = ()
        """The roots of the repositories that lack objects."""
        self._projects = projects
        self._moments: dict[str, _Moment] = {}
        self._sessions: dict[str, _Session] = {}

    def add(self, decision: ReplayDecision) -> None:
        """Count a decision, and keep it if a memory surfaced."""
        self.summary.add(decision)
        session = self._sessions.setdefault(decision.session, _Session(decision.t))
        session.events += 1
        if decision.outcome == SAID:
            session.spoken.append(decision)
        moment = self._moments.setdefault(decision.moment, _Moment())
        moment.events += 1
        moment.spoke += decision.outcome == SAID
        moment.memories += len(decision.hits)
        moment.tokens += decision.tokens

    def sessions(self) -> Iterator[str]:
        """Lines about every session in which a memory would have surfaced, oldest first."""
        for name, session in sorted(self._sessions.items(), key=lambda item: item[1].began):
            if not session.spoken:
                continue
            memories = sum(len(decision.hits) for decision in session.spoken)
            tokens = sum(decision.tokens for decision in session.spoken)
            yield (
                f"{_minute(session.began)}  {name[:40]}  {counted(session.events, 'event')}, "
                f"{counted(memories, 'memory', 'memories')}, {counted(tokens, 'token')}"
            )
            for decision in session.spoken[:SHOWN]:
                yield from self.decision(decision)
            rest = len(session.spoken) - SHOWN
            if rest > 0:
                yield f"  … and {rest} more (--json shows all)"

    def decision(self, decision: ReplayDecision) -> Iterator[str]:
        """Lines with the time, the event and the surfaced memories of a decision."""
        yield f"  {_moment(decision, SUBJECT_CHARS)}"
        for hit in decision.hits:
            text = _cut(self._projects.shown(hit.memory.text), TEXT_CHARS)
            yield f"    {hit.score:.2f}  {self._named(hit)}: {text}"

    def sampled_hit(self, decision: ReplayDecision, hit: Hit) -> Iterator[str]:
        """Lines with the event and the whole memory, without its score."""
        yield _moment(decision, LABEL_CHARS)
        yield f"  {self._named(hit)}"
        for line in self._projects.shown(hit.memory.text).splitlines():
            yield f"  | {line}"

    def _named(self, hit: Hit) -> str:
        memory = hit.memory
        kind = kind_of(memory)
        name = memory.source if kind in _CITED else name_of(memory)
        return f"{kind} {self._projects.shown(name)}"

    def rows(self) -> Sequence[Mapping[str, Any]]:
        """The totals for each moment, and for all moments together."""
        moments = sorted(self._moments.items(), key=lambda item: -item[1].memories)
        total = self.summary
        sums = _Moment(total.events, total.said, total.memories, total.tokens)
        return [_row(name, moment) for name, moment in [*moments, ("all", sums)]]

    def silences(self) -> Sequence[str]:
        """A line for each reason for silence, with the number of events."""
        silent = Counter(self.summary.outcomes)
        del silent[SAID]
        return [
            f"  {number:>7,}  {in_words(code)}" for code, number in silent.most_common() if number
        ]


def _row(name: str, moment: _Moment) -> Mapping[str, Any]:
    per_hundred = 100 * moment.memories / moment.events if moment.events else 0.0
    values = (
        name,
        f"{moment.events:,}",
        f"{moment.spoke:,}",
        f"{moment.memories:,}",
        f"{per_hundred:.1f}",
        f"{moment.tokens:,}",
    )
    return dict(zip(COLUMNS, values, strict=True))


def _moment(decision: ReplayDecision, chars: int) -> str:
    """The time and the event. Secrets are masked, because prompts and commands may contain them."""
    subject = _cut(redact(decision.subject)[0], chars)
    return f"{_minute(decision.t)}  {decision.moment}: {subject}"


def _minute(at: float) -> str:
    return (iso(at) or "")[:16].replace("T", " ")


def _cut(text: str, chars: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= chars else line[: chars - 1] + "…"
