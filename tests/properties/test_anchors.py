"""Hostile text is read in bounded time, whatever it is made of."""

import time

import pytest

from upwell.ground.text.anchors import paths_in, symbols_in
from upwell.ground.text.lexicon import shipped
from upwell.surface.intent import detector_of
from upwell.surface.query import messages_of

PIECES = ["a.", "a/", "a_", "aB", "[(", "/", "http://", "~/", "a@b.", "`", '"\\', "why not "]


@pytest.mark.parametrize("piece", PIECES)
def test_a_megabyte_of_anything(piece):
    text = piece * (1_000_000 // len(piece))
    messages, keywords = messages_of(shipped()), detector_of(shipped())
    keywords.intent("made once")
    began = time.process_time()
    for read in (
        paths_in,
        symbols_in,
        keywords.intent,
        messages.queries,
        messages.not_applicable,
    ):
        read(text)
    assert time.process_time() - began < 2.0
