"""The sentences of a closing answer that tell most."""

from upwell.sessions.record import telling

ANSWER = """\
Perfect! Here's the summary:

## Changes

- **Pump**: added a filter in [pump.py](/home/ana/pump.py:40).
- The weather is fine today for everybody.

| File | Change |
|---|---|
| `valve.py` | removed the retry |

```
valve.py is quoted here
```
Still open: the alarm is not tested.
"""


def test_the_limit_holds_and_sentences_stay_whole() -> None:
    assert telling(ANSWER, 40) == "Pump: added a filter in pump.py."
    assert telling(ANSWER, 10) == ""


def test_a_sentence_that_bears_on_the_moment_comes_first() -> None:
    assert "weather" in telling(ANSWER, 80, lambda sentence: 9.0 * ("weather" in sentence))


def test_an_announcement_tells_nothing() -> None:
    assert telling("Now let me design the plan.", 200) == ""
