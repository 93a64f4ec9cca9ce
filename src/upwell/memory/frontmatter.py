"""What a document says about itself before it begins: `namespace`, `tags`, `paths`.

The few forms of YAML in which people write such lists; other keys are somebody else's.
"""

import re
from dataclasses import dataclass

from upwell.ground.errors import UsageError
from upwell.memory.namespaces import ALIASES, KNOWN, namespace

_FRONT = re.compile(r"\A---[ \t]*\r?\n((?:.*\r?\n){0,200}?)---[ \t]*(?:\r?\n|\Z)")
_KEY = re.compile(r"([A-Za-z_][\w-]*)[ \t]*:[ \t]*(.*)")
_ITEM = re.compile(r"[ \t]*-[ \t]+(.*)")


@dataclass(frozen=True, slots=True)
class Front:
    """What stands at the top of a document; `end` is where its body begins."""

    namespace: str = ""
    tags: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    end: int = 0


def front_of(text: str) -> Front:
    """The front matter of `text`. What cannot be read as such says nothing."""
    match = _FRONT.match(text)
    if match is None:
        return Front()
    found: dict[str, list[str]] = {}
    key = ""
    for line in match.group(1).splitlines():
        if (item := _ITEM.fullmatch(line)) is not None:
            found.setdefault(key, []).append(_bare(item.group(1)))
        elif (pair := _KEY.fullmatch(line)) is not None:
            key = pair.group(1).lower()
            found[key] = _values(pair.group(2))
    return Front(
        namespace=_known_name(next(iter(found.get("namespace", [])), "")),
        tags=tuple(filter(None, found.get("tags", []))),
        paths=tuple(filter(None, found.get("paths", []))),
        end=match.end(),
    )


def namespace_of(front: Front, path: str) -> str:
    """The one it names, else that of the nearest folder in `path` called like a kind of memory
    (`memory/decisions/db.md`), else the usual one."""
    folders = path.split("/")[:-1]
    named = (name.lower() for name in reversed(folders) if name.lower() in {*KNOWN, *ALIASES})
    return front.namespace or namespace(next(named, ""))


def _values(text: str) -> list[str]:
    bare = text.strip()
    if bare.startswith("[") and bare.endswith("]"):
        bare = bare[1:-1]
    return [_bare(part) for part in bare.split(",")] if bare else []


def _bare(value: str) -> str:
    return value.strip().strip("\"'").strip()


def _known_name(name: str) -> str:
    try:
        return namespace(name) if name else ""
    except UsageError:
        return ""
