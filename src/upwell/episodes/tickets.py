"""Finds the tickets that prompts and paths name (`ABC-123`, `#045`, `task 45`), and their files.

Of the files that are opened after the prompt, a ticket's file is the first one whose path names the
ticket. The number in the name of a source file (`0045_users.sql`) says nothing about ticket 45, so
a number counts only in a document's path, or after a word for tickets (`test_issue_45.py`).
"""

import re
from collections.abc import Iterator, Sequence

from upwell.episodes.episode import Episode, EpisodeKind
from upwell.episodes.events import DOCUMENTS, SessionEvent, inside

MAX_PROMPT_CHARS = 600
"""A longer prompt contains its own context, so the tickets in it are ignored."""
MAX_TICKETS = 2
"""A text that names more tickets than this is not about any particular ticket."""
MAX_DISTANCE = 40
"""A file belongs to a ticket only if it is opened within this many calls after the prompt."""
_KEY = re.compile(r"\b[A-Z][A-Z0-9]+-[0-9]+\b")
_NUMBERED = re.compile(
    r"\b(?:task|issue|ticket|story|bug|spec|adr|rfc|epic)s?[ _-]?#?([0-9]+)\b"
    r"|(?:^|[\s(\"'`])#([0-9]+)\b",
    re.IGNORECASE,
)
_DIGITS = re.compile(r"[0-9]+")
_AFTER_WORD = re.compile(
    r"(?:task|issue|ticket|story|bug|spec|adr|rfc|epic)s?[ _/-]?#?([0-9]+)", re.IGNORECASE
)
_TECHNICAL = frozenset("UTF ISO SHA RFC GPT ES MD TLS AES RSA HTTP CVE PR STEP BASE EC IPV".split())
"""The prefixes of technical names that look like tickets, such as `UTF-8`."""
MIN_BARE = 10
"""A smaller number after a bare `#` is assumed to number a list item."""


def tickets_in(text: str) -> Sequence[str]:
    """Return the tickets that a text is about: `ABC-123`, or a number without leading zeros."""
    tickets = [
        match[0]
        for match in _KEY.finditer(text)
        if match[0].partition("-")[0] not in _TECHNICAL and len(match[0]) <= 16
    ]
    for match in _NUMBERED.finditer(text):
        digits = match[1] or match[2]
        bare = match[1] is None and not digits.startswith("0") and int(digits[:6]) < MIN_BARE
        if len(digits) <= 6 and not bare:
            tickets.append(str(int(digits)))
    unique = tuple(dict.fromkeys(tickets))
    return unique if len(unique) <= MAX_TICKETS else ()


def tickets_of(prompt: SessionEvent) -> Sequence[str]:
    """Return the tickets that a prompt is about."""
    return tickets_in(prompt.text) if len(prompt.text) <= MAX_PROMPT_CHARS else ()


def path_names(path: str, ticket: str) -> bool:
    """Return whether one of the last two parts of `path` names the ticket."""
    parts = "/".join(path.split("/")[-2:])
    if "-" in ticket:
        return ticket.lower() in parts.lower()
    numbers = _DIGITS if path.lower().endswith(DOCUMENTS) else _AFTER_WORD
    return any(digits.lstrip("0") == ticket for digits in numbers.findall(parts))


class TicketMiner:
    """Finds the file of each ticket in a session."""

    def __init__(self) -> None:
        self._waiting: dict[str, SessionEvent] = {}
        self._calls = 0

    def prompt(self, event: SessionEvent) -> None:
        """Process a prompt, which may name tickets."""
        tickets = tickets_of(event)
        if tickets:
            self._waiting = dict.fromkeys(tickets, event)
            self._calls = 0

    def feed(self, event: SessionEvent) -> Iterator[Episode]:
        """Process a call. Yields an episode for each ticket whose file the call opens."""
        if not self._waiting:
            return
        self._calls += 1
        if self._calls > MAX_DISTANCE:
            self._waiting = {}
        path = event.args.get("file_path")
        if event.tool not in ("Read", "Edit", "Write") or event.failed or not isinstance(path, str):
            return
        own = inside(path, event.cwd)
        if own.startswith(("/", "~", "..")):
            return
        for ticket, prompt in list(self._waiting.items()):
            if path_names(own, ticket):
                del self._waiting[ticket]
                yield _episode(ticket, own, prompt, event)


def _episode(ticket: str, path: str, prompt: SessionEvent, event: SessionEvent) -> Episode:
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
