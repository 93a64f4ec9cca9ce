"""A history that was written anew: what the agent had been told may not be in it any more.

Gemini CLI says before every request that it may compress, and of none that it did. When it has, its
transcript holds the whole history anew in one line, and goes on from there.

Source: `chatCompressionService` and the recorded chats of 0.61.0.
"""

from collections.abc import Sequence

from upwell.capture.entries import tail_of

MAX_BYTES = 20_000_000
_ANEW = b'\n{"$set":{"messages":'


def has_forgotten(path: str, marks: Sequence[str]) -> bool:
    """Does one of `marks` stand in the transcript, but not since its history was written anew?
    No where the file is not the user's own."""
    kept = tail_of(path, MAX_BYTES)
    anew = kept.rfind(_ANEW)
    if anew < 0:
        return False
    return any(kept.find(one, 0, anew) >= 0 > kept.find(one, anew) for one in _bytes_of(marks))


def _bytes_of(marks: Sequence[str]) -> list[bytes]:
    return [mark.encode() for mark in marks]
