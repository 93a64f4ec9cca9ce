"""Moments: whether memories could help the agent now and, if so, which kinds. In real sessions, a
useful memory exists for one event in twenty. It answers the user's words, or it supplies an exact
fact after a step that went wrong. So each cue is assigned a moment, and each moment admits only the
kinds of memory that help in it.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum

from upwell.ground.text.anchors import relative_to
from upwell.ground.types.memory import LESSON, STATE, Hit, Memory
from upwell.ground.types.surfacing import Moment
from upwell.learn.learned import CASE_SIGN
from upwell.surface.event import Event, asks_in_words, found_nothing, searches
from upwell.surface.wording import is_correction, is_question

MAX_QUESTION_CHARS = 1_500
"""A longer prompt is a paste or a plan, which brings its own context."""


class MemoryKind(StrEnum):
    """The origin of a memory, which decides where it helps."""

    NOTE = "note"
    """Written on purpose, by the user or by an agent."""
    COMMIT = "commit"
    DOCUMENT = "document"
    FOREIGN = "foreign"
    """From another memory server."""
    EPISODE = "episode"
    """The conclusion of a session, for the situation that its triggers describe."""
    LESSON = "lesson"
    """What a session taught, written down at its end."""
    STATE = "state"
    """How a session left its work."""


NAMED = "named"
"""The signal of a document or commit that contains a host or file which a failure names."""
_WRITTEN: Mapping[str, MemoryKind] = {LESSON: MemoryKind.LESSON, STATE: MemoryKind.STATE}
UNASKED = frozenset({Moment.FILE, Moment.NAME, Moment.TRIGGER, Moment.ROUTINE})
"""Moments of calls that ask no question in words. If the user has a template for the tool, such a
call counts as `ASKING_CALL`."""

_ANSWERS = frozenset(MemoryKind)
_FITTING = frozenset({MemoryKind.NOTE, MemoryKind.EPISODE})
_REMEDIES = _FITTING | {MemoryKind.LESSON}
_ADMITTED: Mapping[Moment, frozenset[MemoryKind]] = {
    Moment.QUESTION: _ANSWERS,
    Moment.FIRST_REQUEST: _ANSWERS,
    Moment.ASKING_CALL: frozenset({MemoryKind.NOTE, MemoryKind.FOREIGN, MemoryKind.EPISODE}),
    Moment.NOTHING_FOUND: _REMEDIES,
    Moment.FAILED: _REMEDIES,
    Moment.FILE: _REMEDIES,
    Moment.NAME: _FITTING,
    Moment.TRIGGER: frozenset({MemoryKind.EPISODE}),
    Moment.LESSON: frozenset({MemoryKind.LESSON}),
    Moment.ROUTINE: frozenset(),
}


def moment_of(cue: Event, prompts_before: int) -> Moment:
    """The moment of a prompt or call, after `prompts_before` prompts in its session."""
    moment = _of_situation(cue, prompts_before)
    return Moment.TRIGGER if moment is Moment.ROUTINE and cue.triggers else moment


def _of_situation(cue: Event, prompts_before: int) -> Moment:
    if cue.tool is None:
        return _of_prompt(cue.text.strip(), prompts_before)
    if asks_in_words(cue.args):
        return Moment.ASKING_CALL
    if cue.answer is not None and found_nothing(cue.args, cue.answer):
        return Moment.NOTHING_FOUND
    if cue.answer is not None and cue.answer.failed and cue.command:
        return Moment.FAILED
    if searches(cue.args) and cue.names:
        return Moment.NAME
    return Moment.FILE if cue.file else Moment.ROUTINE


def _of_prompt(text: str, prompts_before: int) -> Moment:
    if len(text) > MAX_QUESTION_CHARS:
        return Moment.ROUTINE
    if is_question(text) or is_correction(text):
        return Moment.QUESTION
    return Moment.ROUTINE if prompts_before else Moment.FIRST_REQUEST


def kind_of(memory: Memory) -> MemoryKind:
    """The origin of `memory`."""
    if memory.triggers:
        return MemoryKind.EPISODE
    if memory.provenance.door in _WRITTEN:
        return _WRITTEN[memory.provenance.door]
    if memory.source.startswith("git:"):
        return MemoryKind.COMMIT
    if memory.lines is not None:
        return MemoryKind.DOCUMENT
    return MemoryKind.FOREIGN if memory.id.startswith("ltm:") else MemoryKind.NOTE


def case_of(moment: Moment | str, memory: Memory) -> str:
    """The name of the case (the moment and the kind of the memory) for which upwell learns a
    threshold. "" without a moment."""
    return f"{moment}{CASE_SIGN}{kind_of(memory)}" if moment else ""


def suited(cue: Event, moment: Moment, hits: Sequence[Hit]) -> list[Hit]:
    """The hits that can help at this moment. At `FILE` and `NAME`, a note must be about that file
    or name."""
    admitted = _ADMITTED[moment]
    return [
        hit
        for hit in hits
        if ((kind := kind_of(hit.memory)) in admitted or NAMED in hit.signals)
        and (kind is MemoryKind.EPISODE or _is_exact(cue, moment, hit.memory))
    ]


def _is_exact(cue: Event, moment: Moment, memory: Memory) -> bool:
    if moment is Moment.FILE:
        return _is_about(memory, cue.file)
    if moment is Moment.NAME:
        return any(name in memory.symbols or name in memory.text for name in cue.names)
    return True


def _is_about(memory: Memory, file: str) -> bool:
    path = relative_to(file, memory.project)
    return any(path == other or path.endswith(f"/{other}") for other in memory.paths)
