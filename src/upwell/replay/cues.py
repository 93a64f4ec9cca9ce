"""The cue that a hook would have sent for an event of a past session, and the event's moment."""

from upwell.episodes.events import Event, Kind
from upwell.ground.types.cue import Cue, Door, ToolAnswer
from upwell.hosts import claude, events
from upwell.surface.moments import Moment, moment_of, triggers_in

SESSION_START, COMPACTION = "session_start", "compaction"
"""The moments at which upwell gives the standing rules without a search."""


def cue_of(event: Event, cwd: str | None) -> Cue | None:
    """The cue of an event in the folder `cwd`; None if no hook reports the event to upwell."""
    if event.kind in (Kind.START, Kind.COMPACT):
        reason = "compact" if event.kind is Kind.COMPACT else event.text or events.STARTED
        return Cue(door=Door.SESSION, text=reason, session=event.session, cwd=cwd, at=event.t)
    if event.kind is Kind.PROMPT:
        return Cue(door=Door.PROMPT, text=event.text, session=event.session, cwd=cwd, at=event.t)
    tool = surfacing_tool(event.tool) if event.kind is Kind.TOOL else ""
    if not tool:
        return None
    return Cue(
        door=Door.TOOL,
        tool=tool,
        args=event.args,
        session=event.session,
        cwd=cwd,
        reply_chars=len(event.out),
        answer=ToolAnswer(text=event.out, failed=event.failed),
        at=event.t,
    )


def surfacing_tool(name: str) -> str:
    """The name under which surfacing knows an agent's tool; "" if hooks do not report the tool.
    Neutral events name tools as Claude Code does."""
    return events.surfacing_tool(name, claude.EVENTS.readers, claude.EVENTS.server_marks)


def moment_named(event: Event, cue: Cue | None, prompts_before: int) -> str:
    """The name of an event's moment. `prompts_before` is the number of prompts that the session's
    context already holds."""
    if event.kind is Kind.START:
        return SESSION_START
    if event.kind is Kind.COMPACT:
        return COMPACTION
    if cue is None:
        return str(Moment.ROUTINE)
    return str(moment_of(cue, prompts_before, triggers_in(cue)))
