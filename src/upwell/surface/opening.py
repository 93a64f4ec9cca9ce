"""What a session begins with: the rules the user pinned, and the notes most likely of use.

Nobody has asked anything yet, so there is nothing to match. What speaks for a note is that it
belongs to this project, is recent or was looked at since, states a decision or a pitfall, and is
about files that were changed lately (by their own times: git is not run, a cloned repository must
not start a process). All of it together stays within `surface.session_max_bytes`.
"""

import asyncio
import os
import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field, replace

from upwell.ground.project import project_of
from upwell.ground.shelf import Shelf
from upwell.ground.types import Cue, Door, Hit, Memory, Scope, Skip, SkipReason, Surfacing, Trust
from upwell.surface.compaction import Compaction
from upwell.surface.options import SurfaceOptions
from upwell.surface.rank import distinct
from upwell.surface.render import Profile, beneath, entry, lines_of
from upwell.surface.rules import SILENT, Rules, rule_lines
from upwell.surface.seen import Seen

KIND = "opening"
_UNSPOKEN = SILENT | {SkipReason.WRITE_TOOL, SkipReason.EXCLUDED_TOOL}
"""Where nothing at all is said, what is owed waits."""
HEADING = "Of this project, lately:"
GOING_ON = "Of this session so far, and of this project:"
COMPACTED = "compact"
FORGETFUL = frozenset({COMPACTED, "clear"})
"""Why a session may begin anew (`Cue.text`, in the hosts' words): the agent has forgotten."""
RESUMED = "resume"
"""Hosts that resume a session restore what it was told."""
MISSED = "missed"
"""Ours: nobody was there to answer when it began. It gets the rules, where it has not got them."""
SUBAGENT = "subagent"
"""Ours: its task is given, so it gets the rules only."""
LOOKED_AT = 200
"""Of a project's memories and the global ones so many are looked at, the newest."""
MAX_NOTES = 6
MAX_OWED = 500
PREVIEW_CHARS = 180
MIN_WORTH = 0.3
TOLD_WORTH = 0.9
MAX_STATS = 400
HALF_LIFE_DAYS = 30.0
TOUCHED_HALF_LIFE_DAYS = 2.0
KINDS = {"decisions": 1.0, "blockers": 1.0, "patterns": 0.9, "learnings": 0.9}
OTHER_KINDS = 0.7
TRUSTS = {Trust.USER: 1.0, Trust.IMPORTED: 0.8, Trust.AGENT: 0.7}
ELSEWHERE = 0.5
"""Ours: what a note weighs by its namespace, who wrote it, and when it belongs to no project."""
_DAY_SECONDS = 86_400.0
_PROFILE = Profile(chars=0, tokens=0, items=MAX_NOTES, preview_chars=PREVIEW_CHARS)

Latest = Callable[[Scope], Awaitable[Sequence[Memory]]]


async def nothing_lately(_: Scope) -> Sequence[Memory]:
    """Nothing is remembered."""
    return ()


@dataclass(frozen=True, slots=True)
class Opening:
    """Says once what a session should begin with. `latest` gives the newest memories of a scope;
    `seen` hears what was said whole, so that this session is not told it again; `compaction` knows
    what it was told before it forgot. `owed` are sessions whose beginning came too late."""

    rules: Rules
    latest: Latest
    compaction: Compaction
    shelf: Shelf
    seen: Seen
    options: SurfaceOptions
    owed: OrderedDict[str, Cue] = field(default_factory=OrderedDict[str, Cue])

    async def begin(self, cue: Cue, now: float, said: Collection[str] = ()) -> Surfacing | Skip:
        """The rules and notes for the session of this cue, or why there are none; without the
        memories that are `said` already.

        Rules are said whenever it begins, unless it is resumed and has them; notes once, unless the
        agent has forgotten them.
        """
        if not self.options.session_max_bytes:
            return Skip(reason=SkipReason.DISABLED, detail="surface.session_max_bytes = 0")
        surfacing_id = f"s_{secrets.token_hex(6)}"
        room = _Room(self.options.session_max_bytes, surfacing_id)
        has_rules = cue.text in (RESUMED, MISSED) and await self._has_rules(cue)
        rules = room.take_rules([] if has_rules else await self.rules.of(cue))
        repeated = cue.text not in FORGETFUL and await self._was_told(cue.session)
        before = await self._told_before(cue) if cue.text in FORGETFUL else []
        heading = GOING_ON if before else HEADING
        rules_only = repeated or cue.text in (MISSED, SUBAGENT)
        worth = [] if rules_only else distinct([*before, *await self._worth_saying(cue, now)])
        notes = room.take_notes([hit for hit in worth if hit.memory.id not in said], heading)
        if not rules and not notes:
            known = repeated or has_rules
            reason = SkipReason.REPEATED if known else SkipReason.NO_CANDIDATES
            return Skip(reason=reason, detail="as this session began" if known else "")
        await self._told(cue.session, notes)
        best = max(notes, key=lambda hit: hit.score, default=None)
        return Surfacing(
            id=surfacing_id,
            hits=(
                *(Hit(memory=rule, score=1.0, signals={"pinned": 1.0}) for rule in rules),
                *notes,
            ),
            text=room.text,
            confidence=1.0 if rules or best is None else best.score,
            signals=best.signals if best is not None else {"pinned": 1.0},
        )

    async def beside(self, cue: Cue, outcome: Surfacing | Skip, now: float) -> Surfacing | Skip:
        """`outcome` with what the session should have begun with, where that came too late."""
        if cue.session not in self.owed or cue.door not in (Door.PROMPT, Door.TOOL):
            return outcome
        if isinstance(outcome, Skip) and outcome.reason in _UNSPOKEN:
            return outcome
        found = outcome.memories if isinstance(outcome, Surfacing) else ()
        said = {memory.id for memory in found}
        began = await self.begin(self.owed.pop(cue.session), now, said)
        return outcome if isinstance(began, Skip) else _joined(outcome, began)

    def owe(self, cue: Cue) -> None:
        """The session's next event is told what it should have begun with."""
        self.owed[cue.session] = cue
        if len(self.owed) > MAX_OWED:
            self.owed.popitem(last=False)

    async def take_back(self, cue: Cue, surfacing: Surfacing) -> None:
        """It did not reach the agent: the session's next event is told it."""
        if not cue.session:
            return
        self.owe(cue)
        await self.rules.untold(cue.session)
        await self.shelf.touch(KIND, cue.session, ttl_seconds=0)
        await self.seen.untold_here(surfacing.memories, cue.session)

    async def _has_rules(self, cue: Cue) -> bool:
        """Has the session heard them, or will it, as it goes on after a compaction? Codex resumes
        and compacts in one."""
        if cue.text == RESUMED and await self.compaction.is_due(cue.session):
            return True
        return await self.rules.were_told(cue.session)

    async def _was_told(self, session: str) -> bool:
        return bool(session) and session in await self.shelf.get(KIND, [session])

    async def _told(self, session: str, notes: Sequence[Hit]) -> None:
        if not session:
            return
        ttl_seconds = self.options.dedup_ttl_seconds
        if notes:
            await self.shelf.put(KIND, {session: b"told"}, ttl_seconds=ttl_seconds)
        whole = [hit.memory for hit in notes if len(hit.memory.text) <= PREVIEW_CHARS]
        await self.seen.told_here(whole, session)
        await self.rules.told(session)

    async def _told_before(self, cue: Cue) -> list[Hit]:
        """What the session was told before it forgot, where it goes on; first what it used."""
        told = await self.compaction.after(cue.session)
        if cue.text != COMPACTED:
            return []
        project = project_of(cue.cwd)
        welcome = [one for one in told if not one.pinned and one.project in (None, project)]
        return [Hit(memory=one, score=TOLD_WORTH, signals={"told": 1.0}) for one in welcome]

    async def _worth_saying(self, cue: Cue, now: float) -> list[Hit]:
        """The notes of the cue's project that are most likely of use, best first."""
        project = project_of(cue.cwd)
        found = [
            memory
            for memory in await self.latest(Scope(project=project))
            if not memory.pinned
            and memory.trust is not Trust.TOOL
            and memory.project in (None, project)
        ]
        replaced = {memory.supersedes for memory in found}
        current = [memory for memory in found if memory.id not in replaced]
        touched = await asyncio.to_thread(touched_lately, current, project, now)
        hits = [standing(memory, project, touched.get(memory.id, 0.0), now) for memory in current]
        ordered = sorted(hits, key=lambda hit: (-hit.score, hit.memory.id))
        return distinct([hit for hit in ordered if hit.score >= MIN_WORTH])


def _joined(outcome: Surfacing | Skip, began: Surfacing) -> Surfacing:
    """What was decided, then what the session should have begun with, as one surfacing."""
    if isinstance(outcome, Skip):
        return replace(began, intent=outcome.intent, queries=outcome.queries)
    text = beneath(lines_of(began.text), outcome.id, outcome.text)
    return replace(outcome, hits=(*outcome.hits, *began.hits), text=text)


def standing(memory: Memory, project: str | None, touched: float, now: float) -> Hit:
    """A memory as a hit that no cue found: its score says how likely it is of use, by itself."""
    created = memory.created_at if memory.created_at is not None else now
    used = memory.viewed_at is not None and memory.viewed_at > created + 1.0
    age_days = max(0.0, now - max(created, memory.viewed_at or 0.0)) / _DAY_SECONDS
    recency = 0.5 ** (age_days / HALF_LIFE_DAYS)
    own = 1.0 if project is not None and memory.project == project else ELSEWHERE
    kind = KINDS.get(memory.namespace, OTHER_KINDS)
    worth = kind * TRUSTS.get(memory.trust, 0.0) * own * (0.3 + 0.7 * recency)
    signals = {"recency": recency, "used": float(used), "touched": touched, "kind": kind}
    return Hit(memory=memory, score=worth + (1.0 - worth) * 0.5 * touched, signals=signals)


def touched_lately(memories: Sequence[Memory], project: str | None, now: float) -> dict[str, float]:
    """How recently a file that each memory is about was changed: 1 just now, 0.5 after two days.

    At most `MAX_STATS` files are looked at; their content is not.
    """
    if project is None:
        return {}
    ages: dict[str, float] = {}
    found: dict[str, float] = {}
    for memory in memories:
        for path in memory.paths:
            if path not in ages and len(ages) < MAX_STATS:
                ages[path] = _age_days(os.path.join(project, path), now)
            recency = 0.5 ** (ages.get(path, 1e6) / TOUCHED_HALF_LIFE_DAYS)
            found[memory.id] = max(recency, found.get(memory.id, 0.0))
    return {identity: recency for identity, recency in found.items() if recency >= 0.05}


def _age_days(path: str, now: float) -> float:
    try:
        return max(0.0, now - os.stat(path).st_mtime) / _DAY_SECONDS
    except (OSError, ValueError):
        return 1e6


class _Room:
    """A block that is filled line by line, up to `most` bytes."""

    def __init__(self, most: int, surfacing_id: str) -> None:
        self.text = ""
        self._most = most
        self._id = surfacing_id

    def take_rules(self, rules: Sequence[Memory]) -> list[Memory]:
        """As many rules as fit, newest first; the block says how many are left out."""
        said, lines = rule_lines(rules, self._most - len(beneath([], self._id)) - 1)
        return said if said and self._takes(lines) else []

    def take_notes(self, notes: Sequence[Hit], heading: str) -> list[Hit]:
        """The best notes that fit, in order; one that is too long gives way to the next."""
        said: list[Hit] = []
        for hit in notes:
            if len(said) == MAX_NOTES:
                break
            line = entry(hit, (), _PROFILE)
            if self._takes([line] if said else [heading, line]):
                said.append(hit)
        return said

    def _takes(self, lines: Sequence[str]) -> bool:
        longer = beneath(lines, self._id, self.text)
        if len(longer.encode("utf-8", "replace")) > self._most:
            return False
        self.text = longer
        return True
