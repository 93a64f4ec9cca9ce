"""Detect the programming language of a file by its name, and code by its content."""

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
_MIN_LITERALS = 3


def language_of(name: str) -> str:
    """Return the programming language of a file name, or "" if unknown."""
    lowered = name.lower().split("?")[0]
    for language, endings in EXTENSIONS.items():
        if lowered.endswith(endings):
            return language
    return ""


def is_like_code(sample: str, per_line: float = 0.0) -> bool:
    """Return whether `sample` has at least three literals of one language, and more than `per_line`
    of them per line.
    """
    enough = max(_MIN_LITERALS, int(per_line * (1 + sample.count("\n"))) + 1)
    for literals in _LITERALS.values():
        found = 0
        for literal in literals:
            found += sample.count(literal)
            if found >= enough:
                return True
    return False
