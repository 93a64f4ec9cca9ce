"""Names of servers and tokens, patterns for tool names, and the URIs of memories, topics and past
sessions.
"""

import fnmatch
import re
from functools import lru_cache
from pathlib import PurePosixPath
from urllib.parse import quote, unquote

from upwell.ground.errors import UsageError

_NAME_CHARS = 80
MEMORY_URI = "upwell://memory/"
LTM_ID = "ltm:"
"""The prefix of the ids of memories on an external memory server."""
QMD_SCHEME = "qmd://"
"""The prefix of the addresses of documents indexed by qmd."""
STM_ID = "stm:"
"""The prefix of citations of short notes."""
TOPICS_URI = "upwell://topics"
SESSION_LOCATOR = "session:"
"""The prefix of locators of turns in past sessions: `session:NAME#TURN`."""


def memory_uri(memory_id: str) -> str:
    """Return the URI of a memory. Any id is allowed."""
    return MEMORY_URI + quote(memory_id.encode("utf-8", "replace"), safe=":@.~-_")


def named_uri(memory_id: str, source: str) -> str:
    """Return the URI of a memory on another server. The fragment is the name of its source file."""
    name = PurePosixPath(source).name[:_NAME_CHARS]
    fragment = quote(name.encode("utf-8", "replace"), safe=":@.~-_")
    return f"{memory_uri(memory_id)}#{fragment}" if fragment else memory_uri(memory_id)


def memory_id(name: str) -> str:
    """Return the memory id in a URI or a citation (`stm:ID`). A plain id is returned as is."""
    if name.startswith(MEMORY_URI):
        name = unquote(name.removeprefix(MEMORY_URI).partition("#")[0])
    return name.removeprefix(STM_ID)


def topic_uri(topic: str) -> str:
    return f"{TOPICS_URI}/{quote(topic.encode('utf-8', 'replace'), safe='')}"


MAX_SERVER_NAME_CHARS = 32
OWN_SERVER = "upwell"
_SIGNS = re.compile(r"[^\w*?\[\]!]")
_ALLOWED = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")


@lru_cache(maxsize=4_096)
def first_match(name: str, patterns: tuple[str, ...]) -> str:
    """Return the first of the patterns (such as `fs__*`) that matches `name`, or "". The match is
    case-sensitive. Results are cached, because the same few tool names recur.
    """
    return next((pattern for pattern in patterns if fnmatch.fnmatchcase(name, pattern)), "")


@lru_cache(maxsize=4_096)
def names_tool(pattern: str, tool: str, joined: str = "") -> bool:
    """Return whether a pattern such as `fs__*` names a tool (`fs__read`).

    `joined` is the tool's name at a host that does not tell where the server's name ends
    (`my_fs_read`); `tool` then only guesses. The names are compared as the host joins them, because
    both parts may contain the sign between them. If `joined` equals `tool`, the host leaves out the
    server, and only the tool's own name is compared.
    """
    server, separator, own = pattern.partition("__")
    if not joined or not separator:
        # Hosts replace signs that a model may not use in a name.
        return bool(first_match(tool, (pattern, _SIGNS.sub("_", pattern))))
    if joined != tool:
        return fnmatch.fnmatchcase(_joined(joined), _joined(f"{server}_{own}"))
    is_named = any(character.isalnum() for character in own)
    return is_named and fnmatch.fnmatchcase(_joined(joined), _joined(own))


def _joined(name: str) -> str:
    return _SIGNS.sub("_", name).lower()


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
