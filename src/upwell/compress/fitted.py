"""Room to write in, and what was written."""

import math
from dataclasses import dataclass

from upwell.ground.text.tokens import count, exceeds
from upwell.ground.types import Budget, Compressed, Omission, Passage


@dataclass(frozen=True, slots=True)
class Room:
    """How much a text may take, in both measures; infinity where there is no limit."""

    chars: float = math.inf
    tokens: float = math.inf

    @classmethod
    def of(cls, budget: Budget) -> "Room":
        """The smaller of the soft and the hard limit, in each measure."""
        chars = [limit for limit in (budget.max_chars, budget.hard_chars) if limit is not None]
        tokens = [limit for limit in (budget.max_tokens, budget.hard_tokens) if limit is not None]
        return cls(min(chars, default=math.inf), min(tokens, default=math.inf))

    def holds(self, text: str) -> bool:
        if len(text) > self.chars:
            return False
        if self.tokens == math.inf or 4 * len(text) + 1 <= self.tokens:
            return True
        return not exceeds(text, self.tokens)

    def without(self, text: str) -> "Room":
        """What is left when `text` has been written."""
        return Room(self.chars - len(text), self.tokens - count(text))


@dataclass(frozen=True, slots=True)
class Fitted:
    """A fitted text and what is missing from it."""

    text: str
    omitted: tuple[Omission, ...] = ()


def whole(passage: Passage) -> Compressed:
    """The passage as it is."""
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
    """What `strategy` made of `passage`."""
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
