"""Which programming language a file is written in, by its name or by its looks."""

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
_BEGIN_CHARS, _MANY_SIGNS = 4_000, 24
"""A begin with so many signs of one language, and half as many of any other, needs no more: of
2 659 files it decided 1 830, two of them otherwise than the whole sample."""


def language_of(name: str) -> str:
    """The programming language that a file name tells, "" where it tells none."""
    lowered = name.lower().split("?")[0]
    for language, endings in EXTENSIONS.items():
        if lowered.endswith(endings):
            return language
    return ""


def language_in(text: str) -> str:
    """The programming language that `text` is most likely written in, "" where it is none."""
    return likeness(text[:LANGUAGE_CHARS])[0]


@lru_cache(maxsize=8)
def likeness(sample: str) -> tuple[str, float]:
    """The language that `sample` looks most like, and how many of its signs a line has."""
    begin = sample[:_BEGIN_CHARS]
    counts = {language: _signs(begin, language) for language in _LITERALS}
    best, signs, others = _most_like(counts)
    if len(sample) > _BEGIN_CHARS and (signs < _MANY_SIGNS or signs < 2 * others):
        # A sign where the begin ends is in neither part; one of a few dozen decides nothing.
        rest, begin = sample[_BEGIN_CHARS:], sample
        counts = {language: seen + _signs(rest, language) for language, seen in counts.items()}
        best, signs, _ = _most_like(counts)
    rows = 1 + begin.count("\n")
    return (best, signs / rows) if signs >= 3 else ("", 0.0)


def _signs(sample: str, language: str) -> int:
    return sum(map(sample.count, _LITERALS[language]))


def _most_like(counts: dict[str, int]) -> tuple[str, int, int]:
    """A language, how many of its signs were seen, and how many of the next best's."""
    best, second = sorted(counts, key=lambda language: -counts[language])[:2]
    return best, counts[best], counts[second]
