"""Prices of models' input tokens, to show what the saved tokens would have cost.

`PRICES` maps prefixes of model names to US dollars per million input tokens, as listed by the
providers on `AS_OF`, without caching and discounts. The longest matching prefix applies.
"""

from collections.abc import Mapping

from msgspec import Struct

AS_OF = "2025-11-24"
PRICES: Mapping[str, float] = {
    "claude-haiku": 1.00,
    "claude-3-5-haiku": 0.80,
    "claude-sonnet": 3.00,
    "claude-opus": 15.00,
    "claude-opus-4-5": 5.00,
    "gpt-5": 1.25,
    "gpt-5-mini": 0.25,
    "gpt-4.1": 2.00,
    "gpt-4o": 2.50,
    "gemini-2.5-pro": 1.25,
    "gemini-2.5-flash": 0.30,
    "gemini-3-pro": 2.00,
}


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
    name = model.lower().rpartition("/")[2]
    known = [prefix for prefix in PRICES if name.startswith(prefix)]
    if not known:
        return None
    return Price(PRICES[max(known, key=len)], model, AS_OF)
