"""What is provably noise for the kind at hand, taken out before anything that says something.

Only where a text is over its budget: within it, it passes as the same bytes. Never in code, JSON,
tables, diffs or search results, where any character may count. What a reader could miss is marked
where it was and counted; what nobody could see is not.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from upwell.compress.clean.embedded import without_data
from upwell.compress.clean.screen import redrawn, struck, tidy
from upwell.compress.clean.unseen import seen
from upwell.ground.types import Kind, Omission, Passage

Step = Callable[[str], tuple[str, tuple[Omission, ...]]]
"""The text without one sort of noise, and what of it a reader could miss."""


def _silently(step: Callable[[str], str]) -> Step:
    return lambda text: (step(text), ())


_SCREEN: tuple[Step, ...] = (_silently(struck), redrawn, _silently(seen))
_LOGS: tuple[Step, ...] = (*_SCREEN, _silently(tidy))
_PAGES: tuple[Step, ...] = (without_data, _silently(seen))

STEPS: dict[Kind, tuple[Step, ...]] = {
    Kind.TEXT: _SCREEN,
    Kind.LOG: _LOGS,
    Kind.TEST_OUTPUT: _LOGS,
    Kind.STACK_TRACE: _LOGS,
    Kind.MARKDOWN: _PAGES,
    Kind.API_DOCS: _PAGES,
    Kind.HTML: _PAGES,
}
"""Every other kind stays as it is."""


@dataclass(frozen=True, slots=True)
class Cleaned:
    """The passage without noise, and what of that a reader could miss."""

    passage: Passage
    omitted: tuple[Omission, ...] = ()


def clean(passage: Passage) -> Cleaned:
    """The passage without what is noise for its kind; the same object where there is none."""
    text, omitted = passage.text, ()  # type: tuple[str, tuple[Omission, ...]]
    for step in STEPS.get(passage.kind, ()):
        text, left_out = step(text)
        omitted = (*omitted, *left_out)
    return Cleaned(passage if text == passage.text else replace(passage, text=text), omitted)
