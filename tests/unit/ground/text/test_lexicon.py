"""The shipped lexicon, and a file of the user."""

from pathlib import Path

import pytest

from upwell.ground.errors import ConfigError
from upwell.ground.text.lexicon import KINDS, extended, shipped
from upwell.ground.types.cue import IntentKind
from upwell.surface.intent import Detector
from upwell.surface.query import CueReader, Messages

OWN = """
[en]
greetings = ["howdy partner"]
not_names = ["Sprint"]
[de]
stop_words = "der die das ist"
greetings = ["guten morgen"]
[de.intent.howto]
strong = ["wie kann|muss ... installier*"]
[code]
boilerplate = ["crates"]
commands = "just"
[without]
acknowledgements = ["next"]
signals = ["^implement|implementing"]
"""


def lexicon(tmp_path: Path, text: str):
    path = tmp_path / "lexicon.toml"
    path.write_text(text, encoding="utf-8")
    return extended(path)


def test_the_shipped_lexicon_has_every_list_in_both_languages():
    words = shipped()
    assert {"the", "para"} <= words.stop_words
    assert {"hello", "hola"} <= words.greetings
    assert {"thanks", "gracias"} <= words.acknowledgements
    assert {signal.kind for signal in words.signals} == set(KINDS)
    assert set(KINDS) == {str(kind) for kind in IntentKind} - {"none"}


def test_words_of_the_user_are_added(tmp_path: Path):
    words = lexicon(tmp_path, OWN)
    read = Messages(words)
    assert read.not_applicable("Howdy, partner!") == "greeting"
    assert read.not_applicable("Guten Morgen") == "greeting"
    assert read.not_applicable("hello there") == "greeting"
    assert read.not_applicable("next") == "1 word and no question"
    assert read.names("Sprint review with Eva") == ["Eva"]
    assert read.queries("ist das Haus der Eva fertig?")[1:] == ("fertig", "Haus Eva")
    intents = Detector(words)
    assert intents.intent("Wie kann man das installieren?").kind is IntentKind.HOWTO
    assert intents.intent("implement pagination").kind is IntentKind.NONE
    text, _ = CueReader(lexicon=words).five_levels(
        "Bash", {"command": "just lint crates/parser.rs"}
    )
    assert text == "lint parser"


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("[en]\ngreeting = []", "en.greeting: did you mean 'greetings'?"),
        ("[en]\ngreetings = 3", "en.greetings that is not a list"),
        ("[en]\ngreetings = [1]", "en.greetings that is not a list"),
        ("[en.intent.fixing]\nstrong = []", "en.intent.fixing"),
        ("[en.intent.howto]\nsure = []", "en.intent.howto.sure"),
        ('[en.intent.howto]\nstrong = ["... x"]', "not a phrase"),
        ('[en.intent.howto]\nstrong = ["a||b"]', "not a phrase"),
        ('[en.intent.howto]\nstrong = ["x ... ... y"]', "not a phrase"),
        ("[en]\nintent = 3", "not a table"),
        ("words = []", "outside a table"),
        ("[code]\nstop_words = []", "code.stop_words"),
        ("[without]\nwords = []", "without.words"),
        ("[en", "is not TOML"),
    ],
)
def test_a_mistake_is_one_line_that_names_it(tmp_path: Path, text: str, fault: str):
    with pytest.raises(ConfigError) as caught:
        lexicon(tmp_path, text)
    message = f"{caught.value.message}: {caught.value.hint}"
    assert fault in message
    assert str(tmp_path / "lexicon.toml") in message
    assert "\n" not in caught.value.message
