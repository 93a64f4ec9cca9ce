"""`qmd` as a place to recall from: over a stand-in with the output of the program."""

import asyncio
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from upwell.ground.clock import Deadline
from upwell.ground.errors import RecallUnavailable, UsageError
from upwell.ground.types.memory import Hit, Memory, Query, Scope, Trust
from upwell.memory.base import FallBack
from upwell.memory.external.qmd import QmdRecall
from upwell.memory.external.waiting import Patience
from upwell.memory.options import Backend
from upwell.testing import FakeRecall

FACT = "The settlement job runs before midnight UTC, or refunds double."
FAKE = (sys.executable, str(Path(__file__).with_name("fake_qmd.py")))
Make = Callable[..., QmdRecall]


PATIENCE = Patience()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "repo" / "notes"
    (folder / "memory").mkdir(parents=True)
    (tmp_path / "repo" / ".git").mkdir()
    (folder / "memory" / "2026-04-09.md").write_text(f"# Billing\n\n{FACT}\n\nOther things.\n")
    (folder / "garden.md").write_text("Tulips bloom in May, the job is done in June.\n")
    return folder


@pytest.fixture
def make(root: Path, tmp_path: Path) -> Make:
    def maker(*, command: tuple[str, ...] = FAKE, mode: str = "", how: str = "") -> QmdRecall:
        backend = Backend(f"qmd {mode}" if mode else "qmd")
        environment = {"FAKE_QMD_ROOT": str(root), "FAKE_QMD": how, "UPWELL_LLM__API_KEY": "x"}
        return QmdRecall(
            backend, tmp_path, environment, Patience(race_seconds=30.0), command=command
        )

    return maker


def asked(root: Path) -> list[list[str]]:
    return [json.loads(line)[0] for line in (root.parent / "asked").read_text().splitlines()]


async def found(recall: QmdRecall, text: str, **scope: object) -> list[Hit]:
    query = Query(texts=(text,), scope=Scope(**scope))
    return list((await recall.search(query, Deadline.after(20.0))).hits)


async def test_a_question_finds_the_passage_with_our_own_score(make: Make, root: Path) -> None:
    best, *rest = await found(make(), "when does the settlement job run?")
    assert FACT in best.memory.text
    assert best.memory.source == "qmd://notes/memory/2026-04-09.md"
    assert best.memory.lines == (2, 5)
    assert best.memory.trust is Trust.IMPORTED
    assert best.memory.project == str(root.parent)
    assert best.score > 0.5
    assert best.signals["bm25"] > 0
    assert all(hit.score < 0.5 for hit in rest)


async def test_other_projects_and_namespaces_see_nothing(make: Make, root: Path) -> None:
    recall = make()
    assert await found(recall, "settlement job", project="/elsewhere") == []
    assert await found(recall, "settlement job", project=str(root.parent))
    assert await found(recall, "settlement job", namespaces=("decisions",)) == []


@pytest.mark.parametrize(
    "text", ["--help settlement", "; rm -rf / settlement", '"settlement -job', "$(settlement)"]
)
async def test_a_query_is_words_and_never_an_option(make: Make, root: Path, text: str) -> None:
    assert (await found(make(), text))[0].memory.text.count("settlement") == 1
    for args in asked(root):
        assert args[-2] == "--"
        if args[0] == "search":
            assert args[-1].replace(" ", "").isalnum()


async def test_a_search_by_meaning_sends_the_text_in_one_line(make: Make, root: Path) -> None:
    hits = await found(make(mode="vsearch"), "settlement\n  midnight")
    assert hits
    assert ["vsearch", "--json", "-n", "40", "--", "settlement midnight"] in asked(root)


@pytest.mark.parametrize(
    ("awaited", "own", "expected"),
    [(False, {"score": 0.7}, 0.0), (True, {"score": 0.7}, 0.7), (True, {}, 0.2)],
)
async def test_a_passage_found_by_meaning_keeps_its_own_score_in_explicit_searches(
    make: Make,
    monkeypatch: pytest.MonkeyPatch,
    awaited: bool,
    own: dict[str, float],
    expected: float,
) -> None:
    recall = make(mode="vsearch")
    query = Query(texts=("done",), scope=Scope(), awaited=awaited)
    item = {"file": "qmd://notes/garden.md", "line": 1, "snippet": "Tulips bloom in May", **own}

    async def answer(*_: object) -> list[dict[str, object]]:
        return [item, {"file": 5}, {"file": "x", "snippet": " "}]

    monkeypatch.setattr(recall, "_results", answer)
    (hit,) = (await recall.search(query, Deadline.after(20.0))).hits
    assert (hit.score, dict(hit.signals)) == (expected, {})


async def test_qmd_runs_in_the_home_without_our_secrets(
    make: Make, root: Path, tmp_path: Path
) -> None:
    await found(make(), "settlement")
    for line in (root.parent / "asked").read_text().splitlines():
        _, folder, names = json.loads(line)
        assert folder == str(tmp_path)
        assert "UPWELL_LLM__API_KEY" not in names


async def test_a_passage_is_read_again_by_its_id(make: Make, root: Path) -> None:
    recall = make()
    (hit, *_) = await found(recall, "settlement midnight")
    again = await recall.get(hit.memory.id)
    assert again is not None
    assert FACT in again.text
    assert (again.source, again.lines) == (hit.memory.source, hit.memory.lines)
    (root / "memory" / "2026-04-09.md").unlink()
    assert await recall.get(hit.memory.id) is None
    for unknown in ("nobody", "qmd:", "qmd:notes/x.md:1", "stm:1"):
        assert await recall.get(unknown) is None


async def test_a_passage_whose_project_cannot_be_read_is_not_found(make: Make) -> None:
    (hit, *_) = await found(make(), "settlement midnight")
    assert await make(how="no collections").get(hit.memory.id) is None


@pytest.mark.parametrize(
    ("how", "message"),
    [("crash", "malformed"), ("rubbish", "not JSON"), ("object", "not a list"), ("flood", "bytes")],
)
async def test_failures_are_reported(make: Make, how: str, message: str) -> None:
    with pytest.raises(RecallUnavailable, match=message):
        await found(make(how=how), "settlement")
    assert (await make(how="crash").ping()).ok is False


async def test_a_program_that_hangs_is_ended_at_the_deadline(make: Make) -> None:
    began = time.monotonic()
    with pytest.raises(RecallUnavailable, match="did not answer within"):
        await make(how="hang").search(Query(texts=("settlement",)), Deadline.after(1.0))
    assert time.monotonic() - began < 10


async def test_without_the_program_another_place_searches(make: Make) -> None:
    own = FakeRecall([Hit(memory=Memory(text="x", id="own"), score=0.9)])
    absent = make(command=("no-such-program-here",))
    recall = FallBack(absent, own)
    hits = (await recall.search(Query(texts=("settlement",)), Deadline.after(5.0))).hits
    assert [hit.memory.id for hit in hits] == ["own"]
    ping = await recall.ping()
    assert not ping.ok
    assert "instead: fake" in ping.detail
    assert "npm install" in ping.hint


async def test_with_the_program_the_other_place_is_not_asked(make: Make) -> None:
    own = FakeRecall()
    assert (
        await FallBack(make(), own).search(Query(texts=("settlement",)), Deadline.after(20.0))
    ).hits
    assert own.asked == []
    assert (await FallBack(make(), own).ping()).detail == "2 documents indexed, qmd search"


async def test_overlapping_windows_are_one_passage(tmp_path: Path) -> None:
    root = tmp_path / "long"
    root.mkdir()
    lines = [f"line {n} of the harbour" for n in range(1, 30)]
    lines[9], lines[11], lines[25] = "settlement in May", "the job runs", "another job"
    (root / "notes.md").write_text("\n".join(lines))
    environment = {"FAKE_QMD_ROOT": str(root), "FAKE_QMD": ""}
    recall = QmdRecall(Backend.QMD, tmp_path, environment, command=FAKE)
    hits = await found(recall, "settlement job runs harbour")
    assert {hit.memory.lines for hit in hits} == {(9, 14), (1, 3)}
    for hit in hits:
        first, last = hit.memory.lines or (0, 0)
        assert hit.memory.text.split("\n") == lines[first - 1 : last]
        assert hit.memory.id.endswith(f":{first}:{last - first + 1}")


async def test_the_texts_that_qmd_was_asked_for_are_named(make: Make) -> None:
    query = Query(texts=("when does the settlement job run?",))
    result = await make().search(query, Deadline.after(20.0))
    assert result.asked == ("qmd: settlement",)


async def test_a_late_answer_serves_the_next_search_about_the_subject(
    make: Make, root: Path
) -> None:
    patience = Patience(race_seconds=0.003)
    recall = QmdRecall(
        Backend.QMD, root.parent, {"FAKE_QMD_ROOT": str(root)}, patience, command=FAKE
    )
    cue = Query(texts=("settlement job",), awaited=False)
    with pytest.raises(RecallUnavailable, match="did not answer within"):
        await recall.search(cue, Deadline.after(20.0))
    for _ in range(400):
        await asyncio.sleep(0.05)
        try:
            result = await recall.search(cue, Deadline.after(20.0))
        except RecallUnavailable:
            continue
        break
    assert FACT in result.hits[0].memory.text
    await recall.aclose()


async def test_a_citation_is_read_by_its_lines(make: Make, root: Path) -> None:
    recall = make()
    lines = await recall.lines("qmd://notes/memory/2026-04-09.md", None)
    assert FACT in lines
    with pytest.raises(UsageError, match=r"cannot be read|no document"):
        await recall.lines("qmd://notes/absent.md", None)
    with pytest.raises(UsageError, match="no document"):
        await recall.lines("qmd://notes/memory/2026-04-09.md", "/another/project")


async def test_a_passage_that_names_a_file_is_found_by_the_file(make: Make, root: Path) -> None:
    (root / "settle.md").write_text("# Notes\n\nsrc/settle.py rounds to cents.\n")
    query = Query(texts=("settle",), paths=("src/settle.py",), awaited=False)
    best, *_ = (await make().search(query, Deadline.after(20.0))).hits
    assert best.memory.paths == ("src/settle.py",)
    assert best.score > 0.5
