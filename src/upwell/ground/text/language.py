"""Which programming language a file is written in, by its name or by its looks."""

import re

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
    "python": (
        r"^\s*(?:async )?def \w+\(.*",
        r"^from [\w.]+ import |^import [\w.]+$",
        r"^\s+self\.\w+|^\s*(?:el)?if .*:$",
    ),
    "javascript": (
        r"\brequire\(|module\.exports|===",
        r"^\s*(?:const|let|var) \w+ = ",
        r"\bfunction\b ?\w*\(|=> \{",
    ),
    "typescript": (
        r"^\s*(?:export )?(?:interface|type) \w+",
        r"\w+\??: (?:string|number|boolean|void|any)\b|: Promise<",
        r"^import .* from ['\"]|\bas const\b",
    ),
    "go": (
        r"^package \w+|^type \w+ (?:struct|interface)",
        r"^func (?:\(\w+ \*?\w+\) )?\w+\(|:= ",
        r"\bif err != nil|^\t\w+",
    ),
    "rust": (
        r"^\s*(?:pub(?:\([a-z]+\))? )?(?:fn|struct|enum|impl|mod|trait)\b",
        r"\blet mut |^use \w+::|->|&mut |\bSome\(|^\s*#\[",
    ),
    "java": (
        r"^\s*(?:public|private|protected) .*[{(;]",
        r"^import [\w.]+;|^package [\w.]+;|@Override|\bfinal \w+",
    ),
    "c": (
        r"^#include <\w+\.h>|^#(?:define|if|ifdef|ifndef|endif)",
        r"^(?:static |extern )?\w[\w ]*\*?\w+\([^;]*$",
        r"\bNULL\b|->",
    ),
    "cpp": (
        r"\bstd::|^#include <\w+>|^template ?<",
        r"^namespace \w+|\w+::\w+\(",
        r"^\s*(?:public|private):|\bnullptr\b",
    ),
}
_PATTERNS = {language: re.compile("|".join(looks), re.M) for language, looks in _LOOKS.items()}
_SAMPLE_CHARS = 20_000


def language_of(name: str) -> str:
    """The programming language that a file name tells, "" where it tells none."""
    lowered = name.lower().split("?")[0]
    for language, endings in EXTENSIONS.items():
        if lowered.endswith(endings):
            return language
    return ""


def language_in(text: str) -> str:
    """The programming language that `text` is most likely written in, "" where it is none."""
    sample = text[:_SAMPLE_CHARS]
    scores = {language: len(found.findall(sample)) for language, found in _PATTERNS.items()}
    best = max(scores, key=lambda language: scores[language])
    return best if scores[best] >= 2 else ""
