"""The examples of seed 003, and other kinds of messages."""

import pytest

from upwell.ground.text.lexicon import shipped
from upwell.surface.query import messages_of

READ = messages_of(shipped())


@pytest.mark.parametrize(
    ("message", "queries"),
    [
        (
            "¿le gusta el jengibre a JC?",
            ("¿le gusta el jengibre a JC?", "gusta jengibre", "JC"),
        ),
        ("JC?", ("JC?", "JC")),
        ("¿qué?", ("¿qué?",)),
        ("a b c", ("a b c",)),
        ("fix bug today", ("fix bug today",)),
        ("what does JC's dog love?", ("what does JC's dog love?", "dog love", "JC")),
        ("   ", ()),
    ],
)
def test_queries_are_derived_from_a_message(message, queries):
    assert READ.queries(message) == queries


@pytest.mark.parametrize(
    ("message", "found"),
    [
        ("What did María José say about the API in NASA?", ["María", "José", "API", "NASA"]),
        ("¿Cuándo es el cumpleaños de Eva?", ["Eva"]),
        ("Is Cookie healthy?", ["Cookie"]),
        ("JC's dog", ["JC"]),
        ("tell UNICEF", ["UNICEF"]),
        ("Restart the quokka cluster. Then ask Ada", ["Ada"]),
        ("Maria's deploy script fails in Berlin", ["Maria", "Berlin"]),
        ("Arregla el test de Ana", ["Ana"]),
        ("PaymentService is slow", ["PaymentService"]),
        ("- Update the README\n- Check Grafana", ["README", "Grafana"]),
        ("1) Update it\n## Heading\nMove it", []),
        ("- [x] Remove the flag\na) Rotate it\n(b) Notify Omar\niv. Check it", ["Omar"]),
        ("| restart | Ana |\nFetch it • Parse it", ["Ana"]),
        ("J. Smith asks JC", ["Smith", "JC"]),
        ("TODO: ask Ada about the FIXME in billing", ["Ada"]),
        ('He said "done." Restart it. (Fix it.) **Now:** Deploy it to Berlin', ["Berlin"]),
    ],
)
def test_names_are_found_in_a_message(message, found):
    assert READ.names(message) == found


@pytest.mark.parametrize(
    "message",
    [
        "",
        "   ",
        "/status",
        "/agent:doctor x",
        "/foo bar baz",
        "hola",
        "OK",
        "thanks",
        "Buenas Tardes",
        "👍",
        "Hola!",
        "fix bug",
        "ok gracias",
        "thanks a lot!",
        "muchas gracias por todo",
        "good morning",
        "looks good to me",
    ],
)
def test_these_messages_get_no_search(message):
    assert READ.not_applicable(message)


@pytest.mark.parametrize(
    "message",
    [
        "fix the bug",
        "JC?",
        "¿qué?",
        "/home/me/x fails again today",
        "你好吗？",
        "¿cuándo es?",
        "JC moved to Lima last week",
    ],
)
def test_these_messages_are_searched_for(message):
    assert READ.not_applicable(message) == ""


def test_the_original_is_cut_at_500_characters():
    assert len(READ.queries("word " * 140)[0]) == 500
