"""Detect the programming language of a file by its name or content."""

from functools import lru_cache

EXTENSIONS = {
    "python": (".py", ".pyi"),
    "javascript": (".js", ".jsx", ".mjs", ".cjs"),
    "typescript": (".ts", ".mts", ".cts"),
    "tsx": (".tsx",),
    "go": (".go",),
    "rust": (".rs",),
    "java": (".java",),
    "c": (".c", ".h"),
    "cpp": (".cc", ".cpp", ".cxx", ".hpp", ".hh"),
}

_LOOKS = {
    "python": ("\ndef |    def |self.|\nimport |\nfrom |elif | None|):\n|else:\n|\nclass "),
    "javascript": ("const |function|=> |=== |require(|let |var |});|module.exports"),
    "typescript": (
        ": string|: number|: boolean|interface |readonly |: void|import {|?: |export type "
    ),
    "go": ("func |:= |err != nil|\npackage |\n\tif |\n\treturn |chan |\ntype |go func"),
    "rust": ("fn |let mut |&mut |impl |pub |-> |::new(|#[|&self|Some(|match "),
    "java": ("public |private |@Override|import java|final |protected | void | throws |extends "),
    "c": ("#include|->|NULL|static |#define |struct |#endif|sizeof(|\nint |char *|void *"),
    "cpp": (
        "std::|namespace |template|nullptr|class |const &|public:|private:|virtual | override|::"
    ),
}
_LITERALS = {language: looks.split("|") for language, looks in _LOOKS.items()}
LANGUAGE_CHARS = 12_000
_BEGINNING_CHARS, _MANY_LITERALS = 4_000, 24
"""If the beginning has this many literals of one language and at most half as many of any other,
the rest is not read. This rule decided 1 830 of 2 659 files, two of them differently from the whole
sample.
"""


def language_of(name: str) -> str:
    """Return the programming language of a file name, or "" if unknown."""
    lowered = name.lower().split("?")[0]
    for language, endings in EXTENSIONS.items():
        if lowered.endswith(endings):
            return language
    return ""


@lru_cache(maxsize=8)
def likeness(sample: str) -> tuple[str, float]:
    """Return the most likely language of `sample`, and the number of its literals per line."""
    beginning = sample[:_BEGINNING_CHARS]
    counts = {language: _count_literals(beginning, language) for language in _LITERALS}
    best, literals, others = _two_best(counts)
    if len(sample) > _BEGINNING_CHARS and (literals < _MANY_LITERALS or literals < 2 * others):
        # A literal across the border of the two parts is not counted, but a single literal decides
        # nothing.
        rest, beginning = sample[_BEGINNING_CHARS:], sample
        counts = {
            language: count + _count_literals(rest, language) for language, count in counts.items()
        }
        best, literals, _ = _two_best(counts)
    rows = 1 + beginning.count("\n")
    return (best, literals / rows) if literals >= 3 else ("", 0.0)


def _count_literals(sample: str, language: str) -> int:
    return sum(map(sample.count, _LITERALS[language]))


def _two_best(counts: dict[str, int]) -> tuple[str, int, int]:
    """Return the best language, the number of its literals, and that of the second best."""
    best, second = sorted(counts, key=lambda language: -counts[language])[:2]
    return best, counts[best], counts[second]
