"""Neutral events: their lines, and the errors of bad ones."""

from pathlib import Path

import pytest
from tests.unit.replay import samples

from upwell.episodes.events import BadEvent, Kind, SessionEvent, event_of, line_of, read_events

CALL = SessionEvent(
    session="s",
    i=3,
    t=12.5,
    kind=Kind.TOOL,
    tool="Grep",
    args={"pattern": "é"},
    out="none",
    failed=True,
    cwd="/code",
    host="codex",
)


def test_an_event_comes_back_from_its_line() -> None:
    for event in (CALL, SessionEvent(session="s", i=0, t=0.0, kind=Kind.COMPACT)):
        assert event_of(line_of(event).encode(), "here") == event


def test_empty_fields_are_left_out() -> None:
    line = line_of(SessionEvent(session="s", i=0, t=1.0, kind=Kind.PROMPT, text="Hi"))
    assert line == '{"session": "s", "i": 0, "t": 1.0, "kind": "prompt", "text": "Hi"}'


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"{", "f:7: not JSON"),
        (b"[]", "f:7: not a JSON object"),
        (b'{"session": "s", "i": 0, "t": 1}', "f:7: 'kind' is missing"),
        (b'{"session": 1, "i": 0, "t": 1, "kind": "say"}', "f:7: 'session' must be text"),
        (b'{"session": "s", "i": true, "t": 1, "kind": "say"}', "'i' must be a whole number"),
        (b'{"session": "s", "i": 0, "t": "x", "kind": "say"}', "'t' must be a number"),
        (b'{"session": "s", "i": 0, "t": 1, "kind": "jump"}', "kind 'jump' is not one of start"),
        (b'{"session": "s", "i": 0, "t": 1, "kind": "say", "args": []}', "'args' must be an obj"),
        (b'{"session": "s", "i": 0, "t": 1, "kind": "tool", "failed": 1}', "'failed' must be true"),
    ],
)
def test_a_bad_line_is_one_line_of_error(line: bytes, message: str) -> None:
    with pytest.raises(BadEvent) as error:
        event_of(line, "f:7")
    assert message in error.value.message
    assert "\n" not in str(error.value)


def test_a_file_is_read_in_order_of_time(tmp_path: Path) -> None:
    path = samples.neutral(tmp_path)
    first, second = path.read_text().splitlines()
    path.write_text(f"{second}\n\n{first}\n")
    assert [event.i for event in read_events(path)] == [0, 1]
