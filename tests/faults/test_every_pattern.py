"""Every pattern of the code takes linear time even on its worst texts."""

import signal
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest

from tests.faults.patterns import Found, all_patterns, attacks, run
from upwell.compress.json.tree import parse

SCREENED = 8_000
QUICK_SECONDS = 0.003
CHARS = (40_000, 80_000)
MOST_SECONDS = 0.6
LIMIT_SECONDS = 1.0
ENOUGH = 3.0
DRIVEN: dict[str, Callable[[Any], object]] = {"upwell.compress.json.tree:ITEM": parse}
"""Patterns that the code matches in a loop, which ends at the first empty match. They are tested
through that code."""


class _Late(Exception):
    pass


@pytest.fixture(autouse=True)
def _alarm() -> Iterator[None]:
    """Let an alarm end a match, since `re` checks for signals while it backtracks."""

    def late(_number: int, _frame: FrameType | None) -> None:
        raise _Late

    before = signal.signal(signal.SIGALRM, late)
    yield
    signal.signal(signal.SIGALRM, before)


def test_patterns_are_found_where_they_hide() -> None:
    places = {found.place for found in all_patterns()}
    assert len(places) > 280
    assert "upwell.ground.text.kind:_CODE" in places
    assert any("[" in place for place in places)
    assert any("()" in place for place in places)
    assert any(place.startswith("memory/documents/sections/parse.py") for place in places)


@pytest.mark.slow
@pytest.mark.parametrize("source", [r"(?:a|aa)+b", r"\s*x$", r"<b>.*?</b>", r"(?:.*\r?\n)*?-"])
def test_a_pattern_that_is_not_linear_is_found(source: str) -> None:
    import re

    assert _faults(Found("sample", re.compile(source), {"search"}))


@pytest.mark.slow
def test_every_pattern_is_linear() -> None:
    slow = {found.place: faults for found in all_patterns() if (faults := _faults(found))}
    assert slow == {}


def _faults(found: Found) -> list[str]:
    """For each method, the first attack that takes more than linear time."""
    faults = []
    for method in sorted(found.methods):
        use = DRIVEN.get(found.place) or _used(found.pattern, method)
        for text in attacks(found.pattern):
            if _seconds(use, text(SCREENED)) < QUICK_SECONDS:
                continue
            half, whole = _halves(use, text, 2)
            if _is_slow(half, whole):  # on a busy machine a second look tells noise from growth
                half, whole = _halves(use, text, 1 if whole >= LIMIT_SECONDS else 6)
            if _is_slow(half, whole):
                faults.append(f"{method}: {text.__doc__}: {half:.3f} s, then {whole:.3f} s")
                break
    return faults


def _halves(
    use: Callable[[Any], object], text: Callable[[int], Any], tries: int
) -> tuple[float, float]:
    """The shortest time for each of the two lengths, which are measured in turns."""
    pairs = [[_seconds(use, text(size)) for size in CHARS] for _ in range(tries)]
    return min(half for half, _ in pairs), min(whole for _, whole in pairs)


def _is_slow(half: float, whole: float) -> bool:
    return whole > MOST_SECONDS or whole / half > ENOUGH


def _used(pattern: Any, method: str) -> Callable[[Any], object]:
    return lambda text: run(pattern, method, text)


def _seconds(use: Callable[[Any], object], text: Any) -> float:
    """CPU seconds of one use, up to the limit."""
    signal.setitimer(signal.ITIMER_REAL, LIMIT_SECONDS)
    began = time.process_time()
    try:
        use(text)
    except _Late:
        return LIMIT_SECONDS
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return time.process_time() - began
