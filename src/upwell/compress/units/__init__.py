"""Cutting a text into units by what it is."""

from collections.abc import Callable

from upwell.compress.units import markdown, plain
from upwell.compress.units.base import Units
from upwell.ground.types import Kind

SPLITTERS: dict[Kind, Callable[[str, str], Units]] = {
    Kind.MARKDOWN: markdown.split,
    Kind.API_DOCS: markdown.split,
}


def split(text: str, kind: Kind, name: str = "") -> Units:
    """The units of `text`, which is of `kind`; lines where no kind knows better."""
    return SPLITTERS.get(kind, plain.split)(text, name)
