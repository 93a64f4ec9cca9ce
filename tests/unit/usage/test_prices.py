"""Prices of models' input."""

import pytest

from upwell.usage.report import AS_OF, PRICES, price_of, prices_of


@pytest.mark.parametrize(
    ("model", "per_million"),
    [
        ("claude-opus-4-5-20251101", PRICES["claude-opus-4-5"][0]),
        ("claude-opus-4-1", PRICES["claude-opus"][0]),
        ("anthropic/claude-sonnet-4-5", PRICES["claude-sonnet"][0]),
        ("GPT-5-mini", PRICES["gpt-5-mini"][0]),
    ],
)
def test_the_longest_prefix_applies(model: str, per_million: float) -> None:
    price = price_of(model)
    assert price is not None
    assert (price.per_million, price.as_of) == (per_million, AS_OF)
    assert price.of(2_000_000) == 2 * per_million


def test_an_own_price_wins_and_an_unknown_model_has_none() -> None:
    own = price_of("claude-sonnet-4-5", 0.5)
    assert own is not None
    assert (own.per_million, own.as_of) == (0.5, "")
    assert price_of("a-model-of-mine") is None
    assert price_of("") is None


def test_output_costs_more_than_input_and_a_local_model_nothing() -> None:
    assert all(price_in < price_out for price_in, price_out in PRICES.values())
    assert prices_of("openai/gpt-5-mini") == PRICES["gpt-5-mini"]
    assert prices_of("qwen3:8b") is None
