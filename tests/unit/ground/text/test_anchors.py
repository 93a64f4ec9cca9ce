"""Files and code names in a text: precise rather than complete."""

import pytest

from upwell.ground.text.anchors import (
    paths_in,
    symbols_in,
)


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ("see src/app/main.py, then docs/a.md.", ("src/app/main.py", "docs/a.md")),
        ("fix README.md and setup.cfg", ("README.md", "setup.cfg")),
        ("the Makefile and build/Dockerfile", ("Makefile", "build/Dockerfile")),
        ("in `/etc/nginx/sites` or ~/notes/today", ("/etc/nginx/sites", "~/notes/today")),
        (r"open C:\work\app.cs", ("C:/work/app.cs",)),
        ("app/[id]/page.tsx", ("app/[id]/page.tsx",)),
        ("pytest tests/test_x.py::test_y -q", ("tests/test_x.py",)),
        ("see https://example.com/a/b.html for and/or version 3.12, e.g. node.js-like", ()),
        ("client/server and TCP/IP, 1/2, mail a@b.py", ()),
        ("license to make notice", ()),
        ("", ()),
    ],
)
def test_paths_are_found_in_text(text: str, paths: tuple[str, ...]) -> None:
    assert paths_in(text) == paths


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("retry_policy calls fetchAll() in HTTPServer", ("retry_policy", "fetchAll", "HTTPServer")),
        ("use `Backoff` and `run()`", ("Backoff", "run")),
        ("os.path.join and std::vec", ("os.path.join", "std::vec")),
        ("edit src/my_file.py please", ()),
        ("plain words, e.g. these. And i.e. those", ()),
    ],
)
def test_symbols_are_found_in_text(text: str, names: tuple[str, ...]) -> None:
    result = symbols_in(text)
    assert set(names) <= set(result)
    if not names:
        assert result == ()
