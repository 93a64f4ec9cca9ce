"""The detection of the kind of a text."""

import json

import pytest

from upwell.ground.text.kind import detect
from upwell.ground.types.compression import TextKind

SAMPLES = {
    TextKind.JSON_ARRAY: '[{"a": 1}]',
    TextKind.JSON_OBJECT: '{"a": 1}',
    TextKind.JSON_SCALAR: '"just a string"',
    TextKind.JSON_LINES: '{"a": 1}\n{"a": 2}\n{"a": 3}\n',
    TextKind.OPENAPI: json.dumps({"openapi": "3.1.0", "paths": {"/x": {}}}),
    TextKind.MARKDOWN: "# Title\n\nSome *text* here.\n\n## More\n\n- item\n- item\n",
    TextKind.API_DOCS: "# Users\n\nGET /users\n\n## One\n\nGET /users/1\n\nPOST /users\n",
    TextKind.HTML: "<!DOCTYPE html>\n<html><body><p>hi</p></body></html>",
    TextKind.CSV: "id,name,size\n1,a,3\n2,b,4\n3,c,5\n",
    TextKind.LOG: "2026-01-01 10:00:00 INFO start\n2026-01-01 10:00:01 ERROR stop\n" * 3,
    TextKind.TEST_OUTPUT: "test a::b ... ok\ntest a::c ... FAILED\ntest result: FAILED. 1 passed\n",
    TextKind.DIFF: "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n",
    TextKind.GIT_LOG: "commit 0123456789abcdef\nAuthor: A <a@b.c>\nDate: now\n\n    Subject\n",
    TextKind.GREP: "src/a.py:12:import os\nsrc/b.py:3:import sys\nsrc/c.py:9:import re\n",
    TextKind.CODE: "import os\n\n\ndef main(argv):\n    if argv:\n"
    "        return os.getcwd()\n    return None\n",
    TextKind.STACK_TRACE: 'Traceback (most recent call last):\n  File "a.py", line 3, in f\n'
    '    g()\n  File "b.py", line 4, in g\n    h()\nValueError: no\n',
    TextKind.TEXT: "Just some words that say nothing in particular.\nAnd more of them.\n",
}


@pytest.mark.parametrize("kind", SAMPLES)
def test_samples_are_recognised(kind: TextKind) -> None:
    assert detect(SAMPLES[kind]) == kind


def test_changes_may_follow_other_output() -> None:
    assert detect(f" M x\n?? y\n{SAMPLES[TextKind.DIFF]}") == TextKind.DIFF


def test_a_name_tells_code() -> None:
    assert detect("x = 1\n", "settings.py") == TextKind.CODE


@pytest.mark.parametrize(
    "text", ["", "\n\n", "[not json", "{braces} in prose", "a<b and c>d\n" * 9]
)
def test_other_texts_are_plain_text(text: str) -> None:
    assert detect(text) == TextKind.TEXT
