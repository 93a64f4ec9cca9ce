"""The numbered examples of seed 003 and of its companion proposal, and a few of our own."""

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from upwell.ground.clock import Deadline
from upwell.ground.errors import RecallUnavailable, UpwellError
from upwell.ground.ledger import TtlStore
from upwell.ground.text.lexicon import shipped
from upwell.ground.types.cue import Cue, Intent, IntentKind, Skip, Surfacing
from upwell.ground.types.memory import Found, Hit, Memory, Query
from upwell.memory.base import Recalls
from upwell.surface.filters import ranked, recency
from upwell.surface.options import ContextOptions, PipelineOptions
from upwell.surface.pipeline import Surfacer
from upwell.surface.query import messages_of, word_count
from upwell.surface.render import EMPTY_DIGEST, digest, fitting, frame_of, preview, profile_of
from upwell.testing import FakeRecall, ManualClock

READ = messages_of(shipped())
DAY = 86_400.0
NOW = 1_775_692_800.0  # 2026-04-09T00:00:00Z


@pytest.mark.parametrize(
    ("number", "message", "applicable"),
    [
        (2, "/status", False),
        (3, "/agent:doctor x", False),
        (4, "hola", False),
        (4, "OK", False),
        (4, "thanks", False),
        (4, "Buenas Tardes", False),
        (4, "👍", False),
        (5, "Hola!", False),
        (6, "fix bug", False),
        (6, "fix the bug", True),
        (7, "JC?", True),
        (8, "ok gracias", False),
        (9, "   ", False),
        (9, "", False),
        (10, "¿qué?", True),
        (11, "/newspaper please find it", True),
        (11, "/foo bar baz", False),
        (11, "/home/me/x fails again", True),
        (11, "/tmp is full again", True),
        (11, "/help please find it", False),
        (11, "/new", False),
        (11, "/review-pr 123", False),
        ("A3.8", "thanks a lot!", False),
        ("A3.8", "muchas gracias por todo", False),
        ("A3.8", "ok, thanks a lot!!", False),
        ("A3.8", "vale, perfecto. ¡Gracias!", False),
        ("A3.8", "你好吗？", True),
        ("A3.8", "修复登录错误", True),
        ("A3.8", "谢谢", False),
        ("A3.8", "로그인 오류를 수정", True),
        ("A3.8", "감사합니다", False),
        ("A3.8", "ログインのエラーを直す", True),
        ("A3.8", "كيف؟", True),
        ("A3.8", "why not?", True),
        ("A3.8", "…", False),
        ("", "good morning", False),
        ("", "looks good to me", False),
        ("", "¿cuándo es?", True),
        ("", "JC moved to Lima last week", True),
    ],
)
def test_messages_that_need_a_search(number: object, message: str, applicable: bool) -> None:
    assert (READ.not_applicable(message) == "") is applicable


@pytest.mark.parametrize(
    ("number", "message", "queries"),
    [
        (
            1,
            "¿le gusta el jengibre a JC?",
            ("¿le gusta el jengibre a JC?", "gusta jengibre", "JC"),
        ),
        (7, "JC?", ("JC?", "JC")),
        (10, "¿qué?", ("¿qué?",)),
        (12, "x" * 700, ("x" * 500,)),
        (12, "  " + "é😀" * 350 + "  ", (("é😀" * 350)[:500],)),
        (13, "a b c", ("a b c",)),
        (14, "fix bug today", ("fix bug today",)),
        (
            15,
            "What did María José say about the API in NASA?",
            ("What did María José say about the API in NASA?", "say", "María José API NASA"),
        ),
        (
            16,
            "¿cuándo es el cumpleaños de Eva?",
            ("¿cuándo es el cumpleaños de Eva?", "cumpleaños", "Eva"),
        ),
        (
            16,
            "¿Cuándo es el cumpleaños de Eva?",
            ("¿Cuándo es el cumpleaños de Eva?", "cumpleaños", "Eva"),
        ),
        ("A3.9", "Is Cookie healthy?", ("Is Cookie healthy?", "healthy", "Cookie")),
        ("A3.9", "tell UNICEF", ("tell UNICEF", "tell", "UNICEF")),
        ("", "what does JC's dog love?", ("what does JC's dog love?", "dog love", "JC")),
        ("", "   ", ()),
    ],
)
def test_queries_are_those_of_the_seed(
    number: object, message: str, queries: Sequence[str]
) -> None:
    result = READ.queries(message)
    if len(message.strip()) > 500:
        assert result[0] == queries[0]
        result[0].encode()
    else:
        assert result == queries


@pytest.mark.parametrize(
    ("message", "found"),
    [
        ("What did María José say about the API in NASA?", ["María", "José", "API", "NASA"]),
        ("¿Cuándo es el cumpleaños de Eva?", ["Eva"]),
        ("Is Cookie healthy?", ["Cookie"]),
        ("JC's dog", ["JC"]),
        ("tell UNICEF", ["UNICEF"]),
        ("Restart the quokka cluster. Then ask Ada", ["Ada"]),
        ("Maria's deploy script fails in Berlin", ["Maria", "Berlin"]),
        ("Arregla el test de Ana", ["Ana"]),
        ("PaymentService is slow", ["PaymentService"]),
        ("- Update the README\n- Check Grafana", ["README", "Grafana"]),
        ("1) Update it\n## Heading\nMove it", []),
        ("- [x] Remove the flag\na) Rotate it\n(b) Notify Omar\niv. Check it", ["Omar"]),
        ("| restart | Ana |\nFetch it • Parse it", ["Ana"]),
        ("J. Smith asks JC", ["Smith", "JC"]),
        ("TODO: ask Ada about the FIXME in billing", ["Ada"]),
        ('He said "done." Restart it. (Fix it.) **Now:** Deploy it to Berlin', ["Berlin"]),
    ],
)
def test_names_are_found_in_a_message(message: str, found: list[str]) -> None:
    assert READ.names(message) == found


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("修复登录错误", 3),
        ("你好", 1),
        ("fix 登录 bug", 3),
        ("로그인 오류 수정", 3),
        ("a b", 2),
        ("", 0),
    ],
)
def test_words_of_any_script(text: str, count: int) -> None:
    assert word_count(text) == count


def hit(identity: str, score: float = 0.5, matched: Sequence[str] = (), **fields: object) -> Hit:
    text = f"{identity} {identity}1 {identity}2 says something of its own"
    memory = replace(Memory(id=identity, text=text, content_hash=identity), **fields)
    return Hit(memory=memory, score=score, matched=tuple(matched))


def order(hits: Sequence[Hit], intent: Intent | None = None, **context: object) -> list[str]:
    options = PipelineOptions(memory_context=ContextOptions(**context))
    return [entry.memory.id for entry in ranked(hits, intent or Intent(), options, NOW)]


@pytest.mark.parametrize(
    ("number", "rival", "first"),
    [(17, 0.574, "twice"), (17, 0.576, "rival"), (18, 0.576, "rival")],
)
def test_several_queries_weigh_once(number: int, rival: float, first: str) -> None:
    matched = ("a", "b") if number == 17 else ("a", "b", "c")
    assert order([hit("rival", rival), hit("twice", 0.5, matched)])[0] == first


@pytest.mark.parametrize(
    ("number", "source", "half_life", "factor"),
    [
        (19, "memory/2026-03-10.md", 30.0, 0.5),
        (19, "MEMORY.md", 30.0, 1.0),
        (19, "memory/2026-03-26.md", 7.0, 0.25),
        (20, "memory/2027-01-01.md", 30.0, 1.0),
        (20, "memory/notes-2026-03-10.md", 30.0, 1.0),
        (20, "memory/2026-13-45.md", 30.0, 1.0),
        (20, "memory/2026-03-10-notes.md", 30.0, 0.5),
    ],
)
def test_recency_is_that_of_the_seed(
    number: int, source: str, half_life: float, factor: float
) -> None:
    memory = Memory(text="x", source=source)
    assert recency(memory, NOW, half_life) == pytest.approx(factor, abs=0.02)


def test_19_recency_may_be_switched_off() -> None:
    hits = [hit("old", 0.6, source="memory/2026-01-01.md"), hit("new", 0.5)]
    assert order(hits) == ["new", "old"]
    assert order(hits, include_recency=False) == ["old", "new"]


@pytest.mark.parametrize(("asked", "shown"), [(4, 4), (0, 1), (2, 2)])
def test_21_entries_of_a_digest(asked: int, shown: int) -> None:
    options = PipelineOptions(memory_context=ContextOptions(max_results=asked))
    profile = profile_of("ask", Intent(), options)
    hits = [hit(f"m{n}") for n in range(6)]
    assert digest(fitting(hits, (), profile, frame_of("ask"))).count("\n- ") == shown


async def test_22_nothing_found_is_the_neutral_digest() -> None:
    stage = Surfacer(FakeRecall(), TtlStore(), PipelineOptions(), clock=ManualClock())
    outcome = await stage.surface(Cue(door="ask", text="what does Cookie love?"))
    assert isinstance(outcome, Skip)
    assert digest(()) == EMPTY_DIGEST


class Place:
    """A place to recall from that has one hit, or fails."""

    def __init__(self, name: str, found: Hit | UpwellError) -> None:
        self.name = name
        self._found = found

    async def search(self, query: Query, deadline: Deadline) -> Found:
        if isinstance(self._found, UpwellError):
            raise self._found
        return Found((self._found,))


class Reader(FakeRecall):
    """Reads only the hits of `recalls`."""

    def __init__(self, recalls: Recalls) -> None:
        super().__init__()
        self._recalls = recalls

    async def search(self, query: Query, deadline: Deadline) -> Found:
        return await self._recalls.search(query, deadline)


DOWN = RecallUnavailable("down", source="x")


@pytest.mark.parametrize(
    ("places", "found"),
    [([DOWN, hit("a", 0.9), hit("b", 0.8)], ["a", "b"]), ([DOWN, DOWN], [])],
)
async def test_23_a_search_that_fails_costs_its_own_results_only(
    places: Sequence[Hit | UpwellError], found: list[str]
) -> None:
    recalls = Recalls([Place(str(n), position) for n, position in enumerate(places)])
    stage = Surfacer(Reader(recalls), TtlStore(), PipelineOptions(), clock=ManualClock())
    outcome = await stage.surface(Cue(door="ask", text="what does Cookie love?"))
    reply = [m.id for m in outcome.memories] if isinstance(outcome, Surfacing) else []
    assert reply == found


def test_24_snippets_are_one_line_of_at_most_220() -> None:
    assert preview("a  b\n\nc", (), 220) == "a b c"
    long = preview("word " * 60, (), 220)
    assert len(long) <= 220
    assert long.endswith("…")


@pytest.mark.parametrize(
    ("kind", "hits", "first"),
    [
        ("howto", {"patterns": 0.6, "decisions": 0.8}, "patterns"),
        ("troubleshoot", {"blockers": 0.5, "context": 0.74}, "blockers"),
        ("location", {"decisions": 0.5, "patterns": 0.74}, "decisions"),
        ("explanation", {"context": 0.6, "patterns": 0.77}, "context"),
        ("comparison", {"patterns": 0.6, "context": 0.77}, "patterns"),
        ("general", {"patterns": 0.6, "context": 0.61}, "context"),
    ],
)
def test_weights_of_namespaces(kind: str, hits: dict[str, float], first: str) -> None:
    made = [hit(name, score, namespace=name) for name, score in hits.items()]
    assert order(made, Intent(kind=IntentKind(kind), confidence=0.9))[0] == first
