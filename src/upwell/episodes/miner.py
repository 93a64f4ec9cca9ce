"""Derives episodes from the events of a session."""

from collections.abc import Sequence

from upwell.episodes.commands import CommandMiner
from upwell.episodes.corrections import rules_of
from upwell.episodes.episode import Episode
from upwell.episodes.events import Kind, SessionEvent
from upwell.episodes.places import PlaceMiner
from upwell.episodes.trials import Trial, TrialMiner
from upwell.episodes.triggers import TicketMiner


class EpisodeMiner:
    """Collects the episodes of one session. Call `feed` with each event in order, then `end`.
    `trials` has the commands that show how to run something, for `ways.py`, which compares those of
    all sessions."""

    def __init__(self) -> None:
        self.trials: list[Trial] = []
        self._trials = TrialMiner()
        self._commands = CommandMiner()
        self._corrections: list[Episode] = []
        self._places = PlaceMiner()
        self._tickets = TicketMiner()

    def feed(self, event: SessionEvent) -> Sequence[Episode]:
        """Process the next event. Returns the episodes that it completes."""
        if event.kind is Kind.TOOL:
            self._places.feed(event)
            self.trials += self._trials.feed(event)
            self._corrections += self._commands.feed(event)
            return tuple(self._tickets.feed(event))
        if event.kind is Kind.PROMPT:
            self._tickets.prompt(event)
            return tuple(rules_of(event)) if event.is_users else ()
        return ()

    def end(self) -> Sequence[Episode]:
        """End the session. Returns the episodes that can only be known at the end."""
        lasting = [each for each in self._corrections if not self._is_refuted(each)]
        return (*lasting, *self._places.end())

    def _is_refuted(self, correction: Episode) -> bool:
        """True if the command that worked failed as a call later, so that it was half the
        answer."""
        last = correction.evidence[-1]
        ways = {(trial.job, trial.launcher) for trial in self.trials if trial.i == last}
        return any(
            trial.fault and trial.i > last and (trial.job, trial.launcher) in ways
            for trial in self.trials
        )
