"""The URIs of memories and topics, and the locators of past sessions."""

from urllib.parse import quote, unquote

MEMORY_URI = "upwell://memory/"
LTM_ID = "ltm:"
"""The prefix of the ids of memories in an external memory server."""
STM_ID = "stm:"
"""The prefix of citations of short notes."""
TOPICS_URI = "upwell://topics"
SESSION_LOCATOR = "session:"
"""The prefix of the locator of a turn in a past session: `session:NAME#TURN`."""


def memory_uri(memory_id: str) -> str:
    """Return the URI of a memory. Any id is allowed."""
    return MEMORY_URI + quote(memory_id.encode("utf-8", "replace"), safe=":@.~-_")


def memory_id(name: str) -> str:
    """Return the memory id in a URI or a citation `stm:id`. A plain id is returned as it is."""
    if name.startswith(MEMORY_URI):
        name = unquote(name.removeprefix(MEMORY_URI))
    return name.removeprefix(STM_ID)


def topic_uri(topic: str) -> str:
    """Return the URI of a topic."""
    return f"{TOPICS_URI}/{quote(topic.encode('utf-8', 'replace'), safe='')}"
