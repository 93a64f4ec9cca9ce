"""The words of memories and queries before stemming, and how rare a query's words are."""

import math
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

from msgspec import Struct

from upwell.ground.text.words import cjk_terms, fold, informative, path_words, split_identifier
from upwell.ground.types.memory import Memory

EVERYDAY_WORDS = frozenset(
    """
    able absolutely access action actually add added adding agree agreed allow almost already also
    always amazing another answer anything app apply approve approved area around ask asked
    available away awesome back bad based basic bed begin best better big bit body book branch
    break bring bug build built bump busy bye call called came case cause center change changed
    changes check cheers children class clean cleanup clear close code come command comment commit
    common complete config continue cool copy correct could couple course create created current
    daily data date day days deal dear default define delete depend describe detail did different
    directory docs documentation done door down draft drop easy edit else enable end enjoy enough
    ensure error errors even ever every everyone everything exactly example existing exit expect
    experience explain explore extra fact fail failed failing fails fall false family far fast
    favorite feature feel few file files fill final find fine finish first fix fixed fixes fixing
    folder follow food format found free friend friends full fun function functions game gave
    general get give given glad go goal going gone good goodbye got great group guess guy hand
    happen happened happy hard hear heard hello help here hey hi high hit hmm hold home hope hour
    house huge idea image implement implementation implemented import important improve include
    including inside instead interesting issue issues item job join just keep kids kind know known
    large last late later latest learn leave left let level lgtm life light like likely line lines
    link lint list little live load local log long look looking looks lot lots love made main make
    makes making manage many matter maybe mean means meet merge message method mind minor minute
    miss missing mode module money month months morning move much music must name nature need
    needed needs never new next nice night nope normal note nothing now number object off office
    often okay old one only open option options order original other output outside own package
    page park part pass passing path pay people perfect person photo picture ping place plan play
    please point possible post prepare present pretty previous print probably problem proceed
    process program project properly provide pull push put question quick quite raise ran random
    rather reach read ready real really reason recent refactor related release remember remove
    removed removing rename replace reply report request require rerun resolve rest restart result
    retry return returns revert review rework rid right road roger room run running said same saw
    say school script second section see seem seen send sense server set setting settings setup
    share ship short should show showing side sign similar simple simplify since single site size
    skip small something soon sorry sort sound source special spend stand start started stash state
    statement status stay step still stop story string strong stuff style such summarise summarize
    summary super support supported sure sync system tag take taken taking talk task team tell test
    testing tests text thanks thing things think thought thousand three tidy time times today
    together told tomorrow tonight took tool top totally track travel tried true try trying turn
    two type types understand undo unit unused update updated updates updating upgrade use used
    useful user users uses using usual value values variable version very view visit wait walk
    wanna want wanted warning was watch water way week weekend weeks well went whole wip wonder
    wonderful word work worked working works world worry would wow wrap write wrong year years yep
    yes yesterday yet young yup
    """.split()
)


_STATES, _FEW_WORDS = frozenset({"down", "off", "out"}), 2
"""Words for the state of a service or switch. They are stop words, but a query with at most
`_FEW_WORDS` other words keeps them, because they carry half of its meaning."""
MAX_WORD_CHARS = 64
"""Longer runs of letters and digits (hashes, base64) are neither counted nor searched for."""
MAX_CACHED_TEXTS, MAX_CACHED_TEXT_CHARS = 4_096, 2_000
_SPEAKER_CHARS = 100

_WORD = re.compile(r"[^\W_]+")
_ASCII = "".join(chr(code).lower() if chr(code).isalnum() else " " for code in range(128))
"""The characters of ASCII text in lower case, with a space for each that belongs to no word."""
_IDENTIFIER = re.compile(r"[^\W\d]\w*")
_CAMEL = re.compile(r"[a-z0-9][A-Z]|[A-Z]{2}[a-z]")
_CJK = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff]+")
_SURROGATES = re.compile("[\ud800-\udfff]")
_SPEAKER = re.compile(r"\s*([^\W\d_][\w'’.-]*(?: [^\W\d_][\w'’.-]*){0,2}):\s")
_NAME_LIKE = re.compile(r"\b(?:[^\W\d_]+\d[^\W_]*|[A-Z][^\W\d_]+|[A-Z]{2,})\b")
_OPENING_MARKS = " \t\"'(“‘¿¡"
_LABELS = frozenset(
    """
    api author bugfix build chore ci cli co-authored-by debug deps doc docs feat fix fixes hotfix
    hint http info memory note perf ref refactor result signed-off-by style tests todo ui url warn
    """.split()
)


class IndexedText(Struct, frozen=True):
    """The text that a store indexes for a memory. `extra` contains words from the memory's context,
    and words that are not separate words of `body`: parts of identifiers and paths, tags, and pairs
    of CJK characters."""

    body: str
    extra: str


def indexed(memory: Memory, around: str = "") -> IndexedText:
    """Return the text to index for `memory`. `around` contains words from the memory's context,
    such as the headings above a chunk of a document."""
    body = sound(memory.text)
    extra = hidden_words(body)
    for path in memory.paths:
        extra += path_words(sound(path))
    for name in (*memory.symbols, *memory.tags):
        extra += split_identifier(sound(name))
    extra += word_list(sound(around))
    return IndexedText(body, " ".join(dict.fromkeys(extra)))


def hidden_words(text: str) -> list[str]:
    """Return the parts of camel-case identifiers, and pairs of CJK characters."""
    words: list[str] = []
    for match in _IDENTIFIER.finditer(text):
        if _CAMEL.search(match.group()):
            words += split_identifier(match.group())
    for match in _CJK.finditer(text):
        words += cjk_terms(match.group())
    return words


def sound(text: str) -> str:
    """Make `text` safe for every store: replace lone surrogates, and turn each NUL into a space."""
    if "\0" in text:
        text = text.replace("\0", " ")
    return text if text.isascii() else _SURROGATES.sub("\ufffd", text)


def word_list(text: str) -> list[str]:
    """Return the words of `text` in order, folded and split as in the index. Overlong words are
    left out."""
    if text.isascii():
        return [word for word in text.translate(_ASCII).split() if len(word) <= MAX_WORD_CHARS]
    return [
        word if word.isascii() else fold(word)
        for word in _WORD.findall(text.lower())
        if len(word) <= MAX_WORD_CHARS
    ]


def query_words(text: str) -> list[str]:
    """Return the informative words of a query, each once. Stop words are removed. Identifiers and
    CJK runs are split as in the index. A query with only one or two informative words keeps its
    state words, such as `down`. A query that consists of stop words keeps all of them."""
    clean = sound(text)
    words = word_list(clean) + hidden_words(clean)
    telling = informative(words)
    if 0 < len(telling) <= _FEW_WORDS:
        retained = {*telling, *_STATES}
        return list(dict.fromkeys(word for word in words if word in retained))
    return telling or list(dict.fromkeys(words))


def names_in(text: str) -> set[str]:
    """Return the folded words of a query that look like names: `JC`, and inside a sentence also
    `urllib3` or a capitalised word."""
    names: set[str] = set()
    clean = sound(text)
    for match in _NAME_LIKE.finditer(clean):
        before = clean[: match.start()].rstrip(_OPENING_MARKS)
        starts_sentence = not before or before[-1] in ".!?:\n"
        if not (starts_sentence and match.group()[1:].islower()):
            names.add(fold(match.group()))
    return names


def speaker(text: str) -> str:
    """Return the folded name of the speaker in a text like `Ana: …`, or "" for any other text. A
    name begins with a capital letter. A label such as `Fix: …` or an everyday word is not a
    name."""
    match = _SPEAKER.match(text)
    if not match or not match.group(1)[0].isupper():
        return ""
    name = fold(match.group(1))
    first = name.split()[0]
    return "" if first in _LABELS or first in EVERYDAY_WORDS else name


class Worded(Struct, frozen=True):
    """The words of a text in order, folded and unstemmed, and its speaker ("" if there is none)."""

    words: Sequence[str]
    speaker: str


def words_of(text: str) -> Worded:
    """Return the words of `text`. Short texts are cached, because searches read the same candidates
    repeatedly."""
    return _short(text) if len(text) <= MAX_CACHED_TEXT_CHARS else _worded(text)


def _worded(text: str) -> Worded:
    # The garbage collector need not follow a tuple of strings.
    return Worded(tuple(word_list(sound(text))), speaker(text[:_SPEAKER_CHARS]))


_short = lru_cache(maxsize=MAX_CACHED_TEXTS)(_worded)


MAX_TEXTS = 3
"""How many of a query's texts are searched (seed 003, tests/NAMES.md)."""
MAX_WORDS = 96
"""Only this many words of a text are looked up. That is enough to show what a pasted file is
about."""
MAX_NAMED_CHARS = 4_000
LEAST_MEMORIES = 500
COMMON_SHARE = 0.05


class Corpus(Struct, frozen=True):
    """The memories that a query may see: the numbers of their scopes, the number of memories, and
    the total number of words."""

    scopes: tuple[int, ...]
    memories: int
    words: int

    @property
    def mean_words(self) -> float:
        return max(1.0, self.words / self.memories) if self.memories else 1.0

    @property
    def rarest(self) -> float:
        """The idf of a word that only one memory contains."""
        return self.idf(1)

    def idf(self, holding: int, *, common: bool = False) -> float:
        """Return the rarity of a word that `holding` memories contain (Robertson/Sparck Jones idf,
        never negative).

        A few memories do not show which words are rare, so a small store is treated as if imaginary
        memories filled it up to `LEAST_MEMORIES`. If the word is `common`, one in twenty of these
        is assumed to contain it.
        """
        size = max(self.memories, LEAST_MEMORIES)
        total = holding + (COMMON_SHARE * (size - self.memories) if common else 0.0)
        return _idf(size, total)


@lru_cache(maxsize=1024)
def _idf(size: int, holding: float) -> float:
    return math.log(1.0 + (max(0.0, size - holding) + 0.5) / (holding + 0.5))


class QueryReading(Struct, frozen=True):
    """A query text, read against a corpus.

    `idf` contains every stem of the text, even if no memory has it, and `mass` is the sum of `idf`.
    `holding` maps each stem to the number of memories that have it. `telling` contains the stems
    of words that are not everyday words. `names` contains the stems of words that look like names.
    `in_vocabulary` is the share of stems that occur in some memory.
    """

    text: str
    words: tuple[str, ...]
    stems: tuple[str, ...]
    idf: Mapping[str, float]
    holding: Mapping[str, int]
    telling: frozenset[str]
    names: frozenset[str]
    mass: float
    in_vocabulary: float


def reading_of(
    text: str, word_of: Mapping[str, str], holding: Mapping[str, int], corpus: Corpus
) -> QueryReading:
    """Read `text` against `corpus`. `word_of` maps each stem of the text to the first word with
    that stem. `holding` is as in `QueryReading`."""
    names = names_in(text[:MAX_NAMED_CHARS])
    idf = {
        stem: corpus.idf(holding[stem], common=word in EVERYDAY_WORDS)
        for stem, word in word_of.items()
    }
    return QueryReading(
        text=text,
        words=tuple(word_of.values()),
        stems=tuple(word_of),
        idf=idf,
        holding=holding,
        telling=frozenset(stem for stem, word in word_of.items() if word not in EVERYDAY_WORDS),
        names=frozenset(stem for stem, word in word_of.items() if word in names),
        mass=sum(idf.values()),
        in_vocabulary=sum(map(bool, holding.values())) / len(word_of) if word_of else 0.0,
    )
