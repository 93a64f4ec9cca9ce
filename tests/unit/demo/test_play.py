"""The demo checks its own claims: it fails when a shortened reply lost an answer, when bytes
change, or when an original does not read back whole."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from upwell.compress.progressive import PROGRESSIVE_FOOTER_TOKEN
from upwell.demo.play import DemoFailed, DemoStep, Play, excerpt

ORIGINAL = "order 1187 failed\n" * 50
NOTICE = '[upwell] Shortened. The original: upwell__read_more with key="k".'


class Peer:
    """An agent's connection with scripted replies, by tool."""

    def __init__(self, **replies: list[str]) -> None:
        self._replies = replies

    async def call(self, tool: str, args: Mapping[str, Any]) -> list[str]:
        return self._replies[tool]


async def no_decisions(home: Path) -> list[Mapping[str, Any]]:
    return []


async def step(gateway: Peer, tmp_path: Path, *answers: str) -> list[str]:
    """The lines that the demo prints for one step."""
    lines: list[str] = []
    play = Play(lines.append, tmp_path, {}, no_decisions)
    call = DemoStep("It reads.", "shop__read", {"path": "a"}, answers=answers)
    await play._step(call, Peer(read=[ORIGINAL]), gateway)
    return lines


def chunk(text: str) -> list[str]:
    return [f"{text}{PROGRESSIVE_FOOTER_TOKEN}{len(text)}]"]


def test_an_excerpt_shows_the_answer() -> None:
    assert "needle" in excerpt("hay\n" * 1_000 + "a needle here\n" + "hay\n" * 9, ["needle"])


def test_a_lost_answer_fails() -> None:
    with pytest.raises(DemoFailed, match="lost an answer: 'needle'"):
        excerpt("hay\n" * 1_000, ["hay", "needle"])


async def test_an_original_that_reads_back_whole_passes(tmp_path: Path) -> None:
    gateway = Peer(shop__read=["order 1187", NOTICE], upwell__read_more=chunk(ORIGINAL))
    lines = await step(gateway, tmp_path, "1187")
    assert any("byte for byte" in line for line in lines)


@pytest.mark.parametrize("text", ["x" * len(ORIGINAL), ""], ids=["other", "nothing"])
async def test_an_original_that_does_not_read_back_fails(tmp_path: Path, text: str) -> None:
    gateway = Peer(shop__read=["order 1187", NOTICE], upwell__read_more=chunk(text))
    with pytest.raises(DemoFailed, match="read_more returned"):
        await step(gateway, tmp_path, "1187")


async def test_changed_bytes_without_a_notice_fail(tmp_path: Path) -> None:
    with pytest.raises(DemoFailed, match="came through changed"):
        await step(Peer(shop__read=["order 1187"]), tmp_path)
