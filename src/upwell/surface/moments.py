"""Moments: whether memories could help the agent now and, if so, which kinds. In real sessions, a
useful memory exists for one event in twenty. It answers the user's words, or it supplies an exact
fact after a step that went wrong. So each cue is assigned a moment (`moment_of()`), and each moment
admits only the kinds of memory that help in it (`suited()`). After a failure, those are the texts
that contain a name of it (`named_by_failure()`).
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum

from msgspec.structs import replace

from upwell.episodes.failures import is_refused
from upwell.ground.clock import Deadline
from upwell.ground.errors import RecallError
from upwell.ground.text.anchors import EXTENSIONS, relative_to
from upwell.ground.trace import LOG
from upwell.ground.types.cue import Moment
from upwell.ground.types.memory import LESSON, STATE, Hit, Memory, Query
from upwell.learn.learned import CASE_SIGN
from upwell.memory.base import MemoryReader
from upwell.surface.event import Event, asks_in_words, found_nothing, searches

# What a prompt asks or contradicts, by its first words, in English, Spanish, German, French and
# Portuguese. A prompt in one language is read by the patterns of all. So a word that also begins
# English sentences counts only together with words that follow it there: `comment faire`, but not
# `comment out`; `non, …`, but not `non-blocking`.
_START = r"^\W{0,3}"
LED = (
    r"(?:(?:also|and|ok|okay|so|but|now|then|well|hmm?|hey|hi|hello|btw|by the way|actually|oh|"
    r"alright|all right|right|great|thanks|thank you|cool|good|nice|perfect|yes|yeah|yep|wait|"
    r"sorry|again|next|quick question|one more (?:thing|question)|"
    r"y|pero|entonces|ahora|bueno|vale|oye|además|también|por cierto|perfecto|gracias|"
    r"und|aber|dann|gut|ja|danke|übrigens|et|mais|alors|bon|donc|sinon|d['’]accord|merci|"
    r"e|mas|então|agora|bem|também|aliás|obrigad[oa])\W{1,3}){1,4}"
)
"""Words that lead over to a question, as in "ok, so where is …"."""
_QUESTION = re.compile(
    rf"{_START}(?:why|how|where|what|which|who|when|is|are|does|do|did|can|could|should|was|were)\b",
    re.IGNORECASE,
)
_LED_QUESTION = re.compile(
    rf"{_START}{LED}(?:why|whose|who(?! knows)|"
    r"(?:how|where|what|which)\b(?! (?:i|we|you|they|it|means|possible|needed|necessary|an?)\b)|"
    r"(?:when|why) (?:is|are|was|were|do|does|did|will|can|should)|"
    r"(?:is|are|does|did|was|were) (?:i|we|you|they|it|there|this|that|these|those|the|an?|any|"
    r"my|our|your|all)|(?:can|could|should|do) (?:i|it|there|this|that|they|these|those))\b",
    re.IGNORECASE,
)
"""An imperative ("and do the same"), a request ("ok, can you …") and a clause ("and where possible,
use …") are no questions."""
_QUESTION_ELSEWHERE = re.compile(
    rf"{_START}(?:{LED})?(?:"
    r"cómo|por qu[eéê]|qué|cuál(?:es)?|dónde|adónde|cuándo|quién(?:es)?|cuánt[oa]s?|"
    r"como (?:se|puedo|hago|hacemos|podemos|es|está|esta|funciona|era|eu|faço|faz|fazer|posso|é|"
    r"fica|rodo|uso|a gente)|donde (?:está|esta|están|estan|se|hay|puedo|tengo|va)|"
    r"cual (?:es|era|sería)|que (?:es|hace|pasa|pasó|significa|hay)|hay (?:alguna?|forma|manera)|"
    r"se puede|sabes (?:si|cómo|como|dónde|donde)|"
    r"warum|wieso|weshalb|wohin|woher|womit|wofür|wozu|wann|welche[rsnm]?|"
    r"(?:wie|wo|wer|was) (?:ist|sind|war|hat|haben|habe|heißt|macht|mache|bedeutet|passiert|muss|"
    r"soll|sollen|kann|können|geht|läuft|liegt|finde|wird|werden|viele?|oft|lange|startet|"
    r"starte)|(?:gibt|ist|kann|können|muss|müssen|soll|sollen|läuft|geht|funktioniert) "
    r"(?:es|das|der|man|ich|wir|ein|eine)|"
    r"pourquoi|où|combien|quel(?:le)?s?|qu['’]est-ce|est-ce|c['’]est (?:quoi|où)|ou est|"
    r"comment (?:faire|fait|fonctionne|est|sont|puis|peut|peux|je|tu|nous|vous|se|ça|utiliser|"
    r"lancer|on (?:fait|peut|lance|utilise|configure))|y a-t-il|peut-on|faut-il|"
    r"qual|quais|onde|quem|o que (?:é|faz|acontece|significa|há|tem)|tem (?:como|algum)|"
    r"dá (?:para|pra)|é possível|quando (?:é|foi|vamos)"
    r")(?!\w)",
    re.IGNORECASE,
)
_CORRECTION = re.compile(
    rf"{_START}(?:no[,. ]|wrong\b|stop\b|don'?t\b|do not\b|never\b|always\b|instead\b|not what\b|"
    r"that'?s (?:not|wrong)|why (?:did|are|do|didn'?t|aren'?t|don'?t) you\b|as i said\b|"
    r"i (?:said|asked|told)\b|you (?:should|forgot|were supposed)\b|just (?:use|run)\b)",
    re.IGNORECASE,
)
_CORRECTION_ELSEWHERE = re.compile(
    rf"{_START}(?:"
    r"siempre|nunca|jamás|eso no|así no|está mal|(?:ya )?te (?:dije|pedí|he dicho)|ya dije|"
    r"en (?:vez|lugar) de|deberías|te olvidaste|olvidaste|mejor usa|"
    r"nein|falsch|stopp|nicht (?:so|das)|so nicht|bitte nicht|niemals|nie|"
    r"immer(?! (?:noch|wieder|mehr))|stattdessen|das (?:ist|war) (?:falsch|nicht)|"
    r"ich (?:habe|hatte|hab) (?:doch |dir )?(?:gesagt|gebeten)|ich sagte|wie gesagt|"
    r"du (?:solltest|sollst|hast vergessen)|warum (?:hast|machst|nimmst|benutzt) du|"
    r"nimm (?:lieber|stattdessen)|"
    r"non(?=[,.!;:])|non (?:pas|c['’]est|ce|il|tu|je|ne|utilise|prends)|arrête|jamais|"
    r"toujours(?! (?:pas|en|le|la|les)\b)|c['’]est (?:faux|pas)|ce n['’]est pas|"
    r"pas (?:ça|comme ça)|je (?:t['’]ai|vous ai) (?:dit|demandé)|"
    r"tu (?:devais|aurais dû|as oublié)|ne \w{2,20} (?:pas|jamais)|n['’]\w{2,20} (?:pas|jamais)|"
    r"au lieu de|plutôt|"
    r"n[ãa]o(?=[,.!;:])|não (?:use|usa|faça|mexa|toque|crie|altere|rode|era|é (?:isso|assim))|"
    r"sempre|errado|está errado|pare de|(?:eu|já) (?:te )?(?:disse|falei|pedi)|"
    r"você (?:deveria|devia|esqueceu)|em vez de|ao invés de"
    r")(?!\w)",
    re.IGNORECASE,
)


def is_question(text: str) -> bool:
    """True if a prompt is phrased as a question."""
    patterns = (_QUESTION, _LED_QUESTION, _QUESTION_ELSEWHERE)
    return "?" in text or any(pattern.match(text) for pattern in patterns)


def is_correction(text: str) -> bool:
    """True if a prompt begins by contradicting the agent."""
    return any(pattern.match(text) for pattern in (_CORRECTION, _CORRECTION_ELSEWHERE))


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
        text = cue.text.strip()
        if len(text) > MAX_QUESTION_CHARS:
            return Moment.ROUTINE
        if is_question(text) or is_correction(text):
            return Moment.QUESTION
        return Moment.ROUTINE if prompts_before else Moment.FIRST_REQUEST
    if asks_in_words(cue.args):
        return Moment.ASKING_CALL
    if cue.answer is not None and found_nothing(cue.args, cue.answer):
        return Moment.NOTHING_FOUND
    if cue.answer is not None and cue.answer.failed and cue.command:
        return Moment.FAILED
    if searches(cue.args) and cue.names:
        return Moment.NAME
    return Moment.FILE if cue.file else Moment.ROUTINE


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
        path = relative_to(cue.file, memory.project)
        return any(path == other or path.endswith(f"/{other}") for other in memory.paths)
    if moment is Moment.NAME:
        return any(name in memory.symbols or name in memory.text for name in cue.names)
    return True


# The names of a failure. Such a failure is about the surroundings of the work, and only a text that
# contains the very name says something about them: how the database on `localhost:5433` is started,
# or where `certs/dev.pem` comes from. The files of the code are named in every traceback, and the
# agent can read them.
HEAD_CHARS, TAIL_CHARS, MAX_LINE_CHARS = 2_000, 1_500, 300
MAX_NAMES, MAX_FOUND = 4, 8
NAMED_SCORE = 0.6
"""The score of a text that contains a name of the failure, whatever its other words."""
_FAULT = re.compile(
    r"no such file|not found|cannot (?:find|open|access|stat|connect)|can'?t (?:open|find|connect)|"
    r"does not exist|enoent|denied|eacces|refused|econn[a-z]{3,10}|enotfound|unreachable|"
    r"could(?: not|n'?t) (?:resolve|connect|open|find|read)|unable to|timed out|timeout|"
    r"unauthorized|forbidden|no route to host|failed to (?:connect|open|load|read|resolve)",
    re.IGNORECASE,
)
"""What is said of a host that does not answer, or of a file that is not there."""
_HOST = re.compile(
    r"(?<![\w./@-])(?:localhost|(?:[a-z0-9-]{1,63}\.){1,6}[a-z0-9-]{1,63})(?::[0-9]{2,5})?(?![\w-])",
    re.IGNORECASE,
)
_FILE = re.compile(
    r"(?<![\w/.:@~-])(?:~?/|\.{1,2}/)?(?:[\w.+-]{1,80}+/){1,12}+[\w.+-]{1,80}+", re.ASCII
)
_SCHEME = re.compile(r"\b[a-z][a-z0-9+.-]{1,20}://(?:[^\s/@]{1,80}@)?", re.IGNORECASE)
_PUBLIC = re.compile(
    r"(?:^|\.)(?:github|gitlab|bitbucket|npmjs|pypi|pythonhosted|crates|docker|googleapis|"
    r"example|debian|ubuntu|golang)\.[a-z]{2,4}$",
    re.IGNORECASE,
)
"""Hosts that many documents link to."""
_LOCAL = re.compile(r"localhost|0\.0\.0\.0|127\.[0-9.]+")
_NO_CODE = frozenset("cfg conf csv env ini json lock pem properties sql toml xml yaml yml".split())


async def named_by_failure(
    reader: MemoryReader, cue: Event, query: Query, deadline: Deadline
) -> Sequence[Hit]:
    """The documents and commits that contain a host, or a file that is no code, which the failure
    in `cue` names, each with the signal `NAMED`."""
    names = names_in(cue)
    if not names:
        return []
    by_name = Query(
        texts=(" ".join(names),),
        paths=tuple(name for name in names if "/" in name),
        scope=query.scope,
        limit=MAX_FOUND,
        awaited=False,
    )
    try:
        hits = (await reader.search(by_name, deadline)).hits
    except RecallError as error:
        LOG.info("the names of a failure were not searched for: %s", error.message)
        return []
    return [
        replace(hit, score=max(hit.score, NAMED_SCORE), signals={**hit.signals, NAMED: 1.0})
        for hit in hits
        if kind_of(hit.memory) in (MemoryKind.DOCUMENT, MemoryKind.COMMIT)
        and any(_contains(hit.memory.text, name) for name in names)
    ]


def names_in(cue: Event) -> list[str]:
    """The hosts and files that the error lines of a failed call name. Files in the project are
    relative to its folder."""
    out = cue.answer.text if cue.answer else ""
    if not out or is_refused(cue.step):
        return []
    tail = out[-TAIL_CHARS:] if len(out) > HEAD_CHARS else ""
    lines = f"{out[:HEAD_CHARS]}\n{tail}".split("\n")
    told = [line[:MAX_LINE_CHARS] for line in lines if _FAULT.search(line[:MAX_LINE_CHARS])]
    names = (name for line in told for name in (*_hosts(line), *_files(line, cue.cwd)))
    return list(dict.fromkeys(names))[:MAX_NAMES]


def _hosts(line: str) -> Iterator[str]:
    for match in _HOST.finditer(_SCHEME.sub(" ", line)):
        host, _, port = match[0].partition(":")
        ending = host.rpartition(".")[2].lower()
        is_number = host.replace(".", "").isdigit()
        if is_number and host.count(".") != 3:
            continue
        if not port and (is_number or _LOCAL.fullmatch(host) or ending in EXTENSIONS):
            continue
        if not _PUBLIC.search(host) and (is_number or host == "localhost" or ending.isalpha()):
            yield match[0]


def _files(line: str, folder: str | None) -> Iterator[str]:
    for match in _FILE.finditer(_SCHEME.sub(" ", line)):
        own = relative_to(match[0].rstrip("."), folder)
        ending = own.rpartition("/")[2].rpartition(".")[2].lower()
        if "/" in own and (ending not in EXTENSIONS or ending in _NO_CODE):
            yield own


def _contains(text: str, name: str) -> bool:
    """True if `text` contains the name, and not only as a part of a longer one."""
    at = text.lower().find(name.lower())
    end = at + len(name)
    before, after = text[at - 1 : at] if at > 0 else "", text[end : end + 1]
    return at >= 0 and not any(
        char.isalnum() or char in "-_." for char in before + after.rstrip(".")
    )
