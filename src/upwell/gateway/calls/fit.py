"""Fits a result to the agent's budget: chooses the blocks to shorten, and reports what is omitted.

A result within its budget, or slightly over it, passes through byte for byte. In a larger result,
the texts (`results.py`) share the budget, and small ones stay whole if possible. The original of a
shortened text is kept under a key. A notice block at the end of the result counts the omissions and
explains how to read them. Blocks of other types keep their places.
"""

import asyncio
import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from upwell.compress.base import Tools
from upwell.compress.options import CompressOptions
from upwell.compress.originals import Originals, StoredOriginal
from upwell.gateway.calls.results import (
    LEAST_FACTOR,
    STRUCTURED,
    ResultPart,
    ToolKind,
    content_of,
    default_tokens,
    is_object,
    kind_of_tool,
    parts_of,
    plain_parts,
    text_block,
    with_content,
    with_references,
)
from upwell.ground.background import on_daemon_thread
from upwell.ground.context_windows import ResultTokens
from upwell.ground.errors import StoreError
from upwell.ground.text.tokens import count
from upwell.ground.text.words import counted
from upwell.ground.trace import LOG
from upwell.ground.types.compression import Budget, Compressed, Passage
from upwell.ground.types.rpc import ToolCall
from upwell.wire.rawjson import THREAD_BYTES, RawObject

NOTICE_TOKENS, NOTICE_CHARS = 120, 320
CONTENTS_SHARE = 0.5
"""The largest part of a budget that a table of contents may use. A larger table is left out."""
WORTH_SHORTENING = 0.75
"""A result that would keep more than this part of its size is delivered whole. The few tokens saved
would not be worth the gaps."""
SHORT_BYTES = 4096
LEAST_LINES = 5
"""In a text with fewer lines than this, a range of lines selects nothing useful."""
TAIL_CHARS = 200
"""If a text already reports an omission in its last `TAIL_CHARS` characters, the notice does not
repeat it."""
READ_MORE = "upwell__read_more"
SUMMARY = "llm_summary"
_KEEP_JSON = ("extract_fields", "schema_pruning", "skeleton", "truncate")
_QUESTION_ARGUMENTS = ("query", "question", "prompt", "q")
_MIN_SHARE = 64

Reading = Callable[[str, bool], str]
"""Returns a phrase that tells the agent how to read the original with this key, and whether its
lines select a part."""


def by_tool(key: str, has_lines: bool) -> str:
    part = 'lines="12-44"' if has_lines else 'query="…"'
    return f'{READ_MORE} with key="{key}" (a part: {part})'


def by_command(command: str) -> Reading:
    """Say how to read an original to an agent that may lack our tools. `command` is a shell
    command, to which the key is appended."""

    def reading(key: str, has_lines: bool) -> str:
        lines, query = (" (a part: --lines 12-44)", "") if has_lines else ("", ' and query="…"')
        return (
            f'`{command} {key}` in a shell{lines}, or read_more of upwell with key="{key}"{query}'
        )

    return reading


class _Shortened(Struct, frozen=True):
    """A shortened text. If it is a first chunk, it comes with a table of `contents`. `private` is
    the reason why the original is not written to disk, or "".
    """

    compressed: Compressed
    private: str
    contents: str = ""

    @property
    def text(self) -> str:
        parts = (self.contents, self.compressed.text)
        return "\n\n".join(part for part in parts if part)

    @property
    def tokens(self) -> int:
        """The tokens of all that replaces the original, except the notice."""
        return self.compressed.tokens + count(self.contents)


class Cut(Struct, frozen=True):
    """The effect of shortening a result. `keys` are the keys of the originals that lost content,
    `shown` are the texts that replaced them, and `left_out` are the counts in their notices. The
    token counts cover all texts in the result."""

    keys: tuple[str, ...]
    tokens_before: int
    tokens_after: int
    shown: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()


OnShortened = Callable[[ToolCall, Cut], None]

MAX_SUMMARIES = 8
"""How many texts may wait for the model at once."""


class SummaryThreads:
    """Runs work that waits for a language model on threads of its own. A model may take a minute to
    reply, or never reply, and must not occupy the few threads of `asyncio.to_thread()`, which all
    calls share. To run at most `most` at a time, check `is_full` before `run()`."""

    def __init__(self, most: int = MAX_SUMMARIES) -> None:
        self._most = most
        self._places: set[object] = set()

    @property
    def is_full(self) -> bool:
        return len(self._places) >= self._most

    async def run[T](self, work: Callable[[], T]) -> T:
        """If the caller is cancelled, `work()` still occupies its place until it returns."""
        place = object()
        self._places.add(place)

        def in_place() -> T:
            try:
                return work()
            finally:
                self._places.discard(place)

        return await on_daemon_thread(in_place, "summary")


class Fitter:
    """Shortens results and texts, and keeps their originals.

    `result_tokens` are the default budgets. `ratios` maps a `server__tool` name to the learned
    factor for its budget. `shortened` is called for every shortened result.
    """

    def __init__(
        self,
        originals: Originals,
        options: Callable[[str, str], CompressOptions],
        *,
        tools: Tools,
        result_tokens: ResultTokens,
        ratios: Mapping[str, float] | None = None,
        shortened: OnShortened,
    ) -> None:
        self._originals = originals
        self._options = options
        self._tools = tools
        self.result_tokens = result_tokens
        self._ratios = {} if ratios is None else ratios
        self._on_shortened = shortened
        self._summaries = SummaryThreads()

    def budget_of(
        self, options: CompressOptions, ratio: float = 1.0, call: ToolCall | None = None
    ) -> Budget:
        """Return the budget of a result, multiplied by the learned ratio. If no limit is
        configured, the budget depends on the kind of tool in `call`."""
        tokens = options.max_result_tokens
        if tokens is None and options.max_result_chars is None:
            budgets = self.result_tokens
            tokens = default_tokens(call, options, budgets) if call else budgets.usual
        return Budget(
            max_tokens=_scaled(tokens, ratio),
            max_chars=_scaled(options.max_result_chars, ratio),
            floor=options.min_result_retention,
        )

    async def compress(
        self,
        text: str,
        budget: Budget,
        options: CompressOptions,
        *,
        query: str = "",
        name: str = "",
        read_later: bool = False,
    ) -> Compressed:
        """Fit one text. The returned `key` is that of the original. If `read_later` is set, `key`
        is "" for an original kept only in memory, where no other process can read it."""
        (original,) = await self._keep(self._originals, [(text, name)])
        key = "" if read_later and original.private else original.key
        passage = Passage(text=text, query=query, name=original.name, key=key)
        return await self._compressed(passage, budget, options)

    async def _keep(
        self, originals: Originals, texts: Sequence[tuple[str, str]]
    ) -> list[StoredOriginal]:
        """Keep the originals of one result, which are texts with their names. An original that
        cannot be kept has no key. At least `min_result_retention` of its text is then delivered.
        """
        kept: list[StoredOriginal] = []
        for text, name in texts:
            shown_name = "" if originals.is_secret(name) else name
            try:
                kept.append(await originals.keep(text, shown_name, kept))
            except StoreError as error:
                LOG.warning("an original cannot be kept: %s", error)
                kept.append(StoredOriginal("", len(text), 0, name))
        return await originals.readable(kept)

    async def _compressed(
        self, passage: Passage, budget: Budget, options: CompressOptions
    ) -> Compressed:
        waits_for_model = options.strategy == SUMMARY and self._tools.chat is not None
        if waits_for_model and self._summaries.is_full:
            LOG.warning("too many texts are waiting for the language model: truncating one instead")
            options, waits_for_model = dataclasses.replace(options, strategy="truncate"), False

        def compress() -> Compressed:
            from upwell.compress.compressor import Compressor  # the first import takes 30 ms

            return Compressor(options, self._tools).compress(passage, budget, options.strategy)

        return await (
            self._summaries.run(compress) if waits_for_model else asyncio.to_thread(compress)
        )

    async def brief(self, call: ToolCall, result: bytes) -> bytes:
        """Shorten a result cheaply: keep the beginning of each text, and say how to read the rest.
        Malformed JSON inside the content blocks is not detected."""
        return (await self.fit(call, RawObject.parse(result), strategy="progressive")).encode()

    async def fit(
        self,
        call: ToolCall,
        result: RawObject,
        ratio: float | None = None,
        *,
        strategy: str = "",
    ) -> RawObject:
        """Fit `result` to the budget of its tool. `ratio` replaces the learned ratio. `strategy`
        replaces the configured strategy, unless that is `none`: then no result is changed. With a
        `read_command`, a result stays unchanged if another process could not read its originals.
        """
        options = self._options(call.server, call.tool)
        structured = result.get(STRUCTURED) or b""
        blocks = await blocks_of(result) or []
        if not (blocks or structured) or options.strategy == "none":
            return result
        if ratio is None:
            ratio = self._ratios.get(f"{call.server}__{call.tool}", 1.0)
        size = sum(map(len, blocks)) + len(structured)
        if options.max_result_tokens is None and options.max_result_chars is None:
            # A token has at least one byte, so a result with fewer bytes than the smallest budget
            # of any tool fits.
            least_tokens = min(SHORT_BYTES, self.result_tokens.usual * LEAST_FACTOR)
            if size < least_tokens * ratio:
                return result
        budget = self.budget_of(options, ratio, call)
        if size < SHORT_BYTES and not budget.max_chars and size < (budget.max_tokens or size + 1):
            return result
        shown = with_references(blocks)
        if shown != blocks:
            result = with_content(result, shown)
        remaining_blocks, texts = await asyncio.to_thread(parts_of, result, shown)
        if not _is_worth_shortening(texts, budget):
            return result
        options = dataclasses.replace(options, strategy=strategy or options.strategy)
        fitted = await self._shorten(call, texts, budget, options)
        if call.read_command and not _are_readable(fitted):
            return result
        if any(fitted):
            self._on_shortened(call, _cut(texts, fitted))
        how_to_read = by_command(call.read_command) if call.read_command else by_tool
        return _rebuilt(result, remaining_blocks, texts, fitted, how_to_read)

    async def fit_texts(
        self,
        call: ToolCall,
        texts: Sequence[str],
        how_to_read: Reading,
        hard_tokens: int | None = None,
    ) -> list[str | None]:
        """Fit the texts of a reply that is not an MCP result. Together, they should stay within the
        tool's budget and `hard_tokens`. Returns None for each unchanged text.

        The notice is appended to the last shortened text. If that text is a chunk, the notice
        precedes it, because a chunk must end with its footer (seed 002, tests/NAMES.md). All texts
        stay unchanged if shortening saves nothing, or if an original is not stored where another
        process can read it.
        """
        options = self._options(call.server, call.tool)
        if options.strategy == "none":
            return [None] * len(texts)
        budget = self.budget_of(options, call=call)
        counted_texts = await asyncio.to_thread(plain_parts, texts)
        fits_host = hard_tokens is None or sum(text.tokens for text in counted_texts) <= hard_tokens
        if fits_host and not _is_worth_shortening(counted_texts, budget):
            return [None] * len(texts)
        limits = [limit for limit in (budget.max_tokens, hard_tokens) if limit is not None]
        budget = replace(budget, max_tokens=min(limits, default=None))
        fitted = await self._shorten(call, counted_texts, budget, options)
        replacements = _with_notice(counted_texts, fitted, how_to_read)
        if replacements is None or not any(fitted):
            return [None] * len(texts)
        self._on_shortened(call, _cut(counted_texts, fitted))
        return replacements

    async def _shorten(
        self, call: ToolCall, texts: Sequence[ResultPart], budget: Budget, options: CompressOptions
    ) -> list[_Shortened | None]:
        shares = _shares([text.tokens for text in texts], budget.max_tokens, NOTICE_TOKENS)
        char_shares = _shares([len(text.text) for text in texts], budget.max_chars, NOTICE_CHARS)
        exceeds = [
            (tokens is not None and text.tokens > tokens)
            or (chars is not None and len(text.text) > chars)
            for text, tokens, chars in zip(texts, shares, char_shares, strict=True)
        ]
        long = [
            (text.text, text.name or _name_of(call))
            for text, is_long in zip(texts, exceeds, strict=True)
            if is_long
        ]
        originals = self._originals.of(call.principal)
        kept = iter(await self._keep(originals, long))
        fitted: list[_Shortened | None] = []
        began = time.monotonic()
        for text, tokens, chars, is_long in zip(texts, shares, char_shares, exceeds, strict=True):
            if not is_long:
                fitted.append(None)
                continue
            original = next(kept)
            share = Budget(max_tokens=tokens, max_chars=chars, floor=budget.floor)
            contents = ""
            if options.strategy == "progressive" and original.key and not text.is_structured:
                contents = await asyncio.to_thread(_contents, text.text, original.key, share)
            passage = Passage(
                text=text.text,
                query=_query_of(call),
                request=call.request,
                name=original.name,
                key=original.key,
            )
            limited = _with_time_left(_for_part(text, options), time.monotonic() - began)
            compressed = await self._compressed(passage, _without(share, contents), limited)
            changed = compressed.text != text.text
            fitted.append(_Shortened(compressed, original.private, contents) if changed else None)
        return fitted


def _for_part(part: ResultPart, options: CompressOptions) -> CompressOptions:
    if not part.is_structured or options.strategy in _KEEP_JSON:
        return options
    return dataclasses.replace(options, strategy="auto")


def _are_readable(fitted: Sequence[_Shortened | None]) -> bool:
    """Return whether another process can read all originals."""
    return not any(short.private or not short.compressed.key for short in fitted if short)


def _with_notice(
    texts: Sequence[ResultPart], fitted: Sequence[_Shortened | None], how_to_read: Reading
) -> list[str | None] | None:
    if not _are_readable(fitted):
        return None
    replacements = [short.text if short else None for short in fitted]
    if notices := _notices(texts, fitted, how_to_read):
        last, short = next((n, short) for n, short in reversed([*enumerate(fitted)]) if short)
        parts = [short.text, "\n".join(notices)]
        if short.compressed.strategy == "progressive":
            parts.reverse()
        replacements[last] = "\n\n".join(parts)
    pairs = zip(replacements, texts, strict=True)
    added_chars = sum(len(new) - len(old.text) for new, old in pairs if new)
    return replacements if added_chars < 0 else None


def _notices(
    texts: Sequence[ResultPart], fitted: Sequence[_Shortened | None], how_to_read: Reading
) -> list[str]:
    return [
        notice(text, short, how_to_read)
        for text, short in zip(texts, fitted, strict=True)
        if short and (short.compressed.key or not short.compressed.lossless)
    ]


def _without(share: Budget, contents: str) -> Budget:
    if not contents:
        return share
    tokens, chars = share.max_tokens, share.max_chars
    return replace(
        share,
        max_tokens=None if tokens is None else max(1, tokens - count(contents)),
        max_chars=None if chars is None else max(1, chars - len(contents)),
    )


def _cut(texts: Sequence[ResultPart], fitted: Sequence[_Shortened | None]) -> Cut:
    compressed = [short.compressed for short in fitted if short is not None]
    lossy = [part for part in compressed if not part.lossless]
    keys = tuple(part.key for part in lossy)
    tokens_after = sum(
        short.tokens + NOTICE_TOKENS // 2 if short else text.tokens
        for text, short in zip(texts, fitted, strict=True)
    )
    shown = tuple(part.text for part in lossy)
    left_out = tuple("; ".join(_counts(part)) for part in lossy)
    return Cut(keys, sum(text.tokens for text in texts), tokens_after, shown, left_out)


def _with_time_left(options: CompressOptions, elapsed_seconds: float) -> CompressOptions:
    """Reduce the timeout so that all texts of a result together spend at most `llm_timeout_seconds`
    waiting for the model."""
    if options.strategy != SUMMARY:
        return options
    seconds = options.llm_timeout_seconds - elapsed_seconds
    if seconds <= 0:
        return dataclasses.replace(options, strategy="truncate")
    return dataclasses.replace(options, llm_timeout_seconds=seconds)


def _scaled(limit: int | None, ratio: float) -> int | None:
    return None if limit is None else max(1, round(limit * ratio))


async def blocks_of(result: RawObject) -> list[bytes] | None:
    if len(result.get("content") or b"") > THREAD_BYTES:
        return await asyncio.to_thread(content_of, result)
    return content_of(result)


def _is_worth_shortening(texts: Sequence[ResultPart], budget: Budget) -> bool:
    tokens = WORTH_SHORTENING * sum(text.tokens for text in texts)
    chars = WORTH_SHORTENING * sum(len(text.text) for text in texts)
    fits_tokens = budget.max_tokens is None or tokens <= budget.max_tokens
    return not (fits_tokens and (budget.max_chars is None or chars <= budget.max_chars))


def _shares(sizes: Sequence[int], limit: int | None, reserve: int) -> list[int | None]:
    """Return each text's share of `limit`. Small texts get what they need, and the others share the
    rest equally. `reserve` is what the notice of one text takes, but all notices together get at
    most half of the limit, if there are several."""
    if limit is None:
        return [None] * len(sizes)
    notices = sum(size * len(sizes) > limit for size in sizes)
    reserved = reserve if notices < 2 else min(notices * reserve, limit // 2)
    remaining, shares = max(_MIN_SHARE, limit - reserved), [0] * len(sizes)
    order = sorted(range(len(sizes)), key=lambda index: sizes[index])
    for position, index in enumerate(order):
        fair = remaining // (len(order) - position)
        shares[index] = min(sizes[index], fair)
        remaining -= shares[index]
    return list(shares)


def _rebuilt(
    result: RawObject,
    blocks: list[bytes],
    texts: Sequence[ResultPart],
    fitted: Sequence[_Shortened | None],
    how_to_read: Reading,
) -> RawObject:
    if not any(fitted):
        return result
    contents: list[bytes] = []
    for part, shortened in zip(texts, fitted, strict=True):
        if shortened is None:
            continue
        compressed = shortened.compressed
        if part.is_structured:
            result = result.without(STRUCTURED)
            if is_object(compressed.text):
                result = result.replaced(STRUCTURED, compressed.text.encode())
        else:
            blocks[part.place] = part.block_with(compressed.text)
        if shortened.contents:
            contents.append(text_block(shortened.contents))
    if notices := _notices(texts, fitted, how_to_read):
        blocks = [*blocks, *contents, text_block("\n".join(notices))]
    if not any(part.is_structured for part in texts):
        result = result.without(STRUCTURED)
    return with_content(result, blocks)


def _contents(text: str, key: str, share: Budget) -> str:
    from upwell.compress.base import RemainingBudget
    from upwell.compress.selective import table

    whole = RemainingBudget.of(share)
    room = RemainingBudget(whole.chars * CONTENTS_SHARE, whole.tokens * CONTENTS_SHARE)
    contents = table(Passage(text=text, key=key), room)
    return contents if room.holds(contents) else ""


def notice(part: ResultPart, short: _Shortened, how_to_read: Reading) -> str:
    after = short.compressed
    omissions = "; ".join(text for text in _counts(after) if text not in after.text[-TAIL_CHARS:])
    line = f"[upwell] {part.name}: shortened" if part.name else "[upwell] Shortened"
    line += f" from {part.tokens:,} to {counted(short.tokens, 'token')}"
    line += f" ({after.strategy})."
    if omissions:
        line += f" Left out: {omissions}."
    if after.key:
        has_lines = part.text.count("\n") >= LEAST_LINES
        line += f" The original, {after.before:,} characters: {how_to_read(after.key, has_lines)}."
    if short.private:
        line += (
            f" {short.private} and the original is kept in memory only, while this session runs."
        )
    return line


def _counts(after: Compressed) -> list[str]:
    return [f"{part.count:,} of {part.total:,} {part.what}" for part in after.omitted]


def _query_of(call: ToolCall) -> str:
    """Return the agent's `_context_query`, or else the question in the arguments of a tool that
    answers questions. Paths, patterns and commands are not used, because they are worse at
    selecting the text that the agent needs next.
    """
    if call.query or kind_of_tool(call) not in (ToolKind.OTHER, ToolKind.PAGE):
        return call.query
    texts = [call.args.get(name) for name in _QUESTION_ARGUMENTS]
    return next((text for text in texts if isinstance(text, str)), "")


def _name_of(call: ToolCall) -> str:
    for key in ("path", "file_path", "file", "filepath", "filename", "uri", "url"):
        if isinstance(value := call.args.get(key), str):
            return value
    return ""
