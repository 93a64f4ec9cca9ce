"""Seed 003: `memory_context`. The tests of its rows in `tests/NAMES.md`."""

import json
from pathlib import Path

import pytest

from tests.conftest import Upwell
from tests.doors.address import Conversation
from tests.doors.qmd import qmd_env
from tests.doors.reading import everything, texts
from tests.doors.seeds.conftest import FACTS, Lab
from tests.doors.seeds.rows import row
from upwell import Surfacing


@pytest.fixture
def notes(tmp_path: Path, upwell: Upwell) -> Path:
    """The files of the seed's example, imported."""
    folder = tmp_path / "work"
    (folder / "memory").mkdir(parents=True)
    (folder / "memory/2026-04-09.md").write_text(
        "# Log\n\nJC's dog Cookie loves carrots\nand sleeps in the hall.\n"
    )
    (folder / "MEMORY.md").write_text("# Facts\n\nColor preference: blue\n")
    done = upwell("import", "memory", "MEMORY.md", cwd=folder)
    assert done.code == 0, done.err
    return folder


@row("`memory_context({ message, format? })`")
def test_a_digest_and_its_json(agent: Conversation) -> None:
    message = "where do the juniper cuttings root best?"
    digest = agent.call("upwell__memory_context", message=message)
    assert FACTS["juniper"] in texts(digest)[0]
    body = json.loads(
        texts(agent.call("upwell__memory_context", message=message, format="json"))[0]
    )
    assert body["entries"][0]["id"] == "juniper"
    assert body["queriesRun"][0] == message
    assert body["applicable"]


@row("the tool skips itself: `applicable: false`")
@pytest.mark.parametrize(
    "message", ["/status", "/help", "/agent:doctor", "hola", "thanks", "ok", "fix bug"]
)
async def test_a_trivial_message_is_not_searched(lab: Lab, message: str) -> None:
    from upwell.tools.recall import described

    async with lab() as bench:
        body = described(await bench.say(message, door="ask"))
    assert (body["applicable"], body["found"], body["queriesRun"]) == (False, False, [])
    assert body["digest"] == "(No relevant prior context for this message.)"


@row("messages under 3 words without a `?` are skipped")
async def test_two_words_need_a_question_mark(lab: Lab) -> None:
    async with lab() as bench:
        assert not isinstance(await bench.say("juniper cuttings", door="ask"), Surfacing)
        assert isinstance(await bench.say("juniper cuttings?", door="ask"), Surfacing)


@row("stop words, greetings, acknowledgements (EN, ES)")
async def test_both_languages_are_known(lab: Lab) -> None:
    async with lab() as bench:
        for message in ("good morning", "buenos días", "thank you", "muchas gracias"):
            assert str((await bench.say(message, door="ask")).reason) == "not_applicable"


@row("`deriveQueries`")
async def test_the_example_of_the_seed(lab: Lab) -> None:
    async with lab(facts=False) as bench:
        outcome = await bench.say("¿le gusta el jengibre a JC?", door="ask")
    assert list(outcome.queries) == ["¿le gusta el jengibre a JC?", "gusta jengibre", "JC"]


@row("original trimmed to 500 characters, top 5 keywords")
async def test_long_messages_are_cut(lab: Lab) -> None:
    words = "alder birch cedar elm fir gorse hazel".split()
    async with lab(facts=False) as bench:
        outcome = await bench.say(" ".join(words * 40) + "?", door="ask")
    assert len(outcome.queries[0]) == 500
    assert outcome.queries[1] == " ".join(words[:5])


@row("max per-query score, dedupe")
async def test_a_hit_of_several_queries_appears_once(lab: Lab) -> None:
    async with lab() as bench:
        said = await bench.say("do juniper cuttings root below sixteen degrees?", door="ask")
    assert isinstance(said, Surfacing)
    found = [hit for hit in said.hits if hit.memory.id == "juniper"]
    assert len(found) == 1
    assert len(found[0].matched) == 2
    assert found[0].score <= 1


@row("`memory.backend` builtin, qmd")
@pytest.mark.parametrize("backend", ["builtin", "qmd"])
def test_both_backends_answer(upwell: Upwell, notes: Path, backend: str) -> None:
    env = qmd_env(notes.parent, notes) if backend == "qmd" else {}
    done = upwell("context", "does Cookie love carrots?", "--door", "ask", env=env, cwd=notes)
    assert "Cookie loves carrots" in done.out
    assert ("qmd://" in done.out) == (backend == "qmd")


@row("`memory_search`, `memory_get`")
def test_a_citation_of_a_search_can_be_read(agent: Conversation) -> None:
    result = everything(agent.call("upwell__memory_search", query="pewter tankards", max_results=9))
    cited = result[result.index("[") : result.index("]") + 1]
    assert everything(agent.call("upwell__memory_get", path=cited)) == FACTS["pewter"]


@row("`formatDigest`")
def test_the_digest_has_the_bytes_of_the_seed(upwell: Upwell, notes: Path) -> None:
    done = upwell("context", "which color does JC prefer?", "--door", "ask", cwd=notes)
    assert done.out.startswith("## Relevant prior context\n- [")
    assert "- [MEMORY.md#L3-L3] Color preference: blue" in done.out.splitlines()
    nothing = upwell("context", "how tall is the zeppelin mast?", "--door", "ask", cwd=notes)
    assert nothing.out == "(No relevant prior context for this message.)\n"


@row("`memory/*.md`, `MEMORY.md`, extra paths")
def test_files_are_cited_by_their_paths(upwell: Upwell, notes: Path) -> None:
    done = upwell("context", "does Cookie love carrots?", "--door", "ask", cwd=notes)
    assert "[memory/2026-04-09.md#L3-L" in done.out
    (notes / "more.md").write_text("# More\n\nThe ferret is called Biscuit.\n")
    upwell("import", "more.md", cwd=notes)
    assert "more.md" in upwell("recall", "ferret Biscuit", cwd=notes).out


@row("`memory/.memory.sqlite`, may be deleted")
def test_the_index_is_built_again(upwell: Upwell, notes: Path, home: Path) -> None:
    assert "carrots" in upwell("recall", "Cookie carrots", cwd=notes).out
    for file in home.glob("index.db*"):
        file.unlink()
    assert "carrots" in upwell("recall", "Cookie carrots", cwd=notes).out


@row("`/agent:doctor` builds a missing index")
def test_doctor_builds_the_index(upwell: Upwell, notes: Path, home: Path) -> None:
    for file in home.glob("index.db*"):
        file.unlink()
    parts = json.loads(upwell("doctor", "--json", cwd=notes).out)["parts"]
    assert parts["documents"]["detail"].startswith("2 files")


@row("`memoryContext.enabled`")
async def test_the_tool_can_be_switched_off(lab: Lab) -> None:
    async with lab({"memory_context.enabled": False}) as bench:
        tools = bench.app.toolbox()
        reply = await tools.call("memory_context", {"message": "where do junipers root?"}, "s")
    assert "turned off" in reply.result.decode()


@row("`memoryContext.maxResults`")
async def test_a_digest_has_four_entries(lab: Lab) -> None:
    notes = [{"text": f"Orchard ladder {n} stands at wall {n}"} for n in range(9)]
    for limit, entries in ((None, 4), (2, 2)):
        flags = {} if limit is None else {"memory_context.max_results": limit}
        async with lab(flags, facts=False) as bench:
            if limit is None:
                await bench.app.memory.add_many(notes)
            said = await bench.say("where does the orchard ladder stand?", door="ask")
        assert isinstance(said, Surfacing)
        assert said.text.count("\n- [") == entries


@row("`memoryContext.includeRecency`, dated paths only")
async def test_a_dated_file_sinks_with_its_age(lab: Lab, tmp_path: Path) -> None:
    folder = tmp_path / "dated"
    (folder / "memory").mkdir(parents=True)
    fact = "The orchard ladder stands at the north wall"
    for name in ("2020-01-01", "2023-11-10"):
        (folder / f"memory/{name}.md").write_text(f"# {name}\n\n{fact}, says {name}.\n")
    for include, first in ((True, "2023-11-10"), (False, None)):
        async with lab({"memory_context.include_recency": include}, facts=False) as bench:
            await bench.app.imports.add(folder / "memory", folder, "auto", lambda done, total: None)
            said = await bench.say("where does the orchard ladder stand?", door="ask")
            assert isinstance(said, Surfacing)
            names = [Path(hit.memory.source).stem for hit in said.hits]
        assert set(names) == {"2020-01-01", "2023-11-10"}
        assert first in (None, names[0])


@row("`memoryContext.halfLifeDays`")
async def test_the_half_life_is_30_days(lab: Lab) -> None:
    from upwell.ground.types.memory import Memory
    from upwell.surface.filters import recency

    async with lab(facts=False) as bench:
        options = bench.app.config.memory_context
        dated = Memory(id="d", text="x", source="memory/2023-10-15.md", lines=(1, 1))
        now = 1_697_328_000.0 + 30 * 86_400.0
        assert options.half_life_days == 30
        assert recency(dated, now, options.half_life_days) == pytest.approx(0.5, abs=0.02)
        plain = Memory(id="p", text="x", source="MEMORY.md", lines=(1, 1))
        assert recency(plain, now, options.half_life_days) == 1.0


@row("`getMemoryContext` over `searchMemory`")
async def test_context_and_search_find_the_same(lab: Lab) -> None:
    message = "where do the juniper cuttings root best?"
    async with lab() as bench:
        said = await bench.say(message, door="ask")
        found = await bench.app.memory.find(message)
    assert isinstance(said, Surfacing)
    assert said.hits[0].memory.id == found.hits[0].memory.id == "juniper"


@row("`templates/CLAUDE.md`: the instruction for each turn")
def test_the_instruction_for_an_agent_without_hooks(upwell: Upwell) -> None:
    text = upwell("hook", "export", "claude").out
    assert "At the start of every substantive turn" in text
    assert "memory_context" in text
