"""Hostile text is read in bounded time, whatever it is made of."""

import time

import pytest

from upwell.ground.text.anchors import paths_in, symbols_in
from upwell.surface.intent import keyword_intent
from upwell.surface.messages import derive_queries, not_applicable

PIECES = ["a.", "a/", "a_", "aB", "[(", "/", "http://", "~/", "a@b.", "`", '"\\', "why not "]


@pytest.mark.parametrize("piece", PIECES)
def test_a_megabyte_of_anything(piece):
    text = piece * (1_000_000 // len(piece))
    began = time.process_time()
    for read in (paths_in, symbols_in, keyword_intent, derive_queries, not_applicable):
        read(text)
    assert time.process_time() - began < 2.0
