"""A session's transcript: the texts that the agent wrote, and whether a compaction has removed the
memories that upwell delivered.
"""

from collections.abc import Sequence

from upwell.capture.entries import Call, Message, entries_of, tail_of

WRITTEN_BYTES = 500_000
HISTORY_BYTES = 20_000_000
_REWRITTEN = b'\n{"$set":{"messages":'
"""The mark of a compaction by Gemini CLI: its transcript then repeats the whole history in one
line, and continues from there. Source: `chatCompressionService` and recorded chats of Gemini CLI
0.61.0.
"""


def written_in(path: str, since: float) -> list[tuple[float, str]]:
    """The agent's messages and the arguments of its calls since the time `since`, each with its
    time. The arguments include the files that the agent wrote, which no hook reports."""
    texts: list[tuple[float, str]] = []
    for entry in entries_of(path, WRITTEN_BYTES):
        if entry.at < since:
            continue
        if isinstance(entry, Message) and entry.role == "assistant":
            texts.append((entry.at, entry.text))
        elif isinstance(entry, Call):
            values = [value for value in entry.args.values() if isinstance(value, str)]
            texts.append((entry.at, "\n".join(values)))
    return texts


def has_lost_marks(path: str, marks: Sequence[str]) -> bool:
    """True if a compaction by Gemini CLI has removed one of the texts `marks` from the history.
    False if the file does not belong to the user.
    """
    history = tail_of(path, HISTORY_BYTES)
    rewritten = history.rfind(_REWRITTEN)
    if rewritten < 0:
        return False
    encoded = [mark.encode() for mark in marks]
    return any(
        history.find(mark, 0, rewritten) >= 0 > history.find(mark, rewritten) for mark in encoded
    )
