"""Tells from a call which file is missing, which names a search did not find, and which files
define a name.
"""

import re
from collections.abc import Iterator, Mapping, Sequence

from upwell.episodes.events import Kind, SessionEvent
from upwell.episodes.failures import is_refused
from upwell.episodes.signatures import CommandStep, command_of, steps_of

HEAD_CHARS = 400
MAX_LINES, MAX_LINE_CHARS = 300, 400
MAX_NAMES = 4
"""A pattern with more names than this searches for a topic, not for the names themselves."""
MIN_NAME_CHARS = 8
_ABSENT = ("no such file or directory", "file does not exist", "enoent", "path does not exist")
_NOTHING = ("no matches found", "no files found", "no results found", "found 0 ")
_SEARCHERS = frozenset({"grep", "rg", "ag", "ack"})
_READERS = frozenset("cat head tail less more bat nl sed wc ls stat".split())
_NAME = re.compile(r"[A-Za-z_$][A-Za-z0-9_]*")
_COMPOUND = re.compile(r"[a-z][A-Z]|[A-Za-z]_[A-Za-z]|[A-Z][a-z]+[A-Z]")
_ESCAPES = re.compile(r"\\[bBwWsSdD]")
_RECEIVER = re.compile(r"func[ +*]*\\?\((?:\w{1,20} [+*]?)?\\?\*?\w+\\?\)")
_DEFINING = frozenset(
    "func def class interface struct type enum trait fn const function module record object".split()
)
"""Keywords that begin a definition in common languages."""
_VALUES = frozenset({"const", "type", "object", "module"})
"""Keywords that count only if the line is not indented, because otherwise the definition is local.
"""
_FILES = re.compile(r"Found \d+ files?$")


def missing_path(event: SessionEvent) -> str:
    """Return the missing file that a call tried to open, or ""."""
    if event.kind is not Kind.TOOL or is_refused(event):
        return ""
    head = event.out[:HEAD_CHARS]
    low = head.lower()
    if event.tool == "Glob":
        return _literal(event) if _is_nothing(low) else ""
    if not any(words in low for words in _ABSENT):
        return ""
    if event.tool == "Read":
        return _text(event.args, "file_path") if event.failed or len(event.out) < HEAD_CHARS else ""
    if event.tool == "Grep":
        return _text(event.args, "path")
    return _named_missing(command_of(event), head)


def names_not_found(event: SessionEvent) -> Sequence[str]:
    """Return the identifiers that a search in a folder did not find."""
    pattern, place = _search(event)
    if not pattern or _is_file(place) or is_refused(event):
        return ()
    found_nothing = _is_nothing(event.out[:HEAD_CHARS].lower())
    return names_in(pattern) if found_nothing and _asks_for_names(pattern) else ()


def definitions(event: SessionEvent) -> Iterator[tuple[str, str]]:
    """Yield each name in the search pattern whose definition was found, with the file that defines
    it."""
    pattern, place = _search(event)
    names = names_in(pattern) if pattern and not event.failed else ()
    if not names:
        return
    lines = event.out[: MAX_LINES * MAX_LINE_CHARS].split("\n", MAX_LINES)
    if len(lines) == 2 and len(names) == 1 and _FILES.match(lines[0]) and _asks_definition(pattern):
        yield names[0], lines[1].strip()
        return
    for line in lines[:MAX_LINES]:
        for name in names:
            if name in line and (file := _defined_in(line[:MAX_LINE_CHARS], name, place)):
                yield name, file


def names_in(pattern: str) -> Sequence[str]:
    """Return the compound names in a search pattern, such as `SaveChanges` or `save_changes`. The
    receiver type of a Go method is left out, because the search is for the method."""
    names = dict.fromkeys(
        name
        for name in _NAME.findall(_plain(pattern))
        if len(name) >= MIN_NAME_CHARS and _COMPOUND.search(name)
    )
    return tuple(names) if len(names) <= MAX_NAMES else ()


def _search(event: SessionEvent) -> tuple[str, str]:
    """Return the pattern and the path of a text search. Both are "" for other calls."""
    if event.tool == "Grep":
        return _text(event.args, "pattern"), _text(event.args, "path")
    steps = steps_of(command_of(event))
    if not steps or steps[0].program not in _SEARCHERS or len(steps) > 2:
        return "", ""
    arguments = [word for word in steps[0].args if not word.startswith("-")]
    return (arguments[0], arguments[1] if len(arguments) > 1 else "") if arguments else ("", "")


def _is_nothing(low: str) -> bool:
    return not low.strip() or low.startswith(_NOTHING) or low.strip() == "exit code 1"


def _is_file(place: str) -> bool:
    name = place.rpartition("/")[2]
    return "." in name.lstrip(".") and not name.endswith((".", "*"))


def _asks_for_names(pattern: str) -> bool:
    """Return whether a pattern contains only names and definition keywords. Other patterns search
    for uses of the names.
    """
    plain = _plain(pattern)
    words = {word for word in _NAME.findall(plain) if len(word) > 1}
    return "=" not in plain and words <= _DEFINING | set(names_in(pattern))


def _plain(pattern: str) -> str:
    """Remove escapes such as `\\b` and `\\w`, and the receivers of Go methods."""
    return _RECEIVER.sub("func ", _ESCAPES.sub(" ", pattern[:MAX_LINE_CHARS]))


def _asks_definition(pattern: str) -> bool:
    return any(word in _DEFINING for word in _NAME.findall(pattern[:MAX_LINE_CHARS]))


def _defined_in(line: str, name: str, place: str) -> str:
    """Return the file in which a line (`FILE:LINE:CODE`, `FILE:CODE` or `LINE:CODE`) defines the
    name, or "" for other lines."""
    file, _, code = line.partition(":")
    number, _, rest = code.partition(":")
    if file.isdigit():
        file = place
    elif number.isdigit():
        code = rest
    before, _, after = code.partition(name)
    if " " in file or not _is_file(file) or after[:1].isalnum() or after[:1] == "_":
        return ""
    return file if _introduces(before) else ""


def _introduces(before: str) -> bool:
    """Return whether a keyword that defines something precedes the name. The receiver of a Go
    method may be between them. A keyword in `_VALUES` must not be indented.
    """
    code = before.rstrip()
    if code == before:
        return False
    word = code.rpartition(" ")[2].strip("\t(")
    receiver = code.rpartition("func (")[2] if code.endswith(")") else ""
    if word in _VALUES:
        return not before[:1].isspace()
    return word in _DEFINING or (0 < len(receiver) < len(code) and ")" not in receiver[:-1])


def _literal(event: SessionEvent) -> str:
    pattern = _text(event.args, "pattern")
    path = pattern.rpartition("**/")[2]
    return path if _is_file(path) and not any(char in path for char in "*?[{") else ""


def _named_missing(command: str, head: str) -> str:
    """Return the file that a program could not open (`cat: PATH: No such file or directory`)."""
    step: CommandStep | None = next((s for s in steps_of(command) if s.program in _READERS), None)
    if step is None:
        return ""
    for line in head.split("\n"):
        program, _, rest = line.partition(": ")
        path, absent, _ = rest.partition(": No such file or directory")
        if absent and program.strip() == step.program and path in step.args and _is_file(path):
            return path
    return ""


def _text(args: Mapping[str, object], name: str) -> str:
    value = args.get(name)
    return value if isinstance(value, str) else ""
