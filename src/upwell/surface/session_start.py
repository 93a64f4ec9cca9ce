"""The opening of a session: the rules that the user pinned and, after a compaction or if
`surface.moments` is `all`, the notes most likely to be useful.

There is no question yet, so there is nothing to search for. A note ranks higher if it belongs to
this project, is recent or recently read, states a decision or a pitfall, or is about files that
changed lately. File timestamps show which files changed. Git is not run, because a cloned
repository could make git start other processes. The whole opening stays within
`MAX_BYTES`.
"""

import asyncio
import os
import secrets
from collections import OrderedDict
from collections.abc import Collection, Sequence

import orjson
from msgspec import Struct, field
from msgspec.structs import replace

from upwell.ground.ledger import EntryKind, TtlStore
from upwell.ground.project import is_here, is_own, project_of
from upwell.ground.types.cue import Cue, Door, Skip, SkipReason, Surfacing
from upwell.ground.types.memory import Hit, Memory, Scope, Trust
from upwell.learn.feedback import MemoryUse
from upwell.learn.implicit import Uses
from upwell.memory.base import MemoryReader
from upwell.memory.team.sharing import own_name
from upwell.surface.filters import distinct
from upwell.surface.learning import Learning
from upwell.surface.options import PipelineOptions
from upwell.surface.render import (
    REMINDER,
    WHOLE,
    Profile,
    beneath,
    entry,
    harmless_line,
    lines_of,
    reminder_of,
)
from upwell.surface.rules import SILENT, StandingRules, rule_hit, rule_lines
from upwell.surface.seen_log import COMPACTED, SeenLog

COMPACTION_SECONDS = 86_400.0
MAX_CARRIED = 12
"""How many of a session's latest memories may return after its context was compacted."""


_WAITING = SILENT | {SkipReason.WRITE_TOOL}
"""Skip reasons that make a pending session opening wait for the next event."""
HEADING = "Recently in this project:"
COMMANDS_HEADING = "Commands that worked in this session:"
HEADING_AFTER_COMPACTION = "From this session and this project:"
FORGETFUL = frozenset({COMPACTED, "clear"})
"""Values of `Cue.text` by which a host reports that the session has lost its context."""
RESUMED = "resume"
"""The value of `Cue.text` for a resumed session, whose host restores its context."""
FORKED = "fork"
"""The value of `Cue.text` for a session that goes on from the context of another."""
MISSED = "missed"
"""Our own value: no process answered when the session started. The session gets the rules, unless
it already has them."""
SUBAGENT = "subagent"
"""Our own value: a subagent started. It already has its task, so it gets only the rules."""
MAX_BYTES = 1200
LOOKED_AT = 200
"""How many of the newest memories (of this project or of no project) compete for a place."""
MAX_NOTES = 6
MAX_OWED = 500
PREVIEW_CHARS = 180
MIN_WORTH = 0.3
CARRIED_WORTH = 0.9
MAX_STATS = 400
HALF_LIFE_DAYS = 30.0
TOUCHED_HALF_LIFE_DAYS = 2.0
KINDS = {"decisions": 1.0, "blockers": 1.0, "patterns": 0.9, "learnings": 0.9}
OTHER_KINDS = 0.7
TRUSTS = {Trust.USER: 1.0, Trust.IMPORTED: 0.8, Trust.AGENT: 0.7}
ELSEWHERE = 0.5
"""The factor for a note that belongs to no project. A note's score is also multiplied by the
`KINDS` factor of its namespace and the `TRUSTS` factor of its author (our own constants)."""
_DAY_SECONDS = 86_400.0
_PROFILE = Profile(chars=0, tokens=0, items=MAX_NOTES, preview_chars=PREVIEW_CHARS)


class SessionStart(Struct, frozen=True):
    """Gives sessions their opening. Notes that the opening shows in full are logged, so that the
    session does not receive them again. `owed` maps each session that still waits for its opening
    to the cue that started it."""

    reader: MemoryReader
    learning: Learning
    rules: StandingRules
    seen_log: SeenLog
    ttl_store: TtlStore
    options: PipelineOptions
    owed: OrderedDict[str, Cue] = field(default_factory=OrderedDict[str, Cue])

    async def begin(
        self, cue: Cue, now: float, shown_ids: Collection[str] = ()
    ) -> Surfacing | Skip:
        """The rules and notes for the start of this cue's session, without the notes in
        `shown_ids`, or a `Skip` that says why there are none.

        A session that was resumed, or whose start was missed, gets the standing rules only if it
        lacks them. A forked session has those of the session that it goes on from. A compacted
        session gets some of its memories again. If `surface.moments` is `all`, a session also gets
        other notes once. Otherwise, other notes surface only with a request that they match.
        """
        surfacing_id = f"s_{secrets.token_hex(6)}"
        block = _Block(MAX_BYTES, surfacing_id, cue.read_command)
        has_rules = cue.text in (RESUMED, FORKED, MISSED) and await self._has_rules(cue)
        rules = block.add_rules([] if has_rules else await self.rules.of(cue))
        is_repeat = cue.text not in FORGETFUL and await self._holds(EntryKind.OPENING, cue.session)
        notes = await self._add_notes(block, cue, now, shown_ids, rules_only=is_repeat)
        commands = block.add_lines(COMMANDS_HEADING, await self._commands(cue))
        if not rules and not notes and not commands:
            if is_repeat or has_rules:
                return Skip(reason=SkipReason.REPEATED, detail="at the start of this session")
            return Skip(reason=SkipReason.NO_CANDIDATES)
        if cue.session:
            await self._record(cue.session, notes)
        best = max(notes, key=lambda hit: hit.score, default=None)
        return Surfacing(
            id=surfacing_id,
            hits=(*map(rule_hit, rules), *notes),
            text=block.text,
            confidence=1.0 if rules or best is None else best.score,
            signals=best.signals if best is not None else {"pinned": 1.0},
        )

    async def add_if_due(self, cue: Cue, outcome: Surfacing | Skip, now: float) -> Surfacing | Skip:
        """`outcome` with the pending opening of the cue's session, if any."""
        if cue.door not in (Door.PROMPT, Door.TOOL):
            return outcome
        if isinstance(outcome, Skip) and outcome.reason in _WAITING:
            return outcome
        shown = outcome.memories if isinstance(outcome, Surfacing) else ()
        shown_ids = {memory.id for memory in shown}
        opening = await self.begin(self.owed.pop(cue.session), now, shown_ids)
        return outcome if isinstance(opening, Skip) else _joined(outcome, opening)

    def owe(self, cue: Cue) -> None:
        """Give the session its opening with its next event."""
        self.owed[cue.session] = cue
        if len(self.owed) > MAX_OWED:
            self.owed.popitem(last=False)

    def missed(self, cue: Cue) -> None:
        """Note that no process answered when the cue's session began. The session gets its standing
        rules with its next event, unless it already has them."""
        if cue.session:
            start = Cue(
                door=Door.SESSION,
                text=MISSED,
                session=cue.session,
                cwd=cue.cwd,
                host=cue.host,
                read_command=cue.read_command,
            )
            self.owe(start)

    async def compacting(self, session: str) -> None:
        """Save the ids of the session's latest memories and allow repeats, because the agent is
        about to lose its context."""
        if not session:
            return
        ids = await self.seen_log.ids_of(session)
        if ids:
            saved = {session: orjson.dumps(ids[-MAX_CARRIED:])}
            await self.ttl_store.put(EntryKind.COMPACTION, saved, ttl_seconds=COMPACTION_SECONDS)
            await self.seen_log.forget(session)
        await self.rules.withdraw(session)

    async def take_back(self, cue: Cue, surfacing: Surfacing) -> None:
        """The opening did not reach the agent: give it again with the session's next event."""
        if not cue.session:
            return
        self.owe(cue)
        await self.rules.withdraw(cue.session)
        await self.ttl_store.delete(EntryKind.OPENING, [cue.session])
        await self.seen_log.withdraw(surfacing.memories, cue.session)

    async def _has_rules(self, cue: Cue) -> bool:
        if cue.text == FORKED:
            await self.rules.record(cue.session)
            return True
        # When Codex resumes a session and immediately compacts it, it sends two events. The
        # rules are shown on the second one.
        if cue.text == RESUMED and await self._holds(EntryKind.COMPACTION, cue.session):
            return True
        return await self.rules.has(cue.session)

    async def _holds(self, kind: EntryKind, session: str) -> bool:
        return bool(session) and session in await self.ttl_store.get(kind, [session])

    async def _record(self, session: str, notes: Sequence[Hit]) -> None:
        ttl_seconds = self.options.surface.dedup_ttl_seconds
        if notes:
            await self.ttl_store.put(EntryKind.OPENING, {session: b"told"}, ttl_seconds=ttl_seconds)
        complete = [
            hit.memory
            for hit in notes
            if hit.memory.provenance.door in WHOLE or len(hit.memory.text) <= PREVIEW_CHARS
        ]
        await self.seen_log.record_at_start(complete, session)
        await self.rules.record(session)

    async def _add_notes(
        self,
        block: "_Block",
        cue: Cue,
        now: float,
        shown_ids: Collection[str],
        *,
        rules_only: bool,
    ) -> list[Hit]:
        carried = await self._carried(cue) if cue.text in FORGETFUL else []
        if rules_only or cue.text in (FORKED, MISSED, SUBAGENT):
            return []
        recent = await self._recent_notes(cue, now) if self.options.surface.moments == "all" else []
        candidates = distinct([*carried, *recent])
        fresh = [hit for hit in candidates if hit.memory.id not in shown_ids]
        return block.add_notes(fresh, HEADING_AFTER_COMPACTION if carried else HEADING)

    async def _commands(self, cue: Cue) -> list[str]:
        """After a compaction, the commands that worked earlier in the session. The host's summary
        rarely has them."""
        if cue.text != COMPACTED or not cue.transcript or self.options.commands_in is None:
            return []
        commands = await asyncio.to_thread(self.options.commands_in, cue.transcript)
        return [f"`{harmless_line(command)}`" for command in commands]

    async def _carried(self, cue: Cue) -> list[Hit]:
        """The memories that a session which lost its context may need again: first those that were
        used when last observed, then those that were not observed yet. Ignored memories are left
        out."""
        session = cue.session
        await self.compacting(session)
        item = (await self.ttl_store.get(EntryKind.COMPACTION, [session])).get(session)
        if item is not None:
            await self.ttl_store.delete(EntryKind.COMPACTION, [session])
        if item is None or cue.text != COMPACTED:
            return []
        uses = Uses(self.ttl_store)
        verdicts = {
            memory_id: await uses.last(memory_id)
            for memory_id in reversed(orjson.loads(item.value))
            if not self.learning.is_demoted(memory_id, cue)
        }
        used = [memory_id for memory_id, use in verdicts.items() if use is MemoryUse.USED]
        undecided = [memory_id for memory_id, use in verdicts.items() if use is None]
        memories = [await self.reader.known(memory_id) for memory_id in (*used, *undecided)]
        project = project_of(cue.cwd)
        # A memory with triggers comes back by itself when its situation recurs.
        return [
            Hit(memory=memory, score=CARRIED_WORTH, signals={"told": 1.0})
            for memory in memories
            if memory is not None
            and not memory.triggers
            and not memory.pinned
            and is_here(memory.project, project)
        ]

    async def _recent_notes(self, cue: Cue, now: float) -> list[Hit]:
        project = project_of(cue.cwd)
        notes = [
            memory
            for memory in await self.reader.latest(Scope(project=project), limit=LOOKED_AT)
            if is_here(memory.project, project)
            and not memory.pinned
            and not memory.triggers
            and memory.provenance.door not in WHOLE
            and memory.trust is not Trust.TOOL
            and not self.learning.is_demoted(memory.id, cue)
        ]
        superseded = {memory.supersedes for memory in notes}
        notes = [memory for memory in notes if memory.id not in superseded]
        touched = await asyncio.to_thread(touched_lately, notes, project, now)
        hits = [standing(memory, project, touched.get(memory.id, 0.0), now) for memory in notes]
        ordered = sorted(hits, key=lambda hit: (-hit.score, hit.memory.id))
        return distinct([hit for hit in ordered if hit.score >= MIN_WORTH])


def _joined(outcome: Surfacing | Skip, opening: Surfacing) -> Surfacing:
    if isinstance(outcome, Skip):
        return replace(opening, intent=outcome.intent, queries=outcome.queries)
    text = beneath(lines_of(opening.text), outcome.id, outcome.text)
    return replace(outcome, hits=(*outcome.hits, *opening.hits), text=text)


def standing(memory: Memory, project: str | None, touched: float, now: float) -> Hit:
    """A memory as a hit that no search found. Its score is the probability that it is useful before
    the user has asked anything. `touched` (0 to 1) says how recently one of the memory's files was
    changed."""
    created = memory.created_at if memory.created_at is not None else now
    used = memory.viewed_at is not None and memory.viewed_at > created + 1.0
    age_days = max(0.0, now - max(created, memory.viewed_at or 0.0)) / _DAY_SECONDS
    recency = 0.5 ** (age_days / HALF_LIFE_DAYS)
    nearness = 1.0 if is_own(memory.project, project) else ELSEWHERE
    kind = KINDS.get(own_name(memory.namespace), OTHER_KINDS)
    worth = kind * TRUSTS.get(memory.trust, 0.0) * nearness * (0.3 + 0.7 * recency)
    signals = {"recency": recency, "used": float(used), "touched": touched, "kind": kind}
    return Hit(memory=memory, score=worth + (1.0 - worth) * 0.5 * touched, signals=signals)


def touched_lately(memories: Sequence[Memory], project: str | None, now: float) -> dict[str, float]:
    """Maps each memory's id to how recently one of its files was changed: 1 for just now, 0.5 for
    two days ago. Values below 0.05 are left out. Reads the timestamps of at most `MAX_STATS` files,
    never their contents."""
    if project is None:
        return {}
    ages: dict[str, float] = {}
    recencies: dict[str, float] = {}
    for memory in memories:
        for path in memory.paths:
            if path not in ages and len(ages) < MAX_STATS:
                ages[path] = _age_days(os.path.join(project, path), now)
            recency = 0.5 ** (ages.get(path, 1e6) / TOUCHED_HALF_LIFE_DAYS)
            recencies[memory.id] = max(recency, recencies.get(memory.id, 0.0))
    return {memory_id: recency for memory_id, recency in recencies.items() if recency >= 0.05}


def _age_days(path: str, now: float) -> float:
    try:
        return max(0.0, now - os.stat(path).st_mtime) / _DAY_SECONDS
    except (OSError, ValueError):
        return 1e6


class _Block:
    """A block of memories that grows line by line. It has at most `max_bytes`, even if its reminder
    is later changed to name the shell command `command` (`by_command()`)."""

    def __init__(self, max_bytes: int, surfacing_id: str, command: str) -> None:
        self.text = ""
        self._max_bytes = max_bytes - max(0, _size(reminder_of(command)) - _size(REMINDER))
        self._id = surfacing_id

    def add_rules(self, rules: Sequence[Memory]) -> list[Memory]:
        added, lines = rule_lines(rules, self._max_bytes - len(beneath([], self._id)) - 1)
        return added if added and self._add(lines) else []

    def add_notes(self, notes: Sequence[Hit], heading: str) -> list[Hit]:
        added: list[Hit] = []
        for hit in notes:
            if len(added) == MAX_NOTES:
                break
            line = entry(hit, (), _PROFILE)
            if self._add([line] if added else [heading, line]):
                added.append(hit)
        return added

    def add_lines(self, heading: str, lines: Sequence[str]) -> bool:
        return bool(lines) and self._add([heading, *lines])

    def _add(self, lines: Sequence[str]) -> bool:
        extended = beneath(lines, self._id, self.text)
        if _size(extended) > self._max_bytes:
            return False
        self.text = extended
        return True


def _size(text: str) -> int:
    """The size in bytes, which is what hosts limit."""
    return len(text.encode("utf-8", "replace"))
