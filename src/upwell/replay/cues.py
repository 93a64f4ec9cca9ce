"""The cue that a hook would have sent for an event in a past session, and the event's moment."""

from upwell.episodes.events import Event, Kind
from upwell.ground.types.cue import Cue, Door, ToolAnswer
from upwell.ground.types.surfacing import Moment
from upwell.hosts import claude, events
from upwell.surface.moments import moment_of, triggers_in

SESSION_START, COMPACTION = "session_start", "compaction"
"""The moments at which upwell shows the standing rules without searching."""


def cue_of(event: Event, cwd: str | None) -> Cue | None:
    """The cue for an event in the folder `cwd`; None if hooks do not report the event."""
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
    """upwell's name for the tool of an event; "" if hooks do not report the tool. Events from all
    hosts use Claude Code's names for tools."""
    return events.surfacing_tool(name, claude.EVENTS.readers, claude.EVENTS.server_marks)


def moment_named(event: Event, cue: Cue | None, prompts_before: int) -> str:
    """The name of an event's moment. `prompts_before` is the number of earlier prompts in the
    session."""
    if event.kind is Kind.START:
        return SESSION_START
    if event.kind is Kind.COMPACT:
        return COMPACTION
    if cue is None:
        return str(Moment.ROUTINE)
    return str(moment_of(cue, prompts_before, triggers_in(cue)))
