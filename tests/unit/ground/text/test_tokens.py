"""The token estimate: additive, zero only for "", close to real tokenizers."""

from pathlib import Path

import pytest

from upwell.ground.text.tokens import count, exceeds, weigh

RUSSIAN = (
    "Порт открывается в шесть часов утра, и первые суда заходят на разгрузку. Диспетчер проверяет "
    "список грузов и сообщает крановщикам номера причалов. Если погода портится, работа "
    "останавливается до особого распоряжения. Вечером начальник смены записывает в журнал, сколько "
    "контейнеров отправлено и какие повреждения обнаружены. "
)
REAL = {
    # counted once with tiktoken, the larger of o200k_base and cl100k_base
    "def parse(text: str) -> Node | None:\n    return Node(text)\n" * 20: 320,
    "The quick brown fox jumps over the lazy dog. " * 30: 301,
    '{"id": 1308968677, "state": "open", "title": "A test"},\n' * 20: 440,
    "2026-03-01T10:22:31.123Z INFO http GET /api/users 200 12ms\n" * 20: 540,
}


LISTED = {
    # the text, its tokens (counted in the same way), and the most that estimate / tokens may be
    "paths": (
        "src/upwell/compress/units/base.py\nsrc/upwell/wire/http.py\n" * 30,
        630,
        1.2,
    ),
    "padded": ("name        | state   |   12 |\nharbor-0    | running | 4096 |\n" * 20, 440, 1.15),
    "box": ("┌────────┬──────┐\n│ crane  │   12 │\n└────────┴──────┘\n" * 20, 580, 1.2),
    "tree": ("├── harbor\n│   ├── crane.py\n│   └── quay.py\n└── README.md\n" * 20, 520, 1.2),
    "newlines": ("\n" * 4_000, 250, 1.1),
    "line ends": ("\r\n" * 4_000, 1000, 1.1),
    "blanks": (" " * 4_000, 32, 2.0),
    "short fields": ("a:" * 2_000, 2001, 2.0),
    "ticks": ("`a" * 2_000, 4000, 1.1),
    "dashes": ("-" * 4_000, 62, 1.1),
    "hashes": ("d41d8cd98f00b204e9800998ecf8427e  quay.tar\n" * 20, 480, 1.15),
    "russian": (RUSSIAN, 134, 1.15),
}
CORPUS = Path(__file__).parents[4] / "benchmarks" / "corpus"
SOURCES = {"source-typescript.palette.ts": 1635, "source-java.LanternService.java": 1598}
"""The tokens of whole files, counted in the same way."""


@pytest.mark.parametrize("text", REAL)
def test_the_estimate_is_close_and_rarely_too_low(text: str) -> None:
    assert 0.99 * REAL[text] <= count(text) <= 1.25 * REAL[text]


@pytest.mark.parametrize("kind", LISTED)
def test_lists_tables_and_runs_are_not_underestimated(kind: str) -> None:
    text, real, most = LISTED[kind]
    assert 0.99 * real <= count(text) <= most * real


@pytest.mark.parametrize("name", SOURCES)
def test_source_code_is_estimated_closely(name: str) -> None:
    real = SOURCES[name]
    assert 0.99 * real <= count((CORPUS / name).read_text(encoding="utf-8")) <= 1.15 * real


def test_nothing_has_no_tokens() -> None:
    assert count("") == 0
    assert not exceeds("", 0)


def test_parts_add_up() -> None:
    text = "def f(x):\n    return {'a': 1, 'b': [1, 2, 3]}\n"
    assert weigh(text * 10) == pytest.approx(10 * weigh(text), rel=0.05)


def test_a_long_text_is_known_to_exceed_without_reading_it_all() -> None:
    assert exceeds("word " * 1_000_000, 100)
    assert not exceeds("word " * 10, 100)


@pytest.mark.parametrize(
    "unit", ["\r\n", "\n\r", "\r", "\n", " \t", "\t ", " \n", "\t\n", " ", "\t"]
)
def test_no_mix_of_blanks_is_free(unit: str) -> None:
    """A token may hold up to 128 equal blanks, or eight characters of a mix."""
    assert count(unit * 40_000) >= len(unit) * 40_000 / (128 if len(unit) == 1 else 8)


@pytest.mark.parametrize("unit", [a + b for a in "{a0Z/\x01-\n" for b in "(eb9Q._ \r"])
def test_no_mix_of_characters_is_free(unit: str) -> None:
    assert count(unit * 20_000) >= 40_000 / 16


def test_indentation_and_windows_line_ends_cost_what_they_did() -> None:
    code = "def f(x):\n        if x:\n\t\treturn 1\n\n" * 50
    assert count(code.replace("\n", "\r\n")) <= 1.2 * count(code)
