"""Estimate the number of tokens in a text without a tokenizer.

A text is split as byte-pair tokenizers split it before they merge bytes: into words (each with the
character before it), groups of up to three digits, runs of punctuation, and whitespace. The split
is exact for cl100k_base and nearly exact for o200k_base. Only the number of tokens in each piece is
an estimate. A common word takes one token, which may include the punctuation mark before it. Other
words are estimated from their pairs of letters. Runs of punctuation are estimated from how often
the mark changes or repeats.

`tokens.txt` contains the words and weights. They were fitted to 1,500 samples of tool outputs,
source code, lists, tables and prose in thirty languages. For each sample, the target was the larger
of the two tokenizers' counts.
"""

import math
import re
from collections.abc import Callable
from functools import lru_cache
from importlib.resources import files
from itertools import groupby, pairwise

from msgspec import Struct

_SAFETY = 1.035
_SIGN = r"!-/:-@\[-`{-~\x00-\x08\x0e-\x1f\x7f"
_ASCII_PIECES = re.compile(
    rf"[{_SIGN} \t]?[A-Za-z]+|[0-9]{{1,3}}| ?[{_SIGN}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    re.ASCII,
)
_PIECES = re.compile(
    rf"[{_SIGN} \t]?[A-Za-z]++(?![^\x00-\x7f])|[0-9]{{1,3}}| ?[{_SIGN}]++(?![^\x00-\x7f])[\r\n]*"
    r"|(?:[^\r\n\w]|_)?[^\W\d_]+|\d{1,3}| ?(?:[^\s\w]|_)+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""The first three alternatives are for ASCII. They are twice as fast as the others."""
_WORD = re.compile(r"([^A-Za-z]?)([A-Za-z]+)")
_PART = re.compile(r"[A-Z]*[a-z]+|[A-Z]+")
_BLOCK = 16_384
"""The number of characters in a block. Longer texts are read block by block, to limit memory."""
_MIN_REPEATED, _MAX_BLOCKS = 1_024, 16
"""The results for the last `_MAX_BLOCKS` blocks of at least `_MIN_REPEATED` characters are cached,
because long texts are often measured several times in a row.
"""
_CHARS_PER_TOKEN, _CUT_PIECE = 4.5, 64.0
"""`exceeds()` first estimates the beginning of a text, about `_CHARS_PER_TOKEN * limit` characters.
That is usually enough to show that a text is too long. If the beginning ends inside a piece, the
estimate for the first part of the piece may be up to `_CUT_PIECE` tokens higher than for the whole.
"""
_MAX_PIECES, _LONGEST_PIECE = 60_000, 48
"""The maximum number of pieces in a cache, and the length of the longest piece that is cached."""


def weigh(text: str) -> float:
    """Estimate the tokens in `text` without rounding, for sums over many small texts."""
    if len(text) > _BLOCK:
        return sum(map(_weigh_block, _blocks(text)))
    return _weigh_block(text)


def count(text: str) -> int:
    """Estimate the tokens in `text`. The estimate is rarely too low."""
    return math.ceil(weigh(text))


def exceeds(text: str, limit: float) -> bool:
    """Return `count(text) > limit`. No more of a long text is read than necessary."""
    total = 0.0
    if _weigh_block(_beginning(text, limit)) > limit + _CUT_PIECE:
        return True
    for block in _blocks(text):
        total += _weigh_block(block)
        if math.ceil(total) > limit:
            return True
    return False


def chars_per_token(text: str, limit: float) -> float:
    """Estimate the number of characters per token, from the part of the text that `exceeds()`
    reads first for this `limit`."""
    beginning = _beginning(text, limit)
    return len(beginning) / max(1.0, _weigh_block(beginning))


def _beginning(text: str, limit: float) -> str:
    return text[: int(min(_BLOCK, _CHARS_PER_TOKEN * max(0.0, limit) + _MIN_REPEATED))]


def _blocks(text: str) -> list[str]:
    return [text[start : start + _BLOCK] for start in range(0, len(text), _BLOCK)]


def _weigh_block(text: str) -> float:
    return _weigh_once(text) if len(text) >= _MIN_REPEATED else _weigh_pieces(text)


@lru_cache(maxsize=_MAX_BLOCKS)
def _weigh_once(block: str) -> float:
    return _weigh_pieces(block)


def _weigh_pieces(text: str) -> float:
    pieces = (_ASCII_PIECES if text.isascii() else _PIECES).findall(text)
    return _SAFETY * sum(map(_TOKENS.__getitem__, pieces))


class _Cache(dict[str, float]):
    def __init__(self, estimate: Callable[[str], float]) -> None:
        self._estimate = estimate

    def __missing__(self, piece: str) -> float:
        tokens = self._estimate(piece)
        if len(piece) <= _LONGEST_PIECE:
            if len(self) >= _MAX_PIECES:
                self.clear()
            self[piece] = tokens
        return tokens


class _Table(Struct, frozen=True):
    """The contents of `tokens.txt`.

    `words`: maps each common word to the punctuation marks that share one token with it. `pairs`:
    the weights of pairs of letters. `styles`: the bias of each style of word (such as upper case),
    and the weight of a word's length in that style. `rare`, `common`: the weights of the character
    before a word, by length for rare words and by style for common words. `joined`: runs of
    different marks that take one token. `signs`, `symbols`, `letters`: the weights of ASCII
    punctuation, of symbols beyond ASCII, and of letters by script.
    """

    words: dict[str, str]
    pairs: list[float]
    styles: list[float]
    rare: list[float]
    common: list[float]
    joined: frozenset[str]
    signs: list[float]
    symbols: list[float]
    letters: list[float]


_VISIBLE = str.maketrans("␣↵»", " \n\t")
"""How `tokens.txt` writes whitespace."""


@lru_cache(maxsize=1)
def _table() -> _Table:
    text = files("upwell.ground.text").joinpath("tokens.txt").read_text(encoding="utf-8")
    rows = dict(row.split(": ", 1) for row in text.splitlines() if not row.startswith("#"))
    numbers = {
        name: [int(number) / 100 for number in rows[name].split()]
        for name in ("pairs", "styles", "rare", "common", "signs", "symbols", "letters")
    }
    return _Table(
        words=dict(re.findall(r"([a-z]+)([^a-z ]*)", rows["words"].translate(_VISIBLE))),
        joined=frozenset(
            run.replace("␣", " ").replace("↵", "\n") for run in rows["joined"].split()
        ),
        **numbers,
    )


def _tokens(piece: str) -> float:
    if piece.isspace():
        return _blank_tokens(piece)
    if piece.isascii():
        word = _WORD.fullmatch(piece)
        if word is not None:
            return _word_tokens(word[1], word[2])
        return 1.0 if piece.isdigit() else _sign_tokens(piece)
    if any(map(str.isalpha, piece)):
        return _foreign_tokens(piece)
    return 1.0 * len(piece.encode()) if piece.isdigit() else _symbol_tokens(piece)


def _blank_tokens(piece: str) -> float:
    if "\r\n" in piece:
        return 1.0 + (piece.count("\r\n") - 1) // 4
    runs = sum(1 for _ in groupby(piece))
    if runs > 1:
        return 0.5 * runs
    return 1.0 + (len(piece) - 1) // (80 if piece[0] == " " else 16)


def _word_tokens(before: str, letters: str) -> float:
    """The parts of a camel-case name (`getItem`) do not share a token."""
    parts = _PART.findall(letters)
    return _PARTS[before + parts[0]] + sum([_PARTS[part] for part in parts[1:]])


_SIGNS = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~\t"
_NO_SIGN, _OTHER_SIGN = len(_SIGNS) + 1, len(_SIGNS)
_JOINING, _APART = "/._-", 2.15
"""Punctuation marks inside paths and names, and the number of tokens for such a mark and a common
word that do not share a token. The number includes a margin. Without it, the estimates
for some lists of paths, which repeat the same words in every line, would be too low.
"""
_LOWER, _TITLE, _UPPER, _MIXED = range(4)
_SHORT, _MEDIUM, _LONG_PART, _LONGEST_TOKEN = 2, 5, 20, 8
"""Lengths of a name's parts, in letters. For parts longer than `_LONG_PART`, the pairs of letters
are not reliable, so such a part takes at least one token per `_LONGEST_TOKEN` letters.
"""


def _style(part: str) -> int:
    if part.islower():
        return _LOWER
    if part[1:].islower() or len(part) == 1:
        return _TITLE
    return _UPPER if part.isupper() else _MIXED


def _part_tokens(part: str) -> float:
    table = _table()
    before = "" if part[0].isalpha() else part[0]
    letters = part[len(before) :]
    style, lowercase = _style(letters), letters.lower()
    sign = _NO_SIGN if before in ("", " ") else _SIGNS.find(before) % _NO_SIGN
    signs = table.words.get(lowercase)
    if signs is not None:
        if before and before in signs and style == _LOWER:
            return 1.0
        tokens = _at_least_one(table.common[style * (_NO_SIGN + 1) + sign])
        is_apart = before and before in _JOINING and (style == _LOWER or before != ".")
        return max(_APART, tokens) if is_apart else tokens
    codes = [0, *(ord(char) - 96 for char in lowercase), 27]
    score = sum([table.pairs[28 * first + second] for first, second in pairwise(codes)])
    score += table.styles[style] + table.styles[4 + style] * min(len(letters), 30)
    size = (len(letters) > _SHORT) + (len(letters) > _MEDIUM)
    score += table.rare[size * (_NO_SIGN + 1) + sign] + (table.styles[8] if before == " " else 0.0)
    tokens = _at_least_one(score) + (_APART - 2.0 if before and before in _JOINING else 0.0)
    return max(tokens, len(letters) / _LONGEST_TOKEN) if len(letters) > _LONG_PART else tokens


def _at_least_one(score: float) -> float:
    return 1.0 + (math.log1p(math.exp(score)) if score < 30.0 else score)


_SHARED = {
    sign: size
    for signs, size in (
        ("-=.*#_/", 64), ("+~%", 32), (";", 16), (":<>!─", 8), ("|,()\\█}═━", 4),
    )
    for sign in signs
}  # fmt: skip
"""How many copies of a punctuation mark fit in one token. For marks that are not listed, it is
two if the mark is ASCII, and one otherwise."""
_LONG_RUN = 4


def _sign_tokens(piece: str) -> float:
    """Estimate the tokens of a run of ASCII punctuation."""
    table = _table()
    bare = piece.strip(" \r\n")
    if len(bare) < 2 or piece in table.joined:
        return 1.0
    runs = [(sign, len(list(run))) for sign, run in groupby(bare)]
    if len(runs) == 1:
        return 1.0 + (runs[0][1] - 1) // _SHARED.get(runs[0][0], 2)
    long_runs = sum(size > _LONG_RUN for _, size in runs)
    tokens = (
        table.signs[0]
        + table.signs[1] * (len(runs) - 1)
        + table.signs[2] * sum([(size - 1) // _SHARED.get(sign, 2) for sign, size in runs])
        + table.signs[3] * (piece[0] == " ")
        + table.signs[4] * (piece[-1] in "\r\n")
        + table.signs[5] * long_runs
        + table.signs[6] * sum([sign < " " for sign in bare])
    )
    return max(1.0, tokens)


_BLOCKS = (
    (0x80, 0), (0x800, 1), (0x2000, 9), (0x2070, 2), (0x2190, 9), (0x2200, 3), (0x2500, 9),
    (0x2580, 4), (0x2600, 5), (0x2800, 6), (0x3000, 9), (0x3100, 7), (0xFF00, 9), (0xFFF0, 7),
    (0x10000, 9), (0x110000, 8),
)  # fmt: skip
"""The end of each range of characters, and the class of the symbols in it."""
_TREE = 10


def _symbol_tokens(piece: str) -> float:
    """Estimate the tokens of a run of symbols that are not all ASCII."""
    table = _table()
    if piece in table.joined:
        return 1.0
    weights = table.symbols
    tokens = 0.0
    for sign, run in groupby(piece.strip(" \r\n")):
        kind = _TREE if sign in "│─└├" else _class_in(_BLOCKS, sign)
        tokens += weights[kind] * (1.0 + (len(list(run)) - 1) / _SHARED.get(sign, 1))
    return max(1.0, tokens)


_SCRIPTS = (
    (0x80, 0), (0x100, 1), (0x250, 17), (0x370, 2), (0x400, 3), (0x530, 4), (0x590, 5),
    (0x600, 6), (0x780, 7), (0x900, 8), (0x980, 9), (0xE00, 8), (0xE80, 10), (0x10A0, 8),
    (0x1100, 11), (0x1E00, 8),
    (0x1F00, 12), (0x3040, 8), (0x3100, 13), (0x3400, 8), (0xA000, 14), (0xAC00, 8), (0xD7B0, 15),
    (0x10000, 8), (0x110000, 16),
)  # fmt: skip
"""The end of each range of letters, and the number of the script."""
_CYRILLIC, _SCRIPT_COUNT, _CYRILLIC_LETTERS = 4, 18, 48


def _foreign_tokens(piece: str) -> float:
    weights = _table().letters
    tokens = weights[_SCRIPT_COUNT]
    for char in piece:
        script = _class_in(_SCRIPTS, char)
        number = ord(char.lower()[0]) - 0x430
        if script == _CYRILLIC and 0 <= number < _CYRILLIC_LETTERS:
            tokens += weights[_SCRIPT_COUNT + 1 + number]
        else:
            tokens += weights[script]
        if script == _CYRILLIC and char.isupper():
            tokens += weights[_SCRIPT_COUNT + 1 + _CYRILLIC_LETTERS]
    return max(1.0, tokens)


def _class_in(ranges: tuple[tuple[int, int], ...], char: str) -> int:
    code = ord(char)
    return next(kind for end, kind in ranges if code < end)


_PARTS = _Cache(_part_tokens)
_TOKENS = _Cache(_tokens)
