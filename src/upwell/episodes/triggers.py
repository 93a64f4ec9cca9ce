"""Triggers: the exact keys at which an episode speaks.

A trigger is a short string `kind:value`. The same event gives the same triggers in every session,
so that a lookup by equality finds the episodes of a moment.
"""

from upwell.episodes.events import Event, Kind
from upwell.episodes.signatures import missing_path

Trigger = str
"""A `kind:value`, at most `MAX_TRIGGER_CHARS` long."""
MAX_TRIGGER_CHARS = 120


def triggers_of(event: Event) -> tuple[Trigger, ...]:
    """The keys at which something learned may speak; most events have none."""
    if event.kind is Kind.TOOL:
        path = missing_path(event)
        return (missing_file(path),) if path else ()
    return ()


def missing_file(path: str) -> Trigger:
    """The key of a file that is not where somebody looked for it: its name."""
    return f"missing:{path.rpartition('/')[2]}"[:MAX_TRIGGER_CHARS]
