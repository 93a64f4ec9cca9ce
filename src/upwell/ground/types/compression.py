"""A passage to compress, its budget, and the record of how it was shortened."""

from enum import StrEnum

from msgspec import Struct


class TextKind(StrEnum):
    """The kind of a text. It determines how the text is split, shortened and reassembled."""

    JSON_ARRAY = "json_array"
    JSON_OBJECT = "json_object"
    JSON_SCALAR = "json_scalar"
    JSON_LINES = "json_lines"
    OPENAPI = "openapi"
    API_DOCS = "api_docs"
    MARKDOWN = "markdown"
    HTML = "html"
    CSV = "csv"
    LOG = "log"
    TEST_OUTPUT = "test_output"
    DIFF = "diff"
    GIT_LOG = "git_log"
    GREP = "grep"
    CODE = "code"
    STACK_TRACE = "stack_trace"
    TEXT = "text"


class Budget(Struct, frozen=True, kw_only=True):
    """How much space a text may take. If several limits are set, the smallest applies.

    `max_chars`, `max_tokens`: soft limits, which `floor` may raise.
    `hard_chars`, `hard_tokens`: limits that are never exceeded.
    `floor`: the share of characters (0..1) to keep if the original cannot be fetched later
    (seed 002's `min_result_retention`).
    """

    max_chars: int | None = None
    max_tokens: int | None = None
    hard_chars: int | None = None
    hard_tokens: int | None = None
    floor: float = 0.0


class Passage(Struct, frozen=True, kw_only=True):
    """A text to compress.

    `kind`: TEXT lets the compressor detect the kind. `query`: the agent's question, "" for none.
    `name`: a path or URL that helps to detect the kind. `key`: the key under which the original can
    be read, "" if it is not stored. `first_line`: the number of the first line, or None if omission
    marks should contain no line numbers. `request`: the user's last request in the session, "" if
    unknown. It is a hint, not a question. `folded`: whether repeated parts of `text` (a list of
    paths, search results or a log) have been merged, so that its lines do not correspond to those
    of the original.
    """

    text: str
    kind: TextKind = TextKind.TEXT
    query: str = ""
    name: str = ""
    key: str = ""
    first_line: int | None = None
    request: str = ""
    folded: bool = False


class Omission(Struct, frozen=True, kw_only=True):
    """Content that was left out: `count` of `total` units.

    `what`: the unit (items, lines, sections …). `where`: the place, such as a JSON key.
    """

    what: str
    count: int
    total: int
    where: str = ""


class Attempt(Struct, frozen=True, kw_only=True):
    """A strategy that was tried. `outcome`: "kept", or why the strategy was rejected."""

    strategy: str
    outcome: str


class Compressed(Struct, frozen=True, kw_only=True):
    """A compressed text and how it was produced.

    `before`, `after`: the number of characters in the original and in `text`. `tokens`: the
    estimated tokens of `text`. `lossless`: whether `text` has all the content of the original.
    `key`: the key of the original, "" if it is not stored. `tried`: the strategies that were tried,
    in order.
    """

    text: str
    strategy: str
    before: int
    after: int
    tokens: int
    lossless: bool
    omitted: tuple[Omission, ...] = ()
    key: str = ""
    tried: tuple[Attempt, ...] = ()
