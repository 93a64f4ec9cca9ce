"""Cursor's rules in a project, `.cursor/rules/*.mdc`, and the older `.cursorrules`.

A rule that always applies becomes a standing rule. A rule with globs becomes a standing rule for
the files that match. Cursor uses all other rules only if the agent asks for them or the user
mentions them, so they become memories that a search finds by their description. Standing rules in
a subfolder's `.cursor/rules` apply to that subfolder.

Source: Cursor's documentation of rules. The front matter of a rule need not be valid YAML.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from upwell.ground.errors import UsageError
from upwell.ground.foreign import read_text
from upwell.ground.project import project_of, repository_of
from upwell.ground.walk import Walk
from upwell.migration.base import Item, LeftOut, Place, record, standing_rule
from upwell.migration.front_matter import Fields, field, front_and_body, items
from upwell.surface.scopes import checked_scope

MAX_PATTERNS, MAX_PATTERN_CHARS = 32, 1_000
MAX_FOLDERS, MAX_ENTRIES = 20_000, 20_000
_RULES = Path(".cursor", "rules")
_LEGACY = ".cursorrules"
_SKIPPED = {".git", "node_modules", ".venv", "venv", "target", "dist", "build"}


class CursorRules:
    name = "cursor-rules"
    usual = ".cursor/rules/*.mdc of this project"

    def stores(self, place: Place) -> list[Path]:
        root = Path(repository_of(str(place.folder)) or place.folder)
        return [root] if any(_files(root)) else []

    def read(self, path: Path, place: Place) -> Iterator[Item]:
        root = _root(path)
        files = [path] if path.is_file() else sorted(_files(path))
        if not files:
            raise UsageError(f"{path} has no rules of Cursor", hint=f"usually {self.usual}")
        for file in files:
            try:
                yield _rule(file, root)
            except UsageError as error:
                yield LeftOut(error.message, str(file))


def _files(folder: Path) -> Iterator[Path]:
    walk = Walk(str(_root(folder)), MAX_ENTRIES)
    if folder.parts[-2:] == _RULES.parts:
        yield from walk.below(folder, ".mdc")
        return
    for number, (name, folders, files) in enumerate(os.walk(folder)):
        if number > MAX_FOLDERS:
            return
        if _LEGACY in files:
            yield Path(name, _LEGACY)
        if ".cursor" in folders:
            yield from walk.below(Path(name, _RULES), ".mdc")
        folders[:] = [inner for inner in folders if inner not in _SKIPPED and inner != ".cursor"]


def _root(path: Path) -> Path:
    absolute = path.resolve()
    parts = absolute.parts
    if ".cursor" in parts:
        absolute = Path(*parts[: parts.index(".cursor")])
    elif absolute.is_file():
        absolute = absolute.parent
    return Path(project_of(str(absolute)) or absolute)


def _rule(file: Path, root: Path) -> Item:
    absolute = file.resolve()
    if not absolute.is_relative_to(root):
        return LeftOut("a link out of the project", str(file))
    source = absolute.relative_to(root).as_posix()
    fields, body = front_and_body(read_text(file))
    folder = source.partition(".cursor/")[0] if ".cursor/" in source else ""
    always = file.name == _LEGACY or field(fields, "alwaysapply").lower() == "true"
    globs = [] if always else items(fields, "globs")
    is_standing = always or bool(globs)
    rule = record(
        CursorRules.name,
        f"{root}/{source}",
        _text(fields, body.strip(), is_standing=is_standing),
        kind="patterns",
        tags=["cursor-rule"],
        created_at=absolute.stat().st_mtime,
        project=str(root),
    )
    patterns = [f"{folder}{glob}" for glob in globs] or ([f"{folder}**"] if folder else [])
    return standing_rule(rule, _scope(patterns)) if is_standing else rule


def _text(fields: Fields, body: str, *, is_standing: bool) -> str:
    """The text of a rule. If a search has to find the rule, its text includes the description. A
    standing rule keeps the exact text of its file. So upwell can see that Cursor has already loaded
    the rule from the file, and does not show it again."""
    description = field(fields, "description")
    if not body or (not is_standing and description not in body):
        return f"{description}\n{body}".strip()
    return body


def _scope(globs: list[str]) -> tuple[str, ...]:
    usual = [glob for glob in globs if len(glob) <= MAX_PATTERN_CHARS][:MAX_PATTERNS]
    patterns = [pattern for glob in usual for pattern in _without_braces(glob)]
    return checked_scope(patterns[:MAX_PATTERNS], ()).triggers()


def _without_braces(glob: str) -> list[str]:
    """`*.{js,ts}` becomes `*.js` and `*.ts`."""
    patterns = [glob]
    while len(patterns) <= MAX_PATTERNS:
        pattern = next((item for item in patterns if _has_braces(item)), None)
        if pattern is None:
            break
        start, end = pattern.index("{"), pattern.index("}")
        at = patterns.index(pattern)
        choices = pattern[start + 1 : end].split(",", MAX_PATTERNS)[:MAX_PATTERNS]
        patterns[at : at + 1] = [f"{pattern[:start]}{it}{pattern[end + 1 :]}" for it in choices]
    return patterns


def _has_braces(glob: str) -> bool:
    start = glob.find("{")
    return start >= 0 and glob.find("}") > start
