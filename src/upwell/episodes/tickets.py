"""Tickets that prompts and paths name: `ABC-123`, `#045`, `task 45`."""

import re
from collections.abc import Sequence

MAX_TICKETS = 2
"""A prompt that names more is a list."""
_KEY = re.compile(r"\b[A-Z][A-Z0-9]+-[0-9]+\b")
_NUMBERED = re.compile(
    r"\b(?:task|issue|ticket|story|bug|spec|adr|rfc|epic)s?[ _-]?#?([0-9]+)\b"
    r"|(?:^|[\s(\"'`])#([0-9]+)\b",
    re.IGNORECASE,
)
_DIGITS = re.compile(r"[0-9]+")
_TECHNICAL = frozenset("UTF ISO SHA RFC GPT ES MD TLS AES RSA HTTP CVE PR STEP BASE EC IPV".split())
"""Prefixes of names that look like tickets."""
MIN_BARE = 10
"""A smaller number behind `#` counts the items of a list."""


def tickets_in(text: str) -> Sequence[str]:
    """The tickets that a text is about: `ABC-123`, or a number without leading zeros."""
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


def path_names(path: str, ticket: str) -> bool:
    """Does one of the last two parts of a path name the ticket?"""
    parts = "/".join(path.split("/")[-2:])
    if "-" in ticket:
        return ticket.lower() in parts.lower()
    return any(digits.lstrip("0") == ticket for digits in _DIGITS.findall(parts))
