"""Find the text in a tool's result that may be shortened, and replace it without changing the
structure of the result.
"""

import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any

from upwell.ground.types.cue import Cue
from upwell.hosts.base import Host
from upwell.hosts.events import HostEvent
from upwell.surface.event import writes

TEXT_KEYS = ("stdout", "stderr", "content", "result", "output")
"""The keys under which built-in tools put text. No other key of an object is changed."""
MAX_CHARS = 500_000
"""Results with more characters than this are not shortened, because a hook has too little time."""
UNTOUCHED_TOOLS = frozenset({"Read", "NotebookRead"})
"""Tools that read files. Their results are not shortened, because a later edit must match the file
byte for byte."""
_READS_ORIGINAL = re.compile(r"\bupwell\b(?:(?!\bupwell\b)[^\n;&|])*?\sread\s")

KeyPath = tuple[str | int, ...]
Shorten = Callable[[str, HostEvent, Sequence[str], int | None], Awaitable[Sequence[str | None]]]
"""Takes a host's name, an event, the texts of the tool's result and the host's limit in tokens.
Returns the shortened texts, with None for each unchanged text."""


async def no_shortening(
    host: str, event: HostEvent, texts: Sequence[str], max_tokens: int | None
) -> Sequence[str | None]:
    return [None] * len(texts)


def may_shorten(event: HostEvent, cue: Cue) -> bool:
    """Return whether the tool's result may be shortened. Results of failed calls and of tools that
    read or write files stay unchanged, and so do originals that the agent reads with `upwell read`.
    """
    if event.reply is None or event.tool in UNTOUCHED_TOOLS or writes(cue):
        return False
    if event.answer is not None and event.answer.failed:
        return False
    command = event.args.get("command")
    return not (isinstance(command, str) and _READS_ORIGINAL.search(command))


async def shortened_output(host: Host, event: HostEvent, shorten: Shorten) -> Mapping[str, Any]:
    """Return the hook output that replaces the tool's result, or an empty output if nothing was
    shortened."""
    located = texts_in(event.reply)
    texts = [text for _, text in located]
    limit = host.events.reply_tokens
    fitted = await shorten(host.name, event, texts, limit) if texts else []
    if not any(text is not None for text in fitted):
        return {}
    reply = with_texts(event.reply, [path for path, _ in located], fitted)
    return host.events.replacement_output(event, reply)


def texts_in(reply: Any) -> list[tuple[KeyPath, str]]:
    """Return the texts in a reply with their key paths, or nothing if their total length is too
    great. The texts are the reply itself if it is a string, the strings under `TEXT_KEYS`, and the
    text blocks of a list.
    """
    located = list(_texts(reply, ()))
    return located if sum(len(text) for _, text in located) <= MAX_CHARS else []


def with_texts(reply: Any, places: Sequence[KeyPath], texts: Sequence[str | None]) -> Any:
    """None leaves a text unchanged."""
    for path, text in zip(places, texts, strict=True):
        if text is not None:
            reply = _replaced(reply, path, text)
    return reply


def _texts(reply: Any, path: KeyPath) -> Iterator[tuple[KeyPath, str]]:
    if isinstance(reply, str):
        yield path, reply
    elif isinstance(reply, Mapping):
        for key in TEXT_KEYS:
            value = reply.get(key)
            if isinstance(value, str):
                yield (*path, key), value
            elif isinstance(value, list):
                yield from _block_texts(value, (*path, key))
    elif isinstance(reply, list):
        yield from _block_texts(reply, path)


def _block_texts(blocks: Sequence[Any], path: KeyPath) -> Iterator[tuple[KeyPath, str]]:
    for number, block in enumerate(blocks):
        if isinstance(block, Mapping) and block.get("type") == "text":
            text = block.get("text")
            if isinstance(text, str):
                yield (*path, number, "text"), text


def _replaced(value: Any, path: KeyPath, text: str) -> Any:
    if not path:
        return text
    key, rest = path[0], path[1:]
    if isinstance(key, int):
        return [*value[:key], _replaced(value[key], rest, text), *value[key + 1 :]]
    return {**value, key: _replaced(value[key], rest, text)}
