"""Moments: could anything help the agent now, and which kinds of memory could?

In real sessions a useful memory exists for one event in twenty. It answers the user's words, or it
carries an exact fact at a step that went wrong. A moment therefore names the situation of a cue,
and each moment admits only the kinds of memory that help in it.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum

from upwell.ground.text.anchors import relative_to
from upwell.ground.types.cue import Cue, ToolAnswer
from upwell.ground.types.memory import Hit, Memory
from upwell.learn.learned import CASE_SIGN
from upwell.surface.query import (
    COMMAND_KEYS,
    CONTEXT_QUERY,
    OTHER_PATH_KEYS,
    PATH_KEYS,
    anchors_of,
)

MAX_QUESTION_CHARS = 1_500
"""A longer prompt is a paste or a plan, which brings its own context."""
MIN_WORDS_ASKED = 3


class Moment(StrEnum):
    """The situation of a cue."""

    QUESTION = "question"
    """The user asks, or corrects the agent."""
    FIRST_REQUEST = "first_request"
    """The first request of a session."""
    ASKING_CALL = "asking_call"
    """A tool call that asks in words."""
    NOTHING_FOUND = "nothing_found"
    """A search without results, or a file that does not exist."""
    FAILED = "failed"
    """A command that failed."""
    FILE = "file"
    """A call on one file, about which a note may exist."""
    NAME = "name"
    """A search for a name in the code, about which a note may exist."""
    TRIGGER = "trigger"
    """Any other event with a trigger, which an earlier session may have met."""
    ROUTINE = "routine"
    """Everything else."""


class Kind(StrEnum):
    """The origin of a memory, which decides where it helps."""

    NOTE = "note"
    """Written on purpose, by the user or by an agent."""
    COMMIT = "commit"
    DOCUMENT = "document"
    FOREIGN = "foreign"
    """From another memory server."""
    EPISODE = "episode"
    """The conclusion of a session, for the situation that its triggers name."""


_ANSWERS = frozenset({Kind.NOTE, Kind.DOCUMENT, Kind.COMMIT, Kind.FOREIGN, Kind.EPISODE})
_FITTING = frozenset({Kind.NOTE, Kind.EPISODE})
_ADMITTED: Mapping[Moment, frozenset[Kind]] = {
    Moment.QUESTION: _ANSWERS,
    Moment.FIRST_REQUEST: _ANSWERS,
    Moment.ASKING_CALL: frozenset({Kind.NOTE, Kind.FOREIGN, Kind.EPISODE}),
    Moment.NOTHING_FOUND: _FITTING,
    Moment.FAILED: _FITTING,
    Moment.FILE: _FITTING,
    Moment.NAME: _FITTING,
    Moment.TRIGGER: frozenset({Kind.EPISODE}),
    Moment.ROUTINE: frozenset(),
}

_CORRECTION = re.compile(
    r"^\W{0,3}(?:no[,. ]|wrong\b|stop\b|don'?t\b|do not\b|never\b|always\b|instead\b|not what\b|"
    r"that'?s (?:not|wrong)|why (?:did|are|do|didn'?t|aren'?t|don'?t) you\b|as i said\b|"
    r"i (?:said|asked|told)\b|you (?:should|forgot|were supposed)\b|just (?:use|run)\b)",
    re.IGNORECASE,
)
_INTERROGATIVE = re.compile(
    r"^\W{0,3}(?:why|how|where|what|which|who|when|is|are|does|do|did|can|could|should|was|were)\b",
    re.IGNORECASE,
)
_NOTHING = re.compile(
    r"\s*(?:no (?:matches|files|results)(?: were)?(?: found)?|found 0 (?:files|matches|results)|"
    r"0 (?:matches|results))?[.\s]*",
    re.IGNORECASE,
)
_ABSENT = re.compile(
    r"no such file or directory|file does not exist|could not find file|enoent", re.IGNORECASE
)
_HEAD_CHARS = 400
_READERS = frozenset({"cat", "head", "tail", "sed", "less", "more", "bat", "nl", "grep", "rg"})
_SEARCH_KEYS = ("pattern", "query", "regex", "q", "glob")
_QUESTION_KEYS = frozenset({"question", "query", "q", "search", "prompt", "topic", "message"})


def moment_of(cue: Cue, prompts_before: int, triggers: Sequence[str] = ()) -> Moment:
    """The moment of an automatic cue with these triggers, in a session that had `prompts_before`
    prompts."""
    moment = _of_situation(cue, prompts_before)
    return Moment.TRIGGER if triggers and moment is Moment.ROUTINE else moment


def _of_situation(cue: Cue, prompts_before: int) -> Moment:
    if cue.tool is None:
        return _of_prompt(cue.text.strip(), prompts_before)
    if asks_in_words(cue.args):
        return Moment.ASKING_CALL
    if cue.answer is not None and found_nothing(cue.args, cue.answer):
        return Moment.NOTHING_FOUND
    if cue.answer is not None and cue.answer.failed and _command(cue.args):
        return Moment.FAILED
    if any(cue.args.get(name) for name in _SEARCH_KEYS) and names_in(cue):
        return Moment.NAME
    return Moment.FILE if file_of(cue) else Moment.ROUTINE


def is_question(text: str) -> bool:
    """Is a prompt phrased as a question?"""
    return "?" in text or bool(_INTERROGATIVE.match(text))


def _of_prompt(text: str, prompts_before: int) -> Moment:
    if len(text) > MAX_QUESTION_CHARS:
        return Moment.ROUTINE
    if is_question(text) or _CORRECTION.match(text):
        return Moment.QUESTION
    return Moment.ROUTINE if prompts_before else Moment.FIRST_REQUEST


def asks_in_words(args: Mapping[str, object]) -> bool:
    """Do the arguments hold a question, or a query of several plain words?"""
    if isinstance(args.get(CONTEXT_QUERY), str):
        return True
    return any(_is_plain(text) for name, text in _texts(args) if name in _QUESTION_KEYS)


def file_of(cue: Cue) -> str:
    """The one file that a call is about; "" for none. Some agents read files by a command."""
    for name in PATH_KEYS:
        value = cue.args.get(name)
        if isinstance(value, str) and value:
            return value
    program, *words = _command(cue.args)[:MAX_QUESTION_CHARS].split() or [""]
    paths = [word.strip("'\"") for word in words if "/" in word or "." in word]
    return paths[0] if program in _READERS and len(paths) == 1 else ""


def kind_of(memory: Memory) -> Kind:
    """The origin of `memory`."""
    if memory.triggers:
        return Kind.EPISODE
    if memory.source.startswith("git:"):
        return Kind.COMMIT
    if memory.lines is not None:
        return Kind.DOCUMENT
    return Kind.FOREIGN if memory.id.startswith("ltm:") else Kind.NOTE


def case_of(moment: Moment | str, memory: Memory) -> str:
    """The moment and the kind of a memory, by which upwell learns; "" without a moment."""
    return f"{moment}{CASE_SIGN}{kind_of(memory)}" if moment else ""


def suited(cue: Cue, moment: Moment, hits: Sequence[Hit]) -> list[Hit]:
    """Those of `hits` that can help at this moment."""
    admitted = _ADMITTED[moment]
    return [
        hit
        for hit in hits
        if (kind := kind_of(hit.memory)) in admitted
        and (kind is Kind.EPISODE or _is_exact(cue, moment, hit.memory))
    ]


def names_in(cue: Cue) -> Sequence[str]:
    """The names of the code in the arguments of a call."""
    return anchors_of(cue.tool or "", cue.args)[1]


def _is_exact(cue: Cue, moment: Moment, memory: Memory) -> bool:
    """At a call on one file or name: was the memory written about that very one?"""
    if moment is Moment.FILE:
        return _is_about(memory, file_of(cue))
    if moment is Moment.NAME:
        return any(name in memory.symbols or name in memory.text for name in names_in(cue))
    return True


def _is_about(memory: Memory, file: str) -> bool:
    """Was the memory written about that very file?"""
    path = relative_to(file, memory.project)
    return any(path == other or path.endswith(f"/{other}") for other in memory.paths)


def _is_plain(text: str) -> bool:
    """Is `text` a question or a phrase, rather than a pattern, a path or code?"""
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


def _command(args: Mapping[str, object]) -> str:
    return next((str(args[name]) for name in COMMAND_KEYS if args.get(name)), "")


def found_nothing(args: Mapping[str, object], answer: ToolAnswer) -> bool:
    """Does an answer say that a search had no results, or that a file does not exist?"""
    searches = any(args.get(name) for name in _SEARCH_KEYS)
    if searches and len(answer.text) < _HEAD_CHARS and _NOTHING.fullmatch(answer.text):
        return True
    return not _command(args) and bool(_ABSENT.search(answer.text[:_HEAD_CHARS]))
