"""Standing rules: pinned memories that the agent gets when a session begins or, if the beginning
was missed, with a later event. A rule with a scope comes with the first prompt or call that
matches the scope.

Paused and replaced rules are left out, and so are rules in files that the agent's host loads by
itself. The user's own rules come first, but at a prompt, rules with a scope precede those without
one. Team rules and imported rules are labelled. Rules do not compete with the memories that a
search finds: they have their own size limit, and their block says how many rules were left out.
"""

import asyncio
import secrets
from collections.abc import Sequence

from msgspec.structs import replace

from upwell.ground.ledger import EntryKind, TtlStore
from upwell.ground.project import project_of
from upwell.ground.trace import contained
from upwell.ground.types.cue import Cue, Door, Skip, SkipReason, Surfacing
from upwell.ground.types.memory import Hit, Memory, Scope, Trust
from upwell.memory.base import MemoryReader
from upwell.memory.team.sharing import is_teams
from upwell.surface.loaded import loaded_by
from upwell.surface.render import beneath, citation, preview
from upwell.surface.scopes import RuleScope, in_force, is_own, refusal_key, scope_of

HEADING = "Standing rules that the user pinned:"
TEAM_LABEL = "(shared with the team) "
IMPORTED_LABEL = "(imported) "
MAX_READ = 200
"""How many rules are read, newest first. The limit is high, so that newer team rules do not crowd
out the user's own."""
MAX_RULES = 10
RULE_CHARS = 300
EVERYWHERE = RuleScope()
MAX_BYTES = 2_000
"""The maximum size in bytes of the rules added to a prompt or a call."""
SILENT = frozenset({SkipReason.DISABLED, SkipReason.PAUSED, SkipReason.NOT_APPLICABLE})
"""A cue that was skipped for one of these reasons gets no rules either."""


class StandingRules:
    """Gives each session the rules of its project once. The rules that a session has are recorded
    for `ttl_seconds`: one entry for all rules without a scope, and one for each rule with a scope.
    """

    def __init__(self, reader: MemoryReader, ttl_store: TtlStore, ttl_seconds: float) -> None:
        self._reader = reader
        self._ttl_store = ttl_store
        self._ttl_seconds = ttl_seconds

    async def of(self, cue: Cue) -> Sequence[Memory]:
        """The rules for the start of the cue's session: the user's own rules, newest first, then
        the others, newest first. Empty if the rules cannot be read."""
        with contained("reading the standing rules"):
            rules = [rule for rule in await self._pinned(cue) if not _is_scoped(rule)]
            return await _not_loaded(rules, cue)
        return ()

    async def record(self, session: str) -> None:
        """Record that this session has the rules now."""
        if session:
            await self._record([session])

    async def has(self, session: str) -> bool:
        """True if this session still has the rules in its context."""
        return bool(session) and session in await self._ttl_store.get(EntryKind.RULES, [session])

    async def withdraw(self, session: str) -> None:
        """Record that this session has lost the rules, or never received them."""
        await self._ttl_store.delete(EntryKind.RULES, [session])
        if session:
            await self._ttl_store.drop(EntryKind.RULES, _key(session, ""))

    async def take_back(self, session: str, memories: Sequence[Memory]) -> None:
        """Record that the rules among these memories did not reach the session, so that the session
        gets them again."""
        rules = [memory for memory in memories if memory.pinned]
        keys = {_key(session, rule.id) if _is_scoped(rule) else session for rule in rules}
        if keys:
            await self._ttl_store.delete(EntryKind.RULES, sorted(keys))

    async def add_if_due(self, cue: Cue, outcome: Surfacing | Skip) -> Surfacing | Skip:
        """`outcome` with the rules for this cue that the session lacks. Unchanged if the rules
        cannot be read."""
        is_silent = isinstance(outcome, Skip) and outcome.reason in SILENT
        if cue.door not in (Door.PROMPT, Door.TOOL) or not cue.session or is_silent:
            return outcome
        with contained("adding the standing rules"):
            rules = await self._pinned(cue)
            if not rules:
                return outcome
            opening: list[Memory] = []
            if cue.door == Door.PROMPT and not await self.has(cue.session):
                opening = [rule for rule in rules if not _is_scoped(rule)]
            matching = await self._matching(cue, rules)
            due = await _not_loaded([*matching, *opening], cue)
            if due:
                joined = with_rules(outcome, due)
                shown = joined.memories if isinstance(joined, Surfacing) else ()
                shown_ids = {memory.id for memory in shown}
                keys = [_key(cue.session, rule.id) for rule in matching if rule.id in shown_ids]
                await self._record([*keys, cue.session] if opening else keys)
                return joined
        return outcome

    async def _pinned(self, cue: Cue) -> Sequence[Memory]:
        scope = Scope(project=project_of(cue.cwd), namespaces=cue.principal.namespaces)
        pinned = await self._reader.pinned(scope, limit=MAX_READ)
        rules = in_force(pinned) if pinned else []
        return sorted(rules, key=lambda rule: not is_own(rule))

    async def _matching(self, cue: Cue, rules: Sequence[Memory]) -> list[Memory]:
        matching = {
            _key(cue.session, rule.id): rule for rule in rules if scope_of(rule).matches(cue)
        }
        if not matching:
            return []
        refusals = {key: refusal_key(cue.session, rule) for key, rule in matching.items()}
        entries = await self._ttl_store.get(EntryKind.RULES, [*matching, *refusals.values()])
        return [
            rule
            for key, rule in matching.items()
            if key not in entries and refusals[key] not in entries
        ]

    async def _record(self, keys: Sequence[str]) -> None:
        values = dict.fromkeys(keys, b"told")
        if values:
            await self._ttl_store.put(EntryKind.RULES, values, ttl_seconds=self._ttl_seconds)


def _is_scoped(rule: Memory) -> bool:
    return scope_of(rule) != EVERYWHERE


def _key(session: str, rule_id: str) -> str:
    return f"{session}#{rule_id}"


async def _not_loaded(rules: list[Memory], cue: Cue) -> list[Memory]:
    """The rules that the host does not load by itself. All of them if its files cannot be read."""
    if not rules or not cue.host:
        return rules
    texts = [rule.text for rule in rules]
    always = {rule.text for rule in rules if not _is_scoped(rule)}
    loaded: set[str] = set()
    with contained("looking for the rules that the agent has already"):
        loaded = await asyncio.to_thread(loaded_by, cue.host, cue.cwd, texts, always)
    return [rule for rule in rules if rule.text not in loaded]


def with_rules(outcome: Surfacing | Skip, rules: Sequence[Memory]) -> Surfacing | Skip:
    """`outcome` with these rules at the end of its block. Unchanged if no rule fits."""
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
    """The first rules that fit the budget, and the lines that show them."""
    shown, lines = list[Memory](), [HEADING]
    budget_bytes -= _size(HEADING) + _size(_remainder(len(rules)))
    for rule in rules[:MAX_RULES]:
        label = TEAM_LABEL if is_teams(rule.namespace) else ""
        if not label and rule.trust is Trust.IMPORTED:
            label = IMPORTED_LABEL
        line = f"- [{citation(rule)}] {label}{preview(rule.text, (), RULE_CHARS)}"
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
    return f"({count} more: upwell rules)"


def _size(line: str) -> int:
    return len(line.encode("utf-8", "replace")) + 1
