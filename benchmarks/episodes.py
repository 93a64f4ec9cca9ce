"""Measures what sessions find out repeatedly, and how often an episode of an earlier session
already has it.

    python benchmarks/episodes.py FOLDER…             transcripts of one project in each folder
    python benchmarks/episodes.py FOLDER… --read N    also prints N moments, to label them by eye

Sessions are read in order of time. An episode is a conclusion of a session, and its triggers are
the events at which it surfaces. A repeat is an event whose trigger also occurred in an earlier
session: a call that failed with the same error, the same missing file, the same name searched in
vain, the same ticket. A repeat counts as met if the earlier sessions left an episode for it that
can be told: a place only if it is the only one, otherwise the newest conclusion. The files of that
time do not exist here, so the benchmark cannot check whether an episode still holds; upwell checks
this before it speaks.
"""

import argparse
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from upwell.episodes.events import SessionEvent
from upwell.episodes.miner import EpisodeMiner
from upwell.episodes.triggers import Episode, EpisodeKind, triggers_of
from upwell.replay.transcripts import transcripts_at

SHOWN_CHARS = 160
AROUND = 4


@dataclass(frozen=True, slots=True)
class Spoken:
    """An episode at an event of a later session."""

    session: Sequence[SessionEvent]
    place: int
    trigger: str
    episode: Episode


@dataclass(slots=True)
class Result:
    """The counts of one project. `repeats`, `met` and `triggered` are by kind of trigger."""

    sessions: int = 0
    events: int = 0
    megabytes: float = 0.0
    cpu_seconds: float = 0.0
    learned: Counter[str] = field(default_factory=Counter)
    triggered: Counter[str] = field(default_factory=Counter)
    repeats: Counter[str] = field(default_factory=Counter)
    met: Counter[str] = field(default_factory=Counter)
    spoken: list[Spoken] = field(default_factory=list)


def measure(sessions: Iterable[Sequence[SessionEvent]]) -> Result:
    """Mine the sessions of a project in order, and compare each one with the episodes of the
    earlier ones.
    """
    result = Result()
    known: dict[str, dict[str, Episode]] = defaultdict(dict)
    met_before: set[str] = set()
    texts: set[str] = set()
    for session in sessions:
        result.sessions += 1
        result.events += len(session)
        started = time.process_time()
        episodes, moments = _mined(session)
        result.cpu_seconds += time.process_time() - started
        result.megabytes += sum(map(_size, session)) / 1e6
        _compare(result, session, moments, known, met_before)
        met_before.update(trigger for _, triggers in moments for trigger in triggers)
        for episode in episodes:
            if episode.text not in texts:
                result.learned[episode.kind] += 1
                texts.add(episode.text)
            for trigger in episode.triggers:
                known[trigger][episode.text] = episode
    return result


def _mined(
    session: Sequence[SessionEvent],
) -> tuple[list[Episode], list[tuple[int, tuple[str, ...]]]]:
    """The episodes of a session, and the positions and triggers of the events that have any."""
    miner = EpisodeMiner()
    episodes: list[Episode] = []
    moments = []
    for place, event in enumerate(session):
        episodes += miner.feed(event)
        if triggers := triggers_of(event):
            moments.append((place, triggers))
    episodes += miner.end()
    return episodes, moments


def _compare(
    result: Result,
    session: Sequence[SessionEvent],
    moments: Iterable[tuple[int, tuple[str, ...]]],
    known: dict[str, dict[str, Episode]],
    met_before: set[str],
) -> None:
    told_texts: set[str] = set()
    for place, triggers in moments:
        kind = triggers[0].partition(":")[0]
        result.triggered[kind] += 1
        at = session[place].t
        matching_episodes = [
            (each, _chosen(known[each].values(), at)) for each in triggers if each in known
        ]
        chosen = next(((each, episode) for each, episode in matching_episodes if episode), None)
        if met_before.intersection(triggers):
            result.repeats[kind] += 1
            result.met[kind] += chosen is not None
        if chosen and chosen[1] and chosen[1].text not in told_texts:
            told_texts.add(chosen[1].text)
            result.spoken.append(Spoken(session, place, chosen[0], chosen[1]))


def _chosen(episodes: Iterable[Episode], at: float) -> Episode | None:
    """The newest conclusion that is older than the moment, or a place if it is the only one."""
    earlier = [episode for episode in episodes if episode.at < at]
    if any(episode.kind is EpisodeKind.PLACE for episode in earlier):
        return earlier[0] if len({episode.paths for episode in earlier}) == 1 else None
    return max(earlier, key=lambda episode: episode.at, default=None)


def sessions_below(folder: Path) -> list[Sequence[SessionEvent]]:
    """The sessions in a folder in order of time; of a session in several files the longest one."""
    longest: dict[str, Sequence[SessionEvent]] = {}
    for transcript in transcripts_at([folder]):
        events = list(transcript.events())
        if events and len(events) > len(longest.get(events[0].session, ())):
            longest[events[0].session] = events
    return sorted(longest.values(), key=lambda events: events[0].t)


def report(name: str, result: Result) -> Iterator[str]:
    """The lines about one project."""
    yield (
        f"{name}: {result.sessions} sessions, {result.events} events; "
        f"{_rate(result.megabytes, result.cpu_seconds)} MB a second of CPU"
    )
    learned = ", ".join(f"{count} {kind}" for kind, count in sorted(result.learned.items()))
    per_hundred = 100 * len(result.spoken) / max(1, result.events)
    yield f"  learned: {learned or 'nothing'}"
    yield f"  would speak at {len(result.spoken)} events ({per_hundred:.2f} in 100)"
    for kind in sorted(result.triggered):
        repeats, met = result.repeats[kind], result.met[kind]
        yield f"  {kind}: {result.triggered[kind]} moments, {repeats} repeats, {met} met"


def moment(spoken: Spoken) -> Iterator[str]:
    """An episode with the events around it, to judge whether it would have helped."""
    events, place = spoken.session, spoken.place
    yield f"{spoken.episode.text}   [{spoken.trigger}]"
    for number in range(max(0, place - AROUND), min(len(events), place + AROUND + 1)):
        mark = ">" if number == place else " "
        yield f"  {mark} {_shown(events[number])}"


def _shown(event: SessionEvent) -> str:
    if not event.tool:
        return f"{event.kind}: {event.text[:SHOWN_CHARS]!r}"
    call = str(next(iter(event.args.values()), ""))[:SHOWN_CHARS]
    return f"{event.tool} {call!r} → {event.out[:SHOWN_CHARS]!r}"


def _size(event: SessionEvent) -> int:
    return len(event.text) + len(event.out) + sum(len(str(value)) for value in event.args.values())


def _rate(megabytes: float, seconds: float) -> str:
    return f"{megabytes / seconds:.0f}" if seconds else "-"


def main(argv: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--read", type=int, default=0, metavar="N")
    options = parser.parse_args(argv)
    for folder in options.folders:
        result = measure(sessions_below(folder))
        print("\n".join(report(folder.name, result)))
        for spoken in result.spoken[: options.read]:
            print("\n".join(moment(spoken)))


if __name__ == "__main__":
    main(sys.argv[1:])
