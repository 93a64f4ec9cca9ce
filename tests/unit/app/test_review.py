"""Memories that are offered for removal: the reason for each, and the effect of the answers."""

import hashlib
from pathlib import Path

import pytest
from msgspec.structs import replace

from upwell.app import App
from upwell.app.review import Evidence, RemovalOffer, RemovalReason, near_duplicates, offers_among
from upwell.capture.inbox import WHY_COMMAND, WHY_RULE, Proposal, inbox_at
from upwell.ground.types.memory import Memory, Provenance, Trust
from upwell.learn.feedback import MemoryUse

DAY = 86_400.0
NOW = 1_000 * DAY


@pytest.fixture
def project(tmp_path: Path) -> str:
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "till.py").write_text("class CashTill: ...")
    return str(tmp_path / "shop")


def memory(id: str, text: str, project: str, **fields: object) -> Memory:
    known = Memory(id=id, text=text, project=project, created_at=900 * DAY)
    return replace(known, **fields)


def reasons(*memories: Memory, **evidence: object) -> dict[str, RemovalReason]:
    offers = offers_among(memories, Evidence(**evidence), NOW)
    return {offer.memory.id: offer.reason for offer in offers}


def test_a_good_memory_is_not_offered(project: str) -> None:
    good = memory("a", "Cash is counted twice in till.py.", project, paths=("till.py",))
    assert reasons(good) == {}
    assert reasons(good, uses={"a": [MemoryUse.IGNORED, MemoryUse.USED, MemoryUse.IGNORED]}) == {}


def test_a_memory_whose_files_are_all_gone_is_stale(project: str) -> None:
    gone = memory("a", "Sums are in sum.py.", project, paths=("sum.py",))
    half = memory("b", "Sums and tills.", project, paths=("sum.py", "till.py"))
    folder = memory("c", "A project that was moved.", f"{project}/gone")
    outside = memory("d", "The system has it.", project, paths=("/etc/nothing",))
    assert reasons(gone, half, folder, outside) == {
        "a": RemovalReason.STALE,
        "c": RemovalReason.STALE,
    }


def test_an_episode_needs_every_file_and_name(project: str) -> None:
    place = {"triggers": ("symbol:CashTill",), "paths": ("till.py",)}
    holds = memory("a", "`CashTill` is in `till.py`.", project, symbols=("CashTill",), **place)
    gone = memory("b", "`OldTill` is in `till.py`.", project, symbols=("OldTill",), **place)
    (offer,) = offers_among([holds, replace(gone, triggers=("symbol:OldTill",))], Evidence(), NOW)
    assert (offer.memory.id, offer.reason, offer.detail) == (
        "b",
        RemovalReason.STALE,
        "OldTill is gone",
    )


def test_a_superseded_memory_and_an_overtaken_episode_are_contradicted(project: str) -> None:
    old, new = memory("a", "Ports are 80.", project), memory("b", "Ports are 8080.", project)
    assert reasons(old, new, successors={"a": "b"}) == {"a": RemovalReason.CONTRADICTED}
    situation = {"triggers": ("fails:bake:1",), "provenance": Provenance(tool=WHY_COMMAND)}
    first = memory("a", "`bake --lid` works.", project, **situation)
    second = memory("b", "`bake --cover` works.", project, updated_at=901 * DAY, **situation)
    (offer,) = offers_among([second, first], Evidence(), NOW)
    assert (offer.memory.id, offer.reason) == ("a", RemovalReason.CONTRADICTED)
    assert "`bake --cover` works." in offer.detail


def test_a_memory_that_was_rated_down_or_never_used_is_useless(project: str) -> None:
    down, ignored = memory("a", "One thing.", project), memory("b", "Another thing.", project)
    assert reasons(
        down,
        ignored,
        memory("c", "A third thing, mentioned twice.", project),
        memory("d", "A rule that nobody quotes.", project, pinned=True),
        negatives={"a": 3.0},
        uses={
            "b": [MemoryUse.IGNORED] * 3,
            "c": [MemoryUse.IGNORED] * 2,
            "d": [MemoryUse.IGNORED] * 9,
        },
    ) == {"a": RemovalReason.USELESS, "b": RemovalReason.USELESS}


def test_an_import_that_nobody_needed_in_a_month_is_unmatched(project: str) -> None:
    imported = memory("a", "An old note about tills.", project, trust=Trust.IMPORTED)
    own = memory("b", "An own note about sums.", project)
    later = replace(imported, id="c", text="A later import.", updated_at=999 * DAY)
    observed = {"observed_since": 800 * DAY}
    assert reasons(imported, own, later, **observed) == {"a": RemovalReason.UNMATCHED}
    assert reasons(imported) == {}, "upwell has not been at work"
    assert reasons(imported, observed_since=990 * DAY) == {}


def test_the_older_of_two_near_duplicates_is_offered(project: str) -> None:
    text = "The cash till rounds every sum to five cents before it prints the receipt for the guest"
    old, new = memory("a", text, project), memory("b", f"{text}.", project, updated_at=999 * DAY)
    assert reasons(old, new) == {"a": RemovalReason.DUPLICATE}
    assert reasons(replace(old, pinned=True), new) == {"b": RemovalReason.DUPLICATE}
    assert reasons(old, replace(new, project="/elsewhere")).get("a") is None
    other = memory("c", text.replace("five", "ten"), project)
    assert list(near_duplicates([new, other])) == [("c", "b")]
    assert list(near_duplicates([replace(new, triggers=("fails:x:1",)), other])) == []


def test_near_duplicates_of_many_memories_take_little_time(project: str) -> None:
    words = [hashlib.sha256(str(n).encode()).hexdigest() for n in range(5_000)]
    many = [memory(f"m{n}", f"a note about {word}", project) for n, word in enumerate(words)]
    assert list(near_duplicates(many)) == []


async def test_a_removed_memory_is_in_the_trash_and_is_not_learned_again(
    app: App, project: str
) -> None:
    box = inbox_at(app.config.home.inbox_file)
    rule = Proposal(text="Wash the bowl.", source="s", why=WHY_RULE, project=project)
    await app.memory.add(rule.memory())
    (known,) = await app.memory.list()
    review = app.review()
    await review.remove(known)
    assert await app.memory.list() == []
    assert box.propose([rule]).new == 0
    assert box.propose([replace(rule, project="/elsewhere")]).new == 1
    assert await app.memory.restore(known.id)
    await review.remove(known, duplicates=True)
    assert box.waiting() == []
    assert box.propose([replace(rule, project="/another")]).new == 0


async def test_a_declined_offer_is_not_made_again_for_the_same_reason(
    app: App, project: str
) -> None:
    await app.memory.add(memory("a", "Sums are in `sum.py`.", project, paths=("sum.py",)))
    review = app.review()
    (offer,) = await review.offers(project)
    assert offer.reason is RemovalReason.STALE
    assert await review.offers("/elsewhere") == []
    assert await review.offers(project, RemovalReason.DUPLICATE) == []
    await review.decline(offer)
    assert await review.offers(project) == []
    assert isinstance(offer, RemovalOffer)
