"""The scaffold of a program has the same definitions as the program."""

import tarfile
import tempfile
from pathlib import Path

import pytest

from upwell.compress.units.code import Scaffold, definitions, scaffold
from upwell.ground.text.language import language_of

ROOT = Path(__file__).parents[4]
SOURCES = [
    *sorted(ROOT.glob("benchmarks/corpus/source-*")),
    *sorted(ROOT.glob("src/upwell/compress/**/*.py")),
    *(Path(module.__file__) for module in (tarfile, tempfile)),
]


def whole(text: str) -> Scaffold:
    return Scaffold(text, list(range(text.count("\n") + 2)))


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_the_scaffold_has_every_definition_in_place(path: Path) -> None:
    text, language = path.read_text(encoding="utf-8"), language_of(path.name)
    assert definitions(scaffold(text, language), language) == definitions(whole(text), language)


@pytest.mark.parametrize("path", SOURCES[:5], ids=lambda path: path.name)
def test_a_good_part_of_the_text_is_left_out(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert len(scaffold(text, language_of(path.name)).text) < 0.7 * len(text)


def test_windows_line_ends_change_nothing() -> None:
    text = (ROOT / "src/upwell/compress/assemble.py").read_text(encoding="utf-8")
    windows = text.replace("\n", "\r\n")
    made = scaffold(windows, "python")
    assert len(made.text) < 0.6 * len(windows)
    assert definitions(made, "python") == definitions(whole(windows), "python")


def test_a_multiline_string_stays_whole() -> None:
    text = (
        'def one():\n    said = """\nclass Not:\n    text of a string\n"""\n    return said\n\n\n'
    )
    text += "def two(\n    # of which one\n    first,\n):\n    # says why\n    return first\n"
    result = definitions(scaffold(text, "python"), "python")
    assert result == definitions(whole(text), "python")
    assert [first for first, _, _ in result] == [0, 8]


def test_code_without_indentation_is_read_as_a_whole() -> None:
    text = "int f(int a)\n{\nif (a) {\nreturn 1;\n}\nreturn 0;\n}\n" * 40
    assert scaffold(text, "c").text == text


def test_a_struct_without_a_body_is_not_a_definition() -> None:
    text = "struct stat seen;\nint look(struct stat *at) {\n    return at != &seen;\n}\n"
    assert definitions(whole(text), "c") == [(1, 2, 4)]


@pytest.mark.parametrize("line", ["f(" + ")" * 3_000, "x" * 3_000, "a b " * 800, " " * 3_000 + "x"])
def test_the_time_for_long_lines_is_linear(line: str) -> None:
    """Quadratic patterns would take minutes here."""
    text = "class A {\n" + f"  {line}\n" * 300 + "}\n"
    for language in ("python", "java", "cpp", "typescript", "rust"):
        assert "class A" in scaffold(text, language).text


def test_deep_nesting_terminates() -> None:
    text = "".join(f"{' ' * depth}class A{depth}:\n" for depth in range(2_000))
    assert scaffold(text, "python").text == text
