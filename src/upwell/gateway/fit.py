"""Fitting a result to the agent's budget: which blocks are shortened, and how that is told.

A result within its budget passes as the same bytes. Otherwise the budget is shared among its text
blocks, small ones first; what is shortened keeps its original under a key, and one notice block at
the end says what was left out and how to get it. Blocks that are not text keep their places.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from upwell.compress.base import NO_TOOLS, Options, Tools
from upwell.compress.originals import Kept, Originals
from upwell.gateway.relay import content_of, text_block, with_content
from upwell.ground.errors import StoreError
from upwell.ground.text.tokens import count
from upwell.ground.trace import LOG
from upwell.ground.types import Budget, Compressed, Passage, ToolCall
from upwell.surface.context import query_text
from upwell.wire.rawjson import NotJson, RawObject, dumps

DEFAULT_RESULT_TOKENS = 4000
NOTICE_TOKENS = 120
CONTENTS_TOKENS = 600
SHORT_BYTES = 4096
TAIL_CHARS = 200
"""Where a text says for itself what is missing."""
READ_MORE = "upwell__read_more"
_LEAST_SHARE = 64

Reading = Callable[[str], str]
"""How an original is read, in words, by its key."""


def by_tool(key: str) -> str:
    """By our own tool, as agents behind the gateway have it."""
    return f'{READ_MORE} with key="{key}"'


@dataclass(frozen=True, slots=True)
class _Text:
    """A text block: its place among the blocks, the block itself, and what it says."""

    place: int
    block: RawObject
    text: str
    tokens: int


@dataclass(frozen=True, slots=True)
class _Shortened:
    """A text that was shortened; `private` says why its original does not reach the disk."""

    done: Compressed
    private: str


@dataclass(frozen=True, slots=True)
class Cut:
    """What fitting did to a result: the keys of the originals that lost something, and the tokens
    of its texts."""

    keys: tuple[str, ...]
    tokens_before: int
    tokens_after: int


Shortened = Callable[[ToolCall, Cut], None]


def unheard(call: ToolCall, cut: Cut) -> None:
    return None


class Fitter:
    """Shortens results and texts, and keeps their originals.

    `options` are those of a tool, `result_tokens` the budget where none is set, `ratios` what was
    learned per `server__tool`; `shortened` hears of every result that was.
    """

    def __init__(
        self,
        originals: Originals,
        options: Callable[[str, str], Options],
        *,
        tools: Tools = NO_TOOLS,
        result_tokens: int = DEFAULT_RESULT_TOKENS,
        ratios: Mapping[str, float] | None = None,
        shortened: Shortened = unheard,
    ) -> None:
        self._originals = originals
        self._options = options
        self._tools = tools
        self.result_tokens = result_tokens
        self._ratios = ratios or {}
        self._shortened = shortened

    def budget_of(self, options: Options, ratio: float = 1.0) -> Budget:
        """The budget of a response (DESIGN 4.3), times the ratio that was learned."""
        tokens = options.max_result_tokens
        if tokens is None and options.max_result_chars is None:
            tokens = self.result_tokens
        return Budget(
            max_tokens=_scaled(tokens, ratio),
            max_chars=_scaled(options.max_result_chars, ratio),
            floor=options.min_result_retention,
        )

    async def compress(
        self,
        text: str,
        budget: Budget,
        options: Options,
        *,
        query: str = "",
        name: str = "",
    ) -> Compressed:
        """Fit one text; its original stands under `.key`."""
        kept = await self._kept(self._originals, text, name)
        return await self._compressed(text, budget, options, query, kept)

    async def _kept(self, originals: Originals, text: str, name: str) -> Kept:
        """The original, kept; without a key where it cannot be: then the floor keeps more."""
        try:
            return await originals.keep(text, "" if originals.is_secret(name) else name)
        except StoreError as error:
            LOG.warning("an original cannot be kept: %s", error)
            return Kept("", len(text), 0, name)

    async def _compressed(
        self, text: str, budget: Budget, options: Options, query: str, kept: Kept
    ) -> Compressed:
        from upwell.compress.compressor import Compressor

        passage = Passage(text=text, query=query, name=kept.name, key=kept.key)
        compressor = Compressor(options, self._tools)
        return await asyncio.to_thread(compressor.compress, passage, budget, options.strategy)

    async def brief(self, call: ToolCall, result: bytes) -> bytes:
        """`result` within the budget of its tool at little cost, however odd it is: of its texts
        the beginning, and how to read on."""
        return (await self.fit(call, RawObject.parse(result), strategy="progressive")).encode()

    async def fit(
        self,
        call: ToolCall,
        result: RawObject,
        ratio: float | None = None,
        *,
        strategy: str = "",
    ) -> RawObject:
        """`result` within the budget of its tool. `ratio` overrides what was learned, `strategy`
        what is configured, unless that is to leave it alone."""
        options = self._options(call.server, call.tool)
        blocks = content_of(result)
        if not blocks or options.strategy == "none":
            return result
        learned = self._ratios.get(f"{call.server}__{call.tool}", 1.0)
        budget = self.budget_of(options, learned if ratio is None else ratio)
        size = sum(map(len, blocks))
        if size < SHORT_BYTES and not budget.max_chars and size < (budget.max_tokens or size + 1):
            return result
        texts = await asyncio.to_thread(_texts, blocks)
        if _within(texts, budget):
            return result
        options = replace(options, strategy=strategy or options.strategy)
        fitted = await self._shorten(call, texts, budget, options)
        if any(fitted):
            self._shortened(call, _cut(texts, fitted))
        return _rebuilt(result, blocks, texts, fitted)

    async def fit_texts(
        self, call: ToolCall, texts: Sequence[str], reading: Reading, hard_tokens: int | None = None
    ) -> list[str | None]:
        """The texts of a reply that is no MCP result, within the budget of its tool and at most
        `hard_tokens` together; None for those that stay as they are.

        The notice stands at the end of the last one that was shortened. All stay as they are where
        that saves nothing, or where an original could not be read later: it
        would live in this process only, or it cannot be kept.
        """
        options = self._options(call.server, call.tool)
        if options.strategy == "none":
            return [None] * len(texts)
        budget = self.budget_of(options)
        limits = [limit for limit in (budget.max_tokens, hard_tokens) if limit is not None]
        budget = replace(budget, max_tokens=min(limits, default=None))
        held = await asyncio.to_thread(_counted, texts)
        if _within(held, budget):
            return [None] * len(texts)
        fitted = await self._shorten(call, held, budget, options)
        said = _with_notice(held, fitted, reading)
        if said is None or not any(fitted):
            return [None] * len(texts)
        self._shortened(call, _cut(held, fitted))
        return said

    async def _shorten(
        self, call: ToolCall, texts: Sequence[_Text], budget: Budget, options: Options
    ) -> list[_Shortened | None]:
        """Each text fitted to its share; None for those that stay as they are."""
        shares = _shares([text.tokens for text in texts], budget.max_tokens, NOTICE_TOKENS)
        char_shares = _shares([len(text.text) for text in texts], budget.max_chars, 0)
        fitted: list[_Shortened | None] = []
        name, originals = _name_of(call), self._originals.of(call.principal)
        for text, tokens, chars in zip(texts, shares, char_shares, strict=True):
            if (tokens is None or text.tokens <= tokens) and (
                chars is None or len(text.text) <= chars
            ):
                fitted.append(None)
                continue
            share = Budget(max_tokens=tokens, max_chars=chars, floor=budget.floor)
            kept = await self._kept(originals, text.text, name)
            done = await self._compressed(text.text, share, options, _query_of(call), kept)
            fitted.append(_Shortened(done, kept.private) if done.text != text.text else None)
        return fitted


def _counted(texts: Sequence[str]) -> list[_Text]:
    return [_Text(place, RawObject(), text, count(text)) for place, text in enumerate(texts)]


def _with_notice(
    texts: Sequence[_Text], fitted: Sequence[_Shortened | None], reading: Reading
) -> list[str | None] | None:
    """What was shortened, the notice at the end of the last one; None where that does not do."""
    said: list[str | None] = [one.done.text if one else None for one in fitted]
    notices: list[str] = []
    for text, one in zip(texts, fitted, strict=True):
        if one is None:
            continue
        if one.private or not one.done.key:
            return None
        notices.append(notice(text.tokens, one.done, reading=reading))
    if notices:
        last = max(place for place, one in enumerate(fitted) if one)
        said[last] = "\n".join((said[last] or "", "", *notices))
    smaller = sum(len(new) - len(old.text) for new, old in zip(said, texts, strict=True) if new)
    return said if smaller < 0 else None


def _cut(texts: Sequence[_Text], fitted: Sequence[_Shortened | None]) -> Cut:
    lossy = [one.done.key for one in fitted if one is not None and not one.done.lossless]
    after = (
        one.done.tokens if one else text.tokens for text, one in zip(texts, fitted, strict=True)
    )
    return Cut(tuple(lossy), sum(text.tokens for text in texts), sum(after))


def _scaled(limit: int | None, ratio: float) -> int | None:
    return None if limit is None else max(1, round(limit * ratio))


def _texts(blocks: Sequence[bytes]) -> list[_Text]:
    found: list[_Text] = []
    for place, raw in enumerate(blocks):
        try:
            block = RawObject.parse(raw)
            text = block.value("text") if block.value("type") == "text" else None
        except NotJson:
            continue
        if isinstance(text, str):
            found.append(_Text(place, block, text, count(text)))
    return found


def _within(texts: Sequence[_Text], budget: Budget) -> bool:
    tokens = sum(text.tokens for text in texts)
    chars = sum(len(text.text) for text in texts)
    fits_tokens = budget.max_tokens is None or tokens <= budget.max_tokens
    return fits_tokens and (budget.max_chars is None or chars <= budget.max_chars)


def _shares(sizes: Sequence[int], limit: int | None, reserve: int) -> list[int | None]:
    """What each may have of `limit`: small ones all they need, the others the same each."""
    if limit is None:
        return [None] * len(sizes)
    left, shares = max(_LEAST_SHARE, limit - reserve), [0] * len(sizes)
    order = sorted(range(len(sizes)), key=lambda place: sizes[place])
    for position, place in enumerate(order):
        fair = left // (len(order) - position)
        shares[place] = min(sizes[place], fair)
        left -= shares[place]
    return list(shares)


def _rebuilt(
    result: RawObject,
    blocks: list[bytes],
    texts: Sequence[_Text],
    fitted: Sequence[_Shortened | None],
) -> RawObject:
    notices: list[str] = []
    contents: list[bytes] = []
    for text, shortened in zip(texts, fitted, strict=True):
        if shortened is None:
            continue
        done = shortened.done
        blocks[text.place] = text.block.replaced("text", dumps(done.text)).encode()
        if done.strategy == "progressive":
            contents.append(text_block(_contents(text.text, done)))
        if not done.lossless or done.key:
            notices.append(notice(text.tokens, done, private=shortened.private))
    if not any(fitted):
        return result
    if notices:
        blocks = [*blocks, *contents, text_block("\n".join(notices))]
    return with_content(result, blocks).without("structuredContent")


def _contents(text: str, done: Compressed) -> str:
    """The table of contents that goes with a first chunk (seed 002), in a block of its own."""
    from upwell.compress.fitted import Room
    from upwell.compress.selective import table

    return table(Passage(text=text, key=done.key), Room(tokens=CONTENTS_TOKENS))


def notice(
    tokens_before: int, done: Compressed, *, private: str = "", reading: Reading = by_tool
) -> str:
    """One line: how much was left out, where the text does not end with that, and how to get it."""
    counts = [f"{one.count:,} of {one.total:,} {one.what}" for one in done.omitted[:3]]
    left = "; ".join(count for count in counts if count not in done.text[-TAIL_CHARS:])
    said = f"[upwell] Shortened from {tokens_before:,} to {done.tokens:,} tokens ({done.strategy})."
    if left:
        said += f" Left out: {left}."
    if done.key:
        said += f" The original, {done.before:,} characters: {reading(done.key)}."
    if private:
        said += f" {private} and the original is kept in memory only, while this session runs."
    return said


def _query_of(call: ToolCall) -> str:
    """`_context_query` where the agent gave one, else what the call asks for."""
    return call.query or query_text(f"{call.server}__{call.tool}", call.args, {})


def _name_of(call: ToolCall) -> str:
    for key in ("path", "file_path", "file", "filepath", "filename", "uri", "url"):
        if isinstance(value := call.args.get(key), str):
            return value
    return ""
