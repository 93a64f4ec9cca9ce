"""Derives episodes from the events of a session."""

from collections.abc import Sequence

from upwell.episodes.commands import CommandMiner
from upwell.episodes.corrections import rules_of
from upwell.episodes.episode import Episode
from upwell.episodes.events import Event, Kind
from upwell.episodes.places import PlaceMiner
from upwell.episodes.tickets import TicketMiner


class EpisodeMiner:
    """Collects the episodes of one session. Call `feed` with each event in order, then `end`."""

    def __init__(self) -> None:
        self._commands = CommandMiner()
        self._places = PlaceMiner()
        self._tickets = TicketMiner()

    def feed(self, event: Event) -> Sequence[Episode]:
        """Process the next event. Returns the episodes that it completes."""
        if event.kind is Kind.TOOL:
            self._places.feed(event)
            return (*self._commands.feed(event), *self._tickets.feed(event))
        if event.kind is Kind.PROMPT:
            self._tickets.prompt(event)
            return tuple(rules_of(event))
        return ()

    def end(self) -> Sequence[Episode]:
        """End the session. Returns the episodes that can only be known at the end."""
        return tuple(self._places.end())
