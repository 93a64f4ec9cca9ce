"""Worth: would saying this text change what the agent does next?

Documentation and commits were not written for the agent, and a match of words alone is seldom
useful: of 105 that were said in replayed sessions, two were. They answer a question about the
documented matter, asked for the first time, whole and without pointing at something else. In the
middle of a session a prompt continues the conversation, and the words that it shares with a
document are an accident.
"""

import re
from collections.abc import Mapping

from upwell.ground.types.memory import Hit, Memory
from upwell.memory.documents.sections.scoring import is_note
from upwell.surface.moments import Kind, Moment, is_question, kind_of

LEAST_SCORES: Mapping[Kind, float] = {Kind.DOCUMENT: 0.5, Kind.COMMIT: 0.8}
"""Scores from which a text that was not written for the agent may be said at all."""
SURE = 0.8
"""A score from which a document may answer a question in the middle of a session."""
LEAST_SENTENCE_WORDS = 8
LEAST_REASON_WORDS = 10
"""A commit with a shorter body gives no reason that a reader could use."""
MAX_WORDS = 60
"""A longer prompt brings its own context."""

LOW = "score {score:.2f} < {least:.2f}"
PAPER = "a paper of the work, not documentation"
LONG = f"the prompt has more than {MAX_WORDS} words"
POINTER = "the prompt points at something particular"
INSTRUCTION = "the prompt is an instruction, not a question"
MIDDLE = "no question of its own, in the middle of a session"
HOW_TO_WORK = "a note on how to work answers only a question"
NO_SENTENCE = "no whole sentence"
NO_REASON = "the commit gives no reason"
NO_WHY = "nobody asks for a reason"

_PAPER_NAMES = frozenset(
    "archive archived backlog changelog changes drafts history histories issues journal log logs "
    "milestones plan plans postmortems pr progress proposals releases reports roadmap session "
    "sessions sprints status stories summaries task tasks todo todos transcripts worklog".split()
)
"""Folders and files of this name."""
_PAPER_ENDINGS = frozenset(
    "changelog plan postmortem proposal report retrospective roadmap stories summary todo".split()
)
"""Files whose name ends with this word."""
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
"""Something that documentation does not know: a ticket, a file of this machine, this branch."""
_INSTRUCTION = re.compile(
    r"^\W*(?:(?:please|ok|okay|now|so|and|then),?\s+)*(?:(?:can|could|would|will) (?:you|we)\b|"
    r"let'?s\b|(?:i'd|i would) like you\b|(?:adjust|analy[sz]e|brainstorm|check|clean ?up|commit|"
    r"continue|create|debug|explain|find|give|go|implement|investigate|look|merge|need|plan|push|"
    r"read|rebase|refactor|review|rewrite|run|show|start|summari[sz]e|take a look|tell|test|update|"
    r"write)\b)",
    re.IGNORECASE,
)
_SENTENCE_BREAK = re.compile(r"[.?!;\n]+\s+")
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
    """What `hit` lacks to be worth saying to the prompt `text`, the session's `prompts`-th; "" for
    nothing. Memories that were written on purpose lack nothing."""
    kind = kind_of(hit.memory)
    least = LEAST_SCORES.get(kind)
    if least is None or moment not in (Moment.QUESTION, Moment.FIRST_REQUEST):
        return ""
    if hit.score < least:
        return LOW.format(score=hit.score, least=least)
    own = _own_lack(hit.memory, kind)
    return own or _prompt_lack(text) or _situation_lack(text, moment, prompts, hit)


def _own_lack(memory: Memory, kind: Kind) -> str:
    """The reason against the text, for any prompt."""
    if kind is Kind.COMMIT:
        return "" if gives_reason(memory.text) else NO_REASON
    if is_paper(memory.source):
        return PAPER
    return "" if has_sentence(memory.text) else NO_SENTENCE


def _prompt_lack(text: str) -> str:
    """The reason that documentation cannot answer the prompt; "" for none."""
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
    """Does the body of a commit's message give a reason?"""
    body = message.partition(". ")[2]
    return len(body.split()) >= LEAST_REASON_WORDS and bool(_REASON.search(body))


def is_paper(source: str) -> bool:
    """Does this document record work – a plan, a task, a report, a changelog, a transcript –
    rather than describe the project?"""
    *folders, file = source.lower().split("/")
    stem = file.partition(".")[0]
    words = _NAME_WORD.findall(stem)
    return (
        bool(_DATED.search(source))
        or not _PAPER_NAMES.isdisjoint([*folders, stem])
        or (bool(words) and words[-1] in _PAPER_ENDINGS)
    )


def has_sentence(text: str) -> bool:
    """Does `text` hold a whole sentence outside lists, tables, code and headings?"""
    prose = " ".join(_prose_lines(text))
    return any(
        len(sentence.split()) >= LEAST_SENTENCE_WORDS for sentence in _SENTENCE_END.split(prose)
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
