"""The content blocks and `_meta` of tool results, parsed only as far as needed; the parts that can
be shortened (text blocks, embedded text files, and structuredContent unless a text repeats it); and
the default budget of a result, which depends on the kind of tool.
"""

import json
import re
from collections.abc import Sequence
from enum import StrEnum
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from upwell.compress.options import CompressOptions
from upwell.ground.context_windows import ResultTokens
from upwell.ground.text.tokens import count
from upwell.ground.types.rpc import Reply, ToolCall
from upwell.wire.rawjson import NotJson, RawArray, RawObject, dumps, kind_of, loads


def text_block(text: str) -> bytes:
    return dumps({"type": "text", "text": text})


def error_result(reason: str) -> Reply:
    return Reply(result=dumps({"content": [{"type": "text", "text": reason}], "isError": True}))


def text_of(block: bytes) -> str:
    """Return the text of a raw content block, or "" if there is none."""
    try:
        text = RawObject.parse(block).value("text")
    except NotJson:
        return ""
    return text if isinstance(text, str) else ""


def has_constant(raw: bytes) -> bool:
    """Return whether a value contains NaN or Infinity, which some servers write although JSON has
    no such numbers."""
    found: list[str] = []
    try:
        json.loads(raw, parse_int=float, parse_constant=found.append)
    except (ValueError, RecursionError):
        return False
    return bool(found)


def content_of(result: RawObject) -> list[bytes] | None:
    """Return the raw content blocks of a result, or None if `content` is missing or malformed."""
    raw = result.get("content")
    if raw is None or kind_of(raw) != "array":
        return None
    try:
        return list(RawArray.parse(raw).items)
    except NotJson:
        return None


def with_content(result: RawObject, blocks: list[bytes]) -> RawObject:
    return result.replaced("content", RawArray(tuple(blocks)).encode())


OURS = frozenset({"surfacing_id", "upwell"})
"""The keys of `_meta` that only the gateway may write."""


def without_forged_meta(result: RawObject) -> RawObject:
    raw = result.get("_meta")
    if raw is None or kind_of(raw) != "object":
        return result
    meta = RawObject.parse(raw)
    forged = [name for name in OURS if name in meta]
    return result.replaced("_meta", meta.without(*forged).encode()) if forged else result


def with_meta(result: RawObject, name: str, value: Any) -> RawObject:
    raw = result.get("_meta")
    meta = RawObject.parse(raw) if raw and kind_of(raw) == "object" else RawObject()
    return result.replaced("_meta", meta.replaced(name, dumps(value)).encode())


MAX_TEXTS = 100
"""If a result has more text blocks than this, their texts are joined and shortened as one text."""
STRUCTURED = "structuredContent"
_NOWHERE = -1
_MEDIA = ("image", "audio", "resource")
_REPEATED_BYTES = 400


class ResultPart(Struct, frozen=True):
    """A `text` of a result. `place` is the index of its `block`. `name` is the address of an
    embedded file, or `STRUCTURED`, and "" for a text block."""

    place: int
    block: RawObject
    text: str
    tokens: int
    name: str = ""

    @property
    def is_structured(self) -> bool:
        """Whether this is the structuredContent, which must stay a JSON object."""
        return self.place == _NOWHERE and self.name == STRUCTURED

    def block_with(self, text: str) -> bytes:
        if not self.name:
            return self.block.replaced("text", dumps(text)).encode()
        file = RawObject.parse(self.block.get("resource") or b"{}")
        return self.block.replaced("resource", file.replaced("text", dumps(text)).encode()).encode()


def plain_parts(texts: Sequence[str]) -> list[ResultPart]:
    return [ResultPart(index, RawObject(), text, count(text)) for index, text in enumerate(texts)]


def parts_of(result: RawObject, blocks: Sequence[bytes]) -> tuple[list[bytes], list[ResultPart]]:
    """Return the blocks of a result and its parts. If there are more than `MAX_TEXTS` text blocks,
    they are joined in the first. Text blocks beyond this number are kept only as strings, because
    with so many objects the garbage collector would hold up the event loop.
    """
    parts: list[ResultPart] = []
    files: list[ResultPart] = []
    strings: list[str] = []
    places: list[int] = []
    tokens = 0
    for place, raw in enumerate(blocks):
        try:
            block = RawObject.parse(raw)
            kind = block.value("type")
            string = block.value("text") if kind == "text" else None
            file = _file(place, block) if kind == "resource" and len(files) < MAX_TEXTS else None
        except NotJson:
            continue
        if file is not None:
            files.append(file)
        if isinstance(string, str):
            string_tokens = count(string)
            tokens += string_tokens
            strings.append(string)
            places.append(place)
            if len(parts) < MAX_TEXTS:
                parts.append(ResultPart(place, block, string, string_tokens))
    if len(strings) > len(parts):
        other_places = set(places[1:])
        kept = [place for place in range(len(blocks)) if place not in other_places]
        blocks = [blocks[place] for place in kept]
        moved = {place: index for index, place in enumerate(kept)}
        files = [replace(file, place=moved[file.place]) for file in files]
        first = replace(parts[0], place=moved[places[0]], text="\n".join(strings), tokens=tokens)
        parts = [first]
    structured = result.get(STRUCTURED)
    if structured is not None and not is_repeated(structured, strings):
        text = structured.decode("utf-8", "replace")
        files.append(ResultPart(_NOWHERE, RawObject(), text, count(text), STRUCTURED))
    return list(blocks), [*parts, *files]


def is_repeated(structured: bytes, texts: Sequence[str]) -> bool:
    """Return whether the texts of a result give its structuredContent: as JSON, or as the only
    value in it (`{"result": "…"}`)."""
    try:
        value = loads(structured)
    except NotJson:
        return False
    only = next(iter(value.values())) if isinstance(value, dict) and len(value) == 1 else value
    if only == "\n".join(texts) or (isinstance(only, list) and only in (texts, _decoded(texts))):
        return True
    return any(decoded in (value, only) for decoded in _decoded(texts))


def is_object(text: str) -> bool:
    try:
        return isinstance(loads(text.encode()), dict)
    except (NotJson, UnicodeEncodeError):
        return False


def _decoded(texts: Sequence[str]) -> list[Any]:
    decoded: list[Any] = []
    for text in texts:
        if text.lstrip()[:1] in ("{", "["):
            try:
                decoded.append(loads(text.encode()))
            except (NotJson, UnicodeEncodeError):
                continue
    return decoded


def _file(place: int, block: RawObject) -> ResultPart | None:
    file = RawObject.parse(block.get("resource") or b"{}")
    text, uri = file.value("text"), file.value("uri")
    if not isinstance(text, str):
        return None
    return ResultPart(
        place, block, text, count(text), uri if isinstance(uri, str) and uri else "file"
    )


def with_references(blocks: Sequence[bytes]) -> list[bytes]:
    """Replace each image, sound or file with the data of an earlier one by a reference to it."""
    first: dict[tuple[bytes | None, ...], int] = {}
    shown: list[bytes] = []
    for number, raw in enumerate(blocks, 1):
        data, name = _media(raw) if len(raw) > _REPEATED_BYTES else ((), "")
        earlier = first.setdefault(data, number) if data else number
        same = f"[upwell] {name} as in block {earlier} of this result."
        shown.append(raw if earlier == number else text_block(same))
    return shown


def _media(raw: bytes) -> tuple[tuple[bytes | None, ...], str]:
    """Return what two blocks with the same data have in common, and how a reference calls it. A
    text has nothing in common with another."""
    try:
        block = RawObject.parse(raw)
        kind = block.value("type")
        if kind not in _MEDIA:
            return (), ""
        file = RawObject.parse(block.get("resource") or b"{}")
        uri = file.value("uri")
    except NotJson:
        return (), ""
    if blob := file.get("blob"):
        return (file.get("mimeType"), blob), f"{uri}: the same data"
    if data := block.get("data"):
        return (block.get("mimeType"), data), f"The same {kind}"
    return (raw,), f"The same {kind}"


class ToolKind(StrEnum):
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
factor of an unlisted kind is 1. The output of commands and searches is mostly short, and repetitive
if it is long. An agent that reads a file usually edits it next, so `READ` has a budget of its own.
"""

LEAST_FACTOR = min(factor for factors in BUDGET_FACTORS.values() for factor in factors.values())
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_SHELL = frozenset({"bash", "shell", "exec", "execute", "command", "terminal", "sh", "powershell"})
_SEARCH = frozenset({"grep", "glob", "search", "find", "list", "ls", "tree", "directory"})
_PAGE = frozenset({"fetch", "page", "snapshot", "browser", "navigate", "crawl", "scrape", "web"})
_READ = frozenset({"read", "view", "cat", "open"})
_FILE_ARGUMENTS = ("path", "file_path", "file", "filepath", "filename", "absolute_path", "paths")


def kind_of_tool(call: ToolCall) -> ToolKind:
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
    """Return the budget of a call for which no limit is configured."""
    kind = kind_of_tool(call)
    if kind == ToolKind.READ:
        return max(tokens.file, tokens.usual)
    return max(1, round(tokens.usual * BUDGET_FACTORS[options.profile].get(kind, 1.0)))
