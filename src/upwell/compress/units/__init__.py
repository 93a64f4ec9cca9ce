"""Cutting a text into units by what it is."""

from collections.abc import Callable

from upwell.compress.units import changes, code, markdown, plain, records, runs
from upwell.compress.units.base import Units
from upwell.ground.types import Kind

SPLITTERS: dict[Kind, Callable[[str, str], Units]] = {
    Kind.MARKDOWN: markdown.split,
    Kind.API_DOCS: markdown.split,
    Kind.CODE: code.split,
    Kind.CSV: records.split_csv,
    Kind.DIFF: changes.split_diff,
    Kind.GIT_LOG: changes.split_log,
    Kind.GREP: records.split_grep,
    Kind.LOG: runs.split_log,
    Kind.STACK_TRACE: runs.split_trace,
    Kind.TEST_OUTPUT: runs.split_tests,
    Kind.TEXT: plain.split,
}


def split(text: str, kind: Kind, name: str = "") -> Units:
    """The units of `text`, which is of `kind`; lines where no kind knows better."""
    return SPLITTERS.get(kind, plain.split)(text, name)
