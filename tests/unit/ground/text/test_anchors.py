"""Files and code names in a text: precise rather than complete."""

import pytest

from upwell.ground.text.anchors import (
    file_stem,
    path_parts,
    paths_in,
    relative_to,
    symbol_keys,
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


def test_parts_and_roots() -> None:
    assert path_parts("C:\\a\\.\\b\\..\\c.py") == ["a", "b", "c.py"]
    assert relative_to("/home/x/repo/src/a.py", "/home/x/repo") == "src/a.py"
    assert relative_to("/home/x/repository/a.py", "/home/x/repo") == "home/x/repository/a.py"
    assert relative_to("src/a.py", "/home/x/repo") == "src/a.py"
    assert relative_to("/home/x/repo", "/home/x/repo") == "home/x/repo"


@pytest.mark.parametrize(
    "path", ["src/app.py", "tests/test_app.py", "app_test.go", "App.test.tsx", "app.spec.ts"]
)
def test_a_test_and_its_subject_have_the_same_stem(path: str) -> None:
    assert file_stem(path) == "app"


def test_symbol_keys_are_whole_and_last() -> None:
    assert symbol_keys(["pool.ConnPool.acquire", "X::y()"]) == (
        "pool.connpool.acquire",
        "acquire",
        "x.y",
    )
