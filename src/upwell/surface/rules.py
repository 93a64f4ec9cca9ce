"""Standing rules: pinned memories that the agent gets when a session begins or, if the beginning
was missed, with a later event.

Paused and replaced rules are left out, and so are rules in files that the agent's host loads by
itself. The user's own rules come first, but at a prompt, rules with a scope precede those without
one. Team rules and imported rules are labelled. Rules do not compete with the memories that a
search finds: they have their own size limit, and their block says how many rules were left out.

A rule with a scope comes with the first prompt or call that matches the scope. The rule's triggers
store it: `path:GLOB` for files, `tool:NAME` or `tool:NAME(GLOB)` for tools and their commands.

A guard is a standing rule that refuses the first matching call of each session. Only a person can
make a rule a guard (`upwell rules add --guard`). It applies to a command or to a server's tool, and
its text is the reason that the agent reads. If guards cannot be read in time, no call is refused.
"""

import asyncio
import math
import re
import secrets
import shlex
from collections.abc import Callable, Sequence
from functools import lru_cache
from os.path import isabs, join, normpath
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from upwell.episodes.signatures import CommandStep, steps_of
from upwell.ground.clock import SYSTEM_CLOCK, Clock
from upwell.ground.errors import UsageError
from upwell.ground.ledger import EntryKind, TtlStore
from upwell.ground.names import names_tool
from upwell.ground.project import project_of
from upwell.ground.text.anchors import paths_in, relative_to
from upwell.ground.trace import LOG, contained
from upwell.ground.types.cue import Cue, Door, Skip, SkipReason, Surfacing
from upwell.ground.types.memory import Hit, Memory, Scope, Trust
from upwell.memory.base import MemoryReader
from upwell.memory.team.sharing import is_teams
from upwell.surface.event import with_real_paths
from upwell.surface.loaded import loaded_by
from upwell.surface.query import COMMAND_KEYS, anchors_of
from upwell.surface.render import beneath, citation, preview

PAUSED = "paused"
"""The tag of a paused rule."""
MAX_PATTERN_CHARS = 200
MAX_COMMAND_CHARS = 10_000
_PATH, _TOOL = "path:", "tool:"
_NAMED_TOOL = re.compile(r"([\w*?.:-]+)(?:\((.+)\))?")
_COMMAND_ENDS = re.compile(r"&&|\|\|?|;|\n")
_SUBSTITUTION = re.compile(r"\$\(([^()]++)\)")
_BACKTICKS = re.compile(r"`([^`]++)`")
_SHELLS = frozenset("ash bash dash fish ksh sh zsh".split())
_SHELL_OPTION = re.compile(r"-[a-z]{0,6}c")
_RUNNERS = frozenset("chroot doas env ionice nice parallel setsid stdbuf sudo xargs".split())
MAX_SCRIPTS = 16
"""The maximum number of scripts read in one call, including nested ones."""
MAX_OPTIONS = 8
"""After options with values, the command that a runner such as `sudo` starts is recognised only if
it begins within the first `MAX_OPTIONS` words."""


class RuleScope(Struct, frozen=True, kw_only=True):
    """Globs for files, relative to the project, and patterns for tools. If a scope has both, a cue
    must match one of each."""

    paths: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()

    def triggers(self) -> tuple[str, ...]:
        """The scope as stored in a rule's triggers."""
        paths = (f"{_PATH}{pattern}" for pattern in self.paths)
        return (*paths, *(f"{_TOOL}{pattern}" for pattern in self.tools))

    def in_words(self) -> str:
        """The scope as shown to people."""
        return " ".join((*self.paths, *self.tools)) or "every session"

    def matches(self, cue: Cue) -> bool:
        """True if the cue matches. An empty scope matches no cue."""
        if not self.paths and not self.tools:
            return False
        about_file = not self.paths or any(
            _glob(pattern).fullmatch(file) for file in files_of(cue) for pattern in self.paths
        )
        return about_file and (not self.tools or any(_runs(tool, cue) for tool in self.tools))


def scope_of(rule: Memory) -> RuleScope:
    """The scope of a standing rule."""
    return RuleScope(
        paths=_with(_PATH, rule.triggers),
        tools=_with(_TOOL, rule.triggers),
    )


def is_own(rule: Memory) -> bool:
    """True if the user wrote this rule. Imported rules and team rules are not the user's own."""
    return rule.trust is Trust.USER and not is_teams(rule.namespace)


def replaced_among(rules: Sequence[Memory]) -> set[str]:
    """The ids of the rules that another of these rules replaces, even if the other rule is paused.
    Somebody else's rule never replaces one of the user's own."""
    successors: dict[str, list[Memory]] = {}
    for rule in rules:
        if rule.supersedes:
            successors.setdefault(rule.supersedes, []).append(rule)
    return {
        rule.id
        for rule in rules
        if any(is_own(newer) or not is_own(rule) for newer in successors.get(rule.id, ()))
    }


def in_force(rules: Sequence[Memory]) -> list[Memory]:
    """The rules that are neither paused nor replaced, in the given order."""
    replaced = replaced_among(rules)
    return [rule for rule in rules if rule.id not in replaced and PAUSED not in rule.tags]


def checked_scope(paths: Sequence[str], tools: Sequence[str]) -> RuleScope:
    """The scope for patterns that a person typed. Raises UsageError if a pattern is not valid."""
    for pattern in (*paths, *tools):
        if not pattern.strip() or len(pattern) > MAX_PATTERN_CHARS:
            raise UsageError(f"{pattern!r:.60} is not a pattern", hint="`upwell rules --help`")
    for pattern in paths:
        if isabs(pattern) or pattern.startswith(("~", "../")):
            raise UsageError(
                f"{pattern!r} is not relative to the project", hint="for example src/api/**"
            )
    for pattern in tools:
        if _NAMED_TOOL.fullmatch(pattern) is None:
            raise UsageError(
                f"{pattern!r} is not a pattern for a tool",
                hint="for example Bash, 'Bash(git push*)' or 'github__*'",
            )
    bare = tuple(pattern.removeprefix("./") for pattern in paths)
    return RuleScope(paths=bare, tools=tuple(tools))


def standing(memory: Memory, scope: RuleScope | None = None) -> Memory:
    """The memory as a standing rule with this scope. Without a scope, the globs among the memory's
    paths become the scope."""
    given = scope.triggers() if scope else ()
    return replace(memory, pinned=True, triggers=given or globs_of(memory.paths).triggers())


def globs_of(paths: Sequence[str]) -> RuleScope:
    """The globs among these paths, as the scope of a rule."""
    return RuleScope(paths=tuple(path for path in paths if "*" in path))


def files_of(cue: Cue) -> list[str]:
    """A cue's files, relative to its project if they are inside it."""
    paths = anchors_of(cue.tool, cue.args)[0] if cue.tool else paths_in(cue.text)
    project = project_of(cue.cwd)
    return [relative_to(normpath(join(cue.cwd or "", path)), project) for path in paths]


def _with(prefix: str, triggers: Sequence[str]) -> tuple[str, ...]:
    return tuple(item.removeprefix(prefix) for item in triggers if item.startswith(prefix))


def _runs(pattern: str, cue: Cue) -> bool:
    match = _NAMED_TOOL.fullmatch(pattern)
    if not cue.tool or match is None or not names_tool(match[1], cue.tool, cue.joined):
        return False
    return match[2] is None or any(_glob(match[2], True).fullmatch(step) for step in _steps(cue))


def _steps(cue: Cue) -> list[str]:
    """The commands in a call, one by one, both as written and without wrappers:
    `cd web && sudo rm x` yields `cd web`, `sudo rm x` and `rm x`. Includes the commands inside
    `sh -c '…'`, `eval` and `$(…)`."""
    lines: list[str] = []
    for key in sorted(COMMAND_KEYS & cue.args.keys()):
        value = cue.args[key]
        # Some agents pass a command as a list of words.
        if isinstance(value, list):
            value = shlex.join(word for word in value if isinstance(word, str))
        lines += [value] if isinstance(value, str) else []
    line = "\n".join(lines)[:MAX_COMMAND_CHARS]
    steps = (step.strip().strip("(){}") for step in _COMMAND_ENDS.split(line))
    found = [" ".join(step.split()) for step in steps if step]
    scripts = [line]
    for script in scripts:
        inside = [*_SUBSTITUTION.findall(script), *_BACKTICKS.findall(script)]
        for step in steps_of(script):
            found += _from_program(step)
            inside += _scripts_in(step.words)
        scripts += inside[: MAX_SCRIPTS - len(scripts)]
    return found


def _from_program(step: CommandStep) -> list[str]:
    """The forms of a command that a pattern may match: without assignments and wrappers, and also
    without the folder of its program. A runner such as `sudo` may have options of its own, so every
    later word may begin the command that it runs."""
    program = step.words[0].rpartition("/")[2]
    found = [" ".join(step.words), " ".join((program, *step.words[1:]))]
    written = step.text.split()
    if any(word.rpartition("/")[2] in _RUNNERS for word in written[:2]):
        found += [" ".join(written[start:]) for start in range(1, min(len(written), MAX_OPTIONS))]
    return found


def _scripts_in(words: Sequence[str]) -> list[str]:
    if words[0] == "eval":
        return [" ".join(words[1:])]
    for place, word in enumerate(words[:-1]):
        is_shell = word.rpartition("/")[2] in _SHELLS
        if is_shell and _SHELL_OPTION.fullmatch(words[place + 1]):
            return list(words[place + 2 : place + 3])
    return []


@lru_cache(maxsize=256)
def _glob(pattern: str, crosses_folders: bool = False) -> Any:
    """A glob as a regular expression that matches in linear time. `*` stays within a folder unless
    `crosses_folders` is set. A pattern without a slash matches in any folder."""
    import re2

    free = "." if crosses_folders else "[^/]"
    parts = {"**/": "(?:.*/)?", "**": ".*", "*": f"{free}*", "?": free}
    if not crosses_folders and "/" not in pattern:
        pattern = f"**/{pattern}"
    words = re.split(r"(\*\*/|\*\*|\*|\?)", pattern)
    return re2.compile("(?s)" + "".join(parts.get(word, re2.escape(word)) for word in words))


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
                key = refusal_key(cue.session, rule)
                # Not if this guard has already refused a call in this session.
                if await self._ttl_store.compare_and_set(
                    EntryKind.RULES, key, None, b"refused", ttl_seconds=TTL_SECONDS
                ):
                    self._refused(cue, rule)
                    text = preview(rule.text, (), REASON_CHARS)
                    reason = _REASON.format(text=text, source=citation(rule))
                    return Refusal(rule=rule, reason=reason, key=key)
        return None

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
    """Check the scope of a guard. Raises UsageError if the scope names no tool, or names something
    other than a command or a tool of a server."""
    if scope.paths and not scope.tools:
        raise UsageError(
            "a guard cannot refuse by --path alone: agents ask upwell before they run a command or "
            "a server's tool, not before they read or write a file",
            hint=f"add {_EXAMPLES}, or leave out --guard",
        )
    for pattern in scope.tools or ("",):
        if not pattern.startswith("Bash(") and "__" not in pattern:
            raise UsageError("a guard needs a command or a tool of a server", hint=_EXAMPLES)


def refusal_key(session: str, rule: Memory) -> str:
    """The key under which a refusal is recorded. Its prefix keeps it apart from the session's other
    rule records, which a compaction removes."""
    return f"guard:{session}#{rule.id}"


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
