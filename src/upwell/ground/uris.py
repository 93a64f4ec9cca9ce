"""The URIs of memories and topics, and the locators of past sessions."""

from pathlib import PurePosixPath
from urllib.parse import quote, unquote

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
