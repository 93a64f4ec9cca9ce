"""The examples in the documentation are what the code gives."""

from pathlib import Path

from upwell.compress import STRATEGIES
from upwell.compress.examples import EXAMPLES, page, run

PAGE = Path(__file__).parents[3] / "docs" / "compression.md"


def test_the_page_shows_what_the_code_gives() -> None:
    shown = PAGE.read_text(encoding="utf-8").endswith(page())
    assert shown, "run `make examples`: docs/compression.md shows what the code gave before"


def test_every_strategy_has_its_example() -> None:
    without = set(STRATEGIES) - {example.strategy for example in EXAMPLES}
    assert not without, "no Example in compress/examples.py"


def test_every_example_keeps_its_budget() -> None:
    assert [e.strategy for e in EXAMPLES if run(e).after > e.max_chars] == []
