"""Turn a prompt, a question or a tool call into weighted terms."""

import re
from collections.abc import Iterable, Mapping

from msgspec import Struct

from upwell.memory.documents.sections.terms import COMPOUND, terms, terms_of
from upwell.memory.ranking.terms import sound

PART_WEIGHT = 0.5
"""The weight of a part of a compound. The joined form has a weight of 1."""
FIRST_LINE_WEIGHT = 1.6
"""The weight of the first line of a multi-line text. In a pasted issue, that line is the title."""
FOLDER_WEIGHT, ROOT_FOLDER_WEIGHT = 0.5, 0.3
MAX_QUERY_CHARS = 4_000
MAX_FOLDERS = 12
PATH_BREAKS = str.maketrans("/_-.", "    ")
STRUCTURE = frozenset(
    "src lib libs crate crates packag package packages pkg internal cmd test tests spec index mod "
    "main init utils util py rs go ts js tsx toml json yaml yml md lock core common base txt cfg "
    "crat util".split()
)
"""Parts of paths that occur in many repositories."""


class SectionQuestion(Struct, frozen=True):
    """A question, broken down into terms. `order` lists all terms in the order of the text.
    `compounds` contains the joined forms, such as `rootpath`. A section without a joined form may
    still answer the question."""

    weights: Mapping[str, float]
    order: tuple[str, ...]
    compounds: frozenset[str]


def of_text(text: str) -> SectionQuestion:
    """Turn text into a question."""
    lines = sound(text[:MAX_QUERY_CHARS]).split("\n")
    weights: dict[str, float] = {}
    order: list[str] = []
    compounds: set[str] = set()
    for number, line in enumerate(lines):
        share = FIRST_LINE_WEIGHT if number == 0 and len(lines) > 1 else 1.0
        for compound in COMPOUND.findall(line):
            parts = terms_of(compound)
            wholes = _wholes(parts)
            if len(parts) > 1:
                compounds |= {term for term in wholes if term[0] != "-"}
            for term in parts:
                weight = share if term in wholes else share * PART_WEIGHT
                weights[term] = max(weight, weights.get(term, 0.0))
                order.append(term)
    return SectionQuestion(weights, tuple(order), frozenset(compounds))


def _wholes(parts: tuple[str, ...]) -> frozenset[str]:
    """Return the terms that represent a whole compound: the joined form and the flag."""
    if len(parts) < 2:
        return frozenset(parts)
    last = 2 if parts[-1][0] == "-" else 1
    return frozenset(parts[-last:])


def of_paths(paths: Iterable[str]) -> SectionQuestion:
    """Turn file paths into a question. File names have a weight of 1, and folders weigh less."""
    weights: dict[str, float] = {}
    compounds: set[str] = set()
    for path in paths:
        *folders, name = [part for part in sound(path).split("/") if part] or [""]
        for depth, folder in enumerate(folders[-MAX_FOLDERS:]):
            for term in terms(folder.translate(PATH_BREAKS)):
                if term not in STRUCTURE:
                    weight = FOLDER_WEIGHT if depth else ROOT_FOLDER_WEIGHT
                    weights[term] = max(weights.get(term, 0.0), weight)
        name_terms = [term for term in terms(_without_ending(name)) if term not in STRUCTURE]
        weights |= dict.fromkeys(name_terms, 1.0)
        compounds.update(name_terms[-1:] if len(name_terms) > 1 else ())
    return SectionQuestion(weights, tuple(weights), frozenset(compounds))


def _without_ending(name: str) -> str:
    return re.sub(r"\.\w{1,5}$", "", name)
