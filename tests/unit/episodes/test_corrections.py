"""Rules that a user lays down for the agent's work, and sentences that only look like them."""

import pytest

from upwell.episodes.corrections import rules_in, sentences
from upwell.episodes.events import Kind, SessionEvent
from upwell.episodes.miner import EpisodeMiner
from upwell.episodes.triggers import EpisodeKind


@pytest.mark.parametrize(
    ("sentence", "rule"),
    [
        (
            "Always run the migrations before the tests.",
            "Always run the migrations before the tests.",
        ),
        (
            "Thanks. please never push to the release branch directly\nGo on.",
            "Never push to the release branch directly.",
        ),
        ("no, never `pnpm link` the draft package.", "Never `pnpm link` the draft package."),
        (
            "In this repo we never edit the generated clients by hand.",
            "We never edit the generated clients by hand.",
        ),
        (
            "when working with yaml files, never use sed, but rather yq",
            "When working with yaml files, never use sed, but rather yq.",
        ),
        (
            "Make sure you always add a test for each fix.",
            "Make sure you always add a test for each fix.",
        ),
        (
            "You should not be editing files in the release folder.",
            "You should not be editing files in the release folder.",
        ),
        (
            "don't commit anything without asking me",
            "Don't commit anything without asking me.",
        ),
        (
            "please use the same quotes that the linter expects from now on",
            "Use the same quotes that the linter expects from now on.",
        ),
        (
            'From now on, never ask me questions like "Shall I go on?" in a pull request.',
            'From now on, never ask me questions like "Shall I go on?" in a pull request.',
        ),
        (
            "Always write the tests of a module beside the source files, as the linter\n"
            "expects and the build needs.",
            "Always write the tests of a module beside the source files, as the linter expects "
            "and the build needs.",
        ),
        (
            "always run the linter before a commit in this repo",
            "Always run the linter before a commit.",
        ),
        (
            "Don't use git push --force on this repo, ever.",
            "Don't use git push --force, ever.",
        ),
        (
            "For this project, always run the tests with tox.",
            "Always run the tests with tox.",
        ),
        (
            "Never work on this codebase without reading the docs.",
            "Never work on this codebase without reading the docs.",
        ),
        (
            "Always follow the names used in this repository.",
            "Always follow the names used in this repository.",
        ),
        ("You must never commit on this repo.", "You must never commit on this repo."),
        ("thanks, never commit the lock file", "Never commit the lock file."),
        ("no, use pnpm, not npm, in this repository", "Use pnpm, not npm."),
        ("We use tox instead of nox in this repo.", "We use tox instead of nox."),
        (
            "No, always run the migrations before the tests: make db-migrate",
            "Always run the migrations before the tests: make db-migrate.",
        ),
        ("Great, always run the linter first.", "Always run the linter first."),
        ("perfect! never commit the lock file", "Never commit the lock file."),
        ("good - always run the linter first", "Always run the linter first."),
        ("Please remember: never commit the lock file.", "Never commit the lock file."),
        ("Never edit the schema file, it is generated.", "Never edit the schema file."),
        (
            "Always run the linter before a commit, since it's what the build expects.",
            "Always run the linter before a commit.",
        ),
        (
            "Never edit the schema file, the build generates the schema.",
            "Never edit the schema file, the build generates the schema.",
        ),
        (
            "Never edit the schema file in this repo, it is generated.",
            "Never edit the schema file.",
        ),
    ],
)
def test_a_rule_about_the_work_is_a_whole_sentence(sentence: str, rule: str) -> None:
    assert list(rules_in(sentence)) == [rule]


@pytest.mark.parametrize(
    "sentence",
    [
        "Can you always run the tests?",
        "fix the parser",
        "never mind, leave the tests alone",
        "I never saw this error before, what is it?",
        "```\nalways use strict mode here\n```",
        "<system-reminder>Always call the tool first.</system-reminder>",
        "it always fails on my machine",
        "Let's go with Postgres for the queue.",
        "Let's go with option B.",
        "We decided to keep the old endpoint until June.",
        "Never do that again, please, not in any file.",
        "Always check these before the next release:",
        "From now on, we do it like in the example below.",
        "Always format the code with black.\n" + "x" * 2_000,
        "no, tasks.md should always use that normal format.",
        "Make sure to always show one table and refresh the card.",
        "whenever a button is pressed, always show the content of the filter.",
        "if none is given, always freeze the first and the last column",
        "Make sure a team is always using one colour.",
        "Don't write any code yet, explain the plan first.",
        "don't touch the other commands for now",
        "use the flat layout, not the nested layout",
        "use the second option, not the first, in this repo",
        "Always check what follows: is it a test?",
        "Never use the new parser in step 3 of the plan.",
        "Always add the header (e.g. the one in the docs to the files.",
        "If anything is unclear, please ask me about the tests.",
        "Before we begin, please write a plan for the tests.",
        "We should always return the number of rows to the user.",
        "we just added a function and said never use join in the code",
        "Always use tabs in the code, but not in this repo.",
        "Always use the same linter as in this repo.",
        "Never use the build script for this project's siblings.",
        "Always show the total on each page in this project.",
        "Always add a friendly greeting in this project with a smile.",
        "Good tests are always in this repo and short.",
        "Never edit the schema file, it is generated for now.",
        "Never run the migrations, it is the new table that matters.",
        "Never edit the schema file, it should be generated by the other script.",
        "Never commit the lock file, it is only for the release.",
        "Don't edit the schema file, it is generated.",
        "Never touch the parser tests, this refactoring is about the lexer.",
        "Never touch the parser tests, this is about the lexer.",
        "Always mock the database in tests, it's just a prototype.",
    ],
)
def test_orders_for_one_task_and_product_requirements_are_not_rules(sentence: str) -> None:
    assert list(rules_in(sentence)) == []


@pytest.mark.parametrize(
    "sentence",
    [
        "Siempre usa pnpm para instalar paquetes.",
        "Nunca hagas push a la rama main.",
        "De ahora en adelante ejecuta los tests antes del commit.",
        "Nunca borres archivos en este repo.",
        "Verwende immer pnpm für neue Pakete.",
        "Niemals direkt auf den Branch main pushen.",
        "Ab jetzt vor jedem Commit die Tests ausführen.",
        "Utilise toujours pnpm pour les paquets.",
        "Ne pousse jamais sur la branche main.",
        "N'utilise jamais npm pour installer des paquets.",
        "Désormais lance les tests avant chaque commit.",
        "Sempre use pnpm para instalar pacotes.",
        "Nunca faça push para o branch main.",
        "A partir de agora rode os testes antes do commit.",
    ],
)
def test_a_rule_may_be_in_another_language(sentence: str) -> None:
    assert list(rules_in(sentence)) == [sentence]
    assert list(rules_in(f"no, {sentence}")) == [sentence]


@pytest.mark.parametrize(
    "sentence",
    [
        "Siempre muestra el total en la última fila.",
        "Siempre usa el color azul en los botones.",
        "Nunca vi ese error en los tests antes.",
        "El script siempre usa la rama equivocada.",
        "Siempre que corro los tests falla el lint.",
        "Immer wieder schlagen die Tests auf main fehl.",
        "Das Skript nimmt immer den falschen Branch.",
        "Toujours pas de tests dans la branche main.",
        "Le script utilise toujours la mauvaise branche.",
        "Sempre que rodo os testes dá erro no lint.",
        "Nunca usa isso no próximo commit do branch.",
        "The user has no say, toujours or not, in tests.",
    ],
)
def test_other_sentences_in_these_languages_are_no_rules(sentence: str) -> None:
    assert list(rules_in(sentence)) == []


def rules_after(*prompts: str) -> list[tuple[str, tuple[str, ...]]]:
    miner = EpisodeMiner()
    events = [
        SessionEvent(session="s", i=i, t=float(i), kind=Kind.PROMPT, text=text, cwd="/repo")
        for i, text in enumerate(prompts)
    ]
    episodes = [episode for event in events for episode in miner.feed(event)]
    assert all(episode.kind is EpisodeKind.RULE for episode in episodes)
    return [(episode.text, episode.paths) for episode in episodes]


def test_a_rule_about_a_folder_or_a_glob_is_restricted_to_it() -> None:
    assert rules_after("Never edit files in src/generated/ by hand.") == [
        ("Never edit files in src/generated/ by hand.", ("src/generated/**",))
    ]
    assert rules_after("Always use named exports in `web/**/*.ts` files.") == [
        ("Always use named exports in `web/**/*.ts` files.", ("web/**/*.ts",))
    ]
    assert rules_after("Add a parser.", "No, never use regular expressions on our code.") == [
        ("Never use regular expressions on our code.", ())
    ]


def test_what_the_user_quotes_is_not_the_users_rule() -> None:
    review = "Anna writes:\n> Never import from lodash directly.\n> Always run the linter first.\n"
    own = "Always run the tests before you commit."
    found = list(sentences(review + own))
    assert own in found
    assert not [sentence for sentence in found if "lodash" in sentence or "linter" in sentence]
