"""Commands and errors as an episode quotes them."""

import re

MAX_SHOWN_CHARS = 160
MAX_QUOTE_CHARS = 120
_RISKY = re.compile(
    r"--force\b|--no-verify|--hard\b|(?:^|\s)rm\s|--dangerously|(?:^|\s)sudo\s|"
    r"\b(?:task|p)?kill(?:all)?\b|-f\b"
)
_UNREPEATABLE = re.compile(
    r"/tmp/|/var/folders/|\$\(|`|/private/|[0-9a-f]{12,}|(?i:password|token|secret|api_?key|bearer)"
)
"""Parts of commands that are valid only in one session, or that must not be repeated (secrets)."""


def can_be_said(text: str) -> bool:
    """Return whether a command can be quoted: it is short, on one line, and has no details of this
    session."""
    return (
        len(text) <= MAX_SHOWN_CHARS
        and "\n" not in text
        and "`" not in text
        and not _UNREPEATABLE.search(text)
    )


def is_risky(text: str) -> bool:
    """Return whether a command deletes, kills or forces something."""
    return bool(_RISKY.search(text))


def quoted(message: str) -> str:
    """Return an error message in quotation marks, cut if it is long."""
    words = message.strip().rstrip(".:").replace('"', "'").replace("`", "'")
    if len(words) > MAX_QUOTE_CHARS:
        words = words[:MAX_QUOTE_CHARS].rpartition(" ")[0] + " …"
    return f'"{words}"'
