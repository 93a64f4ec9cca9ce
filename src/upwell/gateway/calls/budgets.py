"""The default budget of a result, which depends on the kind of tool.

The output of commands and searches is mostly short, and repetitive if it is long. Pages contain
more information. An agent that reads a file usually edits it next, so files are delivered whole
unless they are very large.
"""

import re
from enum import StrEnum

from upwell.compress.options import CompressOptions
from upwell.ground.context_windows import ResultTokens
from upwell.ground.types.rpc import ToolCall


class ToolKind(StrEnum):
    """The kind of a tool, as guessed from its name and arguments."""

    READ = "read"
    SHELL = "shell"
    SEARCH = "search"
    PAGE = "page"
    OTHER = "other"


BUDGET_FACTORS = {
    "light": dict.fromkeys(ToolKind, 2.0),
    "balanced": {ToolKind.SHELL: 0.5, ToolKind.SEARCH: 0.5, ToolKind.PAGE: 0.75},
    "lean": {
        ToolKind.SHELL: 0.25,
        ToolKind.SEARCH: 0.25,
        ToolKind.PAGE: 0.375,
        ToolKind.OTHER: 0.5,
    },
}
"""For each profile, the budget of a kind of tool as a multiple of the agent's usual budget. The
factor of an unlisted kind is 1. `default_tokens()` does not apply a factor to `READ`.
"""

LEAST_FACTOR = min(factor for factors in BUDGET_FACTORS.values() for factor in factors.values())
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_SHELL = frozenset({"bash", "shell", "exec", "execute", "command", "terminal", "sh", "powershell"})
_SEARCH = frozenset({"grep", "glob", "search", "find", "list", "ls", "tree", "directory"})
_PAGE = frozenset({"fetch", "page", "snapshot", "browser", "navigate", "crawl", "scrape", "web"})
_READ = frozenset({"read", "view", "cat", "open"})
_FILE_ARGUMENTS = ("path", "file_path", "file", "filepath", "filename", "absolute_path", "paths")


def kind_of(call: ToolCall) -> ToolKind:
    """Guess the kind of a tool from the words in its name and from its arguments."""
    words = {word.lower() for word in _WORD.findall(call.tool)}
    names_file = any(name in call.args for name in _FILE_ARGUMENTS)
    if words & _PAGE:
        return ToolKind.PAGE
    if names_file and (words & _READ or {"get", "file"} <= words):
        return ToolKind.READ
    if words & _SHELL or isinstance(call.args.get("command"), str):
        return ToolKind.SHELL
    return ToolKind.SEARCH if words & _SEARCH else ToolKind.OTHER


def default_tokens(call: ToolCall, options: CompressOptions, tokens: ResultTokens) -> int:
    """Return the budget of a call for which no limit is configured. `tokens` are the agent's
    budgets.
    """
    kind = kind_of(call)
    if kind == ToolKind.READ:
        return max(tokens.file, tokens.usual)
    return max(1, round(tokens.usual * BUDGET_FACTORS[options.profile].get(kind, 1.0)))
