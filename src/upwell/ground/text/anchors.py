"""Find the files and identifiers that a text mentions.

A file mentioned in both a memory and an event is a stronger link than shared words.
Doubtful candidates are ignored, because the index of words contains them anyway.
"""

import re
from collections.abc import Iterable

MAX_FOUND = 40
"""The maximum number of files or names returned for a text. A text with more is a listing."""

EXTENSIONS = frozenset(
    """
    adoc astro bash bat bazel c cc cfg clj cljs cmake conf cpp cs css csv cu cxx dart diff
    dockerfile elm erl ex exs f90 fs gd go gql gradle graphql groovy h hbs hcl hpp hrl hs html hxx
    ini ipynb j2 java jinja jinja2 jl js json json5 jsonc jsx kt kts less lock lua m md mdc mdx
    mjs cjs ml mli mm mod nim nix patch php pl plist pm po prisma properties proto ps1 pug py
    pyi pyx r rake rb rego rs rst sass sbt scala scm scss sh sol sql sum svelte svg swift tcl tex
    tf tfvars thrift tmpl toml ts tsv tsx txt v vb vim vue xml xsd yaml yml zig zsh
    """.split()
)
DATA_EXTENSIONS = frozenset(
    """txt log out csv tsv json jsonl ndjson xml pdf lock bak tmp diff patch
    png jpg jpeg gif svg zip gz""".split()
)
"""Extensions of files that are not part of a program. Two such files may share a name by
chance."""
BARE_FILES = frozenset(
    """
    brewfile caddyfile cmakelists codeowners containerfile dockerfile gemfile jenkinsfile
    justfile license makefile notice pipfile procfile rakefile vagrantfile
    """.split()
)

PROJECT_FILES = frozenset(
    """
    authors cargo changelog changes citation code_of_conduct codeowners composer contributing
    contributors copying deno dockerfile gemfile go history install license licence makefile
    manifest news notice package package-lock pnpm-lock pom pyproject readme release releases
    requirements security setup todo tox tsconfig uv version yarn
    """.split()
)
"""Files found in many projects; a match on one of them means little."""

COMMON_STEMS = frozenset(
    """
    __init__ __main__ api app base common config conftest constants core doc errors helpers index
    init interfaces lib main mod models package settings test tests types util utils views
    """.split()
)
"""Common file names, without extensions. A file with such a name matches only together with its
folder."""

PRODUCTS = frozenset(
    """
    bitbucket chatgpt clickhouse devops dockerhub dynamodb ebpf facebook freebsd github gitlab
    graphql grpc iphone ipv4 ipv6 javascript jquery jsdoc json5 latex linkedin macos mariadb
    mongodb mysql netbsd nginx nodejs oauth oauth2 openai openapi openbsd openssl paypal
    postgresql powershell pypi pytorch qemu readme sqlite stackoverflow tensorflow todo typescript
    ubuntu vscode wasm webassembly websocket whatsapp wordpress xcode youtube
    """.split()
)
"""Names of products, in lower case. They are often written in mixed case but are not code."""

MAX_READ_CHARS = 20_000
"""Only this many characters of a text are searched for files and names."""

_URL = re.compile(r"\b[a-z][a-z0-9+.-]{0,30}+://\S++|\bwww\.\S++", re.IGNORECASE)
_PATH = re.compile(
    r"(?<![\w@])(?:~|\.{1,2}|[A-Za-z]:)?[\\/]?"
    r"(?:[\w.@+\-\[\]()]{1,120}+[\\/]){0,40}+[\w.@+\-]{1,200}+"
)
_TICKED = re.compile(r"`([^`\s]{2,80})`")
_CALL = re.compile(r"\b([A-Za-z_]\w{2,100}+)\(")
_DOTTED = re.compile(r"\b[A-Za-z_]\w*(?:(?:\.|::)[A-Za-z_]\w*)*")
_MIXED = re.compile(r"[a-z0-9][A-Z]|[A-Z]{2}[a-z]")
_NAME = re.compile(r"[A-Za-z_][\w.:]*[\w]")
_DRIVE, _ABSOLUTE = re.compile(r"[A-Za-z]:"), re.compile(r"[/~]|[A-Za-z]:")
_TEST = re.compile(r"^(?:tests?_|spec_)|(?:_tests?|_spec|\.tests?|\.spec|-tests?)$")


def paths_in(text: str) -> tuple[str, ...]:
    """Return the files in the order in which `text` mentions them, with `/` as the separator.

    A file has a known extension or name, or is written as a path (`./a/x`, `/etc/x`, `a/b/c.x`).
    URLs and versions do not count.
    """
    paths: dict[str, None] = {}
    for match in _PATH.finditer(_URL.sub(" ", text[:MAX_READ_CHARS])):
        candidate = match.group().strip("()[]").rstrip(".")
        if _names_a_file(candidate):
            paths.setdefault(candidate.replace("\\", "/"))
    return tuple(paths)[:MAX_FOUND]


def symbols_in(text: str) -> tuple[str, ...]:
    """Return the identifiers in `text`, as written and in order of appearance.

    These are `snake_case`, `mixedCase`, `a.dotted.name`, calls, and names in backticks. File names
    do not count.
    """
    bare = _URL.sub(" ", text[:MAX_READ_CHARS])
    paths = paths_in(bare)
    files = {part for path in paths for part in (path, path.rsplit("/", 1)[-1])}
    for path in sorted(paths, key=len, reverse=True):
        bare = bare.replace(path, " ")
    candidates: list[tuple[int, str]] = []
    for match in _TICKED.finditer(bare):
        name = match.group(1).rstrip("()")
        if _NAME.fullmatch(name):
            candidates.append((match.start(), name))
    candidates += [(match.start(), match.group(1)) for match in _CALL.finditer(bare)]
    candidates += [
        (match.start(), match.group())
        for match in _DOTTED.finditer(bare)
        if _looks_like_code(match.group())
    ]
    symbols = dict.fromkeys(name for _, name in sorted(candidates) if name not in files)
    return tuple(symbols)[:MAX_FOUND]


def _names_a_file(candidate: str) -> bool:
    if "." not in candidate and "/" not in candidate and "\\" not in candidate:
        return candidate.lower() in BARE_FILES and candidate[0].isupper()
    parts = re.split(r"[\\/]", candidate)
    name = parts[-1]
    stem, dot, extension = name.rpartition(".")
    if len(parts) == 1 and "@" in name:
        return False
    if dot and stem.strip(".") and extension.lower() in EXTENSIONS:
        return True
    if name.lower() in BARE_FILES:
        return len(parts) > 1 or name[0].isupper()
    rooted = len(parts) > 2 and parts[0] in ("", "~", ".", "..")
    return bool(name) and (
        rooted or (len(parts) > 2 and bool(dot and stem and extension.isalpha()))
    )


def _looks_like_code(name: str) -> bool:
    if len(name) < 3 or name.lower() in PRODUCTS:
        return False
    if "_" in name.strip("_") or _MIXED.search(name):
        return True
    if "." not in name and "::" not in name:
        return False
    parts = re.split(r"\.|::", name)
    return len(parts) > 1 and all(len(part) > 1 for part in parts)


def path_parts(path: str) -> list[str]:
    """Return the components of a path, except for its root, a drive, `~`, `.` and `..`."""
    names = path.replace("\\", "/").split("/")
    parts = [name for name in names if name not in ("", ".", "..", "~")]
    return parts[1:] if parts and _DRIVE.fullmatch(parts[0]) else parts


def relative_to(path: str, root: str | None) -> str:
    """Return the components of `path` joined by `/`, relative to `root` if `path` is below it."""
    parts = path_parts(path)
    if root and _ABSOLUTE.match(path):
        base = path_parts(root)
        if parts[: len(base)] == base and len(parts) > len(base):
            parts = parts[len(base) :]
    return "/".join(parts)


def file_stem(path: str) -> str:
    """Return the name of a file in lower case, without its extensions and test affixes.

    The stem of both `tests/test_app.py` and `src/app.py` is `app`.
    """
    parts = path_parts(path)
    if not parts:
        return ""
    stem = parts[-1].split(".")[0] if not parts[-1].startswith(".") else parts[-1]
    bare = _TEST.sub("", _TEST.sub("", stem.lower()))
    return bare or stem.lower()


def symbol_keys(names: Iterable[str]) -> tuple[str, ...]:
    """Return the keys for comparing names: each whole name and its last part, in lower case."""
    keys: dict[str, None] = {}
    for name in names:
        parts = [part for part in re.split(r"\.|::|#|->", name.strip("`()")) if part]
        for form in (".".join(parts), parts[-1] if parts else ""):
            if len(form) > 1:
                keys.setdefault(form.lower())
    return tuple(keys)
