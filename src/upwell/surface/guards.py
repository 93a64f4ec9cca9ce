"""Guards: standing rules that refuse a matching call once.

Only a person can make a rule a guard (`upwell rules add --guard`). A guard applies to a command or
to a server's tool. It refuses the first matching call of each session, and its text is the reason
that the agent reads. If guards cannot be read in time, no call is refused.
"""

import asyncio
import math
from collections.abc import Callable

from msgspec import Struct

from upwell.ground.clock import SYSTEM_CLOCK, Clock
from upwell.ground.errors import UsageError
from upwell.ground.project import project_of
from upwell.ground.trace import LOG, contained
from upwell.ground.ttl_store import EntryKind, TtlStore
from upwell.ground.types.cue import Cue
from upwell.ground.types.memory import Memory, Scope
from upwell.memory.recall import MemoryReader
from upwell.surface.event import with_real_paths
from upwell.surface.render import citation, preview
from upwell.surface.scopes import RuleScope, in_force, is_own, scope_of

GUARD = "guard"
"""The tag of a guard."""
MAX_GUARDS = 200
REASON_CHARS = 500
FRESH_SECONDS = 1.0
"""How long guards are cached. A guard added by another process takes effect within this time."""
READING_SECONDS = 0.15
TTL_SECONDS = 30 * 86_400.0
_EXAMPLES = "--tool 'Bash(git push*--force*)' or --tool 'github__delete_*'"
_REASON = (
    'Not run. A rule that the user set as a guard applies here: "{text}" [{source}]. If the user '
    "wants it anyway, repeat the call: this guard refuses only once per session."
)


class Refusal(Struct, frozen=True, kw_only=True):
    """A call refused by the guard `rule`: the `reason` that the agent reads, and the `key` under
    which the refusal is recorded."""

    rule: Memory
    reason: str
    key: str


class Guards:
    """Refuses the calls that match a guard. `is_paused` returns whether a session is paused.
    `refused` records a refusal for `explain`."""

    def __init__(
        self,
        reader: MemoryReader,
        ttl_store: TtlStore,
        *,
        is_paused: Callable[[str], bool],
        refused: Callable[[Cue, Memory], None],
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._reader = reader
        self._ttl_store = ttl_store
        self._is_paused = is_paused
        self._refused = refused
        self._clock = clock
        self._known: dict[str | None, tuple[float, list[Memory]]] = {}

    async def refusal(self, cue: Cue) -> Refusal | None:
        """The refusal of a call that is about to be made. None if the call may pass, or if the
        guards cannot be read in time."""
        with contained("reading the guards"):
            if self._cached(project_of(cue.cwd)) == []:
                return None
            try:
                async with asyncio.timeout(READING_SECONDS):
                    return await self._refusal(with_real_paths(cue))
            except TimeoutError:
                LOG.warning("the guards were not read in time, so the call passes")
        return None

    async def withdraw(self, refusal: Refusal) -> None:
        """Take back a refusal that did not reach the agent, so that the guard refuses the next
        matching call."""
        with contained("taking a refusal back"):
            await self._ttl_store.delete(EntryKind.RULES, [refusal.key])

    async def _refusal(self, cue: Cue) -> Refusal | None:
        if not cue.session or not cue.tool:
            return None
        for rule in await self._guards(project_of(cue.cwd)):
            scope = scope_of(rule)
            if scope.tools and scope.matches(cue) and not self._is_paused(cue.session):
                refusal = _refusal_by(rule, cue.session)
                if await self._claim(refusal.key):
                    self._refused(cue, rule)
                    return refusal
        return None

    async def _claim(self, key: str) -> bool:
        """Record the refusal. Returns False if this guard has already refused a call in this
        session."""
        return await self._ttl_store.compare_and_set(
            EntryKind.RULES, key, None, b"refused", ttl_seconds=TTL_SECONDS
        )

    def _cached(self, project: str | None) -> list[Memory] | None:
        read_at, guards = self._known.get(project, (-math.inf, []))
        return guards if self._clock.monotonic() - read_at < FRESH_SECONDS else None

    async def _guards(self, project: str | None) -> list[Memory]:
        now = self._clock.monotonic()
        guards = self._cached(project)
        if guards is not None:
            return guards
        rules = await self._reader.pinned(Scope(project=project), limit=MAX_GUARDS)
        guards = [rule for rule in in_force(rules) if is_guard(rule)] if rules else []
        self._known = {**self._known, project: (now, guards)} if len(self._known) < 50 else {}
        return guards


def is_guard(rule: Memory) -> bool:
    """True if the user made this standing rule a guard. A rule of the team never refuses a call."""
    return rule.pinned and GUARD in rule.tags and is_own(rule)


def check_guard(scope: RuleScope) -> None:
    """Check the scope of a guard.

    Raises:
        UsageError: the scope names no tool, or names something other than a command or a tool of
            a server.
    """
    if scope.paths and not scope.tools:
        raise UsageError(
            "a guard cannot refuse by --path alone: agents ask upwell before they run a command or "
            "a server's tool, not before they read or write a file",
            hint=f"add {_EXAMPLES}, or leave out --guard",
        )
    for pattern in scope.tools or ("",):
        if not pattern.startswith("Bash(") and "__" not in pattern:
            raise UsageError(
                "a guard needs a command or a tool of a server",
                hint=_EXAMPLES,
            )


def refusal_key(session: str, rule: Memory) -> str:
    """The key under which a refusal is recorded. Its prefix keeps it apart from the session's other
    rule records, which a compaction removes."""
    return f"guard:{session}#{rule.id}"


def _refusal_by(rule: Memory, session: str) -> Refusal:
    return Refusal(
        rule=rule,
        reason=_REASON.format(text=preview(rule.text, (), REASON_CHARS), source=citation(rule)),
        key=refusal_key(session, rule),
    )
