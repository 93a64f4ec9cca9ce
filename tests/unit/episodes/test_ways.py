"""How the jobs of a project are run, from the trials of several sessions."""

from collections.abc import Sequence

import pytest
from msgspec.structs import replace
from tests.unit.episodes.events import ROOT, shell

from upwell.episodes.events import inside
from upwell.episodes.trials import Trial, TrialMiner
from upwell.episodes.triggers import Episode, triggers_of
from upwell.episodes.ways import Way, learned, with_trials

Call = tuple[str, str, bool]
"""A command, its result, and whether it failed."""
NOT_FOUND = "zsh: command not found: python"
NO_MODULE = "Traceback (most recent call last):\nModuleNotFoundError: No module named 'oven'"
NO_LID = "error: the option --lid is required"
REFUSED = "error: connection refused"


def trials(session: int, *calls: Call) -> list[Trial]:
    miner = TrialMiner()
    return [
        trial
        for place, (command, out, failed) in enumerate(calls)
        for trial in miner.feed(
            shell(command, out, i=100 * session + place, failed=failed, session=str(session))
        )
    ]


def taught(*sessions: Sequence[Call], job: str) -> list[Episode]:
    """What the sessions teach about a job, after the last of them."""
    ways: list[Way] = []
    episodes: Sequence[Episode] = []
    for number, calls in enumerate(sessions, start=1):
        own = [
            replace(trial, folder=inside(f"{trial.folder}/", ROOT).rstrip("/"))
            for trial in trials(number, *calls)
            if trial.job == job
        ]
        ways = with_trials(ways, own)
        episodes = learned(ways, min((trial.at for trial in own), default=0.0))
    return list(episodes)


def fails(command: str, out: str) -> Call:
    return (command, out, True)


def works(command: str) -> Call:
    return (command, "4 loaves", False)


@pytest.mark.parametrize(
    ("command", "job"),
    [
        ("python3.12 -m pytest tests/unit -q", "pytest"),
        ("uv run pytest tests/unit/test_oven.py", "pytest"),
        ("docker compose exec -T web pytest -q", "pytest"),
        ("docker exec -it -e A=1 web python -m pytest", "pytest"),
        ("kubectl exec -n prod pod -- pytest", "pytest"),
        ("ssh -p 22 cook@kitchen 'cd /srv && .venv/bin/pytest -q'", "pytest"),
        ("bash -lc 'npx vitest run'", "vitest run"),
        ("poetry run python scripts/bake.py bread --lid", "bake.py bread"),
        ("./scripts/bake.sh bread", "bake.sh bread"),
        ("npm run build", "run build"),
        ("bun run build --watch", "run build"),
        ("bun run src/cli.ts list", "cli.ts list"),
        ("gh run view 7", "gh run view"),
        ('.venv/bin/python -c "from kitchen.oven import bake"', "python -c kitchen"),
        ("npx prisma db execute --stdin", "prisma db execute"),
    ],
)
def test_commands_that_differ_in_their_launcher_do_the_same_job(command: str, job: str) -> None:
    assert [trial.job for trial in trials(1, works(command))] == [job]


@pytest.mark.parametrize(
    "command",
    [
        "python3 --version",
        "which python3",
        "pytest --help",
        "pytest | tail -5",
        "pytest; echo done",
        "pytest || true",
        "pytest & sleep 1",
        'python -c "print(1)"',
    ],
)
def test_what_only_looks_or_has_an_unknown_end_shows_nothing(command: str) -> None:
    assert trials(1, works(command)) == []


@pytest.mark.parametrize(
    ("command", "launcher"),
    [
        ("PYTHONPATH=. python3 -m pytest -q", "PYTHONPATH=. python -m"),
        ("/p/.venv/bin/pytest -q", ".venv/bin/pytest"),
        ("docker compose exec -T web pytest -q", "docker compose exec -T web pytest"),
        ("docker exec web sh -c 'cd /srv;pytest'", "docker exec web sh -c 'cd /srv;pytest'"),
    ],
)
def test_the_launcher_is_what_starts_the_program(command: str, launcher: str) -> None:
    assert [(trial.job, trial.launcher) for trial in trials(1, works(command))] == [
        ("pytest", launcher)
    ]


def test_without_an_exit_status_nothing_is_known_to_have_worked() -> None:
    event = replace(shell("npx bake bread", "4 loaves"), host="specstory")
    assert list(TrialMiner().feed(event)) == []
    assert list(TrialMiner().feed(replace(event, host="claude"))) != []


def test_half_the_answer_is_not_proposed() -> None:
    """`python3` existed, but it was not the Python that the project needs."""
    half = [
        fails("python -m bakery run", NOT_FOUND),
        works("python3 -m bakery run"),
        fails("python3 -m bakery run", NO_MODULE),
        works(".venv/bin/python -m bakery run"),
    ]
    (episode,) = taught(half, half, job="bakery run")
    assert "`.venv/bin/python -m bakery run` works" in episode.text


def test_a_way_that_failed_later_is_not_proposed() -> None:
    failed, worked = fails("python -m bakery run", NOT_FOUND), works("uv run python -m bakery run")
    broken = fails("uv run python -m bakery run", NO_MODULE)
    assert taught([failed], [worked], [worked, broken], job="bakery run") == []


def test_the_way_that_worked_last_wins() -> None:
    failed = fails("python -m bakery run --slow", NOT_FOUND)
    old, new = works("uv run python -m bakery run"), works(".venv/bin/python -m bakery run")
    (episode,) = taught([failed], [old], [old], [new], [new], job="bakery run")
    assert episode.text.startswith("`python -m bakery run` fails")
    assert "`.venv/bin/python -m bakery run` works" in episode.text


def test_another_job_of_the_same_program_proves_nothing() -> None:
    failed = fails("python scripts/bake.py", NO_MODULE)
    other = works("uv run python scripts/clean.py")
    assert taught([failed], [other], [other], job="bake.py") == []


def test_a_failure_that_has_passed_needs_no_remedy() -> None:
    failed, worked = fails("python -m bakery run", NO_MODULE), works("uv run python -m bakery run")
    mended = works("python -m bakery run")
    assert taught([failed, mended], [worked], [worked], job="bakery run") == []


def test_the_folder_in_which_it_works_is_named() -> None:
    missing = fails("npm run build", "npm error enoent Could not read package.json")
    worked = works("cd web && npm run build")
    (episode,) = taught([missing], [worked], [worked], job="run build")
    assert episode.text.endswith("; in `web`, `npm run build` works.")
    here = shell("npm run build", missing[1], failed=True)
    there = shell("cd web && npm run build", missing[1], failed=True)
    assert set(episode.triggers) & set(triggers_of(here))
    assert not set(episode.triggers) & set(triggers_of(there))


def test_code_that_is_left_out_is_not_shown_as_an_argument() -> None:
    failed = fails("python3 -c 'import oven; oven.heat()'", NO_MODULE)
    worked = works("cd web && .venv/bin/python -c 'import oven; oven.heat()'")
    (episode,) = taught([failed], [worked], [worked], job="python -c oven")
    assert episode.text.startswith("`python3` fails with")
    assert episode.text.endswith("; in `web`, `.venv/bin/python` works.")


def test_the_options_that_were_missing_are_shown() -> None:
    failed = fails("bake bread --slow", NO_LID)
    worked = works("bake bread --slow --lid")
    (episode,) = taught([failed], [worked], [worked], job="bake bread")
    assert episode.text == f'`bake bread --slow` fails with "{NO_LID}"; `{worked[0]}` works.'
    other = works("bake bread --list")
    assert taught([failed], [other], [other], job="bake bread") == []


def test_what_has_to_run_first_needs_two_sessions() -> None:
    session = [fails("bake bread", REFUSED), works("oven heat up"), works("bake bread")]
    assert taught(session, job="bake bread") == []
    (episode,) = taught(session, session, job="bake bread")
    assert episode.text == f'`bake bread` fails with "{REFUSED}" until `oven heat up` has run.'


def test_what_ran_first_in_vain_is_not_proposed() -> None:
    session = [fails("bake bread", REFUSED), works("oven heat up"), works("bake bread")]
    vain = [*session[:2], session[0]]
    assert taught(session, session, vain, job="bake bread") == []


@pytest.mark.parametrize("worked", ["sudo bake bread --lid", "bake bread --lid --token s3cr3t"])
def test_risky_and_secret_commands_are_not_proposed(worked: str) -> None:
    failed = fails("bake bread", NO_LID)
    assert taught([failed], [works(worked)], [works(worked)], job="bake bread") == []
