"""Reduces the paths, URLs, command lines and searches in a tool call to the words that identify
what the call is about.

Parts that most paths, URLs and commands share are left out, because they would match everywhere.
"""

import re
import shlex
from collections.abc import Iterator
from functools import lru_cache
from urllib.parse import unquote, urlsplit

from upwell.ground.text.anchors import PROJECT_FILES, file_stem, path_parts, relative_to
from upwell.ground.text.lexicon import Lexicon, shipped
from upwell.ground.text.words import path_words

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
