"""What a tool answered, in its host's own shape: which texts in it may be shortened, and the same
shape with others in their place."""

import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any

from upwell.ground.types import Cue
from upwell.hook.events import Event, Host
from upwell.surface.gate import writes

TEXT_KEYS = ("stdout", "stderr", "content", "result", "output")
"""Where built-in tools keep a text. Nothing else of an object is touched."""
MAX_CHARS = 500_000
"""Shortening more takes longer than a hook may."""

NEVER = frozenset({"Read", "NotebookRead"})
"""Files that are read: an edit must match what stands there, byte for byte."""
_READS_ORIGINAL = re.compile(r"\bupwell\b[^\n;&|]*\sread\s")

Path = tuple[str | int, ...]
Shorten = Callable[[str, Event, Sequence[str], int | None], Awaitable[Sequence[str | None]]]
"""Host, event, the texts of the tool's answer and the most tokens that the host takes; gives each
shortened, None for those that stay as they are."""


async def as_they_are(
    host: str, event: Event, texts: Sequence[str], hard_tokens: int | None
) -> Sequence[str | None]:
    """Nothing is shortened."""
    return [None] * len(texts)


def replaceable(event: Event, cue: Cue) -> bool:
    """May what this tool answered be shortened? Not what an edit relies on, not beside a tool that
    writes, and not an original that is being read."""
    if event.reply is None or event.tool in NEVER or writes(cue):
        return False
    command = event.args.get("command")
    return not (isinstance(command, str) and _READS_ORIGINAL.search(command))


async def shortened(host: Host, event: Event, shorten: Shorten) -> Mapping[str, Any]:
    """The tool's answer with its texts shortened, as the host takes it; empty where nothing is to
    be changed."""
    found = texts_in(event.reply)
    texts = [text for _, text in found]
    fitted = await shorten(host.name, event, texts, host.reply_tokens) if texts else []
    if not any(text is not None for text in fitted):
        return {}
    reply = with_texts(event.reply, [place for place, _ in found], fitted)
    return host.replaced(event, reply)


def texts_in(reply: Any) -> list[tuple[Path, str]]:
    """The texts of an answer with their places: a string itself, the known keys of an object, the
    text blocks of a list (also under `content`); nothing where they are too long together."""
    found = list(_texts(reply, ()))
    return found if sum(len(text) for _, text in found) <= MAX_CHARS else []


def with_texts(reply: Any, places: Sequence[Path], texts: Sequence[str | None]) -> Any:
    """`reply` with these texts at these places, None leaving one as it is."""
    for place, text in zip(places, texts, strict=True):
        if text is not None:
            reply = _put(reply, place, text)
    return reply


def _texts(reply: Any, place: Path) -> Iterator[tuple[Path, str]]:
    if isinstance(reply, str):
        yield place, reply
    elif isinstance(reply, Mapping):
        for key in TEXT_KEYS:
            value = reply.get(key)
            if isinstance(value, str):
                yield (*place, key), value
            elif isinstance(value, list):
                yield from _blocks(value, (*place, key))
    elif isinstance(reply, list):
        yield from _blocks(reply, place)


def _blocks(blocks: Sequence[Any], place: Path) -> Iterator[tuple[Path, str]]:
    for number, block in enumerate(blocks):
        if isinstance(block, Mapping) and block.get("type") == "text":
            text = block.get("text")
            if isinstance(text, str):
                yield (*place, number, "text"), text


def _put(value: Any, place: Path, text: str) -> Any:
    if not place:
        return text
    key, rest = place[0], place[1:]
    if isinstance(key, int):
        return [*value[:key], _put(value[key], rest, text), *value[key + 1 :]]
    return {**value, key: _put(value[key], rest, text)}
