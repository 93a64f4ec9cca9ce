"""`upwell replay`: shows what upwell would have said in past sessions."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from click.exceptions import Exit
from msgspec import Struct

from upwell.cli.command import Option
from upwell.cli.output import (
    Json,
    TranscriptHost,
    TranscriptPaths,
    epoch_of,
    note,
    progress,
    say,
    table,
    transcripts_named,
)
from upwell.cli.session import read_config, run
from upwell.ground.errors import UsageError
from upwell.ground.text.words import counted

if TYPE_CHECKING:
    from upwell.replay.memories import With
    from upwell.replay.report import Label, ReplayReport, ReplaySample, SampledHit
    from upwell.replay.timeline import Timeline

EVERYTHING = "memory,git,docs,learned"
ASSUMPTION = (
    "Assumes that upwell already had your commits, your documents and the lessons of earlier "
    "sessions: see --with"
)
REPOSITORY = (
    "Commits and documents are used only for sessions whose folder is still in a repository; "
    "--repo DIR sets the repository of all sessions."
)
INTERRUPTED = 130
ANSWERS = {"y": True, "n": False, "?": None}


class _Request(Struct, frozen=True, kw_only=True):
    """The options of a replay. Without `--label`, `sample_size` is None."""

    kinds: "frozenset[With]"
    repo: Path | None
    sample_size: int | None
    fit: bool
    judge: bool
    as_json: bool
    remark: str


def replay(
    paths: TranscriptPaths = None,
    host: TranscriptHost = None,
    repo: Annotated[
        Path | None, Option(metavar="DIR", help="The repository of all these sessions.")
    ] = None,
    kinds: Annotated[
        str, Option("--with", metavar="KINDS", help="The kinds of memory to replay with.")
    ] = EVERYTHING,
    since: Annotated[
        str | None,
        Option(metavar="T", help="Only sessions since T, for example 30d or 2026-01-31."),
    ] = None,
    sample: Annotated[
        int | None,
        Option("--sample", min=1, help="With --label: the number of memories to rate."),
    ] = None,
    label: Annotated[
        bool, Option("--label", help="Ask you whether each memory of a sample is useful.")
    ] = False,
    fit: Annotated[
        bool,
        Option("--fit", help="With --label: offer a surface.min_score that fits your answers."),
    ] = False,
    judge: Annotated[
        bool, Option("--judge", help="Let the model configured in llm.* choose the memories.")
    ] = False,
    events: Annotated[
        bool, Option("--events", help="Print the sessions as neutral events instead.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show what upwell would have said in your past sessions. Without PATH it reads the sessions of
    every agent on this machine. A replay changes nothing."""
    if label != (sample is not None):
        raise UsageError("--sample and --label go together", hint="--sample 30 --label")
    if fit and not label:
        raise UsageError("--fit goes with --label", hint="--sample 30 --label --fit")
    if as_json and (label or events):
        raise UsageError(
            "--json cannot be combined with --label or --events", hint="leave out --json"
        )
    choices = _kinds(kinds)
    timeline = _timeline(paths or [], host, repo, since)
    if events:
        from upwell.episodes.events import line_of

        for event in timeline:
            say(line_of(event))
        return
    request = _Request(
        kinds=choices,
        repo=repo,
        sample_size=sample,
        fit=fit,
        judge=judge,
        as_json=as_json,
        remark=ASSUMPTION if kinds == EVERYTHING and not as_json else "",
    )
    _report_replay(timeline, request)


def _kinds(names: str) -> "frozenset[With]":
    from upwell.replay.memories import With

    kinds = [kind.strip() for kind in names.split(",") if kind.strip()]
    for kind in kinds:
        if kind not in list(With):
            raise UsageError(f"--with {kind!r:.40} is unknown", hint=f"choose from {EVERYTHING}")
    return frozenset(map(With, kinds))


def _timeline(
    paths: list[Path], host: str | None, repo: Path | None, since: str | None
) -> "Timeline":
    from upwell.replay.timeline import Timeline, selecting

    earliest = epoch_of(since)
    if repo is not None and not repo.is_dir():
        raise UsageError(f"--repo {repo} is not a folder", hint="give the folder of a repository")
    transcripts = transcripts_named(paths, host)
    if not transcripts:
        raise UsageError(
            "no transcripts were found",
            hint="give a file or folder: upwell replay PATH; or try upwell demo",
        )
    folder = repo.resolve() if repo and not paths else None
    with progress("reading sessions") as show:
        timeline = Timeline(
            transcripts, lambda line: note(f"upwell: {line}"), selecting(earliest, folder), show
        )
    if timeline.copies:
        copies = counted(timeline.copies, "session that repeats", "sessions that repeat")
        note(f"upwell: left out {copies} earlier ones")
    for line in timeline.census.lines():
        note(f"upwell: {line}")
    if not timeline.sessions:
        raise UsageError(
            f"no sessions to replay in {counted(len(transcripts), 'file')}",
            hint="try an earlier --since or another --host",
        )
    return timeline


def _report_replay(timeline: "Timeline", request: _Request) -> None:
    from upwell.replay.report import ReplaySample

    sample = ReplaySample(request.sample_size or 0)
    reports: list[ReplayReport] = []
    interrupted = False
    with progress("replaying") as show:
        try:
            run(_run(timeline, request, sample, reports, show))
        except KeyboardInterrupt:
            interrupted = True
    if interrupted:
        note("upwell: interrupted; the figures cover the events so far")
    for report in reports:
        for root in report.incomplete:
            note(f"upwell: the clone {root} lacks objects; it was read as far as it goes")
        _show(report, as_json=request.as_json, brief=request.sample_size is not None)
        if not request.as_json and not report.summary.memories:
            _show_silence(report, request)
        if request.remark:
            say(request.remark)
    if request.sample_size is not None and not interrupted:
        _label(sample, reports[0], fit=request.fit)
    if interrupted:
        raise Exit(INTERRUPTED)


async def _run(
    timeline: "Timeline",
    request: _Request,
    sample: "ReplaySample",
    reports: "list[ReplayReport]",
    show: Callable[[int, int], None],
) -> None:
    """Run the replay. The report is added to `reports` at the start, so that the caller has it even
    after an interruption."""
    from upwell.app.replaying import replaying
    from upwell.app.shortening import Savings
    from upwell.replay.report import ReplayReport
    from upwell.replay.run import described

    total = timeline.events
    async with replaying(timeline, request.kinds, request.repo, judged=request.judge) as running:
        projects = running.projects
        report, savings = ReplayReport(projects), Savings(read_config())
        reports.append(report)
        async for decision in running.simulation.decisions(savings.watch(timeline)):
            report.add(decision)
            sample.offer(decision)
            report.verdicts, report.shortening = dict(running.verdicts()), savings.described()
            show(timeline.done, total)
            if request.as_json:
                say(json.dumps(described(decision, projects)))
        if not report.summary.memories:
            report.material = await running.material()
        report.incomplete = running.incomplete()


def _show(report: "ReplayReport", *, as_json: bool, brief: bool) -> None:
    from upwell.replay.report import COLUMNS
    from upwell.usage.report import judge_line, judge_totals

    judge = judge_totals(report.verdicts) if report.verdicts else None
    if as_json:
        summary = {**report.summary.described(), "shortening": dict(report.shortening)}
        if not report.summary.memories:
            from upwell.replay.report import silence

            summary["silence"] = " ".join(silence(report.summary, report.material))
        say(json.dumps({"summary": summary | ({"judge": judge} if judge else {})}))
        return
    if not brief:
        for line in report.sessions():
            say(line)
        say()
    table(COLUMNS, report.rows(), "No events.", has_header=True)
    if silences := report.silences():
        say()
        say("Why it stayed silent")
    for line in silences:
        say(line)
    counts = report.shortening
    if counts and counts["results"]:
        share = f" ({counts['saved'] / counts['tokens']:.0%})" if counts["tokens"] else ""
        say(
            f"Shortening: hook.compress would have saved at least {counts['saved']:,} of "
            f"{counts['tokens']:,} tokens of tool results{share}, by shortening "
            f"{counts['shortened']:,} of {counts['results']:,}; `upwell setup --shorten` turns it "
            "on"
        )
    if judge:
        say(f"Judge: {judge_line(judge)}")


def _show_silence(report: "ReplayReport", request: _Request) -> None:
    from upwell.replay.memories import With
    from upwell.replay.report import silence

    for line in silence(report.summary, report.material):
        say(line)
    needs_repo = {With.GIT, With.DOCS} & request.kinds and not request.repo
    if needs_repo and report.material and not report.material.has_history:
        say(REPOSITORY)


def _label(sample: "ReplaySample", report: "ReplayReport", *, fit: bool) -> None:
    from upwell.replay.report import fitted, share_of

    labels: list[Label] = []
    sampled_hits = sample.sampled_hits()
    say()
    say("Would this have helped the agent at that moment?  y yes · n no · ? cannot tell · q stop")
    for number, sampled_hit in enumerate(sampled_hits, start=1):
        answer = _answer(sampled_hit, report, f"{number}/{len(sampled_hits)}")
        if answer is None:
            break
        labels.append(answer)
    share = share_of(labels)
    if not share.answers:
        say("Nothing was labelled.")
        return
    say(
        f"{share.useful} of {share.answers} useful: {share.useful / share.answers:.0%} "
        f"(95 % interval {share.low:.0%} to {share.high:.0%})"
    )
    if fit:
        _offer(fitted(labels), len(labels))


def _answer(sampled_hit: "SampledHit", report: "ReplayReport", progress: str) -> "Label | None":
    """Ask about a memory. Returns None to stop. The score is not shown, because it would bias the
    answer."""
    from upwell.replay.report import Label

    say()
    for line in report.sampled_hit(sampled_hit.decision, sampled_hit.hit):
        say(line)
    while True:
        sys.stdout.write(f"{progress} [y/n/?/q] ")
        sys.stdout.flush()
        typed = sys.stdin.readline()
        answer = typed.strip().lower()
        if not typed or answer == "q":
            say()
            return None
        if answer in ANSWERS:
            return Label(sampled_hit.hit.score, ANSWERS[answer])


def _offer(fit: object, answers: int) -> None:
    from upwell.replay.report import MIN_LABELS, Fit
    from upwell.setup.config_file import set_setting

    if not isinstance(fit, Fit):
        reason = "no threshold lets through more useful memories than other ones"
        if answers < MIN_LABELS:
            reason = f"at least {MIN_LABELS} answers are needed"
        say(f"No threshold fits: {reason}.")
        return
    say(
        f"surface.min_score = {fit.min_score} lets through {fit.useful} useful and {fit.others} "
        "other memories of the sample."
    )
    sys.stdout.write("Write it to config.toml? [y/N] ")
    sys.stdout.flush()
    if sys.stdin.readline().strip().lower() == "y":
        say(str(set_setting("surface", "min_score", fit.min_score)))
