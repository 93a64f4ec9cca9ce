"""What to look for when somebody says something (seed 003): is it worth looking, and for what.

Up to three queries: the message itself, its keywords, and the names in it.
"""

import re
import unicodedata
from functools import lru_cache

from upwell.ground.text.counts import counted
from upwell.ground.text.lexicon import Lexicon
from upwell.ground.text.words import fold, informative, words

MAX_ORIGINAL_CHARS = 500
MAX_KEYWORDS = 5
MAX_READ_CHARS = 4000
MIN_WORDS = 3
CJK_CHARS_A_WORD = 2
"""Of scripts without spaces: most words are of one or two characters."""
MAX_ACRONYM = 10
MAX_POLITE_WORDS = 16

_SLASH = re.compile(r"^/([A-Za-z][\w:.-]*)(?=\s|$)")
_ROOT_FOLDERS = frozenset("tmp etc usr var home opt dev proc mnt srv sys root".split())
_COMMANDS = frozenset(
    "help status usage whoami new compact clear mcp doctor who context memory".split()
)
"""Slash commands that seed 003's origin and its hosts know."""
_QUESTION_MARKS = "?？؟՞⸮\u037e"
"""Also of Arabic, Armenian and Greek."""
_EDGES = re.compile(r"^[^\w]+|[^\w]+$")
_SPACELESS = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]+"
)
"""Thai, Lao, Burmese, Khmer, Japanese and Chinese are written without spaces; Korean is not."""


class Messages:
    """Reads messages by the lists of a lexicon."""

    def __init__(self, lexicon: Lexicon) -> None:
        self._stop_words = {word.casefold() for word in lexicon.stop_words}
        self._greetings = {_bare(entry) for entry in lexicon.greetings}
        self._acknowledgements = {_bare(entry) for entry in lexicon.acknowledgements}
        self._requests = {_bare(entry) for entry in lexicon.requests}
        self._polite_phrases = self._greetings | self._acknowledgements
        self._not_names = {fold(word) for word in lexicon.not_names}

    def not_applicable(self, message: str) -> str:
        """Why a message needs no look at memory, or "" when it may."""
        text = message[:MAX_READ_CHARS].strip()
        if not text:
            return "empty message"
        if self._is_command(text):
            return "slash command"
        bare = _bare(text)
        if not bare and not any(mark in text for mark in _QUESTION_MARKS):
            return "greeting"
        if bare in self._greetings:
            return "greeting"
        if bare in self._acknowledgements or self._polite(bare):
            return "acknowledgement"
        count = word_count(text[:MAX_ORIGINAL_CHARS])
        if count < MIN_WORDS and not any(mark in text for mark in _QUESTION_MARKS):
            return f"{counted(count, 'word')} and no question"
        return ""

    def queries(self, message: str) -> tuple[str, ...]:
        """Up to three: original, keywords, persona; those that say the same are left out."""
        original = message[:MAX_READ_CHARS].strip()[:MAX_ORIGINAL_CHARS]
        persona = self.names(original)
        keywords = self._keywords(original, persona)
        found = [original] if original else []
        if keywords and keywords != original.lower():
            found.append(keywords)
        if persona and (joined := " ".join(persona)) not in found:
            found.append(joined)
        return tuple(found)

    def names(self, message: str) -> list[str]:
        """Words that look like names: a capital first, or a short word all in capitals."""
        found: dict[str, None] = {}
        for token in message.split():
            name = _EDGES.sub("", token).removesuffix("'s").removesuffix("’s")
            if not name or not name[0].isupper() or fold(name) in self._not_names:
                continue
            if name.casefold() in self._stop_words and not (name.isupper() and len(name) > 1):
                continue
            if name.isupper() and not 2 <= len(name) <= MAX_ACRONYM:
                continue
            found.setdefault(name)
        return list(found)

    def _is_command(self, text: str) -> bool:
        """Does it begin with a slash command? A folder of the file system is none, nor is a word
        behind which somebody is addressed (`/newspaper please find it`)."""
        slash = _SLASH.match(text)
        if slash is None or slash.group(1).lower() in _ROOT_FOLDERS:
            return False
        if slash.group(1).lower() in _COMMANDS or ":" in slash.group(1):
            return True
        rest = _bare(text[slash.end() :])
        return not any(f"{rest} ".startswith(f"{opening} ") for opening in self._requests)

    def _polite(self, bare: str) -> bool:
        """Nothing but greetings and acknowledgements, one after the other: `ok, thanks a lot`."""
        said = bare.split()
        if len(said) > MAX_POLITE_WORDS:
            return False
        reached = {0}
        for end in range(1, len(said) + 1):
            if any(" ".join(said[begin:end]) in self._polite_phrases for begin in reached):
                reached.add(end)
        return bool(said) and len(said) in reached

    def _keywords(self, message: str, persona: list[str]) -> str:
        taken = {fold(part) for name in persona for part in (name, *words(name))}
        kept: dict[str, None] = {}
        for word in words(message):
            lower = word.lower()
            known = fold(lower) in taken or lower in self._stop_words
            if not known and informative([fold(lower)]):
                kept.setdefault(lower)
        return " ".join(list(kept)[:MAX_KEYWORDS])


@lru_cache(maxsize=4)
def messages_of(lexicon: Lexicon) -> Messages:
    """The reader of a lexicon, made once."""
    return Messages(lexicon)


def word_count(text: str) -> int:
    """Words of any script; of those written without spaces two characters make one."""
    spaceless = sum(len(run) for run in _SPACELESS.findall(text))
    others = words(_SPACELESS.sub(" ", text))
    hangul = sum(1 for word in others if _is_hangul(word))
    return len(others) - hangul + _korean_words(text) + -(-spaceless // CJK_CHARS_A_WORD)


def _is_hangul(word: str) -> bool:
    return "\uac00" <= word[0] <= "\ud7af"


def _korean_words(text: str) -> int:
    return sum(1 for token in text.split() if any("\uac00" <= char <= "\ud7af" for char in token))


def _bare(text: str) -> str:
    """Folded, without punctuation, symbols and repeated spaces: `¡Hola!  👋` → `hola`."""
    kept = (
        char
        if unicodedata.category(char)[0] in "LNM" or char.isspace()
        else ""
        if char in "'’"
        else " "
        for char in fold(text)
    )
    return " ".join("".join(kept).split())
