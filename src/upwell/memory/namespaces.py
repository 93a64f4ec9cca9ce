"""Namespaces: the kinds of memory of seed 004's origin, their aliases, and free names."""

import re

from upwell.ground.errors import UsageError
from upwell.ground.types import DEFAULT_NAMESPACE

KNOWN = (
    "decisions",
    "patterns",
    "learnings",
    "context",
    "tech-debt",
    "blockers",
    "progress",
    "apis",
    "config",
    "security",
    "performance",
    "testing",
    "help",
    "prompts",
)
"""The fourteen of the origin. Any other name is as good; these have weights (ADR-002)."""

ALIASES = {
    "decision": "decisions",
    "pattern": "patterns",
    "learning": "learnings",
    "techdebt": "tech-debt",
    "tech_debt": "tech-debt",
    "blocker": "blockers",
    "api": "apis",
    "configuration": "config",
    "system": "help",
    "prompt": "prompts",
    "test": "testing",
    "tests": "testing",
}
MAX_CHARS = 64
_FREE = re.compile(r"[\w][\w./:-]*")


def namespace(name: str) -> str:
    """The one name of a namespace: trimmed, lower case, aliases resolved; empty is `context`.

    Raises:
        UsageError: it holds spaces or signs, or is too long.
    """
    bare = name.strip().lower()
    if not bare:
        return DEFAULT_NAMESPACE
    if len(bare) > MAX_CHARS or not _FREE.fullmatch(bare):
        raise UsageError(
            f"{name[:MAX_CHARS]!r} cannot be a namespace",
            hint=f"letters, digits, . / : _ and -, at most {MAX_CHARS}",
        )
    return ALIASES.get(bare, bare)
