"""The explanation of a decision for a person."""

import pytest

from upwell.ground.types.cue import Door, Intent, IntentKind, Skip, SkipReason, Surfacing
from upwell.ground.types.memory import Hit, Memory
from upwell.surface.explain import REASONS, account_of, account_of_past, in_words, why_shown

WORDS = {
    "informative_words": 4.0,
    "matched_words": 3.0,
    "telling_words": 2.0,
    "rarest": 0.9,
    "bm25": 9.0,
    "chance": 2.0,
    "chance_spread": 1.0,
}


def hit(identity: str, score: float, **signals: float) -> Hit:
    return Hit(memory=Memory(id=identity, text=f"{identity} text"), score=score, signals=signals)


def past(**fields: object) -> dict[str, object]:
    """A decision from the journal."""
    return {
        **dict.fromkeys(("id", "tool", "moment", "situation", "detail"), ""),
        **dict.fromkeys(("memories", "queries", "missing"), ()),
        **{"door": "prompt", "late": False, **fields},
    }


def test_every_reason_has_an_explanation() -> None:
    assert set(REASONS) == set(SkipReason)


@pytest.mark.parametrize("reason", list(SkipReason))
def test_silence_names_its_gate(reason: SkipReason) -> None:
    (line,) = account_of(Skip(reason=reason, detail="why"), 0.5, Door.PROMPT)
    assert line == f"upwell stayed silent: {REASONS[reason]} ({reason}, why)"


def test_close_hits_are_shown_with_score_and_threshold() -> None:
    skip = Skip(
        reason=SkipReason.BELOW_MIN_SCORE,
        detail="best 0.46 < 0.50",
        queries=("why no Elasticsearch?", "Elasticsearch"),
        intent=Intent(kind=IntentKind.EXPLANATION, confidence=0.65),
        held_back=(hit("low", 0.2), hit("near", 0.46, **WORDS), hit("lowest", 0.1)),
    )
    assert account_of(skip, 0.5, Door.PROMPT)[1:] == [
        "  not shown, 0.46 is below 0.50: near text",
        "     [upwell://memory/near] shares 3 of 4 informative words (one of them rare)",
        "  not shown, 0.20 is below 0.50: low text",
        "     [upwell://memory/low] no specific match",
        "  searched for: why no Elasticsearch? | Elasticsearch",
        "  intent: explanation, confidence 0.65, from keyword",
    ]


def test_a_surfacing_is_explained_by_its_grounds() -> None:
    reply = (hit("a", 0.97, path_join=1.0, path_rarity=0.3), hit("r", 1.0, pinned=1.0))
    surfacing = Surfacing(
        id="s_1", hits=reply, text="", confidence=0.97, held_back=(hit("b", 0.1), hit("c", 0.8))
    )
    lines = account_of(surfacing, 0.5, Door.TOOL)
    assert lines[0] == (
        "upwell spoke: 1 memory likely enough to be relevant (surface.min_score 0.50)"
    )
    assert lines[1] == "  1. 0.97: about the same file, as are many memories"
    assert lines[2] == "  2. a standing rule"
    assert lines[3].startswith("  not shown, 0.10")
    assert len(lines) == 5


def test_the_answer_to_a_question_has_the_scores_of_a_hook() -> None:
    answer = Surfacing(
        id="s_1", hits=(hit("a", 0.9, **WORDS), hit("b", 0.7)), text="", confidence=0.9
    )
    few = {**WORDS, "bm25": 2.0}
    silence = Skip(
        reason=SkipReason.BELOW_MIN_SCORE,
        detail="best 0.28 < 0.50",
        held_back=(hit("a", 0.28, **few), hit("b", 0.04)),
    )
    told = account_of(answer, 0.02, Door.ASK, unasked=silence)
    assert told[0] == (
        "upwell spoke: 2 memories for an explicit question; unasked, a new session would get none "
        "(below_min_score, best 0.28 < 0.50)"
    )
    assert told[1].startswith("  1. 0.28: shares 3 of 4")
    assert told[2] == "  2. 0.04: no specific match"
    spoken = Surfacing(id="s_2", hits=(hit("a", 0.6),), text="", confidence=0.6)
    assert account_of(answer, 0.02, Door.ASK, unasked=spoken)[0].endswith("would get 1")
    judged = account_of(answer, 0.02, Door.ASK)
    assert judged[0].endswith("would get what the judge chooses")
    assert judged[1].startswith("  1. shares 3 of 4")


def test_a_session_start_explains_its_notes() -> None:
    note = hit("a", 0.7, kind=1.0, recency=0.9, used=1.0, touched=0.4)
    surfacing = Surfacing(id="s_1", hits=(note,), text="", confidence=0.7)
    assert account_of(surfacing, 0.5, Door.SESSION) == [
        "upwell spoke: 1 memory to open this session",
        "  1. 0.70: recent, read since, about a file that changed lately",
    ]
    empty = account_of(Skip(reason=SkipReason.NO_CANDIDATES), 0.5, Door.SESSION)
    assert "no standing rule or recent note" in empty[0]


@pytest.mark.parametrize(
    ("signals", "words"),
    [
        ({"path_join": 0.5, "path_rarity": 1.0}, "a file of that name"),
        ({"path_join": 0.35, "path_rarity": 1.0}, "a related file"),
        ({"symbol_join": 1.0}, "the same name in code"),
        ({**WORDS, "telling_words": 0.0}, "shares 3 of 4 informative words (everyday words)"),
        ({"cosine": 0.61}, "similar in meaning (0.61)"),
    ],
)
def test_signals_in_words(signals: dict[str, float], words: str) -> None:
    assert words in in_words(signals)


@pytest.mark.parametrize("bm25", [2.0, 9.0])
@pytest.mark.parametrize("score", [0.04, 0.9])
def test_the_words_agree_with_the_score(bm25: float, score: float) -> None:
    words = in_words({**WORDS, "bm25": bm25}, score)
    assert ("no more than by chance" in words) == (bm25 == 2.0 and score == 0.04)
    assert (", more than by chance" in words) == (bm25 == 9.0 and score == 0.9)


def test_the_moment_and_the_novelty_are_named() -> None:
    surfacing = Surfacing(
        id="s_1",
        hits=(hit("m", 0.8, matched_words=1.0, informative_words=2.0, new=0.42),),
        text="",
        confidence=0.8,
        moment="first_request",
    )
    lines = account_of(surfacing, 0.5, Door.PROMPT)
    assert any("42% of its words new to the session" in line for line in lines)
    assert "  moment: first request" in lines


def test_a_past_decision_names_them_too() -> None:
    evidence = {"m": {"new": 0.42}}
    decision = past(id="s_1", moment="question", memories=[["m", 0.8]], evidence=evidence)
    assert account_of_past(decision, {"m": "text"}) == [
        "prompt: spoke, 1 memory (s_1)",
        "  0.80 m text",
        "       42% of its words new to the session",
        "  moment: question",
    ]


@pytest.mark.parametrize(
    ("signals", "situation", "words"),
    [
        (WORDS, "", in_words(WORDS, 0.9)),
        ({"pinned": 1.0}, "", ""),
        ({"kind": 1.0, "recency": 0.9}, "", "a note for the start of a session: recent"),
        ({"trigger": 1.0, **WORDS}, "the ticket X-1", "an earlier session met the ticket X-1"),
        ({"trigger": 1.0}, "", "an earlier session met exactly this situation"),
        ({}, "the ticket X-1", ""),
    ],
)
def test_the_reason_for_one_memory_is_one_line(
    signals: dict[str, float], situation: str, words: str
) -> None:
    decision = {"evidence": {"m": signals}, "situation": situation, "memories": [["m", 0.9]]}
    assert why_shown(decision, "m") == words


def test_a_place_that_could_not_be_searched_is_the_reason_for_silence() -> None:
    missing = ("ltm: it took too long",)
    skip = Skip(reason=SkipReason.NO_CANDIDATES, missing=missing)
    assert "a place could not be searched" in account_of(skip, 0.5, Door.PROMPT)[0]
    assert account_of_past(past(outcome="no_candidates", missing=missing), {}) == [
        "prompt: silent: no memory was found, and a place could not be searched (no_candidates)",
        "  not searched: ltm: it took too long",
    ]


def test_an_empty_memory_is_called_empty() -> None:
    skip = Skip(reason=SkipReason.NO_CANDIDATES)
    (line,) = account_of(skip, 0.5, Door.PROMPT, is_empty=True)
    assert line == "upwell stayed silent: the memory is empty (no_candidates)"
    other = account_of(Skip(reason=SkipReason.ROUTINE), 0.5, Door.PROMPT, is_empty=True)
    assert other == account_of(Skip(reason=SkipReason.ROUTINE), 0.5, Door.PROMPT)


def test_a_start_without_rules_is_explained_in_the_past_as_in_the_present() -> None:
    skip = Skip(reason=SkipReason.NO_CANDIDATES)
    decision = past(door="session", outcome="no_candidates")
    words = "no standing rule or recent note is due at the start of a session (no_candidates)"
    assert account_of(skip, 0.5, Door.SESSION)[0] == f"upwell stayed silent: {words}"
    assert account_of_past(decision, {}) == [f"session: silent: {words}"]
