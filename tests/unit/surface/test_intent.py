import time

import pytest

from upwell.ground.types import IntentKind
from upwell.surface.intent import keyword_intent


@pytest.mark.parametrize(
    ("prompt", "kind"),
    [
        ("How do I implement authentication?", IntentKind.HOWTO),
        ("Where is the configuration file?", IntentKind.LOCATION),
        ("What is the ServiceContainer?", IntentKind.EXPLANATION),
        ("What's the difference between SQLite and PostgreSQL?", IntentKind.COMPARISON),
        ("PostgreSQL vs SQLite for this use case?", IntentKind.COMPARISON),
        ("Fix the login bug", IntentKind.TROUBLESHOOT),
        ("find the user model", IntentKind.LOCATION),
        ("search memories", IntentKind.GENERAL),
        ("why is the test failing?", IntentKind.TROUBLESHOOT),
        ("the build is broken", IntentKind.TROUBLESHOOT),
        ("errors in logs", IntentKind.TROUBLESHOOT),
        ("¿cómo implemento autenticación?", IntentKind.HOWTO),
        ("¿por qué falla el test?", IntentKind.TROUBLESHOOT),
        ("diferencia entre X e Y", IntentKind.COMPARISON),
        ("Hello, world!", IntentKind.NONE),
        ("", IntentKind.NONE),
        ("Refactor the parser", IntentKind.NONE),
    ],
)
def test_kinds(prompt, kind):
    assert keyword_intent(prompt).kind is kind


@pytest.mark.parametrize(
    ("prompt", "confidence"),
    [
        ("How do I implement authentication?", 0.65),
        ("Where is the configuration file?", 0.65),
        ("search memories", 0.55),
        ("Hello, world!", 0.0),
    ],
)
def test_confidence(prompt, confidence):
    assert keyword_intent(prompt).confidence == pytest.approx(confidence, abs=0.051)


def test_confidence_is_capped():
    asked = "How do I fix this error? Where is the problem? What is the solution? Why does it fail?"
    assert keyword_intent(asked).confidence <= 0.95


def test_topics():
    assert keyword_intent("How do I implement authentication?").topics == (
        "implement",
        "authentication",
    )


def test_a_megabyte_is_read_in_bounded_time():
    began = time.process_time()
    keyword_intent("why does the thing fail " * 45_000)
    assert time.process_time() - began < 0.1
