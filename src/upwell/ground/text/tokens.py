"""Estimate the number of tokens of a text without a tokenizer.

A byte-pair tokenizer tends to start a token where letters change to digits, blanks or punctuation,
so a weighted count of such changes is close to the real number. The weights were fitted to the
larger of o200k_base and cl100k_base on 2 000 samples of source code, JSON, Markdown, logs, lists of
hashes and prose in twelve scripts, weighing an undercount fifteen times an overcount, and then
raised by `_SAFETY`. For texts of 800 characters or more the estimate is too low in under 1 % of
cases; the median is about 8 % too high.

The estimate is additive: the sum over parts of a text differs from the whole only at the seams.
"""

_SAFETY = 1.055

_CLASSES = {
    "\n\r": "n",
    " \t": "s",
    "0123456789": "9",
    "abcdefghijklmnopqrstuvwxyz": "l",
    "ABCDEFGHIJKLMNOPQRSTUVWXYZ": "U",
}

_ASCII_WEIGHTS = {
    "lU": 0.46,
    "l9": 0.65,
    "ln": 1.57,
    "lp": 0.49,
    "Ul": 1.13,
    "U9": 1.87,
    "Un": 3.19,
    "Up": 0.99,
    "9l": 1.46,
    "9U": 1.76,
    "9s": 0.12,
    "9n": 1.98,
    "9p": 1.46,
    "sl": 0.94,
    "s9": 1.82,
    "sp": 1.09,
    "nl": 0.45,
    "nU": 0.47,
    "ns": 0.21,
    "np": 0.18,
    "pl": 0.95,
    "p9": 0.66,
    "ps": 0.28,
    "pn": 0.67,
    "llllllll": 0.74,
    "9999": 1.23,
    "UU": 0.31,
    "UUUU": 0.33,
    "pp": 0.63,
    "pppp": 0.10,
    "ssss": 0.03,
}
_WIDE_WEIGHTS = {"l2": 0.66, "4": 1.01, "2": 0.39, "c": 0.74}
"""`2` and `4` are the first bytes of characters of two and four bytes, `c` is a later byte."""

_BLOCK = 16_384


def _table() -> bytes:
    table = bytearray(b"p" * 256)
    for chars, kind in _CLASSES.items():
        for char in chars:
            table[ord(char)] = ord(kind)
    for first, last, kind in ((0x80, 0xC0, "c"), (0xC0, 0xE0, "2"), (0xE0, 0xF0, "3")):
        table[first:last] = kind.encode() * (last - first)
    table[0xF0:] = b"4" * 16
    return bytes(table)


_TABLE = _table()
_ASCII = [(pattern.encode(), weight * _SAFETY) for pattern, weight in _ASCII_WEIGHTS.items()]
_WIDE = [(pattern.encode(), weight * _SAFETY) for pattern, weight in _WIDE_WEIGHTS.items()]


def weigh(text: str) -> float:
    """Estimate the tokens of `text` as a fraction, for sums over many small pieces."""
    raw = text.encode("utf-8", "surrogatepass")
    classes = raw.translate(_TABLE)
    total = 0.0
    for pattern, weight in _ASCII:
        total += classes.count(pattern) * weight
    if len(raw) != len(text):
        for pattern, weight in _WIDE:
            total += classes.count(pattern) * weight
    return total


def count(text: str) -> int:
    """Estimate the tokens of `text`. The estimate is rarely below the real number."""
    return int(weigh(text)) + 1 if text else 0


def exceeds(text: str, limit: float) -> bool:
    """Return `count(text) > limit`, reading only as much of a long text as needed."""
    if len(text) <= 2 * _BLOCK:
        return count(text) > limit
    total = 0.0
    for start in range(0, len(text), _BLOCK):
        total += weigh(text[start : start + _BLOCK])
        if total > limit:
            return True
    return count(text) > limit if text else False
