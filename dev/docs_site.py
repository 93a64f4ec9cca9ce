"""Pages of the documentation site that are not files in docs/: the commands, as the code declares
them, and the project's own pages. mkdocs loads this file as a hook.
"""

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

from upwell.ground.project import address_of

ROOT = Path(__file__).parents[1]
COPIES = {"CHANGELOG.md": "changes.md", "CONTRIBUTING.md": "contributing.md"}
SEARCH_BOOSTS = {
    "faq.md": 4.0,
    **dict.fromkeys(("quickstart.md", "privacy.md", "hooks.md"), 2.0),
    "moving-in.md": 2.0,
    "changes.md": 0.25,
    **dict.fromkeys(("contributing.md", "decisions.md", "end-to-end.md"), 0.05),
}
"""Pages that the search box ranks before or after the others: a user's question first leads to an
answer, and only then to the pages for maintainers."""


CLONE = "Install it from a clone of its repository:"
"""The sentence of the page "Two minutes" that gets the address of the repository."""


def on_config(config: Any) -> Any:
    """A site that is built from a clone of a public repository links to the repository."""
    if address := address_of(str(ROOT)):
        config.repo_url = f"https://{address}"
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the generated pages."""
    files.append(File.generated(config, "commands.md", content=commands_page()))
    for source, page in COPIES.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=_as_page(text)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """Links to the project's own pages lead to their copies on the site, the search learns the rank
    of the page, and the address of the repository stands where it is needed."""
    if config.repo_url:
        markdown = markdown.replace(CLONE, f"{CLONE[:-1]} (`git clone {config.repo_url}`):")
    if boost := SEARCH_BOOSTS.get(page.file.src_uri):
        page.meta["search"] = {"boost": boost}
    for source, page in COPIES.items():
        markdown = markdown.replace(f"](../{source}", f"]({page}")
    return markdown


def commands_page() -> str:
    """Every command with its arguments and options."""
    from click import Context

    from upwell.cli.main import COMMAND, GROUPS

    lines = ["# Commands", "", "Every command with its arguments and options, from the code.", ""]
    with Context(COMMAND, info_name="upwell") as context:
        for title, names in GROUPS.items():
            lines += [f"## {title}", ""]
            for name in names:
                lines += _described(COMMAND.get_command(context, name), f"upwell {name}")
    return "\n".join(lines)


def _described(command: Any, line: str) -> list[str]:
    from click import Context

    context = Context(command, info_name=line)
    usage = " ".join(command.collect_usage_pieces(context))
    lines = [f"### {line}", "", f"`{line} {usage}`", "", _text(command.help or ""), ""]
    records = [parameter.get_help_record(context) for parameter in command.params]
    if records:
        rows = [f"| `{_text(names)}` | {_text(text)} |" for names, text in records]
        lines += ["| argument or option | |", "|---|---|", *rows, ""]
    for name, part in getattr(command, "commands", {}).items():
        lines += _described(part, f"{line} {name}")
    return lines


def _text(help_text: str) -> str:
    return " ".join(help_text.split()).replace("|", "\\|").replace("<", "&lt;")


def _as_page(text: str) -> str:
    """Links relative to the project's root become relative to docs/."""
    return re.sub(r"\]\(docs/", "](", text)
