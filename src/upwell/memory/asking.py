"""How a query is put to another program that searches: as one line, or as its telling words."""

from upwell.ground.types import Query
from upwell.memory.everyday import EVERYDAY_WORDS
from upwell.memory.terms import query_words

MAX_CHARS = 500


def one_line(query: Query) -> str:
    """The first text of a query, as it is, in one line; else its paths and names; "" for none."""
    said = query.texts[:1] or (*query.paths, *query.symbols)
    return " ".join(" ".join(said).split())[:MAX_CHARS]


def telling_words(query: Query) -> list[str]:
    """The words of a query that are not everyday ones, in order, or all where it has no others:
    letters and digits only, so that none is an operator."""
    said = [*query.texts[:1], *query.paths, *query.symbols]
    found = dict.fromkeys(word for text in said for word in query_words(text[:MAX_CHARS]))
    return [word for word in found if word not in EVERYDAY_WORDS] or list(found)
