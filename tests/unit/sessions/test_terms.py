"""Terms: hashes of stems, files and errors, with the weights of their fields."""

from upwell.sessions.rank import digest_of, impacts_of, named_file, question_terms
from upwell.sessions.turns import FileChange, Turn


def turn(question: str, *remarks: str) -> Turn:
    return Turn(session="s", host="claude", number=0, question=question, remarks=list(remarks))


def weight(word: str, made: Turn) -> int:
    (term,) = question_terms(word)
    return impacts_of(made).get(term, 0)


def test_words_count_most_in_the_question_and_least_before_the_conclusion() -> None:
    made = turn("the anchor", "the buoy", "x" * 300 + " the crane")
    assert weight("anchor", made) > weight("crane", made) > weight("buoy", made) > 0


def test_a_word_of_a_long_text_counts_less() -> None:
    long = "anchor " + "water " * 400
    assert weight("anchor", turn("anchor")) > weight("anchor", turn(long)) > 0


def test_forms_and_parts_of_a_word_are_found() -> None:
    made = turn("why does parseConfig stall")
    for word in ("stalled", "config", "parseconfig"):
        assert weight(word, made)
    assert not weight("anchor", made)
    assert set(question_terms("parseConfig")) <= impacts_of(made).keys()


def test_a_changed_file_is_found_by_its_path_and_by_its_name() -> None:
    made = turn("q")
    made.cwd = "/code/harbour"
    made.changes.append(FileChange("/code/harbour/src/pump.py"))
    impacts = impacts_of(made)
    for name in ("/code/harbour/src/pump.py", "src/pump.py", "pump.py"):
        assert named_file(name, changed=True) in impacts
    assert named_file("pump.py", changed=False) not in impacts


def test_the_same_question_at_another_time_is_another_turn() -> None:
    first, copy, later = turn("again?"), turn("again?"), turn("again?")
    later.began = 60.0
    assert digest_of(first) == digest_of(copy) != digest_of(later)
