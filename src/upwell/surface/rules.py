"""Standing rules: pinned memories, told when a session begins and beside its first prompt.

They do not compete with what a cue finds and do not depend on it; a cap of their own keeps them
short, and says how many it left out.
"""

import secrets
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from upwell.ground.errors import UpwellError
from upwell.ground.project import project_of
from upwell.ground.shelf import Shelf
from upwell.ground.trace import LOG
from upwell.ground.types import Cue, Door, Hit, Memory, Scope, Skip, SkipReason, Surfacing
from upwell.surface.render import beneath, citation, preview

KIND = "rules"
HEADING = "Standing rules that the user pinned:"
MAX_RULES = 10
RULE_CHARS = 300
MAX_BYTES = 2_000
"""At most ten rules of three hundred characters, two thousand bytes together (ours)."""
SILENT = frozenset({SkipReason.DISABLED, SkipReason.PAUSED, SkipReason.NOT_APPLICABLE})

Pinned = Callable[[Scope], Awaitable[Sequence[Memory]]]


async def no_rules(_: Scope) -> Sequence[Memory]:
    """Nothing is pinned."""
    return ()


class Rules:
    """Says the rules of a cue's project once a session; a session that begins gives them itself
    (`opening.py`). Sessions that were told are kept for `ttl_seconds`."""

    def __init__(self, pinned: Pinned, shelf: Shelf, ttl_seconds: float) -> None:
        self._pinned = pinned
        self._shelf = shelf
        self._ttl_seconds = ttl_seconds

    async def of(self, cue: Cue) -> Sequence[Memory]:
        """The rules of the cue's project, newest first. A fault costs the rules only."""
        try:
            scope = Scope(project=project_of(cue.cwd), namespaces=cue.principal.namespaces)
            return await self._pinned(scope)
        except UpwellError as error:
            LOG.warning("standing rules could not be told: %s", error)
            return ()

    async def told(self, session: str) -> None:
        """This session has heard them."""
        if session:
            await self._shelf.put(KIND, {session: b"told"}, ttl_seconds=self._ttl_seconds)

    async def were_told(self, session: str) -> bool:
        """Has this session heard them, and not forgotten?"""
        return bool(session) and session in await self._shelf.get(KIND, [session])

    async def untold(self, session: str) -> None:
        """This session has forgotten them, or never heard them."""
        await self._shelf.touch(KIND, session, ttl_seconds=0)

    async def beside(self, cue: Cue, outcome: Surfacing | Skip) -> Surfacing | Skip:
        """`outcome` with the rules, where they are due. A fault costs the rules only."""
        try:
            if not await self._due(cue, outcome):
                return outcome
            rules = await self.of(cue)
            if rules:
                await self.told(cue.session)
        except UpwellError as error:
            LOG.warning("standing rules could not be told: %s", error)
            return outcome
        return with_rules(outcome, rules) if rules else outcome

    async def _due(self, cue: Cue, outcome: Surfacing | Skip) -> bool:
        if cue.door != Door.PROMPT or not cue.session:
            return False
        if isinstance(outcome, Skip) and outcome.reason in SILENT:
            return False
        return not await self.were_told(cue.session)


def with_rules(outcome: Surfacing | Skip, rules: Sequence[Memory]) -> Surfacing | Skip:
    """The outcome as a surfacing that says these rules after what was found."""
    said, lines = rule_lines(rules, MAX_BYTES)
    if not said:
        return outcome
    hits = tuple(Hit(memory=rule, score=1.0, signals={"pinned": 1.0}) for rule in said)
    if isinstance(outcome, Surfacing):
        text = beneath(lines, outcome.id, outcome.text)
        return replace(outcome, hits=(*outcome.hits, *hits), text=text)
    surfacing_id = f"s_{secrets.token_hex(6)}"
    return Surfacing(
        id=surfacing_id,
        hits=hits,
        text=beneath(lines, surfacing_id),
        confidence=1.0,
        signals=hits[0].signals,
        intent=outcome.intent,
        queries=outcome.queries,
        held_back=outcome.held_back,
    )


def rule_lines(rules: Sequence[Memory], room: int) -> tuple[list[Memory], list[str]]:
    """The rules that fit into `room` bytes, newest first, and the lines that say them."""
    said, lines = list[Memory](), [HEADING]
    room -= _size(HEADING) + _size(_left_out(len(rules)))
    for rule in rules[:MAX_RULES]:
        line = f"- [{citation(rule)}] {preview(rule.text, (), RULE_CHARS)}"
        room -= _size(line)
        if room < 0:
            break
        said.append(rule)
        lines.append(line)
    if not said:
        return [], []
    if left := len(rules) - len(said):
        lines.append(_left_out(left))
    return said, lines


def _left_out(count: int) -> str:
    return f"({count} more: upwell recall --pinned)"


def _size(line: str) -> int:
    return len(line.encode("utf-8", "replace")) + 1
