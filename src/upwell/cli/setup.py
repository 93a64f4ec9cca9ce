"""The command `setup`, which sets up every agent on this machine after one question, or undoes the
setup."""

import os
import shlex
import shutil
import time
from collections import Counter
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click
from click.exceptions import Exit

from upwell.cli.command import Option
from upwell.cli.hooks import has_guards, hook_installation, installer_of
from upwell.cli.inbox import open_inbox
from upwell.cli.lessons import (
    learned_from,
    offer_question,
    offer_state,
    say_learned,
    write_past_lessons,
)
from upwell.cli.memories import index_sessions
from upwell.cli.output import note, progress, say
from upwell.cli.plans import confirm, expect_terminal, refuse, reporting, show_plans, state
from upwell.cli.servers import NO_AGENT, clients_of_user, say_damage, say_places
from upwell.cli.session import run, with_memory
from upwell.ground.errors import UpwellError, UsageError
from upwell.ground.text.words import counted

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from upwell.app.lesson_past import LessonOffer
    from upwell.app.memory import MemoryApp
    from upwell.app.setting_up import SettingUp, SetupPart, SetupPlan
    from upwell.replay.transcripts import Transcript

LEARNING = frozenset({"hooks", "lessons"})
"""The parts that read past sessions."""
DAY_SECONDS = 86_400.0
SWITCHES = {
    "hooks": "learning at the end of each turn",
    "shorten": "shortening",
    "lessons": "lessons",
}
"""What `config.toml` switches on for each part."""
REPLAY_SECONDS = 20.0
"""How long setup may replay the last month before it asks."""
MOMENTS = {
    "question": "at a question",
    "first_request": "at a first request",
    "asking_call": "at a search in words",
    "nothing_found": "where a search found nothing",
    "failed": "where a command failed",
    "file": "at a file",
    "name": "at a name",
    "trigger": "where an earlier situation returned",
    "lesson": "where a lesson bore on a call",
    "session_start": "at a session's start",
}
Yes = Annotated[bool, Option("--yes", "-y", help="Do not ask.")]
DryRun = Annotated[bool, Option("--dry-run", help="Only show what would be done.")]


def setup(
    yes: Yes = False,
    dry_run: DryRun = False,
    undo: Annotated[bool, Option("--undo", help="Restore what setup changed.")] = False,
    only: Annotated[
        str | None,
        Option(metavar="PARTS", help="Only these: hooks,servers,shorten,lessons; servers to undo."),
    ] = None,
    project: Annotated[
        bool, Option("--project", help="Also wrap the servers in this folder's settings.")
    ] = False,
    shorten: Annotated[
        bool, Option("--shorten", help="Also shorten long results of the agents' own tools.")
    ] = False,
    lessons: Annotated[
        bool, Option("--lessons", help="Also have a model write down what sessions taught.")
    ] = False,
    forget: Annotated[
        bool, Option("--forget", help="With --undo: also drop what setup learned.")
    ] = False,
) -> None:
    """Set up upwell for every agent on this machine. Installs hooks, wraps MCP servers, and learns
    from past and future sessions. Every server keeps its place, its name and its tools. Lists every
    file that it would change, asks once, and tests each agent's hook. --undo restores the files;
    with --forget, it also drops what setup learned.
    """
    from upwell.app.setting_up import SettingUp
    from upwell.config import load

    if forget and (not undo or only):
        raise UsageError("--forget needs --undo alone", hint="upwell setup --undo --forget")
    parts = _parts(only, undo=undo, shorten=shorten, lessons=lessons)
    if not (yes or dry_run or undo):
        expect_terminal()
    with _leaving_no_home() if dry_run else nullcontext():
        clients = clients_of_user(project)
        installer = installer_of(hook_installation(guards=has_guards()))
        setting_up = SettingUp(clients, installer, load().home.prepare())
        say_damage(setting_up.damage)
        if undo:
            from upwell.cli.plans import undo_setup

            undo_setup(
                setting_up, only_servers=only == "servers", dry_run=dry_run, yes=yes, forget=forget
            )
        else:
            _set_up(setting_up, parts, dry_run=dry_run, yes=yes)


def _parts(only: str | None, *, undo: bool, shorten: bool, lessons: bool) -> "frozenset[SetupPart]":
    from upwell.app.setting_up import USUAL, SetupPart

    words = [word.strip() for word in only.split(",")] if only is not None else []
    if unknown := [word for word in words if word not in list(SetupPart)]:
        raise UsageError(f"--only {unknown[0]!r} is unknown", hint=", ".join(SetupPart))
    parts = frozenset(map(SetupPart, words)) or USUAL
    if undo and only not in (None, "servers"):
        raise UsageError("--undo takes only --only servers", hint="upwell setup --undo undoes all")
    more = {SetupPart.SHORTEN: shorten, SetupPart.LESSONS: lessons}
    return parts | {part for part, is_wanted in more.items() if is_wanted}


@contextmanager
def _leaving_no_home() -> "Iterator[None]":
    """If upwell's home does not exist yet, remove it at the end."""
    from upwell.ground.files import default_home

    home = default_home()
    missing = [folder for folder in (home, *home.parents) if not folder.exists()]
    try:
        yield
    finally:
        if missing:
            shutil.rmtree(home, ignore_errors=True)
            with suppress(OSError):
                for folder in missing[1:]:
                    folder.rmdir()


def _set_up(
    setting_up: "SettingUp", parts: "frozenset[SetupPart]", *, dry_run: bool, yes: bool
) -> None:
    from upwell.app.lesson_past import LessonOffer, offered
    from upwell.replay.transcripts import transcripts_of_user

    plan = setting_up.plan(parts)
    if "hooks" in parts and not (plan.hooks or plan.plugins or plan.wrapping.files or plan.refused):
        say(NO_AGENT)
        return
    learns = bool(parts & LEARNING)
    transcripts, offer = [], LessonOffer()
    if learns:
        transcripts = transcripts_of_user(Path.home(), Path.cwd(), None)
        hosts = [*(hooks.agent for hooks in plan.hooks), *plan.plugins]
        with progress("estimating") as show:
            offer = with_memory(lambda app: offered(app, transcripts, hosts, show))
    if "lessons" in parts:
        if not offer.setting:
            raise UsageError(offer_state(offer), hint="upwell setup sets up everything else")
        plan = setting_up.plan(parts, lessons=offer.setting)
    if dry_run:
        show_plans((*plan.files, *plan.hooks))
    _summarise(plan, parts, transcripts, offer, replays=dry_run or not yes)
    if not (plan.changes or plan.refused or learns):
        say("nothing to do")
    elif dry_run:
        note("upwell: nothing was changed; without --dry-run, setup asks and then does all of this")
        raise Exit(1 if plan.refused else 0)
    else:
        if not yes:
            parts, plan = _confirmed(setting_up, parts, plan, offer)
        _carry_out(setting_up, parts, plan, transcripts, offer)


def _confirmed(
    setting_up: "SettingUp", parts: "frozenset[SetupPart]", plan: "SetupPlan", offer: "LessonOffer"
) -> "tuple[frozenset[SetupPart], SetupPlan]":
    """Ask, also about lessons. Returns what the user wants."""
    from upwell.app.setting_up import SetupPart

    confirm("Do all of this?", lambda: show_plans((*plan.files, *plan.hooks)))
    may_offer = SetupPart.HOOKS in parts and SetupPart.LESSONS not in parts
    if (
        may_offer
        and offer.setting
        and not offer.is_on
        and click.confirm(offer_question(offer), default=False)
    ):
        parts |= {SetupPart.LESSONS}
        plan = setting_up.plan(parts, lessons=offer.setting)
    return parts, plan


def _carry_out(
    setting_up: "SettingUp",
    parts: "frozenset[SetupPart]",
    plan: "SetupPlan",
    transcripts: "list[Transcript]",
    offer: "LessonOffer",
) -> None:
    faults = [*plan.refused]
    setting_up.write(plan, reporting(faults))
    if parts & LEARNING:
        _learn(setting_up, transcripts, offer if "lessons" in parts else None)
    if "hooks" in parts:
        _prove(setting_up, faults)
    changed = [change for change in (*plan.wrapping.files, *plan.hooks) if change.changes]
    # If an agent has two hints, the hint about its hooks is printed, because it is more precise.
    for agent, step in {change.agent: change.next_step for change in changed}.items():
        say(f"next: {agent}: {step}")
    if parts & LEARNING:
        _say_more(_replay(setting_up))
    say("undo: `upwell setup --undo`")
    if faults:
        raise Exit(1)


def _summarise(
    plan: "SetupPlan",
    parts: "frozenset[SetupPart]",
    transcripts: "list[Transcript]",
    offer: "LessonOffer",
    *,
    replays: bool,
) -> None:

    say_places(plan.wrapping)
    say("upwell would")
    for kind, plans in (("hooks", plan.hooks), ("servers", plan.wrapping.files)):
        for change in plans:
            say(f"  {kind:<8} {change.agent}: {state(change)}")
    for agent in plan.plugins:
        say(f"  hooks    {agent}: none; upwell's plugin has them")
    for given in plan.back.plans:
        say(f"  back     {given.agent}: its servers leave the gateway, each to its place")
    if plan.config.changes or "hooks" in parts:
        switches = ", ".join(name for part, name in SWITCHES.items() if part in parts)
        say(f"  config   {switches}: {state(plan.config)}")
    if "hooks" in parts:
        _say_learning(plan, transcripts, offer)
    if parts & LEARNING:
        say(f"  lessons  {offer_state(offer, is_chosen='lessons' in parts)}")
    if plan.changes or "hooks" in parts:
        say("`upwell setup --undo` reverts all of it.")
    if replays and parts & LEARNING:
        _say_heard(transcripts)
    refuse(plan.refused)


def _say_learning(plan: "SetupPlan", transcripts: "list[Transcript]", offer: "LessonOffer") -> None:
    from upwell.setup.record import SHORTEN, switch_of

    hosts = Counter(transcript.format.name for transcript in transcripts)
    sizes = [found.st_size for transcript in transcripts if (found := transcript.stat())]
    counts = ", ".join(f"{count} of {name}" for name, count in sorted(hosts.items()))
    read = f"{counts} ({sum(sizes) / 1_000_000:,.1f} MB, read once, not copied)"
    say(f"  learn    from past sessions: {read if counts else 'none found'}")
    if not switch_of(plan.config.after, SHORTEN):
        saved, whole = offer.saved_tokens, offer.result_tokens
        share = f": by {saved:,} of {whole:,} tokens ({saved / (whole or 1):.0%}) in your past"
        say(
            "  shorten  nothing; --shorten shortens long results of the agents' own tools"
            f"{f'{share} sessions' if saved else ''}"
        )
    say("  index    the same sessions, for `upwell recall --sessions`")
    say("  test     run each agent's hook once, as the agent does")


def _say_heard(transcripts: "list[Transcript]") -> None:
    from upwell.app.replaying import heard_in

    since = time.time() - 30 * DAY_SECONDS
    recent = [one for one in transcripts if (found := one.stat()) and found.st_mtime >= since]
    if not recent:
        return
    try:
        with progress("replaying the last month") as show:
            heard = run(heard_in(recent, since, REPLAY_SECONDS, show))
    except UpwellError as error:
        note(f"upwell: the last month cannot be replayed: {error}")
        return
    if not heard.summary.sessions:
        return
    sessions = counted(heard.summary.sessions, "session")
    which = f"the first {sessions}" if heard.is_partial else f"the {sessions}"
    if heard.summary.memories:
        memories = counted(heard.summary.memories, "memory", "memories")
        kinds = ", ".join(
            f"{count} {MOMENTS.get(moment, 'elsewhere')}"
            for moment, count in heard.moments.most_common()
        )
        told = f"would have said {memories} ({kinds}); `upwell replay --since 30d` shows them"
    else:
        told = "would have said nothing; lessons, which a model writes, are said more often"
    say(f"In {which} of the last month, with what it had learned by then, upwell {told}.")


def _learn(
    setting_up: "SettingUp", transcripts: "list[Transcript]", lessons: "LessonOffer | None"
) -> None:
    """Learn from past sessions; with `lessons`, also have a model read the latest of them."""

    def kept[T](learn: "Callable[[MemoryApp], Awaitable[T]]") -> T:
        async def work(app: "MemoryApp") -> T:
            capture = app.session_capture()
            before = await capture.holdings()
            try:
                return await learn(app)
            finally:
                # Also after an interruption, so that `setup --undo` knows what was learned.
                setting_up.keep_learned((await capture.holdings()).since(before))

        return with_memory(work)

    with progress("learning") as show:
        gain = kept(lambda app: learned_from(app, transcripts, show))
    if not (gain.proposed or gain.stored or gain.strengthened or gain.places):
        _say_nothing_learned(len(transcripts), gain.read_before)
    if transcripts:
        index_sessions()
    if lessons and lessons.sessions:
        write_past_lessons(kept, transcripts, lessons)
    if gain.read_before < len(transcripts) or lessons:
        say_learned()


def _say_nothing_learned(transcripts: int, read_before: int) -> None:
    later = "upwell learns from each turn of Claude Code, Codex and Copilot CLI from now on"
    if not transcripts:
        why = "nothing learned: no agent has recorded a session on this machine yet"
    elif read_before == transcripts:
        why = "nothing new to learn: these sessions were read before"
    else:
        why = (
            "nothing learned: in these sessions no command worked after others had failed, no "
            "search found a place in the code, and you gave no standing rule, as is usual for few "
            "or short sessions"
        )
    say(f"{why}; {later}")


def _prove(setting_up: "SettingUp", faults: list[str]) -> None:
    from upwell.config import load

    for proof in setting_up.proofs(os.getcwd(), load().environment):
        if proof.fault:
            faults.append(proof.host)
            note(f"upwell: {proof.host}: {proof.event} failed: {proof.fault}")
            note(f"upwell: the command was: {shlex.join(proof.command)}")
        else:
            say(f"tested: {proof.host} ran its hook for {proof.event}, and the daemon answered")


def _say_more(replay: str) -> None:
    if proposals := open_inbox().waiting():
        verb = "waits" if len(proposals) == 1 else "wait"
        projects = len({proposal.project for proposal in proposals})
        folder = "the project" if projects == 1 else f"each of {projects} projects"
        say(f"next: {counted(len(proposals), 'proposal')} {verb}: `upwell inbox`, in {folder}")
    say(
        "more: `upwell learn git` proposes the reasons in your commits; `upwell import docs/` "
        "reads your documents"
    )
    say(
        f"see:  `upwell dashboard` shows what each session taught; `{replay}` shows what upwell "
        "would have said in them"
    )


def _replay(setting_up: "SettingUp") -> str:
    """The command that replays the sessions of the last month, or all if none ended in it."""
    from upwell.sessions.index import SessionScope

    if not setting_up.home.sessions_db.exists():
        return "upwell replay"
    newest = with_memory(lambda app: app.past_sessions().listed(SessionScope(), None, 1))
    is_recent = newest and newest[0].session.ended > time.time() - 30 * DAY_SECONDS
    return "upwell replay --since 30d" if is_recent else "upwell replay"
