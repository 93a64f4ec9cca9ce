"""Measures whether upwell says what earlier sessions taught when it matters, and only then.

    python benchmarks/moments.py FOLDER [--unit NAME]… [--judge FILE] [--said FILE]
    python benchmarks/moments.py FOLDER --reports FILE

FOLDER has, for each unit, its sessions (`UNIT/`: transcripts), its repository (`repositories/UNIT`)
and `lessons-UNIT.jsonl` (what a model wrote at the end of each session, with `session` counted from
1 in order of time). `moments.jsonl` lists moments at which an earlier session held what was needed:
`unit`, `session`, `i`, `strength` and `key`, a pattern that the memory must match. The data is not
part of the repository. No model is called.

The sessions are replayed in order of time, as `upwell replay --with git,docs,learned` does, so that
commits, documents, states of work and what upwell learns without a model may be said, too. A lesson
exists as soon as the last event of its session is over. A strong moment counts as used if what was
said at it, or up to two events before, matches its key. Five systems are compared: upwell without
lessons; with them; with the lessons as plain notes, as they were stored before 0.3; the first
lesson by BM25 above a threshold, alone; and with `--judge`, lessons and verdicts.

FILE has recorded verdicts, one `{"id", "say"}` per line, in which `say` is the number of a note,
from 1, or null. Questions without a verdict count as null, and are appended to FILE as
`{"id", "question"}`, to be answered by whoever plays the model. Verdicts change what is said later,
so that a second run asks a few more.

With `--reports`, FILE has one JSON object per line, a prompt with the `id`s of the lessons that
should be said and those that must not: `{"prompt", "right", "wrong"}`. Each prompt opens a session.
`--said` writes what was said, with the events that followed, for labelling.
"""

import argparse
import asyncio
import hashlib
import json
import math
import os
import re
import tempfile
import threading
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from upwell.app import Settings, build
from upwell.app.replaying import replaying
from upwell.episodes.events import Kind, SessionEvent
from upwell.ground.ledger import TtlStore
from upwell.ground.text.anchors import paths_in, symbols_in
from upwell.ground.text.words import informative, terms
from upwell.ground.types.cue import Cue, Surfacing
from upwell.ground.types.memory import LESSON, Memory, Provenance, Trust
from upwell.replay.memories import With
from upwell.replay.run import SimulatedClock, kind_of
from upwell.replay.timeline import Timeline
from upwell.replay.transcripts import transcripts_at
from upwell.surface.options import PipelineOptions
from upwell.surface.pipeline import Surfacer

DECIDED = frozenset({Kind.START, Kind.COMPACT, Kind.PROMPT, Kind.TOOL})
BEFORE = 2
"""A memory still counts for a moment this many events later."""
AFTER = 6
"""How many of the following events `--said` shows."""
BM25_LEAST, K1, B = 12.0, 1.2, 0.75


@dataclass
class Unit:
    """The sessions of one repository, and what a model wrote about each."""

    name: str
    repository: Path
    timeline: Timeline
    events: list[SessionEvent]
    lessons: list[tuple[float, Memory]]
    moments: list[dict[str, Any]]


@dataclass
class Said:
    """A memory that was said at an event."""

    event: SessionEvent
    moment: str
    memory: Memory
    weight: float = 0.0


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line]


def unit_at(folder: Path, name: str) -> Unit:
    """Read a unit."""
    timeline = Timeline(transcripts_at([folder / name]), print)
    events = list(timeline)
    sessions = list(OrderedDict.fromkeys(event.session for event in events))
    ends = {event.session: event.t for event in events}
    repository = (folder / "repositories" / name).resolve()
    lessons = []
    for row in lines(folder / f"lessons-{name}.jsonl"):
        if row["session"] <= len(sessions):
            session = sessions[row["session"] - 1]
            new = lesson(row, session, ends[session], str(repository))
            lessons.append((ends[session], new))
    lessons.sort(key=lambda entry: entry[0])
    moments = [row for row in lines(folder / "moments.jsonl") if row["unit"] == name]
    return Unit(name, repository, timeline, events, lessons, moments)


def lesson(row: dict[str, Any], session: str, at: float, root: str) -> Memory:
    """A lesson as upwell stores it. An empty text takes the lesson that it replaces back."""
    triggers = tuple(row.get("triggers", ()))[:12]
    joined = " ".join(f"`{trigger}`" for trigger in triggers)
    return Memory(
        id=row["id"],
        namespace="lessons",
        text=row["text"],
        tags=triggers,
        paths=paths_in(joined),
        symbols=symbols_in(joined),
        project=root,
        source=f"session:{session}",
        provenance=Provenance(door=LESSON, tool=row.get("kind", ""), session=session),
        trust=Trust.AGENT,
        supersedes=row.get("replaces"),
        created_at=at,
        updated_at=at,
    )


def as_note(memory: Memory) -> Memory:
    """The lesson as a plain note, which is how it was stored before there were lessons."""
    return Memory(
        id=memory.id,
        text=memory.text,
        tags=memory.tags,
        paths=memory.paths,
        symbols=memory.symbols,
        project=memory.project,
        trust=Trust.AGENT,
        supersedes=memory.supersedes,
        created_at=memory.created_at,
        updated_at=memory.updated_at,
    )


class RecordedJudge:
    """An endpoint that gives recorded verdicts, and collects the questions that have none."""

    def __init__(self, path: Path) -> None:
        self._path = path
        rows = lines(path) if path.exists() else []
        said = {row["id"]: row["say"] for row in rows if "say" in row}
        self._asked = {row["id"] for row in rows}
        self._verdicts: defaultdict[str, list[tuple[set[str], str | None]]] = defaultdict(list)
        for row in rows:
            if "question" in row and row["id"] in said:
                texts, number = _notes(row["question"]), said[row["id"]]
                chosen = texts[number - 1] if number else None
                self._verdicts[_moment(row["question"])].append((set(texts), chosen))

    def reply(self, text: str) -> str:
        """The verdict on a question: one that was given at the same moment, on these notes and
        perhaps others. Keys are random, so they do not identify a note."""
        question = json.loads(text)
        keys = [note.pop("key") for note in question["notes"]]
        texts = _notes(question)
        for seen, chosen in reversed(self._verdicts[_moment(question)]):
            if seen.issuperset(texts) and (chosen is None or chosen in texts):
                key = None if chosen is None else keys[texts.index(chosen)]
                return json.dumps({"say": key})
        name = hashlib.sha256(json.dumps(question).encode()).hexdigest()[:16]
        if name not in self._asked:
            self._asked.add(name)
            row = {"id": name, "question": question}
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
        return json.dumps({"say": None})

    @contextmanager
    def serving(self) -> Iterator[str]:
        """Serves on loopback. Yields the base URL."""
        judge = self

        class Answers(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                message = {"role": "assistant", "content": judge.reply(_last(body["messages"]))}
                answer = json.dumps({"choices": [{"message": message}]}).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: object) -> None:
                pass

        with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            yield f"http://127.0.0.1:{server.server_port}/v1"
            server.shutdown()


def _notes(question: dict[str, Any]) -> list[str]:
    return [note["text"][:80] for note in question["notes"]]


def _moment(question: dict[str, Any]) -> str:
    return json.dumps(question["moment"])


def _last(messages: Sequence[dict[str, str]]) -> str:
    return messages[-1]["content"]


async def upwell(
    unit: Unit, shape: Callable[[Memory], Memory] | None, *, judged: bool = False
) -> list[Said]:
    """What upwell says in a unit, with its lessons in this shape (None: without lessons)."""
    said: list[Said] = []
    events = {(event.session, event.i): event for event in unit.events}
    choices = frozenset({With.GIT, With.DOCS, With.LEARNED})
    waiting = list(unit.lessons) if shape else []
    timeline = Timeline(unit.timeline.transcripts, print)
    async with replaying(timeline, choices, unit.repository, judged=judged) as running:
        async for decision in running.simulation.decisions(timeline):
            while shape and waiting and waiting[0][0] <= decision.t:
                new = running.projects.moved(shape(waiting.pop(0)[1]))
                await keep(running.app.memory, new)
            event = events[decision.session, decision.i]
            said += [
                Said(event, decision.moment, hit.memory, hit.signals.get("bearing", hit.score))
                for hit in decision.hits
            ]
    return said


async def keep(memory: Any, new: Memory) -> None:
    """Store a lesson, or delete the one that it takes back."""
    if new.text:
        await memory.add_many([new])
    elif new.supersedes:
        await memory.delete(new.supersedes)


def bm25(unit: Unit, least: float) -> list[Said]:
    """The baseline: at each prompt and each failure, the best lesson by BM25, if it scores at least
    `least`, once in a session."""
    said: list[Said] = []
    heard: set[tuple[str, str]] = set()
    waiting, live = list(unit.lessons), dict[str, tuple[Memory, Counter[str]]]()
    for event in unit.events:
        while waiting and waiting[0][0] < event.t:
            new = waiting.pop(0)[1]
            live.pop(new.supersedes or "", None)
            if new.text:
                live[new.id] = new, Counter(informative_terms(f"{new.text} {' '.join(new.tags)}"))
        asked = event.text if event.kind is Kind.PROMPT else ""
        if event.kind is Kind.TOOL and event.failed:
            asked = f"{event.args.get('command', '')} {event.out[:1_000]}"
        if not asked or not live:
            continue
        best, score = top(asked, list(live.values()))
        if score >= least and (event.session, best.id) not in heard:
            heard.add((event.session, best.id))
            said.append(Said(event, "prompt" if event.text else "failed", best, score))
    return said


def informative_terms(text: str) -> list[str]:
    words = terms(text)
    telling = set(informative(words))
    return [word for word in words if word in telling]


def top(asked: str, live: Sequence[tuple[Memory, Counter[str]]]) -> tuple[Memory, float]:
    words = set(informative_terms(asked))
    mean = sum(sum(counts.values()) for _, counts in live) / len(live)
    weights = {
        word: math.log(1 + (len(live) - n + 0.5) / (n + 0.5))
        for word in words
        if (n := sum(word in counts for _, counts in live))
    }

    def score(counts: Counter[str]) -> float:
        scale = K1 * (1 - B + B * sum(counts.values()) / mean)
        return sum(
            w * counts[word] * (K1 + 1) / (counts[word] + scale) for word, w in weights.items()
        )

    best = max(live, key=lambda entry: score(entry[1]))
    return best[0], score(best[1])


def used(unit: Unit, said: Sequence[Said], reach: int = BEFORE) -> tuple[int, int]:
    """How many strong moments were used, and how many there are."""
    strong = [row for row in unit.moments if row["strength"] == "strong"]
    by_session: defaultdict[str, list[Said]] = defaultdict(list)
    for entry in said:
        by_session[entry.event.session].append(entry)
    hits = sum(
        any(
            0 <= row["i"] - entry.event.i <= reach
            and re.search(row["key"], entry.memory.text, re.I)
            for entry in by_session[row["session"]]
        )
        for row in strong
    )
    return hits, len(strong)


def decided(unit: Unit) -> int:
    return sum(event.kind in DECIDED for event in unit.events)


def row_of(name: str, units: Sequence[tuple[Unit, Sequence[Said]]]) -> str:
    events = sum(decided(unit) for unit, _ in units)
    everything = [entry for _, said in units for entry in said]
    again = sum(entry.event.kind is Kind.COMPACT for entry in everything)
    count = len(everything) - again
    near = [used(unit, said) for unit, said in units]
    ever = sum(used(unit, said, 10**9)[0] for unit, said in units)
    moments, all_moments = sum(hit for hit, _ in near), sum(total for _, total in near)
    cells = (name, events, count, f"{100 * count / events:.2f}", moments, ever, all_moments, again)
    return f"| {' | '.join(map(str, cells))} |"


HEAD = (
    "| | events | said | per 100 events | strong moments used | by then in the session | of "
    "| again after a compaction |\n|---|---|---|---|---|---|---|---|"
)


def labelled(system: str, unit: Unit, said: Iterable[Said]) -> Iterator[str]:
    """One line for each memory said, with what happened next."""
    by_session: defaultdict[str, list[SessionEvent]] = defaultdict(list)
    for event in unit.events:
        by_session[event.session].append(event)
    for entry in said:
        follows = [event for event in by_session[entry.event.session] if event.i > entry.event.i]
        yield json.dumps(
            {
                "system": system,
                "unit": unit.name,
                "session": entry.event.session,
                "i": entry.event.i,
                "moment": entry.moment,
                "weight": round(entry.weight, 2),
                "id": entry.memory.id,
                "kind": kind_of(entry.memory),
                "source": entry.memory.source,
                "event": shown(entry.event),
                "text": entry.memory.text,
                "after": [shown(event) for event in follows[:AFTER]],
                "label": "",
            },
            ensure_ascii=False,
        )


def shown(event: SessionEvent) -> str:
    words = event.text or f"{event.tool} {json.dumps(event.args, ensure_ascii=False)[:400]}"
    failed = " FAILED" if event.failed else ""
    out = f" =>{failed} {event.out[:400]}" if event.out else failed
    return " ".join(f"{event.kind}: {words[:900]}{out}".split())


async def units(
    folder: Path, names: Sequence[str], said_file: Path | None, *, judged: bool
) -> None:
    systems: dict[str, list[tuple[Unit, Sequence[Said]]]] = {}
    rows: list[str] = []
    for name in names:
        unit = unit_at(folder, name)
        runs: dict[str, Sequence[Said]] = {
            "no model": await upwell(unit, None),
            "lessons": await upwell(unit, lambda memory: memory),
            "lessons as notes": await upwell(unit, as_note),
            f"BM25 ≥ {BM25_LEAST:g}": bm25(unit, BM25_LEAST),
        }
        if judged:
            runs["lessons and judge"] = await upwell(unit, lambda memory: memory, judged=True)
        print(f"\n## {name}\n\n{HEAD}")
        for system, said in runs.items():
            print(row_of(system, [(unit, said)]), flush=True)
            systems.setdefault(system, []).append((unit, said))
            rows += labelled(system, unit, said)
    print(f"\n## together\n\n{HEAD}")
    for system, runs_of in systems.items():
        print(row_of(system, runs_of))
    if said_file:
        said_file.write_text("\n".join(rows) + "\n", encoding="utf-8")


async def reports(folder: Path, prompts: Path) -> None:
    """Which lessons are said at each prompt: the right ones, the replaced, and others."""
    root, at = "/work-tree/repository", 1_700_000_000.0
    clock, counts = SimulatedClock(at), Counter[str]()
    with tempfile.TemporaryDirectory() as home:
        settings = Settings(home=Path(home), environment={}, clock=clock, watches=False)
        app = await build(settings)
        surfacer = Surfacer(
            app.memory.reader, TtlStore(clock=clock), PipelineOptions(), clock=clock
        )
        for number, row in enumerate(lines(folder / "lessons.jsonl")):
            session = f"chat-{row['chat']}"
            await keep(app.memory, lesson(row, session, at + 60.0 * number, root))
        clock.advance(at + 864_000.0)
        for number, row in enumerate(lines(prompts)):
            cue = Cue(door="prompt", text=row["prompt"], session=f"r{number}", cwd=root)
            outcome = await surfacer.surface(cue)
            ids = (
                [memory.id for memory in outcome.memories] if isinstance(outcome, Surfacing) else []
            )
            whole = isinstance(outcome, Surfacing) and all(
                " ".join(memory.text.split())[-40:] in outcome.text for memory in outcome.memories
            )
            right, wrong = set(row["right"]) & set(ids), set(row["wrong"]) & set(ids)
            counts["reports"] += 1
            counts["right"] += bool(right)
            counts["right, all"] += set(row["right"]) <= set(ids)
            counts["replaced"] += bool(wrong)
            counts["another's"] += len(set(ids) - right - wrong)
            counts["whole"] += whole
            print(f"{row.get('task', number)}: {ids}, right {sorted(row['right'])}")
        await app.aclose()
    print(dict(counts))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("--unit", action="append", metavar="NAME", help="only this unit")
    parser.add_argument("--judge", type=Path, metavar="FILE", help="recorded verdicts")
    parser.add_argument("--said", type=Path, metavar="FILE", help="write what was said")
    parser.add_argument("--reports", type=Path, metavar="FILE", help="prompts and their lessons")
    options = parser.parse_args()
    if options.reports:
        asyncio.run(reports(options.folder, options.reports))
        return
    every = [path.stem.removeprefix("lessons-") for path in options.folder.glob("lessons-*.jsonl")]
    names = options.unit or sorted(every)
    with tempfile.TemporaryDirectory() as home:
        os.environ["UPWELL_HOME"] = home  # so that nothing of the user's own is read
        if options.judge is None:
            asyncio.run(units(options.folder, names, options.said, judged=False))
            return
        with RecordedJudge(options.judge).serving() as url:
            os.environ["UPWELL_LLM__BASE_URL"] = url
            asyncio.run(units(options.folder, names, options.said, judged=True))


if __name__ == "__main__":
    main()
