"""Markdown of agents as text on a page: no marks, and no foreign markup."""

import time

import pytest

from upwell.web.dashboard.templating import commands, plain, prose


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("It is **bold** and *not*.", "It is <b>bold</b> and *not*."),
        ("match *.py, *.js, src/**/a and src/**/b", "match *.py, *.js, src/**/a and src/**/b"),
        ("Run `make **x**` now", "Run <code>make **x**</code> now"),
        ("## Cause\nThe grille", "<b>Cause</b>\nThe grille"),
        ("- one\n* two\n  + three", "• one\n• two\n  • three"),
        ("1. one", "1. one"),
        ("see [the page](https://example.org/a)", "see the page (https://example.org/a)"),
        ("![a picture](x.png)", "a picture (x.png)"),
        ("> said", "said"),
        ("a\n\n\n\nb", "a\n\nb"),
        ("snake_case_name and __init__", "snake_case_name and __init__"),
        ("2 * 3 * 4 and **unclosed", "2 * 3 * 4 and **unclosed"),
        (
            "before\n```py\nx = **y\n# no heading\n```\nafter",
            "before\n<code>x = **y\n# no heading</code>\nafter",
        ),
        ("```\nnever closed <b>", "<code>never closed &lt;b&gt;</code>"),
    ],
)
def test_marks_become_plain_text_or_simple_elements(text: str, html: str) -> None:
    assert str(prose(text)) == html


@pytest.mark.parametrize(
    "text",
    [
        "<img src=x onerror=alert(1)>",
        "**<script>alert(1)</script>**",
        "`<svg onload=alert(1)>`",
        "[a](javascript:alert(1))",
        '[<b onclick=x>]("><script>)',
        "```\n</code><script>alert(1)</script>\n```",
        "# <iframe src=//evil>",
        "**a `b** c` <i>",
        "`**a` b** & \" '",
        "\x00<code>\x1b[31m",
        "&lt;script&gt;",
    ],
)
def test_hostile_text_brings_no_element_or_attribute_of_its_own(text: str) -> None:
    html = str(prose(text))
    for element in ("<b>", "</b>", "<code>", "</code>"):
        html = html.replace(element, "")
    assert not set(html) & set("<>\"'")
    assert "\x1b" not in html
    assert "\x00" not in html


def test_elements_are_closed_in_order() -> None:
    html = str(prose("**a `b** c` **d** `e`"))
    assert html.count("<b>") == html.count("</b>")
    assert html.count("<code>") == html.count("</code>")


def test_an_escape_in_the_text_is_shown_as_written() -> None:
    assert str(prose("&lt;b&gt;")) == "&amp;lt;b&amp;gt;"


@pytest.mark.parametrize(
    "text", ["**" * 5_000, "`" * 10_000, "[" * 5_000 + "](" * 5_000, "- " * 5_000]
)
def test_the_worst_texts_take_no_time(text: str) -> None:

    began = time.process_time()
    prose(text)
    assert time.process_time() - began < 1.0


def test_a_title_is_one_line_of_plain_text() -> None:
    assert plain("## **Fix** the\n`pump` <b>") == "Fix the pump <b>"


def test_a_command_has_its_words_in_one_piece_each() -> None:
    html = commands("run `upwell backup --all`, not `<b>`")
    words = "upwell backup --all".split()
    spans = " ".join(f'<span class="word">{word}</span>' for word in words)
    escaped = '<code><span class="word">&lt;b&gt;</span></code>'
    assert html == f"run <code>{spans}</code>, not {escaped}"
    assert commands("it`s <i>") == "it`s &lt;i&gt;"
