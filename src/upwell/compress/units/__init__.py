"""Split a text into units in the way that suits its kind."""

from collections.abc import Callable

from upwell.compress.base import MOST_LINES
from upwell.compress.units import changes, markdown, outline, records, runs
from upwell.compress.units.base import Units, split_groups, split_lines
from upwell.ground.types.compression import Kind

SPLITTERS: dict[Kind, Callable[[str, str], Units]] = {
    Kind.MARKDOWN: markdown.split,
    Kind.API_DOCS: markdown.split,
    Kind.CODE: outline.split,
    Kind.CSV: records.split_csv,
    Kind.DIFF: changes.split_diff,
    Kind.GIT_LOG: changes.split_log,
    Kind.GREP: records.split_grep,
    Kind.LOG: runs.split_log,
    Kind.STACK_TRACE: runs.split_trace,
    Kind.TEST_OUTPUT: runs.split_tests,
    Kind.TEXT: outline.split_text,
}


def split(text: str, kind: Kind, name: str = "") -> Units:
    """Split `text` into units with the splitter for its `kind`, or into lines if there is none. A
    text with more than `MOST_LINES` lines is split into groups of lines instead.
    """
    if text.count("\n") > MOST_LINES:
        return split_groups(text)
    return SPLITTERS.get(kind, split_lines)(text, name)
