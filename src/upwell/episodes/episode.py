"""An episode: a conclusion of a past session, with the keys of the situations that it is about."""

from dataclasses import dataclass
from enum import StrEnum


class EpisodeKind(StrEnum):
    """The form of what was learned."""

    COMMAND = "command"
    """A command failed, and another one for the same purpose succeeded."""
    PLACE = "place"
    """A session worked with a file, or a search showed where a name is defined."""
    TICKET = "ticket"
    """A prompt named a ticket, and the agent opened the file that bears its name."""
    RULE = "rule"
    """The user laid down a rule for the work. The episode's `paths` are globs of the files to which
    the rule is restricted.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """A conclusion of a session, in one or two complete sentences.

    `text` is the conclusion with its reason. `triggers` are the keys of the events at which it
    surfaces (`triggers_of`). `paths` and `identifiers` must still exist then; paths are relative to
    `cwd`, the folder of the session. `evidence` lists the indexes (`Event.i`) of the events in
    `session` that led to the episode. `tool` is the tool of the last of these events, and `at` is
    the time of that event in seconds since the epoch.
    """

    kind: EpisodeKind
    text: str
    triggers: tuple[str, ...]
    paths: tuple[str, ...] = ()
    identifiers: tuple[str, ...] = ()
    cwd: str | None = None
    tool: str = ""
    session: str = ""
    at: float = 0.0
    evidence: tuple[int, ...] = ()
