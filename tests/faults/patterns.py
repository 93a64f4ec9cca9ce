"""Finds every regular expression of the code, its uses, and the texts on which it takes longest.

A pattern is found as an object (in a module, a class, or a table of either) or as a literal in a
call of `re`. Its attacks come from its own parse tree: long runs of the repeated parts, with and
without the prefix that leads there, and with an end that does not match.
"""

import ast
import importlib
import inspect
import itertools
import pkgutil
import re
import re._constants as op
import re._parser as parser
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import upwell

SEARCHES = ("search", "match", "fullmatch", "finditer", "findall", "split", "sub")
ROOT = Path(inspect.getfile(upwell)).parent
MISSES = ("", "\x00", "\n", "!", "x")
"""Ends of a run that most patterns do not match."""
GAPS = ("", " ", "\n")


@dataclass(slots=True)
class Found:
    """One pattern: its location, the pattern itself, and the methods that the code calls on it."""

    place: str
    pattern: Any
    methods: set[str] = field(default_factory=set)


def all_patterns() -> list[Found]:
    """Return every pattern of the package, one for each place."""
    uses = _uses()
    found = [Found(place, pattern, _used(uses, place)) for place, pattern in _objects()]
    return [*found, *_literals()]


def _used(uses: dict[tuple[str, str], set[str]], place: str) -> set[str]:
    """The methods called on the pattern's name, or else on variables that may hold the pattern."""
    module, _, name = place.partition(":")
    name = name.split(".")[0].split("[")[0]
    others = {known for known in uses if known[1] == name} if not name.startswith("_") else set()
    direct = set().union(*(uses[known] for known in (*others, (module, name)) if known in uses))
    return direct or uses.get((module, "")) or set(SEARCHES)


def _modules() -> Iterator[Any]:
    for info in pkgutil.walk_packages(upwell.__path__, "upwell."):
        if not info.name.endswith("__main__"):
            yield importlib.import_module(info.name)


def _objects() -> Iterator[tuple[str, Any]]:
    seen: set[int] = set()
    for module in _modules():
        for name, value in vars(module).items():
            place = f"{module.__name__}:{name}"
            for where, pattern in _within(place, value, 0):
                if id(pattern) not in seen:
                    seen.add(id(pattern))
                    yield where, pattern


def _within(place: str, value: object, depth: int) -> Iterator[tuple[str, Any]]:
    """Go into tables, classes, records and argument-less cached functions of the code."""
    if isinstance(value, re.Pattern) or type(value).__module__.startswith("re2"):
        if hasattr(value, "pattern"):
            yield place, value
        return
    if depth > 4:
        return
    for name, child in _children(value):
        yield from _within(f"{place}{name}", child, depth + 1)


def _children(value: object) -> Iterable[tuple[str, object]]:
    if isinstance(value, dict):
        return [(f"[{key!r}]", child) for key, child in value.items()]
    if isinstance(value, list | tuple | set | frozenset):
        return [(f"[{index}]", child) for index, child in enumerate(value)]
    if hasattr(value, "cache_info") and getattr(value, "__module__", "").startswith("upwell"):
        return _produced(value)
    if type(value).__module__.startswith("upwell") or (
        isinstance(value, type) and value.__module__.startswith("upwell")
    ):
        names = [*getattr(value, "__dict__", {}), *getattr(type(value), "__slots__", ())]
        return [(f".{name}", getattr(value, name, None)) for name in names]
    return []


def _produced(function: Any) -> list[tuple[str, object]]:
    """Call a cached function that needs nothing: patterns are compiled at their first use."""
    if inspect.signature(function).parameters:
        return []
    return [("()", function())]


def _uses() -> dict[tuple[str, str], set[str]]:
    """Return the pattern methods that the code calls or passes on, by module and name of the
    pattern. Those of variables and calls that may give a pattern are under the name ""."""
    uses: dict[tuple[str, str], set[str]] = {}
    for path in ROOT.rglob("*.py"):
        module = ".".join(("upwell", *path.relative_to(ROOT).with_suffix("").parts))
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and node.attr in (*SEARCHES, "subn"):
                owner = node.value
                if isinstance(owner, ast.Call) and isinstance(owner.func, ast.Name):
                    owner = owner.func
                name = owner.id if isinstance(owner, ast.Name) else ""
                if name != "re":  # a literal, which has its own entry
                    named = name if name.lstrip("_").isupper() else ""
                    if named:
                        uses.setdefault((module, named), set()).add(node.attr)
                    elif node.attr != "split":
                        uses.setdefault((module, ""), set()).add(node.attr)
    return uses


def _literals() -> Iterator[Found]:
    for path in sorted(ROOT.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
                continue
            module = node.func.value
            literal = node.args[0] if node.args else None
            if (
                isinstance(module, ast.Name)
                and module.id == "re"
                and node.func.attr in (*SEARCHES, "compile")
                and isinstance(literal, ast.Constant)
            ):
                methods = set(SEARCHES) if node.func.attr == "compile" else {node.func.attr}
                place = f"{path.relative_to(ROOT)}:{node.lineno}"
                if not (node.func.attr == "compile" and node.col_offset < 30):
                    yield Found(place, re.compile(literal.value), methods)


def run(pattern: Any, method: str, text: Any) -> None:
    """Use `pattern` on the whole of `text` as the code would."""
    if method == "finditer":
        for _ in pattern.finditer(text):
            pass
    elif method in ("sub", "subn"):
        getattr(pattern, method)(text[:0], text)
    else:
        getattr(pattern, method)(text)


# Attacks


def attacks(pattern: Any) -> Iterator[Callable[[int], Any]]:
    """Yield functions that make a hostile text of about the given number of characters."""
    source = pattern.pattern
    binary = isinstance(source, bytes)
    for before, unit, after in _shapes(source.decode() if binary else source):

        def text(size: int, before: str = before, unit: str = unit, after: str = after) -> Any:
            made = before + unit * (size // len(unit)) + after
            return made.encode() if binary else made

        text.__doc__ = f"{before[:30]!r} + {unit[:40]!r} * n + {after!r}"
        yield text


def _shapes(source: str) -> Iterator[tuple[str, str, str]]:
    """Yield the prefix of a run, the unit of the run, and its end."""
    prefixes, bodies, chars = _parts(source)
    shapes = [("", char, miss) for char in chars for miss in MISSES]
    shapes += [("", one + other, MISSES[1]) for one, other in itertools.permutations(chars[:14], 2)]
    for prefix, body in zip(prefixes, bodies, strict=True):
        for part in filter(None, body):
            shapes += [(gap + prefix, part, miss) for gap in ("", " ") for miss in MISSES]
            shapes += [("", prefix + part + gap, MISSES[1]) for gap in GAPS]
    shapes += [("", prefix + gap, MISSES[1]) for prefix in filter(None, prefixes) for gap in GAPS]
    yield from dict.fromkeys(shapes)


def _parts(source: str) -> tuple[list[str], list[list[str]], list[str]]:
    """Return the prefixes that lead to each repetition, the repeated parts, and all characters."""
    try:
        tree = parser.parse(source)
    except re.error:
        return [], [], list(dict.fromkeys(c for c in source if c.isprintable()))[:20]
    walk = _Walk()
    walk.sequence(tree, [""])
    return walk.prefixes, walk.bodies, list(walk.chars)[:40]


class _Walk:
    """Walks a parse tree and writes texts that match it."""

    def __init__(self) -> None:
        self.prefixes: list[str] = []
        self.bodies: list[list[str]] = []
        self.chars: dict[str, None] = dict.fromkeys(("a", " ", "\n"))

    def sequence(self, items: Any, examples: list[str]) -> list[str]:
        """Return some texts that match `items` after each of `examples`."""
        for code, value in items:
            examples = self._after(code, value, examples)[:4]
        return examples

    def _after(self, code: Any, value: Any, examples: list[str]) -> list[str]:
        if code is op.LITERAL:
            self.chars.setdefault(chr(value))
            return [example + chr(value) for example in examples]
        if code in (op.IN, op.ANY, op.NOT_LITERAL):
            members = _members(code, value)
            self.chars.update(dict.fromkeys(members))
            return [example + member for example in examples[:2] for member in members[:2]]
        if code in (op.MAX_REPEAT, op.MIN_REPEAT, op.POSSESSIVE_REPEAT):
            return self._repeated(value, examples)
        if code is op.SUBPATTERN:
            return self.sequence(value[-1], examples)
        if code is op.ATOMIC_GROUP:
            return self.sequence(value, examples)
        if code is op.BRANCH:
            branches = [self.sequence(branch, examples[:2]) for branch in value[1]]
            return [example for branch in branches for example in branch[:2]]
        if code in (op.ASSERT, op.ASSERT_NOT):
            self.sequence(value[1], examples[:1])
            return examples
        return examples

    def _repeated(self, value: Any, examples: list[str]) -> list[str]:
        least, most, body = value
        bodies = self.sequence(body, [""])
        if most is op.MAXREPEAT or most > 8:
            for example in examples[:2]:
                self.prefixes.append(example)
                self.bodies.append(bodies)
        once = [example + part * max(least, 1) for example in examples[:2] for part in bodies[:2]]
        return [*once, *(examples[:1] if least == 0 else [])]


def _members(code: Any, value: Any) -> list[str]:
    """Return up to six common characters that match."""
    if code is op.ANY:
        return ["a", "="]
    one = re.compile(_class_source(code, value), re.DOTALL)
    candidates = "a0A _-./\n\t\r\"'`#*|<>[](){}\\:;=,$%@é中\x1b+!&~^?"
    return [char for char in candidates if one.match(char)][:6]


def _class_source(code: Any, value: Any) -> str:
    if code is op.NOT_LITERAL:
        return f"[^{re.escape(chr(value))}]"
    return "[" + "".join(_member_source(*item) for item in value) + "]"


def _member_source(code: Any, value: Any) -> str:
    if code is op.NEGATE:
        return "^"
    if code is op.LITERAL:
        return re.escape(chr(value))
    if code is op.RANGE:
        return f"{re.escape(chr(value[0]))}-{re.escape(chr(value[1]))}"
    return {
        op.CATEGORY_DIGIT: r"\d",
        op.CATEGORY_NOT_DIGIT: r"\D",
        op.CATEGORY_SPACE: r"\s",
        op.CATEGORY_NOT_SPACE: r"\S",
        op.CATEGORY_WORD: r"\w",
        op.CATEGORY_NOT_WORD: r"\W",
    }[value]
