"""Turns an event (a `Cue`) into a search (a `Query`). For a tool call, the query's text comes from
the first of five sources that yields usable text. A message yields up to three texts.

The query also carries the files and identifiers mentioned in the call or the message, because in
coding work they identify the subject better than words do.

Read `CueReader` first; it splits messages with `Messages`, and puts arguments into words with
`Speech`.
"""

import re
import shlex
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any
from urllib.parse import unquote, urlsplit

from msgspec import Struct, field
from msgspec.structs import replace

from upwell.ground.names import first_match
from upwell.ground.project import project_of, repository_of
from upwell.ground.secrets.redact import without_secrets
from upwell.ground.text.anchors import (
    PROJECT_FILES,
    file_stem,
    path_parts,
    paths_in,
    relative_to,
    symbols_in,
)
from upwell.ground.text.lexicon import Lexicon, shipped
from upwell.ground.text.words import (
    counted,
    fold,
    informative,
    path_words,
    split_identifier,
    terms,
    words,
)
from upwell.ground.types.cue import AUTOMATIC_DOORS, Cue
from upwell.ground.types.memory import Query, QuerySource, Scope
from upwell.memory.ranking.terms import EVERYDAY_WORDS

MAX_ORIGINAL_CHARS = 500
MAX_KEYWORDS = 5
MAX_READ_CHARS = 4000
MIN_WORDS = 3
CJK_CHARS_A_WORD = 2
"""In scripts without spaces, this many characters count as one word. Most Chinese words have one or
two characters."""
MAX_ACRONYM = 10
MAX_POLITE_WORDS = 16

_SLASH = re.compile(r"^/([A-Za-z][\w:.-]*)(?=\s|$)")
_ROOT_FOLDERS = frozenset("tmp etc usr var home opt dev proc mnt srv sys root".split())
_COMMANDS = frozenset(
    "help status usage whoami new compact clear mcp doctor who context memory".split()
)
"""Slash commands of the hosts, and of the program behind seed 003 (tests/NAMES.md)."""
_QUESTION_MARKS = "?？؟՞⸮\u037e"
"""Question marks, including those of Arabic, Armenian and Greek."""
_SENTENCE_ENDS = (".", "!", "?", ":", "…", "。", "？", "！")
_CLOSERS = "\"'”’»)]*_`"
_EDGES = re.compile(r"^[^\w]+|[^\w]+$")
_MARK = re.compile(r"\(?[A-Z]\)|\(?(?:[a-z]|[ivx]{1,4})[.)]|\[[xX]\]")
"""List letters (`a)`, `iv.`) and a ticked box. `A.` is an initial, so it does not match."""
_BULLETS = frozenset("•·")
_INITIAL = re.compile(r"[A-Z]\.")
_SPACELESS = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]+"
)
"""Thai, Lao, Burmese, Khmer, Japanese and Chinese are written without spaces. Korean has spaces."""


class Messages:
    """Classifies messages and splits them into queries, using the lists in a lexicon."""

    def __init__(self, lexicon: Lexicon) -> None:
        self._stop_words = {word.casefold() for word in lexicon.stop_words}
        self._greetings = {_bare(entry) for entry in lexicon.greetings}
        self._acknowledgements = {_bare(entry) for entry in lexicon.acknowledgements}
        self._requests = {_bare(entry) for entry in lexicon.requests}
        self._polite_phrases = self._greetings | self._acknowledgements
        self._not_names = {fold(word) for word in lexicon.not_names}

    def not_applicable(self, message: str) -> str:
        """The reason why no search is needed for a message; "" if one may be needed."""
        text = message[:MAX_READ_CHARS].strip()
        if not text:
            return "empty message"
        if self._is_command(text):
            return "slash command"
        bare = _bare(text)
        asks = any(mark in text for mark in _QUESTION_MARKS)
        if bare in self._greetings or not (bare or asks):
            return "greeting"
        if bare in self._acknowledgements or self._polite(bare):
            return "acknowledgement"
        count = word_count(text[:MAX_ORIGINAL_CHARS])
        if count < MIN_WORDS and not asks:
            return f"{counted(count, 'word')} and no question"
        return ""

    def queries(self, message: str) -> tuple[str, ...]:
        """Up to three distinct queries: the original, its keywords, its names."""
        original = message[:MAX_READ_CHARS].strip()[:MAX_ORIGINAL_CHARS]
        names = self.names(original)
        keywords = self._keywords(original, names)
        queries = [original] if original else []
        if keywords and keywords != original.lower():
            queries.append(keywords)
        if names and (joined := " ".join(names)) not in queries:
            queries.append(joined)
        return tuple(queries)

    def names(self, message: str) -> list[str]:
        """Words that look like names: capitalised words, and short words all in capitals. The first
        word of a sentence, line or list item is capitalised anyway, so it counts only in the
        possessive (`Maria's laptop`) or if the rest is not in small letters (`PostgreSQL`, `S3`).
        """
        names: dict[str, None] = {}
        for token, opens in _tokens(message):
            bare = _EDGES.sub("", token)
            name = _without_possessive(bare)
            is_capital_by_place = opens and name == bare and name[1:].islower()
            if is_capital_by_place or not name[:1].isupper() or fold(name) in self._not_names:
                continue
            if name.casefold() in self._stop_words and not (name.isupper() and len(name) > 1):
                continue
            if name.isupper() and not 2 <= len(name) <= MAX_ACRONYM:
                continue
            names.setdefault(name)
        return list(names)

    def _is_command(self, text: str) -> bool:
        """True if the text begins with a slash command. A root folder (`/etc`) is not a command.
        Nor is an unknown word followed by a request (`/newspaper please find it`)."""
        slash = _SLASH.match(text)
        if slash is None or slash.group(1).lower() in _ROOT_FOLDERS:
            return False
        if slash.group(1).lower() in _COMMANDS or ":" in slash.group(1):
            return True
        rest = _bare(text[slash.end() :])
        return not any(f"{rest} ".startswith(f"{request} ") for request in self._requests)

    def _polite(self, bare: str) -> bool:
        """True if the text is a sequence of greetings and acknowledgements (`ok, thanks a lot`)."""
        tokens = bare.split()
        if len(tokens) > MAX_POLITE_WORDS:
            return False
        reachable_ends = {0}
        for end in range(1, len(tokens) + 1):
            starts = reachable_ends
            if any(" ".join(tokens[start:end]) in self._polite_phrases for start in starts):
                reachable_ends.add(end)
        return bool(tokens) and len(tokens) in reachable_ends

    def _keywords(self, message: str, names: list[str]) -> str:
        known_words = {fold(part) for name in names for part in (name, *words(name))}
        keywords: dict[str, None] = {}
        for word in words(message):
            lower = _without_possessive(word.lower())
            known = fold(lower) in known_words or lower in self._stop_words
            if not known and informative([fold(lower)]):
                keywords.setdefault(lower)
        return " ".join(list(keywords)[:MAX_KEYWORDS])


@lru_cache(maxsize=4)
def messages_of(lexicon: Lexicon) -> Messages:
    """The `Messages` for a lexicon, built once."""
    return Messages(lexicon)


def word_count(text: str) -> int:
    """The number of words, in any script."""
    spaceless = sum(len(run) for run in _SPACELESS.findall(text))
    others = words(_SPACELESS.sub(" ", text))
    hangul = sum("\uac00" <= word[0] <= "\ud7af" for word in others)
    korean = sum(any("\uac00" <= char <= "\ud7af" for char in token) for token in text.split())
    return len(others) - hangul + korean + -(-spaceless // CJK_CHARS_A_WORD)


def _tokens(message: str) -> Iterator[tuple[str, bool]]:
    """The space-separated words. The flag is True for the first word of a sentence, line or list
    item."""
    for line in message.splitlines():
        opens = True
        for token in line.split():
            yield token, opens
            is_mark = not any(char.isalpha() for char in token) or bool(_MARK.fullmatch(token))
            is_open = token in _BULLETS or (opens and is_mark)
            is_end = token.rstrip(_CLOSERS).endswith(_SENTENCE_ENDS)
            opens = is_open or (is_end and not _INITIAL.fullmatch(token))


def _without_possessive(word: str) -> str:
    return word.removesuffix("'s").removesuffix("’s")


def _bare(text: str) -> str:
    """The folded text without punctuation, symbols and extra spaces: `¡Hola!  👋` → `hola`."""
    chars = (
        char
        if unicodedata.category(char)[0] in "LNM" or char.isspace()
        else ""
        if char in "'’"
        else " "
        for char in fold(text)
    )
    return " ".join("".join(chars).split())


MAX_VALUE_CHARS = 400
MAX_COMMAND_CHARS = 2_000
_HOMES = frozenset({"home", "users"})
_FORGES = ("github.", "gitlab.", "bitbucket.", "codeberg.", "gitea.", "raw.githubusercontent.")
_ADDRESS_NOISE = frozenset(
    """
    www com org net io dev html htm php aspx blob tree raw issues issue pull pulls wiki commit
    commits releases discussions en latest stable api v1 v2 v3 http https
    """.split()
)
_URL = re.compile(r"[a-z][a-z0-9+.-]{1,20}://\S+", re.IGNORECASE)
_QUALIFIER = re.compile(
    r"(?<!\S)-?(?:repo|org|user|owner|author|language|lang|is|in|type|state|label|sort|created|"
    r"updated|extension|size|stars|fork|archived|no|involves|assignee|milestone|base|head):\S+"
)
_PLACE_QUALIFIER = re.compile(r"(?<!\S)(?:path|file|filename):(?=\S)")
_PATH_SHAPED = re.compile(r"^~?/?[\w.@+-]+(?:[\\/][\w.@+-]*)*$")
_ASSIGNMENT = re.compile(r"^[A-Za-z_]\w*=")
_OPERATORS = re.compile(r"[|&;<>()`]+|\$\(|\d?>&?\d?")
_NUMBER = re.compile(r"^[\d.,:/+-]+$")
_REGEX_SIGNS = re.compile(r"\\[bBdDsSwW<>]|[\\^$*+?()\[\]{}|]")


class Speech:
    """Turns arguments into words, leaving out those that the lexicon lists as `boilerplate` or
    `commands`."""

    def __init__(self, lexicon: Lexicon) -> None:
        self._boilerplate = lexicon.boilerplate | _ADDRESS_NOISE
        self._path_noise = lexicon.boilerplate
        self._commands = lexicon.commands

    def path(self, path: str, root: str | None = None) -> str:
        """The informative words of a path. Leaves out the extension, boilerplate words, and file
        names that every project has. With `root`, only the part below `root` is used."""
        parts = path_parts(_below(path, root))
        if parts and file_stem(path).lstrip(".") in PROJECT_FILES | {"gitignore"}:
            parts.pop()
        words = path_words("/".join(parts)) if parts else []
        return " ".join(word for word in words if word not in self._path_noise)

    def address(self, url: str) -> str:
        """The informative words of a URL. On a forge (GitHub, GitLab …), only the part after the
        repository is used."""
        try:
            parts = urlsplit(url)
            host = (parts.hostname or "").lower()
        except ValueError:
            return ""
        segments = [part for part in unquote(parts.path).split("/") if part]
        if host.startswith(_FORGES):
            host, segments = "", segments[2:]
        words = [*host.split("."), *path_words("/".join(segments))]
        return " ".join(w for w in words if w and w not in self._boilerplate and not w.isdigit())

    def command(self, line: str, root: str | None = None) -> str:
        """The informative words of a command line, without options and common commands."""
        texts = []
        for word in _shell_words(line[:MAX_COMMAND_CHARS]):
            if word.startswith("-") or _ASSIGNMENT.match(word) or _NUMBER.match(word):
                continue
            if word.lower().strip("/.") in self._commands | self._path_noise:
                continue
            texts.append(self.value(_REGEX_SIGNS.sub(" ", word).strip(), root))
        return " ".join(filter(None, texts))

    def value(self, text: str, root: str | None = None) -> str:
        """The words of any argument, with URLs and paths reduced and search qualifiers removed."""
        text = _PLACE_QUALIFIER.sub("", _QUALIFIER.sub(" ", text[:MAX_COMMAND_CHARS]))
        text = _URL.sub(lambda url: self.address(url.group()), text)
        words = (
            self.path(word, root) if "/" in word and _PATH_SHAPED.match(word) else word
            for word in text.split()
        )
        return " ".join(filter(None, words))


@lru_cache(maxsize=4)
def speech_of(lexicon: Lexicon | None = None) -> Speech:
    """The `Speech` for a lexicon (by default the shipped one), built once."""
    return Speech(lexicon or shipped())


def _below(path: str, root: str | None) -> str:
    """`path` relative to `root`. Without a root, removes a leading home folder (`/home/NAME`) and
    the folder below it, but keeps a file directly in the home folder."""
    parts = path_parts(relative_to(path, root))
    if root is None and path.startswith("/") and parts and parts[0].lower() in _HOMES:
        in_home = len(parts) == 3 and "." in parts[2]
        parts = parts[2:] if in_home else parts[3:]
    return "/".join(parts)


def _shell_words(line: str) -> Iterator[str]:
    """The unquoted words of a command line. A line that cannot be parsed is split at spaces."""
    bare = line.replace("\n", " ; ")
    try:
        lexer = shlex.shlex(bare, posix=True, punctuation_chars="|&;<>()`")
        lexer.whitespace_split = True
        lexer.commenters = ""
        words = list(lexer)
    except ValueError:
        words = bare.replace('"', " ").replace("'", " ").split()
    for word in words:
        if not _OPERATORS.fullmatch(word):
            yield from word.split()


PATH_KEYS = ("path", "file", "filepath", "file_path", "filename")
OTHER_PATH_KEYS = ("paths", "files", "notebook_path", "directory", "dir", "folder", "repo_path")
SEMANTIC_KEYS = tuple(
    "query search q pattern question topic title subject name symbol url "
    "uri description prompt text".split()
)
CONTEXT_QUERY = "_context_query"
COMMAND_KEYS = frozenset({"command", "cmd", "commands", "script"})
TEMPLATES: Mapping[str, str] = {
    "Grep": "{pattern} {glob}",
    "Glob": "{pattern}",
    "Bash": "{command}",
    "BashOutput": "{filter}",
    "WebFetch": "{url} {prompt}",
    "WebSearch": "{query}",
    "Task": "{description} {prompt}",
    "Agent": "{description} {prompt}",
    "NotebookRead": "{notebook_path}",
    "*shell*": "{command} {cmd}",
    "*run_command": "{command} {cmd}",
    "*execute_command": "{command} {cmd}",
    "*search_files": "{pattern} {query} {regex}",
    "*search_code": "{query} {q} {pattern}",
    "*search_issues": "{query} {q}",
    "*search_repositories": "{query} {q}",
    "*grep*": "{pattern} {query} {regex}",
    "*find_symbol": "{name_path} {name} {symbol}",
    "*fetch": "{url} {prompt}",
    "*navigate": "{url}",
    "*resolve-library-id": "{libraryName} {query}",
    "*get-library-docs": "{topic} {context7CompatibleLibraryID}",
}
"""For each tool pattern, a query with placeholders for arguments. A placeholder may be dotted
(`{filter.title}`)."""
FOLDER_TOOLS = ("Grep", "Glob", "LS", "*search*", "*grep*", "*list*", "*tree*", "*find*")
"""Tools whose `path` is the folder to search, not the subject."""
GENERIC_KEYS = frozenset({"description", "output_mode", "repo", "owner", "type", "branch"})
_MAX_ANCHORS = 12
"""A query takes at most this many files and this many identifiers from a call, and reads at most
this many items of a list. This bounds the cost of a call."""
_MAX_ARGUMENTS = 50
_MAX_CLEANED = 200
_MAX_DEPTH = 4
_PLACEHOLDER = re.compile(r"\{([\w.-]+)\}")


class CueReader(Struct, frozen=True):
    """Turns cues into queries. The user's `templates` take precedence over `TEMPLATES`."""

    templates: Mapping[str, str] = field(default_factory=dict)
    lexicon: Lexicon = field(default_factory=shipped)

    def query(self, cue: Cue, limit: int) -> Query | None:
        """The query of a cue, for at most `limit` hits; None if there is nothing to search for."""
        text, args = without_secrets(cue.text, MAX_READ_CHARS), _without_secrets(cue.args)
        if (text, args) != (cue.text, cue.args):
            cue = replace(cue, text=text, args=args)
        scope = Scope(project=_project(cue), namespaces=cue.principal.namespaces)
        if cue.tool is None:
            texts = messages_of(self.lexicon).queries(cue.text)
            if not texts:
                return None
            return Query(
                texts=texts,
                paths=paths_in(texts[0]),
                symbols=symbols_in(texts[0]),
                scope=scope,
                limit=limit,
                source=QuerySource.MESSAGE,
                awaited=cue.door not in AUTOMATIC_DOORS,
            )
        text, source = self.five_levels(cue.tool, cue.args, scope.project)
        paths, symbols = anchors_of(cue.tool, cue.args)
        if not text and not paths and not symbols:
            return None
        command_keys = sorted(COMMAND_KEYS & cue.args.keys())
        query = Query(
            texts=(text,) if text else (),
            paths=paths,
            symbols=symbols,
            scope=scope,
            limit=limit,
            source=source,
            awaited=cue.door not in AUTOMATIC_DOORS,
            command=" ".join(_string(cue.args[key]) for key in command_keys),
        )
        joined = paths or symbols
        return replace(query, texts=()) if joined and says_little(query, self.lexicon) else query

    def exact(self, cue: Cue, limit: int, triggers: Sequence[str]) -> Query:
        """A query that finds only memories with one of these triggers."""
        scope = Scope(project=_project(cue), namespaces=cue.principal.namespaces)
        return Query(texts=(), triggers=tuple(triggers), scope=scope, limit=limit, awaited=False)

    def five_levels(
        self, tool: str, args: Mapping[str, Any], root: str | None = None
    ) -> tuple[str, QuerySource]:
        """The text of a call's query, and its source: the first of the five sources that yields
        usable text."""
        speech = speech_of(self.lexicon)

        def from_keys() -> str:
            keys = (key for key in SEMANTIC_KEYS if key in args)
            return " ".join(_in_words(key, args[key], speech, root) for key in keys)

        def from_paths() -> str:
            paths = (path for key in PATH_KEYS for path in _strings(args.get(key)))
            return " ".join(speech.path(path, root) for path in paths)

        levels: tuple[tuple[QuerySource, Callable[[], str]], ...] = (
            (QuerySource.TEMPLATE, lambda: self._from_template(tool, args, speech, root)),
            (QuerySource.AGENT, lambda: _string(args.get(CONTEXT_QUERY))),
            (QuerySource.PATH, from_paths),
            (QuerySource.KEYS, from_keys),
            (QuerySource.TOOL_NAME, lambda: " ".join(split_identifier(tool.rpartition("__")[2]))),
        )
        for source, read in levels:
            text = " ".join(read().split())
            if usable(text):
                return text, source
        return "", QuerySource.TOOL_NAME

    def asks_by_template(self, cue: Cue) -> bool:
        """True if one of the user's templates yields a usable query for this call."""
        if cue.tool is None or not first_match(cue.tool, (*self.templates,)):
            return False
        text = self._from_template(cue.tool, cue.args, speech_of(self.lexicon), _project(cue))
        return usable(text)

    def _from_template(
        self, tool: str, args: Mapping[str, Any], speech: Speech, root: str | None
    ) -> str:
        pattern = first_match(tool, (*self.templates, *TEMPLATES))
        template = self.templates.get(pattern) or TEMPLATES.get(pattern, "")
        return _filled(template, args, speech, root) if template else ""


def usable(text: str) -> bool:
    """True if the text has an informative word."""
    return bool(informative(terms(text[:MAX_VALUE_CHARS])))


def _without_secrets(args: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _cleaned(value, _MAX_DEPTH) for name, value in islice(args.items(), _MAX_CLEANED)}


def _cleaned(value: Any, depth: int) -> Any:
    if isinstance(value, str):
        return without_secrets(value, MAX_READ_CHARS)
    if depth and isinstance(value, Mapping):
        pairs = islice(value.items(), _MAX_CLEANED)
        return {name: _cleaned(item, depth - 1) for name, item in pairs}
    if depth and isinstance(value, Sequence):
        return [_cleaned(item, depth - 1) for item in islice(value, _MAX_CLEANED)]
    return value if isinstance(value, int | float | None) else None


def _project(cue: Cue) -> str | None:
    """The repository that contains the cue's folder. If none does, the first repository that
    contains an absolute path from the call, or else the folder itself.
    """
    if cue.cwd is None or repository_of(cue.cwd):
        return project_of(cue.cwd)
    for key in (*PATH_KEYS, *OTHER_PATH_KEYS):
        for path in _strings(cue.args.get(key)):
            if path.startswith("/") and (root := repository_of(path)):
                return root
    return project_of(cue.cwd)


def _filled(template: str, args: Mapping[str, Any], speech: Speech, root: str | None) -> str:
    """The template with its placeholders filled; "" if they would all be empty."""
    names = _PLACEHOLDER.findall(template)
    texts = {name: _in_words(name, _argument(args, name), speech, root) for name in names}
    if names and not any(texts.values()):
        return ""
    return _PLACEHOLDER.sub(lambda match: texts[match.group(1)], template)


def _argument(args: Any, name: str) -> Any:
    """The argument at a dotted name: `args["filter.title"]`, or else `args["filter"]["title"]`."""
    if not isinstance(args, Mapping):
        return None
    if name in args:
        return args[name]
    outer, _, inner = name.partition(".")
    return _argument(args.get(outer), inner) if inner else None


@lru_cache(maxsize=4)
def _generic_words(lexicon: Lexicon) -> frozenset[str]:
    return EVERYDAY_WORDS.union(lexicon.commands, lexicon.boilerplate, lexicon.tool_words)


def says_little(query: Query, lexicon: Lexicon) -> bool:
    """True if the query has no text but a tool's name, made of words that many tools share
    (`get_file_info`).
    """
    return query.source is QuerySource.TOOL_NAME and not any(
        word not in _generic_words(lexicon) for text in query.texts for word in text.split()
    )


def _in_words(key: str, value: Any, speech: Speech, root: str | None) -> str:
    text = _string(value)
    if key.rpartition(".")[2] in COMMAND_KEYS:
        return speech.command(text, root)
    return speech.value(text, root)


def anchors_of(tool: str, args: Mapping[str, Any]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The files and the identifiers in the arguments of a call."""
    is_search = first_match(tool, FOLDER_TOOLS)
    paths: dict[str, None] = {}
    symbols: dict[str, None] = {}
    for key, value in islice(args.items(), _MAX_ARGUMENTS):
        if key in GENERIC_KEYS:
            continue
        if key in PATH_KEYS or key in OTHER_PATH_KEYS:
            paths.update({} if is_search else dict.fromkeys(_strings(value)))
        elif key == "pattern" and isinstance(value, str) and _is_file_pattern(value):
            paths.setdefault(value)
        else:
            paths.update(dict.fromkeys(paths_in(_string(value))))
            symbols.update(dict.fromkeys(symbols_in(_string(value))))
    return tuple(paths)[:_MAX_ANCHORS], tuple(symbols)[:_MAX_ANCHORS]


def _is_file_pattern(value: str) -> bool:
    return "*" in value and "/" in value and " " not in value


def _strings(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value[:MAX_VALUE_CHARS]] if value else []
    if isinstance(value, list):
        return [item[:MAX_VALUE_CHARS] for item in value[:_MAX_ANCHORS] if isinstance(item, str)]
    return []


def _string(value: Any) -> str:
    return " ".join(_strings(value))
