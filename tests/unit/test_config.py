import os

import pytest

from upwell.app import Settings, build
from upwell.compress import STRATEGIES
from upwell.compress.options import NOT_PER_TOOL as COMPRESS_NOT_PER_TOOL
from upwell.config import GONE, INSTEAD, load, read
from upwell.ground.errors import ConfigError
from upwell.surface.options import NOT_PER_TOOL


@pytest.fixture
def home(tmp_path):
    return tmp_path


def written(home, text):
    (home / "config.toml").write_text(text, encoding="utf-8")
    return load(home, environment={})


def test_defaults_without_a_file(home):
    config = load(home, environment={})
    assert config.surface.dedup_ttl_seconds == 604_800
    assert config.values == {}


def test_the_later_source_wins_and_is_recorded_as_origin(home):
    (home / "config.toml").write_text("[surface]\nmin_score = 0.3\nrace_ms = 100\n")
    config = load(home, {"surface.race_ms": 50}, {"UPWELL_SURFACE__MIN_SCORE": "0.7"})
    assert config.surface.min_score == 0.7
    assert config.surface.race_ms == 50
    assert config.values["surface.min_score"].origin == "UPWELL_SURFACE__MIN_SCORE"
    assert config.values["surface.race_ms"].origin == "flag"
    assert config.shown()["surface.max_count"].origin == "default"


def test_tables_per_server_and_tool(home):
    config = written(
        home,
        '[server.fs]\ncommand = "x"\n[server.fs.compress]\nmax_result_tokens = 9\n'
        '[tool."fs__read*"]\ncompress.strategy = "none"\nsurface.race_ms = 10\n',
    )
    assert config.compress_for("fs", "list").max_result_tokens == 9
    assert config.compress_for("fs", "list").strategy == "auto"
    assert config.compress_for("fs", "read_file").strategy == "none"
    assert config.surface_of("fs__read_file").race_ms == 10
    assert config.compress_for("git", "log").max_result_tokens is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[surfac]\na = 1", "did you mean 'surface'"),
        ("[surface]\nmin_scor = 1", "did you mean 'min_score'"),
        ('[surface]\nmin_score = "much"', "surface.min_score"),
        ("[surface]\nenabled = 7", "surface.enabled"),
        ('[surface]\ninjection_mode = "above"', "one of append, prepend, section"),
        ('[surface]\ninjection_mode = "apend"', "did you mean 'append'"),
        ('[compress]\nstrategy = "fast"', f"one of {', '.join(STRATEGIES)}"),
        ('[tool."files__*"]\ncompress.strategy = "truncat"', "did you mean 'truncate'"),
        ('[embed]\nkind = "model2vek"', "did you mean 'model2vec'"),
        ('[llm]\nbase_url = "localhost:11434/v1"', "http://HOST:PORT"),
        ('[server.fs]\nurl = "fs.example/mcp"', "http://HOST:PORT"),
        ("surface = 1", "must be a table"),
        ("[hook]\nhook.port = 1", "below [hook], write `port = …`"),
        ("[hook]\nsurface.min_score = 1", "move it below [surface], as `min_score = …`"),
        ("[server.fs]\nargs = []", "has no command"),
        ('[server.fs]\ncommand = "x"\ncomand = "y"', "did you mean 'command'"),
        ('[server.upwell]\ncommand = "x"', "reserved"),
        ('[server."a__b"]\ncommand = "x"', "may only have"),
        ('[tool."a"]\ncompres.strategy = "x"', "did you mean 'compress'"),
        ("[surface.namespace_weights.howtwo]\npatterns = 2", "did you mean 'howto'"),
        ("x = ", "is not TOML"),
    ],
)
def test_a_mistake_is_reported_with_its_place(home, text, message):
    with pytest.raises(ConfigError) as raised:
        written(home, text)
    assert message in str(raised.value)
    assert "config.toml" in str(raised.value)


def test_an_unknown_variable_is_reported(home):
    with pytest.raises(ConfigError, match="UPWELL_SURFACE__MIN_SCOR"):
        load(home, environment={"UPWELL_SURFACE__MIN_SCOR": "1"})


@pytest.mark.parametrize(("text", "value"), [("true", True), ("off", False), ("0", False)])
def test_flags_from_the_environment(home, text, value):
    config = load(home, environment={"UPWELL_SURFACE__ENABLED": text})
    assert config.surface.enabled is value


def test_lists_from_the_environment(home):
    config = load(home, environment={"UPWELL_CACHE__TOOLS": '["a*", "b"]'})
    assert config.cache.tools == ("a*", "b")


def test_weights_of_an_intent_replace_its_own_and_no_other(home):
    config = written(home, "[surface.namespace_weights]\nhowto = { blockers = 2 }\n")
    shown = config.shown()["surface.namespace_weights"]
    assert shown.value["howto"] == {"blockers": 2.0}
    assert shown.value["location"] == {"decisions": 1.5, "context": 1.3}
    assert shown.origin.endswith("config.toml")
    assert load(home.parent / "other", {}, {}).shown()["surface.namespace_weights"].value[
        "howto"
    ] == {"patterns": 1.5, "learnings": 1.3}
    fields = {"UPWELL_SURFACE__NAMESPACE_WEIGHTS": '{"general": {"a": 3}}'}
    assert load(home, environment=fields).surface.namespace_weights["general"] == {"a": 3.0}


def test_weights_of_a_tool_add_to_the_common_ones(home):
    config = written(
        home,
        "[surface.namespace_weights]\nhowto = { a = 2 }\n"
        '[tool."fs__*".surface.namespace_weights]\nnone = { b = 3 }\n',
    )
    weights = config.surface_of("fs__read").namespace_weights
    assert (weights["howto"], weights["none"]) == ({"a": 2.0}, {"b": 3.0})
    assert "none" not in config.surface_of("git__log").namespace_weights


def test_secrets_are_masked(home):
    config = written(home, '[server.fs]\ncommand = "x"\nenv = { KEY = "hush" }\n')
    assert "hush" not in str(config.shown())
    shown = load(home, {"llm.api_key": "hush"}, {}).shown()
    assert shown["llm.api_key"].value == "***"
    assert shown["surface.max_tokens"].value == 4000


@pytest.mark.parametrize("name", ["config.toml", "lexicon.toml"])
def test_a_pipe_is_not_a_configuration(tmp_path, name):
    os.mkfifo(tmp_path / name)
    with pytest.raises(ConfigError, match="not a regular file"):
        load(tmp_path, environment={})


def test_a_key_of_0_2_0_is_reported_and_stops_nothing(home):
    text = "[surface]\nmax_count = 7\nwrite_tools = []\n[hook]\nidle_minutes = 5\n"
    assert written(home, text).surface.max_count == 7
    _, mistakes = read(home, environment={"UPWELL_LTM__TOOL": "find"})
    assert [mistake.message.partition(" ")[0] for mistake in mistakes] == [
        "surface.write_tools",
        "hook.idle_minutes",
        "ltm.tool",
    ]
    assert all(mistake.hint == "delete it" for mistake in mistakes)


WRONG_KINDS = {
    "number": ('surface.min_score = "high"', "'high': must be a number, like 0.5"),
    "whole": ("surface.race_ms = 2.5", "2.5: must be a whole number of milliseconds, like 300"),
    "no default": ('compress.max_result_tokens = "x"', "must be a whole number of tokens"),
    "duration": ('surface.timeout_seconds = "5m"', "must be a number of seconds, like 3"),
    "boolean": ("surface.enabled = 7", "7: must be true or false"),
    "boolean for a number": ("surface.race_ms = true", "true: must be a whole number"),
    "date": ("surface.race_ms = 1979-05-27", "must be a whole number"),
    "list": ('cache.tools = "a"', """'a': must be a list of strings, like ["a", "b"]"""),
    "item": ("cache.tools = [1]", "[1]: must be a list of strings"),
    "choices": ('hook.compress = ["clade"]', "must be a list of claude, codex"),
    "choice": ("surface.injection_mode = 3", "3: must be one of append, prepend, section"),
    "named choice": ("embed.kind = 3", "3: must be one of model2vec"),
    "text": ("agent.model = 1", "1: must be a string in quotes"),
    "table": (
        'ltm.headers = "x"',
        'a table of names, each with a string, like { NAME = "string" }',
    ),
    "weights": (
        'surface.namespace_weights = { howto = "x" }',
        "must be tables with a number above 0",
    ),
    "no weight": ("surface.namespace_weights = { howto = { a = 0 } }", "like { howto = { patterns"),
    "endless weight": ("surface.namespace_weights = { howto = { a = inf } }", "a number above 0"),
    "unit": ("surface.namespace_weights = 2", "2: must be tables with a number above 0 for each"),
    "endless": ("surface.timeout_seconds = inf", "must be between 0 and 1000000000000"),
}


@pytest.mark.parametrize("case", WRONG_KINDS)
def test_a_value_of_the_wrong_type_is_described_in_words_with_its_line(home, case):
    line, reply = WRONG_KINDS[case]
    with pytest.raises(ConfigError) as caught:
        written(home, f"# a remark\n\n{line}\n")
    assert reply in caught.value.message
    assert "config.toml:3 is " in caught.value.message
    assert not {"str", "int", "float", "bool"} & set(caught.value.message.split())


def test_a_variable_of_the_wrong_type_is_quoted_as_written(home):
    for name, text, reply in (
        ("SURFACE__MIN_SCORE", "high", "'high': must be a number, like 0.5"),
        ("MEMORY_CONTEXT__ENABLED", "maybe", "'maybe': must be true or false"),
        ("CACHE__TOOLS", "a", """in a variable as JSON: '["a", "b"]'"""),
        ("LTM__HEADERS", "a", """in a variable as JSON: '{"NAME": "string"}'"""),
    ):
        with pytest.raises(ConfigError) as caught:
            load(home, environment={f"UPWELL_{name}": text})
        assert reply in str(caught.value)
        assert f"UPWELL_{name}" in caught.value.message


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("question,failed", ("question", "failed")),
        ("question", ("question",)),
        (" question , name ", ("question", "name")),
        ('["question", "failed"]', ("question", "failed")),
        ("all", "all"),
    ],
)
def test_moments_may_be_listed_in_a_variable(home, text, expected):
    config = load(home, environment={"UPWELL_SURFACE__MOMENTS": text})
    assert config.surface.moments == expected


def test_an_unknown_moment_in_a_list_is_named_with_the_nearest(home):
    with pytest.raises(ConfigError, match=r"'fail'.* not a known value") as caught:
        load(home, environment={"UPWELL_SURFACE__MOMENTS": "question,fail"})
    assert "'failed'" in str(caught.value)


def test_the_reported_line_belongs_to_the_key_and_not_to_its_namesake(home):
    text = (
        "[surface]\n# race_ms = 1\nrace_ms = 1\n"
        '[tool."a.b__*"]\nsurface.race_ms = "x"\n[server.x]\nargs = ["race_ms"]\n'
    )
    with pytest.raises(ConfigError, match=r"config\.toml:5 is 'x'"):
        written(home, text)
    with pytest.raises(ConfigError, match=r"config\.toml:1 has no command"):
        written(home, "[server.x]\nargs = []\n")
    with pytest.raises(ConfigError, match=r'config\.toml:2 is \["a", 3\]'):
        written(home, '[server.x]\nargs = ["a",\n3]\ncommand = "c"\n')


@pytest.mark.parametrize("key", sorted(NOT_PER_TOOL))
def test_a_key_that_cannot_differ_by_tool_is_refused_with_its_place(home, key):
    values = {
        "templates": "{ a = 'b' }",
        "moments": "'all'",
        "judge": "true",
    }
    value = values.get(key, "1")
    for table in ('[tool."fs__*".surface]', '[server.fs]\ncommand = "x"\n[server.fs.surface]'):
        with pytest.raises(ConfigError, match=rf"surface\.{key} .*cannot differ by tool") as caught:
            written(home, f"{table}\n{key} = {value}\n")
        assert caught.value.hint == f"move it to [surface]: {key} = …"
    assert getattr(written(home, f"[surface]\n{key} = {value}\n").surface, key) is not None


@pytest.mark.parametrize("key", sorted(COMPRESS_NOT_PER_TOOL))
def test_the_originals_of_all_tools_share_their_limits(home, key):
    with pytest.raises(ConfigError, match=rf"compress\.{key} .*cannot differ by tool") as caught:
        written(home, f'[tool."fs__*"]\ncompress.{key} = 9\n')
    assert caught.value.hint == f"move it to [compress]: {key} = …"
    assert getattr(written(home, f"[compress]\n{key} = 9\n").compress, key) == 9


def test_surfacing_beside_our_own_tools_is_refused(home):
    with pytest.raises(ConfigError, match=r"config\.toml:2 has no effect") as caught:
        written(home, '[tool."upwell__memory_context".surface]\nmin_score = 0.9\n')
    assert caught.value.hint.startswith("[surface] min_score")
    written(home, '[tool."*".surface]\nmin_score = 0.9\n')


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://user@/db?host=/run/postgresql",
        "postgresql:///db",
        "postgresql://user@%2Frun%2Fpostgresql/db",
        "postgres://host/db",
    ],
)
def test_a_database_may_be_at_a_socket(home, url):
    assert written(home, f'[store]\nurl = "{url}"\n').store.url == url


@pytest.mark.parametrize("url", ["postgresql://", "mysql:///db", "https:///path", "/run/x"])
def test_an_address_names_a_host_or_a_database(home, url):
    with pytest.raises(ConfigError, match="not the address"):
        written(home, f'[store]\nurl = "{url}"\n')


def test_every_mistake_is_reported_with_its_line(home):
    (home / "config.toml").write_text(
        "[surface]\nmin_scor = 1\nrace_ms = 'x'\nmax_count = 3\n"
        "[surfac]\na = 1\n"
        "[server.a]\nargs = 1\ncomand = 'x'\n"
        "[server.b]\ncommand = 'x'\n[server.b.compress]\nstrateg = 'none'\n"
        '[tool."fs__*"]\nsurface.min_score = 2\ncompres.strategy = "none"\n'
    )
    config, mistakes = read(home, {"hook.port": "x"}, {"UPWELL_SURFACE__MAX_COUN": "1"})
    keys = [mistake.key for mistake in mistakes]
    assert keys == [
        "surface.min_scor",
        "surface.race_ms",
        "surfac",
        "server.a.args",
        "server.a.comand",
        "server.b.compress.strateg",
        "tool.fs__*.surface.min_score",
        "tool.fs__*.compres",
        "surface.max_coun",
        "hook.port",
    ]
    lines = [2, 3, 5, 8, 9, 13, 15, 16]
    for mistake, line in zip(mistakes, lines, strict=False):
        assert f"config.toml:{line} " in f"{mistake.message} "
    assert config.surface.max_count == 3
    with pytest.raises(ConfigError) as caught:
        load(home, environment={})
    assert caught.value.key == keys[0]


@pytest.mark.parametrize("key", sorted(GONE))
def test_a_key_of_an_earlier_version_is_reported_and_stops_nothing(home, key):
    section, name = key.split(".")
    text = f"[{section}]\n{name} = 1\n[surface]\n" if section != "surface" else "[surface]\n"
    text += "max_count = 3\n" + (f"{name} = 1\n" if section == "surface" else "")
    assert written(home, text).surface.max_count == 3
    [mistake] = read(home, environment={})[1]
    assert (mistake.key, mistake.hint) == (key, INSTEAD.get(key, "delete it"))
    assert "no longer has an effect" in mistake.message


def test_so_is_one_that_was_set_for_a_tool(home):
    text = '[server.ltm]\ncommand = "x"\n[tool."a.b__*".surface]\ntool_count = 1\nmax_count = 2\n'
    assert written(home, text).surface_of("a.b__c").max_count == 2
    assert [mistake.key for mistake in read(home, environment={})[1]] == [
        "tool.a.b__*.surface.tool_count"
    ]
    with pytest.raises(ConfigError, match=r"server\.ltm\.args"):
        written(home, '[server.ltm]\ncommand = "x"\nargs = 3\n')


def test_the_time_limits_of_hooks_are_no_settings(home):
    config, mistakes = read(home, environment={"UPWELL_HOOK__PROMPT_MS": "8000"})
    assert mistakes == []
    assert "hook.prompt_ms" not in config.shown()


async def test_commands_use_the_store_although_a_key_of_it_is_gone(home):
    written(home, '[memory]\nqmd_mode = "vsearch"\n[store]\nsecret = "x"\n')
    app = await build(Settings(home=home, environment={}))
    assert [mistake.key for mistake in app.mistakes] == ["memory.qmd_mode", "store.secret"]
    await app.aclose()
