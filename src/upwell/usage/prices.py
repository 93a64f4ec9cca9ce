"""Prices of models' tokens, to show what the saved tokens would have cost, and what upwell's own
questions to a model cost.

`PRICES` maps prefixes of model names to US dollars per million input and output tokens, as listed
by the providers on `AS_OF`, without caching and discounts. The longest matching prefix applies.
"""

from collections.abc import Mapping

from msgspec import Struct

AS_OF = "2025-11-24"
PRICES: Mapping[str, tuple[float, float]] = {
    "claude-haiku": (1.00, 5.00),
    "claude-3-5-haiku": (0.80, 4.00),
    "claude-sonnet": (3.00, 15.00),
    "claude-opus": (15.00, 75.00),
    "claude-opus-4-5": (5.00, 25.00),
    "gpt-5": (1.25, 10.00),
    "gpt-5-mini": (0.25, 2.00),
    "gpt-4.1": (2.00, 8.00),
    "gpt-4o": (2.50, 10.00),
    "gemini-2.5-pro": (1.25, 10.00),
    "gemini-2.5-flash": (0.30, 2.50),
    "gemini-3-pro": (2.00, 12.00),
}


FREE = (0.0, 0.0)
"""The price of a model that is not in the list, such as a local one."""


class Price(Struct, frozen=True):
    """A price in US dollars per million input tokens. `as_of` is the date of the price list, or ""
    for the user's own price."""

    per_million: float
    model: str
    as_of: str

    def of(self, tokens: int) -> float:
        """Return the price of this many tokens."""
        return tokens * self.per_million / 1_000_000


def price_of(model: str, own_price: float = 0.0) -> Price | None:
    """Return the price of a model's input, or None if unknown. `own_price` is
    `agent.input_price`, which overrides the table."""
    if own_price:
        return Price(own_price, model, "")
    prices = prices_of(model)
    return Price(prices[0], model, AS_OF) if prices else None


def prices_of(model: str) -> tuple[float, float] | None:
    """Return the prices of a model's input and output tokens, or None if they are unknown."""
    name = model.lower().rpartition("/")[2]
    known = [prefix for prefix in PRICES if name.startswith(prefix)]
    return PRICES[max(known, key=len)] if known else None
