"""The options of a tool apply to calls of that tool, and to nothing else."""

import pytest
from msgspec.structs import replace

from upwell.app import Settings, build
from upwell.config import load
from upwell.ground.types.cue import Cue, Door, Skip, SkipReason, Surfacing
from upwell.learn.learned import LearnedLimits

FACTS = [
    "The tide service retries src/tide/retry.py calls four times with jitter.",
    "src/tide/retry.py must never sleep longer than ten seconds in all.",
]
HIGH = '[tool."fs__read_file".surface]\nmin_score = 1.0\n'


@pytest.fixture
async def surfaced_text(tmp_path):
    """`await surfaced_text(toml, *cues)`: what surfaces for each cue with these settings."""
    apps = []

    async def ask(toml, *cues, facts=tuple({"text": text} for text in FACTS)):
        home = tmp_path / f"home{len(apps)}"
        home.mkdir(mode=0o700)
        (home / "config.toml").write_text(toml)
        app = await build(Settings(home=home, environment={}))
        apps.append(app)
        await app.memory.add_many(facts)
        await app.memory.add_many([{"text": f"note {n} of gardens"} for n in range(20)])
        return [await app.surfacer.surface(cue) for cue in cues]

    yield ask
    for app in apps:
        await app.aclose()


def reading(tool, session="s"):
    return Cue(door=Door.TOOL, tool=tool, args={"path": "src/tide/retry.py"}, session=session)


async def test_a_threshold_of_one_tool_applies_only_beside_it(surfaced_text):
    first, other = await surfaced_text(HIGH, reading("fs__read_file"), reading("git__show", "t"))
    assert isinstance(first, Skip)
    assert first.reason is SkipReason.BELOW_MIN_SCORE
    assert "< 1.00" in first.detail
    assert isinstance(other, Surfacing)


async def test_patterns_servers_and_built_in_tools_have_their_own_options(surfaced_text):
    toml = (
        '[tool."git__*".surface]\nmin_score = 1.0\n'
        '[server.fs]\ncommand = "x"\n[server.fs.surface]\nenabled = false\n'
        '[tool."Read".surface]\nmin_score = 1.0\n'
    )
    cues = [reading("git__show"), reading("fs__read_file"), reading("Read"), reading("web__get")]
    git, fs, own, other = await surfaced_text(toml, *cues)
    assert [entry.reason for entry in (git, fs, own)] == [
        SkipReason.BELOW_MIN_SCORE,
        SkipReason.DISABLED,
        SkipReason.BELOW_MIN_SCORE,
    ]
    assert isinstance(other, Surfacing)


async def test_a_lower_threshold_of_a_tool_lets_more_hits_through(surfaced_text):
    toml = '[surface]\nmin_score = 1.0\n[tool."fs__*".surface]\nmin_score = 0.05\n'
    first, other = await surfaced_text(toml, reading("fs__read_file"), reading("git__show", "t"))
    assert isinstance(first, Surfacing)
    assert isinstance(other, Skip)


async def test_every_tool_has_its_own_size_limits(surfaced_text):
    toml = '[tool."fs__*".surface]\nmax_injection_chars = 40\n'
    first, other = await surfaced_text(toml, reading("fs__read_file"), reading("git__show", "t"))
    assert first.reason is SkipReason.OVER_BUDGET
    assert isinstance(other, Surfacing)


async def test_a_tool_has_a_cooldown_of_its_own(surfaced_text):
    toml = (
        "[surface]\ndedup_ttl_seconds = 0\n"
        '[tool."fs__*".surface]\ncooldown_seconds = 0\ncooldown_similarity = 0.5\n'
    )
    cues = [reading("fs__read_file"), reading("fs__read_file"), reading("git__show")]
    first, again, other = await surfaced_text(toml, *cues)
    assert isinstance(first, Surfacing)
    assert isinstance(again, Surfacing)
    assert other.reason is SkipReason.COOLDOWN


async def test_a_tool_has_a_rate_of_its_own(surfaced_text):
    toml = '[tool."fs__*".surface]\nrate_per_minute = 0\n'
    first, other = await surfaced_text(toml, reading("fs__read_file"), reading("git__show"))
    assert first.reason is SkipReason.RATE
    assert first.detail == "0 a minute"
    assert isinstance(other, Surfacing)


async def test_the_query_texts_of_one_tool_can_stay_off_the_disk(tmp_path):
    (tmp_path / "config.toml").write_text('[tool."fs__*".surface]\npersist_query_text = false\n')
    app = await build(Settings(home=tmp_path, environment={}))
    for tool in ("fs__read_file", "git__show"):
        await app.surfacer.surface(reading(tool))
    private, open_ = await app.decisions()
    await app.aclose()
    assert [text.partition(":")[0] for text in private["queries"]] == ["sha256"]
    assert open_["queries"] == ["tide retry"]


async def test_texts_of_a_tool_that_was_made_private_are_cleared(tmp_path):
    app = await build(Settings(home=tmp_path, environment={}))
    for tool in ("fs__read_file", "git__show"):
        await app.surfacer.surface(reading(tool))
    await app.aclose()
    (tmp_path / "config.toml").write_text('[tool."fs__*".surface]\npersist_query_text = false\n')
    app = await build(Settings(home=tmp_path, environment={}))
    assert await app.surfacer.journal.clear_queries() == 1
    texts = {decision["tool"]: decision["queries"] for decision in await app.decisions()}
    latest = await app.surfacer.journal.latest(5)
    files = {decision["tool"]: decision["file"] for decision in latest}
    await app.aclose()
    assert files["fs__read_file"] == ""
    assert files["git__show"]
    assert texts == {"fs__read_file": [], "git__show": ["tide retry"]}


async def test_a_door_is_not_a_tool(surfaced_text):
    toml = '[tool."*".surface]\nmin_score = 1.0\n'
    prompt = Cue(door=Door.PROMPT, text="how often does src/tide/retry.py retry?", session="p")
    reply, beside = await surfaced_text(toml, prompt, reading("fs__read_file"))
    assert isinstance(reply, Surfacing)
    assert isinstance(beside, Skip)


MANY = [
    {"text": f"src/tide/retry.py: rule {n} is {word}"}
    for n, word in enumerate(
        "amber basil cedar delta ember fjord gravel hazel iris juniper".split()
    )
]


@pytest.mark.parametrize(("toml", "said"), [("", [3, 2, 5]), ("max_count = 1\n", [1, 1, 1])])
async def test_a_cue_with_a_window_gets_a_matching_size(surfaced_text, toml, said):
    """Two memories in a small window, five in a large one, if the user set no number."""
    for window, number in zip((None, 16_000, 1_000_000), said, strict=True):
        cue = replace(reading("fs__read_file"), window=window)
        every_moment = f'[surface]\nmoments = "all"\n{toml}'
        (outcome,) = await surfaced_text(every_moment, cue, facts=MANY)
        assert len(outcome.hits) == number


def test_the_window_of_a_cue_overrides_the_configured_one(tmp_path):
    (tmp_path / "config.toml").write_text(
        '[agent]\ncontext_window = 1000000\n[tool."*".surface]\nmax_count = 9\n'
    )
    config = load(tmp_path, environment={})
    assert [config.surface_of(None, window).max_count for window in (None, 8_000)] == [20, 5]
    chars = [config.surface_of("Read", window).max_injection_chars for window in (None, 8_000)]
    assert chars == [4500, 1500]
    assert config.surface_of("Read", 8_000).max_count == 9


def test_learning_begins_at_the_threshold_of_the_tool():
    limits = LearnedLimits(min_score=0.5, of_tool=lambda tool: 0.8)
    assert limits.base("fs__read") == 0.8
    assert limits.base(Door.ASK) == 0.02
    assert [limits.base(door) for door in Door if door is not Door.ASK] == [0.5] * (len(Door) - 1)


def test_sizes_scale_with_the_window_unless_the_tool_sets_them(tmp_path):
    (tmp_path / "config.toml").write_text(
        '[agent]\ncontext_window = 16000\n[tool."fs__*".surface]\nmax_count = 7\n'
    )
    surface = load(tmp_path, environment={}).surface_of("fs__read")
    assert (surface.max_count, surface.max_injection_chars) == (7, 1500)
