"""Names that users choose for servers and tokens, and patterns for tool names."""

import fnmatch
from functools import lru_cache

from upwell.ground.errors import UsageError

MAX_SERVER_NAME_CHARS = 32
OWN_SERVER = "upwell"
_ALLOWED = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")


@lru_cache(maxsize=4_096)
def first_match(name: str, patterns: tuple[str, ...]) -> str:
    """Return the first of the patterns (such as `fs__*`) that matches `name`, or "". The match is
    case-sensitive. Results are cached, because the same few tool names recur.
    """
    return next((pattern for pattern in patterns if fnmatch.fnmatchcase(name, pattern)), "")


def check_server_name(name: str) -> None:
    """Check the name of a server. It becomes the prefix of tool names.

    Raises:
        UsageError: the name is empty, too long or reserved, contains __ or characters other than
            letters, digits, _ and -, or begins or ends with _ or -.
    """
    check_name(name, "server name")


def check_name(name: str, kind: str) -> None:
    """Check a name by the rules of `check_server_name()`. `kind` is a noun for the error, such as
    "server name"."""
    if not name or len(name) > MAX_SERVER_NAME_CHARS:
        fault = f"must have 1 to {MAX_SERVER_NAME_CHARS} characters"
    elif not set(name) <= _ALLOWED or "__" in name or name.strip("_-") != name:
        fault = "may only have letters, digits, - and single _, without _ or - at either end"
    elif name.lower() == OWN_SERVER:
        fault = "is reserved for upwell's own tools"
    else:
        return
    raise UsageError(f"{kind} {name[:60]!r} {fault}", hint="choose another name")
