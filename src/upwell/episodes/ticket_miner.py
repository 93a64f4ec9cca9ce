"""A prompt named a ticket, and the agent opened the file that bears its name."""

from collections.abc import Iterator

from upwell.episodes.episode import Episode, EpisodeKind
from upwell.episodes.events import Event
from upwell.episodes.tickets import path_names
from upwell.episodes.triggers import inside, tickets_of

MAX_DISTANCE = 40
"""A file belongs to a ticket only within so many calls after the prompt that names it."""


class TicketMiner:
    """Collects the files of tickets: the first one that is opened after each prompt."""

    def __init__(self) -> None:
        self._waiting: dict[str, Event] = {}
        self._calls = 0

    def prompt(self, event: Event) -> None:
        """Take a prompt."""
        tickets = tickets_of(event)
        if tickets:
            self._waiting = dict.fromkeys(tickets, event)
            self._calls = 0

    def feed(self, event: Event) -> Iterator[Episode]:
        """Take a call."""
        if not self._waiting:
            return
        self._calls += 1
        if self._calls > MAX_DISTANCE:
            self._waiting = {}
        path = event.args.get("file_path")
        if event.tool not in ("Read", "Edit", "Write") or event.failed or not isinstance(path, str):
            return
        own = inside(path, event.cwd)
        for ticket, prompt in list(self._waiting.items()):
            if path_names(own, ticket) and not own.startswith(("/", "~", "..")):
                del self._waiting[ticket]
                yield _episode(ticket, own, prompt, event)


def _episode(ticket: str, path: str, prompt: Event, event: Event) -> Episode:
    return Episode(
        kind=EpisodeKind.TICKET,
        text=f"Earlier work on ticket {ticket} began with `{path}`.",
        triggers=(f"ticket:{ticket}",),
        paths=(path,),
        cwd=event.cwd,
        session=event.session,
        at=event.t,
        evidence=(prompt.i, event.i),
    )
