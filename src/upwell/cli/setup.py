"""The command `setup`, which sets up every agent on this machine after one question, or undoes the
setup."""

import os
import shlex
import shutil
import sys
import time
from collections import Counter
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click
from click.exceptions import Exit

from upwell.cli.capturing import learned_from, say_learned
from upwell.cli.clients import (
    NO_AGENT,
    clients_of_user,
    masked_diff,
    say_damage,
    say_improvised,
    say_places,
)
from upwell.cli.command import Option
from upwell.cli.hooks import has_guards, hook_installation, installer_of
from upwell.cli.inbox import open_inbox
from upwell.cli.lessons import offer_question, offer_state, write_past_lessons
from upwell.cli.moving import say_stores
from upwell.cli.output import note, raw, say
from upwell.cli.past import index_sessions
from upwell.cli.progress import progress
from upwell.cli.session import run, with_app
from upwell.ground.errors import UpwellError, UsageError
from upwell.ground.text.format import counted

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator

    from upwell.app import App
    from upwell.app.capture import Gain, Holdings
    from upwell.app.lesson_offer import Offer
    from upwell.app.setting_up import Report, SettingUp, SetupPlan, UndoPlan
    from upwell.ground.types.memory import Memory
    from upwell.hosts.install import Plan
    from upwell.replay.transcripts import Transcript
    from upwell.setup.takeover import Clients

MAX_LISTED = 20
DAY_SECONDS = 86_400.0
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
    if forget and not undo:
        raise UsageError("--forget needs --undo", hint="upwell setup --undo --forget")
    if not (yes or dry_run or sys.stdin.isatty()):
        raise UsageError(
            "setup asks before it changes anything, and there is no terminal to ask on",
            hint="--dry-run shows the changes, --yes makes them",
        )
    with _leaving_no_home() if dry_run else nullcontext():
        clients = clients_of_user(project=False)
        setting_up = _setting_up(clients)
        say_damage(setting_up.damage)
        if undo:
            _undo(setting_up, clients, dry_run=dry_run, yes=yes, forget=forget)
        else:
            planned = partial(setting_up.plan, shorten=shorten)
            _set_up(setting_up, clients, planned, dry_run=dry_run, yes=yes, lessons=lessons)


@contextmanager
def _leaving_no_home() -> "Iterator[None]":
    """If upwell's home does not exist yet, remove it at the end."""
    from upwell.ground.home import default_home

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
    setting_up: "SettingUp",
    clients: "Clients",
    planned: "Callable[..., SetupPlan]",
    *,
    dry_run: bool,
    yes: bool,
    lessons: bool,
) -> None:
    """`planned` makes the plan, with the setting for lessons."""
    plan, transcripts = planned(), _transcripts()
    if not plan.hooks and not plan.wrapping.files and not plan.refused:
        say(NO_AGENT)
        return
    offer = _offered(plan, transcripts)
    if lessons:
        if not offer.setting:
            raise UsageError(offer_state(offer), hint="upwell setup sets up everything else")
        plan = planned(lessons=offer.setting)

    def show() -> None:
        _show((*plan.files, *plan.hooks))

    if dry_run:
        show()
    _summarise(plan, transcripts, offer, lessons=lessons, replays=dry_run or not yes)
    if dry_run:
        note("upwell: nothing was changed; without --dry-run, setup asks and then does all of this")
        raise Exit(1 if plan.refused else 0)
    if not yes:
        _confirm("Do all of this?", show)
        if offer.setting and not offer.is_on and not lessons:
            lessons = click.confirm(offer_question(offer), default=False)
            plan = planned(lessons=offer.setting if lessons else "")
    faults = [*plan.refused]
    setting_up.write(plan, _reporting(faults))
    _learn(setting_up, transcripts, offer if lessons else None)
    _prove(setting_up, faults)
    _say_next_steps(plan, _replay(setting_up))
    if faults:
        raise Exit(1)


def _undo(
    setting_up: "SettingUp", clients: "Clients", *, dry_run: bool, yes: bool, forget: bool
) -> None:
    plans = setting_up.undoing()
    learned = setting_up.learned()
    if setting_up.has_lessons:
        learned = with_app(lambda app: app.session_capture().with_later(learned))

    def show() -> None:
        _show((*plans.files, *plans.hooks))

    if dry_run:
        show()
    _summarise_undo(plans)
    count = with_app(lambda app: _listed(app, learned))
    is_known = count > 0 or setting_up.sessions_db.exists()
    if not (plans.is_recorded or plans.refused or (forget and is_known)):
        say("there is nothing to undo")
        return
    if dry_run:
        note("upwell: nothing was changed; without --dry-run, setup asks and then undoes this")
        return
    if not yes:
        _confirm("Undo all of this?", show)
    faults: list[str] = []
    setting_up.undo(_reporting(faults))
    if forget:
        _forget(setting_up, learned, count)
    elif count:
        say("what setup learned stays; `upwell setup --undo --forget` drops it")
    if faults:
        raise Exit(1)


def _summarise_undo(plans: "UndoPlan") -> None:
    for plan in (*plans.files, *plans.hooks):
        say(f"upwell would {_state(plan)}")
    say_improvised(plans.files)
    for path, command in plans.others:
        note(f"upwell: setup did not change {path}; `{command}` removes upwell from it")
    _refuse(plans.refused)


def _forget(setting_up: "SettingUp", learned: "Holdings", count: int) -> None:
    from upwell.ground.sqlite.file import delete_database

    if setting_up.has_lessons:
        # The daemon may have written another one while the user was asked.
        latest = with_app(lambda app: app.session_capture().with_later(learned))
        count += len(with_app(lambda app: _findings(app, latest.since(learned))))
        learned = latest
    with_app(lambda app: app.session_capture().forget(learned))
    setting_up.forgot_learned()
    say(f"dropped {counted(count, 'finding')} from past sessions")
    if setting_up.sessions_db.exists():
        delete_database(setting_up.sessions_db)
        say("deleted the index of past sessions")
    _say_accepted(with_app(lambda app: app.session_capture().accepted(learned)))
    if own := with_app(lambda app: app.session_capture().own_lessons()):
        say(
            f"kept: {counted(own, 'lesson')} that you edited or pinned; `upwell lessons` lists them"
        )
    say(f"upwell's own folder {setting_up.folder} stays; delete it to remove everything")


def _say_accepted(memories: "list[Memory]") -> None:
    if memories:
        accepted = counted(len(memories), "memory", "memories")
        say(f"kept: {accepted} that you accepted; `upwell forget ID` removes one")
    for memory in memories[:MAX_LISTED]:
        say(f"  {memory.id}: {' '.join(memory.text.split())}")
    if len(memories) > MAX_LISTED:
        say(f"  {len(memories) - MAX_LISTED} more: `upwell recall`")


def _offered(plan: "SetupPlan", transcripts: "list[Transcript]") -> "Offer":
    from upwell.app.lesson_offer import offered

    hosts = [hooks.agent for hooks in plan.hooks]
    with progress("estimating") as show:
        return with_app(lambda app: offered(app, transcripts, hosts, show))


def _summarise(
    plan: "SetupPlan",
    transcripts: "list[Transcript]",
    offer: "Offer",
    *,
    lessons: bool,
    replays: bool,
) -> None:
    say_places(plan.wrapping)
    say("upwell would")
    for hooks in plan.hooks:
        say(f"  hooks    {hooks.agent}: {_state(hooks)}")
    for given in plan.back.plans:
        say(f"  back     {given.agent}: its servers leave the gateway, each to its place")
    for servers in plan.wrapping.files:
        say(f"  servers  {servers.agent}: {_state(servers)}")
    config = plan.config
    say(f"  config   learning at the end of each turn: {_state(config)}")
    hosts = Counter(transcript.format.name for transcript in transcripts)
    megabytes = sum(_size(transcript.path) for transcript in transcripts) / 1_000_000
    counts = ", ".join(f"{count} of {name}" for name, count in sorted(hosts.items()))
    read = f"{counts} ({megabytes:,.1f} MB, read once, not copied)" if counts else "none found"
    say(f"  learn    from past sessions: {read}")
    if not _shortens(config):
        say(
            "  shorten  nothing; --shorten shortens long results of the agents' own tools"
            f"{_savings(offer)}"
        )
    say(f"  lessons  {offer_state(offer, is_chosen=lessons)}")
    say("  index    the same sessions, for `upwell recall --sessions`")
    say("  test     run each agent's hook once, as the agent does")
    say("`upwell setup --undo` reverts all of it.")
    say_stores()
    if replays:
        _say_heard(transcripts)
    _refuse(plan.refused)


def _say_heard(transcripts: "list[Transcript]") -> None:
    """Say what upwell would have said in the sessions of the last month."""
    from upwell.app.replaying import heard_in

    since = time.time() - 30 * DAY_SECONDS
    recent = [one for one in transcripts if _modified(one.path) >= since]
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


def _modified(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _savings(offer: "Offer") -> str:
    if not offer.saved_tokens:
        return ""
    share = offer.saved_tokens / offer.result_tokens
    return (
        f": by {offer.saved_tokens:,} of {offer.result_tokens:,} tokens ({share:.0%}) in your past "
        "sessions"
    )


def _shortens(config: "Plan") -> bool:
    from upwell.setup.record import SHORTEN, switch_of

    return bool(switch_of(config.after, SHORTEN))


def _state(plan: "Plan") -> str:
    if not plan.changes:
        return f"{plan.path} is already set up"
    verb = "create" if plan.before is None else "remove" if plan.after is None else "change"
    lines = plan.diff.splitlines()[2:]
    added, removed = (sum(line.startswith(sign) for line in lines) for sign in "+-")
    return f"{verb} {plan.path} (+{added} -{removed})"


def _confirm(question: str, show: "Callable[[], None]") -> None:
    while True:
        answer = click.prompt(
            f"{question} [y/N, d shows every changed line]", "n", show_default=False
        )
        match answer.strip().lower():
            case "y" | "yes":
                return
            case "d":
                show()
            case _:
                note("upwell: nothing was changed")
                raise click.Abort


def _show(plans: "Iterable[Plan]") -> None:
    for plan in plans:
        raw(masked_diff(plan))


def _refuse(refused: dict[str, str]) -> None:
    for path, why in refused.items():
        note(f"upwell: {path}: {why}")


def _reporting(faults: list[str]) -> "Report":
    def report(path: str, why: str) -> None:
        if why:
            faults.append(path)
            note(f"upwell: {path}: {why}")
        else:
            say(f"done: {path}")

    return report


def _learn(
    setting_up: "SettingUp", transcripts: "list[Transcript]", lessons: "Offer | None"
) -> None:
    """Learn from past sessions; with `lessons`, also have a model read the latest of them."""

    def kept[T](learn: "Callable[[App], Awaitable[T]]") -> T:
        async def work(app: "App") -> T:
            capture = app.session_capture()
            before = await capture.holdings()
            try:
                return await learn(app)
            finally:
                # Also after an interruption, so that `setup --undo` knows what was learned.
                setting_up.keep_learned((await capture.holdings()).since(before))

        return with_app(work)

    with progress("learning") as show:
        gain = kept(lambda app: learned_from(app, transcripts, show))
    for line in _nothing_learned(len(transcripts), gain):
        say(line)
    if transcripts:
        index_sessions()
    if lessons and lessons.sessions:
        write_past_lessons(kept, transcripts, lessons)
    if gain.read_before < len(transcripts) or lessons:
        say_learned()


def _nothing_learned(transcripts: int, gain: "Gain") -> list[str]:
    if gain.proposed or gain.stored or gain.strengthened or gain.places:
        return []
    later = "upwell learns from each turn of Claude Code, Codex and Copilot CLI from now on"
    if not transcripts:
        return [f"nothing learned: no agent has recorded a session on this machine yet; {later}"]
    if gain.read_before == transcripts:
        return [f"nothing new to learn: these sessions were read before; {later}"]
    return [
        "nothing learned: in these sessions no command worked after others had failed, no search "
        "found a place in the code, and you gave no standing rule, as is usual for few or short "
        f"sessions; {later}"
    ]


def _prove(setting_up: "SettingUp", faults: list[str]) -> None:
    from upwell.config import load

    for proof in setting_up.proofs(os.getcwd(), load().environment):
        if proof.fault:
            faults.append(proof.host)
            note(f"upwell: {proof.host}: {proof.event} failed: {proof.fault}")
            note(f"upwell: the command was: {shlex.join(proof.command)}")
        else:
            say(f"tested: {proof.host} ran its hook for {proof.event}, and the daemon answered")


def _say_next_steps(plan: "SetupPlan", replay: str) -> None:
    changed = [change for change in (*plan.wrapping.files, *plan.hooks) if change.changes]
    # If an agent has two hints, the hint about its hooks is printed, because it is more precise.
    for agent, step in {change.agent: change.next_step for change in changed}.items():
        say(f"next: {agent}: {step}")
    _say_proposals()
    say(
        "more: `upwell learn git` proposes the reasons in your commits; `upwell import docs/` "
        "reads your documents"
    )
    say(
        f"see:  `upwell dashboard` shows what each session taught; `{replay}` shows what upwell "
        "would have said in them"
    )
    say("undo: `upwell setup --undo`")


def _replay(setting_up: "SettingUp") -> str:
    """The command that replays the sessions of the last month, or all if none ended in it."""
    from upwell.sessions.index import Scope

    if not setting_up.sessions_db.exists():
        return "upwell replay"
    newest = with_app(lambda app: app.past_sessions().listed(Scope(), None, 1))
    is_recent = newest and newest[0].session.ended > time.time() - 30 * DAY_SECONDS
    return "upwell replay --since 30d" if is_recent else "upwell replay"


def _say_proposals() -> None:
    proposals = open_inbox().waiting()
    if not proposals:
        return
    verb = "waits" if len(proposals) == 1 else "wait"
    projects = len({proposal.project for proposal in proposals})
    folder = "the project" if projects == 1 else f"each of {projects} projects"
    say(f"next: {counted(len(proposals), 'proposal')} {verb}: `upwell inbox`, in {folder}")


async def _listed(app: "App", learned: "Holdings") -> int:
    """List the findings of setup that still exist. Returns how many there are."""
    lines = await _findings(app, learned)
    for line in lines[:MAX_LISTED]:
        say(f"learned: {' '.join(line.split())}")
    if len(lines) > MAX_LISTED:
        say(f"learned: {len(lines) - MAX_LISTED} more")
    if learned.places:
        say(f"learned: {counted(len(learned.places), 'place')} of files and symbols")
    return len(lines) + len(learned.places)


async def _findings(app: "App", learned: "Holdings") -> list[str]:
    """The memories and proposals among the findings of setup that still exist, one a line."""
    memories = await app.session_capture().learned(learned)
    proposals = [item for item in app.inbox().waiting() if item.id in learned.proposals]
    lines = [f"memory {item.id}: {item.text}" for item in memories]
    return [*lines, *(f"proposal {item.id}: {item.text}" for item in proposals)]


def _transcripts() -> "list[Transcript]":
    from upwell.replay.transcripts import transcripts_of_user

    return transcripts_of_user(Path.home(), Path.cwd(), None)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _setting_up(clients: "Clients") -> "SettingUp":
    from upwell.app.setting_up import SettingUp
    from upwell.config import load

    home = load().home.prepare()
    return SettingUp(clients, installer_of(hook_installation(guards=has_guards())), home)
