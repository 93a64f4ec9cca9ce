"""The sentences of an agent's closing answer that tell a later session most."""

import re
from collections.abc import Callable, Iterator
from itertools import pairwise

from upwell.ground.text.anchors import paths_in, symbols_in

MAX_SENTENCE_CHARS = 240
MIN_SENTENCE_CHARS = 12
_FENCE = ("```", "~~~")
_LINK = re.compile(r"\[([^\[\]]{1,200})\]\([^()\s]{1,400}\)")
_RULE = re.compile(r"[\s|:=*_-]*")
_BULLET = re.compile(r"(?:[-*+•>]|\d{1,2}[.)])\s+")
_BREAK = re.compile(r"(?<=[.!?])\s+(?=\S)")
_OPENER = re.compile(
    r"\W*(?:now,? )?(?:done|perfect|great|excellent|all set|here(?:'s| is| are)|let me|let's|"
    r"i(?:['’]ll| will|['’]m going| now|['’]m now)|summary|changes|"
    r"perfecto|listo|excelente|resumen|voy a|ahora|fertig|hier|voici|"
    r"pronto)\b",
    re.IGNORECASE,
)
_OPEN = re.compile(
    r"\b(?:remain\w*|pending|still|not yet|open|todo|follow-?up|next steps?|blocked|left|missing|"
    r"untested|not (?:been )?(?:verified|tested|run|pushed|merged|committed)|fail\w*|pendientes?|"
    r"falta\w*|todav[ií]a|noch|offen|fehlt\w*|reste\w*|encore|ainda)\b",
    re.IGNORECASE,
)
_RESULT = re.compile(
    r"\b[0-9a-f]{7,40}\b|#\d+|\b(?:root cause|because|fix\w*|add\w*|remov\w*|creat\w*|implement\w*|"
    r"merg\w*|push\w*|pass\w*|caus\w*|porque|agreg\w*|elimin\w*|cre[oó]\b|cread\w*|corregi\w*|"
    r"weil|behoben|ajout\w*)\b",
    re.IGNORECASE,
)


def telling(text: str, limit: int, bears: Callable[[str], float] = lambda sentence: 0.0) -> str:
    """The first sentence, and those that name files, results or open work, in their order, each on
    a line, at most `limit` characters together. "" if there is no whole sentence. `bears()` returns
    how much a sentence bears on the moment, about 1 for a rare word that it has."""
    sentences = list(dict.fromkeys(_sentences(text)))
    worth = {
        sentence: worth + bears(sentence)
        for place, sentence in enumerate(sentences)
        if (worth := _worth(sentence, place))
    }
    ordered = sorted(worth, key=lambda sentence: -worth[sentence])
    chosen: set[str] = set()
    used = 0
    for sentence in ordered:
        if used + len(sentence) + 1 <= limit:
            chosen.add(sentence)
            used += len(sentence) + 1
    return "\n".join(sentence for sentence in sentences if sentence in chosen)


def _worth(sentence: str, place: int) -> float:
    if _OPENER.match(sentence):
        return 0.0
    names = len(paths_in(sentence)) + len(symbols_in(sentence))
    worth = min(names, 2) + bool(_RESULT.search(sentence)) + 1.5 * bool(_OPEN.search(sentence))
    return float(worth) + (2.0 if place == 0 else 0.5) - 0.02 * place


def _sentences(text: str) -> Iterator[str]:
    is_code = False
    for line, below in pairwise([*map(str.strip, text.split("\n")), ""]):
        if line.startswith(_FENCE):
            is_code = not is_code
        elif not (is_code or line.startswith("#") or _RULE.fullmatch(line)):
            is_table_head = line.startswith("|") and "-" in below and _RULE.fullmatch(below)
            if not is_table_head:
                yield from _of_line(line)


def _of_line(line: str) -> Iterator[str]:
    """The sentences of a line of Markdown. A row of a table is one sentence."""
    bullet = _BULLET.match(line)
    plain = _LINK.sub(r"\1", line[bullet.end() if bullet else 0 :]).replace("**", "")
    if plain.startswith("|"):
        plain = ": ".join(cell.strip() for cell in plain.strip("|").split("|") if cell.strip())
    for sentence in _BREAK.split(plain):
        sentence = sentence.strip()
        if len(sentence) > MAX_SENTENCE_CHARS:
            sentence = f"{sentence[:MAX_SENTENCE_CHARS].rpartition(' ')[0]} …"
        if len(sentence) >= MIN_SENTENCE_CHARS and not sentence.endswith(":"):
            yield sentence
