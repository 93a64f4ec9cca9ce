"""Recalls the state of the last work: how the past sessions of a project left theirs, if the record
of one bears on the prompt."""

import asyncio
import math
import re
import sqlite3
from collections import OrderedDict
from collections.abc import Sequence
from heapq import nlargest
from pathlib import Path

from msgspec import Struct

from upwell.ground.clock import SYSTEM_CLOCK, Clock, Deadline
from upwell.ground.errors import RecallUnavailable, StoreError
from upwell.ground.sqlite.database import Database, open_database
from upwell.ground.text.anchors import COMMON_STEMS, paths_in
from upwell.ground.types.memory import Found, Hit, Memory, Query, QuerySource
from upwell.ground.types.rpc import Ping, is_visible
from upwell.memory.ranking.terms import EVERYDAY_WORDS
from upwell.sessions import tables
from upwell.sessions.rank import text_terms, word_terms
from upwell.sessions.record import ID, NAMESPACE, RecordedRequest, SessionRecord, decoded, state_of
from upwell.sessions.tables import SessionRow
from upwell.sessions.turns import TRUNKS, issues_in, pulls_in
from upwell.surface.moments import is_question

HALF_LIFE_HOURS, OLDEST_SHARE = 48.0, 0.35
"""The share of a session's weight that age takes away by half every `HALF_LIFE_HOURS`, down to
`OLDEST_SHARE`. Work of the last hours is asked about most."""
TALK_HALF_LIFE_HOURS = 24.0 * 365
"""The same for a session that only talked: a decision holds until it is replaced."""
NAME_WEIGHT = 0.35
"""What a named file, ticket, pull request or branch adds to the share of the prompt's words."""
REFERS_WEIGHT = 0.08
MIN_MASS = 2.0
"""Fewer rare words in common are a coincidence, unless the prompt is short or names something."""
MAX_WORDS_ASKED, MAX_LINES_ASKED = 120, 5
"""A longer prompt is a plan or a paste, which brings its own context."""
MAX_TOTAL = 8.0
"""The words of a long prompt count as if together they weighed this much."""
EVERYDAY_WEIGHT, NUMBER_WEIGHT, UNSEEN_WEIGHT = 0.25, 0.25, 0.5
SUPERSEDED_SHARE = 0.6
"""A later session that changed this share of a session's files again has superseded it."""
TAKEN_UP_SHARE, MIN_TAKEN_UP = 0.4, 3.0
"""A later discussion that has this share of what an earlier one came to, and at least so much, took
it up again."""
_HEADING = re.compile(r"^(?:#{1,3} |```|\*\*\w)", re.MULTILINE)
"""The marks of a plan."""
_ADDRESS = re.compile(r"\b[a-z][a-z0-9+.-]{0,12}://[^/\s]{1,100}")
RESUMED_HOURS, RESUMED_SCORE = 72.0, 0.75
MIDDLE_FACTOR = 0.6
"""A later question continues a conversation that has context of its own, unless it speaks of
earlier work. A later request is part of the conversation."""
STEEPNESS, THRESHOLD = 9.0, 0.42
_RESUMES = re.compile(
    r"\W*(?:(?:please|ok|okay|now|and|so|por favor|bitte|dale)\W+)*(?:continue|resume|go on|"
    r"carry on|keep going|pick up|where (?:were|did) we|what(?:'s| is) (?:left|open|next)|"
    r"contin[uú]a\w*|continuemos|sigamos|segu[ií]mos|retom\w+|weiter|mach weiter|weitermachen|"
    r"continuez|continuons|reprends|reprenons|prossiga|retome)\b",
    re.IGNORECASE,
)
_REFERS = re.compile(
    r"\b(?:again|still|yesterday|earlier|last (?:time|session)|previous(?:ly)?|no longer|"
    r"not working|doesn'?t work|broken|failed|fails|recent(?:ly)?|otra vez|todav[ií]a|ayer|"
    r"anterior\w*|no (?:funciona|veo|anda)|noch|wieder|gestern|encore|toujours|hier|ainda|ontem)\b",
    re.IGNORECASE,
)
MAX_RESUMING_WORDS = 12


class Relation(Struct, frozen=True, kw_only=True):
    """What a prompt and the record of a session have in common.

    - `share`: the share of the prompt's words, weighted by rarity, in the best turn of the record.
    - `mass`: the summed rarity of these words; a word of no other session counts 1.
    - `names`: how many files, tickets, pull requests and branches the prompt and the record share.
    - `hours`: the time since the session ended. `newer`: how many sessions have ended since.
    - `refers`: whether the prompt speaks of earlier work. `resumes`: whether it only goes on.
    - `is_first`: whether it is the first prompt of its session. `asks`: whether it is a question.
    - `is_discussion`: whether the past session only talked.
    """

    share: float
    mass: float
    names: int
    hours: float
    newer: int
    refers: bool
    resumes: bool
    is_first: bool
    asks: bool
    is_discussion: bool

    @property
    def score(self) -> float:
        """How useful it is to tell the state of the session now, 0..1."""
        if not (self.mass or self.names or self.resumes):
            return 0.0
        if self.resumes:
            is_last = self.newer == 0 and self.hours <= RESUMED_HOURS
            return RESUMED_SCORE if is_last and self.is_first else 0.0
        named = 1.0 - math.exp2(-self.names)
        half_life = TALK_HALF_LIFE_HOURS if self.is_discussion else HALF_LIFE_HOURS
        recency = OLDEST_SHARE + (1.0 - OLDEST_SHARE) * math.exp2(-self.hours / half_life)
        ground = min(1.0, (self.mass + 2.0 * self.names) / MIN_MASS)
        weight = (self.share + NAME_WEIGHT * named + REFERS_WEIGHT * self.refers) * ground * recency
        weight *= 1.0 if self.is_first else MIDDLE_FACTOR * (self.asks and self.refers)
        return 1.0 / (1.0 + math.exp(-STEEPNESS * (weight - THRESHOLD)))


class Past(Struct, frozen=True):
    """The record of a past session, prepared for comparison. `requests` are the terms of each
    request with its conclusion and the session's files, commits and branches; `everything` are all
    of them. `names` are what a prompt may name, and `changed` are the files."""

    record: SessionRecord
    requests: tuple[frozenset[int], ...]
    everything: frozenset[int]
    names: frozenset[str]
    changed: frozenset[str]


def past_of(record: SessionRecord) -> Past:
    """Prepare a record."""
    facts = "\n".join((*record.changed, *record.commits, *record.branches, *record.tickets))
    common = text_terms(facts)
    texts = (f"{each.question}\n{each.conclusion}" for each in record.requests)
    requests = tuple(common | text_terms(text) for text in texts)
    files = {path.rpartition("/")[2].lower() for path in record.changed}
    telling_files = {name for name in files if name.partition(".")[0] not in {"", *COMMON_STEMS}}
    branches = set(record.branches) - TRUNKS
    return Past(
        record=record,
        requests=requests,
        everything=frozenset[int]().union(*requests),
        names=frozenset({*telling_files, *record.tickets, *record.pulls, *branches}),
        changed=frozenset(record.changed),
    )


class Words:
    """The words of a prompt, each with its weight: a word counts more the fewer of these past
    sessions contain it."""

    def __init__(self, prompt: str, past: Sequence[Past]) -> None:
        scale = math.log(len(past) + 3)
        self._names = names_in(prompt)
        self._weights: dict[int, float] = {}
        for word, (term, *_) in word_terms(_ADDRESS.sub(" ", prompt)).items():
            holding = sum(term in each.everything for each in past)
            weight = 1.0 - math.log(holding) / scale if holding else UNSEEN_WEIGHT
            weight *= EVERYDAY_WEIGHT if word in EVERYDAY_WORDS else 1.0
            weight *= NUMBER_WEIGHT if word.isdigit() and len(word) < 3 else 1.0
            self._weights[term] = weight
        self._total = min(MAX_TOTAL, sum(self._weights.values())) or 1.0
        self._resumes, self._refers = resumes(prompt), refers(prompt)
        self._is_paste, self._asks = is_paste(prompt), is_question(prompt)

    def relation_of(self, past: Past, newer: int, now: float, prompts: int) -> tuple[int, Relation]:
        """How much a record bears on the prompt, which is number `prompts` of its session, and the
        position of the request that does most. `newer` sessions have ended since."""
        masses = [self._mass(terms) for terms in past.requests]
        mass = max(masses)
        place = len(masses) - 1 - masses[::-1].index(mass)
        return place, Relation(
            share=0.0 if self._is_paste else min(1.0, mass / self._total),
            mass=mass,
            names=len(self._names & past.names),
            hours=max(0.0, now - past.record.ended) / 3600,
            newer=newer,
            refers=self._refers,
            resumes=self._resumes,
            is_first=prompts <= 1,
            asks=self._asks,
            is_discussion=past.record.is_discussion,
        )

    def weight_in(self, sentence: str) -> float:
        """The weight of the prompt's words in a sentence."""
        return self._mass(text_terms(sentence))

    def _mass(self, terms: frozenset[int]) -> float:
        return sum(weight for term, weight in self._weights.items() if term in terms)


def is_paste(prompt: str) -> bool:
    """True if a prompt is a plan, or mostly the output of a program."""
    lines = sum(bool(line.strip()) for line in prompt.split("\n"))
    is_long = lines > MAX_LINES_ASKED or len(prompt.split()) > MAX_WORDS_ASKED
    return is_long or bool(_HEADING.search(prompt))


def is_superseded(past: Past, later: Sequence[Past]) -> bool:
    """True if a later session changed most of the session's files again."""
    least = SUPERSEDED_SHARE * len(past.changed)
    return least > 0 and any(len(past.changed & other.changed) >= least for other in later)


def taken_up(known: Sequence[Past], number: int) -> Past | None:
    """The latest discussion that took discussion `number` up again, and so may have changed what it
    came to; None if none did. `known` are the past sessions, newest first."""
    past = known[number]
    if not past.record.is_discussion:
        return None
    scale = math.log(len(known) + 3)
    weights = {
        term: 1.0 - math.log(sum(term in each.everything for each in known)) / scale
        for term in past.requests[-1]
    }
    least = max(MIN_TAKEN_UP, TAKEN_UP_SHARE * sum(weights.values()))
    return next(
        (
            later
            for later in known[:number]
            if later.record.is_discussion
            and sum(weights[term] for term in weights.keys() & later.everything) >= least
        ),
        None,
    )


def resumes(prompt: str) -> bool:
    """True if a prompt only asks to go on."""
    return len(prompt.split()) <= MAX_RESUMING_WORDS and bool(_RESUMES.match(prompt))


def refers(prompt: str) -> bool:
    """True if a prompt speaks of earlier work."""
    return bool(_REFERS.search(prompt))


def names_in(prompt: str) -> set[str]:
    """What a prompt names: the names of files, tickets, pull requests, and its words, which may be
    branches."""
    files = {path.rpartition("/")[2].lower() for path in paths_in(prompt)}
    return {*files, *issues_in(prompt), *pulls_in(prompt), *prompt.split()}


MAX_SESSIONS, MAX_DAYS = 100, 365
"""Only this many of a project's latest sessions are considered, and none older than this."""
MAX_KNOWN = 400
QUIET_SECONDS = 600.0
"""A session that has been quiet for this long is over, even if its host did not say so."""
_DAY_SECONDS = 86_400.0


class States:
    """`Recall` over the records of past sessions in `sessions.db`. A state is made from a record at
    the time of the search, so nothing is stored twice."""

    name = "states"

    def __init__(self, path: Path, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._path = path
        self._clock = clock
        self._opening = asyncio.Lock()
        self._database: Database | None = None
        self._known: OrderedDict[tuple[int, str, float, int], Past] = OrderedDict()

    async def search(self, query: Query, deadline: Deadline) -> Found:
        """The states that bear on a prompt or an explicit question, best first. A tool call has
        none. Raises RecallUnavailable if the index of sessions cannot be read."""
        asks = query.source in (QuerySource.MESSAGE, QuerySource.EXPLICIT) and query.texts
        is_here = query.awaited or query.scope.project is not None
        is_seen = is_visible(NAMESPACE, query.scope.namespaces)
        if not (asks and is_here and is_seen and self._path.exists()):
            return Found()
        try:
            database = await self._open()
            hits = await database.read(lambda db: self._hits(db, query))
        except StoreError as error:
            raise RecallUnavailable(error.message, source=self.name, hint=error.hint) from error
        return Found(tuple(hits))

    async def get(self, memory_id: str) -> Memory | None:
        """The state with an id that `search()` returned; None if its session is gone."""
        if not memory_id.startswith(ID) or not self._path.exists():
            return None
        name = memory_id.removeprefix(ID)

        def read(db: sqlite3.Connection) -> Memory | None:
            named = [row for row in tables.session_named(db, name) if row.name == name]
            return state_of(record_at(db, named[0]), self._clock.now()) if named else None

        return await (await self._open()).read(read)

    async def ping(self) -> Ping:
        if not self._path.exists():
            return Ping(ok=True, detail="no past sessions are indexed")
        try:
            sessions, _ = await (await self._open()).read(tables.counts)
        except StoreError as error:
            return Ping(ok=False, detail=error.message, hint=error.hint)
        return Ping(ok=True, detail=f"{sessions} past sessions")

    async def aclose(self) -> None:
        """Close the database."""
        if self._database is not None:
            await self._database.aclose()

    async def _open(self) -> Database:
        async with self._opening:
            if self._database is None:
                self._database = await asyncio.to_thread(
                    open_database, self._path, [tables.OWNER], synchronous="NORMAL"
                )
        return self._database

    def _hits(self, db: sqlite3.Connection, query: Query) -> list[Hit]:
        now, text = self._clock.now(), query.texts[0]
        known = self._past(db, query, now)
        if not known:
            return []
        words = Words(text, known)
        found = [
            (relation, number, place)
            for number, past in enumerate(known)
            for place, relation in [words.relation_of(past, number, now, query.prompts)]
            if relation.score > 0 and not is_superseded(past, known[:number])
        ]
        # Unasked, only the best: the next is mostly an earlier stage of the same work.
        limit = query.limit if query.source is QuerySource.EXPLICIT else 1
        best = nlargest(limit, found, key=lambda row: row[0].score)
        hits = []
        for relation, number, place in best:
            record = known[number].record
            request: RecordedRequest | None = record.requests[place]
            if (later := taken_up(known, number)) is not None:
                record, request = later.record, None
            state = state_of(record, now, request, words.weight_in)
            signals = {
                "share": relation.share,
                "mass": relation.mass,
                "names": float(relation.names),
                "hours": relation.hours,
                "newer": float(relation.newer),
            }
            hits.append(Hit(memory=state, score=relation.score, signals=signals, matched=(text,)))
        return hits

    def _past(self, db: sqlite3.Connection, query: Query, now: float) -> list[Past]:
        """The sessions of the project that are over, newest first, but for the one that asks."""
        rows = tables.past(
            db, query.scope.project, now - MAX_DAYS * _DAY_SECONDS, now, QUIET_SECONDS, MAX_SESSIONS
        )
        known = []
        for row in rows:
            if row.name == query.session:
                continue
            key = (row.no, row.name, row.ended, row.turns)
            past = self._known.pop(key, None) or past_of(record_at(db, row))
            self._known[key] = past
            known.append(past)
        while len(self._known) > MAX_KNOWN:
            self._known.popitem(last=False)
        return known


def record_at(db: sqlite3.Connection, session: SessionRow) -> SessionRecord:
    """The record of a session, from its turns."""
    requests = [
        RecordedRequest(turn.number, turn.at, turn.question, turn.conclusion, decoded(turn.facts))
        for turn in tables.turns_in(db, session.no)
    ]
    return SessionRecord(
        session.name, session.host, session.project, session.ended, tuple(requests)
    )
