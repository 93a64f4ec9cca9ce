"""Splits a shell script into its simple commands, and removes details such as numbers and folders
from a line of output. The text is not trusted, so it is read only up to fixed limits, in one pass
or with regular expressions that backtrack little.
"""

import re
from collections.abc import Iterator, Sequence
from hashlib import blake2b

from msgspec import Struct

from upwell.episodes.events import Kind, SessionEvent

MAX_COMMAND_CHARS = 2_000
MAX_SIGNATURE_CHARS = 160
MAX_LINE_CHARS = 2_000
"""How much of a line is read. The limit is needed because the search for folders takes quadratic
time."""
_DIGEST_BYTES = 8
_WRAPPERS = frozenset("sudo time env nohup command exec npx bunx pnpx uvx caffeinate".split())
"""Programs that run the command in their arguments."""
_RUNNERS = frozenset(
    {"uv run", "poetry run", "pdm run", "pipenv run", "rye run", "hatch run", "pnpm exec"}
    | {"npm exec", "yarn exec", "bundle exec", "mise exec", "pnpm dlx", "yarn dlx", "bun x"}
)
_TIMERS = frozenset({"timeout", "gtimeout", "nice"})
"""Wrappers with an argument of their own, such as a duration."""
_GRAMMAR = frozenset({"!", "(", "{", "then", "do", "else", "if", "while"})
"""Shell keywords that may precede a command."""
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_QUOTED = re.compile(r"'[^']*+'?+|\"(?:[^\"\\]|\\.)*+\"?+", re.DOTALL)
_SEPARATOR = re.compile(r"(\|\||&&|[;|\n]|(?<![>&])&(?![>&]))")
_PLAIN = re.compile(r"[a-z][a-z0-9:_-]*")
_FOLDERS = re.compile(r"(?<![^\s'\"`:,;(/])(?:[^\s'\"`:,;(/]*+/)++")
_HEXES = re.compile(r"\b(?:[0-9a-f]{7,}|0x[0-9a-f]+)\b")
_NUMBERS = re.compile(r"\d+")
_BLANKS = re.compile(r"\s+")


class CommandStep(Struct, frozen=True):
    """A simple command in a script. `text` is its original text up to the first redirection.
    `words` begins with the program; assignments and wrappers (`sudo`, `uv run`) are left out.
    `piped` means that the command reads the output of the previous step.
    """

    text: str
    words: tuple[str, ...]
    piped: bool = False

    @property
    def program(self) -> str:
        """The name of the program, without its folder."""
        return self.words[0].rpartition("/")[2] if self.words else ""

    @property
    def args(self) -> tuple[str, ...]:
        """The words after the program."""
        return self.words[1:]

    @property
    def verbs(self) -> Sequence[str]:
        """The sub-commands: at most two plain words among the first arguments."""
        return [word for word in self.words[1:6] if _PLAIN.fullmatch(word)][:2]


def command_of(event: SessionEvent) -> str:
    """Return the script of a shell call, or "" for any other event."""
    if event.kind is not Kind.TOOL or event.tool != "Bash":
        return ""
    command = event.args.get("command")
    return command if isinstance(command, str) else ""


def steps_of(command: str) -> Sequence[CommandStep]:
    """Return the simple commands of a shell script, in order. The commands of a pipeline are
    separate steps.
    """
    steps = []
    for words, text, piped in _Splitter(command[:MAX_COMMAND_CHARS]).parts():
        run = _unwrapped(words)
        if run:
            steps.append(CommandStep(text, tuple(run), piped))
    return steps


def statuses(command: str, *, by_output: bool = True) -> Iterator[tuple[str, bool]]:
    """Yield the text of each simple command of a script, and whether the script's exit status or,
    with `by_output`, its output tells that it failed. The status is that of the last command, `&&`
    hands a failure on, and a pipe hands on the output."""
    passing = ("&&", "|") if by_output else ("&&",)
    parts = _SEPARATOR.split(_QUOTED.sub("''", command[:MAX_COMMAND_CHARS]).rstrip(" \t\n;"))
    for place in range(0, len(parts), 2):
        yield parts[place].strip(), all(after in passing for after in parts[place + 1 :: 2])


def signature(line: str) -> str:
    """Return a line of output without its variable parts: folders, numbers and hashes."""
    low = _HEXES.sub("#", _FOLDERS.sub("/", line[:MAX_LINE_CHARS].lower()))
    return _BLANKS.sub(" ", _NUMBERS.sub("#", low)).strip()[:MAX_SIGNATURE_CHARS]


def digest(text: str) -> str:
    """Return a short digest of a text, which is the same in every process."""
    return blake2b(text.encode("utf-8", "replace"), digest_size=_DIGEST_BYTES).hexdigest()


class _Splitter:
    """Splits a script in one pass, following the main rules of POSIX shells for quoting and
    separators (Shell Command Language, 2.2 and 2.9). Commands in `$(…)` are not kept apart. It
    stops at a here-document."""

    def __init__(self, command: str) -> None:
        self._command = command
        self._words: list[str] = []
        self._word: list[str] = []
        self._open = False
        self._cut = -1

    def parts(self) -> Iterator[tuple[list[str], str, bool]]:
        """Yield the words and the text of each simple command, and whether it reads from a pipe."""
        command, start, place = self._command, 0, 0
        while place < len(command):
            char = command[place]
            if char in "'\"":
                place = self._quoted(char, place)
            elif char == "\\":
                place = self._escaped(place)
            elif char in " \t":
                self._end_word()
            elif command.startswith("<<", place):
                break
            elif char == ">" or command.startswith("&>", place):
                self._redirect(place)
                place += command.startswith(("&>", ">>", ">&"), place)
            elif char in ";\n|&":
                yield from self._part(start, place)
                start = place + 1
            else:
                self._take(char)
            place += 1
        yield from self._part(start, place)

    def _part(self, start: int, end: int) -> Iterator[tuple[list[str], str, bool]]:
        self._end_word()
        if self._words:
            text = self._command[start : self._cut if self._cut >= 0 else end]
            before = self._command[max(0, start - 2) : start]
            piped = before.endswith("|") and before != "||"
            yield self._words, text.strip().lstrip("(").strip(), piped
        self._words, self._cut = [], -1

    def _take(self, text: str) -> None:
        self._open = True
        if self._cut < 0:
            self._word.append(text)

    def _end_word(self) -> None:
        if self._open and self._cut < 0:
            self._words.append("".join(self._word))
        self._word, self._open = [], False

    def _quoted(self, quote: str, place: int) -> int:
        """Take the quoted text that begins at `place`. Returns the index of the closing quote."""
        end = self._command.find(quote, place + 1)
        while quote == '"' and end > 0 and self._command[end - 1] == "\\":
            end = self._command.find(quote, end + 1)
        end = len(self._command) if end < 0 else end
        self._take(self._command[place + 1 : end])
        return end

    def _escaped(self, place: int) -> int:
        char = self._command[place + 1 : place + 2]
        if char and char != "\n":
            self._take(char)
        return place + 1

    def _redirect(self, place: int) -> None:
        """End the text of the command before `>`, `2>` or `&>`."""
        if self._word and "".join(self._word).isdigit():
            place -= len(self._word)
            self._word, self._open = [], False
        self._end_word()
        if self._cut < 0:
            self._cut = place


def _unwrapped(words: list[str]) -> list[str]:
    place = 0
    while place < len(words):
        word = words[place]
        if _ASSIGNMENT.match(word) or word in _GRAMMAR:
            place += 1
        elif word in _WRAPPERS:
            place = _after_options(words, place + 1)
        elif word in _TIMERS and place + 2 < len(words):
            place += 2
        elif " ".join(words[place : place + 2]) in _RUNNERS:
            place = _after_options(words, place + 2)
        else:
            break
    return words[place:]


def _after_options(words: list[str], place: int) -> int:
    while place < len(words) and words[place].startswith("-"):
        place += 1
    return place
