"""From a cue to a query: the five levels of seed 000 for tool calls, seed 003 for messages.

Whatever the level, the files and names in a call are handed on for the exact join: in coding work
they say more than words do.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import islice
from typing import Any

from upwell.ground.names import first_match
from upwell.ground.project import project_of, repository_of
from upwell.ground.text.anchors import paths_in, symbols_in
from upwell.ground.text.lexicon import Lexicon, shipped
from upwell.ground.text.words import informative, split_identifier, terms
from upwell.ground.types import AUTOMATIC_DOORS, Cue, Query, QuerySource, Scope
from upwell.memory.everyday import EVERYDAY_WORDS
from upwell.surface.messages import messages_of
from upwell.surface.spoken import MAX_VALUE_CHARS, Speech, speech_of

PATH_KEYS = ("path", "file", "filepath", "file_path", "filename")
OTHER_PATH_KEYS = ("paths", "files", "notebook_path", "directory", "dir", "folder", "repo_path")
SEMANTIC_KEYS = (
    "query",
    "search",
    "q",
    "pattern",
    "question",
    "topic",
    "title",
    "subject",
    "name",
    "symbol",
    "url",
    "uri",
    "description",
    "prompt",
    "text",
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
"""Tool pattern → query with places for arguments (seed 000, level 1). `surface.templates` come
before these; a place may be dotted (`{filter.title}`)."""
FOLDER_TOOLS = ("Grep", "Glob", "LS", "*search*", "*grep*", "*list*", "*tree*", "*find*")
"""Tools whose `path` is where they look, not what they look at."""
UNTELLING_KEYS = frozenset({"description", "output_mode", "repo", "owner", "type", "branch"})
_MAX_ANCHORS = 12
"""So many of a list are looked at, too: what a call costs does not grow with what it says."""
_MAX_ARGUMENTS = 50
_PLACE = re.compile(r"\{([\w.-]+)\}")


@dataclass(frozen=True, slots=True)
class CueReader:
    """Reads cues: what to look for. `templates` are the user's, and come first."""

    templates: Mapping[str, str] = field(default_factory=dict)
    lexicon: Lexicon = field(default_factory=shipped)

    def query(self, cue: Cue, limit: int) -> Query | None:
        """What to look for, or None when the cue gives nothing to look for."""
        scope = Scope(project=_project(cue), namespaces=cue.principal.namespaces)
        if cue.tool is None:
            return self._of_message(cue, scope, limit)
        text, source = self.five_levels(cue.tool, cue.args, scope.project)
        paths, symbols = anchors_of(cue.tool, cue.args)
        if not text and not paths and not symbols:
            return None
        query = Query(
            texts=(text,) if text else (),
            paths=paths,
            symbols=symbols,
            scope=scope,
            limit=limit,
            source=source,
            awaited=cue.door not in AUTOMATIC_DOORS,
        )
        joined = paths or symbols
        return replace(query, texts=()) if joined and says_little(query, self.lexicon) else query

    def five_levels(
        self, tool: str, args: Mapping[str, Any], root: str | None = None
    ) -> tuple[str, QuerySource]:
        """What a call asks for in words: the first level of seed 000 that gives a usable text."""
        speech = speech_of(self.lexicon)
        levels: tuple[tuple[QuerySource, Callable[[], str]], ...] = (
            (QuerySource.TEMPLATE, lambda: self._from_template(tool, args, speech, root)),
            (QuerySource.AGENT, lambda: _string(args.get(CONTEXT_QUERY))),
            (QuerySource.PATH, lambda: _from_paths(args, speech, root)),
            (QuerySource.KEYS, lambda: _from_keys(args, speech, root)),
            (QuerySource.TOOL_NAME, lambda: _from_name(tool)),
        )
        for source, read in levels:
            text = " ".join(read().split())
            if usable(text):
                return text, source
        return "", QuerySource.TOOL_NAME

    def _of_message(self, cue: Cue, scope: Scope, limit: int) -> Query | None:
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

    def _from_template(
        self, tool: str, args: Mapping[str, Any], speech: Speech, root: str | None
    ) -> str:
        pattern = first_match(tool, (*self.templates, *TEMPLATES))
        template = self.templates.get(pattern) or TEMPLATES.get(pattern, "")
        return _filled(template, args, speech, root) if template else ""


def query_text(tool: str, args: Mapping[str, Any], templates: Mapping[str, str]) -> str:
    """What a call asks for, in words: the surfacing query, which also steers compression."""
    return CueReader(templates).five_levels(tool, args)[0]


def usable(text: str) -> bool:
    """Has it at least one word that says something?"""
    return bool(informative(terms(text[:MAX_VALUE_CHARS])))


def _project(cue: Cue) -> str | None:
    """The repository of the cue's folder; where the host stands outside of any, that of the first
    file in the call which lies in one; else the folder."""
    if cue.cwd is None or repository_of(cue.cwd):
        return project_of(cue.cwd)
    for key in (*PATH_KEYS, *OTHER_PATH_KEYS):
        for path in _strings(cue.args.get(key)):
            if path.startswith("/") and (root := repository_of(path)):
                return root
    return project_of(cue.cwd)


def _filled(template: str, args: Mapping[str, Any], speech: Speech, root: str | None) -> str:
    """The template with its places filled; nothing where it has places and all are empty."""
    places = _PLACE.findall(template)
    spoken = {place: _spoken(place, _found(args, place), speech, root) for place in places}
    if places and not any(spoken.values()):
        return ""
    return _PLACE.sub(lambda place: spoken[place.group(1)], template)


def _found(args: Any, place: str) -> Any:
    """`args["filter.title"]`, or `args["filter"]["title"]`."""
    if not isinstance(args, Mapping):
        return None
    if place in args:
        return args[place]
    name, _, rest = place.partition(".")
    return _found(args.get(name), rest) if rest else None


def _from_paths(args: Mapping[str, Any], speech: Speech, root: str | None) -> str:
    paths = [value for key in PATH_KEYS for value in _strings(args.get(key))]
    return " ".join(filter(None, (speech.path(path, root) for path in paths)))


def _from_keys(args: Mapping[str, Any], speech: Speech, root: str | None) -> str:
    found = [_spoken(key, args.get(key), speech, root) for key in SEMANTIC_KEYS if key in args]
    return " ".join(filter(None, found))


def _from_name(tool: str) -> str:
    return " ".join(split_identifier(tool.rpartition("__")[2]))


@lru_cache(maxsize=4)
def _of_every_tool(lexicon: Lexicon) -> frozenset[str]:
    return EVERYDAY_WORDS.union(lexicon.commands, lexicon.boilerplate, lexicon.tool_words)


def says_little(query: Query, lexicon: Lexicon) -> bool:
    """Is all that is known the name of a tool, and that what many tools do (`get_file_info`)?"""
    return query.source is QuerySource.TOOL_NAME and not any(
        word not in _of_every_tool(lexicon) for text in query.texts for word in text.split()
    )


def _spoken(key: str, value: Any, speech: Speech, root: str | None) -> str:
    """An argument as words, by what it is."""
    text = _string(value)
    if key.rpartition(".")[2] in COMMAND_KEYS:
        return speech.command(text, root)
    return speech.value(text, root)


def anchors_of(tool: str, args: Mapping[str, Any]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The files that a call is about and the code names it mentions, at most a dozen each."""
    looks_in = first_match(tool, FOLDER_TOOLS)
    paths: dict[str, None] = {}
    symbols: dict[str, None] = {}
    for key, value in islice(args.items(), _MAX_ARGUMENTS):
        if key in UNTELLING_KEYS:
            continue
        if key in PATH_KEYS or key in OTHER_PATH_KEYS:
            paths.update({} if looks_in else dict.fromkeys(_strings(value)))
        elif key == "pattern" and isinstance(value, str) and _is_file_pattern(value):
            paths.setdefault(value)
        else:
            paths.update(dict.fromkeys(paths_in(_string(value))))
            symbols.update(dict.fromkeys(symbols_in(_string(value))))
    return tuple(paths)[:_MAX_ANCHORS], tuple(symbols)[:_MAX_ANCHORS]


def _is_file_pattern(value: str) -> bool:
    """`**/*name*.py`: a pattern of files, not of text."""
    return "*" in value and "/" in value and " " not in value


def _strings(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value[:MAX_VALUE_CHARS]] if value else []
    if isinstance(value, list):
        return [item[:MAX_VALUE_CHARS] for item in value[:_MAX_ANCHORS] if isinstance(item, str)]
    return []


def _string(value: Any) -> str:
    return " ".join(_strings(value))
