"""What a call leaves behind outside the files: commits, branches, tickets and pull requests."""

import re
from collections.abc import Iterator
from itertools import pairwise

from upwell.episodes.signatures import steps_of
from upwell.episodes.triggers import tickets_in

MAX_SUBJECT_CHARS, MAX_NAME_CHARS = 100, 100
_COMMITTED = re.compile(
    r"^\[([^\s\]]+)(?: \(root-commit\))? ([0-9a-f]{7,40})\] (.+)$", re.MULTILINE
)
"""What git prints after a commit: branch, hash and subject."""
_PULL = re.compile(r"/(?:pull|pulls|merge_requests)/(\d{1,7})\b|\b(?:PR|MR)s?\s*[#!]?(\d{1,7})\b")
_ISSUE = re.compile(r"/(?:issues|browse|work_items)/([A-Z][A-Z0-9]*-)?(\d{1,7})\b")
_FORGES = {"gh": {"pr": "pull", "issue": "ticket"}, "glab": {"mr": "pull", "issue": "ticket"}}
_NEW_BRANCH = {
    "checkout": ("-b", "-B"),
    "switch": ("-c", "-C", "--create"),
    "worktree": ("-b", "-B"),
}
"""The options with which a sub-command of git creates a branch."""
TRUNKS = frozenset("main master develop dev trunk default HEAD origin upstream".split())
"""Branches on which sessions of every subject work."""


def commits_in(out: str) -> Iterator[tuple[str, str, str]]:
    """The branch, short hash and subject of each commit that an output reports."""
    for match in _COMMITTED.finditer(out):
        yield match[1][:MAX_NAME_CHARS], match[2][:8], match[3].strip()[:MAX_SUBJECT_CHARS]


def branch_in(command: str) -> str:
    """The branch that a command creates, or ""."""
    for step in steps_of(command):
        verb = next((word for word in step.args if word in _NEW_BRANCH), "")
        if step.program == "git" and verb:
            args = step.args[step.args.index(verb) :]
            for option, name in pairwise(args):
                if option in _NEW_BRANCH[verb] and not name.startswith("-"):
                    return name[:MAX_NAME_CHARS]
    return ""


def pulls_in(text: str) -> list[str]:
    """The numbers of the pull requests that a text names."""
    return list(dict.fromkeys(match[1] or match[2] for match in _PULL.finditer(text)))


def issues_in(text: str) -> list[str]:
    """The tickets that a text names, also by their addresses."""
    named = [f"{match[1] or ''}{match[2]}" for match in _ISSUE.finditer(text)]
    return list(dict.fromkeys([*named, *tickets_in(text)]))


def numbers_in(command: str) -> Iterator[tuple[str, str]]:
    """The tickets and pull requests that a forge's own command names (`gh pr view 12`), each with
    its kind, `ticket` or `pull`."""
    for step in steps_of(command):
        kind = _FORGES.get(step.program, {}).get(step.verbs[0]) if step.verbs else None
        number = next((word for word in step.args if word.isdecimal() and len(word) < 8), "")
        if kind and number:
            yield kind, number
