"""Names the files in a cue by their real paths.

An agent may work in a project that it reached through a link, or name a file through one. Memories
and rules know the real path.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from msgspec.structs import replace

from upwell.ground.project import link_into, project_of, real_folder
from upwell.ground.types.cue import Cue

MAX_TEXTS = 64
MAX_PATHS = 16
MAX_CHARS = 20_000
"""Links are looked for in the first texts of a cue, in at most this many absolute paths outside the
project, and in the beginning of each text."""
_ABSOLUTE = re.compile(r"(?<![\w.~/@-])(?:file://)?(/(?!/)[^\s'\"`:;,()<>|&=]++)")


def with_real_paths(cue: Cue) -> Cue:
    """The cue with its folder, and the paths into its project, as the project's root names them."""
    project = project_of(cue.cwd)
    if cue.cwd is None or project is None:
        return cue
    cwd = real_folder(cue.cwd)
    texts = (cue.cwd, *islice(_strings(cue.args.values()), MAX_TEXTS), cue.text)
    outside = (path for path in _paths(texts) if not path.startswith(f"{project}/"))
    found = (link_into(project, path) for path in islice(outside, MAX_PATHS))
    links = dict(link for link in found if link)
    if not links:
        return cue if cwd == cue.cwd else replace(cue, cwd=cwd)
    real = _renaming(links)
    return replace(
        cue,
        cwd=cwd,
        text=real(cue.text),
        args={key: _mapped(value, real) for key, value in cue.args.items()},
        answer=replace(cue.answer, text=real(cue.answer.text)) if cue.answer else None,
    )


def _renaming(links: Mapping[str, str]) -> Callable[[str], str]:
    longest = sorted(map(re.escape, links), key=len, reverse=True)
    named = re.compile(rf"(?<![\w.~@-])(?:{'|'.join(longest)})(?![\w-]|\.\w)")
    return lambda text: named.sub(lambda match: links[match.group()], text)


def _strings(values: Iterable[Any]) -> Iterator[str]:
    for value in values:
        if isinstance(value, str):
            yield value
        elif isinstance(value, list):
            yield from (item for item in value if isinstance(item, str))


def _paths(texts: Iterable[str]) -> Iterator[str]:
    for text in texts:
        if text[:1] == "/":
            # A path may contain spaces.
            yield text.partition("\n")[0]
        if "/" in text:
            yield from (match[1] for match in _ABSOLUTE.finditer(text[:MAX_CHARS]))


def _mapped(value: Any, real: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return real(value)
    if isinstance(value, list):
        return [_mapped(item, real) for item in value]
    if isinstance(value, Mapping):
        return {key: _mapped(item, real) for key, item in value.items()}
    return value
