"""Which documents and commits are worth showing at a prompt, and why others are not.

Documentation and commits were not written for the agent, and matching words alone rarely make them
useful: of 105 such memories that surfaced in replayed sessions, two were useful. A document can
help with the first prompt of a session, if that prompt can be understood on its own. A later prompt
usually continues the conversation, and the words that it shares with a document are a coincidence.
So, from the second prompt on, a document needs a clear question and a high score. A commit needs a
question that it answers: for a reason that it gives, or for a fact that it states (`states`). At a
failure, both need a name of the failure (`moments.named_by_failure()`).
`lack_of()` returns the reason not to show a document or a commit.
"""

import re
from collections.abc import Mapping, Sequence

from upwell.ground.types.cue import Moment
from upwell.ground.types.memory import Hit, Memory
from upwell.memory.documents.sections.rank import is_note
from upwell.surface.bearing import everyday, stems_of
from upwell.surface.moments import LED, NAMED, MemoryKind, is_question, kind_of
from upwell.surface.seen_log import exact_names

MIN_SCORES: Mapping[MemoryKind, float] = {MemoryKind.DOCUMENT: 0.5, MemoryKind.COMMIT: 0.8}
"""The minimum scores at which documents and commits may surface at a prompt."""
SURE = 0.8
"""The minimum score of a document for a question that is not the first prompt of its session."""
MIN_SENTENCE_WORDS = 8
MIN_REASON_WORDS, MIN_SUBJECT_WORDS = 10, 5
"""The fewest words of a body, or of a subject, that gives the reason for a commit."""
MIN_SHARED = 2
"""A commit that shares fewer words with a question does not state what the question asks for."""
LONG_QUESTION = 6
"""Of a question with as many telling words, a commit may lack one."""
MAX_FACT_WORDS = 30
"""A longer prompt asks for more than a fact."""
MAX_WORDS = 60
"""A longer prompt brings its own context."""

LOW = "score {score:.2f} < {least:.2f}"
PAPER = "a record of work, not documentation"
LONG = f"the prompt has more than {MAX_WORDS} words"
POINTER = "the prompt points at something particular"
INSTRUCTION = "the prompt is an instruction, not a question"
LEAST_FOR_REQUEST = 0.6
"""Nobody asked: a document that scores less shares the subject of the request."""
MIDDLE = "no question of its own, in the middle of a session"
HOW_TO_WORK = "a note on how to work answers only a question"
NO_SENTENCE = "no whole sentence"
NO_REASON = "the commit gives no reason"
NO_WHY = "the prompt asks neither for a reason nor for a fact that the commit states"

_PAPER_NAMES = frozenset(
    "archive archived backlog changelog changes changeset drafts histories history issues "
    "journal log logs milestones plan plans postmortems pr progress proposals releases reports "
    "roadmap session sessions sprints status stories summaries task tasks todo todos "
    "transcripts worklog".split()
)
"""A folder or file with one of these names contains records of work (`is_paper`)."""
_PAPER_ENDINGS = frozenset(
    "changelog plan postmortem proposal report retrospective roadmap stories summary template "
    "todo".split()
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
_BECAUSE = re.compile(
    r"\b(?:because|so that|otherwise|due to|to avoid|in order to)\b|, since\b", re.IGNORECASE
)
_LABEL = re.compile(r"^[a-z]{1,20}(?:\([^()]{1,40}\))?!?:\s", re.IGNORECASE)
_CLAUSE = re.compile(r"[:;]\s|\s[–—-]\s")
_FAULT = re.compile(
    r"\b(?:breaks|broke|fails?|failed|crash(?:es|ed)|leaks|loses|lost|hangs|rejects|corrupts|"
    r"deadlocks|times? out|drops|is (?:too|not|broken|deprecated)|no longer|cannot|can'?t|"
    r"does(?: not|n'?t)|never)\b",
    re.IGNORECASE,
)
"""What is wrong with the alternative, as in "pin foo: 2.0 breaks bar"."""
_FACT = re.compile(
    rf"^\W{{0,3}}(?:{LED})?(?:(?P<number>"
    r"(?:which|what)(?= (?:port|version|number|limit|size|timeout)\b)|"
    r"how (?:many|much|long|often|large|big)|cuánt[oa]s?|wie (?:viele?|oft|lange)|combien|"
    r"quant[oa]s?)|(?P<name>which|what|where|cuál|qué|dónde|welche[rsnm]?|was|wo|quel(?:le)?s?|où|"
    r"qual|quais|onde)|when|since when|does|do|did|is|are|has|have|cuándo|wann|quand|quando)\b",
    re.IGNORECASE,
)
"""The beginning of a question for a number, for a name or a place, for a date, or for a yes."""
_PURPOSE = re.compile(r"\b(?:do|can|should) (?:i|we|you)\b.{1,200}?(\bto [a-z].*)", re.IGNORECASE)
"""What the asker wants to do with the answer: "where do I set the key to connect?"."""
_POINTING = re.compile(r"\b(?:this|that|these|those|here|anything)\b", re.IGNORECASE)
_PARTS = re.compile(r"(?<=[.!?;])\s+|\s[-*•]\s")
_NAMED = re.compile(r"(?<=\w )[A-Z]\w+|`[^`]+`")
_NOT_A_FACT = re.compile(r"#\d+|[0-9a-f]{7,40}|\d{4}-\d\d-\d\d")
"""The number of a ticket, a hash and a date."""
_CHANGES: Mapping[str, str] = {
    **dict.fromkeys(stems_of("switch move migrate adopt introduce convert change replace"), "~to"),
    **dict.fromkeys(stems_of("drop remove delete retire deprecate"), "~off"),
}
"""Stems of verbs that report the same kind of change."""
_NOT_PROSE = re.compile(r"^\s*(?:[-*+|>#]|\d{1,3}[.)]\s|```|~~~|\S+:$)")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")


def lack_of(text: str, moment: Moment, prompts: int, hit: Hit) -> str:
    """The reason why `hit` is not worth showing with the prompt `text`, which is number `prompts`
    of its session; "" if there is none. Only documents and commits are judged."""
    kind = kind_of(hit.memory)
    if NAMED in hit.signals:
        return _own_lack(hit.memory, kind)
    least = MIN_SCORES.get(kind)
    if least is None or moment not in (Moment.QUESTION, Moment.FIRST_REQUEST):
        return ""
    if hit.score < least:
        return LOW.format(score=hit.score, least=least)
    if kind is MemoryKind.COMMIT and moment is Moment.QUESTION and states(hit.memory.text, text):
        is_conversation = prompts > 1 and _CONVERSATION.search(text)
        return MIDDLE if is_conversation else _prompt_lack(text)
    own = _own_lack(hit.memory, kind)
    return own or _prompt_lack(text) or _situation_lack(text, moment, prompts, hit)


def _own_lack(memory: Memory, kind: MemoryKind) -> str:
    if kind is MemoryKind.COMMIT:
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
    is_commit = kind_of(hit.memory) is MemoryKind.COMMIT
    is_conversation = not asks or bool(_CONVERSATION.search(text)) or is_commit
    if prompts > 1 and (is_conversation or hit.score < SURE):
        return MIDDLE
    if not asks and not is_commit and hit.score < LEAST_FOR_REQUEST:
        return LOW.format(score=hit.score, least=LEAST_FOR_REQUEST)
    if is_commit:
        return "" if _WHY.search(text) else NO_WHY
    return HOW_TO_WORK if is_note(hit.memory.source) and not asks else ""


def gives_reason(message: str) -> bool:
    """True if the body of a commit message gives a reason, or its subject does ("use X because Y",
    "pin foo: 2.0 breaks bar")."""
    subject, _, body = message.partition(". ")
    if len(body.split()) >= MIN_REASON_WORDS and _REASON.search(body):
        return True
    subject = _LABEL.sub("", subject)
    if len(subject.split()) < MIN_SUBJECT_WORDS:
        return False
    clause = _CLAUSE.search(subject)
    return bool(_BECAUSE.search(subject) or (clause and _FAULT.search(subject, clause.end())))


def states(message: str, text: str) -> bool:
    """True if a commit states the fact that a prompt asks for. Words in common are not enough: one
    sentence of the message has to contain what the question is about. If the question asks for a
    number, a name or a place, the sentence has to contain one that is not in the question."""
    if len(text.split()) > MAX_FACT_WORDS or _POINTING.search(text):
        return False
    return any(
        _is_answered(sentence, fact, message)
        for sentence in _SENTENCE_END.split(text)
        if (fact := _FACT.match(sentence))
    )


def without_outdated(text: str, hits: Sequence[Hit]) -> list[Hit]:
    """The hits without the older ones of several commits that state the fact asked for."""
    stating = [
        hit
        for hit in hits
        if kind_of(hit.memory) is MemoryKind.COMMIT and states(hit.memory.text, text)
    ]
    newest = max(stating, key=lambda hit: hit.memory.created_at or 0.0, default=None)
    return [hit for hit in hits if hit is newest or hit not in stating]


def _is_answered(question: str, fact: re.Match[str], message: str) -> bool:
    purpose = _PURPOSE.search(question)
    wanted = _concepts(question[fact.end() : purpose.start(1) if purpose else None])
    telling = wanted - everyday() - {*_CHANGES.values()}
    allowed = 1 if len(telling) >= LONG_QUESTION else 0
    known = {*exact_names(question), *question.split()}
    for part in _PARTS.split(message):
        shared = wanted & _concepts(part)
        lacking = (telling if len(telling) >= MIN_SHARED else wanted) - shared
        if not telling or len(shared) < MIN_SHARED or len(lacking) > allowed:
            continue
        if not (fact["number"] or fact["name"]):
            return True
        facts = {each for each in exact_names(part) - known if not _NOT_A_FACT.fullmatch(each)}
        if fact["number"] and any(map(str.isdigit, "".join(facts))):
            return True
        if fact["name"] and (facts or set(_NAMED.findall(part)) - known):
            return True
    return False


def _concepts(text: str) -> set[str]:
    return {_CHANGES.get(stem, stem) for stem in stems_of(text)}


def is_paper(source: str) -> bool:
    """True if this document records work (a plan, a task, a report, a changelog, a transcript)
    instead of describing the project."""
    *folders, file = (part.lstrip(".") for part in source.lower().split("/"))
    stem = file.partition(".")[0]
    words = _NAME_WORD.findall(stem)
    return (
        bool(_DATED.search(source))
        or not _PAPER_NAMES.isdisjoint([*folders, stem])
        or (bool(words) and words[-1] in _PAPER_ENDINGS)
    )


def has_sentence(text: str) -> bool:
    """True if `text` contains a whole sentence outside lists, tables, code and headings."""
    lines: list[str] = []
    is_code = False
    for line in text.split("\n"):
        if line.lstrip().startswith(("```", "~~~")):
            is_code = not is_code
        elif not is_code and not _NOT_PROSE.match(line):
            lines.append(line)
    sentences = _SENTENCE_END.split(" ".join(lines))
    return any(len(sentence.split()) >= MIN_SENTENCE_WORDS for sentence in sentences)
