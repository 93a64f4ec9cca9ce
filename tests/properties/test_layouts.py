"""In the output of a tool, no line stands under a heading that is not its own."""

import pytest
from tests.layouts import Layout, documents, read, read_json, texts

from upwell.compress import compress

BUDGETS = (500, 1000, 2000, 4000)
QUESTION = "where is crane13x5 unreachable, and what about harbor7?"


@pytest.mark.parametrize("layout", texts(), ids=lambda layout: layout.name)
def test_each_finding_stands_under_its_own_heading(layout: Layout) -> None:
    whole = read(layout.text, below=layout.below)
    assert not whole.wrong
    assert len(whole.right) > 200
    for budget in BUDGETS:
        for query in (None, QUESTION):
            text = compress(layout.text, max_tokens=budget, query=query).text
            reading = read(text, below=layout.below)
            assert not reading.wrong, (budget, query, text)


@pytest.mark.parametrize("name", documents())
def test_each_finding_in_json_has_its_file(name: str) -> None:
    text = documents()[name]
    for budget in BUDGETS:
        for query in (None, QUESTION):
            reading = read_json(compress(text, max_tokens=budget, query=query).text)
            assert not reading.wrong, (budget, query)
            assert reading.right
