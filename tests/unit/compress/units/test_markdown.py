"""Lines of Markdown need what stands above them, also where it is not marked as a heading."""

import pytest

from upwell.compress.units.outline import split_markdown as split

BOLD = """# Review

**1. The pump stalls at low tide. (High)**

It is `pump.py` that stalls.

**2. The valve sticks.** It was last changed in May.
- Fix: oil the valve.

**Both of them**
need a test, and **this is no heading**
"""
RESULTS = """Title: Pumps
Author: Ada
URL: https://example.org/pumps
Text: How pumps work.

# Kinds of pumps

Some have valves.

Title: Cranes
URL: https://example.org/cranes

Cranes lift.
"""
THREADS = """=== THREAD quay ===
File: src/quay.py:3

The quay is too short | by far.

=== THREAD crane ===
File: src/crane.py:9
The crane is too high.
"""
CUT_OFF = """## Pumps
https://example.org/pumps

```bash
# start all
pump --start  ...    ## Checking

## Cranes
https://example.org/cranes

### lift
Lift the load.

## Quays
Moor the ship.
"""


def above(text: str, line: str) -> list[str]:
    """The lines that this line needs, fences apart."""
    units = split(text)
    (unit,) = (
        number
        for number, (start, end) in enumerate(zip(units.starts, units.ends, strict=True))
        if line in text[start:end]
    )
    spans = [text[units.starts[need] : units.ends[need]].strip() for need in units.needs[unit]]
    return [span.split("\n")[0] for span in spans if not span.startswith("```") and span != line]


@pytest.mark.parametrize(
    ("line", "headings"),
    [
        ("It is `pump.py`", ["# Review", "**1. The pump stalls at low tide. (High)**"]),
        ("oil the valve", ["# Review", "**2. The valve sticks.** It was last changed in May."]),
        ("need a test", ["# Review", "**Both of them**"]),
    ],
)
def test_bold_lines_are_headings(line: str, headings: list[str]) -> None:
    assert above(BOLD, line) == headings


@pytest.mark.parametrize(
    ("line", "headings"),
    [
        ("How pumps work", ["Title: Pumps"]),
        ("Some have valves", ["Title: Pumps", "# Kinds of pumps"]),
        ("Cranes lift", ["Title: Cranes"]),
    ],
)
def test_a_search_result_has_its_title(line: str, headings: list[str]) -> None:
    assert above(RESULTS, line) == headings


def test_a_framed_title_begins_a_document() -> None:
    assert above(THREADS, "too short") == ["=== THREAD quay ==="]
    assert above(THREADS, "too high") == ["=== THREAD crane ==="]


@pytest.mark.parametrize(
    ("line", "headings"),
    [
        ("example.org/cranes", ["## Cranes"]),
        ("Lift the load.", ["## Cranes", "### lift"]),
        ("Moor the ship.", ["## Quays"]),
    ],
)
def test_headings_in_a_block_that_was_cut_off_are_headings(line: str, headings: list[str]) -> None:
    assert above(CUT_OFF, line) == headings
