"""The retention of a session's streams."""

import asyncio

import pytest

from upwell.gateway.front.streams import (
    MAX_LINES,
    MAX_RETAINED_BYTES,
    MAX_SENT_BYTES,
    MAX_STREAMS,
    Outbox,
    Streams,
)


def said(outbox: Outbox, *lines: bytes) -> Outbox:
    for line in lines:
        outbox.put(line)
    return outbox


def test_readers_continue_from_their_position() -> None:
    outbox = said(Outbox("3"), b"a", b"b", b"c")
    assert outbox.after(0) == [(1, b"a"), (2, b"b"), (3, b"c")]
    assert outbox.after(2) == [(3, b"c")]
    assert outbox.after(3) == []
    assert (outbox.identity(2), Outbox().identity(2)) == ("3-2", "")


async def test_a_reader_waits_for_the_next_message_or_the_end() -> None:
    outbox = said(Outbox(), b"a")
    readers = [asyncio.create_task(outbox.wait_for_more(1)) for _ in range(2)]
    await outbox.wait_for_more(0)
    await asyncio.sleep(0)
    assert not any(reader.done() for reader in readers)
    outbox.put(b"b")
    await asyncio.gather(*readers)
    outbox.end()
    await outbox.wait_for_more(99)


def test_sent_messages_are_retained_up_to_a_size_and_unsent_ones_completely() -> None:
    part = b"x" * (MAX_SENT_BYTES // 4)
    outbox = said(Outbox(), *[part] * 20)
    assert outbox.size == 20 * len(part)
    assert len(outbox.after(0)) == 20
    assert outbox.size <= MAX_SENT_BYTES
    assert [number for number, _ in outbox.after(0)] == [17, 18, 19, 20]


def test_a_stream_retains_a_bounded_number_of_messages() -> None:
    outbox = said(Outbox(), *[b"x"] * (MAX_LINES + 5))
    assert [number for number, _ in outbox.after(0)] == list(range(6, MAX_LINES + 6))
    assert outbox.size == MAX_LINES


def test_an_event_is_found_on_its_own_stream_only() -> None:
    streams, others = Streams(), Streams()
    first, second = streams.begin(), streams.begin()
    said(first, b"a", b"b")
    said(second, b"c")
    assert streams.find(first.identity(1)) == (first, 1)
    assert streams.find(second.identity(0)) == (second, 0)
    assert streams.find(streams.own.identity(0)) == (streams.own, 0)
    assert others.find(first.identity(1)) is None


@pytest.mark.parametrize(
    "identity", ["", "1", "1-", "-1", "1-x", "1-٣", "9-1", "1-2", "1--1", "0-1"]
)
def test_other_ids_find_nothing(identity: str) -> None:
    streams = Streams()
    said(streams.begin(), b"a")
    assert streams.find(identity) is None


def test_ended_streams_are_retained_up_to_a_number_and_a_size() -> None:
    streams = Streams()
    begun = [said(streams.begin(), b"x") for _ in range(MAX_STREAMS + 3)]
    for outbox in begun:
        streams.finish(outbox, used=True)
    collected = [streams.find(outbox.identity(1)) is not None for outbox in begun]
    assert collected == [False] * 3 + [True] * MAX_STREAMS
    large = said(streams.begin(), b"x" * (MAX_SENT_BYTES + 1))
    streams.finish(large, used=True)
    assert streams.find(large.identity(1)) is None
    assert streams.find(begun[-1].identity(1)) is None, "the oldest go first"


def test_an_open_stream_is_retained_and_a_plain_answer_is_not() -> None:
    streams = Streams()
    open_one = said(streams.begin(), b"a")
    for _ in range(MAX_STREAMS + 1):
        streams.finish(said(streams.begin(), b"x"), used=True)
    assert streams.find(open_one.identity(1)) == (open_one, 1)
    plain = said(streams.begin(), b"a")
    streams.finish(plain, used=False)
    assert streams.find(plain.identity(1)) is None


def test_a_client_that_does_not_read_costs_bounded_memory_and_gets_the_last_message() -> None:
    outbox = Outbox("1")
    for _ in range(100):
        outbox.put(b"x" * 1_000_000)
    assert outbox.size <= MAX_RETAINED_BYTES
    outbox.put(b"answer" * 10_000_000)
    assert outbox.after(0) == [(101, b"answer" * 10_000_000)]
