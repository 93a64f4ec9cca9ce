"""Episodes concluded from the events of a session."""

from collections.abc import Iterable

import pytest
from tests.unit.episodes.events import ROOT, call, prompt, shell

from upwell.episodes.events import ACCEPTED_PLAN, SessionEvent
from upwell.episodes.miner import EpisodeMiner
from upwell.episodes.triggers import Episode, EpisodeKind, triggers_of

NO_PATH = "Error: Either --session or --path must be provided"


def mined(events: Iterable[SessionEvent]) -> list[Episode]:
    miner = EpisodeMiner()
    return [episode for event in events for episode in miner.feed(event)] + list(miner.end())


def learned(*calls: tuple[str, str, bool]) -> list[str]:
    """The conclusions from shell calls: command, answer, whether it failed."""
    return [
        episode.text
        for episode in mined(
            shell(command, out, i=place, failed=failed)
            for place, (command, out, failed) in enumerate(calls)
        )
    ]


def test_no_sentence_of_an_accepted_plan_is_a_rule() -> None:
    rule = "Never push to main without asking."
    assert [episode.kind for episode in mined([prompt(rule)])] == [EpisodeKind.RULE]
    assert mined([prompt(f"{ACCEPTED_PLAN}Oil the pump. {rule}")]) == []
    assert mined([prompt(f"{ACCEPTED_PLAN}{rule}")]) == []


def test_a_working_command_is_given_where_the_other_fails_again() -> None:
    failed = shell("cd /p && kiln git pr 2>&1", NO_PATH, i=1, failed=True)
    (episode,) = mined([failed, shell("kiln git pr --path .", "# Pull request", i=2)])
    assert episode.kind is EpisodeKind.COMMAND
    assert episode.text == f'`kiln git pr` fails with "{NO_PATH}"; `kiln git pr --path .` works.'
    assert episode.evidence == (1, 2)
    assert episode.at == 2.0
    assert episode.triggers == triggers_of(shell("kiln git pr > pr.md", NO_PATH, failed=True))


@pytest.mark.parametrize(
    ("failed", "error", "worked"),
    [
        ("kiln push", "zsh: command not found: kiln", "npx kiln push"),
        ("kiln push", "zsh: command not found: kiln", "bun run src/cli.ts push"),
        (
            "bun run src/index.ts list",
            'error: Module not found "src/index.ts"',
            "bun run src/cli.ts list",
        ),
        ("kiln task get 7", "error: unknown command 'task'", "kiln tasks get 7"),
        ("ls *.cfg", "zsh: no matches found: *.cfg", "ls '*.cfg'"),
    ],
)
def test_the_same_request_called_in_another_way(failed: str, error: str, worked: str) -> None:
    (text,) = learned((failed, error, True), (worked, "fine", False))
    assert text == f'`{failed}` fails with "{error.replace(chr(34), chr(39))}"; `{worked}` works.'


@pytest.mark.parametrize(
    ("failed", "error", "worked"),
    [
        ("kiln pr view", "error: unknown option '--web'", "kiln issue list"),
        ("kiln pr --web", "error: unknown option '--web'", "kiln pr --web --yes"),
        ("kiln pr --web", "error: unknown option '--web'", "kiln pr"),
        ("kiln pr", NO_PATH, "kiln pr --help"),
        ("kiln pr", NO_PATH, "kiln pr --force"),
        ("kiln pr", NO_PATH, "kiln pr --path /tmp/x1"),
        ("kiln pr", NO_PATH, "kiln pr --token s3cr3t"),
        ("kiln pr", NO_PATH, "cat x | kiln pr --path ."),
        ("npm run test:unit", "npm error Missing script: 'test:unit'", "npm run test:web"),
        ("node a.js", "Error: Cannot find module 'left-pad'", "node b.js"),
        ("timeout 9 kiln run", "zsh: command not found: timeout", "kiln run"),
    ],
)
def test_a_command_for_another_purpose_gives_no_episode(
    failed: str, error: str, worked: str
) -> None:
    assert learned((failed, error, True), (worked, "fine", False)) == []


def test_an_edit_between_the_calls_may_have_been_the_remedy() -> None:
    events = [
        shell("kiln pr", NO_PATH, failed=True),
        call("Edit", "updated", file_path=f"{ROOT}/src/cli/pull_request.ts"),
        shell("kiln pr --path .", "fine"),
    ]
    assert [episode.kind for episode in mined(events)] == [EpisodeKind.PLACE]


def test_an_accident_of_the_folder_gives_no_episode() -> None:
    missing = 'error: Script not found "lint"'
    rerun = ("cd /p && kiln run lint", "3 findings", True)
    calls = [("kiln run lint", missing, True), rerun, ("kiln run lint:fix", "fixed", False)]
    assert learned(*calls) == []
    assert len(learned(calls[0], calls[2])) == 1


def test_a_command_long_after_the_failure_is_not_a_remedy() -> None:
    between = [("ls", "a", False)] * 5
    assert learned(("kiln pr", NO_PATH, True), *between, ("kiln pr --path .", "ok", False)) == []


def test_a_service_that_must_run_first() -> None:
    error = "error: connection refused"
    (text,) = learned(
        ("kiln migrate", error, True),
        ("docker compose up -d db", "started", False),
        ("kiln migrate", "2 applied", False),
    )
    start = "docker compose up -d db"
    assert text == f'`kiln migrate` fails with "{error}" until `{start}` has run.'


def test_a_repeated_failure_gives_one_episode() -> None:
    failed = ("kiln pr", NO_PATH, True)
    assert len(learned(failed, failed, failed, ("kiln pr --path .", "ok", False))) == 1


@pytest.mark.parametrize(
    "path",
    [
        "/other/src/session-store.ts",
        "~/session-store.ts",
        f"{ROOT}/node_modules/a/session-store.ts",
    ],
)
def test_files_outside_the_project_give_no_episode(path: str) -> None:
    assert mined([call("Read", "export", file_path=path)]) == []


def test_the_place_of_a_definition_answers_a_futile_search_for_its_name() -> None:
    found = call("Grep", "src/s.go:9:type SessionState struct {", pattern="SessionState struct")
    (episode,) = mined([found])
    assert episode.text == "`SessionState` is defined in `src/s.go`."
    assert (episode.paths, episode.identifiers) == (("src/s.go",), ("SessionState",))
    vain = call("Grep", "No matches found", pattern="type SessionState struct", path="src/cli")
    assert triggers_of(vain) == episode.triggers


def test_a_name_with_many_definitions_has_no_place() -> None:
    lines = [f"src/{name}.go:9:func SaveChanges() {{" for name in "abc"]
    assert mined([call("Grep", "\n".join(lines), pattern="SaveChanges")]) == []
    quoted = "docs/design.md:4:func SaveChanges() error"
    assert mined([call("Grep", quoted, pattern="SaveChanges")]) == []


def test_a_ticket_leads_to_the_file_that_bears_its_name() -> None:
    path = "process/tasks/045-add-a-kiln.md"
    events = [
        prompt("start working on task 045", i=1),
        call("Read", "text", i=2, file_path=f"{ROOT}/src/a.ts"),
        call("Read", "text", i=3, file_path=f"{ROOT}/{path}"),
    ]
    tickets = [each for each in mined(events) if each.kind is EpisodeKind.TICKET]
    assert [(each.text, each.triggers, each.evidence) for each in tickets] == [
        (f"Earlier work on ticket 45 began with `{path}`.", ("ticket:45",), (1, 3))
    ]


@pytest.mark.parametrize(
    ("prompted", "file", "is_its_file"),
    [
        ("fix issue #45", "db/migrations/0045_users.sql", False),
        ("fix issue #45", "tests/test_issue_45.py", True),
        ("fix issue #45", "notes/45.md", True),
        ("work on KILN-45", "src/kiln-45/lid.ts", True),
    ],
)
def test_a_number_in_a_source_file_does_not_make_it_a_tickets_file(
    prompted: str, file: str, is_its_file: bool
) -> None:
    edit = call("Edit", "done", i=2, file_path=f"{ROOT}/{file}", old_string="a", new_string="b")
    kinds = [episode.kind for episode in mined([prompt(prompted, i=1), edit])]
    assert (EpisodeKind.TICKET in kinds) is is_its_file
    assert not [key for key in triggers_of(edit) if key.startswith("ticket:")]


def test_an_endless_session_keeps_a_bounded_number_of_episodes() -> None:
    miner = EpisodeMiner()
    for number in range(3_000):
        miner.feed(call("Read", "x", i=number, file_path=f"{ROOT}/src/kiln_file_{number}.py"))
        out = f"src/a{number}.py:1:def kiln_name_{number}():"
        miner.feed(call("Grep", out, i=number, pattern=f"kiln_name_{number}"))
        miner.feed(shell(f"kiln{number} pr", NO_PATH, failed=True))
    assert len(miner.end()) <= 512 + 256
