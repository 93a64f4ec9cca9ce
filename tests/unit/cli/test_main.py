"""The one-line errors for command lines that cannot be parsed."""

import pytest

from upwell.cli.main import main

MISSPELLED = {
    ("recall", "x", "--jsno"): "No such option '--jsno'. Did you mean '--json'?",
    ("replay", "--sampel", "3"): "No such option '--sampel'. Did you mean '--sample'?",
    ("recall", "x", "--color"): "No such option '--color' (see",
    ("recal", "x"): "No such command 'recal'. Did you mean 'recall'?",
    ("inbox", "acept"): "No such command 'acept'. Did you mean 'accept'?",
}


@pytest.mark.parametrize("args", MISSPELLED)
def test_a_misspelled_word_is_answered_with_a_similar_one(
    args: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(args) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith(f"upwell: {MISSPELLED[args]}")
    assert len(printed.err.splitlines()) == 1
