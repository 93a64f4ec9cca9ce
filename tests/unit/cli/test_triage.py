"""Triage of one item after another: the keys, and undoing."""

from collections.abc import Callable, Sequence

import pytest

from upwell.cli.triage import Card, TriageAnswer, decisions, edited

CARDS = [Card("a", "rule", "A"), Card("b", "commit", "B"), Card("c", "rule", "C")]


def keys(text: str) -> Callable[[], str]:
    """The keys of a user who closes the terminal when there are no more."""
    pressed = iter(text)

    def key() -> str:
        try:
            return next(pressed)
        except StopIteration:
            raise EOFError from None

    return key


def answers(text: str, cards: Sequence[Card[str]] = CARDS) -> list[tuple[str, TriageAnswer, str]]:
    batches = decisions(cards, lambda text: f"{text}!", keys(text))
    return [(one.item, one.answer, one.text) for batch in batches for one in batch]


def test_each_key_is_an_answer() -> None:
    assert answers("kDnq") == [
        ("a", TriageAnswer.KEEP, "A"),
        ("b", TriageAnswer.DROP, "B"),
        ("c", TriageAnswer.NEVER, "C"),
    ]
    assert answers("y") == [("a", TriageAnswer.KEEP, "A")], "as the answer to a question"
    assert answers("s") == [("a", TriageAnswer.SKIP, "A")]
    assert answers("e") == [("a", TriageAnswer.KEEP, "A!")]


def test_other_keys_explain_the_keys(capsys: pytest.CaptureFixture[str]) -> None:
    assert answers("xz?k") == [("a", TriageAnswer.KEEP, "A")]
    shown = capsys.readouterr().out
    assert shown.count("[k] keep, [e] edit and keep, [d] drop, [n] never again") == 1 + 3
    assert shown.count("1 of 3") == 1


def test_never_again_names_its_item_and_the_way_back(capsys: pytest.CaptureFixture[str]) -> None:
    assert answers("nuk") == [("a", TriageAnswer.KEEP, "A")]
    assert "never again: A (u takes it back)" in capsys.readouterr().out
    assert [answer for _, answer, _ in answers("an")] == [TriageAnswer.NEVER, TriageAnswer.NEVER]
    assert "never again: 2 (u takes them back)" in capsys.readouterr().out


def test_the_last_answer_can_be_undone_once() -> None:
    assert answers("kudq") == [("a", TriageAnswer.DROP, "A")]
    assert answers("kduuk") == [("a", TriageAnswer.KEEP, "A"), ("b", TriageAnswer.KEEP, "B")]
    assert answers("kdnuk")[-1] == ("c", TriageAnswer.KEEP, "C"), "after the last item, too"
    assert answers("uk") == [("a", TriageAnswer.KEEP, "A")]


def test_all_of_a_kind_is_one_answer() -> None:
    assert answers("akd") == [
        ("a", TriageAnswer.KEEP, "A"),
        ("c", TriageAnswer.KEEP, "C"),
        ("b", TriageAnswer.DROP, "B"),
    ]
    assert answers("ayq") == [("a", TriageAnswer.KEEP, "A"), ("c", TriageAnswer.KEEP, "C")]
    assert answers("axd") == [("a", TriageAnswer.DROP, "A")], "any other key asks about each"
    assert answers("aduq") == []


def test_an_answer_is_passed_on_with_the_next_one() -> None:
    passed = []
    for batch in decisions(CARDS, str, keys("kdk")):
        passed.append([one.item for one in batch])
    assert passed == [[], ["a"], ["b"], ["c"]]


@pytest.mark.parametrize("stop", [KeyboardInterrupt, EOFError])
def test_an_interruption_keeps_earlier_answers(stop: type[BaseException]) -> None:
    pressed = iter("k")

    def key() -> str:
        for letter in pressed:
            return letter
        raise stop

    batches = list(decisions(CARDS, str, key))
    assert [one.item for batch in batches for one in batch] == ["a"]


def test_the_editor_of_the_user_changes_a_text() -> None:
    assert edited("one two", {"EDITOR": "sed -i s/two/three/"}) == "one three"


def test_an_editor_that_fails_keeps_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert edited("one", {"VISUAL": "/nowhere/editor", "EDITOR": "true"}) == ""
    assert "/nowhere/editor" in capsys.readouterr().err
