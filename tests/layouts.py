"""Texts in the layouts of common tools, in which each name tells where its line belongs.

`harbor3` heads a section, `quay3x1` a part of it, and `crane3x1x7` is a finding in that part. (In a
layout without parts it is `crane3x7`.) A reader of a shortened text takes a finding to belong to
the last harbor and quay at or above its line.
"""

import json
import re
from collections.abc import Callable, Iterator
from itertools import count
from typing import NamedTuple

from tests.tables import expand

AREAS, FINDINGS, PARTS = 24, 14, 3
_FINDING = re.compile(r"crane(\d+)x(\d+)(?:x(\d+))?", re.I)
_HARBOR = re.compile(r"harbor(\d+)(?!\d)", re.I)
_QUAY = re.compile(r"quay(\d+x\d+)(?!\d)", re.I)
_PLACE_LINES = 5
"""Where a finding is named before its place, the place is at most this many lines below."""


class Layout(NamedTuple):
    """A `text` in the layout of a tool. In some layouts the place is `below` the finding."""

    name: str
    text: str
    below: bool = False


class Reading(NamedTuple):
    """What a reader takes from a text: the `right` findings, and the `wrong` ones, which stand
    under a heading that is not theirs or under none."""

    right: set[str]
    wrong: set[str]


def read(text: str, *, below: bool = False) -> Reading:
    """Read a text as an agent would, from top to bottom."""
    right: set[str] = set()
    wrong: set[str] = set()
    rows = text.split("\n")
    has_parts = _FINDING.search(text) is not None and "quay" in text.lower()
    harbor = quay = ""
    for number, row in enumerate(rows):
        if match := _HARBOR.search(row):
            harbor, quay = match[1], quay if quay.startswith(f"{match[1]}x") else ""
        if match := _QUAY.search(row):
            quay = match[1]
        for finding in _FINDING.finditer(row):
            place = harbor
            if below:
                place = _next_harbor(rows[number : number + _PLACE_LINES])
            is_right = place == finding[1]
            if has_parts and finding[3]:
                is_right = is_right and quay == f"{finding[1]}x{finding[2]}"
            (right if is_right else wrong).add(finding[0].lower())
    return Reading(right - wrong, wrong)


def _next_harbor(rows: list[str]) -> str:
    found = [match[1] for row in rows if (match := _HARBOR.search(row))]
    return found[0] if found else ""


def read_json(text: str) -> Reading:
    """Read a shortened document, or JSON Lines."""
    lines = text.split("\n") if text.startswith('{"file"') else [text]
    found = [pair for line in lines for pair in findings(expand(json.loads(line)))]
    wrong = {name for name, harbor in found if not name.startswith(f"crane{harbor}x")}
    return Reading({name for name, _ in found} - wrong, wrong)


def findings(value: object, harbor: str = "") -> Iterator[tuple[str, str]]:
    """Yield each finding in a JSON value, and the harbor that its record or an enclosing record
    names, or ""."""
    if isinstance(value, list):
        for item in value:
            yield from findings(item, harbor)
    elif isinstance(value, dict):
        text = json.dumps(value)
        own = {match[1] for match in _HARBOR.finditer(text)}
        harbor = own.pop() if len(own) == 1 else harbor
        for name, item in value.items():
            named = _HARBOR.search(name)
            yield from findings(item, named[1] if named else harbor)
    elif isinstance(value, str):
        for match in _FINDING.finditer(value):
            yield match[0].lower(), harbor


def grouped(head: str, row: str, end: str = "", last: str = "") -> str:
    """Fill in the head, the rows and the end of each section. `{a}` is the section, `{n}` the
    finding, `{l}` and `{c}` a line and a column, `{k}` a running number."""
    numbers = count(1)
    parts = []
    for area in range(AREAS):
        parts.append(head.format(a=area, k=next(numbers), l=area * 7 + 1, c=area % 40))
        for finding in range(FINDINGS - area % 5):
            values = {"a": area, "n": finding, "l": finding * 13 % 400 + 1, "c": finding * 7 % 60}
            parts.append(row.format(**values, k=next(numbers), w=_WORDS[finding % len(_WORDS)]))
        parts.append(end.format(a=area))
    return "".join(parts) + last


def nested(head: str, part: str, row: str, part_end: str = "", end: str = "") -> str:
    """Fill in sections with parts. `{b}` is the part."""
    parts = []
    for area in range(AREAS):
        parts.append(head.format(a=area))
        for quay in range(PARTS):
            parts.append(part.format(a=area, b=quay, l=quay * 40 + 3, w=_WORDS[quay]))
            for finding in range(2 + FINDINGS // PARTS - area % 3):
                line, word = finding * 13 % 400 + 1, _WORDS[finding % len(_WORDS)]
                parts.append(row.format(a=area, b=quay, n=finding, l=line, c=finding * 7, w=word))
            parts.append(part_end.format(a=area, b=quay))
        parts.append(end.format(a=area))
    return "".join(parts)


_WORDS = "unused undefined shadowed error deprecated unreachable view task util config".split()
_DASHES, _STARS = "-" * 78, "*" * 50

INLINE = {
    "flake8": "src/port/harbor{a}.py:{l}:{c}: F841 local variable 'crane{a}x{n}' is {w}\n",
    "mypy": 'src/port/harbor{a}.py:{l}: error: Name "crane{a}x{n}" is {w}  [name-defined]\n',
    "tsc": "src/harbor{a}.ts({l},{c}): error TS6133: 'crane{a}x{n}' is {w}.\n",
    "maven": "[ERROR] /app/src/Harbor{a}.java:[{l},{c}] cannot find symbol crane{a}x{n} ({w})\n",
    "msbuild": "Harbor{a}.cs({l},{c}): warning CS0168: '`crane{a}x{n}`' is {w} [/app/p.csproj]\n",
    "github": "::error file=src/harbor{a}.py,line={l},col={c}::crane{a}x{n} is {w}\n",
    "psalm": "ERROR: UndefinedVariable - src/harbor{a}.php:{l}:{c} - Cannot find $crane{a}x{n}\n",
    "find": "./srv/harbor{a}/{w}/crane{a}x{n}.py\n",
    "grep": "src/dock-109-b/harbor{a}.py:{l}:    crane{a}x{n} = {w}(1)\n",
    "rubocop": "app/harbor{a}.rb:{l}:{c}: W: Lint/Useless: Useless `crane{a}x{n}` ({w}).\n"
    "    crane{a}x{n} = 1\n    ^^^^^^^\n",
    "golangci-lint": "pkg/harbor{a}.go:{l}:{c}: crane{a}x{n} is {w} (unused)\n"
    "\tcrane{a}x{n} := 1\n\t^\n",
    "mypy pretty": 'src/harbor{a}.py:{l}: error: Name "crane{a}x{n}" is {w}  [name-defined]\n'
    "    return crane{a}x{n} + 1\n           ^~~~~~~\n",
    "tsc pretty": "src/harbor{a}.ts:{l}:{c} - error TS6133: 'crane{a}x{n}' is {w}.\n\n"
    "{l}     const crane{a}x{n} = 1;\n          ~~~~~~~~~\n\n",
    "javac": "src/Harbor{a}.java:{l}: error: cannot find symbol\n        crane{a}x{n}.lift();\n"
    "        ^\n  symbol:   variable crane{a}x{n}\n  location: class Port\n",
    "shellcheck": "In scripts/harbor{a}.sh line {l}:\necho $crane{a}x{n} {w}\n"
    "     ^--------^ SC2086 (info): Double quote to prevent globbing.\n\n",
    "clang": "src/harbor{a}.c:{l}:{c}: warning: {w} variable 'crane{a}x{n}' [-Wunused]\n"
    "    {l} |     int crane{a}x{n} = 1;\n      |         ^~~~~~~~\n",
}
BELOW = {
    "clippy": "warning: {w} variable: `crane{a}x{n}`\n  --> src/harbor{a}.rs:{l}:{c}\n   |\n"
    "{l} |     let crane = 1;\n   |         ^^^^^ help: try prefixing\n   |\n\n",
    "ruff full": "F841 [*] Local variable `crane{a}x{n}` is {w}\n  --> src/harbor{a}.py:{l}:{c}\n"
    "   |\n{l} |     crane = 1\n   |     ^^^^^\n   |\nhelp: Remove the assignment\n\n",
    "ansible-lint": "no-changed-when: `crane{a}x{n}` should not be {w}.\n"
    "playbooks/harbor{a}.yml:{l} Task/Handler: lift\n\n",
    "bandit": ">> Issue: [B101:assert_used] {w} assert of crane{a}x{n}.\n"
    "   Severity: Low   Confidence: High\n   Location: src/harbor{a}.py:{l}:{c}\n"
    f"   More Info: https://bandit.example/b101\n{{l}}\t    assert crane\n\n{_DASHES}\n",
}
GROUPED: dict[str, tuple[str, ...]] = {
    "ruff grouped": (
        "src/port/harbor{a}.py:\n",
        "  {l:>4}:{c:<3} F841 [*] Local variable `crane{a}x{n}` is {w}\n",
        "\n", "Found 300 errors.\n",
    ),
    "eslint": (
        "/srv/app/src/harbor{a}.js\n",
        "  {l:>3}:{c:<3}  error  'crane{a}x{n}' is {w}  no-unused-vars\n",
        "\n", "✖ 300 problems (300 errors, 0 warnings)\n",
    ),
    "stylelint": ("src/harbor{a}.css\n", "  {l}:{c}  ✖  Unexpected `crane{a}x{n}`  {w}\n", "\n"),
    "vale": (" docs/harbor{a}.md\n", " {l}:{c}  error  Use 'crane{a}x{n}'  Port.{w}\n", "\n"),
    "pylint": (
        "************* Module port.harbor{a}\n",
        "W{l:04}: {l},{c}: Unused variable 'crane{a}x{n}' ({w}-variable)\n",
    ),
    "rubocop simple": ("== app/harbor{a}.rb ==\n", "W:{l:>3}:{c:>3}: Useless crane{a}x{n} {w}\n"),
    "phpcs": (
        f"\nFILE: /app/src/harbor{{a}}.php\n{_DASHES}\nFOUND 9 ERRORS\n{_DASHES}\n",
        " {l:>3} | ERROR | [x] Variable crane{a}x{n} is {w}\n", f"{_DASHES}\n\n",
    ),
    "phpstan": (
        " ------ ------------\n  Line   src/harbor{a}.php\n ------ ------------\n",
        "  {l:<4}   Undefined variable: $crane{a}x{n} {w}\n", " ------ ------------\n\n",
    ),
    "go vet": ("# example.com/port/harbor{a}\n", "./dock.go:{l}:{c}: crane{a}x{n} is {w}\n"),
    "go test": (
        "--- FAIL: TestHarbor{a} (0.00s)\n", "    dock_test.go:{l}: crane{a}x{n}: got 1, want {w}\n"
    ),
    "unittest": (
        f"{'=' * 70}\nFAIL: test_harbor{{a}} (port.Test)\n{'-' * 70}\n"
        "Traceback (most recent call last):\n"
        '  File "port.py", line {l}, in test\n',
        "AssertionError: crane{a}x{n} is {w}\n", "\n",
    ),
    "pytest": (
        f"{'_' * 30} test_harbor{{a}} {'_' * 30}\n\n    def test():\n>       assert lift() == 2\n",
        "E       assert crane{a}x{n} == {w}\n", "\ntests/test_port.py:12: AssertionError\n",
    ),
    "jest": (
        "  ● Port › harbor{a}\n\n    expect(received).toEqual(expected)\n\n",
        '    +   "crane{a}x{n}": "{w}",\n', "\n      at Object.<anonymous> (port.test.js:8:3)\n\n",
    ),
    "rspec": (
        "  {k}) Port harbor{a}\n     Failure/Error: expect(lift).to eq(1)\n\n",
        "       expected crane{a}x{n} {w}\n", "     # ./spec/port_spec.rb:8\n\n",
    ),
    "cargo test": (
        "---- tests::harbor{a} stdout ----\n", "assertion failed: crane{a}x{n} {w}\n", "\n"
    ),
    "phpunit": ("{k}) PortTest::harbor{a}\n", "Failed asserting that crane{a}x{n} is {w}.\n", "\n"),
    "tap": ("not ok {k} - harbor{a}\n  ---\n", "  message: 'crane{a}x{n} {w}'\n", "  ...\n"),
    "ls -laR": (
        "./srv/harbor{a}:\ntotal {l}\n",
        "-rw-r--r-- 1 dev dev {l:>6} Mar  3 10:{c:02} {w}_crane{a}x{n}.py\n", "\n",
    ),
    "ls -R": ("./harbor{a}:\n", "{w}_crane{a}x{n}.py\n", "\n"),
    "tree": ("├── harbor{a}\n", "│\xa0\xa0 ├── {w}_crane{a}x{n}.py\n"),
    "tree ascii": ("|-- harbor{a}\n", "|   |-- {w}_crane{a}x{n}.py\n"),
    "npm ls": ("├─┬ harbor{a}@1.2.{c}\n", "│ ├── crane{a}x{n}@{l}.0.0 {w}\n"),
    "gradle": ("+--- org:harbor{a}:1.{c}\n", "|    +--- org:crane{a}x{n}:{l} ({w})\n"),
    "rg --heading": ("src/dock-109-b/harbor{a}.py\n", "{l}:    crane{a}x{n} = {w}(1)\n", "\n"),
    "git grep": ("src/harbor{a}.py\n", "{l}-    {w} = 2\n{l}:    crane{a}x{n} = 1\n--\n", "\n"),
    "git status": (
        "Changes in harbor{a}:\n", "\tmodified:   {w}/crane{a}x{n}.py\n", "\n"
    ),
    "git log --stat": (
        "commit {k:040x}\nAuthor: A <a@b.c>\nDate:   Mon Mar 3\n\n    Deepen harbor{a}\n\n",
        " {w}/crane{a}x{n}.py | 12 +++---\n", " 9 files changed, 90 insertions(+)\n\n",
    ),
    "git log --name-only": (
        "commit {k:040x}\nAuthor: A <a@b.c>\nDate:   Mon Mar 3\n\n    Deepen harbor{a}\n\n",
        "{w}/crane{a}x{n}.py\n", "\n",
    ),
    "git diff": (
        "diff --git a/harbor{a}.py b/harbor{a}.py\nindex 1..2 100644\n--- a/harbor{a}.py\n"
        "+++ b/harbor{a}.py\n@@ -1,9 +1,9 @@ def lift():\n",
        " {w} = 1\n-    old = {n}\n+    crane{a}x{n} = {w}\n",
    ),
    "merge diff": (
        "diff --cc harbor{a}.py\nindex 1,2..3\n--- a/harbor{a}.py\n+++ b/harbor{a}.py\n"
        "@@@ -1,9 -1,9 +1,9 @@@ def lift():\n",
        "  {w} = 1\n- old = {n}\n++crane{a}x{n} = {w}\n",
    ),
    "diff -r": ("diff -r a/harbor{a}.py b/harbor{a}.py\n", "{l}c{l}\n< {w}\n---\n> crane{a}x{n}\n"),
    "ini": ("# Settings\n[harbor{a}]\n", "{w}_crane{a}x{n} = {l}\n", "\n"),
    "toml": ("[[tool.port]]\nname = \"harbor{a}\"\n", '{w}_crane{a}x{n} = "{l}"\n', "\n"),
    "env": ("# --- harbor{a} ---\n", "CRANE{a}x{n}={w}{l}\n", "\n"),
    "tail": ("==> log/harbor{a}.log <==\n", "{w} crane{a}x{n} lifted in {l} ms\n", "\n"),
    "hosts": ("=== harbor{a} ===\n", "{w} crane{a}x{n} is up {l} days\n"),
    "ansible": (f"TASK [harbor{{a}}] {_STARS}\n", "changed: [{w}.crane{a}x{n}.example]\n", "\n"),
    "yaml": (
        "---\n# Source: port/templates/all.yaml\n# {c} of 40\napiVersion: v1\nkind: ConfigMap\n"
        "metadata:\n  labels:\n    app: port\n  name: harbor{a}\ndata:\n",
        "  {w}_{n}: crane{a}x{n}\n",
    ),
    "yaml kinds": (
        "---\napiVersion: v1\nkind: Harbor{a}\nmetadata:\n  name: port\ndata:\n",
        "  {w}_{n}: crane{a}x{n}\n",
    ),
    "terraform plan": (
        "  # aws_instance.harbor{a} will be created\n"
        "  + resource \"aws_instance\" \"harbor{a}\" {{\n",
        '      + {w}_{n} = "crane{a}x{n}"\n', "    }}\n\n",
    ),
    "kubectl get": (
        "NAME                 READY   HARBOR{a}\n", "{w:<20.11} 1/1     crane{a}x{n}\n", "\n"
    ),
    "psql": (
        " name        | harbor{a}\n-------------+--------\n",
        " crane{a}x{n:<4} | {l}\n", "(9 rows)\n\n",
    ),
    "mysql": (
        "+-----------+----------+\n| name      | harbor{a} |\n+-----------+----------+\n",
        "| crane{a}x{n} | {l:>8} |\n", "+-----------+----------+\n9 rows in set (0.00 sec)\n\n",
    ),
    "systemctl": (
        "● harbor{a}.service - Port\n   Loaded: loaded\n   Active: active (running)\n",
        "           ├─{l} /usr/bin/crane{a}x{n} --{w}\n", "\n",
    ),
    "ip addr": (
        "{k}: harbor{a}: <UP> mtu 1500\n", "    inet 10.0.{c}.{l}/24 scope {w} crane{a}x{n}\n"
    ),
    "jstack": (
        '"harbor{a}" #12 prio=5 tid=0x1\n   java.lang.Thread.State: WAITING\n',
        "\tat org.port.{w}.crane{a}x{n}(Port.java:{l})\n", "\n",
    ),
    "log": (
        "2026-03-01 10:00:{c:02},001 ERROR harbor{a} failed\n",
        "\tat port.{w}.crane{a}x{n}(P:{l})\n",
    ),
    "gdb": (
        "Thread {k} (harbor{a}):\n", "#{n}  0x{l:08x} in crane{a}x{n} ({w}=1) at p.c:{l}\n", "\n"
    ),
    "markdown": ("## harbor{a}\n\n", "- `crane{a}x{n}` is {w} since {l}\n", "\n"),
    "csv": ("harbor{a},size,age\n", "crane{a}x{n},{l},{c}\n", "\n"),
}  # fmt: skip
NESTED: dict[str, tuple[str, ...]] = {
    "gcc": (
        "", "src/harbor{a}.c: In function 'quay{a}x{b}':\n",
        "src/harbor{a}.c:{l}:{c}: warning: {w} variable 'crane{a}x{b}x{n}' [-Wunused]\n"
        "  {l:>3} |     int crane = 1;\n      |         ^~~\n",
    ),
    "kubectl describe": (
        "Name:         harbor{a}\nNamespace:    port\nContainers:\n",
        "  quay{a}x{b}:\n    Image:  port/{w}\n    Environment:\n",
        "      {w}:  crane{a}x{b}x{n}\n", "", "Events:  <none>\n\n\n",
    ),
    "kubectl get -o yaml": (
        "- apiVersion: v1\n  kind: Pod\n  metadata:\n    labels:\n      app: port\n"
        "    name: harbor{a}\n  spec:\n    containers:\n",
        "    - name: quay{a}x{b}\n      env:\n",
        "      - name: {w}\n        value: crane{a}x{b}x{n}\n",
    ),
    "compose": (
        "  harbor{a}:\n", "    quay{a}x{b}:\n      environment:\n",
        "        - crane{a}x{b}x{n}={w}\n",
    ),
    "deep tree": (
        "├── harbor{a}\n", "│   ├── quay{a}x{b}\n", "│   │   ├── {w}_crane{a}x{b}x{n}.py\n"
    ),
    "playbook": (
        f"PLAY [harbor{{a}}] {_STARS}\n\n", f"TASK [quay{{a}}x{{b}}] {_STARS}\n",
        "ok: [{w}.crane{a}x{b}x{n}]\n", "\n",
    ),
    "git diff hunks": (
        "diff --git a/harbor{a}.py b/harbor{a}.py\n--- a/harbor{a}.py\n+++ b/harbor{a}.py\n",
        "@@ -{l},9 +{l},9 @@ def quay{a}x{b}():\n",
        " {w} = 1\n-    old = {n}\n+    crane{a}x{b}x{n} = {w}\n",
    ),
    "deep markdown": (
        "# harbor{a}\n\n## A\n\n### B\n\n#### C\n\n", "##### quay{a}x{b}\n\n",
        "The crane{a}x{b}x{n} is {w}.\n\n",
    ),
    "class outline": (
        "class Harbor{a}:\n", "    def quay{a}x{b}(self):\n",
        "        self.crane{a}x{b}x{n} = {w}\n",
    ),
}  # fmt: skip


_QUOTED = ("deep markdown", "class outline")
_BEFORE = {
    "compose": "services:\n",
    "kubectl get -o yaml": "apiVersion: v1\nitems:\n",
    "tree": ".\n",
    "terraform plan": "Terraform will perform the following actions:\n\n",
}


def _quoted(text: str) -> str:
    """A file with its line numbers, inside the answer of an agent."""
    rows = [f"{number:>6}→{row}" for number, row in enumerate(text.split("\n"), 1)]
    told = "Reading the file\n\n## Result\n\nIt looks like this:\n\n```text\n"
    return told + "\n".join(rows) + "\n```\n"


def texts() -> list[Layout]:
    """Return all layouts that are not JSON."""
    return [
        *(Layout(f"quoted {name}", _quoted(nested(*NESTED[name]))) for name in _QUOTED),
        *(Layout(name, grouped("", row)) for name, row in INLINE.items()),
        *(Layout(name, grouped("", row), below=True) for name, row in BELOW.items()),
        *(Layout(name, _BEFORE.get(name, "") + grouped(*parts)) for name, parts in GROUPED.items()),
        *(Layout(name, _BEFORE.get(name, "") + nested(*parts)) for name, parts in NESTED.items()),
    ]


def _records(make: Callable[[int, int], object]) -> list[object]:
    return [make(area, finding) for area in range(AREAS) for finding in range(FINDINGS)]


def documents() -> dict[str, str]:
    """Return JSON documents that list findings, in the shapes of common linters."""
    ruff = _records(
        lambda a, n: {
            "code": f"E{500 + n}", "filename": f"/w/src/harbor{a}.py", "fix": None,
            "location": {"column": n, "row": n * 7}, "message": f"`crane{a}x{n}` is unused",
            "name": "unused-variable", "url": "https://docs.example/unused",
        }
    )  # fmt: skip
    mypy = _records(
        lambda a, n: {"file": f"src/harbor{a}.py", "line": n * 7, "message": f"crane{a}x{n} unused"}
    )
    golangci = _records(
        lambda a, n: {
            "FromLinter": "unused", "Text": f"crane{a}x{n} is unused",
            "Pos": {"Filename": f"pkg/harbor{a}.go", "Line": n * 7},
        }
    )  # fmt: skip
    sarif = _records(
        lambda a, n: {
            "ruleId": f"R{n}", "message": {"text": f"crane{a}x{n} is unused"},
            "locations": [{"physicalLocation": {
                "artifactLocation": {"uri": f"src/harbor{a}.py"}, "region": {"startLine": n}}}],
        }
    )  # fmt: skip
    eslint = [
        {
            "filePath": f"/app/harbor{a}.js",
            "messages": [
                {"ruleId": "no-unused", "line": n * 7, "message": f"'crane{a}x{n}' is unused"}
                for n in range(FINDINGS)
            ],
        }
        for a in range(AREAS)
    ]
    stylelint = [{"source": file["filePath"], "warnings": file["messages"]} for file in eslint]
    return {
        "ruff json": json.dumps(ruff, indent=2),
        "mypy json": "\n".join(map(json.dumps, mypy)),
        "golangci json": json.dumps({"Issues": golangci}),
        "sarif": json.dumps({"runs": [{"results": sarif}]}, indent=2),
        "eslint json": json.dumps(eslint),
        "stylelint json": json.dumps(stylelint),
        "phpstan json": json.dumps({"files": {f["filePath"]: f["messages"] for f in eslint}}),
    }
