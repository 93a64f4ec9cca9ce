"""Find secrets with the gitleaks rules, and mask them before a text is stored (docs/decisions.md,
15).

The rules are in `rules/gitleaks.json` (MIT, see `rules/LICENSE-gitleaks`) and `rules/upwell.toml`.
They run on RE2, which takes linear time. With the same rules, Python's `re` needs 20 s for 200 KB
of Base64. A rule is compiled when first needed, and matched only near its keywords if it has any.
The gitleaks rules expect certain characters after a secret (a quote, a space, `;`). Real text also
has others: a comma, a bracket, a tag, a colour code. Here, a secret ends at almost any character
that cannot be part of the secret.

A text is searched in several forms: as is, without escapes and colour codes, with wrapped lines
joined, and decoded from Base64. Mask a text before you truncate it, because most rules do not
recognise half a key.
"""

import math
import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from upwell.ground.secrets import views

BEFORE_BYTES = 400
AFTER_BYTES = 700
LONG_AFTER_BYTES = 16_384
LONG_RULES = frozenset({"jwt", "jwt-base64", "curl-auth-header", "curl-auth-user"})
"""Rules whose matches may extend far beyond the keyword, such as tokens of any length and
multi-line commands."""
GENERIC = "generic-api-key"
REPLACED = frozenset({"private-key"})
"""Rules that are not used. Code in `redact.py` finds these keys instead, even truncated ones."""
MAX_STOPWORD_RATIO = 6
"""A value with a stopword is not a secret if the value is at most this many times as long as the
stopword. Longer random values often contain one of the 600 four-letter stopwords by chance."""
_FOLDER = Path(__file__).with_name("rules")
_NARROW_END = r"""(?:[\x60'"\s;]|\\[nr]|$)"""
_WIDE_END = r"(?:[^0-9A-Za-z]|$)"
_VALUE_END = r"""(?:[\x60'"\s;,)\]}<>&|*\\\x1b\x00]|[.:#/!?](?:\s|$)|[^\x00-\x7f]|$)"""
"""What may follow a secret of the generic rule, which recognises a secret by the name before it.
Characters that continue an expression are not included.
"""
_NOT_BASE64 = r"(?:[^a-zA-Z0-9+/]|\z)"
_WIDE_START = r"(?:^|[^A-Za-z])"
"""A digit may precede a secret, because wrapped lines are joined and a line often ends with a
digit."""


class Allowlist(Struct, frozen=True):
    """Exceptions to a rule. A finding is an exception if one of the `regexes` matches the `target`
    (the secret, the match or the line), or if the secret contains one of the `stopwords` and is not
    much longer than that (`MAX_STOPWORD_RATIO`).
    """

    target: str
    regexes: tuple[Any, ...]
    stopwords: tuple[bytes, ...]

    def passes(self, secret: bytes, match: bytes, line: bytes) -> bool:
        """Return whether a finding is an exception."""
        subject = {"match": match, "line": line}.get(self.target, secret)
        if any(regex.search(subject) for regex in self.regexes):
            return True
        lowered = secret.lower()
        least_chars = len(secret) // MAX_STOPWORD_RATIO
        return any(len(word) >= least_chars and word in lowered for word in self.stopwords)


class Rule(Struct, frozen=True):
    """One kind of secret.

    `entropy`: a secret must exceed this Shannon entropy, in bits per byte; 0 for any. `group`:
    the group that contains the secret; 0 means the first group that matched, or else the whole
    match. `allow`: exceptions. `after`: how many bytes to search after a keyword.
    """

    id: str
    regex: Any
    entropy: float
    group: int
    allow: tuple[Allowlist, ...]
    after: int


class SecretRules(Struct, frozen=True):
    """All rules.

    `triggered`: keywords, each with the ids of the rules to run. `everywhere`: maps each rule
    without keywords to the length of its shortest match in bytes. Such rules must be fast.
    `keywords`: an RE2 set that finds all keywords in one pass, and returns their positions in
    `triggered`. `raw`: the rules as written in the files. `allow`: exceptions that apply to all
    rules.
    """

    triggered: Sequence[tuple[bytes, tuple[str, ...]]]
    everywhere: Mapping[str, int]
    keywords: Any
    raw: Mapping[str, Mapping[str, Any]]
    allow: Allowlist


@lru_cache(maxsize=1)
def all_rules() -> SecretRules:
    raw: dict[str, Mapping[str, Any]] = {}
    everywhere: Mapping[str, Any] = {}
    # JSON is read ten times as fast as TOML, and each command that stores a memory waits for it.
    for document in (
        msgspec.json.decode((_FOLDER / "gitleaks.json").read_bytes()),
        tomllib.loads((_FOLDER / "upwell.toml").read_text("utf-8")),
    ):
        everywhere = document.get("allowlist", everywhere)
        raw |= {rule["id"]: rule for rule in document["rules"] if "regex" in rule}
    by_keyword: dict[bytes, list[str]] = {}
    for rule_id in raw.keys() - REPLACED:
        for keyword in raw[rule_id]["keywords"]:
            by_keyword.setdefault(keyword.lower().encode(), []).append(rule_id)
    return SecretRules(
        triggered=[(keyword, tuple(sorted(rule_ids))) for keyword, rule_ids in by_keyword.items()],
        everywhere={
            rule_id: rule["least_bytes"] for rule_id, rule in raw.items() if not rule["keywords"]
        },
        keywords=_set_of(by_keyword),
        raw=raw,
        allow=_allowlist(everywhere),
    )


@lru_cache(maxsize=512)
def compiled(rule_id: str) -> Rule:
    raw = all_rules().raw[rule_id]
    return Rule(
        id=rule_id,
        regex=regex(with_any_edge(rule_id, raw["regex"])),
        entropy=float(raw.get("entropy", 0.0)),
        group=int(raw.get("secretGroup", 0)),
        allow=tuple(
            _allowlist(allow) for allow in raw.get("allowlists", ()) if _applies_to_text(allow)
        ),
        after=LONG_AFTER_BYTES if rule_id in LONG_RULES else AFTER_BYTES,
    )


def with_any_edge(rule_id: str, pattern: str) -> str:
    """Return `pattern` with wider edges, so that almost any character that cannot be part of the
    secret may precede or follow it. Edges in an unknown form are not changed."""
    if pattern.endswith(_NARROW_END):
        end = _VALUE_END if rule_id == GENERIC else _WIDE_END
        pattern = pattern.removesuffix(_NARROW_END) + end
    elif pattern.endswith(_NOT_BASE64):
        pattern = pattern.removesuffix(_NOT_BASE64) + _WIDE_END
    elif pattern.endswith(r"\b)"):
        pattern = pattern.removesuffix(r"\b)") + ")" + _WIDE_END
    elif pattern.endswith(r"\b") and "(" in pattern:
        pattern = _grouped(pattern.removesuffix(r"\b")) + _WIDE_END
    if re.match(r"(\(\?i\))?\\b[\w(]", pattern):
        flags, _, rest = pattern.partition(r"\b")
        pattern = flags + _WIDE_START + _grouped(rest)
    return pattern


def _grouped(pattern: str) -> str:
    return pattern if regex(pattern).groups else f"({pattern})"


def _applies_to_text(allow: Mapping[str, Any]) -> bool:
    """Return whether an exception can apply to a text that has no path."""
    needs_path = bool(allow.get("paths")) and allow.get("condition", "OR") == "AND"
    return not needs_path and bool(allow.get("regexes") or allow.get("stopwords"))


def _allowlist(raw: Mapping[str, Any]) -> Allowlist:
    return Allowlist(
        target=raw.get("regexTarget", "secret"),
        regexes=tuple(regex(pattern) for pattern in raw.get("regexes", ())),
        stopwords=tuple(word.lower().encode() for word in raw.get("stopwords", ())),
    )


def _set_of(literals: Iterable[bytes]) -> Any:
    import re2

    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.literal = True
    one_pass = re2.Set.SearchSet(options)
    for literal in literals:
        one_pass.Add(literal)
    one_pass.Compile()
    return one_pass


def regex(pattern: str) -> Any:
    """Compile a pattern over bytes. Positions of matches are byte offsets."""
    import re2

    return re2.compile(pattern.encode("utf-8"))


PRIVATE_KEY = "private-key"
FAILED = "[REDACTED:unreadable]"
"""Replaces a text that could not be searched."""
_MASK = re.compile(r"\[REDACTED:[\w-]*\]")
_MAX_REJECTED = 32
"""When the matches in a window add up to this many times the length of the window, further matches
are no longer rejected for lack of randomness. Without this limit, overlapping matches could take
quadratic time, because the search continues inside a rejected match.
"""
SLACK_CHARS = 20_000
"""How far a text is searched beyond the limit, to find a secret that extends past the limit."""


class Finding(Struct, frozen=True, order=True):
    """A secret at `start:end` of the UTF-8 bytes. `rule`: its kind."""

    start: int
    end: int
    rule: str


def redact(text: str, *, keep_lines: bool = False) -> tuple[str, tuple[str, ...]]:
    """Replace every secret in `text` with `[REDACTED:RULE]`. Returns the text and the rules that
    matched.

    `keep_lines` preserves the line numbers after a multi-line secret, such as a private key. If the
    search fails, the whole text is treated as a secret.
    """
    if not text:
        return text, ()
    data = text.encode("utf-8", "surrogatepass")
    try:
        findings = _without_overlaps(_find(data))
    except Exception:
        return FAILED + text.count("\n") * "\n" if keep_lines else FAILED, ("unreadable",)
    if not findings:
        return text, ()
    parts: list[bytes] = []
    at = 0
    for finding in findings:
        breaks = data.count(b"\n", finding.start, finding.end) if keep_lines else 0
        mask = f"[REDACTED:{finding.rule}]" + breaks * "\n"
        parts += [data[at : finding.start], mask.encode()]
        at = finding.end
    parts.append(data[at:])
    masked = b"".join(parts).decode("utf-8", "surrogatepass")
    return masked, tuple(sorted({finding.rule for finding in findings}))


def redacted_start(text: str | bytes, max_chars: int) -> str:
    """Mask `text`, and return at most its first `max_chars`."""
    if isinstance(text, bytes):
        text = text[: (max_chars + SLACK_CHARS) * 4].decode(errors="replace")
    return redact(text[: max_chars + SLACK_CHARS])[0][:max_chars]


def without_secrets(text: str, max_chars: int) -> str:
    """Replace each secret in `text` with `…`, and return at most the first `max_chars`. This is for
    text that will be split into words, because no rule recognises a key that has been split."""
    masked, rules = redact(text[: max_chars + SLACK_CHARS])
    return (_MASK.sub("…", masked) if rules else masked)[:max_chars]


def has_secret(text: str) -> bool:
    """Return whether `redact()` would mask anything in `text`."""
    try:
        return next(_find(text.encode("utf-8", "surrogatepass")), None) is not None
    except Exception:
        return True


def _find(data: bytes) -> Iterator[Finding]:
    yield from _found_in(data)
    plain = views.plain(data)
    for view in (plain, views.unwrapped(data)):
        if view is not None:
            for finding in _found_in(view.data):
                yield Finding(view.start(finding.start), view.end(finding.end), finding.rule)
            yield from _encoded(view.data, view)
    yield from _encoded(data, None)
    yield from _folded(data, plain)


def _folded(data: bytes, plain: views.View | None) -> Iterator[Finding]:
    """Find secrets that a terminal has wrapped."""
    view = views.unfolded(plain.data if plain else data)
    if view is None:
        return
    for finding in _found_in(view.data):
        start, end = view.start(finding.start), view.end(finding.end)
        if plain:
            start, end = plain.start(start), plain.end(end)
        yield Finding(start, end, finding.rule)


def _encoded(data: bytes, view: views.View | None) -> Iterator[Finding]:
    """Find runs of Base64 that contain a secret."""
    for start, end, text in views.decoded(data):
        finding = next(_found_in(text), None)
        if finding and view:
            yield Finding(view.start(start), view.end(end), finding.rule)
        elif finding:
            yield Finding(start, end, finding.rule)


def _found_in(data: bytes) -> Iterator[Finding]:
    for start, end in _private_keys(data):
        yield Finding(start, end, PRIVATE_KEY)
    rules = all_rules()
    for rule_id, spans in _triggered(data, rules).items():
        rule = compiled(rule_id)
        for start, end in _merged(spans):
            yield from _match(rule, rules.allow, data, start, end)


def _triggered(data: bytes, rules: SecretRules) -> dict[str, list[tuple[int, int]]]:
    """Map each rule that has a keyword in `data` to the ranges around the keyword, and each rule
    without keywords to all of `data`, unless `data` is too short for a match."""
    triggered = {
        rule_id: [(0, len(data))]
        for rule_id, least_bytes in rules.everywhere.items()
        if len(data) >= least_bytes
    }
    lowered = data.lower()
    for position in rules.keywords.Match(lowered) or ():
        keyword, rule_ids = rules.triggered[position]
        for rule_id in rule_ids:
            after = LONG_AFTER_BYTES if rule_id in LONG_RULES else AFTER_BYTES
            triggered.setdefault(rule_id, []).extend(_around(lowered, keyword, after))
    return triggered


def _around(lowered: bytes, keyword: bytes, after: int) -> Iterator[tuple[int, int]]:
    """Yield the ranges around a keyword. Occurrences within `after` bytes of each other share a
    range."""
    at = lowered.find(keyword)
    while at >= 0:
        last = at
        while (further := lowered.rfind(keyword, last + 1, last + after)) > last:
            last = further
        end = min(len(lowered), last + after)
        yield max(0, at - BEFORE_BYTES), end
        at = lowered.find(keyword, end)


def _merged(spans: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    start, end = -1, -1
    for left, right in sorted(spans):
        if left <= end:
            end = max(end, right)
            continue
        if start >= 0:
            yield start, end
        start, end = left, right
    if start >= 0:
        yield start, end


def _match(
    rule: Rule, everywhere: Allowlist, data: bytes, start: int, end: int
) -> Iterator[Finding]:
    window = data[start:end]
    at = rejected = 0
    while (match := rule.regex.search(window, at)) is not None:
        left, right = _secret_span(match, rule.group)
        secret = window[left:right]
        rejected += right - left
        is_bounded = rejected <= _MAX_REJECTED * len(window)
        if not secret or (is_bounded and not _is_secret(rule, secret)):
            # Search inside the rejected value, because it may be the name of the next value.
            at = max(left, at + 1)
            continue
        # The character after a secret may also be the character before the next secret.
        at = max(right, at + 1)
        line_end = window.find(b"\n", right)
        line = window[window.rfind(b"\n", 0, left) + 1 : line_end if line_end >= 0 else None]
        if any(allow.passes(secret, match.group(), line) for allow in (everywhere, *rule.allow)):
            continue
        if match.end() == len(window) and end < len(data):
            # The token continues beyond the window.
            rest = _pattern(rb"[A-Za-z0-9+/=_.~%-]*").match(data[start + right :])
            yield Finding(start + left, start + right + int(rest.end()), rule.id)
            return
        yield Finding(start + left, start + right, rule.id)


def _secret_span(match: Any, group: int) -> tuple[int, int]:
    numbers = range(1, len(match.groups()) + 1)
    group = group or next((number for number in numbers if match.group(number)), 0)
    return match.start(group), match.end(group)


def _is_secret(rule: Rule, secret: bytes) -> bool:
    """Return whether a match is random enough. A generic match must also contain a digit, because
    ordinary words contain none."""
    if not secret or secret.startswith(b"[REDACTED:"):
        return False
    if rule.id == GENERIC and not any(48 <= byte <= 57 for byte in secret):
        return False
    shares = [count / len(secret) for count in Counter(secret).values()]
    return not rule.entropy or -sum(share * math.log2(share) for share in shares) > rule.entropy


def _without_overlaps(matches: Iterator[Finding]) -> list[Finding]:
    """Merge findings that overlap. A specific rule's name replaces that of the generic rule."""
    findings: list[Finding] = []
    for finding in sorted(matches, key=lambda f: (f.start, f.rule == GENERIC, -f.end)):
        if findings and finding.start < findings[-1].end:
            last = findings[-1]
            rule = finding.rule if last.rule == GENERIC else last.rule
            findings[-1] = Finding(last.start, max(last.end, finding.end), rule)
        else:
            findings.append(finding)
    return findings


_PEM_LINE = rb"(?i)-----(BEGIN|END)[ A-Z0-9_-]{0,100}PRIVATE KEY(?: BLOCK)?-----"
_PEM_GAP = rb"(?:[\s>|\"',]|\\+[nrt]?)"
_PEM_HEADER = rb"(?:Proc-Type|DEK-Info|Version|Comment|Hash|Charset)[:=][^\n\\]{0,200}"
_PEM_BEGINNING = (
    rb"(?:" + _PEM_GAP + rb"|" + _PEM_HEADER + rb")*[A-Za-z0-9+/=-]{16,}"
    rb"(?:" + _PEM_GAP + rb"+[A-Za-z0-9+/=-]{16,})*(?:" + _PEM_GAP + rb"+[A-Za-z0-9+/=]{1,15})?"
)
_PEM_ENDING = (
    rb"(?:[A-Za-z0-9+/=]{16,}" + _PEM_GAP + rb"+)+(?:[A-Za-z0-9+/=]{1,15}" + _PEM_GAP + rb"+)?$"
)
_MIN_BODY = 64
"""The minimum number of bytes between the first and last line of a private key. A text with fewer
bytes there only mentions a key."""
_MAX_TAIL = 16_384


def _private_keys(data: bytes) -> Iterator[tuple[int, int]]:
    """Yield the start and end of each private key in PEM format, even if a part was cut off."""
    if b"private key" not in data.lower():
        return
    opened: tuple[int, int] | None = None
    for match in _pattern(_PEM_LINE).finditer(data):
        start, end = match.span()
        if match.group(1).upper() == b"BEGIN":
            if opened:
                yield from _cut_end(data, *opened)
            opened = start, end
        elif opened:
            if start - opened[1] >= _MIN_BODY:
                yield opened[0], end
            opened = None
        else:
            yield from _cut_beginning(data, start, end)
    if opened:
        yield from _cut_end(data, *opened)


def _cut_end(data: bytes, start: int, body: int) -> Iterator[tuple[int, int]]:
    match = _pattern(rb"\A" + _PEM_BEGINNING).search(data[body:])
    if match:
        yield start, body + match.end()


def _cut_beginning(data: bytes, mark: int, end: int) -> Iterator[tuple[int, int]]:
    start = max(0, mark - _MAX_TAIL)
    match = _pattern(_PEM_ENDING).search(data[start:mark])
    if match and mark - start - match.start() >= _MIN_BODY:
        yield start + match.start(), end


@lru_cache(maxsize=8)
def _pattern(pattern: bytes) -> Any:
    import re2

    return re2.compile(pattern)
