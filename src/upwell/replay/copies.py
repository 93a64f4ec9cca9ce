"""Recognises copies of sessions. Hosts and collections of transcripts store some sessions several
times, with different names and times. A replay must count each session only once.
"""

import hashlib
from collections.abc import Mapping

from msgspec import Struct, field

from upwell.episodes.events import Kind, SessionEvent

MIN_EVENTS = 5
"""Sessions with fewer events may be equal by chance (`Run the tests`, and they pass)."""
MIN_SHARE = 0.6
FIRST_PROMPTS = 3


class Fingerprint(Struct):
    """A session's content without its times: hashes of its first prompts, in order, and of all its
    events. `begins` is the time of the first event, in seconds since the epoch."""

    begins: float
    prompts: list[int] = field(default_factory=list[int])
    events: set[int] = field(default_factory=set[int])

    def add(self, event: SessionEvent) -> None:
        """Add an event. A compaction has no content and is ignored."""
        if event.kind is Kind.COMPACT:
            return
        digest = content_digest(event)
        self.events.add(digest)
        if event.kind is Kind.PROMPT and len(self.prompts) < FIRST_PROMPTS:
            self.prompts.append(digest)

    def copies(self, other: "Fingerprint") -> bool:
        """True if both sessions begin with the same prompts and the other one has more than
        `MIN_SHARE` of this one's events. False if this one has fewer than `MIN_EVENTS`.
        """
        if len(self.events) < MIN_EVENTS:
            return False
        begins_alike = all(
            own == theirs for own, theirs in zip(self.prompts, other.prompts, strict=False)
        )
        return begins_alike and len(self.events & other.events) > MIN_SHARE * len(self.events)


def copied_sessions(fingerprints: Mapping[str, Fingerprint]) -> set[str]:
    """The names of the sessions that copy an earlier session. If two begin at the same time, the
    later one in the mapping is the copy."""
    copies: set[str] = set()
    originals: dict[int, list[Fingerprint]] = {}
    for name, fingerprint in sorted(fingerprints.items(), key=lambda item: item[1].begins):
        if not fingerprint.prompts:
            continue
        alike = originals.setdefault(fingerprint.prompts[0], [])
        if any(fingerprint.copies(original) for original in alike):
            copies.add(name)
        else:
            alike.append(fingerprint)
    return copies


def content_digest(event: SessionEvent) -> int:
    """A hash of an event's content, independent of its time and session."""
    return _digest((event.kind, event.text, event.tool, event.args, event.out))


def event_digest(event: SessionEvent) -> int:
    """A hash of an event's content and time, independent of its file and session."""
    return _digest((event.t, event.kind, event.text, event.tool, event.args, event.out))


def _digest(content: tuple[object, ...]) -> int:
    encoded = repr(content).encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(encoded, digest_size=8).digest())
