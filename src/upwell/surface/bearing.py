"""Does a lesson bear on what the agent is doing now?

A lesson has words that should bring it up: tags, files and identifiers. Matching words alone say
little, because all lessons of a project are about the same things. So this module looks for phrases
that occur whole, weighs their words by how few lessons contain them, and relates them to what else
the agent is told: a word that decides a short question is a coincidence in a long plan.

The scale: at 1, a lesson is worth mentioning about as often as not.
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from functools import lru_cache

from msgspec import Struct
from msgspec.structs import replace

from upwell.ground.text.anchors import path_parts
from upwell.ground.text.words import informative
from upwell.ground.types.memory import Memory
from upwell.memory.lookups import stemmer
from upwell.memory.ranking.terms import EVERYDAY_WORDS, hidden_words, sound, word_list
from upwell.surface.moments import is_question

MAX_PROMPT_CHARS = 6_000
HEAD_CHARS, TAIL_CHARS = 2_000, 1_500
"""How much of the beginning and the end of a failed command's output is read."""
EVERYDAY_WEIGHT, NUMBER_WEIGHT = 0.25, 0.3
WORD_WEIGHT, PART_WEIGHT, TEXT_WEIGHT, RUN_BONUS = 0.7, 0.6, 0.3, 1.2
"""The weights of a match, relative to a tag of several words that all occur: a tag of one plain
word, a name of which most parts occur, a word of the text, and a tag that occurs as written."""
MAX_TEXT_WEIGHT = 1.0
"""The words of a lesson's text add at most this much."""
MIN_NAME_PARTS = 3
SHORT_PROMPT, LONG_PROMPT = 200, 1_500
"""A longer prompt is a plan or a paste. Words that are scattered in it do not make a phrase."""
BASE_SHARE, SHARE_WEIGHT = 0.4, 2.0
PROMPT_UNIT, FAILURE_UNIT = 1.5, 1.0
"""The weight of the matches at which a lesson is worth mentioning."""
QUESTION_FACTOR, ADVICE_FACTOR, REQUEST_FACTOR = 1.0, 0.65, 0.3
"""How much a later prompt needs a lesson, compared with the first of its session: a question; a
request, to which the lesson is advice; a request that goes on with work the agent is in."""
KNOWN_WEIGHT = 0.4
"""The weight of words that an earlier prompt of the session had. A lesson on what the session is
about should have been said then."""
MIN_LETTERS = 0.75
"""A prompt with a smaller share of letters and spaces is pasted code or output."""
MIN_BRIEF_WORDS = 4
MIN_UNIQUE_PARTS = 5
"""An identifier with as many parts, such as that of a constraint, occurs in one context only."""
MIN_ERROR_WORDS = 3
CODE_WEIGHT, CLASS_WEIGHT, CALL_WEIGHT, MAX_CALL_WORDS = 0.7, 0.3, 0.25, 3
"""The weights of an error's code, of its class (`TypeError`), and of each word of the command that
the lesson quotes too."""
ADVICE = frozenset({"error_fix", "environment", "command", "pitfall", "preference"})
"""The kinds of lessons that tell how to do something here, rather than what there is."""
FIX_FACTOR = 1.1
"""At an error, a lesson on that error comes before a lesson on the command."""
FIXES = frozenset({"error_fix", "environment", "command", "pitfall"})
"""The kinds of lessons (`Provenance.tool`) that help with a failed command."""
WARNINGS = frozenset({"pitfall", "convention", "error_fix"})
"""The kinds of lessons that an agent needs before it changes a file."""
FILE_WEIGHT = 0.3
WHEREABOUTS = frozenset({"place", "state", "decision", "pitfall", "convention"})
"""The kinds of lessons that may say where a missing file went."""
_NAME = re.compile(r"[\d_./\\#-]|[a-z][A-Z]|[A-Z]{2}")
_FILE = re.compile(r"[/\\]|\.[a-z]{1,5}$", re.IGNORECASE)
_TICKET = re.compile(r"#\d{2,}|[A-Z][A-Z\d]{1,9}-\d+")
_CODE = re.compile(r"[A-Z]{1,8}\d{2,}|[A-Z]{4,}|\d{5,}")
_CLASS = re.compile(r"[A-Za-z]+(?:Error|Exception|Warning)")
"""What an error is called: its code (`E0433`, `EPERM`, `23502`), or its class (`TypeError`)."""
_HOST = re.compile(r"\bhttps?://[^/\s]++", re.IGNORECASE)
_TRACE = re.compile(
    r"(?:error|exception)\W{0,3}:|:\d+:\d+|^Traceback", re.IGNORECASE | re.MULTILINE
)
"""The mark of output that a user pasted."""
_HEADING = re.compile(r"^#{1,3} ", re.MULTILINE)
_ECHO = re.compile(r"^[$>+] .*$", re.MULTILINE)
"""A line in which a shell or a task runner shows the command that it runs."""
_GENERIC = frozenset(
    """
    a access an argument arguments be can cannot code command connection could denied directory does
    error errors exist exit failed file flag found in invalid is module named no not of on
    operation option or permission permitted refused such t the timed to out unexpected unknown
    unrecognized was with
    """.split()
)
"""The words of errors that any program may report."""
_STATUS = re.compile(r"exit(?:ed)? (?:with )?(?:code |status )?\d+")


_EVERYDAY_ELSEWHERE = frozenset(
    """
    aca agrega agregar ahora algo alli alt alte ancien aparece aparecen aqui asi aussi besoin bem
    bien brauche cambia cambiar changer dann debe deberia dois doit error erreur erro fais faire
    falsch falta faltan faz fazer fehler fehlt gleich gut hacemos hacer haz hier hinzu ici igual
    jetzt lista liste luego mach machen maintenant mal manque meme misma mismo mostrar mudar muestra
    muss nada necesitamos necesito neu neue nichts nouveau nouvelle nova novo nueva nuevo pagina pon
    poner preciso probleme problema quand quando quero quiero quisiera rien sehe sehen seite siehe
    sigo sigue soll tambem tambien tout tudo vejo veo ver ves veux vieja viejo viendo voir vois will
    """.split()
)
"""Everyday words of other languages than English, folded."""


class LessonPhrase(Struct, frozen=True):
    """A tag, file or identifier of a lesson: as written, as the words of the index joined by
    spaces, and as stems. `is_command` is True if the lesson tells to run it."""

    text: str
    run: str
    stems: tuple[str, ...]
    is_command: bool = False

    @property
    def is_name(self) -> bool:
        """True if it looks like code rather than like plain words."""
        return bool(_NAME.search(self.text))


class PreparedLesson(Struct, frozen=True):
    """A memory that is prepared for matching."""

    memory: Memory
    phrases: tuple[LessonPhrase, ...]
    stems: frozenset[str]

    @property
    def kind(self) -> str:
        """What the lesson is: `command`, `decision`, …"""
        return self.memory.provenance.tool


class Bearing(Struct, frozen=True):
    """How much a lesson bears on a cue (`weight`, 1 at the threshold), and which of its words do.
    `is_remedy` is True if the cue is a call that went wrong."""

    lesson: PreparedLesson
    weight: float
    words: frozenset[str] = frozenset()
    is_remedy: bool = False


def prepared(memory: Memory) -> PreparedLesson:
    """The phrases and stems of a lesson."""
    texts = dict.fromkeys((*memory.tags, *memory.symbols, *memory.paths))
    phrases = tuple(
        phrase
        for text in texts
        # A piece of code that begins with `text` is a command if it has a small letter there. An
        # error in code begins with a capital letter or is a part of it.
        if (phrase := _phrase(text, text[:1].islower() and f"`{text}" in memory.text)).stems
    )
    words = (word for phrase in phrases for word in phrase.stems)
    return PreparedLesson(memory, phrases, frozenset((*stems_of(memory.text), *words)))


@lru_cache(maxsize=8_192)
def _phrase(text: str, is_command: bool) -> LessonPhrase:
    return LessonPhrase(text, " ".join(word_list(sound(text))), tuple(stems_of(text)), is_command)


def stems_of(text: str) -> list[str]:
    """The stems of the informative words in a text, each once."""
    clean = sound(text)
    words = informative([*word_list(clean), *hidden_words(clean)])
    return list(dict.fromkeys(stemmer().stems(words)))


@lru_cache(maxsize=1)
def everyday() -> frozenset[str]:
    """The stems of words that say nothing about what a text is about."""
    return frozenset(stemmer().stems(sorted(EVERYDAY_WORDS | _EVERYDAY_ELSEWHERE)))


class Text(Struct, frozen=True):
    """A text to match: the words of the index between spaces, and its informative stems."""

    run: str
    stems: Mapping[str, int]

    def has(self, phrase: LessonPhrase) -> bool:
        """True if the phrase occurs as written."""
        return f" {phrase.run} " in self.run


def text_of(text: str) -> Text:
    """`text`, ready for matching."""
    clean = sound(text)
    words = word_list(clean)
    telling = informative([*words, *hidden_words(clean)])
    stem_of = dict(zip(telling, stemmer().stems(telling), strict=True))
    return Text(f" {' '.join(words)} ", Counter(stem_of[word] for word in words if word in stem_of))


_NO_CALL = Text(" ", {})


class PreparedPrompt(Struct, frozen=True):
    """A prompt that is prepared for matching. `known` contains the stems of the session's earlier
    prompts. `is_brief` is True for a plan or a paste."""

    text: Text
    known: Set[str]
    is_brief: bool
    is_question: bool

    def factor(self, lesson: PreparedLesson) -> float:
        """How much a prompt at this point of its session needs such a lesson."""
        if not self.known:
            return 1.0
        if self.is_question:
            return QUESTION_FACTOR
        return ADVICE_FACTOR if lesson.kind in ADVICE else REQUEST_FACTOR


def prompt_of(prompt: str, known: Set[str]) -> PreparedPrompt:
    """A prompt after prompts with the stems `known`. The hosts of its links are left out, but not
    their paths, which may have a ticket's number."""
    bare = _HOST.sub(" ", prompt[:MAX_PROMPT_CHARS])
    letters = sum(char.isalpha() or char.isspace() for char in bare)
    is_line = len(bare) <= SHORT_PROMPT and "\n" not in bare.strip()
    is_output = not is_line and bool(_TRACE.search(bare))
    is_paste = letters < MIN_LETTERS * len(bare) or is_output
    is_brief = len(bare) > LONG_PROMPT or is_paste or bool(_HEADING.search(bare))
    return PreparedPrompt(text_of(bare), known, is_brief, is_question(prompt))


class Book:
    """The lessons that one cue may get, and how many sessions taught something with each word. A
    session that wrote several lessons on one thing does not make its name common."""

    def __init__(self, lessons: Sequence[PreparedLesson]) -> None:
        self.lessons = lessons
        sources = [lesson.memory.provenance.session or lesson.memory.id for lesson in lessons]
        self._holders: defaultdict[str, list[int]] = defaultdict(list)
        for number, lesson in enumerate(lessons):
            for stem in lesson.stems:
                self._holders[stem].append(number)
        self._of_name: defaultdict[str, list[PreparedLesson]] = defaultdict(list)
        for lesson in lessons:
            for name in {path.rpartition("/")[2] for path in lesson.memory.paths}:
                self._of_name[name].append(lesson)
        self._errors = {
            (phrase.text, phrase.run)
            for lesson in lessons
            for phrase in lesson.phrases
            if _error_weight(phrase) == 1.0
        }
        runs = {
            (phrase.run, source)
            for lesson, source in zip(lessons, sources, strict=True)
            for phrase in lesson.phrases
        }
        self._names = Counter(run for run, _ in runs)
        self._sources = sources
        self._rarity: dict[str, float] = {}
        self._scale = math.log(len(set(sources)) + 3)

    def rarity(self, stem: str) -> float:
        """1 for a word that only one session taught, nearly 0 for a word that all did."""
        if stem not in self._rarity:
            holders = {self._sources[number] for number in self._holders.get(stem, ())}
            share = math.log(max(1, len(holders))) / self._scale
            weight = NUMBER_WEIGHT if stem.isdigit() and len(stem) < 3 else 1.0
            weight = EVERYDAY_WEIGHT if stem in everyday() else weight
            self._rarity[stem] = weight * (1 - share)
        return self._rarity[stem]

    def _name_rarity(self, phrase: LessonPhrase, text: Text) -> float:
        """The rarity of an identifier that occurs as written. It may be rare although its parts are
        everyday words (`apply_updates`)."""
        if not phrase.is_name or _FILE.search(phrase.text) or not text.has(phrase):
            return 0.0
        return 1 - math.log(max(1, self._names[phrase.run])) / self._scale

    def sharing(self, stems: Iterable[str]) -> list[PreparedLesson]:
        """The lessons that contain one of these stems."""
        numbers = {number for stem in stems for number in self._holders.get(stem, ())}
        return [self.lessons[number] for number in sorted(numbers)]

    def at_prompt(self, prompt: PreparedPrompt) -> list[Bearing]:
        """The lessons that bear on a prompt, in no particular order."""
        mass = self.mass(prompt)
        lessons = self.sharing(prompt.text.stems)
        return [self.on_prompt(lesson, prompt, mass) for lesson in lessons]

    def mass(self, prompt: PreparedPrompt) -> float:
        """The weight of all words of a prompt."""
        return sum(map(self.rarity, prompt.text.stems)) or 1.0

    def on_prompt(self, lesson: PreparedLesson, prompt: PreparedPrompt, mass: float) -> Bearing:
        """How much a lesson bears on a prompt, whose words weigh `mass` together."""
        text = prompt.text
        if prompt.is_brief:
            quoted = self._on_failure(lesson, text, _NO_CALL, frozenset())
            is_remedy = lesson.kind in FIXES and quoted.weight > 0
            return quoted if is_remedy else _on_brief(lesson, text)
        weights: dict[str, float] = {}
        named = 0.0
        for phrase in lesson.phrases:
            if lesson.kind == "place" and _FILE.search(phrase.text):
                continue  # The user who names the file knows where it is.
            weight = _weight_at_prompt(phrase, text)
            rarity_of_name = self._name_rarity(phrase, text) if weight else 0.0
            least = rarity_of_name / len(phrase.stems)
            named = max(named, rarity_of_name * (len(phrase.run.split()) > 1))
            for stem in phrase.stems if weight else ():
                if stem in text.stems:
                    rarity = max(least, self.rarity(stem))
                    weights[stem] = max(weights.get(stem, 0.0), weight * rarity)
        rest = sum(map(self.rarity, lesson.stems & text.stems.keys() - weights.keys()))
        share = (sum(weights.values()) + rest) / mass
        new = sum(
            weight * (KNOWN_WEIGHT if stem in prompt.known else 1.0)
            for stem, weight in weights.items()
        )
        total = new + min(MAX_TEXT_WEIGHT, TEXT_WEIGHT * rest)
        total *= max(named, min(1.0, BASE_SHARE + SHARE_WEIGHT * share)) * prompt.factor(lesson)
        return Bearing(lesson, total / PROMPT_UNIT, frozenset(weights))

    def noise_in(self, output: str) -> set[str]:
        """The errors of lessons that occur in the output of a command that succeeded."""
        return {run for text, run in self._errors if text in output}

    def at_failure(self, command: str, output: str, noise: Set[str] = frozenset()) -> list[Bearing]:
        """The lessons that bear on a failed command, in no particular order. `noise` contains
        errors that say nothing, because they also occur when a command succeeds."""
        read = f"{output[:HEAD_CHARS]}\n{output[HEAD_CHARS:][-TAIL_CHARS:]}"
        error = text_of(_ECHO.sub("", read))
        call = text_of(command)
        bearings = (
            self._on_failure(lesson, error, call, noise)
            for lesson in self.sharing(error.stems)
            if lesson.kind in FIXES
        )
        return [bearing for bearing in bearings if bearing.weight]

    def _on_failure(
        self, lesson: PreparedLesson, error: Text, call: Text, noise: Set[str]
    ) -> Bearing:
        """An error counts if the lesson quotes three words of it, or its name or code. The command
        adds to that, but does not count alone: most commands that fail do so for a new reason."""
        quoted = [
            phrase
            for phrase in lesson.phrases
            if error.has(phrase)
            and not call.has(phrase)
            and _error_weight(phrase)
            and phrase.run not in noise
        ]
        weights: dict[str, float] = {}
        for phrase in quoted:
            for stem in phrase.stems:
                weight = _error_weight(phrase) * self.rarity(stem)
                weights[stem] = max(weights.get(stem, 0.0), weight)
        if all(_error_weight(phrase) <= CLASS_WEIGHT for phrase in quoted):
            return Bearing(lesson, 0.0)
        called = [len(each.run.split()) for each in lesson.phrases if call.has(each)]
        words = min(MAX_CALL_WORDS, max(called, default=0))
        is_sentence = any(_error_weight(phrase) == 1.0 for phrase in quoted)
        program = set(list(call.stems)[:3]) - everyday()
        if not (is_sentence or words or lesson.stems & program):
            return Bearing(lesson, 0.0)
        total = sum(weights.values()) + CALL_WEIGHT * words
        total *= FIX_FACTOR if lesson.kind == "error_fix" else 1.0
        return Bearing(lesson, total / FAILURE_UNIT, frozenset(weights), is_remedy=True)

    def at_file(self, file: str, prompt: PreparedPrompt) -> list[Bearing]:
        """The lessons that warn of this file, if they also bear on what the user asked for. A file
        alone says nothing: an agent that opens it will see what it contains."""
        path = "/".join(path_parts(file))
        about = self._of_name.get(path.rpartition("/")[2], ())
        mass = self.mass(prompt) if about else 1.0
        bearings = (
            replace(on_prompt, weight=on_prompt.weight + FILE_WEIGHT)
            for lesson in about
            if lesson.kind in WARNINGS and _is_about(lesson, path)
            if (on_prompt := self.on_prompt(lesson, prompt, mass)).words
        )
        return list(bearings)

    def at_absence(self, name: str) -> list[Bearing]:
        """The lessons that may say where a file with this name is, or what became of it."""
        stems, lower = frozenset(stems_of(name)), name.casefold()
        if not stems:
            return []
        return [
            Bearing(lesson, 1.0, stems)
            for lesson in self.sharing(stems)
            if lesson.kind in WHEREABOUTS
            and lower in lesson.memory.text.casefold()
            and any(phrase.text.casefold().rpartition("/")[2] == lower for phrase in lesson.phrases)
        ]

    def siblings(self, said: Bearing, others: Sequence[Bearing]) -> list[Bearing]:
        """Those of `others` that complete `said`: one session taught both, about the same thing."""
        source = said.lesson.memory
        return [
            other
            for other in others
            if other.lesson.memory.provenance.session == source.provenance.session
            and other.lesson.memory.id != source.id
            and len(_subjects(other.lesson) & _subjects(said.lesson)) > 0
        ]


def _on_brief(lesson: PreparedLesson, brief: Text) -> Bearing:
    """A plan or a paste brings its own context. A lesson still helps if it is about a command or an
    error that the prompt quotes."""
    if lesson.kind not in FIXES:
        return Bearing(lesson, 0.0)
    named = [
        phrase
        for phrase in lesson.phrases
        if (phrase.is_command or _error_weight(phrase) >= CODE_WEIGHT)
        and len(phrase.run.split()) >= MIN_BRIEF_WORDS
        and brief.has(phrase)
    ]
    stems = frozenset(stem for phrase in named for stem in phrase.stems)
    return Bearing(lesson, float(len(named)), stems)


def _weight_at_prompt(phrase: LessonPhrase, text: Text) -> float:
    present = [stem for stem in phrase.stems if stem in text.stems]
    if not present:
        return 0.0
    is_run = text.has(phrase)
    if _TICKET.fullmatch(phrase.text):
        return 2 * RUN_BONUS if is_run else 0.0
    if len(phrase.stems) == 1:
        return (RUN_BONUS if phrase.is_name else WORD_WEIGHT) if is_run or present else 0.0
    if is_run:
        return RUN_BONUS
    if len(present) == len(phrase.stems):
        return 1.0
    if not phrase.is_name or len(phrase.stems) < MIN_NAME_PARTS:
        return 0.0
    ends = (phrase.run.partition(" ")[2], phrase.run.rpartition(" ")[0])
    if any(f" {part} " in text.run for part in ends):
        return 1.0
    return PART_WEIGHT if 3 * len(present) >= 2 * len(phrase.stems) else 0.0


def _error_weight(phrase: LessonPhrase) -> float:
    """How much it says that an output contains this phrase. A file or a name says nothing: it is
    what the work is about. Nor does an error that any program may report."""
    if phrase.is_command or _STATUS.search(phrase.run):
        return 0.0
    if " " in phrase.text:
        is_telling = not _GENERIC.issuperset(phrase.run.split())
        return float(is_telling and len(phrase.run.split()) >= MIN_ERROR_WORDS)
    if _CLASS.fullmatch(phrase.text):
        return CLASS_WEIGHT
    is_file = bool(_FILE.search(phrase.text))
    is_unique = len(phrase.run.split()) >= MIN_UNIQUE_PARTS and not is_file
    return CODE_WEIGHT if is_unique or _CODE.fullmatch(phrase.text) else 0.0


def _is_about(lesson: PreparedLesson, path: str) -> bool:
    """True if the lesson names this file with its folder."""
    return any("/" in other and f"/{path}".endswith(f"/{other}") for other in lesson.memory.paths)


def _subjects(lesson: PreparedLesson) -> Set[str]:
    return {phrase.run for phrase in lesson.phrases}
