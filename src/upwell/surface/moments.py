"""Moments: whether memories could help the agent now and, if so, which kinds. In real sessions, a
useful memory exists for one event in twenty. It answers the user's words, or it supplies an exact
fact after a step that went wrong. So each cue is assigned a moment, and each moment admits only the
kinds of memory that help in it.

Documentation and commits were not written for the agent, and matching words alone rarely make them
useful: of 105 such memories that surfaced in replayed sessions, two were useful. A document can
help with the first prompt of a session, if that prompt can be understood on its own. A later prompt
usually continues the conversation, and the words that it shares with a document are a coincidence.
So, from the second prompt on, a document needs a clear question and a high score. `lack_of()`
returns the reason not to show a document or a commit.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum

from upwell.episodes.events import Event
from upwell.episodes.events import Kind as EventKind
from upwell.episodes.triggers import triggers_of
from upwell.ground.text.anchors import relative_to
from upwell.ground.types.cue import AUTOMATIC_DOORS, Cue, ToolAnswer
from upwell.ground.types.memory import LESSON, STATE, Hit, Memory
from upwell.learn.learned import CASE_SIGN
from upwell.memory.documents.sections.scoring import is_note
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
    """The first prompt of a session, if it is not a question."""
    ASKING_CALL = "asking_call"
    """A tool call that asks something in words."""
    NOTHING_FOUND = "nothing_found"
    """A search without results, or a file that does not exist."""
    FAILED = "failed"
    """A command that failed."""
    FILE = "file"
    """A call about one file, for which there may be a note."""
    NAME = "name"
    """A search for a name in the code, for which there may be a note."""
    TRIGGER = "trigger"
    """Any other event with a trigger that an earlier session may have met."""
    LESSON = "lesson"
    """Any other event on which a lesson of an earlier session bears."""
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
    """The conclusion of a session, for the situation that its triggers describe."""
    LESSON = "lesson"
    """What a session taught, written down at its end."""
    STATE = "state"
    """How a session left its work."""


_WRITTEN: Mapping[str, Kind] = {LESSON: Kind.LESSON, STATE: Kind.STATE}
UNASKED = frozenset({Moment.FILE, Moment.NAME, Moment.TRIGGER, Moment.ROUTINE})
"""Moments of calls that ask no question in words. If the user has a template for the tool, such a
call counts as `ASKING_CALL`."""

_ANSWERS = frozenset(Kind)
_FITTING = frozenset({Kind.NOTE, Kind.EPISODE})
_REMEDIES = _FITTING | {Kind.LESSON}
_ADMITTED: Mapping[Moment, frozenset[Kind]] = {
    Moment.QUESTION: _ANSWERS,
    Moment.FIRST_REQUEST: _ANSWERS,
    Moment.ASKING_CALL: frozenset({Kind.NOTE, Kind.FOREIGN, Kind.EPISODE}),
    Moment.NOTHING_FOUND: _REMEDIES,
    Moment.FAILED: _REMEDIES,
    Moment.FILE: _REMEDIES,
    Moment.NAME: _FITTING,
    Moment.TRIGGER: frozenset({Kind.EPISODE}),
    Moment.LESSON: frozenset({Kind.LESSON}),
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


def event_of(cue: Cue) -> Event:
    """The cue as an `Event`, like those read from past sessions."""
    answer, args = cue.answer, cue.args
    tool = _USUAL.get((cue.tool or "").rpartition("__")[2], cue.tool or "")
    if tool == "Read" and "file_path" not in args and "path" in args:
        args = {**args, "file_path": args["path"]}
    return Event(
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


def is_question(text: str) -> bool:
    """True if a prompt is phrased as a question."""
    return "?" in text or bool(_INTERROGATIVE.match(text))


def is_correction(text: str) -> bool:
    """True if a prompt begins by contradicting the agent."""
    return bool(_CORRECTION.match(text))


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


def kind_of(memory: Memory) -> Kind:
    """The origin of `memory`."""
    if memory.triggers:
        return Kind.EPISODE
    if memory.provenance.door in _WRITTEN:
        return _WRITTEN[memory.provenance.door]
    if memory.source.startswith("git:"):
        return Kind.COMMIT
    if memory.lines is not None:
        return Kind.DOCUMENT
    return Kind.FOREIGN if memory.id.startswith("ltm:") else Kind.NOTE


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
        if (kind := kind_of(hit.memory)) in admitted
        and (kind is Kind.EPISODE or _is_exact(cue, moment, hit.memory))
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


MIN_SCORES: Mapping[Kind, float] = {Kind.DOCUMENT: 0.5, Kind.COMMIT: 0.8}
"""The minimum scores at which documents and commits may surface at a prompt."""
SURE = 0.8
"""The minimum score of a document for a question that is not the first prompt of its session."""
MIN_SENTENCE_WORDS = 8
MIN_REASON_WORDS = 10
"""A commit message whose body has fewer words counts as giving no reason."""
MAX_WORDS = 60
"""A longer prompt brings its own context."""

LOW = "score {score:.2f} < {least:.2f}"
PAPER = "a record of work, not documentation"
LONG = f"the prompt has more than {MAX_WORDS} words"
POINTER = "the prompt points at something particular"
INSTRUCTION = "the prompt is an instruction, not a question"
MIDDLE = "no question of its own, in the middle of a session"
HOW_TO_WORK = "a note on how to work answers only a question"
NO_SENTENCE = "no whole sentence"
NO_REASON = "the commit gives no reason"
NO_WHY = "the prompt does not ask for a reason"

_PAPER_NAMES = frozenset(
    "archive archived backlog changelog changes drafts history histories issues journal log logs "
    "milestones plan plans postmortems pr progress proposals releases reports roadmap session "
    "sessions sprints status stories summaries task tasks todo todos transcripts worklog".split()
)
"""A folder or file with one of these names contains records of work (`is_paper`)."""
_PAPER_ENDINGS = frozenset(
    "changelog plan postmortem proposal report retrospective roadmap stories summary todo".split()
)
"""A file whose name ends with one of these words is also a record of work."""
_DATED = re.compile(r"\d{4}-\d{2}-\d{2}")
_NAME_WORD = re.compile(r"[a-z]+")
_POINTER = re.compile(
    r"/(?:pulls?|issues|merge_requests|actions|commits?|compare|discussions)/|"
    r"(?:^|\s)(?:#\w|@\w[\w-]*[./])|\b(?:PR|MR|issue|ticket|task)s?\s*#?\d|"
    r"~/\w|/(?:Users|home|root|tmp|var)/|```|"
    r"\b(?:this|our|my|current|latest) (?:branch|PR|pull request|commit|session|code ?base|diff|"
    r"changes?|plan|review|file)\b",
    re.IGNORECASE,
)
"""References to something that documentation cannot cover: a ticket, a file on this machine, the
current branch.
"""
_INSTRUCTION = re.compile(
    r"^\W*(?:(?:please|ok|okay|now|so|and|then),?\s+)*(?:(?:can|could|would|will) (?:you|we)\b|"
    r"let'?s\b|(?:i'd|i would) like you\b|(?:adjust|analy[sz]e|brainstorm|check|clean ?up|commit|"
    r"continue|create|debug|explain|find|give|go|implement|investigate|look|merge|need|plan|push|"
    r"read|rebase|refactor|review|rewrite|run|show|start|summari[sz]e|take a look|tell|test|update|"
    r"write)\b)",
    re.IGNORECASE,
)
_SENTENCE_BREAK = re.compile(r"[.?!;\n]\s+")
_CONVERSATION = re.compile(r"\b(?:you|your|you're|you've)\b", re.IGNORECASE)
_WHY = re.compile(
    r"\b(?:why|reasons?|rationale|decide[ds]?|decisions?|chose[n]?|how come|when did|since when|"
    r"who|used to|what changed|history of|what happened|supposed to|on purpose)\b",
    re.IGNORECASE,
)
_REASON = re.compile(
    r"\b(?:because|since|so that|in order to|instead|otherwise|due to|caused?|causes|avoids?|"
    r"prevents?|which (?:made|meant|broke|let)|would|could|never|no longer|until|failed|broke|"
    r"breaks|wrong|lost|leak(?:s|ed)?)\b",
    re.IGNORECASE,
)
_NOT_PROSE = re.compile(r"^\s*(?:[-*+|>#]|\d{1,3}[.)]\s|```|~~~|\S+:$)")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")


def lack_of(text: str, moment: Moment, prompts: int, hit: Hit) -> str:
    """The reason why `hit` is not worth showing with the prompt `text`, which is number `prompts`
    of its session; "" if there is none. Only documents and commits are judged."""
    kind = kind_of(hit.memory)
    least = MIN_SCORES.get(kind)
    if least is None or moment not in (Moment.QUESTION, Moment.FIRST_REQUEST):
        return ""
    if hit.score < least:
        return LOW.format(score=hit.score, least=least)
    own = _own_lack(hit.memory, kind)
    return own or _prompt_lack(text) or _situation_lack(text, moment, prompts, hit)


def _own_lack(memory: Memory, kind: Kind) -> str:
    if kind is Kind.COMMIT:
        return "" if gives_reason(memory.text) else NO_REASON
    if is_paper(memory.source):
        return PAPER
    return "" if has_sentence(memory.text) else NO_SENTENCE


def _prompt_lack(text: str) -> str:
    if len(text.split()) > MAX_WORDS:
        return LONG
    if _POINTER.search(text):
        return POINTER
    if any(_INSTRUCTION.match(sentence) for sentence in _SENTENCE_BREAK.split(text)):
        return INSTRUCTION
    return ""


def _situation_lack(text: str, moment: Moment, prompts: int, hit: Hit) -> str:
    asks = moment is Moment.QUESTION and is_question(text)
    is_commit = kind_of(hit.memory) is Kind.COMMIT
    is_conversation = not asks or bool(_CONVERSATION.search(text)) or is_commit
    if prompts > 1 and (is_conversation or hit.score < SURE):
        return MIDDLE
    if is_commit:
        return "" if _WHY.search(text) else NO_WHY
    return HOW_TO_WORK if is_note(hit.memory.source) and not asks else ""


def gives_reason(message: str) -> bool:
    """True if the body of a commit message gives a reason."""
    body = message.partition(". ")[2]
    return len(body.split()) >= MIN_REASON_WORDS and bool(_REASON.search(body))


def is_paper(source: str) -> bool:
    """True if this document records work (a plan, a task, a report, a changelog, a transcript)
    instead of describing the project."""
    *folders, file = source.lower().split("/")
    stem = file.partition(".")[0]
    words = _NAME_WORD.findall(stem)
    return (
        bool(_DATED.search(source))
        or not _PAPER_NAMES.isdisjoint([*folders, stem])
        or (bool(words) and words[-1] in _PAPER_ENDINGS)
    )


def has_sentence(text: str) -> bool:
    """True if `text` contains a whole sentence outside lists, tables, code and headings."""
    prose = " ".join(_prose_lines(text))
    return any(
        len(sentence.split()) >= MIN_SENTENCE_WORDS for sentence in _SENTENCE_END.split(prose)
    )


def _prose_lines(text: str) -> list[str]:
    lines: list[str] = []
    is_code = False
    for line in text.split("\n"):
        if line.lstrip().startswith(("```", "~~~")):
            is_code = not is_code
        elif not is_code and not _NOT_PROSE.match(line):
            lines.append(line)
    return lines
