"""The index of past sessions, over real transcripts: what it finds, and how it follows them."""

import json
import os
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
from tests.unit.replay import samples

from upwell.episodes.events import SessionEvent
from upwell.ground.errors import UsageError
from upwell.replay.transcripts import Transcript, transcripts_at
from upwell.replay.transcripts.base import ReadTally
from upwell.sessions import index as index_module
from upwell.sessions import tables
from upwell.sessions.answer import answers_to, changes_of
from upwell.sessions.index import SessionIndex, SessionScope, read_turn

ANYWHERE = SessionScope()


def said(text: str, at: str, **more: object) -> dict:
    return samples.claude_record("assistant", at, [{"type": "text", "text": text}], **more)


def asked(text: str, at: str, **more: object) -> dict:
    return samples.claude_record("user", at, text, **more)


def session(folder: Path, number: int, *records: dict) -> Path:
    name = f"{number:08d}-90f1-4e92-b3e2-6ba4449b9d70"
    return samples.lines(folder / f"{name}.jsonl", records)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "sessions").mkdir()
    return tmp_path / "sessions"


@pytest.fixture
async def index(tmp_path: Path, folder: Path) -> AsyncIterator[SessionIndex]:
    opened = SessionIndex(tmp_path / "sessions.db", lambda: transcripts_at([folder]))
    yield opened
    await opened.aclose()


async def questions(index: SessionIndex, text: str, scope: SessionScope = ANYWHERE) -> list[str]:
    return [found.turn.question for found in await index.search(text, scope, 5)]


@pytest.mark.parametrize(
    "write",
    [samples.claude, samples.codex, samples.gemini, samples.gemini_lines, samples.copilot],
)
async def test_a_turn_is_read_from_the_transcript_of_every_host(
    index: SessionIndex, folder: Path, write: Callable[[Path], Path]
) -> None:
    write(folder)
    await index.refresh()
    (found,) = await index.search("pump tide buoys mooring", ANYWHERE, 5)
    turn = read_turn(found)
    assert turn is not None
    assert turn.question == found.turn.question
    assert await index.located(found.locator) == await index.located(samples.SESSION)


async def test_an_error_is_met_again_by_its_signature(index: SessionIndex, folder: Path) -> None:
    error = "Error: /home/ana/pump.c:12: valve 7 is missing"
    session(
        folder,
        1,
        asked("Build it", "10:00:00"),
        samples.claude_call("10:00:01", "Bash", command="make valve"),
        samples.claude_result("10:00:02", error, is_error=True),
        said("I add the file.", "10:00:03"),
    )
    session(folder, 2, asked("Is a valve of the pump missing?", "10:00:00"))
    await index.refresh()
    seen = "Error: /tmp/ci/pump.c:99: valve 3 is missing"
    assert (await questions(index, seen))[0] == "Build it"


async def test_a_long_session_is_read_on_from_its_last_turn(
    index: SessionIndex, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = session(
        folder,
        1,
        asked("First", "10:00:00"),
        said("One.", "10:00:01"),
        asked("Second", "10:01:00"),
    )
    await index.refresh()
    starts: list[int] = []
    read = Transcript.events

    def recorded(
        self: Transcript, start: int = 0, tally: ReadTally | None = None
    ) -> Iterator[SessionEvent]:
        starts.append(start)
        return read(self, start, tally)

    monkeypatch.setattr(Transcript, "events", recorded)
    with path.open("a") as file:
        file.write(json.dumps(said("The answer is a gasket.", "10:01:01")) + "\n")
        file.write(json.dumps(asked("Third", "10:02:00")) + "\n")
    await index.refresh()
    assert min(starts) > 0
    (found,) = await index.search("gasket", ANYWHERE, 5)
    assert (found.turn.question, found.turn.number) == ("Second", 1)
    assert await index.counts() == (1, 3)


async def test_a_rewritten_transcript_replaces_its_session(
    index: SessionIndex, folder: Path
) -> None:
    session(folder, 1, asked("Why does the pump stall?", "10:00:00"), said("Dirt.", "10:00:01"))
    await index.refresh()
    session(folder, 1, asked("And the crane?", "10:05:00"))
    await index.refresh()
    assert await questions(index, "pump stall") == []
    assert await questions(index, "crane") == ["And the crane?"]
    assert await index.counts() == (1, 1)


async def test_a_turn_that_gains_only_a_file_is_found_by_it(
    index: SessionIndex, folder: Path
) -> None:
    question = asked("Repair it", "10:00:00")
    edit = {"type": "tool_use", "id": "1", "name": "Write", "input": {"file_path": "/p/valve.py"}}
    done = {"type": "tool_result", "tool_use_id": "1", "content": "ok"}
    path = session(folder, 1, question)
    await index.refresh()
    with path.open("a") as file:
        for role, block in (("assistant", edit), ("user", done)):
            file.write(json.dumps(samples.claude_record(role, "10:00:02", [block])) + "\n")
    await index.refresh()
    (found,) = await index.changes("valve.py", ANYWHERE, 5)
    assert found.turn.question == "Repair it"


async def test_an_interrupted_reading_goes_on(
    index: SessionIndex, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_module, "CHUNK_FILES", 1)
    for number in range(3):
        session(folder, number, asked(f"Pump number {number}", "10:00:00"))
    assert not await index.refresh(seconds=0.0)
    assert await index.counts() == (0, 0)
    shown: list[tuple[int, int]] = []
    assert await index.refresh(lambda done, total: shown.append((done, total)))
    assert len(shown) == 3
    assert shown[-1][0] == shown[-1][1]
    assert (await index.counts())[0] == 3


async def test_secrets_are_masked_and_the_transcript_is_not_copied(
    folder: Path, tmp_path: Path
) -> None:
    index = SessionIndex(tmp_path / "sessions.db", lambda: transcripts_at([folder]))
    token = "ghp_0123456789abcdefghijABCDEFGHIJ012345"
    remark = " ".join(f"remark{number}" for number in range(500))
    session(
        folder,
        1,
        asked(f"Use {token} for the pump", "10:00:00"),
        said(f"{remark} {token}", "10:00:01"),
    )
    await index.refresh()
    await index.aclose()
    stored = b"".join(path.read_bytes() for path in tmp_path.glob("sessions.db*"))
    assert token.encode() not in stored
    assert token.lower().encode() not in stored
    assert b"remark20 " in stored
    assert b"remark400" not in stored


async def test_a_transcript_that_is_gone_leaves_its_excerpt(
    index: SessionIndex, folder: Path
) -> None:
    path = session(folder, 1, asked("Why does the pump stall?", "10:00:00"))
    await index.refresh()
    path.unlink()
    await index.refresh()
    (found,) = await index.search("pump", ANYWHERE, 5)
    assert found.turn.question == "Why does the pump stall?"
    assert read_turn(found) is None


async def test_a_transcript_that_was_replaced_is_not_read_as_the_old_one(
    index: SessionIndex, folder: Path
) -> None:
    path = session(folder, 1, asked("Why does the pump stall?", "10:00:00"))
    await index.refresh()
    path.write_text(json.dumps(asked("Something else", "18:00:00")) + "\n")
    (found,) = await index.search("pump", ANYWHERE, 5)
    assert read_turn(found) is None


async def test_a_scope_narrows_the_search(index: SessionIndex, folder: Path) -> None:
    session(folder, 1, asked("The pump here", "10:00:00", cwd="/code/here"))
    session(folder, 2, asked("The pump there", "10:00:00", cwd="/code/there"))
    await index.refresh()
    assert await questions(index, "pump", SessionScope(project="/code/here")) == ["The pump here"]
    assert await questions(index, "pump", SessionScope(host="codex")) == []
    assert await questions(index, "pump", SessionScope(since=4e9)) == []
    near = await questions(index, "pump", SessionScope(here="/code/there"))
    assert near == ["The pump there", "The pump here"]


async def test_the_changes_of_a_file_come_newest_first(index: SessionIndex, folder: Path) -> None:
    def change(number: int, at: str) -> None:
        session(
            folder,
            number,
            asked(f"Change {number}", f"{at}:00"),
            samples.claude_call(f"{at}:01", "Edit", file_path="/code/harbour/src/pump.py"),
            samples.claude_result(f"{at}:02", "ok"),
        )

    change(1, "10:00")
    change(2, "12:00")
    await index.refresh()
    for name in ("/code/harbour/src/pump.py", "src/pump.py", "pump.py"):
        found = await index.changes(name, ANYWHERE, 5)
        assert [each.turn.question for each in found] == ["Change 2", "Change 1"]
    assert await index.changes("crane.py", ANYWHERE, 5) == []


async def test_a_folder_and_its_files_are_the_same_through_a_link(
    index: SessionIndex, folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "real" / ".git").mkdir(parents=True)
    (tmp_path / "link").symlink_to("real")
    link, real = str(tmp_path / "link"), str(tmp_path / "real")
    session(
        folder,
        1,
        asked("Grease the pump", "10:00:00", cwd=link),
        samples.claude_call("10:00:01", "Edit", cwd=link, file_path=f"{link}/src/pump.py"),
        samples.claude_result("10:00:02", "ok", cwd=link),
    )
    await index.refresh()
    assert await questions(index, "pump", SessionScope(project=real)) == ["Grease the pump"]
    for cwd, path in ((real, "src/pump.py"), (link, "src/pump.py"), ("/", f"{link}/src/pump.py")):
        (answer,) = await changes_of(index, path, cwd, ANYWHERE, 5, {})
        assert answer.match.turn.question == "Grease the pump"


async def test_the_oldest_sessions_make_room(
    index: SessionIndex, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_module, "MAX_TURNS", 1)
    session(folder, 1, asked("The old pump", "10:00:00"))
    session(folder, 2, asked("The new pump", "18:00:00"))
    await index.refresh()
    assert await questions(index, "pump") == ["The new pump"]


async def test_turns_that_another_session_also_has_do_not_count(
    index: SessionIndex, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_module, "MAX_TURNS", 5)
    shared = [asked(f"Pump {number}?", f"10:0{number}:00") for number in range(4)]
    session(folder, 1, *shared, asked("The last pump?", "20:00:00"))
    await index.refresh()
    session(folder, 2, *shared, asked("The kettle?", "11:00:00"))
    session(folder, 3, asked("The crane?", "18:00:00"))
    await index.refresh()
    assert (await index.counts())[1] == 5


async def test_many_batches_are_merged_and_still_found(
    index: SessionIndex, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "MAX_BATCHES", 2)
    for number in range(6):
        session(folder, number, asked(f"Pump number {number}0{number}", "10:00:00"))
        await index.refresh()
    for number in range(6):
        assert await questions(index, f"{number}0{number}") == [f"Pump number {number}0{number}"]
    assert len(await questions(index, "pump")) == 5


async def test_an_unreadable_transcript_stops_nothing(index: SessionIndex, folder: Path) -> None:
    broken = session(folder, 1, asked("Broken", "10:00:00"))
    broken.write_bytes(b'{"sessionId": "x"\n\xff\xfe\n')
    os.utime(broken, (1, 1))
    session(folder, 2, asked("The pump", "10:00:00"))
    assert await index.refresh()
    assert await questions(index, "pump") == ["The pump"]


async def test_an_unknown_locator_is_one_clear_line(index: SessionIndex, folder: Path) -> None:
    session(folder, 1, asked("The pump", "10:00:00"))
    session(folder, 2, asked("The crane", "11:00:00"))
    await index.refresh()
    for locator in ("session:nothing", "session:0000000", "session:", "session:00000001#x"):
        with pytest.raises(UsageError):
            await index.located(locator)
    with pytest.raises(UsageError, match="no turn 4"):
        await index.located("session:00000001#4")
    assert (await index.located("session:00000002")).turn.question == "The crane"


async def test_an_exact_name_comes_before_longer_ones(index: SessionIndex, folder: Path) -> None:
    for number, name in enumerate(("kiln-ab", "kiln-ac", "kiln-a")):
        question = asked(f"About {name}?", f"10:0{number}:00", sessionId=name)
        samples.lines(folder / f"{name}.jsonl", [question])
    await index.refresh()
    assert (await index.located("session:kiln-a")).turn.question == "About kiln-a?"


async def test_sessions_are_listed_newest_first_and_page_by_page(
    index: SessionIndex, folder: Path
) -> None:
    names: list[str] = []
    for number in range(5):
        at = f"1{number}:00:00"
        path = session(folder, number, asked(f"Question {number}?", at))
        names.append(path.stem)
    # A session that another file continues is listed once.
    session(folder / "moved", 0, asked("And now?", "19:00:00"))
    await index.refresh()
    first = await index.listed(SessionScope(), None, 2)
    assert [entry.session.name for entry in first] == [names[0], names[4]]
    assert first[0].session.turns == 2
    last = first[-1].session
    rest = await index.listed(SessionScope(), (last.ended, last.name), 9)
    assert [entry.question for entry in rest] == ["Question 3?", "Question 2?", "Question 1?"]
    assert await index.listed(SessionScope(project="/nowhere"), None, 9) == []
    assert await index.choices() == (["/code/harbour"], ["claude"])
    assert await index.known_names([names[1], "s7"]) == {names[1]}
    turns = [match.turn.question for match in await index.recorded(names[0])]
    assert turns == ["Question 0?", "And now?"]


async def test_sessions_in_excluded_folders_are_neither_indexed_nor_kept(
    tmp_path: Path, folder: Path
) -> None:
    excluded: set[str] = set()
    index = SessionIndex(
        tmp_path / "sessions.db",
        lambda: transcripts_at([folder]),
        excludes=lambda cwd: any(cwd.startswith(one) for one in excluded),
    )
    secret = [asked("Where is the secret winch?", "10:00:00", cwd="/secret/boat")]
    session(folder, 1, *secret, said("Below deck.", "10:00:01", cwd="/secret/boat"))
    session(folder, 2, asked("Where is the open winch?", "11:00:00", cwd="/open"))
    await index.refresh()
    assert len(await questions(index, "winch")) == 2
    excluded.add("/secret")
    await index.refresh()
    assert await questions(index, "winch") == ["Where is the open winch?"]
    assert await index.counts() == (1, 1)
    session(folder, 1, *secret, asked("Is the winch rusty?", "12:00:00", cwd="/secret/boat"))
    session(folder, 3, asked("Sell the winch", "13:00:00", cwd="/secret/shed"))
    await index.refresh()
    assert await questions(index, "winch") == ["Where is the open winch?"]
    assert b"secret winch" not in (tmp_path / "sessions.db").read_bytes()
    await index.aclose()


async def test_what_became_of_a_first_request_stands_at_its_sessions_end(
    index: SessionIndex, folder: Path
) -> None:
    session(
        folder,
        1,
        asked("How often does the pump retry?", "10:00:00"),
        said("Five times.", "10:00:01"),
        asked("Seven, eight trips it.", "10:01:00"),
        said("The limit is seven now.", "10:01:01"),
    )
    await index.refresh()
    (first, *_) = await index.search("how often does the pump retry", ANYWHERE, 5)
    closing = await index.closing(first)
    assert closing is not None
    assert closing.turn.conclusion == "The limit is seven now."
    assert await index.closing(closing) is None


@pytest.mark.parametrize(("last", "shown"), [("Five times.", ""), ("Seven times.", "Seven times.")])
async def test_a_conclusion_is_not_shown_twice(
    index: SessionIndex, folder: Path, last: str, shown: str
) -> None:
    first = [asked("How often does the pump retry?", "10:00:00"), said("Five times.", "10:00:01")]
    session(folder, 1, *first, asked("Thanks", "10:01:00"), said(last, "10:01:01"))
    await index.refresh()
    (answer,) = await answers_to(index, "how often does the pump retry", ANYWHERE, 1, {})
    assert (answer.conclusion, answer.closing) == ("Five times.", shown)
