"""Standing rules: pinned memories, given when a session begins and, where that was missed, beside
its first prompt.

Rules do not depend on the cue and do not compete with what it finds. A cap of their own keeps them
short, and their block states how many it leaves out.
"""

import secrets
from collections.abc import Sequence
from dataclasses import replace

from upwell.ground.project import project_of
from upwell.ground.trace import contained
from upwell.ground.ttl_store import Kind, TtlStore
from upwell.ground.types.cue import Cue, Door
from upwell.ground.types.memory import Hit, Memory, Scope
from upwell.ground.types.surfacing import Skip, SkipReason, Surfacing
from upwell.memory.base import MemoryReader
from upwell.surface.render import beneath, citation, preview

HEADING = "Standing rules that the user pinned:"
MAX_RULES = 10
RULE_CHARS = 300
MAX_BYTES = 2_000
"""At most ten rules of 300 characters, 2 000 bytes together (ours)."""
SILENT = frozenset({SkipReason.DISABLED, SkipReason.PAUSED, SkipReason.NOT_APPLICABLE})
"""Outcomes beside which rules are not given either."""


class Rules:
    """Gives a session the rules of its project once. The record of sessions that have them lives
    for `ttl_seconds`."""

    def __init__(self, reader: MemoryReader, ttl_store: TtlStore, ttl_seconds: float) -> None:
        self._reader = reader
        self._ttl_store = ttl_store
        self._ttl_seconds = ttl_seconds

    async def of(self, cue: Cue) -> Sequence[Memory]:
        """The rules of the cue's project, newest first; none when they cannot be read."""
        with contained("reading the standing rules"):
            scope = Scope(project=project_of(cue.cwd), namespaces=cue.principal.namespaces)
            return await self._reader.pinned(scope)
        return ()

    async def record(self, session: str) -> None:
        """This session has the rules now."""
        if session:
            await self._ttl_store.put(Kind.RULES, {session: b"told"}, ttl_seconds=self._ttl_seconds)

    async def has(self, session: str) -> bool:
        """Does this session still have the rules in its context?"""
        return bool(session) and session in await self._ttl_store.get(Kind.RULES, [session])

    async def withdraw(self, session: str) -> None:
        """This session has lost the rules, or never received them."""
        await self._ttl_store.delete(Kind.RULES, [session])

    async def join(self, cue: Cue, outcome: Surfacing | Skip) -> Surfacing | Skip:
        """`outcome` with the rules, if the session lacks them; unchanged when they cannot be
        read."""
        with contained("adding the standing rules"):
            if not await self._are_due(cue, outcome):
                return outcome
            rules = await self.of(cue)
            if rules:
                await self.record(cue.session)
                return with_rules(outcome, rules)
        return outcome

    async def _are_due(self, cue: Cue, outcome: Surfacing | Skip) -> bool:
        if cue.door != Door.PROMPT or not cue.session:
            return False
        if isinstance(outcome, Skip) and outcome.reason in SILENT:
            return False
        return not await self.has(cue.session)


def with_rules(outcome: Surfacing | Skip, rules: Sequence[Memory]) -> Surfacing | Skip:
    """The outcome as a surfacing that ends with these rules; unchanged if none of them fits."""
    shown, lines = rule_lines(rules, MAX_BYTES)
    if not shown:
        return outcome
    hits = tuple(rule_hit(rule) for rule in shown)
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
        missing=outcome.missing,
    )


def rule_hit(rule: Memory) -> Hit:
    """A rule as a hit that no search found."""
    return Hit(memory=rule, score=1.0, signals={"pinned": 1.0})


def rule_lines(rules: Sequence[Memory], budget_bytes: int) -> tuple[list[Memory], list[str]]:
    """The rules that fit into the budget, newest first, and the lines that show them."""
    shown, lines = list[Memory](), [HEADING]
    budget_bytes -= _size(HEADING) + _size(_remainder(len(rules)))
    for rule in rules[:MAX_RULES]:
        line = f"- [{citation(rule)}] {preview(rule.text, (), RULE_CHARS)}"
        budget_bytes -= _size(line)
        if budget_bytes < 0:
            break
        shown.append(rule)
        lines.append(line)
    if not shown:
        return [], []
    if omitted := len(rules) - len(shown):
        lines.append(_remainder(omitted))
    return shown, lines


def _remainder(count: int) -> str:
    return f"({count} more: upwell recall --pinned)"


def _size(line: str) -> int:
    return len(line.encode("utf-8", "replace")) + 1
