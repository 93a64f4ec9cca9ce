"""The parts of the query of a cue: text, files, names and project."""

from time import process_time

import pytest

from upwell.ground.types.cue import Cue
from upwell.ground.types.memory import QuerySource
from upwell.surface.query import CueReader


def query_of(cue):
    return CueReader().query(cue, 10)


def tool(name, args):
    return query_of(Cue(door="tool", tool=name, args=args))


def test_a_level_without_a_usable_word_gives_way():
    assert tool("x__read", {"path": "/src/index", "query": "billing"}).source is QuerySource.KEYS


def test_files_and_names_are_passed_on_at_every_level():
    query = tool("Bash", {"command": "pytest tests/unit/test_cache.py -k parseConfig"})
    assert query.paths == ("tests/unit/test_cache.py",)
    assert query.symbols == ("parseConfig",)


def test_a_message_names_files_too():
    query = query_of(Cue(door="prompt", text="why does src/app/cache.py reload?"))
    assert query.paths == ("src/app/cache.py",)
    assert query.source is QuerySource.MESSAGE


def test_the_cwd_decides_the_project(tmp_path):
    (tmp_path / ".git").mkdir()
    (tmp_path / "deep").mkdir()
    cue = Cue(door="prompt", text="what about caching here?", cwd=str(tmp_path / "deep"))
    assert query_of(cue).scope.project == str(tmp_path)


@pytest.mark.parametrize("args", [{}, {"path": None}, {"path": ["x", 3]}, {"query": {"a": 1}}])
def test_odd_arguments_do_no_harm(args):
    query = tool("fs__read_file", args)
    assert query is not None
    assert all(isinstance(path, str) for path in query.paths)


@pytest.mark.parametrize(
    ("cue", "awaited"),
    [
        (Cue(door="ask", text="what about the cache reload?"), True),
        (Cue(door="prompt", text="what about the cache reload?"), False),
        (Cue(door="tool", tool="Read", args={"file_path": "src/cache.py"}), False),
    ],
)
def test_only_explicit_requests_wait(cue, awaited):
    query = query_of(cue)
    assert query is not None
    assert query.awaited is awaited


@pytest.mark.parametrize("key", ["paths", "path", "query", "anything", "command"])
def test_the_cost_of_a_call_does_not_grow_with_the_size_of_its_arguments(key, tmp_path):
    many = [f"{tmp_path}/{n}/part_{n}.py rename_part_{n}()" for n in range(100_000)]
    cue = Cue(door="tool", tool="up__x", args={key: many}, cwd=str(tmp_path))
    began = process_time()
    result = query_of(cue)
    assert process_time() - began < 1
    assert result is None or len(result.paths) <= 12


def test_the_first_dozen_of_a_list_still_count():
    many = [f"/srv/part_{n}.py" for n in range(1_000)]
    assert tool("up__x", {"paths": many}).paths == tuple(many[:12])


def test_the_cost_of_a_call_does_not_grow_with_the_number_of_arguments():
    args = {f"a{n}": f"src/part_{n}.py rename_part_{n}()" for n in range(100_000)}
    began = process_time()
    tool("up__x", args)
    assert process_time() - began < 1
