"""The commands `import` and `export`."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from msgspec.structs import asdict

from upwell.cli.command import Argument, Option
from upwell.cli.output import Json, note, progress, say, say_json, table
from upwell.cli.session import with_memory
from upwell.ground.errors import UsageError
from upwell.ground.project import is_own, project_named
from upwell.ground.text.words import counted

if TYPE_CHECKING:
    from upwell.app import MemoryApp
    from upwell.memory.sources import Source
    from upwell.memory.transfer import Imported

MAX_SHOWN = 5


Paths = Annotated[
    list[Path] | None,
    Argument(metavar="PATH", help="Files or folders. Omit to list the imports."),
]
Form = Annotated[
    str,
    Option("--format", help="auto, markdown, stm or jsonl; auto decides by the file name."),
]
Projects = Annotated[
    list[str] | None,
    Option(
        "--project",
        metavar="OLD=NEW",
        help="Replace project OLD in the import with folder NEW. Repeatable.",
    ),
]
Own = Annotated[
    bool,
    Option(
        "--own",
        help="The JSON lines are your own export from another home: trust their rules and authors.",
    ),
]
Remove = Annotated[bool, Option("--remove", help="Stop reading these files and folders.")]


def import_memories(
    paths: Paths = None,
    form: Form = "auto",
    project: Projects = None,
    own: Own = False,
    remove: Remove = False,
    as_json: Json = False,
) -> None:
    """Import memories. Markdown files and folders stay in place: upwell reads them from now on and
    cites them relative to this folder. JSON lines are copied, and the notes of an stm.json are
    copied into the one in use. --project OLD=NEW replaces a project in JSON lines.

    What this home exported is restored as it was. Standing rules from anywhere else wait in the
    inbox for your review, and no import changes a memory that you have.
    """
    import_paths = paths or []
    if remove:
        with_memory(lambda app: _remove(app, import_paths))
    elif not import_paths:
        _show(*with_memory(_all_sources), as_json)
    else:
        _import_files(import_paths, form, _new_projects(project or []), own=own, as_json=as_json)


def _new_projects(given: list[str]) -> dict[str, str]:
    pairs = [text.partition("=") for text in given]
    if any(not old or not new for old, _, new in pairs):
        raise UsageError("--project needs OLD=NEW", hint="--project /home/ada/shop=~/work/shop")
    return {old.rstrip("/"): os.path.abspath(os.path.expanduser(new)) for old, _, new in pairs}


def _import_files(
    paths: list[Path], form: str, projects: dict[str, str], *, own: bool, as_json: bool
) -> None:
    """Import files. If one fails, those before it are still reported."""
    done: list[Imported] = []
    try:
        with progress(f"importing {paths[0]}") as show:

            async def work(app: "MemoryApp") -> None:
                for path in paths:
                    app.config.projects.check(path)
                    cwd = Path(os.getcwd())
                    added = app.imports.add(path, cwd, form, show, projects, vouched=own)
                    done.append(await added)
                await app.embeddings.catch_up(show)

            with_memory(work)
    finally:
        if as_json:
            fields = [asdict(imported).items() for imported in done]
            renamed = {"stored": "kept"}
            rows = [{renamed.get(name, name): value for name, value in row} for row in fields]
            say_json({"imported": rows})
        else:
            for imported in done:
                _report(imported)


def export(
    form: Annotated[str, Option("--format", help="jsonl or markdown.")] = "jsonl",
    project: Annotated[
        Path | None,
        Option("--project", metavar="DIR", help="Only the memories of this project."),
    ] = None,
    to: Annotated[
        Path | None,
        Option("--to", metavar="DIR", help="Keep every memory as a Markdown file in DIR."),
    ] = None,
) -> None:
    """Print every memory of every project. `upwell import` reads JSON lines back unchanged, in
    another home with --own. --to DIR writes each memory into a Markdown file there instead, and
    from then on, a file that you edit, add or delete changes the memory, and the other way round;
    `upwell import --remove DIR` ends that."""
    from upwell.memory.line import to_line
    from upwell.memory.transfer import exported, to_markdown

    if to is not None:
        if project or form != "jsonl":
            raise UsageError("--to takes neither --format nor --project")
        count = with_memory(lambda app: app.keep_folder(to))
        say(f"{to}: {counted(count, 'memory', 'memories')}, kept as Markdown from now on")
        return
    if form not in ("jsonl", "markdown"):
        raise UsageError(f"--format {form!r} is not a format", hint="jsonl or markdown")
    only = project_named(project) if project else None

    async def work(app: "MemoryApp") -> int:
        key, count = app.imports.key(), 0
        async for memory in exported(app.memory):
            if only is None or is_own(memory.project, only):
                say(to_line(memory, key) if form == "jsonl" else to_markdown(memory))
                count += 1
        return count

    of_project = f" of {only}" if only else ""
    note(f"upwell: {counted(with_memory(work), 'memory', 'memories')}{of_project}")


async def _remove(app: "MemoryApp", paths: list[Path]) -> None:
    for path in paths:
        kept = app.kept_folder()
        if kept is None or not kept.end(path):
            await app.imports.drop_source(path)
        say(f"stopped reading {path}")


async def _all_sources(app: "MemoryApp") -> "tuple[list[Source], str | None]":
    kept = app.kept_folder()
    return await app.imports.all(), kept.folder if kept else None


def _show(sources: "list[Source]", folder: str | None, as_json: bool) -> None:
    if as_json:
        say_json({"sources": [asdict(source) for source in sources], "folder": folder})
        return
    if folder:
        note(f"upwell: every memory is a file in {folder}")
    rows = [
        {"path": source.path, "cited": source.cited or ".", "project": source.project or ""}
        for source in sources
    ]
    table(
        ("path", "cited", "project"),
        rows,
        "No files or folders are read in place. `upwell recall` lists imported memories.",
    )


def _report(imported: "Imported") -> None:
    for problem in imported.problems[:MAX_SHOWN]:
        note(f"upwell: skipped {problem.path}: {problem.why}")
    if len(imported.problems) > MAX_SHOWN:
        note(f"upwell: and {len(imported.problems) - MAX_SHOWN} more; --json lists them")
    for rule, count in imported.redacted.items():
        note(f"upwell: masked {counted(count, 'secret')} before storing ({rule})")
    if imported.format == "markdown":
        summary = f"{counted(imported.files, 'file')}, {counted(imported.chunks, 'chunk')}"
        say(f"{imported.path}: {summary}; indexed in place")
    else:
        say(f"{imported.path}: {counted(imported.stored, 'memory', 'memories')} stored")
    if imported.own:
        note(f"upwell: {imported.own:,} of them as you exported them, with their rules and authors")
    if imported.conflicts:
        many = counted(len(imported.conflicts), "memory", "memories")
        ids = ", ".join(imported.conflicts[:MAX_SHOWN])
        more = ", …" if len(imported.conflicts) > MAX_SHOWN else ""
        note(f"upwell: left out {many}, because you have others with their ids: {ids}{more}")
    if imported.rules:
        rules = counted(imported.rules, "standing rule")
        note(f"upwell: {rules} not in force until you accept: `upwell inbox --every-project`")
