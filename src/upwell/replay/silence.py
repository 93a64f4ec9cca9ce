"""Explains a replay in which nothing surfaced: what it read, why nothing qualified, and what would
change that."""

from collections import Counter
from collections.abc import Iterator, Mapping

from msgspec import Struct, field

from upwell.ground.text.format import counted
from upwell.ground.types.memory import Memory
from upwell.ground.types.surfacing import SkipReason
from upwell.replay.run import NO_HOOK, SAID, Summary, kind_of
from upwell.surface.explain import REASONS

_LESSONS = ("episode", "learned")
_NAMES: Mapping[str, tuple[str, str]] = {
    "note": ("note", "notes"),
    "rule": ("standing rule", "standing rules"),
    "commit": ("commit", "commits"),
    "doc": ("passage of documents", "passages of documents"),
    "lesson": ("lesson of an earlier session", "lessons of earlier sessions"),
}
REMEDY = (
    "upwell speaks when an error, a file or a question returns that a memory explains: `upwell "
    "remember` writes one, and `upwell setup` lets upwell learn from each session."
)


class Material(Struct):
    """The memories that were available to a replay, counted by kind. `later` counts the user's own
    memories that are newer than every session."""

    kinds: Counter[str] = field(default_factory=Counter[str])
    later: int = 0

    def add(self, memory: Memory) -> None:
        """Count a memory by its kind."""
        kind = kind_of(memory)
        self.kinds["lesson" if kind in _LESSONS else kind] += 1

    @property
    def has_history(self) -> bool:
        """True if there were commits or documents."""
        return bool(self.kinds["commit"] or self.kinds["doc"])


def silence(summary: Summary, material: Material | None) -> Iterator[str]:
    """Lines that explain to a person why no memory surfaced. `material` is None if the replay was
    interrupted."""
    counts = [(summary.doors["prompt"], "prompt"), (summary.doors["tool"], "call")]
    looked = _listed([counted(number, name) for number, name in counts if number])
    sessions = counted(summary.sessions, "session")
    place = f"{looked} in {sessions}" if looked else sessions
    if material is None:
        yield f"Nothing would have been said so far: the replay read {place}."
        return
    yield f"Nothing would have been said: the replay read {place}, and {_why(material)}."
    if material.kinds.total() and (reason := _commonest(summary.outcomes)):
        yield f"The most common reason: {reason}."
    yield REMEDY


def _why(material: Material) -> str:
    found = _listed(
        [
            counted(material.kinds[kind], *names)
            for kind, names in _NAMES.items()
            if material.kinds[kind]
        ]
    )
    younger = ""
    if material.later:
        owned = counted(material.later, "memory of yours is", "memories of yours are")
        younger = f"; {owned} younger than that"
    if not found:
        return f"there was no memory at the time{younger}"
    return f"none of the memories at the time ({found}) qualified{younger}"


def _commonest(outcomes: Mapping[str, int]) -> str:
    """The most common reason for silence. `ROUTINE` counts only if there is no other `SkipReason`,
    and `NO_HOOK` only if there is none at all."""
    reasons = sorted(
        (SkipReason(code) for code in outcomes if code in SkipReason),
        key=lambda reason: (reason is SkipReason.ROUTINE, -outcomes[reason]),
    )
    if reasons:
        return in_words(reasons[0])
    return in_words(NO_HOOK) if set(outcomes) - {SAID} else ""


def in_words(code: str) -> str:
    """A reason for silence in plain words."""
    return REASONS[SkipReason(code)] if code in SkipReason else "hooks do not report these events"


def _listed(parts: list[str]) -> str:
    *first, last = parts or [""]
    return f"{', '.join(first)} and {last}" if first else last
