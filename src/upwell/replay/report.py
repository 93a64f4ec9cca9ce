"""What a replay says to people: its sessions and totals, a sample for them to judge, with the share
of useful memories and a threshold that their answers suggest, and why a replay is silent.
"""

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from math import sqrt
from typing import Any

from msgspec import Struct, field

from upwell.ground.secrets.redact import redact
from upwell.ground.text.words import counted, iso
from upwell.ground.types.cue import SkipReason
from upwell.ground.types.memory import Hit, Memory
from upwell.replay.memories import ReplayProjects
from upwell.replay.run import NO_HOOK, SAID, ReplayDecision, Summary, kind_of, name_of
from upwell.surface.explain import REASONS

Z = 1.96
"""The 97.5 % quantile of the normal distribution, for a 95 % interval."""
MIN_LABELS = 20
"""The minimum number of answers for fitting a threshold. Fewer would fit it to chance."""


class SampledHit(Struct, frozen=True):
    """A memory that surfaced, and the decision to show it."""

    decision: ReplayDecision
    hit: Hit


class Label(Struct, frozen=True):
    """A person's answer about a memory with this score. `useful` is None for "unsure"."""

    score: float
    useful: bool | None


class Share(Struct, frozen=True):
    """The number of useful memories among the answers. The true share lies between `low` and `high`
    with 95 % confidence."""

    useful: int
    answers: int
    low: float
    high: float


class Fit(Struct, frozen=True):
    """A threshold, and how many of the labelled memories pass it: useful ones and others."""

    min_score: float
    useful: int
    others: int


class ReplaySample:
    """Draws `size` memories from a replay, all with the same probability (reservoir sampling,
    Vitter 1985, algorithm R). The same replay always gives the same sample."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._random = random.Random(size)
        self._offered = 0
        self._drawn: list[SampledHit] = []

    def offer(self, decision: ReplayDecision) -> None:
        """Let the sample draw from the memories in a decision."""
        for hit in decision.hits:
            self._offered += 1
            if len(self._drawn) < self._size:
                self._drawn.append(SampledHit(decision, hit))
            elif (index := self._random.randrange(self._offered)) < self._size:
                self._drawn[index] = SampledHit(decision, hit)

    def sampled_hits(self) -> Sequence[SampledHit]:
        """The sample in chronological order."""
        return sorted(
            self._drawn, key=lambda sampled_hit: (sampled_hit.decision.t, sampled_hit.decision.i)
        )


def share_of(labels: Sequence[Label]) -> Share:
    """The share of useful memories among the definite answers, with its 95 % interval (Wilson
    1927)."""
    answers = [label for label in labels if label.useful is not None]
    useful, total = sum(bool(label.useful) for label in answers), len(answers)
    if not total:
        return Share(0, 0, 0.0, 1.0)
    share = useful / total
    middle = share + Z * Z / (2 * total)
    reach = Z * sqrt(share * (1 - share) / total + Z * Z / (4 * total * total))
    below = 1 + Z * Z / total
    return Share(
        useful, total, max(0.0, (middle - reach) / below), min(1.0, (middle + reach) / below)
    )


def fitted(labels: Sequence[Label]) -> Fit | None:
    """The `surface.min_score` at which useful memories outnumber the others by the widest margin.
    None if they never do, or if there are fewer than `MIN_LABELS` answers. The result is rarely
    below the current threshold, because nobody has judged the memories that did not surface."""
    answers = [label for label in labels if label.useful is not None]
    if len(answers) < MIN_LABELS:
        return None
    best: Fit | None = None
    for score in sorted({label.score for label in answers}):
        passing = [label for label in answers if label.score >= score]
        useful = sum(bool(label.useful) for label in passing)
        fit = Fit(int(score * 1000) / 1000, useful, len(passing) - useful)
        margin = best.useful - best.others if best else 0
        if fit.useful - fit.others > margin:
            best = fit
    return best


_LESSONS = ("episode", "learned")
_NAMES: Mapping[str, tuple[str, str]] = {
    "note": ("note", "notes"),
    "rule": ("standing rule", "standing rules"),
    "commit": ("commit", "commits"),
    "doc": ("passage of documents", "passages of documents"),
    "lesson": ("lesson of an earlier session", "lessons of earlier sessions"),
}
REMEDY = (
    "upwell speaks when an error, a file or a question returns that a memory explains: `upwell "
    "remember` writes one, and `upwell setup` lets upwell learn from each session."
)


class Material(Struct):
    """The memories that were available to a replay, counted by kind. `later` counts the user's own
    memories that are newer than every session."""

    kinds: Counter[str] = field(default_factory=Counter[str])
    later: int = 0

    def add(self, memory: Memory) -> None:
        """Count a memory by its kind."""
        kind = kind_of(memory)
        self.kinds["lesson" if kind in _LESSONS else kind] += 1

    @property
    def has_history(self) -> bool:
        """True if there were commits or documents."""
        return bool(self.kinds["commit"] or self.kinds["doc"])


def silence(summary: Summary, material: Material | None) -> Iterator[str]:
    """Lines that explain to a person why no memory surfaced. `material` is None if the replay was
    interrupted."""
    counts = [(summary.doors["prompt"], "prompt"), (summary.doors["tool"], "call")]
    looked = _listed([counted(number, name) for number, name in counts if number])
    sessions = counted(summary.sessions, "session")
    place = f"{looked} in {sessions}" if looked else sessions
    if material is None:
        yield f"Nothing would have been said so far: the replay read {place}."
        return
    yield f"Nothing would have been said: the replay read {place}, and {_why(material)}."
    if material.kinds.total() and (reason := _commonest(summary.outcomes)):
        yield f"The most common reason: {reason}."
    yield REMEDY


def _why(material: Material) -> str:
    found = _listed(
        [
            counted(material.kinds[kind], *names)
            for kind, names in _NAMES.items()
            if material.kinds[kind]
        ]
    )
    younger = ""
    if material.later:
        owned = counted(material.later, "memory of yours is", "memories of yours are")
        younger = f"; {owned} younger than that"
    if not found:
        return f"there was no memory at the time{younger}"
    return f"none of the memories at the time ({found}) qualified{younger}"


def _commonest(outcomes: Mapping[str, int]) -> str:
    """The most common reason for silence. `ROUTINE` counts only if there is no other `SkipReason`,
    and `NO_HOOK` only if there is none at all."""
    reasons = sorted(
        (SkipReason(code) for code in outcomes if code in SkipReason),
        key=lambda reason: (reason is SkipReason.ROUTINE, -outcomes[reason]),
    )
    if reasons:
        return in_words(reasons[0])
    return in_words(NO_HOOK) if set(outcomes) - {SAID} else ""


def in_words(code: str) -> str:
    """A reason for silence in plain words."""
    return REASONS[SkipReason(code)] if code in SkipReason else "hooks do not report these events"


def _listed(parts: list[str]) -> str:
    *first, last = parts or [""]
    return f"{', '.join(first)} and {last}" if first else last


SHOWN = 3
"""For each session, the report shows at most this many decisions in which a memory surfaced."""
SUBJECT_CHARS, TEXT_CHARS, LABEL_CHARS = 90, 160, 600
_CITED = ("commit", "learned")
"""The kinds of memory that the report identifies by their source."""
COLUMNS = ("moment", "events", "spoke", "memories", "per 100", "tokens")


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
        self._moments: dict[str, Summary] = {}
        self._sessions: dict[str, _Session] = {}

    def add(self, decision: ReplayDecision) -> None:
        """Count a decision, and keep it if a memory surfaced."""
        self.summary.add(decision)
        session = self._sessions.setdefault(decision.session, _Session(decision.t))
        session.events += 1
        if decision.outcome == SAID:
            session.spoken.append(decision)
        self._moments.setdefault(decision.moment, Summary()).add(decision)

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
        rows = [
            (
                name,
                f"{sums.events:,}",
                f"{sums.said:,}",
                f"{sums.memories:,}",
                f"{100 * sums.memories / max(1, sums.events):.1f}",
                f"{sums.tokens:,}",
            )
            for name, sums in [*moments, ("all", self.summary)]
        ]
        return [dict(zip(COLUMNS, row, strict=True)) for row in rows]

    def silences(self) -> Sequence[str]:
        """A line for each reason for silence, with the number of events."""
        silent = Counter(self.summary.outcomes)
        del silent[SAID]
        return [
            f"  {number:>7,}  {in_words(code)}" for code, number in silent.most_common() if number
        ]


def _moment(decision: ReplayDecision, chars: int) -> str:
    """The time and the event. Secrets are masked, because prompts and commands may contain them."""
    subject = _cut(redact(decision.subject)[0], chars)
    return f"{_minute(decision.t)}  {decision.moment}: {subject}"


def _minute(at: float) -> str:
    return (iso(at) or "")[:16].replace("T", " ")


def _cut(text: str, chars: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= chars else line[: chars - 1] + "…"
