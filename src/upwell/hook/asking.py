"""At the end of a turn, ask the agent to store what it learned (`capture.ask_agent`).

The agent is asked when, in this turn, a command failed and then worked, or the user corrected the
agent. No question is asked if a hook has already made the agent continue this turn, if the
session's last question was fewer than `MIN_TURNS` turns ago, if a memory or an agent's note has
been stored in this turn, or if the session is paused. Subagents are never asked.
"""

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Sequence

from msgspec import Struct, field

from upwell.episodes.signatures import steps_of
from upwell.ground.clock import SYSTEM_CLOCK, Clock
from upwell.hosts.base import Host
from upwell.hosts.events import COMMANDS, QUESTION, EventKind, HostEvent
from upwell.surface.moments import is_correction
from upwell.surface.render import harmless_line

MIN_TURNS = 5
MAX_SESSIONS = 200
MAX_FAILED = 20
MAX_SHOWN_CHARS = 60
_READERS = frozenset(
    """
    cat cd diff echo egrep false fgrep file find grep head jq kill less ls lsof more pgrep pkill ps
    pwd rg sed sleep stat tail test true wc which [ [[
    """.split()
)
"""Programs whose exit status often reports a result rather than a failure. For example, `grep`
exits with 1 if it finds nothing.
"""
_VERBS_OF_RUNNERS = frozenset({"run", "exec", "x"})
_QUESTION = (
    QUESTION + "{lesson}. If a later session would need to know what was learned, "
    "keep it now with one call of {tool}: one sentence that names the file and the reason"
    "{arguments}. If nothing is worth keeping, or the project's documentation has it already, "
    "finish without mentioning this."
)
_ARGUMENTS = " (`content`, `paths`, `kind`)"
_COMMAND = '`upwell remember --path FILE "SENTENCE"` in a shell'
ToolName = Callable[[Host, HostEvent], Awaitable[str]]
"""Returns the agent's name for the `add_memory` tool, or "" if the agent does not have the tool."""
Commands = Callable[[HostEvent, float], Awaitable[Sequence[tuple[str, bool]]]]
"""Reads the transcript of the event's session. Returns the commands since a given time, and whether
each of them failed."""
HasNoted = Callable[[HostEvent, float], Awaitable[bool]]
"""Returns whether a memory or an agent's note that is visible in the event's project has been
stored since a given time."""


class _Turn(Struct):
    """The current turn of a session. `number` counts the prompts of the session, and `asked_at` is
    the number of the turn in which a question was last due. `failed` are the commands that failed
    in this turn, and `repaired` is one of them that worked later. `has_run` is True if a command
    ran.
    """

    began_at: float
    number: int = 0
    asked_at: int | None = None
    is_corrected: bool = False
    failed: dict[str, None] = field(default_factory=dict)
    repaired: str = ""
    has_run: bool = False

    def begin(self, at: float, prompt: str) -> None:
        self.end(at)
        self.number += 1
        self.is_corrected = self.number > 1 and is_correction(prompt)

    def end(self, at: float) -> None:
        """Everything from now on belongs to the next turn."""
        self.began_at = at
        self.is_corrected = False
        self.failed.clear()
        self.repaired = ""
        self.has_run = False

    def follow(self, event: HostEvent) -> None:
        command = event.args.get("command")
        if event.tool == COMMANDS and isinstance(command, str):
            self.has_run = True
            if event.answer is not None and event.answer.failed is not None:
                self.ran(command, failed=event.answer.failed)

    def ran(self, command: str, *, failed: bool) -> None:
        for name in _names_in(command):
            if failed and len(self.failed) < MAX_FAILED:
                self.failed[name] = None
            elif not failed and name in self.failed:
                self.repaired = name

    @property
    def lesson(self) -> str:
        """What may have taught the agent something in this turn, or "" for nothing."""
        parts = ["the user corrected you"] if self.is_corrected else []
        parts += [f"`{self.repaired}` failed and then worked"] if self.repaired else []
        return "in this turn " + " and ".join(parts) if parts else ""


class AgentAsking:
    """Follows the turns of every session, and decides at the end of each turn whether to ask."""

    def __init__(
        self,
        tool_name: ToolName,
        has_noted: HasNoted,
        is_paused: Callable[[str], bool],
        commands: Commands,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._tool_name = tool_name
        self._has_noted = has_noted
        self._is_paused = is_paused
        self._commands = commands
        self._clock = clock
        self._turns: OrderedDict[str, _Turn] = OrderedDict()

    async def __call__(self, host: Host, event: HostEvent) -> str:
        turn = self._turns.setdefault(event.session, _Turn(self._clock.now()))
        self._turns.move_to_end(event.session)
        while len(self._turns) > MAX_SESSIONS:
            self._turns.popitem(last=False)
        if event.kind is EventKind.PROMPT:
            turn.begin(self._clock.now(), event.text)
        elif event.kind is EventKind.TOOL:
            turn.follow(event)
        elif event.kind is EventKind.STOP:
            return await self._question(host, event, turn)
        return ""

    async def _question(self, host: Host, event: HostEvent, turn: _Turn) -> str:
        is_due = turn.asked_at is None or turn.number - turn.asked_at >= MIN_TURNS
        may_be_asked = is_due and not event.agent and not event.is_continued
        # Codex does not tell its hooks whether a command failed, but the transcript does.
        if may_be_asked and turn.has_run and not turn.failed and event.transcript:
            for command, failed in await self._commands(event, turn.began_at):
                turn.ran(command, failed=failed)
        lesson, began_at = turn.lesson, turn.began_at
        turn.end(self._clock.now())
        if not may_be_asked or not lesson or self._is_paused(event.session):
            return ""
        # The turn was ended before the next `await`, so that two simultaneous stops get only one
        # question.
        turn.asked_at = turn.number
        if await self._has_noted(event, began_at):
            return ""
        tool = await self._tool_name(host, event)
        return _QUESTION.format(
            lesson=lesson,
            tool=f"`{tool}`" if tool else _COMMAND,
            arguments=_ARGUMENTS if tool else "",
        )


def is_question(prompt: str) -> bool:
    """Return whether a prompt is our own question, which the host submits in the user's name."""
    return prompt.lstrip().startswith(QUESTION)


def _names_in(command: str) -> Iterator[str]:
    """Yield the programs that a command runs, each with its subcommand. Programs in `_READERS` and
    programs that read from a pipe are left out."""
    for step in steps_of(command):
        if not step.piped and step.program not in _READERS:
            is_runner = bool(step.verbs) and step.verbs[0] in _VERBS_OF_RUNNERS
            verbs = step.verbs if is_runner else step.verbs[:1]
            yield harmless_line(" ".join((step.program, *verbs)))[:MAX_SHOWN_CHARS]
