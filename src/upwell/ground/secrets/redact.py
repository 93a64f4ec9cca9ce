"""Find secrets by the gitleaks rules, and mask them before a text is stored (DESIGN 4.15).

The rules are data: `rules/gitleaks.toml` (MIT, see `rules/LICENSE-gitleaks`) and
`rules/upwell.toml`. They run on RE2, whose time is linear in the text; Python's `re` needs 20 s for
200 KB of base64 with the same rules. A rule is matched only near its keywords, and compiled when it
is first needed.
"""

import math
import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any

BEFORE_BYTES = 400
AFTER_BYTES = 700
LONG_AFTER_BYTES = 16_384
LONG_RULES = frozenset({"private-key", "jwt", "curl-auth-header", "curl-auth-user"})
"""Rules whose match may extend far beyond the keyword: a PEM block, a token of any length, a
command over many lines."""
GENERIC = "generic-api-key"
_RULE_FILES = ("gitleaks.toml", "upwell.toml")


@dataclass(frozen=True, slots=True)
class Allowlist:
    """Exceptions of a rule.

    `target`: what to test: secret, match or line. `regexes`, `stopwords`: a text that matches one
    of them, or contains one, is not a secret.
    """

    target: str
    regexes: tuple[Any, ...]
    stopwords: tuple[bytes, ...]

    def passes(self, secret: bytes, match: bytes, line: bytes) -> bool:
        """Tell whether a finding is an exception."""
        subject = {"match": match, "line": line}.get(self.target, secret)
        if any(regex.search(subject) for regex in self.regexes):
            return True
        lowered = secret.lower()
        return any(word in lowered for word in self.stopwords)


@dataclass(frozen=True, slots=True)
class Rule:
    """One kind of secret.

    `id`: its name. `regex`: the pattern over bytes. `entropy`: the least Shannon entropy in bits a
    byte, 0 for any. `group`: the group that holds the secret; 0 means the first group that matched,
    or the whole match. `allow`: exceptions. `after`: how many bytes after a keyword to search.
    """

    id: str
    regex: Any
    entropy: float
    group: int
    allow: tuple[Allowlist, ...]
    after: int


@dataclass(frozen=True, slots=True)
class Rules:
    """All rules.

    `triggered`: keyword → ids of the rules to run. `any`: a pattern that finds any keyword. `raw`:
    the rules as written in the files. `allow`: the exceptions of every rule.
    """

    triggered: Mapping[bytes, tuple[str, ...]]
    any: Any
    raw: Mapping[str, Mapping[str, Any]]
    allow: Allowlist


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """A secret of kind `rule` at `start:end` of the UTF-8 bytes."""

    start: int
    end: int
    rule: str


def redact(text: str, *, keep_lines: bool = False) -> tuple[str, tuple[str, ...]]:
    """Replace every secret in `text` by `[REDACTED:rule]`. Returns the text and the sorted rules.

    `keep_lines` preserves the line numbers after a secret that spans lines (a key file).
    """
    data = text.encode("utf-8", "surrogatepass")
    findings = _without_overlaps(_find(data))
    if not findings:
        return text, ()
    parts: list[bytes] = []
    offset = 0
    for finding in findings:
        breaks = data.count(b"\n", finding.start, finding.end) if keep_lines else 0
        mask = f"[REDACTED:{finding.rule}]" + breaks * "\n"
        parts += [data[offset : finding.start], mask.encode()]
        offset = finding.end
    parts.append(data[offset:])
    masked = b"".join(parts).decode("utf-8", "surrogatepass")
    return masked, tuple(sorted({finding.rule for finding in findings}))


def has_secret(text: str) -> bool:
    """Tell whether `redact` would mask anything in `text`."""
    return next(_find(text.encode("utf-8", "surrogatepass")), None) is not None


def _find(data: bytes) -> Iterator[Finding]:
    rules = _rules()
    for rule_id, spans in _triggered(data, rules).items():
        rule = _compiled(rule_id)
        for start, end in _merged(spans):
            yield from _match(rule, rules.allow, data, start, end)


def _triggered(data: bytes, rules: Rules) -> dict[str, list[tuple[int, int]]]:
    """Map the rules with a keyword in `data` to the ranges around the keywords."""
    lowered = data.lower()
    if rules.any.search(lowered) is None:
        return {}
    triggered: dict[str, list[tuple[int, int]]] = {}
    for keyword, rule_ids in rules.triggered.items():
        if lowered.find(keyword) >= 0:
            for rule_id in rule_ids:
                after = LONG_AFTER_BYTES if rule_id in LONG_RULES else AFTER_BYTES
                triggered.setdefault(rule_id, []).extend(_around(lowered, keyword, after))
    return triggered


def _around(lowered: bytes, keyword: bytes, after: int) -> Iterator[tuple[int, int]]:
    """Yield ranges that begin before a keyword and end after the last one within reach."""
    offset = lowered.find(keyword)
    while offset >= 0:
        last = offset
        while (further := lowered.rfind(keyword, last + 1, last + after)) > last:
            last = further
        end = min(len(lowered), last + after)
        yield max(0, offset - BEFORE_BYTES), end
        offset = lowered.find(keyword, end)


def _merged(spans: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Sort ranges and merge those that touch."""
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
    for match in rule.regex.finditer(window):
        if match.end() == len(window) and end < len(data):
            yield from _match(rule, everywhere, data, start, min(len(data), end + 4 * rule.after))
            return
        left, right = _secret_span(match, rule.group)
        secret = window[left:right]
        if not _is_secret(rule, secret):
            continue
        line = _line(window, left, right)
        if any(allow.passes(secret, match.group(), line) for allow in (everywhere, *rule.allow)):
            continue
        yield Finding(start + left, start + right, rule.id)


def _secret_span(match: Any, group: int) -> tuple[int, int]:
    if group:
        return _span(match.span(group))
    for number, value in enumerate(match.groups(), 1):
        if value:
            return _span(match.span(number))
    return _span(match.span())


def _span(pair: Sequence[int]) -> tuple[int, int]:
    return pair[0], pair[1]


def _is_secret(rule: Rule, secret: bytes) -> bool:
    """Tell whether a match is random enough.

    A generic match must also contain a digit, which words in a sentence do not.
    """
    if not secret or secret.startswith(b"[REDACTED:"):
        return False
    if rule.id == GENERIC and not any(48 <= byte <= 57 for byte in secret):
        return False
    return not rule.entropy or _entropy(secret) > rule.entropy


def _entropy(secret: bytes) -> float:
    """Return the Shannon entropy in bits a byte."""
    size = len(secret)
    return -sum(n / size * math.log2(n / size) for n in Counter(secret).values())


def _line(window: bytes, start: int, end: int) -> bytes:
    left = window.rfind(b"\n", 0, start) + 1
    right = window.find(b"\n", end)
    return window[left : right if right >= 0 else len(window)]


def _without_overlaps(matches: Iterator[Finding]) -> list[Finding]:
    """Sort findings and merge overlapping ones. Named rules override the generic one."""
    findings: list[Finding] = []
    for finding in sorted(matches, key=lambda f: (f.start, f.rule == GENERIC, -f.end)):
        if findings and finding.start < findings[-1].end:
            last = findings[-1]
            rule = finding.rule if last.rule == GENERIC else last.rule
            findings[-1] = Finding(last.start, max(last.end, finding.end), rule)
        else:
            findings.append(finding)
    return findings


@lru_cache(maxsize=1)
def _rules() -> Rules:
    raw: dict[str, Mapping[str, Any]] = {}
    everywhere: Mapping[str, Any] = {}
    for name in _RULE_FILES:
        document = tomllib.loads(
            files("upwell.ground.secrets.rules").joinpath(name).read_text("utf-8")
        )
        everywhere = document.get("allowlist", everywhere)
        raw |= {rule["id"]: rule for rule in document["rules"] if "regex" in rule}
    by_keyword: dict[bytes, list[str]] = {}
    for rule_id, rule in raw.items():
        for keyword in rule["keywords"]:
            by_keyword.setdefault(keyword.lower().encode(), []).append(rule_id)
    return Rules(
        triggered={keyword: tuple(rule_ids) for keyword, rule_ids in by_keyword.items()},
        any=_regex("|".join(re.escape(keyword.decode()) for keyword in by_keyword)),
        raw=raw,
        allow=_allowlist(everywhere),
    )


@lru_cache(maxsize=512)
def _compiled(rule_id: str) -> Rule:
    raw = _rules().raw[rule_id]
    return Rule(
        id=rule_id,
        regex=_regex(raw["regex"]),
        entropy=float(raw.get("entropy", 0.0)),
        group=int(raw.get("secretGroup", 0)),
        allow=tuple(
            _allowlist(allow) for allow in raw.get("allowlists", ()) if _applies_to_text(allow)
        ),
        after=LONG_AFTER_BYTES if rule_id in LONG_RULES else AFTER_BYTES,
    )


def _applies_to_text(allow: Mapping[str, Any]) -> bool:
    """Tell whether an exception applies to a text without a path."""
    needs_path = bool(allow.get("paths")) and allow.get("condition", "OR") == "AND"
    return not needs_path and bool(allow.get("regexes") or allow.get("stopwords"))


def _allowlist(raw: Mapping[str, Any]) -> Allowlist:
    return Allowlist(
        target=raw.get("regexTarget", "secret"),
        regexes=tuple(_regex(regex) for regex in raw.get("regexes", ())),
        stopwords=tuple(word.lower().encode() for word in raw.get("stopwords", ())),
    )


def _regex(pattern: str) -> Any:
    """Compile a pattern over bytes, so that positions are byte offsets."""
    import re2

    return re2.compile(pattern.encode("utf-8"))
