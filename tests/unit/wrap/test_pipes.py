"""Lines are taken out of chunks without losing or moving a byte."""

import random

import pytest

from upwell.wrap.relay import Lines

STREAM = b'{"a":1}\n\r\n\xff\xfe\n' + b"x" * 300 + b"\n\n[1,2]\r\n" + b"y" * 40 + b"\nunfinished"


def chunks(stream: bytes, seed: int) -> list[bytes]:
    source = random.Random(seed)
    pieces, at = [], 0
    while at < len(stream):
        size = source.choice((1, 2, 3, 7, 60, 500))
        pieces.append(stream[at : at + size])
        at += size
    return pieces


@pytest.mark.parametrize("seed", range(20))
def test_every_byte_comes_out_in_order(seed: int) -> None:
    source, lines, out = random.Random(seed), Lines(100), b""
    for chunk in chunks(STREAM, seed):
        for pieces, _ in lines.of(chunk, keeps=source.random() < 0.5):
            out += b"".join(pieces)
    assert out + b"".join(lines.rest()) == STREAM


@pytest.mark.parametrize("seed", range(20))
def test_whole_lines_are_whole_lines(seed: int) -> None:
    lines = Lines(100)
    whole = [
        b"".join(pieces)
        for chunk in chunks(STREAM, seed)
        for pieces, is_whole in lines.of(chunk, keeps=True)
        if is_whole
    ]
    ended = [line + b"\n" for line in STREAM.split(b"\n")[:-1]]
    assert [line for line in whole if len(line) < 100] == [
        line for line in ended if len(line) < 100
    ]
    assert set(whole) <= set(ended)


def test_a_line_that_has_begun_to_pass_is_not_kept() -> None:
    lines = Lines(100)
    assert list(lines.of(b'{"id":', keeps=False)) == [([b'{"id":'], False)]
    assert list(lines.of(b"1}\n{}", keeps=True)) == [([b"1}\n"], False)]
    assert list(lines.of(b"\n", keeps=False)) == [([b"{}", b"\n"], True)]
