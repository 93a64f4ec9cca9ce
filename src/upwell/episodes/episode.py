"""An episode: a conclusion from a past session, and when it surfaces."""

from enum import StrEnum

from msgspec import Struct


class EpisodeKind(StrEnum):
    """The form of what was learned."""

    COMMAND = "command"
    """A command failed, and another command for the same purpose succeeded."""
    PLACE = "place"
    """A session worked with a file, or a search showed where a name is defined."""
    TICKET = "ticket"
    """A prompt named a ticket, and the agent opened a file with the ticket in its path."""
    RULE = "rule"
    """The user stated a rule for the work. If the rule is restricted to some files, `Episode.paths`
    contains their globs.
    """


class Episode(Struct, frozen=True, kw_only=True):
    """A conclusion from a session.

    `text` is the conclusion, in one or two complete sentences. Unless it is a rule, which has no
    triggers, it surfaces on events that have one of the `triggers` (see `triggers_of()`), provided
    that `paths` and `identifiers` still exist. The paths are relative to `cwd`, the folder of the
    session.
    `evidence` lists the indexes (`Event.i`) of the events in `session` that led to the episode.
    `at` is the time of the last of these events, in seconds since the epoch. `tool` is the
    tool of that event, or "" for tickets and rules.
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
