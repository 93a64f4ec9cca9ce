"""Two kinds of memory that are compared with what is happening, because no search finds them well:
episodes, and the lessons of earlier sessions.

An episode (the conclusion of an earlier session) is a memory with triggers: the exact situations in
which it helps, such as a missing file or a failing command. Unless the user asks for it, an episode
is shown only if one of its triggers is met in its own project, and if its files exist and still
contain its identifiers.

Lessons are few, and all lessons of a project share its words. So they are kept in memory, and
compared with each prompt and each call that went wrong (`bearing.py`). They also help where no
search starts, such as at a later prompt.
"""

import asyncio
import os
import stat
from collections.abc import Hashable, Iterable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from upwell.episodes.failures import failure_of, is_refused
from upwell.ground.clock import Clock
from upwell.ground.project import is_own
from upwell.ground.text.words import jaccard
from upwell.ground.trace import LOG
from upwell.ground.types.cue import Cue, Door, Moment
from upwell.ground.types.memory import LESSON, Hit, Memory, Scope, Trust
from upwell.ground.types.rpc import is_visible
from upwell.memory.base import MemoryReader
from upwell.memory.places import PLACE
from upwell.surface.bearing import Bearing, Book, PreparedPrompt, prepared, prompt_of
from upwell.surface.event import Event, as_session_event, file_sought

CHECK_SECONDS = 0.1
"""The time limit for checking files, so that a slow disk does not hold up the call."""
MAX_CHECKED_PATHS = 8
MAX_CHECKED_BYTES = 1_000_000
MAX_LISTED_ENTRIES = 30_000
"""The maximum number of entries searched in a project for another file of the same name. In a
larger project, the name counts as ambiguous, and the episode is left out."""
MAX_SHOWN_CHARS = 160
SITUATIONS: Mapping[str, str] = {
    "file": "the missing file",
    "below": "the missing file",
    "symbol": "an unsuccessful search for",
    "ticket": "the ticket",
}
"""The kinds of triggers, in words."""
_INSTALLED = frozenset({"node_modules", "vendor", "venv", "site-packages", "target", "__pycache__"})


def situation_of(cue: Cue, trigger: str) -> str:
    """The cue's situation as the trigger describes it, in words."""
    kind, _, value = trigger.partition(":")
    failure = failure_of(as_session_event(cue)) if kind in ("fails", "way") else None
    if failure is not None:
        step = failure.step.text[:MAX_SHOWN_CHARS]
        return f'the error "{failure.message[:MAX_SHOWN_CHARS]}" of `{step}`'
    return f"{SITUATIONS.get(kind, kind)} {value[:MAX_SHOWN_CHARS]}"


async def applicable(
    hits: Sequence[Hit], triggers: Sequence[str], project: str | None
) -> tuple[list[Hit], str]:
    """Reduce the episodes among `hits` to at most one, and place it first. Also returns why an
    episode was left out, if none remains (otherwise "").

    The triggers are tried one by one until one yields an episode. A trigger yields its newest
    conclusion if that holds in `project`; older conclusions are outdated. Otherwise, it yields the
    newest place (the location of a file, identifier or ticket) that holds, unless places that hold
    name different locations. Episodes that cannot be checked in time are left out.
    """
    episodes = [hit for hit in hits if hit.trigger]
    if not episodes:
        return list(hits), ""
    lacks: dict[str, str] = {}
    try:
        async with asyncio.timeout(CHECK_SECONDS):
            lacks = await asyncio.to_thread(_lacks, episodes, project)
    except TimeoutError:
        LOG.info("the files of an episode were not checked in time")
    others = [hit for hit in hits if not hit.trigger]
    for trigger in triggers:
        of_trigger = [hit for hit in episodes if hit.trigger == trigger]
        if episode := _chosen(of_trigger, lacks):
            return [episode, *others], ""
    return others, next(filter(None, lacks.values()), "several locations, not one")


def _chosen(hits: Sequence[Hit], lacks: Mapping[str, str]) -> Hit | None:
    conclusions = [hit for hit in hits if PLACE not in hit.signals]
    newest = max(conclusions, key=lambda hit: _written_at(hit.memory), default=None)
    if newest is not None and lacks.get(newest.memory.id) == "":
        return newest
    places = [hit for hit in hits if PLACE in hit.signals and lacks.get(hit.memory.id) == ""]
    # Sessions in different folders of the project word the same location differently.
    locations = {frozenset(hit.memory.paths) for hit in places}
    return max(places, key=lambda hit: _written_at(hit.memory)) if len(locations) == 1 else None


def _written_at(memory: Memory) -> float:
    return memory.updated_at or memory.created_at or 0.0


def _lacks(hits: Iterable[Hit], project: str | None) -> dict[str, str]:
    lacks: dict[str, str] = {}
    for hit in hits:
        memory = hit.memory
        lacks[memory.id] = lack_of(memory, project)
        # A bare file name has no location if several files in the project have that name.
        if not lacks[memory.id] and hit.trigger.startswith("file:") and memory.project:
            name = os.path.basename(memory.paths[0]) if memory.paths else ""
            if name and _has_several(project or memory.project, name):
                lacks[memory.id] = f"the project has several files named {name}"
    return lacks


def _has_several(root: str, name: str) -> bool:
    """True if several files below `root` have this name, outside hidden folders and folders of
    installed packages. Also True if the project has too many files to search."""
    namesakes = entries = 0
    for _, folders, files in os.walk(root):
        folders[:] = [each for each in folders if each[0] != "." and each not in _INSTALLED]
        namesakes += name in files
        entries += len(folders) + len(files)
        if namesakes > 1 or entries > MAX_LISTED_ENTRIES:
            return True
    return False


def lack_of(memory: Memory, project: str | None) -> str:
    """The reason why an episode does not hold in `project` now; "" if it does."""
    if memory.project is None:
        return ""
    if project is None or not is_own(memory.project, project):
        return "learned in another project"
    paths = [Path(project, path) for path in memory.paths[:MAX_CHECKED_PATHS]]
    for path in paths:
        # Unlike `Path.exists`, `os.path.exists` is False for a name that is too long.
        if not os.path.exists(path):
            return f"{path.name} is gone"
    contents = [_content(path) for path in paths] if memory.symbols else []
    for name in memory.symbols[:MAX_CHECKED_PATHS]:
        if contents and not any(name.encode() in content for content in contents):
            return f"{name} is gone"
    return ""


def _content(path: Path) -> bytes:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return file.read(MAX_CHECKED_BYTES)
    except OSError:
        pass
    return b""


NAMESPACE = "lessons"
BEARING = "bearing"
"""The signal of a lesson: how much it bears on the cue. 1 is the threshold."""
LEAST_JUDGED = 0.4
"""A lesson that bears less on a cue is not even shown to the judge."""
STRONG = 1.5
"""A lesson that bears this much on a cue brings the rest of its rule, if a session split it over
several lessons."""
MIN_SHARE = 0.9
"""A second lesson needs this share of the weight of the best."""
MAX_LESSONS = 500
MAX_SESSIONS = 200
MIN_TOPIC_WORDS = 3
"""A prompt with fewer informative words does not say what its session is about."""
MAX_OUTPUT_CHARS = 4_000
MAX_SHELVES = 50
READ_SECONDS, READ_SECONDS_WITHOUT = 10.0, 60.0
"""How long lessons are not read again, and how long none are looked for in a project without."""
SAME = 0.6
"""Two lessons whose words are as similar say the same."""
MEANING_FROM, MEANING_WEIGHT = 2.0, 0.25
"""What likeness in meaning adds, above an ordinary likeness (in standard deviations)."""


class _Shelf(Struct, frozen=True):
    """The lessons of a project as they were `stored` at a time and a `version` of the memory."""

    version: Hashable
    read_at: float
    stored: Sequence[Memory]
    book: Book

    def is_due(self, version: Hashable, now: float) -> bool:
        """True if the lessons should be read again. That walks all memories of the project, so it
        is not done after each change."""
        seconds = READ_SECONDS if self.stored else READ_SECONDS_WITHOUT
        return version != self.version and now - self.read_at >= seconds


class ProjectLessons:
    """The lessons of each project, as of the last change of the memory."""

    def __init__(self, reader: MemoryReader, clock: Clock) -> None:
        self._reader = reader
        self._clock = clock
        self._shelves: dict[Scope, _Shelf] = {}
        self.replaced: dict[str, str] = {}
        """Maps the ids of lessons to the texts of the lessons that they replaced."""
        self._noise: set[str] = set()
        self._topics: dict[str, frozenset[str]] = {}
        self._prompts: dict[str, PreparedPrompt] = {}

    async def bearing_on(self, cue: Event, moment: Moment | None) -> list[Hit]:
        """The lessons that bear on a cue at least a little, best first."""
        if not cue.is_unasked or not cue.cwd or not _may_matter(cue, moment):
            return []
        prompt = self._prompt(cue) if cue.door == Door.PROMPT else None
        shelf = await self._shelf(cue)
        book = shelf.book
        if not book.lessons:
            return []
        bearings = book.at_prompt(prompt) if prompt else self._remedies(book, cue, moment)
        hits = [
            _scored(Hit(memory=bearing.lesson.memory, score=0.0), bearing.weight)
            for bearing in _best(book, bearings)
        ]
        if not hits or await self._reader.changes() == shelf.version:
            return hits
        # Only lessons that still exist, with their present texts.
        lessons = [await self._reader.known(hit.memory.id) for hit in hits]
        pairs = zip(hits, lessons, strict=True)
        return [replace(hit, memory=lesson) for hit, lesson in pairs if lesson is not None]

    def forget(self, session: str) -> None:
        """Forget what a session is about, because its context is gone."""
        self._topics.pop(session, None)
        self._prompts.pop(session, None)

    def _prompt(self, cue: Event) -> PreparedPrompt:
        """The prompt in a cue, and from then on a part of what the session is about."""
        known = self._topics.pop(cue.session, frozenset())
        prompt = prompt_of(cue.text, known)
        is_telling = len(prompt.text.stems) >= MIN_TOPIC_WORDS
        if cue.session:
            self._topics[cue.session] = known | prompt.text.stems.keys() if is_telling else known
            self._prompts[cue.session] = prompt
        while len(self._topics) > MAX_SESSIONS:
            oldest = next(iter(self._topics))
            self.forget(oldest)
        return prompt

    def _remedies(self, book: Book, cue: Event, moment: Moment | None) -> Sequence[Bearing]:
        assert cue.answer is not None
        if moment is Moment.NOTHING_FOUND:
            return book.at_absence(file_sought(cue))
        if moment is Moment.FILE and not cue.command:
            prompt = self._prompts.get(cue.session)
            return book.at_file(cue.file, prompt) if prompt else []
        if moment is not Moment.FAILED:
            self._noise |= book.noise_in(cue.answer.text[:MAX_OUTPUT_CHARS])
            return []
        if is_refused(cue.step):
            return []
        return book.at_failure(cue.command, cue.answer.text, self._noise)

    async def weighed(self, hits: Sequence[Hit], cue: Event) -> list[Hit]:
        """The hits of a search. Each lesson among them is scored by how much it bears on the
        prompt; at any other cue, it is left out."""
        has_lessons = any(hit.memory.provenance.door == LESSON for hit in hits)
        if not cue.is_unasked or not has_lessons:
            return list(hits)
        book, weighed = (await self._shelf(cue)).book, list[Hit]()
        prompt = self._prompts.get(cue.session) or prompt_of(cue.text, frozenset())
        for hit in hits:
            if hit.memory.provenance.door != LESSON:
                weighed.append(hit)
            elif cue.door == Door.PROMPT:
                bearing = book.on_prompt(prepared(hit.memory), prompt, book.mass(prompt))
                likeness = max(0.0, hit.signals.get("meaning", 0.0) - MEANING_FROM)
                weight = bearing.weight + MEANING_WEIGHT * likeness
                weighed.append(_scored(hit, weight))
        return weighed

    async def _shelf(self, cue: Event) -> "_Shelf":
        scope = Scope(project=cue.project, namespaces=(NAMESPACE,))
        if not is_visible(NAMESPACE, cue.principal.namespaces):
            return _Shelf(None, 0.0, (), Book(()))
        version, now = await self._reader.changes(), self._clock.now()
        shelf = self._shelves.get(scope)
        if shelf is None or shelf.is_due(version, now):
            stored = await self._reader.latest(scope, limit=MAX_LESSONS)
            lessons = [
                memory
                for memory in stored
                # A lesson that the user made a standing rule is no longer one.
                if memory.provenance.door == LESSON
                and not (memory.pinned and memory.trust is not Trust.AGENT)
            ]
            is_same = shelf is not None and shelf.stored == lessons
            book = shelf.book if shelf is not None and is_same else self._read(lessons)
            shelf = _Shelf(version, now, lessons, book)
        self._shelves.pop(scope, None)
        self._shelves[scope] = shelf
        if len(self._shelves) > MAX_SHELVES:
            del self._shelves[next(iter(self._shelves))]
        return shelf

    def _read(self, lessons: Sequence[Memory]) -> Book:
        by_id = {memory.id: memory for memory in lessons}
        for memory in lessons:
            if old := by_id.pop(memory.supersedes or "", None):
                self.replaced[memory.id] = old.text
        return Book([prepared(memory) for memory in by_id.values()])


def _may_matter(cue: Event, moment: Moment | None) -> bool:
    if cue.door == Door.PROMPT:
        return bool(cue.text)
    if cue.answer is None:
        return False
    has_succeeded = cue.answer.failed is False and bool(cue.command)
    return has_succeeded or moment in (Moment.FAILED, Moment.NOTHING_FOUND, Moment.FILE)


def _best(book: Book, bearings: Sequence[Bearing]) -> list[Bearing]:
    """The bearings, best first. A lesson that says the same as a newer one is left out. So is one
    that bears on the cue much less than the best, unless it is the best one's sibling."""
    ordered = sorted(bearings, key=lambda bearing: -bearing.weight)
    distinct: list[Bearing] = []
    for bearing in ordered:
        if bearing.weight < LEAST_JUDGED:
            break
        if any(_is_older_copy(bearing, other) for other in ordered if other is not bearing):
            continue
        # A lesson on a failure adds nothing if a better one answers the same part of the error.
        half = len(bearing.words) / 2
        is_answered = any(len(bearing.words & better.words) >= half for better in distinct)
        if not (bearing.is_remedy and is_answered):
            distinct.append(bearing)
    if not distinct:
        return []
    best, *others = distinct
    siblings = book.siblings(best, others) if best.weight >= STRONG else []
    rest = [other for other in others if other.weight >= MIN_SHARE * best.weight]
    completing = [replace(sibling, weight=max(1.0, sibling.weight)) for sibling in siblings]
    names = {id(sibling.lesson) for sibling in completing}
    return [best, *completing, *(other for other in rest if id(other.lesson) not in names)]


def _is_older_copy(bearing: Bearing, other: Bearing) -> bool:
    mine, theirs = bearing.lesson.memory, other.lesson.memory
    is_older = (mine.updated_at or 0.0, mine.id) < (theirs.updated_at or 0.0, theirs.id)
    return is_older and jaccard(bearing.lesson.stems, other.lesson.stems) >= SAME


def _scored(hit: Hit, weight: float) -> Hit:
    """The hit with a score of 0.5 at a weight of 1."""
    signals: Mapping[str, float] = {**hit.signals, BEARING: weight}
    return replace(hit, score=weight / (1.0 + weight), signals=signals)


def joined(hits: Sequence[Hit], lessons: Sequence[Hit]) -> list[Hit]:
    """The hits of a search and the lessons that bear on the cue, each memory once."""
    if not lessons:
        return list(hits)
    best: dict[str, Hit] = {}
    for hit in (*lessons, *hits):
        known = best.get(hit.memory.id)
        if known is None or hit.score > known.score:
            best[hit.memory.id] = hit
    return list(best.values())
