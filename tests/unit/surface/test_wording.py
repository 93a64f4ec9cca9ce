"""Questions and corrections by their first words, in five languages."""

import pytest

from upwell.surface.moments import is_correction, is_question


@pytest.mark.parametrize(
    "text",
    [
        "also how do I start the crane",
        "and where is the tide table",
        "ok, so what reads the gauge",
        "thanks! now which berth is free",
        "hmm, is the crane locked",
        "so when did we drop the old gauge",
        "cómo se arranca la grúa",
        "bueno, dónde está la tabla",
        "como puedo leer el nivel",
        "wie startet der Kran",
        "und warum steht die Tabelle leer",
        "gibt es ein Skript dafür",
        "comment faire pour lancer la grue",
        "et où est la table",
        "quelle grue est libre",
        "como eu rodo os testes",
        "onde fica a tabela",
        "então qual é a porta",
    ],
)
def test_words_that_lead_over_do_not_hide_a_question(text: str) -> None:
    assert is_question(text)


@pytest.mark.parametrize(
    "text",
    [
        "and do the same for the crane",
        "ok, can you lift the box",
        "and where possible, use the tide table",
        "also what I said about the gauge holds",
        "so when you are done, lock the crane",
        "and which means the gauge is off",
        "comment out the crane",
        "comment on the pull request that the gauge is off",
        "pare down the list of berths",
        "die after the third retry",
        "also add the crane",
        "como ya dije usa la tabla",
        "wie gesagt, nimm die Tabelle",
    ],
)
def test_a_request_is_no_question(text: str) -> None:
    assert not is_question(text)


@pytest.mark.parametrize(
    "text",
    [
        "no, use the tide table",
        "no, usa la tabla",
        "siempre usa pnpm",
        "nunca borres la tabla",
        "eso no, te dije la otra grúa",
        "nein, nimm die Tabelle",
        "immer die Tabelle nehmen",
        "niemals direkt pushen",
        "wie gesagt, nimm die Tabelle",
        "non, utilise la table",
        "toujours lancer les tests",
        "ne lance jamais la grue",
        "n'utilise pas npm",
        "não, use a tabela",
        "sempre rode os testes",
        "nunca apague a tabela",
    ],
)
def test_a_correction_is_known_in_five_languages(text: str) -> None:
    assert is_correction(text)


@pytest.mark.parametrize(
    "text",
    [
        "non-blocking reads of the gauge",
        "non blocking reads would help",
        "immer noch leer",
        "toujours pas de table",
        "para la grúa usa dos hilos",
        "não funciona a tabela",
        "pare down the list",
        "niece berths are nice",
        "add the crane",
    ],
)
def test_words_that_only_look_alike_are_no_correction(text: str) -> None:
    assert not is_correction(text)
