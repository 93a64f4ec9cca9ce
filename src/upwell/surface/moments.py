"""Moments: whether memories could help the agent now and, if so, which kinds. In real sessions, a
useful memory exists for one event in twenty. It answers the user's words, or it supplies an exact
fact after a step that went wrong. So each cue is assigned a moment, and each moment admits only the
kinds of memory that help in it.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum

from upwell.episodes.events import Kind as EventKind
from upwell.episodes.events import SessionEvent
from upwell.episodes.triggers import triggers_of
from upwell.ground.text.anchors import relative_to
from upwell.ground.types.cue import AUTOMATIC_DOORS, Cue, ToolAnswer
from upwell.ground.types.memory import LESSON, STATE, Hit, Memory
from upwell.ground.types.surfacing import Moment
from upwell.learn.learned import CASE_SIGN
from upwell.surface.query import (
    COMMAND_KEYS,
    CONTEXT_QUERY,
    OTHER_PATH_KEYS,
    PATH_KEYS,
    anchors_of,
)
from upwell.surface.wording import is_correction, is_question

MAX_QUESTION_CHARS = 1_500
"""A longer prompt is a paste or a plan, which brings its own context."""
MIN_WORDS_ASKED = 3


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

_NOTHING = re.compile(
    r"\s*+(?:no (?:matches|files|results)(?: were)?(?: found)?|found 0 (?:files|matches|results)|"
    r"0 (?:matches|results))?+[.\s]*+",
    re.IGNORECASE,
)
_ABSENT = re.compile(
    r"no such file or directory|file does not exist|could not find file|enoent", re.IGNORECASE
)
_USUAL: Mapping[str, str] = {
    **dict.fromkeys(("read_file", "read_text_file", "get_file_contents"), "Read"),
    **dict.fromkeys(("run_command", "execute_command", "shell", "bash", "run_shell"), "Bash"),
    **dict.fromkeys(("search_code", "grep", "grep_search"), "Grep"),
}
"""Common MCP tool names, each mapped to the built-in agent tool that does the same."""
_HEAD_CHARS = 400
_READERS = frozenset({"cat", "head", "tail", "sed", "less", "more", "bat", "nl", "grep", "rg"})
_SEARCH_KEYS = frozenset({"pattern", "query", "regex", "q", "glob"})
_QUESTION_KEYS = frozenset({"question", "query", "q", "search", "prompt", "topic", "message"})


def triggers_in(cue: Cue) -> tuple[str, ...]:
    """The triggers that a cue meets. An explicit request meets none. Nor does a call without a
    result, because a missing result looks like an empty search result."""
    is_unanswered = cue.tool is not None and cue.answer is None
    return () if cue.door not in AUTOMATIC_DOORS or is_unanswered else triggers_of(event_of(cue))


def event_of(cue: Cue) -> SessionEvent:
    """The cue as an `SessionEvent`, like those read from past sessions."""
    answer, args = cue.answer, cue.args
    tool = _USUAL.get((cue.tool or "").rpartition("__")[2], cue.tool or "")
    if tool == "Read" and "file_path" not in args and "path" in args:
        args = {**args, "file_path": args["path"]}
    return SessionEvent(
        session=cue.session,
        i=0,
        t=cue.at or 0.0,
        kind=EventKind.PROMPT if cue.tool is None else EventKind.TOOL,
        text=cue.text,
        tool=tool,
        args=args,
        out=answer.text if answer else "",
        failed=bool(answer and answer.failed),
        cwd=cue.cwd,
    )


def moment_of(cue: Cue, prompts_before: int, triggers: Sequence[str] = ()) -> Moment:
    """The moment of a prompt or call with these triggers, after `prompts_before` prompts in its
    session."""
    moment = _of_situation(cue, prompts_before)
    return Moment.TRIGGER if triggers and moment is Moment.ROUTINE else moment


def _of_situation(cue: Cue, prompts_before: int) -> Moment:
    if cue.tool is None:
        return _of_prompt(cue.text.strip(), prompts_before)
    if asks_in_words(cue.args):
        return Moment.ASKING_CALL
    if cue.answer is not None and found_nothing(cue.args, cue.answer):
        return Moment.NOTHING_FOUND
    if cue.answer is not None and cue.answer.failed and command_of(cue.args):
        return Moment.FAILED
    if _searches(cue.args) and names_in(cue):
        return Moment.NAME
    return Moment.FILE if file_of(cue) else Moment.ROUTINE


def _of_prompt(text: str, prompts_before: int) -> Moment:
    if len(text) > MAX_QUESTION_CHARS:
        return Moment.ROUTINE
    if is_question(text) or is_correction(text):
        return Moment.QUESTION
    return Moment.ROUTINE if prompts_before else Moment.FIRST_REQUEST


def asks_in_words(args: Mapping[str, object]) -> bool:
    """True if the arguments contain a question, or a query of several plain words."""
    if isinstance(args.get(CONTEXT_QUERY), str):
        return True
    return any(_is_plain(text) for name, text in _texts(args) if name in _QUESTION_KEYS)


def file_of(cue: Cue) -> str:
    """The one file that a call is about, or "". A command that reads one file also counts, because
    some agents read files that way."""
    for name in PATH_KEYS:
        value = cue.args.get(name)
        if isinstance(value, str) and value:
            return value
    program, *words = command_of(cue.args)[:MAX_QUESTION_CHARS].split() or [""]
    paths = [word.strip("'\"") for word in words if "/" in word or "." in word]
    return paths[0] if program in _READERS and len(paths) == 1 else ""


def file_sought(cue: Cue) -> str:
    """The name of the file that a call did not find; "" if it searched for something else."""
    if _searches(cue.args):
        return ""
    return file_of(cue).replace("\\", "/").rpartition("/")[2]


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


def suited(cue: Cue, moment: Moment, hits: Sequence[Hit]) -> list[Hit]:
    """The hits that can help at this moment. At `FILE` and `NAME`, a note must be about that file
    or name."""
    admitted = _ADMITTED[moment]
    return [
        hit
        for hit in hits
        if ((kind := kind_of(hit.memory)) in admitted or NAMED in hit.signals)
        and (kind is MemoryKind.EPISODE or _is_exact(cue, moment, hit.memory))
    ]


def names_in(cue: Cue) -> Sequence[str]:
    """The identifiers in the arguments of a call."""
    return anchors_of(cue.tool or "", cue.args)[1]


def _is_exact(cue: Cue, moment: Moment, memory: Memory) -> bool:
    if moment is Moment.FILE:
        return _is_about(memory, file_of(cue))
    if moment is Moment.NAME:
        return any(name in memory.symbols or name in memory.text for name in names_in(cue))
    return True


def _is_about(memory: Memory, file: str) -> bool:
    path = relative_to(file, memory.project)
    return any(path == other or path.endswith(f"/{other}") for other in memory.paths)


def _is_plain(text: str) -> bool:
    """True if `text` is a question or a phrase, rather than a pattern, a path or code."""
    words = text.split()
    plain = sum(word.strip("?.,!'\"").isalpha() for word in words)
    return len(words) >= MIN_WORDS_ASKED and plain >= 0.7 * len(words)


def _texts(args: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    ignored = COMMAND_KEYS | frozenset(PATH_KEYS) | frozenset(OTHER_PATH_KEYS)
    yield from (
        (name, value)
        for name, value in args.items()
        if isinstance(value, str) and name not in ignored
    )


def command_of(args: Mapping[str, object]) -> str:
    """The command that a call runs, or ""."""
    return next((str(args[name]) for name in COMMAND_KEYS if args.get(name)), "")


def found_nothing(args: Mapping[str, object], answer: ToolAnswer) -> bool:
    """True if a result reports that a search found nothing or that a file does not exist."""
    if _searches(args) and len(answer.text) < _HEAD_CHARS and _NOTHING.fullmatch(answer.text):
        return True
    return bool(_ABSENT.search(answer.text[:_HEAD_CHARS])) and not command_of(args)


def _searches(args: Mapping[str, object]) -> bool:
    return not _SEARCH_KEYS.isdisjoint(args) and any(args.get(name) for name in _SEARCH_KEYS)
