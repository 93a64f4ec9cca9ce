"""Episodes surface once in a session, when their trigger is met and they still hold and are new."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from upwell.ground.ledger import TtlStore
from upwell.ground.types.cue import Cue, Door, Skip, SkipReason, Surfacing, ToolAnswer
from upwell.ground.types.memory import Hit, Memory
from upwell.memory.places import PLACE
from upwell.surface.event import triggers_in
from upwell.surface.explain import account_of, account_of_past
from upwell.surface.lessons import applicable, situation_of
from upwell.surface.options import PipelineOptions, SurfaceOptions
from upwell.surface.pipeline import Outcome, Surfacer
from upwell.testing import FakeRecall, ManualClock

TRIGGER = "file:/settings.toml"
OTHER_TRIGGER = "below:/settings.toml"
ABSENT = "File does not exist."
TEXT = "`settings.toml` is at `config/settings.toml`; `settings.toml` in the root does not exist."


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / ".git").mkdir()
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "settings.toml").write_text("retry_limit = 3\n")
    return tmp_path


def episode(project: Path, **fields) -> Memory:
    arguments = {"text": TEXT, "id": "e1", "paths": ("config/settings.toml",), "content_hash": "h"}
    return Memory(project=str(project), triggers=(TRIGGER,), **{**arguments, **fields})


def met(memory: Memory) -> Hit:
    return Hit(memory=memory, score=0.8, signals={"trigger": 1.0}, trigger=TRIGGER)


def surfacer(hits: Sequence[Hit], moments="default") -> tuple[Surfacer, FakeRecall]:
    recall, clock = FakeRecall(hits), ManualClock()
    surface = SurfaceOptions() if moments == "default" else SurfaceOptions(moments=moments)
    options = PipelineOptions(surface=surface)
    return Surfacer(recall, TtlStore(clock=clock), options, clock=clock), recall


def failed_read(project: Path, session: str = "s", name: str = "settings.toml") -> Cue:
    return Cue(
        door=Door.TOOL,
        tool="Read",
        args={"file_path": f"{project}/{name}"},
        answer=ToolAnswer(text=ABSENT, failed=True),
        session=session,
        cwd=str(project),
    )


async def silence(outcome: Outcome) -> tuple[SkipReason, str]:
    assert isinstance(outcome, Skip), outcome
    return outcome.reason, outcome.detail


async def test_it_surfaces_where_its_trigger_is_met(project: Path) -> None:
    spoken, recall = surfacer([met(episode(project))])
    outcome = await spoken.surface(failed_read(project))
    assert isinstance(outcome, Surfacing)
    assert "config/settings.toml" in outcome.text
    assert TRIGGER in recall.asked[0].triggers


@pytest.mark.parametrize("moments", ["default", "all"])
async def test_a_hit_by_words_alone_does_not_surface(project: Path, moments) -> None:
    by_words = replace(met(episode(project)), trigger="")
    spoken, _ = surfacer([by_words], moments)
    assert (await silence(await spoken.surface(failed_read(project))))[0] is SkipReason.UNSUITED


async def test_once_in_a_session_and_again_in_the_next(project: Path) -> None:
    spoken, _ = surfacer([met(episode(project))])
    first, again, other = [
        await spoken.surface(replace(failed_read(project, session), at=at))
        for at, session in enumerate(("s", "s", "t"))
    ]
    assert isinstance(first, Surfacing)
    assert isinstance(again, Skip)
    assert isinstance(other, Surfacing)


@pytest.mark.parametrize(
    ("fields", "detail"),
    [
        ({"paths": ("config/old.toml",)}, "old.toml is gone"),
        ({"symbols": ("retry_limit", "backoff")}, "backoff is gone"),
        ({"project": "/somewhere/else"}, "learned in another project"),
    ],
)
async def test_an_episode_that_does_not_hold_is_stale(project: Path, fields, detail) -> None:
    memory = replace(episode(project), **fields)
    spoken, _ = surfacer([met(memory)])
    outcome = await spoken.surface(failed_read(project))
    assert await silence(outcome) == (SkipReason.STALE, detail)


NOTE = Hit(memory=Memory(text="A note", id="note"), score=0.7)


async def said(project: Path, *hits: Hit) -> list[str]:
    stored, _ = await applicable(hits, (TRIGGER, OTHER_TRIGGER), str(project))
    return [hit.memory.id for hit in stored]


async def test_conditions_that_hold_let_it_through(project: Path) -> None:
    hit = met(episode(project, symbols=("retry_limit",)))
    assert await applicable([NOTE, hit], (TRIGGER,), str(project)) == ([hit, NOTE], "")


async def test_the_newest_conclusion_of_a_trigger_wins(project: Path) -> None:
    old = met(episode(project, id="old", updated_at=1.0))
    new = met(episode(project, id="new", updated_at=2.0))
    assert await said(project, old, NOTE, new) == ["new", "note"]


async def test_a_newer_conclusion_that_no_longer_holds_revives_no_older_one(project: Path) -> None:
    old = met(episode(project, id="old", updated_at=1.0))
    new = met(episode(project, id="new", updated_at=2.0, paths=("gone.py",)))
    assert await said(project, old, NOTE, new) == ["note"]


async def test_the_first_trigger_with_an_episode_decides(project: Path) -> None:
    first = met(episode(project, id="first"))
    second = replace(met(episode(project, id="second")), trigger=OTHER_TRIGGER)
    assert await said(project, second, first) == ["first"]


async def test_a_place_surfaces_if_it_is_the_only_one_that_exists(project: Path) -> None:
    (project / "other.toml").touch()
    signals = {"trigger": 1.0, PLACE: 1.0}
    here, other, nowhere = (
        replace(met(episode(project, id=name, paths=(path,))), signals=signals)
        for name, path in (("h", "config/settings.toml"), ("t", "other.toml"), ("n", "gone"))
    )
    assert await said(project, here, nowhere) == ["h"]
    assert await said(project, here, other) == []


async def test_of_places_that_name_one_location_the_newest_is_said(project: Path) -> None:
    signals = {"trigger": 1.0, PLACE: 1.0}
    stale, new, old = (
        replace(
            met(episode(project, id=name, text=text, paths=(path,), updated_at=at)), signals=signals
        )
        for name, at, path, text in (
            (
                "stale",
                3.0,
                "plugins/settings.toml",
                "`settings.toml` is at `plugins/settings.toml`.",
            ),
            ("new", 2.0, "config/settings.toml", TEXT),
            ("old", 1.0, "config/settings.toml", "`settings.toml` is in the root folder."),
        )
    )
    assert await said(project, old, stale, new) == ["new"]


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        ("plugins/settings.toml", "the project has several files named settings.toml"),
        ("node_modules/tool/settings.toml", ""),
        (".cache/settings.toml", ""),
    ],
)
async def test_a_name_that_several_files_have_tells_no_place(
    project: Path, other: str, reason: str
) -> None:
    (project / other).parent.mkdir(parents=True)
    (project / other).touch()
    spoken, _ = surfacer([met(episode(project))])
    outcome = await spoken.surface(failed_read(project))
    if reason:
        assert await silence(outcome) == (SkipReason.STALE, reason)
    else:
        assert isinstance(outcome, Surfacing)


async def test_a_place_that_the_context_shows_is_already_known(project: Path) -> None:
    spoken, _ = surfacer([met(episode(project))])
    listing = Cue(
        door=Door.TOOL,
        tool="Bash",
        args={"command": "git ls-files"},
        answer=ToolAnswer(text=f"a.py\n{project}/config/settings.toml\n"),
        session="s",
        cwd=str(project),
    )
    await spoken.surface(listing)
    outcome = await spoken.surface(failed_read(project))
    assert (await silence(outcome))[0] is SkipReason.ALREADY_KNOWN


@pytest.mark.parametrize(
    ("file", "hint"), [(".ovenrc", "Did you mean .ovenrc?</error>"), ("settings.toml", "")]
)
async def test_a_place_that_the_call_or_its_answer_names_is_already_known(
    project: Path, file: str, hint: str
) -> None:
    (project / "config" / "settings.toml").unlink()
    (project / file).touch()
    text = f"`{file}` is in the root folder of the project."
    spoken, _ = surfacer([met(episode(project, text=text, paths=(file,)))])
    cue = replace(failed_read(project), answer=ToolAnswer(text=f"{ABSENT} {hint}"))
    assert (await silence(await spoken.surface(cue)))[0] is SkipReason.ALREADY_KNOWN


@pytest.mark.parametrize(("command", "is_known"), [("cd x && bake --lid", True), ("ls", False)])
async def test_a_command_that_the_session_ran_is_already_known(
    project: Path, command: str, is_known: bool
) -> None:
    text = "`bake` needs `--lid`; `bake  --lid` worked here."
    spoken, _ = surfacer([met(episode(project, text=text, paths=()))])
    ran = Cue(door="tool", tool="Bash", args={"command": command}, session="s", cwd=str(project))
    await spoken.surface(ran)
    outcome = await spoken.surface(failed_read(project))
    assert isinstance(outcome, Skip) is is_known


async def test_explain_names_the_situation(project: Path) -> None:
    spoken, _ = surfacer([met(episode(project))])
    outcome = await spoken.surface(failed_read(project))
    words = "  an earlier session met the missing file /settings.toml"
    assert words in account_of(outcome, 0.5, Door.TOOL)
    (decision,) = await spoken.journal.latest(9)
    assert words in account_of_past(decision, {})


def test_an_error_is_named_with_its_command() -> None:
    cue = Cue(
        door=Door.TOOL,
        tool="Bash",
        args={"command": "cd kitchen && bake --warm"},
        answer=ToolAnswer(text="error: unknown option '--warm'", failed=True),
    )
    (trigger,) = triggers_in(cue)
    words = "the error \"error: unknown option '--warm'\" of `bake --warm`"
    assert situation_of(cue, trigger) == words


def test_a_call_with_an_unknown_answer_has_no_triggers() -> None:
    search = Cue(door=Door.TOOL, tool="Grep", args={"pattern": "retry_limit"}, cwd="/p")
    vain = replace(search, answer=ToolAnswer(text="No matches found"))
    assert triggers_in(vain) == ("symbol:retry_limit",)
    assert triggers_in(search) == ()


async def test_an_explicit_request_has_no_triggers(project: Path) -> None:
    assert triggers_in(replace(failed_read(project), door=Door.ASK)) == ()
    assert TRIGGER in triggers_in(failed_read(project))
