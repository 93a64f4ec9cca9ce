"""Finds the documents and commits about what a failure names: a host, or a file that is no code.

Such a failure is about the surroundings of the work, and only a text that contains the very name
says something about them: how the database on `localhost:5433` is started, or where `certs/dev.pem`
comes from. The files of the code are named in every traceback, and the agent can read them.
"""

import re
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from upwell.episodes.failures import is_refused
from upwell.ground.clock import Deadline
from upwell.ground.errors import RecallError
from upwell.ground.text.anchors import EXTENSIONS, relative_to
from upwell.ground.trace import LOG
from upwell.ground.types.memory import Hit, Query
from upwell.memory.recall import MemoryReader
from upwell.surface.event import Event
from upwell.surface.moments import NAMED, MemoryKind, kind_of

HEAD_CHARS, TAIL_CHARS, MAX_LINE_CHARS = 2_000, 1_500, 300
MAX_NAMES, MAX_FOUND = 4, 8
NAMED_SCORE = 0.6
"""The score of a text that contains a name of the failure, whatever its other words."""
_FAULT = re.compile(
    r"no such file|not found|cannot (?:find|open|access|stat|connect)|can'?t (?:open|find|connect)|"
    r"does not exist|enoent|denied|eacces|refused|econn[a-z]{3,10}|enotfound|unreachable|"
    r"could(?: not|n'?t) (?:resolve|connect|open|find|read)|unable to|timed out|timeout|"
    r"unauthorized|forbidden|no route to host|failed to (?:connect|open|load|read|resolve)",
    re.IGNORECASE,
)
"""What is said of a host that does not answer, or of a file that is not there."""
_HOST = re.compile(
    r"(?<![\w./@-])(?:localhost|(?:[a-z0-9-]{1,63}\.){1,6}[a-z0-9-]{1,63})(?::[0-9]{2,5})?(?![\w-])",
    re.IGNORECASE,
)
_FILE = re.compile(
    r"(?<![\w/.:@~-])(?:~?/|\.{1,2}/)?(?:[\w.+-]{1,80}+/){1,12}+[\w.+-]{1,80}+", re.ASCII
)
_SCHEME = re.compile(r"\b[a-z][a-z0-9+.-]{1,20}://(?:[^\s/@]{1,80}@)?", re.IGNORECASE)
_PUBLIC = re.compile(
    r"(?:^|\.)(?:github|gitlab|bitbucket|npmjs|pypi|pythonhosted|crates|docker|googleapis|"
    r"example|debian|ubuntu|golang)\.[a-z]{2,4}$",
    re.IGNORECASE,
)
"""Hosts that many documents link to."""
_LOCAL = re.compile(r"localhost|0\.0\.0\.0|127\.[0-9.]+")
_NO_CODE = frozenset("cfg conf csv env ini json lock pem properties sql toml xml yaml yml".split())


class FailureNames:
    """Searches for the documents and commits that contain a name of a failure."""

    def __init__(self, reader: MemoryReader) -> None:
        self._reader = reader

    async def found(self, cue: Event, query: Query, deadline: Deadline) -> Sequence[Hit]:
        """The documents and commits that contain a host or file that the failure in `cue` names,
        each with the signal `NAMED`."""
        names = names_in(cue)
        if not names:
            return []
        by_name = Query(
            texts=(" ".join(names),),
            paths=tuple(name for name in names if "/" in name),
            scope=query.scope,
            limit=MAX_FOUND,
            awaited=False,
        )
        try:
            hits = (await self._reader.search(by_name, deadline)).hits
        except RecallError as error:
            LOG.info("the names of a failure were not searched for: %s", error.message)
            return []
        return [
            replace(hit, score=max(hit.score, NAMED_SCORE), signals={**hit.signals, NAMED: 1.0})
            for hit in hits
            if kind_of(hit.memory) in (MemoryKind.DOCUMENT, MemoryKind.COMMIT)
            and any(_contains(hit.memory.text, name) for name in names)
        ]


def names_in(cue: Event) -> list[str]:
    """The hosts and files that the error lines of a failed call name. Files in the project are
    relative to its folder."""
    out = cue.answer.text if cue.answer else ""
    if not out or is_refused(cue.step):
        return []
    tail = out[-TAIL_CHARS:] if len(out) > HEAD_CHARS else ""
    lines = f"{out[:HEAD_CHARS]}\n{tail}".split("\n")
    told = [line[:MAX_LINE_CHARS] for line in lines if _FAULT.search(line[:MAX_LINE_CHARS])]
    names = (name for line in told for name in (*_hosts(line), *_files(line, cue.cwd)))
    return list(dict.fromkeys(names))[:MAX_NAMES]


def _hosts(line: str) -> Iterator[str]:
    for match in _HOST.finditer(_SCHEME.sub(" ", line)):
        host, _, port = match[0].partition(":")
        ending = host.rpartition(".")[2].lower()
        is_number = host.replace(".", "").isdigit()
        if is_number and host.count(".") != 3:
            continue
        if not port and (is_number or _LOCAL.fullmatch(host) or ending in EXTENSIONS):
            continue
        if not _PUBLIC.search(host) and (is_number or host == "localhost" or ending.isalpha()):
            yield match[0]


def _files(line: str, folder: str | None) -> Iterator[str]:
    for match in _FILE.finditer(_SCHEME.sub(" ", line)):
        own = relative_to(match[0].rstrip("."), folder)
        ending = own.rpartition("/")[2].rpartition(".")[2].lower()
        if "/" in own and (ending not in EXTENSIONS or ending in _NO_CODE):
            yield own


def _contains(text: str, name: str) -> bool:
    """True if `text` contains the name, and not only as a part of a longer one."""
    at = text.lower().find(name.lower())
    end = at + len(name)
    before, after = text[at - 1 : at] if at > 0 else "", text[end : end + 1]
    return at >= 0 and not any(
        char.isalnum() or char in "-_." for char in before + after.rstrip(".")
    )
