"""Measures searches in past sessions: is the right session first, and is the answer in its text?

    python benchmarks/sessions.py QUESTIONS FOLDER… [--multiply N] [--peer DEJA --peer-home DIR]

QUESTIONS has one JSON object per line: `{"question", "session", "answer": [TEXT, …]}`. The session
is the one that settled the question. The answer counts as found if the text shown for the first
session contains any of the texts. The FOLDERs contain transcripts. upwell is compared with BM25
over whole sessions, with a search for the words of the question (`grep`), and, with `--peer`, with
the program `deja` over the sessions in `DIR/.claude`, which must be indexed beforehand.
`--multiply` adds N - 1 copies of every transcript, dated in other years.
"""

import argparse
import asyncio
import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from upwell.ground.files import Home
from upwell.memory.ranking.terms import query_words, word_list
from upwell.replay.transcripts import Transcript, transcripts_at
from upwell.sessions.answer import answers_to, lines_of
from upwell.sessions.index import SessionIndex, SessionScope
from upwell.sessions.turns import Turn, turns_of
from upwell.surface.render import preview

SHOWN, FIRST = 5, 1
SHOWN_CHARS = 940
"""The baselines show as many characters of a session as upwell does: 240 of the question plus 700
of the conclusion."""
K1, B = 1.2, 0.75
_YEAR = re.compile(rb"\b(20[12]\d)(-[01]\d-[0-3]\d[T_ ])")

Answer = tuple[str, Callable[[], str]]
"""The name of a session, and a function that returns the text shown for it, which runs outside the
measured time."""
Search = Callable[[str], Sequence[Answer]]


@dataclass(slots=True)
class Score:
    """The results of one system."""

    name: str
    first: int = 0
    in_five: int = 0
    answered: int = 0
    seconds: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)

    def row(self, questions: int) -> str:
        durations = sorted(self.seconds)
        cpu = sorted(self.cpu_seconds)[len(durations) // 2]
        median, p95 = durations[len(durations) // 2], durations[int(len(durations) * 0.95)]
        return (
            f"| {self.name} | {self.first} | {self.in_five} | {self.answered} | "
            f"{median * 1000:.0f} | {p95 * 1000:.0f} | {cpu * 1000:.0f} | of {questions}"
        )


def measure(name: str, search: Search, questions: Sequence[dict[str, Any]]) -> Score:
    """Ask one system all questions."""
    score = Score(name)
    for question in questions:
        started_at, cpu = time.perf_counter(), _cpu_seconds()
        answers = search(question["question"])
        score.seconds.append(time.perf_counter() - started_at)
        score.cpu_seconds.append(_cpu_seconds() - cpu)
        names = [name for name, _ in answers]
        expected = question["session"]
        score.first += names[:FIRST] == [expected]
        score.in_five += expected in names[:SHOWN]
        if names[:FIRST] != [expected]:
            score.missed.append(question["question"])
        shown = answers[0][1]().lower() if answers else ""
        score.answered += any(text.lower() in shown for text in question["answer"])
    return score


def _cpu_seconds() -> float:
    """The CPU time of this process and of its finished children."""
    return sum(os.times()[:4])


class Baselines:
    """BM25 over whole sessions, and a search for words. Both read the users' and agents' texts, and
    the commands."""

    def __init__(self, transcripts: Sequence[Transcript]) -> None:
        self._texts: dict[str, list[str]] = {}
        for transcript in transcripts:
            for turn in _turns(transcript):
                self._texts.setdefault(turn.session, []).append(_text_of(turn))
        self._counts = {
            name: Counter(word_list("\n".join(texts))) for name, texts in self._texts.items()
        }
        self._lengths = {name: counts.total() for name, counts in self._counts.items()}
        self._mean = sum(self._lengths.values()) / max(1, len(self._lengths))
        self._holding = Counter(word for counts in self._counts.values() for word in counts)

    def bm25(self, question: str) -> list[Answer]:
        scores = {name: self._score(name, question) for name in self._counts}
        return self._best(scores, question)

    def grep(self, question: str) -> list[Answer]:
        words = [word for word in query_words(question) if len(word) > 3]
        scores = {
            name: float(sum(word in counts for word in words))
            for name, counts in self._counts.items()
        }
        return self._best(scores, question)

    def _score(self, name: str, question: str) -> float:
        counts, score = self._counts[name], 0.0
        share = 1 - B + B * self._lengths[name] / self._mean
        for word in query_words(question):
            if count := counts.get(word, 0):
                holding = self._holding[word]
                idf = math.log(1 + (len(self._counts) - holding + 0.5) / (holding + 0.5))
                score += idf * count * (K1 + 1) / (count + K1 * share)
        return score

    def _best(self, scores: dict[str, float], question: str) -> list[Answer]:
        names = sorted(scores, key=lambda name: -scores[name])[:SHOWN]
        return [
            (name, partial(preview, "\n".join(self._texts[name]), [question], SHOWN_CHARS))
            for name in names
        ]


def peer(program: str, home: str) -> Search:
    """`deja search`, with a process for each question. The text shown is the block of its output
    that belongs to the first session."""
    environment = {**os.environ, "HOME": home}

    def search(question: str) -> list[Answer]:
        def run(*options: str) -> str:
            command = [program, "search", *options, "--limit", str(SHOWN), question]
            result = subprocess.run(command, env=environment, capture_output=True, check=False)
            return result.stdout.decode("utf-8", "replace")

        def first_block() -> str:
            blocks = re.split(r"^\[\w+\] ", run(), flags=re.MULTILINE)
            return blocks[1] if len(blocks) > 1 else ""

        hits = json.loads(run("--json") or "{}").get("hits", [])
        return [(hit["session"]["id"], first_block) for hit in hits]

    return search


def upwell_of(past: SessionIndex, loop: asyncio.AbstractEventLoop) -> Search:
    def search(question: str) -> list[Answer]:
        answers = loop.run_until_complete(
            answers_to(past, question, SessionScope(), SHOWN, os.environ)
        )
        return [
            (answer.match.session.name, partial("\n".join, lines_of(answer, question)))
            for answer in answers
        ]

    return search


def index_only(past: SessionIndex, loop: asyncio.AbstractEventLoop) -> Search:
    """A search that does not read the transcripts of the matching turns."""

    def search(question: str) -> list[Answer]:
        matches = loop.run_until_complete(past.search(question, SessionScope(), SHOWN))
        return [(match.session.name, partial(str, match.turn.conclusion)) for match in matches]

    return search


def multiplied(folders: Sequence[Path], times: int, scratch: Path) -> list[Path]:
    """The folders and copies of their transcripts, with all dates some years earlier."""
    all_folders = list(folders)
    for number in range(1, times):
        target = scratch / f"copy{number}"
        for transcript in transcripts_at(folders):
            name = f"{transcript.path.parent.name}-{transcript.path.stem}-{number}"
            path = target / f"{name}{transcript.path.suffix}"
            path.parent.mkdir(parents=True, exist_ok=True)
            content = transcript.path.read_bytes()
            path.write_bytes(_earlier(content, number))
        all_folders.append(target)
    return all_folders


def _earlier(content: bytes, years: int) -> bytes:
    return _YEAR.sub(lambda match: str(int(match[1]) - years).encode() + match[2], content)


def _turns(transcript: Transcript) -> Iterator[Turn]:
    try:
        yield from turns_of(transcript.events())
    except Exception as error:
        print(f"{transcript.path}: {error}", file=sys.stderr)


def _text_of(turn: Turn) -> str:
    commands = (run.command for run in turn.runs)
    return "\n".join([turn.question, *turn.remarks, *commands, *turn.changed, *turn.read])


def _sizes(path: Path) -> int:
    return sum(file.stat().st_size for file in path.parent.glob(f"{path.name}*"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("questions", type=Path)
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--multiply", type=int, default=1)
    parser.add_argument("--peer")
    parser.add_argument("--peer-home")
    parser.add_argument("--missed", action="store_true", help="print upwell's missed questions")
    options = parser.parse_args()
    questions = [json.loads(line) for line in options.questions.read_text().splitlines()]
    scratch = Path(tempfile.mkdtemp(prefix="sessions-"))
    try:
        _compare(options, questions, scratch)
    finally:
        shutil.rmtree(scratch)


def _past(home: Home, transcripts: Sequence[Transcript]) -> SessionIndex:
    return SessionIndex(home.sessions_db, lambda: transcripts)


def _compare(options: argparse.Namespace, questions: list[dict[str, Any]], scratch: Path) -> None:
    transcripts = transcripts_at(multiplied(options.folders, options.multiply, scratch))
    size = sum(transcript.path.stat().st_size for transcript in transcripts)
    loop, home = asyncio.new_event_loop(), Home(scratch / "home").prepare()
    past = _past(home, transcripts)
    started_at, cpu = time.perf_counter(), time.process_time()
    loop.run_until_complete(past.refresh())
    seconds, cpu = time.perf_counter() - started_at, time.process_time() - cpu
    sessions, turns = loop.run_until_complete(past.counts())
    loop.run_until_complete(past.aclose())
    past = _past(home, transcripts)
    started_at = time.perf_counter()
    loop.run_until_complete(past.refresh())
    print(
        f"{len(transcripts)} transcripts, {size / 1e6:.0f} MB: {sessions} sessions, {turns} turns; "
        f"indexed in {seconds:.1f} s, {size / 1e6 / seconds:.0f} MB/s "
        f"({size / 1e6 / cpu:.0f} MB/s of CPU); "
        f"again {(time.perf_counter() - started_at) * 1000:.0f} ms; "
        f"index {_sizes(home.sessions_db) / 1e6:.1f} MB, "
        f"{_sizes(home.sessions_db) / size:.1%} of the transcripts"
    )
    print("| system | right first | in five | answer in the first | ms p50 | ms p95 | CPU ms p50 |")
    own = upwell_of(past, loop)
    scores = [
        measure("upwell, index only", index_only(past, loop), questions),
        measure("upwell", own, questions),
    ]
    if options.multiply == 1:
        baselines = Baselines(transcripts)
        scores.append(measure("BM25, whole sessions", baselines.bm25, questions))
        scores.append(measure("grep", baselines.grep, questions))
    if options.peer:
        scores.append(measure("deja", peer(options.peer, options.peer_home), questions))
    for score in scores:
        print(score.row(len(questions)))
    if options.missed:
        print("missed:", *scores[1].missed, sep="\n  ")
    loop.run_until_complete(past.aclose())


if __name__ == "__main__":
    main()
