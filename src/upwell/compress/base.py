"""The contract of compression: what a strategy is, and what it may never do.

A strategy takes a `Passage` and a `Budget` and gives a `Compressed`:
- what already fits comes back as the same text, `lossless`, nothing omitted;
- the result is never larger than the input, and within the budget in characters and tokens;
- JSON stays JSON; no cut falls inside a grapheme, a code fence, a tag or a JSON value;
- every omission is marked in place, with what and how many, and listed in `omitted`;
- the same input gives the same bytes, whatever the clock or the machine.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from upwell.compress import STRATEGIES
from upwell.ground.embed import Embedder
from upwell.ground.llm import Chat
from upwell.ground.names import CHOICES
from upwell.ground.types import Budget, Compressed, Passage


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How responses are fitted. Every key may also be set per server and per tool pattern.

    `max_result_tokens` None: 4 000, scaled by the agent's window (DESIGN 4.3).
    `max_result_chars` None: no limit in characters.
    `min_result_retention`, `llm_timeout_seconds`: seed 002.
    """

    strategy: str = field(default="auto", metadata={CHOICES: tuple(STRATEGIES)})
    max_result_tokens: int | None = None
    max_result_chars: int | None = None
    min_result_retention: float = 0.65
    llm_timeout_seconds: float = 60.0
    original_ttl_seconds: float = 86_400.0
    original_max_bytes: int = 256_000_000


class Strategy(Protocol):
    """One way to shorten a text. Stateless; safe to call from any thread."""

    name: str

    def __init__(self, tools: "Tools") -> None: ...

    def fits(self, passage: Passage) -> bool:
        """Is this the kind of text that the strategy is made for? The ladder asks; whoever names
        the strategy gets it for any text."""
        ...

    def compress(self, passage: Passage, budget: Budget) -> Compressed:
        """Fit `passage` into `budget`.

        Raises:
            CompressionError: it cannot, for want of a model or because `passage` is JSON and would
                not stay so (the ladder then tries the next one).
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """What a strategy may use beside the text: all optional, none in `compress()`.

    `may_send` says of a text whether it may leave the machine (no secret in it).
    """

    embedder: Embedder | None = None
    chat: Chat | None = None
    llm_timeout_seconds: float = 60.0
    may_send: Callable[[str], bool] = lambda _: True


NO_TOOLS = Tools()
