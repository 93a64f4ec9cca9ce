"""Ways: how the jobs of a project were run in all its sessions, and what that teaches.

A way is a launcher with its options and its folder. Where one way of a job failed as a call, and
another did the same job, the second is proposed: the one known to have worked last, unless it
failed as a call since. It must have worked in two sessions, or in one if the first failed in
several.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from msgspec import Struct, field

from upwell.episodes.failures import Fault
from upwell.episodes.trials import LAUNCHED, WAITING, Trial, is_risky, quoted
from upwell.episodes.triggers import Episode, EpisodeKind, Trigger, of_error, of_launch

MIN_SESSIONS = 2
MAX_SESSIONS, MAX_COMPLAINTS, MAX_WAYS = 8, 4, 24
_CALLED = frozenset({Fault.OPTION, Fault.ARGUMENT, Fault.TIMEOUT})
"""Faults that other options mend."""


class Complaint(Struct):
    """An error with which a way failed, and the sessions in which it did, each with its time.
    `is_proposed` means that a rule about it was proposed to the user, who is asked only once."""

    trial: Trial
    sessions: dict[str, float] = field(default_factory=dict[str, float])
    is_proposed: bool = False

    @property
    def at(self) -> float:
        """When the way last failed so."""
        return max(self.sessions.values(), default=0.0)


class Way(Struct):
    """One way to do a job: the last trial of it, the sessions in which it worked, each with its
    time, and its complaints by the signature of the error."""

    trial: Trial
    worked: dict[str, float] = field(default_factory=dict[str, float])
    complaints: dict[str, Complaint] = field(default_factory=dict[str, Complaint])

    @property
    def worked_at(self) -> float:
        """When it last worked."""
        return max(self.worked.values(), default=0.0)

    @property
    def failed_at(self) -> float:
        """When it last failed as a call."""
        return max((each.at for each in self.complaints.values()), default=0.0)

    def add(self, trial: Trial) -> None:
        """Add a trial of this way."""
        if not trial.fault:
            self.trial = trial
            _note(self.worked, trial)
            return
        complaint = self.complaints.pop(trial.signature, None) or Complaint(trial)
        complaint.trial = trial
        _note(complaint.sessions, trial)
        self.complaints[trial.signature] = complaint
        for signature in list(self.complaints)[:-MAX_COMPLAINTS]:
            del self.complaints[signature]


class Remedy(Struct, frozen=True):
    """A trial that failed, and one that did its job. `at` is the time of the later of the two."""

    failed: Trial
    worked: Trial
    at: float

    def episode(self) -> Episode:
        """The remedy as a conclusion of the project's sessions."""
        return Episode(
            kind=EpisodeKind.COMMAND,
            text=self._text,
            triggers=self._triggers,
            tool="Bash",
            session=max(self.failed, self.worked, key=lambda trial: trial.at).session,
            at=self.at,
        )

    @property
    def _text(self) -> str:
        failed, worked = self.failed, self.worked
        complaint = f"`{failed.command}` fails with {quoted(failed.message)}"
        if worked.after:
            return f"{complaint} until `{worked.after}` has run."
        folder = f"in `{worked.folder}`, " if worked.folder else ""
        form = worked.runnable if failed.fault in LAUNCHED else worked.form
        return f"{complaint}; {folder}`{form}` works."

    @property
    def _triggers(self) -> tuple[Trigger, ...]:
        failed, worked = self.failed, self.worked
        if failed.fault not in LAUNCHED or worked.after:
            return of_error(failed.speaker, failed.signature)
        # All remedies for a failure in a folder share its trigger, so that the latest is proposed.
        in_folder, anywhere = of_launch(failed)
        return (in_folder,) if worked.launcher == failed.launcher else (in_folder, anywhere)


def with_trials(ways: Iterable[Way], trials: Iterable[Trial]) -> list[Way]:
    """The ways of a job, with later trials of it. At most `MAX_WAYS`, the latest."""
    known = {_identity(way.trial): way for way in ways}
    for trial in trials:
        way = known.pop(_identity(trial), None) or Way(trial)
        way.add(trial)
        known[_identity(trial)] = way
    return list(known.values())[-MAX_WAYS:]


def learned(ways: Sequence[Way], since: float) -> Sequence[Episode]:
    """What the ways of a job teach, as far as a trial at `since` or later shows it; one conclusion
    for each situation."""
    found: dict[tuple[Trigger, ...], Episode] = {}
    complaints = ((way, each) for way in ways for each in way.complaints.values())
    for way, complaint in sorted(complaints, key=lambda pair: pair[1].at):
        remedy = _remedy(way, complaint, ways)
        if remedy is not None and remedy.at >= since:
            episode = remedy.episode()
            found[episode.triggers] = episode
    return list(found.values())


def recurring(ways: Sequence[Way], least: int) -> Sequence[Complaint]:
    """The errors that came back in this number of sessions although no way is known that does the
    job, with the sessions of all ways that have the launcher in common. Each is returned once."""
    same: defaultdict[tuple[str, str], list[Complaint]] = defaultdict(list)
    for way in ways:
        for signature, each in way.complaints.items():
            if each.trial.form and not each.trial.after and _remedy(way, each, ways) is None:
                same[way.trial.launcher, signature].append(each)
    found = []
    for complaints in same.values():
        sessions = {name: at for each in complaints for name, at in each.sessions.items()}
        if len(sessions) >= least and not any(each.is_proposed for each in complaints):
            latest = max(complaints, key=lambda each: each.at)
            found.append(Complaint(latest.trial, sessions))
            for each in complaints:
                each.is_proposed = True
    return found


def _remedy(failed: Way, complaint: Complaint, ways: Sequence[Way]) -> Remedy | None:
    fault, trial = Fault(complaint.trial.fault), complaint.trial
    if not trial.form or trial.after:
        return None
    has_recovered = failed.worked_at > failed.failed_at
    groups: defaultdict[object, list[Way]] = defaultdict(list)
    for way in ways:
        if (way.trial.after or not has_recovered) and _mends(fault, trial, way.trial):
            groups[_place(fault, way.trial)].append(way)
    candidates = [remedy for group in groups.values() if (remedy := _remedy_by(group, complaint))]
    best = max(candidates, key=lambda remedy: remedy.worked.at, default=None)
    return best if best and _is_sayable(best.worked) else None


def _remedy_by(group: Sequence[Way], complaint: Complaint) -> Remedy | None:
    """The remedy that these ways are together, if they worked often enough and did not fail
    since."""
    latest = max(group, key=lambda way: way.worked_at)
    sessions = len({session for way in group for session in way.worked})
    recurs = len(complaint.sessions) >= MIN_SESSIONS and not latest.trial.after
    is_frequent = sessions >= MIN_SESSIONS or (sessions == 1 and recurs)
    if not is_frequent or max(way.failed_at for way in group) > latest.worked_at:
        return None
    return Remedy(complaint.trial, latest.trial, max(complaint.at, latest.worked_at))


def _mends(fault: Fault, failed: Trial, worked: Trial) -> bool:
    """True if the difference between the two trials is one that mends such a fault."""
    if worked.after:
        is_same = (worked.launcher, worked.folder) == (failed.launcher, failed.folder)
        return fault in WAITING and is_same
    if fault in LAUNCHED:
        return _place(fault, failed) != _place(fault, worked)
    kept = {option for option in failed.options if option not in failed.message}
    return fault in _CALLED and kept <= set(worked.options) and worked.options != failed.options


def _place(fault: Fault, trial: Trial) -> tuple[object, ...]:
    """What ways have in common that mend, or do not mend, such a fault."""
    if fault in _CALLED:
        return trial.launcher, trial.options
    return trial.launcher, trial.folder, trial.after


def _is_sayable(trial: Trial) -> bool:
    return bool(trial.form) and not is_risky(trial.form) and not is_risky(trial.after)


def _identity(trial: Trial) -> tuple[object, ...]:
    return trial.launcher, trial.options, trial.folder, trial.after


def _note(sessions: dict[str, float], trial: Trial) -> None:
    """Record a session. One that was forked or copied repeats the times of its original."""
    if trial.session not in sessions and trial.at and trial.at in sessions.values():
        return
    sessions.pop(trial.session, None)
    sessions[trial.session] = trial.at
    for session in list(sessions)[:-MAX_SESSIONS]:
        del sessions[session]
