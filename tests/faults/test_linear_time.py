"""Functions that read foreign text take linear, not quadratic, time."""

import time
from collections.abc import Callable

import pytest

from upwell.capture.git import gives_reasons
from upwell.episodes.corrections import rules_in, sentences
from upwell.episodes.signatures import signature, steps_of
from upwell.ground.secrets.redact import redact
from upwell.ground.text.anchors import paths_in, symbols_in
from upwell.ground.text.kind import detect
from upwell.ground.text.sections import blocks
from upwell.memory.documents.reading import front_of
from upwell.surface.render import harmless_line

CHARS = 30_000
UNITS = [
    *(" ", "a", "\n", "\t", "\\", "`", "|", "#", "*", "-", "_", ".", "/", "<", "[", '"', "="),
    *("a ", "a.", " |", "S   ", "* ", "- ", "```", "<a>", "</a>", "a/", "../", "a::", "a://"),
    *("a_b/c ", "A-by: ", "instead of ", ", so ", "because ", "![", "[x](", "\\u", "%2", "&lt"),
    *("exit code ", "2>&1 | tail ", "key=", "a-", "0x", "\x1b[", "é", "{", "(", "---\n", "> "),
    *("<!--a--> ", "a\r\n"),
]
READERS: dict[str, Callable[[str], object]] = {
    "sentences": lambda text: list(sentences(text)),
    "reasons": gives_reasons,
    "rules": lambda text: list(rules_in(text)),
    "signature": signature,
    "steps": steps_of,
    "secrets": redact,
    "paths": paths_in,
    "symbols": symbols_in,
    "kind": detect,
    "blocks": lambda text: list(blocks(text)),
    "front matter": front_of,
    "frame": harmless_line,
}


@pytest.mark.parametrize("name", sorted(READERS))
def test_a_reader_is_linear(name: str) -> None:
    slow = {}
    for unit in UNITS:
        for head, tail in (("", ""), ("", "x"), ("---\r\n", "")):
            text = head + (unit * (CHARS // len(unit) + 1))[:CHARS] + tail
            began = time.process_time()
            READERS[name](text)
            if (spent := time.process_time() - began) > 1.0:
                slow[head + unit + tail] = round(spent, 1)
    assert slow == {}


@pytest.mark.parametrize(
    "unit", ["xoxb-0000000000-0000000000", "password=", "AKIAAAAAAAAAAAAAAAAA "]
)
def test_overlapping_matches_of_secrets_take_linear_time(unit: str) -> None:
    """Each unit matches the format of a secret, but is not random enough to be one. The next match
    begins inside it."""
    text = unit * (100_000 // len(unit)) + "\x00"
    began = time.process_time()
    redact(text)
    assert time.process_time() - began < 2.0
