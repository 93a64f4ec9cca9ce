"""What a server may be called, under which address a memory is read, and where an option says what
it may be called."""

import fnmatch
from functools import lru_cache
from urllib.parse import quote, unquote

from upwell.ground.errors import UsageError

MAX_SERVER_NAME_CHARS = 32
OWN_SERVER = "upwell"
MEMORY_URI = "upwell://memory/"
LTM_ID = "ltm:"
"""What the ids of memories begin with that another memory server keeps."""
TOPICS_URI = "upwell://topics"
CHOICES = "choices"
"""In the metadata of an option: the names it may have, where its type does not say so."""
_ALLOWED = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")


@lru_cache(maxsize=4_096)
def first_match(name: str, patterns: tuple[str, ...]) -> str:
    """The first of `patterns` (`fs__*`) that a name meets, case and all; "" for none. The names are
    tools, the same few again and again."""
    return next((one for one in patterns if fnmatch.fnmatchcase(name, one)), "")


def check_server_name(name: str) -> None:
    """Names become prefixes of tool names, so they are narrow.

    Raises:
        UsageError: empty, too long, ours, or with characters other than letters, digits, _ and -.
    """
    check_name(name, "server name")


def check_name(name: str, kind: str) -> None:
    """As `check_server_name`, for other things that are called by a short name."""
    if not name or len(name) > MAX_SERVER_NAME_CHARS:
        fault = f"must have 1 to {MAX_SERVER_NAME_CHARS} characters"
    elif not set(name) <= _ALLOWED or "__" in name or name.strip("_-") != name:
        fault = "may only have letters, digits, and single _ or - between them"
    elif name.lower() == OWN_SERVER:
        fault = "is taken by upwell's own tools"
    else:
        return
    raise UsageError(f"{kind} {name[:60]!r} {fault}", hint="choose another name")


def memory_uri(memory_id: str) -> str:
    """The address of a memory, whatever its id is."""
    return MEMORY_URI + quote(memory_id.encode("utf-8", "replace"), safe=":@.~-_")


def memory_id(name: str) -> str:
    """The id in an address of `memory_uri`, in a citation `stm:id`, or an id as it is."""
    if name.startswith(MEMORY_URI):
        name = unquote(name.removeprefix(MEMORY_URI))
    return name.removeprefix("stm:")


def topic_uri(topic: str) -> str:
    """The address of a topic."""
    return f"{TOPICS_URI}/{quote(topic.encode('utf-8', 'replace'), safe='')}"
