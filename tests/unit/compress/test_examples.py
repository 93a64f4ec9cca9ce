"""docs/compression.md shows what the code does today."""

from dev.examples import EXAMPLES, PAGE, page, run

from upwell.compress import STRATEGIES


def test_the_page_shows_the_current_output() -> None:
    shown = PAGE.read_text(encoding="utf-8").endswith(page())
    assert shown, "run `make examples`: docs/compression.md is out of date"


def test_every_strategy_has_its_example() -> None:
    without = set(STRATEGIES) - {example.strategy for example in EXAMPLES}
    assert not without, "add an Example to dev/examples.py"


def test_every_example_shows_its_own_strategy() -> None:
    own = [example for example in EXAMPLES if example.strategy not in ("auto", "none")]
    others = {example.strategy: run(example).strategy for example in own}
    assert {name: used for name, used in others.items() if name != used} == {}, (
        "another strategy's output would stand under this heading: change the text or the budget"
    )


def test_every_example_keeps_its_budget() -> None:
    assert [e.strategy for e in EXAMPLES if run(e).after > e.max_chars] == []
