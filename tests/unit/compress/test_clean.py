"""Noise by kind: what is removed, what is marked, and what always stays."""

import base64
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from upwell.compress import compress
from upwell.compress.compressor import (
    STEPS,
    clean,
    without_extra_blanks,
    without_invisible,
    without_overstrikes,
    without_redraws,
)
from upwell.ground.types.compression import Passage, TextKind

PICTURE = base64.b64encode(bytes(range(256)) * 12).decode()
BARS = "\r".join(
    f"Downloading tide.bin {n:3}% |{'█' * (n // 10)}| {n / 7:.1f}MB/s" for n in range(101)
)
SPINNER = "\r".join(f"{sign} Installing packages" for sign in "⠋⠙⠹⠸⠼⠴")


def cleaned(text, kind):
    return clean(Passage(text=text, kind=kind))[0].text


def test_a_redrawn_line_keeps_its_last_state():
    text, omitted = without_redraws(f"start\n{BARS}\n{SPINNER}\rInstalled 4 packages\ndone\n")
    assert text == (
        "start\nDownloading tide.bin 100% |██████████| 14.3MB/s […100 redrawn]\n"
        "⠴ Installing packages […5 redrawn]\rInstalled 4 packages\ndone\n"
    )
    assert [(entry.count, entry.total) for entry in omitted] == [(105, 108)]


@pytest.mark.parametrize(
    "text",
    [
        "one\rtwo\rthree\n",
        "Meeting 11/21\rMeeting 11/22\rMeeting 11/23",
        "error 1\rerror 2\n",
        "a,b\r\n10%,2\r\n20%,3\r\n",
        "10% of hosts are down\r20% of disks are full\n",
    ],
)
def test_lines_that_may_be_separate_stay(text):
    assert without_redraws(text) == (text, ())


def test_a_redrawn_line_keeps_its_windows_line_end():
    text, _ = without_redraws("10% done\r20% done\r\nnext\r\n")
    assert text == "20% done […1 redrawn]\r\nnext\r\n"


def test_overstruck_letters_are_written_once():
    bold = "".join(f"{char}\b{char}" for char in "NAME")
    assert without_overstrikes(f"{bold}\n  _\bf_\bi_\bl_\be\n") == "NAME\n  file\n"
    assert without_overstrikes("working |\b/\b-\b\\\bdone") == "working done"
    assert without_overstrikes("snake_case stays") == "snake_case stays"


def test_invisible_characters_go_unless_they_mean_something():
    assert without_invisible("\ufeffti\u200bde\u2060 \x07out\x00\x1b(B") == "tide out"
    for text in (
        "👩\u200d💻",
        "می\u200cخواهم",
        "ไทย\u200bแลนด์",
        "a\u202eb",
        "1\x1f2\x1e3",
        "\x1b[1m",
    ):
        assert without_invisible(text) == text
    assert without_invisible("a\u200b\n```\nb\u200b\n```\nc\u200b") == "a\n```\nb\u200b\n```\nc"


def test_logs_lose_trailing_blanks_and_gaps():
    assert without_extra_blanks("a  \t\r\nb \n\n\n\n\nc  ") == "a\r\nb\n\nc"


def test_embedded_pictures_are_replaced_by_their_size():
    page = f"# Tide\n\n![chart](data:image/png;base64,{PICTURE})\n\nHigh water.\n"
    passage, omitted = clean(Passage(text=page, kind=TextKind.MARKDOWN))
    assert f"(data:image/png;base64,[…{len(PICTURE):,} chars])" in passage.text
    assert omitted[0].count == len(PICTURE)
    fenced = f"```\ndata:image/png;base64,{PICTURE}\n```\n"
    assert cleaned(fenced, TextKind.MARKDOWN) == fenced
    small = "![dot](data:image/gif;base64,R0lGODlhAQABAAAAACw=)"
    assert cleaned(small, TextKind.MARKDOWN) == small


NOISE = f"\ufeffa \n{BARS}\nN\bN \u200bdata:image/png;base64,{PICTURE}\n\n\n\n\nz"
UNTOUCHED = sorted(set(TextKind) - set(STEPS))


@pytest.mark.parametrize("kind", UNTOUCHED)
def test_code_and_data_are_left_alone(kind):
    passage = Passage(text=NOISE, kind=kind)
    assert clean(passage)[0] is passage


def test_markdown_keeps_the_blanks_that_break_its_lines():
    assert cleaned("a  \nb\n\n\n\n\nc", TextKind.MARKDOWN) == "a  \nb\n\n\n\n\nc"


@pytest.mark.parametrize("kind", sorted(STEPS))
@given(text=st.text("ab1 \t\r\n\b|%\u200b\ufeff`~\x1b[(BK", max_size=40))
def test_every_letter_stays_or_its_loss_is_marked(kind, text):
    passage, omitted = clean(Passage(text=text, kind=kind))
    if not omitted and "\b" not in text and "\x1b" not in text:
        letters = [char for char in text if char in "ab1|%`~"]
        assert [char for char in passage.text if char in "ab1|%`~"] == letters


LONG = ["1", "a\b", "_\b", "\r", "```\n", "```\n~~~~\n", "data:image/png;base64,", "1.", "\x1b["]


@pytest.mark.parametrize("unit", [*LONG, " " * 1_000 + "x", "10% " + "x" * 40 + "\r", "\u200b"])
def test_the_time_is_linear_in_the_text(unit):
    text = unit * (500_000 // len(unit)) + "\n\r%"
    began = time.process_time()
    for kind in (TextKind.LOG, TextKind.MARKDOWN):
        clean(Passage(text=text, kind=kind))
    assert time.process_time() - began < 4.0


def test_over_budget_noise_goes_first_and_is_counted():
    log = "".join(f"2026-01-01 10:00:{n:02} INFO step {n * n}\n" for n in range(20))
    result = compress(f"{log}{BARS}\n", max_chars=1_200)
    assert log in result.text
    assert "[…100 redrawn]" in result.text
    assert not result.lossless
    assert result.omitted[0].what == "states of lines that were redrawn"


def test_removed_blanks_are_not_counted_as_omissions():
    log = "".join(f"2026-01-01 10:00:{n:02} INFO step {n * n}{' ' * 60}\n" for n in range(20))
    result = compress(log, max_chars=1_000)
    assert result.lossless
    assert result.text == "\n".join(line.rstrip() for line in log.split("\n"))
