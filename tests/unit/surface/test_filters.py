"""The order of hits: the best of every source first, near-identical texts once."""

from msgspec.structs import replace

from upwell.ground.types.cue import Intent, IntentKind
from upwell.ground.types.memory import Hit, Memory
from upwell.surface.filters import distinct, ranked, spread
from upwell.surface.options import PipelineOptions, SurfaceOptions


def hit(identity: str, score: float, source: str = "", text: str = "") -> Hit:
    reply = text or f"{identity} alone {identity}x {identity}y"
    lines = (1, 2) if source else None
    return Hit(memory=Memory(id=identity, text=reply, source=source, lines=lines), score=score)


def ids(hits: list[Hit]) -> list[str]:
    return [entry.memory.id for entry in hits]


def test_one_file_does_not_crowd_out_the_others() -> None:
    hits = [hit(f"a{n}", 0.9 - n / 100, "a.md") for n in range(4)]
    hits += [hit("b", 0.6, "b.md"), hit("c", 0.55), hit("d", 0.5)]
    assert ids(ranked(hits, Intent(), PipelineOptions(), 0.0)) == [
        "a0",
        "b",
        "c",
        "a1",
        "d",
        "a2",
        "a3",
    ]


def test_the_users_weights_decide_the_order() -> None:
    def of(namespace: str) -> Hit:
        memory = Memory(id=namespace, text=f"{namespace} alone", namespace=namespace)
        return Hit(memory=memory, score=0.6)

    hits = [of("blockers"), of("patterns")]
    howto = Intent(kind=IntentKind.HOWTO, confidence=0.9)
    assert ids(ranked(hits, howto, PipelineOptions(), 0.0)) == ["patterns", "blockers"]
    weights = {IntentKind.HOWTO: {"blockers": 2.0}}
    options = PipelineOptions(surface=SurfaceOptions(namespace_weights=weights))
    assert ids(ranked(hits, howto, options, 0.0)) == ["blockers", "patterns"]


def test_keywords_of_a_message_are_no_second_query() -> None:
    message, keywords, topic = "where is the kiln of Ada?", "kiln", "cobalt glaze"
    rival = hit("rival", 0.52)
    for texts, first in (
        ((message, keywords), "rival"),
        ((message, keywords, "Ada"), "rival"),
        ((message, topic), "both"),
        ((topic, keywords, message), "both"),
    ):
        both = replace(hit("both", 0.5), matched=texts)
        assert ids(ranked([rival, both], Intent(), PipelineOptions(), 0.0))[0] == first, texts


def test_a_single_source_gets_every_place() -> None:
    hits = [hit(f"a{n}", 0.9 - n / 100, "a.md") for n in range(4)]
    assert spread(hits) == hits


def test_memories_outside_files_are_not_held_back() -> None:
    hits = [hit(f"m{n}", 0.9 - n / 100) for n in range(5)]
    assert spread(hits) == hits


def test_near_identical_texts_surface_once() -> None:
    first = hit("a", 0.9, text="The cache reloads on SIGHUP, not before")
    second = hit("b", 0.8, text="the cache reloads on SIGHUP not before")
    other = hit("c", 0.7, text="The cache is cleared at midnight")
    assert ids(distinct([first, second, other])) == ["a", "c"]
