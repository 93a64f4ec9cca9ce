"""A sketch of what a session's context already contains, so that upwell does not repeat it.

The sketch is kept in this process, with a limited size, until the context is compacted. It stores
the paths of recently opened files, and hashes of the terms in prompts, arguments and results. The
latest texts are kept whole until their terms are needed.
"""

import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from fnmatch import fnmatchcase
from itertools import pairwise

from upwell.ground.text.words import fold, terms
from upwell.ground.types.cue import Cue, Door
from upwell.ground.types.memory import Memory
from upwell.hosts import HOSTS
from upwell.surface.event import file_of

COMPACTED = "compact"
"""The value of `Cue.text` for a session start that follows a compaction."""
MAX_SESSIONS = 200
MAX_TERMS = 20_000
MAX_FILES = 2_000
"""The maximum number of opened files in one sketch. The file opened longest ago is dropped first.
"""
MAX_READ_CHARS = 40_000
"""How many characters of a text are read. Hosts truncate longer results anyway."""
MAX_PENDING_CHARS = 50_000
"""How many characters of a session's text are kept whole before they are split into terms."""
MIN_NEW_SHARE = 0.35
"""A memory counts as known if less than this share of its terms is new to the context, and if every
number, path and identifier in it is in the context."""
MAX_NAME_CHARS = 200
MAX_PHRASE_CHARS = 400
_COMMAND_ENDS = re.compile(r"&&|\|\|?|;")
_EXACT = re.compile(r"\d|.[_/.:@].|[a-z][A-Z]")
_EDGES = "`'\"()[]{}<>,;.:!?*-"


class _TextHashes:
    """Hashes of what `extract` finds in texts. Splitting the texts of a small call takes
    longer than all other work on it, and for most calls the search finds no memory to compare with
    the context. So texts are split only when their hashes are needed, or when too much text is
    waiting."""

    def __init__(self, extract: Callable[[str], Iterable[str]]) -> None:
        self._extract = extract
        self._hashes: set[int] = set()
        self._pending: dict[str, str] = {}
        """The texts that are not split yet, each with its folded form ("" until it is needed)."""
        self._pending_chars = 0

    def add(self, text: str) -> None:
        if text in self._pending:
            return
        self._pending[text] = ""
        self._pending_chars += len(text)
        if self._pending_chars > MAX_PENDING_CHARS:
            self.hashes()

    def hashes(self) -> set[int]:
        for text in self._pending:
            if len(self._hashes) >= MAX_TERMS:
                break
            self._hashes.update(map(hash, self._extract(text)))
        self._pending.clear()
        self._pending_chars = 0
        return self._hashes

    def surely_lack(self, name: str) -> bool:
        """True if no text contains this name. Does not split the texts."""
        return hash(name) not in self._hashes and not any(name in text for text in self._pending)

    def new_among(self, terms: Set[str]) -> int:
        """The number of these terms that occur nowhere in the texts and, in texts that are not
        split yet, not even inside a word. Does not split the texts."""
        for text, folded in self._pending.items():
            self._pending[text] = folded or fold(text.replace("’", "'"))
        texts = self._pending.values()
        return sum(
            hash(term) not in self._hashes and not any(term in text for text in texts)
            for term in terms
        )


def _is_bare_command(text: str) -> bool:
    """True for a slash command without arguments (`/clear`), which opens no conversation."""
    return text.startswith("/") and text.count("/") == 1 and len(text.split()) == 1


class ContextSketch:
    """The terms and files of one session's context."""

    def __init__(self, prompts: int = 0, request: str = "") -> None:
        self.prompts = prompts
        self.request = request
        self.files: OrderedDict[str, None] = OrderedDict()
        self._terms = _TextHashes(_terms_and_names)
        self._phrases = _TextHashes(_phrases)

    def add(self, cue: Cue) -> None:
        """Add a cue's text, arguments and file, and its tool's result."""
        if cue.tool is None:
            self.prompts += not _is_bare_command(cue.text)
            self.request = cue.text[:MAX_READ_CHARS]
        elif file := file_of(cue):
            self._add_file(file)
        for text in _texts_of(cue):
            self._terms.add(text[:MAX_READ_CHARS])
            self._phrases.add(text[:MAX_READ_CHARS])

    def terms(self) -> set[int]:
        """The hashes of the terms and of the exact names in the context."""
        return self._terms.hashes()

    def new_share(self, text: str) -> float:
        """The share of the terms of `text` that are new to the context; 0 if there are no terms."""
        new_terms = set(map(hash, terms(text)))
        return len(new_terms - self.terms()) / len(new_terms) if new_terms else 0.0

    def least_new_share(self, text: str) -> float:
        """A lower bound on `new_share()`, ten times as fast to compute. It also counts a term as
        known if it occurs only inside a longer word."""
        own_terms = set(terms(text))
        return self._terms.new_among(own_terms) / len(own_terms) if own_terms else 0.0

    def holds(self, memory: Memory, cue: Cue | None = None) -> bool:
        """True if the context already contains this memory nearly word for word. A passage of a
        file also counts as contained if that file was opened, or if some host loads the file by
        itself. For an episode, only the code in its text matters, apart from code that is part of
        the call in `cue`."""
        if memory.triggers and "`" in memory.text:
            return self._has_met(_conclusion(memory.text, cue))
        if memory.lines is not None and self._has_read(memory.source):
            return True
        names = exact_names(memory.text)
        # The next two checks settle nearly every memory, and need not split the context's texts.
        if any(map(self._terms.surely_lack, names)):
            return False
        if self.least_new_share(memory.text) >= MIN_NEW_SHARE:
            return False
        if self.new_share(memory.text) >= MIN_NEW_SHARE:
            return False
        return all(hash(name) in self.terms() for name in names)

    def _has_met(self, conclusion: Sequence[str]) -> bool:
        """True if the context contains one of the conclusion's commands. If the conclusion has no
        commands, True if the context contains all of its names. A conclusion with neither counts as
        known."""
        phrases = self._phrases.hashes()
        commands = [span for span in conclusion if " " in span]
        if commands:
            return any(hash(command) in phrases for command in commands)
        return all(
            hash(_tail(name)) in phrases or self.terms() & {hash(name), hash(name.strip(_EDGES))}
            for name in conclusion
        )

    def _add_file(self, file: str) -> None:
        self.files[file] = None
        self.files.move_to_end(file)
        if len(self.files) > MAX_FILES:
            self.files.popitem(last=False)

    def _has_read(self, source: str) -> bool:
        if any(fnmatchcase(f"/{source}", f"*/{pattern}") for pattern in AUTO_LOADED):
            return True
        return any(file == source or file.endswith(f"/{source}") for file in self.files)


class ContextSketches:
    """The context sketches of the latest sessions."""

    def __init__(self) -> None:
        self._sketches: OrderedDict[str, ContextSketch] = OrderedDict()

    def of(self, session: str) -> ContextSketch:
        """The sketch of a session; an empty sketch if `session` is ""."""
        if not session:
            return ContextSketch()
        sketch = self._sketches.get(session)
        if sketch is None:
            sketch = self._sketches[session] = ContextSketch()
        self._sketches.move_to_end(session)
        if len(self._sketches) > MAX_SESSIONS:
            self._sketches.popitem(last=False)
        return sketch

    def note(self, cue: Cue) -> None:
        """Add a cue to its session's sketch. A new session begins with an empty sketch."""
        if cue.door == Door.SESSION:
            self._forget(cue.session, goes_on=cue.text == COMPACTED)
        elif cue.session:
            self.of(cue.session).add(cue)

    def compacted(self, session: str) -> None:
        """Forget what a session's context contained, but keep its prompt count and its last
        request, because the session goes on."""
        self._forget(session, goes_on=True)

    def _forget(self, session: str, *, goes_on: bool) -> None:
        sketch = self._sketches.pop(session, None)
        if sketch is not None and goes_on:
            self._sketches[session] = ContextSketch(sketch.prompts, sketch.request)


def exact_names(text: str) -> set[str]:
    """The words of `text` that identify one thing: numbers, paths, identifiers, addresses."""
    return _exact_names(dict.fromkeys(_words(text)))


def _words(text: str) -> list[str]:
    """The words of a text. Angle brackets also separate words, because the host may have put the
    text between tags."""
    return text.replace("<", " ").replace(">", " ").split()


def _terms_and_names(text: str) -> set[str]:
    words = dict.fromkeys(_words(text))
    return {*terms(" ".join(words)), *_exact_names(words)}


def _exact_names(words: Iterable[str]) -> set[str]:
    bare = (word.strip(_EDGES) for word in words)
    return {word for word in bare if len(word) <= MAX_NAME_CHARS and _is_exact(word)}


def _conclusion(text: str, cue: Cue | None) -> list[str]:
    """The code in a text (between backticks), except code that is part of the call in `cue`."""
    own = " ".join(" ".join(_strings(cue.args)).split()) if cue else ""
    spans = (" ".join(span.split()) for span in text.split("`")[1::2])
    return [span for span in spans if span and span not in own]


def _phrases(text: str) -> Iterator[str]:
    """The phrases that identify a conclusion: lines, the commands in them, and the ends of
    paths."""
    for line in dict.fromkeys(text.splitlines()):
        if len(line) <= MAX_PHRASE_CHARS:
            yield from (" ".join(part.split()) for part in _COMMAND_ENDS.split(line))
    paths = dict.fromkeys(word for word in _words(text) if "/" in word)
    yield from map(_tail, _exact_names(paths))


def _tail(path: str) -> str:
    """The last two parts of a path, marked so that they cannot be mistaken for a name in a text."""
    return "…/" + "/".join(path.rstrip("/").split("/")[-2:])


def _is_exact(word: str) -> bool:
    if word.isalpha() and word.islower():
        return False
    if _EXACT.search(word):
        return True
    if word.isascii():
        return False
    return any(a.islower() and b.isupper() for a, b in pairwise(word))


def _texts_of(cue: Cue) -> Iterable[str]:
    yield cue.text
    yield from _strings(cue.args)
    if cue.answer is not None:
        yield cue.answer.text


def _strings(args: Mapping[str, object]) -> Iterable[str]:
    yield from (value for value in args.values() if isinstance(value, str))


AUTO_LOADED = frozenset(
    pattern
    for host in HOSTS.values()
    for pattern in (*host.auto_loaded.folder, *host.auto_loaded.fallback, *host.auto_loaded.scoped)
)
"""Patterns, relative to any folder, of the instruction files that at least one host loads by
itself."""
