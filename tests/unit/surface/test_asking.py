"""Explicit requests: simple questions about daily notes are answered."""

import pytest

from upwell.app import Settings, build
from upwell.ground.types.cue import Cue, Skip, Surfacing

NOTES = {
    "2026-03-02": "Mila is allergic to peanuts; the almond cake is safe for her. Ordered 40 kg of "
    "rye flour from the mill.",
    "2026-03-03": "The oven's left burner fails above 230 degrees. The technician comes on "
    "Thursday.",
    "2026-03-04": "Rent for the shop goes up to 1450 a month from May.",
    "2026-03-05": "Technician replaced the thermostat of the oven. Warranty runs for two years.",
    "2026-03-06": "Decided to close on Mondays because hardly anyone comes.",
    "2026-03-07": "The till's drawer opens with the small brass key under the tray.",
    "2026-03-08": "Aunt Vera's birthday is on 19 June. She collects postcards of lighthouses.",
    "2026-03-09": "Tried the spelt loaf with 78 percent water: too wet, 72 is better.",
    "2026-03-10": "The dentist moved to Harbour Street 12. Next appointment on 14 April at nine.",
    "2026-03-11": "The delivery van needs winter tyres until April; the spare set is below.",
    "2026-03-12": "Password hints are in the blue notebook, not on the computer.",
    "2026-03-13": "Jonas starts as an apprentice in August. He wants Wednesdays free for school.",
    "2026-03-14": "The café next door buys twelve baguettes every Saturday.",
    "2026-03-15": "Sourdough starter is called Berta; feed her at seven in the evening.",
    "2026-03-16": "The accountant wants all receipts by the fifth of the month.",
    "2026-03-17": "Printer only works with the back tray. Cartridges are number 953.",
    "2026-03-18": "Switched the coffee beans to the roaster in Linden because the old one was "
    "bitter.",
    "2026-03-19": "The cat is called Pixel and gets her tablet with cheese.",
    "2026-03-20": "Insurance claim for the broken window: reference 88214.",
    "2026-03-21": "Market stall number is 17, next to the fountain. Set up before half past six.",
    "2026-03-22": "The Wi-Fi in the shop drops when the mixer runs. Moved the router to the shelf. "
    "",
    "2026-03-23": "Holiday in the second half of July, on the island of Fanø.",
    "2026-03-24": "Grandmother's plum cake: no cinnamon, but a little cardamom.",
    "2026-03-25": "Bicycle has a flat rear wheel. The pump is lent to Tomas.",
    "2026-03-26": "The health inspector was content but wants the fridge log on paper.",
    "2026-03-27": "Choir rehearsal is on Tuesdays in the old fire station.",
    "2026-03-28": "Eggs now come from the farm in Osterby, 30 a tray.",
    "2026-03-29": "We changed the clocks; the timer of the proofing cabinet still shows winter "
    "time.",
    "2026-03-30": "The landlord's number is on the fridge door. He is called Mr Abel.",
    "2026-03-31": "Quarterly taxes are paid.",
    "2026-04-01": "A customer asked for bread without gluten. We decided against it: too much "
    "flour dust.",
    "2026-04-02": "Croissants: three folds, rest an hour between them.",
    "2026-04-03": "The neighbour waters the plants while we are away. Key is with Ines.",
    "2026-04-04": "New sign costs 620; the painter is Leonie from the art school.",
    "2026-04-05": "Mother's phone only rings when the cover is open.",
    "2026-04-06": "The library book about rye is due on 2 May.",
    "2026-04-07": "Chose the darker crust for the country loaf after the tasting.",
    "2026-04-08": "The drain in the yard is blocked by leaves every autumn; the rods are behind "
    "the shed.",
    "2026-04-09": "Sold out of raisin buns by ten. Bake 60 next Saturday.",
    "2026-04-10": "Mixer speed two for brioche, never three: the dough gets too warm.",
}
QUESTIONS = {
    "what about peanuts?": "2026-03-02",
    "who is allergic to peanuts?": "2026-03-02",
    "where does the rye flour come from?": "2026-03-02",
    "what is wrong with the oven?": "2026-03-03",
    "how much is the rent?": "2026-03-04",
    "did the technician replace the thermostat?": "2026-03-05",
    "why are we closed on Mondays?": "2026-03-06",
    "where is the key of the till?": "2026-03-07",
    "when is aunt Vera's birthday?": "2026-03-08",
    "how much water for the spelt loaf?": "2026-03-09",
    "where is the dentist?": "2026-03-10",
    "where are the winter tyres?": "2026-03-11",
    "password hints?": "2026-03-12",
    "when does Jonas start?": "2026-03-13",
    "how many baguettes does the café buy?": "2026-03-14",
    "what is the starter called?": "2026-03-15",
    "when does the accountant want the receipts?": "2026-03-16",
    "which cartridges does the printer need?": "2026-03-17",
    "why did we switch the coffee beans?": "2026-03-18",
    "how does the cat get her tablet?": "2026-03-19",
    "what is the reference of the insurance claim?": "2026-03-20",
    "where is our market stall?": "2026-03-21",
    "why does the Wi-Fi drop?": "2026-03-22",
    "when is our holiday?": "2026-03-23",
    "is there cinnamon in the plum cake?": "2026-03-24",
    "who has the bicycle pump?": "2026-03-25",
    "what did the health inspector want?": "2026-03-26",
    "when is choir rehearsal?": "2026-03-27",
    "where do the eggs come from?": "2026-03-28",
    "what about the proofing cabinet?": "2026-03-29",
    "what is the landlord called?": "2026-03-30",
    "are the taxes paid?": "2026-03-31",
    "do we bake without gluten?": "2026-04-01",
    "how many folds for croissants?": "2026-04-02",
    "who waters the plants?": "2026-04-03",
    "what does the new sign cost?": "2026-04-04",
    "why does mother's phone not ring?": "2026-04-05",
    "when is the library book due?": "2026-04-06",
    "which crust did we choose?": "2026-04-07",
    "what blocks the drain?": "2026-04-08",
    "how many raisin buns next Saturday?": "2026-04-09",
    "which speed for brioche?": "2026-04-10",
}


@pytest.fixture(params=["memories", "files"])
async def app(request, tmp_path, monkeypatch):
    project = tmp_path / "project"
    (project / "memory").mkdir(parents=True)
    app = await build(Settings(home=tmp_path / "home"))
    if request.param == "memories":
        await app.memory.add_many(
            [{"text": text, "source": f"memory/{day}.md"} for day, text in NOTES.items()]
        )
    else:
        for day, text in NOTES.items():
            (project / "memory" / f"{day}.md").write_text(f"- {text}\n", encoding="utf-8")
        await app.imports.add(project / "memory", project, "markdown", lambda done, total: None)
    yield app
    await app.aclose()


async def test_simple_questions_to_daily_notes_are_answered(app):
    answers = {}
    for question, day in QUESTIONS.items():
        outcome = await app.surfacer.surface(Cue(door="ask", text=question, session="s"))
        assert isinstance(outcome, Surfacing), f"{question}: {outcome}"
        answers[question] = any(day in memory.source for memory in outcome.memories)
    assert len(answers) == 42
    assert [question for question, answered in answers.items() if not answered] == []


async def test_an_obvious_answer_has_a_score_that_a_person_believes(app):
    for question in ("what about peanuts?", "where is the dentist?", "which speed for brioche?"):
        outcome = await app.surfacer.surface(Cue(door="ask", text=question, session="s"))
        assert outcome.confidence > 0.8
        assert (await app.memory.search(question))[0].score > 0.8


@pytest.mark.parametrize("app", ["files"], indirect=True)
async def test_as_a_prompt_the_same_question_needs_a_higher_score(app):
    question = "what is wrong with the oven?"
    asked = await app.surfacer.surface(Cue(door="ask", text=question, session="s"))
    prompted = await app.surfacer.surface(Cue(door="prompt", text=question, session="s"))
    assert isinstance(asked, Surfacing)
    assert isinstance(prompted, Skip)


async def test_a_question_about_something_else_gets_nothing(app):
    outcome = await app.surfacer.surface(
        Cue(door="ask", text="what is the capital of Peru?", session="s")
    )
    assert isinstance(outcome, Skip)
