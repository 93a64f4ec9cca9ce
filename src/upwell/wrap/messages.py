"""What the relay reads in JSON-RPC messages. The bytes of a message are never decoded and encoded
again.

A message is recognised by the scalars at the two ends of its outermost object, so that the cost
does not grow with its size. If a message has another shape, it passes as it is. Only calls and tool
lists are parsed. The scanner is the one below `json`, which would take as long to import as the
whole relay.
"""

from _json import make_scanner, scanstring

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

END_BYTES = 4_096
"""How many bytes at each end of a message are read."""
CALLED, LISTED, HELLO = '"tools/call"', '"tools/list"', '"initialize"'
_SPACE = " \t\r\n"


class _Lexemes:
    """The scanner's settings: numbers stay as they are written."""

    strict = True
    object_hook = None
    object_pairs_hook = None
    parse_float = str
    parse_int = str
    parse_constant = str


_scan = make_scanner(_Lexemes())  # type: ignore[arg-type]
Malformed = (ValueError, IndexError, RuntimeError, StopIteration)
"""What the functions below raise for JSON that is malformed or nested too deeply."""


class ListedTool:
    """A tool as its server lists it. `annotations` is raw JSON, and `schema` tells whether the
    agent sees an `outputSchema`."""

    __slots__ = ("annotations", "schema")

    def __init__(self, annotations: str = "{}", schema: bool = False) -> None:
        self.annotations = annotations
        self.schema = schema

    @property
    def writes(self) -> bool:
        """Whether the annotations say that the tool has side effects."""
        hints = parsed(self.annotations)
        is_read_only = hints.get("readOnlyHint") if isinstance(hints, dict) else None
        return is_read_only is False or (
            is_read_only is None
            and isinstance(hints, dict)
            and hints.get("destructiveHint") is True
        )

    def facts(self) -> bytes:
        """What the daemon has to know about the tool, as JSON."""
        schema = "true" if self.schema else "false"
        return f'{{"annotations":{self.annotations},"schema":{schema}}}'.encode()


def outline(head: bytes, tail: bytes) -> dict[str, str]:
    """Return the scalars at both ends of a message's outermost object as raw JSON, and the first
    object or array as `{` or `[`. `head` and `tail` are the ends of the message, which overlap if
    it is short. If the message has another shape, the result is empty.
    """
    found: dict[str, str] = {}
    try:
        if _read_head(head, found) < 0:
            return found
        text = tail.decode("latin-1").rstrip()
        inner = _end_of_inner(text)
        at = _past_space(text, inner)
        if inner and text[at] == ",":
            _read_members(text, at + 1, found)
    except Malformed:
        return {}
    return found


def place_of_result(message: bytes) -> tuple[int, int]:
    """Return where the result of a message begins and ends, if it is the only object or array in
    the outermost object. If it is not, what is there is no JSON object. Raises Malformed if the
    message is not a response with a result."""
    found: dict[str, str] = {}
    start = _read_head(message[:END_BYTES], found)
    if start < 0 or found.get("result") != "{":
        raise ValueError
    text = message[-END_BYTES:].decode("latin-1")
    return start, len(message) - len(text) + _end_of_inner(text.rstrip())


def _read_head(head: bytes, found: dict[str, str]) -> int:
    text = head.decode("latin-1")
    at = _past_space(text, 0)
    if text[at] != "{":
        raise ValueError
    return _read_members(text, at + 1, found)


def _end_of_inner(text: str) -> int:
    """Where the last object or array within the outermost object ends, or 0."""
    return max(text.rfind("}", 0, -1), text.rfind("]", 0, -1)) + 1


def _read_members(text: str, at: int, found: dict[str, str]) -> int:
    """Add members to `found`, up to the first object or array, or the end of the object. Returns
    where the object or array begins, or -1."""
    while True:
        key, at = _key(text, at)
        if text[at] in "{[":
            found[key] = text[at]
            return at
        _, end = _scan(text, at)
        found[key] = text[at:end]
        at = _past_space(text, end)
        if text[at] == "}":
            return -1
        if text[at] != ",":
            raise ValueError
        at += 1


def parsed(text: str) -> object:
    """Return the value of a JSON text, in which numbers are strings, or None if it is malformed."""
    try:
        value, end = _scan(text, _past_space(text, 0))
    except Malformed:
        return None
    return value if not text[end:].strip(_SPACE) else None


def member(value: object, *path: str) -> str:
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, str) else ""


class ToolList:
    """The response to `tools/list`. `text` is the message, and `tools` maps the names to the tools.
    Raises Malformed if the message is not a list of tools."""

    def __init__(self, line: bytes) -> None:
        self.text = line.decode()
        self.tools: dict[str, ListedTool] = {}
        self._places: list[tuple[str, int, int]] = []
        at = _place_of(
            self.text, _place_of(self.text, _past_space(self.text, 0), "result"), "tools"
        )
        for _, _, start, end in _parts(self.text, at, "[", "]"):
            name, tool = "", ListedTool()
            for key, _, at, stop in _parts(self.text, start):
                if key == "name":
                    name = str(_scan(self.text, at)[0])
                elif key == "annotations" and self.text[at] == "{":
                    tool.annotations = self.text[at:stop]
                elif key == "outputSchema":
                    tool.schema = True
            self.tools[name] = tool
            self._places.append((name, start, end))

    def without_schemas(self, names: set[str]) -> bytes:
        parts, done = [], 0
        for name, start, end in self._places:
            if name in names:
                kept = [
                    self.text[key_at:stop]
                    for key, key_at, _, stop in _parts(self.text, start)
                    if key != "outputSchema"
                ]
                parts += [self.text[done:start], "{", ",".join(kept), "}"]
                done = end
                self.tools[name].schema = False
        return "".join([*parts, self.text[done:]]).encode()


def _place_of(text: str, at: int, name: str) -> int:
    return next(place for key, _, place, _ in _parts(text, at) if key == name)


def _parts(
    text: str, at: int, opening: str = "{", closing: str = "}"
) -> "Iterator[tuple[str, int, int, int]]":
    """Yield each member of the object at `at`: its key, where it begins, and where its value begins
    and ends. With brackets, yield each item of an array, with "" as its key."""
    if text[at] != opening:
        raise ValueError
    at = _past_space(text, at + 1)
    while text[at] != closing:
        key, begin = "", at
        if opening == "{":
            key, at = _key(text, at)
        _, end = _scan(text, at)
        yield key, begin, at, end
        at = _past_space(text, end)
        if text[at] == ",":
            at = _past_space(text, at + 1)
        elif text[at] != closing:
            raise ValueError


def _key(text: str, at: int) -> tuple[str, int]:
    at = _past_space(text, at)
    if text[at] != '"':
        raise ValueError
    key, at = scanstring(text, at + 1, True)
    at = _past_space(text, at)
    if text[at] != ":":
        raise ValueError
    return key, _past_space(text, at + 1)


def _past_space(text: str, at: int) -> int:
    while text[at] in _SPACE:
        at += 1
    return at
