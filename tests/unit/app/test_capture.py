"""Learning from sessions: after a turn, and from the transcripts of the past."""

import json
import os
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.unit.replay import samples

from upwell.app import App, Settings, build
from upwell.app.capture import MAX_TURN_BYTES, Gain, SessionCapture
from upwell.app.review import accept
from upwell.capture.inbox import inbox_at
from upwell.replay.transcripts import transcripts_at
from upwell.surface.rules import scope_of


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "kitchen" / ".git").mkdir(parents=True)
    return tmp_path / "kitchen"


def message(role: str, content: object, project: Path) -> str:
    entry = {"type": role, "sessionId": "s", "cwd": str(project)}
    return json.dumps(entry | {"message": {"role": role, "content": content}}) + "\n"


def call(project: Path, number: int, tool: str, args: object, out: str, *, failed=False) -> str:
    use = {"type": "tool_use", "id": f"t{number}", "name": tool, "input": args}
    result = {"type": "tool_result", "tool_use_id": f"t{number}", "content": out}
    return message("assistant", [use], project) + message(
        "user", [result | {"is_error": failed}], project
    )


def bash(project: Path, number: int, command: str, out: str, *, failed: bool = False) -> str:
    return call(project, number, "Bash", {"command": command}, out, failed=failed)


def usage(project: Path, worked: str = "bake bread --lid") -> str:
    error = "Exit code 2\nerror: the option --lid is required"
    return bash(project, 1, "bake bread", error, failed=True) + bash(project, 2, worked, "done")


async def test_after_a_turn_its_episodes_wait_in_the_inbox(
    app: App, project: Path, tmp_path: Path
) -> None:
    transcript = tmp_path / "s.jsonl"
    rule = message("user", "Always bake with the lid on the pot.", project)
    read = call(project, 9, "Read", {"file_path": f"{project}/src/big_oven_door.py"}, "code")
    transcript.write_text(rule + usage(project) + read)
    gain = await app.session_capture().end_turn(str(transcript), "s", str(project))
    assert (gain.proposed, gain.stored) == (2, 0)
    assert gain.places >= 1
    rule_found, episode = inbox_at(app.config.home.inbox_file).waiting()
    assert rule_found.text == "Always bake with the lid on the pot."
    assert "`bake bread --lid` works" in episode.text
    assert (episode.project, len(episode.triggers)) == (str(project), 1)


async def test_a_turn_is_read_once(app: App, project: Path, tmp_path: Path) -> None:
    transcript = tmp_path / "s.jsonl"
    transcript.write_text(usage(project))
    capture = app.session_capture()
    assert (await capture.end_turn(str(transcript), "s", str(project))).proposed == 1
    assert await capture.end_turn(str(transcript), "s", str(project)) == Gain()
    with transcript.open("a") as file:
        file.write(message("user", "Never bake without an apron on.", project))
    assert (await capture.end_turn(str(transcript), "s", str(project))).proposed == 1


async def test_a_transcript_that_can_only_be_read_whole_is_left_to_a_later_reading(
    app: App, project: Path, tmp_path: Path
) -> None:
    path = samples.gemini(tmp_path)
    assert await app.session_capture().end_turn(str(path), "s", str(project)) == Gain()
    (transcript,) = transcripts_at([path])
    assert (await app.session_capture().read(transcript)).read_before == 0


async def test_of_a_long_turn_the_end_is_read(app: App, project: Path, tmp_path: Path) -> None:
    transcript = tmp_path / "s.jsonl"
    long = message("assistant", "x" * MAX_TURN_BYTES, project)
    new = message("user", "Never bake without an apron on.", project)
    transcript.write_text(usage(project) + long + new)
    gain = await app.session_capture().end_turn(str(transcript), "s", str(project))
    assert gain.proposed == 1


async def test_files_that_are_not_the_users_transcripts_give_nothing(
    app: App, project: Path, tmp_path: Path
) -> None:
    real, link = tmp_path / "s.jsonl", tmp_path / "link.jsonl"
    real.write_text(usage(project))
    link.symlink_to(real)
    (tmp_path / "other.jsonl").write_text("not json")
    os.mkfifo(tmp_path / "pipe.jsonl")
    capture = app.session_capture()
    for path in ("", "s.jsonl", str(tmp_path), str(link), f"{tmp_path}/gone", "/etc/passwd"):
        assert await capture.end_turn(path, "s", str(project)) == Gain()
    for name in ("other.jsonl", "pipe.jsonl"):
        assert await capture.end_turn(f"{tmp_path}/{name}", "s", str(project)) == Gain()


async def test_a_transcript_that_is_read_again_counts_nothing_twice(
    app: App, project: Path, tmp_path: Path
) -> None:
    (tmp_path / "a.jsonl").write_text(usage(project))
    (transcript,) = transcripts_at([tmp_path / "a.jsonl"])
    capture = app.session_capture(accepts=True)
    assert (await capture.read(transcript)).stored == 1
    again = await capture.read(transcript, again=True)
    assert (again.stored, again.strengthened, again.proposed) == (0, 0, 0)
    (memory,) = await app.memory.list()
    assert memory.occurrences == 1


async def test_an_episode_found_again_is_counted_and_not_added(
    app: App, project: Path, tmp_path: Path
) -> None:
    capture = app.session_capture(accepts=True)
    for name in "ab":
        own = usage(project).replace('"sessionId": "s"', f'"sessionId": "{name}"')
        (tmp_path / f"{name}.jsonl").write_text(own)
    gains = [
        await capture.end_turn(f"{tmp_path}/{name}.jsonl", name, str(project)) for name in "ab"
    ]
    assert [(gain.stored, gain.strengthened) for gain in gains] == [(1, 0), (0, 1)]
    (memory,) = await app.memory.list()
    assert memory.occurrences == 2


def dated(text: str, session: str, minute: int) -> str:
    """The same session under another name, at another time."""
    records = [json.loads(line) for line in text.splitlines()]
    stamp = {"sessionId": session, "timestamp": f"2026-11-20T10:{minute:02d}:00.000Z"}
    return "".join(json.dumps(record | stamp) + "\n" for record in records)


@pytest.mark.parametrize(("minutes", "count"), [((1, 1, 1), 1), ((1, 2, 1, 2, 3), 3)])
async def test_forks_of_a_session_confirm_nothing(
    app: App, project: Path, tmp_path: Path, minutes: tuple[int, ...], count: int
) -> None:
    """A fork repeats the earlier records, with their times, under its own name."""
    capture, accepting = app.session_capture(), app.session_capture(accepts=True)
    for each in (capture, accepting):
        for number, minute in enumerate(minutes):
            path = tmp_path / f"{number}.jsonl"
            path.write_text(dated(usage(project), str(number), minute))
            await each.read(transcripts_at([path])[0], again=True)
        if each is capture:
            (proposal,) = inbox_at(app.config.home.inbox_file).waiting()
            assert (proposal.occurrences, proposal.is_habit) == (count, count == 3)
    (memory,) = await app.memory.list()
    assert memory.occurrences == count


async def test_a_rewritten_transcript_is_read_again(
    app: App, project: Path, tmp_path: Path
) -> None:
    path, capture = tmp_path / "s.jsonl", app.session_capture()
    path.write_text(usage(project) + message("user", "Go on. " * 200, project))
    await capture.end_turn(str(path), "s", str(project))
    path.write_text(message("user", "Always bake with the lid on the pot.", project))
    assert (await capture.end_turn(str(path), "s", str(project))).proposed == 1
    path.write_text(message("user", "Always bake bread with the oven light on.", project))
    assert (await capture.read(transcripts_at([path])[0])).proposed == 1


async def test_a_refused_episode_stays_out(app: App, project: Path, tmp_path: Path) -> None:
    capture = app.session_capture()
    box = inbox_at(app.config.home.inbox_file)
    (tmp_path / "a.jsonl").write_text(usage(project))
    await capture.end_turn(f"{tmp_path}/a.jsonl", "a", str(project))
    box.take([one.id for one in box.waiting()])
    (tmp_path / "b.jsonl").write_text(usage(project))
    for each in (capture, app.session_capture(accepts=True)):
        await each.end_turn(f"{tmp_path}/b.jsonl", "b", str(project))
    assert box.waiting() == []
    assert await app.memory.list() == []


async def test_the_next_session_receives_what_this_one_learned(
    tmp_path: Path, project: Path
) -> None:
    app = await build(Settings(home=tmp_path / "home", environment={}))
    door, transcript = app.hooks(), tmp_path / "s.jsonl"
    transcript.write_text(usage(project))

    async def answer(name: str, session: str, **fields: object) -> str:
        payload = {"hook_event_name": name, "session_id": session, "cwd": str(project), **fields}
        return (await door.answer("claude", "", json.dumps(payload).encode())).decode()

    failure = {"tool_name": "Bash", "tool_input": {"command": "bake bread"}}
    failure |= {"error": "Exit code 2\nerror: the option --lid is required"}
    assert await answer("PostToolUseFailure", "one", **failure) == "{}"
    capture = app.session_capture(accepts=True)
    await capture.end_turn(str(transcript), "one", str(project))
    await door.aclose()
    assert "`bake bread --lid` works" in await answer("PostToolUseFailure", "two", **failure)
    assert await answer("PostToolUseFailure", "two", **failure) == "{}"
    (spoken,) = [one for one in await app.decisions() if one["outcome"] == "surfaced"]
    assert spoken["situation"].endswith("of `bake bread`")
    await app.aclose()


async def test_past_transcripts_are_read_once(app: App, project: Path, tmp_path: Path) -> None:
    path = tmp_path / "old" / "s.jsonl"
    path.parent.mkdir()
    path.write_text(usage(project))
    (transcript,) = transcripts_at([path])
    capture: SessionCapture = app.session_capture()
    assert (await capture.read(transcript)).proposed == 1
    assert await capture.read(transcript) == Gain(read_before=1)


async def test_a_session_in_a_folder_that_is_gone_teaches_nothing(
    app: App, project: Path, tmp_path: Path
) -> None:
    path = tmp_path / "s.jsonl"
    path.write_text(usage(project.with_name("gone")))
    (transcript,) = transcripts_at([path])
    assert await app.session_capture().read(transcript) == Gain()


def test_gains_add_up() -> None:
    gain = Gain(proposed=1, places=2, read_before=1)
    gain.add(replace(gain, stored=3))
    assert gain == Gain(proposed=2, stored=3, places=4, read_before=2)


async def test_sessions_learn_together_how_to_run_a_program(
    app: App, project: Path, tmp_path: Path
) -> None:
    """The form that worked is known from two sessions before another session fails."""
    right = "uv run python -m bakery bake"
    turns = [(right, "4 loaves"), (right, "4 loaves"), ("python3 -m bakery bake", "")]
    capture = app.session_capture()
    for number, (command, out) in enumerate(turns, start=1):
        path = tmp_path / f"{number}.jsonl"
        missing = "ModuleNotFoundError: No module named 'oven'"
        record = bash(project, number, command, out or missing, failed=not out)
        path.write_text(dated(record, str(number), number))
        await capture.end_turn(str(path), str(number), str(project))
    (proposal,) = inbox_at(app.config.home.inbox_file).waiting()
    assert proposal.text == f'`python3 -m bakery bake` fails with "{missing}"; `{right}` works.'
    assert (proposal.session, proposal.project) == ("3", str(project))


async def test_how_to_run_something_is_forgotten_with_what_was_learned(
    app: App, project: Path, tmp_path: Path
) -> None:
    (tmp_path / "a.jsonl").write_text(usage(project))
    capture = app.session_capture()
    await capture.end_turn(f"{tmp_path}/a.jsonl", "a", str(project))
    holdings = await capture.holdings()
    assert len(holdings.ways) == 1
    await capture.forget(holdings)
    assert (await capture.holdings()).ways == frozenset()


async def fail(app: App, project: Path, folder: Path, number: int) -> None:
    """A session in which the same command fails in the same way as in the others."""
    record = bash(project, number, "oven heat --up", "zsh: command not found: oven", failed=True)
    path = folder / f"{number}.jsonl"
    path.write_text(dated(record, str(number), number))
    await app.session_capture().end_turn(str(path), str(number), str(project))


async def test_the_same_mistake_in_a_third_session_is_proposed_as_a_rule_once(
    app: App, project: Path, tmp_path: Path
) -> None:
    box = inbox_at(app.config.home.inbox_file)
    for number in (1, 2):
        await fail(app, project, tmp_path, number)
    assert box.waiting() == []
    await fail(app, project, tmp_path, 3)
    (proposal,) = box.waiting()
    assert proposal.text == (
        '`oven heat` fails here with "zsh: command not found: oven". Do not repeat it as it is.'
    )
    assert (proposal.kind, proposal.occurrences) == ("rule", 3)
    assert await app.memory.list() == []
    box.take([proposal.id])
    for number in (4, 5, 6):
        await fail(app, project, tmp_path, number)
    assert box.waiting() == []


async def test_a_rule_against_a_mistake_holds_for_that_command(
    app: App, project: Path, tmp_path: Path
) -> None:
    box = inbox_at(app.config.home.inbox_file)
    for number in (1, 2, 3):
        await fail(app, project, tmp_path, number)
    (rule,), _ = await accept(app, box, box.waiting())
    assert (rule.pinned, scope_of(rule).tools) == (True, ("Bash(oven heat*)",))
    assert box.waiting() == []
