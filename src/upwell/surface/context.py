"""From a cue to a query: the five levels of seed 000 for tool calls, seed 003 for messages.

Whatever the level, the files and names in a call are handed on for the exact join: in coding work
they say more than words do.
"""

import fnmatch
import re
from collections.abc import Callable, Mapping
from typing import Any

from upwell.ground.project import project_of, repository_of
from upwell.ground.text.anchors import paths_in, symbols_in
from upwell.ground.text.words import informative, path_words, split_identifier, terms
from upwell.ground.types import AUTOMATIC_DOORS, Cue, Query, QuerySource, Scope
from upwell.surface.messages import derive_queries

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
    "prompt",
    "text",
)
CONTEXT_QUERY = "_context_query"
TEMPLATES: Mapping[str, str] = {
    "Grep": "{pattern} {glob}",
    "*search_files": "{pattern}",
    "Bash": "{command}",
    "*shell*": "{command}",
    "WebFetch": "{url} {prompt}",
}
FOLDER_TOOLS = ("Grep", "Glob", "LS", "*search*", "*grep*", "*list*", "*tree*", "*find*")
"""Tools whose `path` is where they look, not what they look at."""
UNTELLING_KEYS = ("description", "output_mode", "repo", "owner", "type", "branch")
BOILERPLATE = frozenset(
    """home users user usr var opt tmp root src lib libs app apps dev workspace workspaces projects
    project repo repos code git github main master index init mod test tests spec specs unit
    packages package pkg internal cmd bin dist build node modules vendor site""".split()
)
_MAX_VALUE_CHARS = 400
_MAX_ANCHORS = 12
_PLACE = re.compile(r"\{(\w+)\}")
_COMMAND_WORDS = re.compile(
    r"(?<![\w./-])(?:python3?|pytest|cargo|go|git|npx?|npm|pnpm|yarn|rg|grep|egrep|cat|sed|awk|head|"
    r"tail|less|find|xargs|test|tests|log|blame|diff|show|status|run|build|install|make|uv|cd|ls|echo|"
    r"bash|sh|node|vitest|jest|tsc|wc|sort|uniq|true|false)(?![\w./-])"
    r"|(?<!\w)-{1,2}[\w-]+(?:=\S+)?|[|&;<>$'\"\\(){}]"
)
_PATH_SHAPED = re.compile(r"^~?/?[\w.@+ -]+(?:[\\/][\w.@+ -]*)*$")


def query_of(cue: Cue, templates: Mapping[str, str], limit: int) -> Query | None:
    """What to look for, or None when the cue gives nothing to look for."""
    scope = Scope(project=_project(cue))
    if cue.tool is None:
        return _message_query(cue, scope, limit)
    text, source = _five_levels(cue.tool, cue.args, templates)
    paths, symbols = anchors_of(cue.tool, cue.args)
    if not text and not paths and not symbols:
        return None
    return Query(
        texts=(text,) if text else (),
        paths=paths,
        symbols=symbols,
        scope=scope,
        limit=limit,
        source=source,
        awaited=cue.door not in AUTOMATIC_DOORS,
    )


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


def query_text(tool: str, args: Mapping[str, Any], templates: Mapping[str, str]) -> str:
    """What a call asks for, in words: the surfacing query, which also steers compression."""
    return _five_levels(tool, args, templates)[0]


def _message_query(cue: Cue, scope: Scope, limit: int) -> Query | None:
    texts = derive_queries(cue.text)
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


def _five_levels(
    tool: str, args: Mapping[str, Any], templates: Mapping[str, str]
) -> tuple[str, QuerySource]:
    """The first level that gives a usable text wins."""
    levels: tuple[tuple[QuerySource, Callable[[], str]], ...] = (
        (QuerySource.TEMPLATE, lambda: _from_template(tool, args, templates)),
        (QuerySource.AGENT, lambda: _string(args.get(CONTEXT_QUERY))),
        (QuerySource.PATH, lambda: _from_paths(args)),
        (QuerySource.KEYS, lambda: _from_keys(args)),
        (QuerySource.TOOL_NAME, lambda: " ".join(split_identifier(tool.rpartition("__")[2]))),
    )
    for source, read in levels:
        text = read().strip()
        if usable(text):
            return text, source
    return "", QuerySource.TOOL_NAME


def usable(text: str) -> bool:
    """Has it at least one word that says something?"""
    return bool(informative(terms(text[:_MAX_VALUE_CHARS])))


def _from_template(tool: str, args: Mapping[str, Any], templates: Mapping[str, str]) -> str:
    for pattern, template in (*templates.items(), *TEMPLATES.items()):
        if fnmatch.fnmatchcase(tool, pattern):
            spoken = _PLACE.sub(lambda place: _spoken(args.get(place.group(1))), template)
            return _telling(spoken)
    return ""


def _from_paths(args: Mapping[str, Any]) -> str:
    spoken = [_spoken_path(value) for key in PATH_KEYS for value in _strings(args.get(key))]
    return " ".join(filter(None, spoken))


def _from_keys(args: Mapping[str, Any]) -> str:
    found = [_spoken(args.get(key)) for key in SEMANTIC_KEYS]
    return " ".join(filter(None, found))


def _spoken(value: Any) -> str:
    """An argument as words: paths are cut into their telling parts."""
    text = _string(value)
    return _spoken_path(text) if "/" in text and _PATH_SHAPED.match(text) else text


def _spoken_path(path: str) -> str:
    return " ".join(word for word in path_words(path) if word not in BOILERPLATE)


def anchors_of(tool: str, args: Mapping[str, Any]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The files that a call is about and the code names it mentions, at most a dozen each."""
    looks_in = any(fnmatch.fnmatchcase(tool, pattern) for pattern in FOLDER_TOOLS)
    paths: dict[str, None] = {}
    symbols: dict[str, None] = {}
    for key, value in args.items():
        if key in UNTELLING_KEYS:
            continue
        if key in PATH_KEYS or key in OTHER_PATH_KEYS:
            paths.update({} if looks_in else dict.fromkeys(_strings(value)))
        elif key == "pattern" and isinstance(value, str) and _is_file_pattern(value):
            paths.setdefault(value)
        else:
            bare = _telling(_string(value))
            found = paths_in(bare)
            paths.update(dict.fromkeys(found))
            symbols.update(dict.fromkeys(symbols_in(bare)))
    return tuple(paths)[:_MAX_ANCHORS], tuple(symbols)[:_MAX_ANCHORS]


def _is_file_pattern(value: str) -> bool:
    """`**/*name*.py`: a pattern of files, not of text."""
    return "*" in value and "/" in value and " " not in value


def _telling(text: str) -> str:
    """A command without the words and options that every command has."""
    return " ".join(_COMMAND_WORDS.sub(" ", text).split())


def _strings(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value[:_MAX_VALUE_CHARS]] if value else []
    if isinstance(value, list):
        return [item[:_MAX_VALUE_CHARS] for item in value if isinstance(item, str)]
    return []


def _string(value: Any) -> str:
    return " ".join(_strings(value))
