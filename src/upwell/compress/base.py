"""The contract of a strategy, and the values that strategies share: budgets and results."""

import math
from collections.abc import Callable, Sequence
from typing import Protocol

from msgspec import Struct

from upwell.ground.llm import Chat, Embedder
from upwell.ground.text.tokens import count, exceeds
from upwell.ground.types.compression import Budget, Compressed, Omission, Passage

MOST_LINES = 40_000
"""A text with more lines than this is neither folded nor split into lines, which bounds time and
memory.
"""


class Strategy(Protocol):
    """A function that shortens a text. It has no state and is safe to call from any thread."""

    def __call__(self, passage: Passage, budget: Budget, tools: "Tools", /) -> Compressed:
        """Fit `passage` into `budget`.

        Raises:
            CompressionError: the strategy cannot shorten this passage, for example because no model
                is available or the text is not JSON. The compressor then tries another strategy.
        """
        ...


class Tools(Struct, frozen=True, kw_only=True):
    """Collaborators of a strategy. All are optional; `compress()` provides none.

    `embedder` finds answers whose words differ from the question's. `chat` writes summaries within
    `llm_timeout_seconds`. `may_send` returns false for a text with a secret, which must not be sent
    to a model.
    """

    embedder: Embedder | None = None
    chat: Chat | None = None
    llm_timeout_seconds: float = 60.0
    may_send: Callable[[str], bool] = lambda _: True


NO_TOOLS = Tools()


class RemainingBudget(Struct, frozen=True):
    """The number of `chars` and `tokens` that a text may still use. Infinity means no limit."""

    chars: float = math.inf
    tokens: float = math.inf

    @classmethod
    def of(cls, budget: Budget) -> "RemainingBudget":
        """Take the smaller of the soft and the hard limit, for characters and for tokens."""
        chars = [limit for limit in (budget.max_chars, budget.hard_chars) if limit is not None]
        tokens = [limit for limit in (budget.max_tokens, budget.hard_tokens) if limit is not None]
        return cls(min(chars, default=math.inf), min(tokens, default=math.inf))

    def holds(self, text: str) -> bool:
        """Return whether `text` fits into this budget."""
        if len(text) > self.chars:
            return False
        if self.tokens == math.inf or 4 * len(text) + 1 <= self.tokens:
            return True
        return not exceeds(text, self.tokens)

    def without(self, text: str) -> "RemainingBudget":
        """Return the budget that is left after `text` has been written."""
        return RemainingBudget(self.chars - len(text), self.tokens - count(text))


class Fitted(Struct, frozen=True):
    """A fitted `text`, and what was `omitted` from it."""

    text: str
    omitted: tuple[Omission, ...] = ()


def note(omitted: Sequence[Omission], key: str) -> str:
    """Return the last line of a shortened text. It counts the omissions and gives the key of the
    original, if there is one."""
    key_note = f'; all of it: key="{key}"' if key else ""
    counts = [f"{part.count:,} of {part.total:,} {part.what}" for part in omitted]
    return f"[{' and '.join(counts)} left out{key_note}]"


def whole(passage: Passage) -> Compressed:
    """Return the passage unchanged."""
    size = len(passage.text)
    return Compressed(
        text=passage.text,
        strategy="none",
        before=size,
        after=size,
        tokens=count(passage.text),
        lossless=True,
        key=passage.key,
    )


def outcome(
    passage: Passage, fitted: Fitted, strategy: str, *, lossless: bool = False
) -> Compressed:
    """Build the result of `strategy` for `passage`."""
    return Compressed(
        text=fitted.text,
        strategy=strategy,
        before=len(passage.text),
        after=len(fitted.text),
        tokens=count(fitted.text),
        lossless=lossless,
        omitted=fitted.omitted,
        key=passage.key,
    )
