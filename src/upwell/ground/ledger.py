"""The tables of `ledger.db`: `shelf`, with the entries of the TTL store, and `event`, with one row
for each decision and each shortened result."""

import sqlite3
from contextlib import closing
from pathlib import Path

from upwell.ground.sqlite.database import DatabaseInMemory, Owner
from upwell.ground.sqlite.file import OpenPlan, prepare_read_only
from upwell.ground.types.cue import Door

FIGURES = ("times", "memories", "tokens", "before", "after", "late")
"""The columns of `event` that are added up."""
PLACE = ("kind", "host", "project", "session", "door", "tool", "outcome")
"""The columns of `event` by which figures are grouped."""


def _create(db: sqlite3.Connection) -> None:
    db.execute(
        """CREATE TABLE shelf (
            tenant TEXT NOT NULL, kind TEXT NOT NULL, key TEXT NOT NULL,
            value BLOB NOT NULL DEFAULT x'', number INTEGER NOT NULL DEFAULT 0,
            created_at REAL NOT NULL, expires_at REAL NOT NULL,
            PRIMARY KEY (tenant, kind, key)) WITHOUT ROWID"""
    )
    db.execute("CREATE INDEX shelf_expiry ON shelf (expires_at)")


def _add_sum(db: sqlite3.Connection) -> None:
    db.execute("ALTER TABLE shelf ADD COLUMN sum INTEGER")


def _drop_sum(db: sqlite3.Connection) -> None:
    db.execute("ALTER TABLE shelf DROP COLUMN sum")


def _add_events(db: sqlite3.Connection) -> None:
    """Create the table `event`. A row without `data` has only figures: it stands for `times` events
    that are not listed one by one."""
    texts = "".join(f"{name} TEXT NOT NULL DEFAULT '', " for name in PLACE[1:])
    figures = "".join(f"{name} INTEGER NOT NULL DEFAULT 0, " for name in FIGURES)
    db.execute(
        "CREATE TABLE event (id TEXT PRIMARY KEY, kind TEXT NOT NULL, at REAL NOT NULL, "
        f"written REAL NOT NULL, {texts}{figures}file TEXT, step TEXT, queries TEXT, data TEXT)"
    )
    db.execute("CREATE INDEX event_written ON event (written)")
    db.execute("CREATE INDEX event_cut ON event (written) WHERE kind = 'compressed'")
    _take_over_figures(db)
    kinds = ("decision", "query", "step", "cut", "count", "usage")
    db.execute(f"DELETE FROM shelf WHERE kind IN {kinds}")


def _take_over_figures(db: sqlite3.Connection) -> None:
    """Convert the counters of earlier versions. `count` knew the door and the outcome of an event,
    and `usage` its host and project. Shortened results are taken from `usage`. The others are taken
    from `count`, and `usage` moves them from no place to their own."""
    for key, number in db.execute("SELECT key, number FROM shelf WHERE kind = 'count'").fetchall():
        day, event, door, tool, kind = key.split("\t")
        if event != "compressed":
            place = {"kind": event, "door": door, "tool": tool, "outcome": kind}
            _add_figure(db, day, place, "times", number)
    for key, number in db.execute("SELECT key, number FROM shelf WHERE kind = 'usage'").fetchall():
        day, host, project, tool, metric = key.split("\t")
        place = {"host": host, "project": project, "tool": tool}
        if metric in _OF_CUTS:
            _add_figure(db, day, {"kind": "compressed", **place}, _OF_CUTS[metric], number)
        elif metric not in _MOVED:
            _add_figure(db, day, {"kind": metric, **place}, "times", number)
        elif host or project:
            door = "ask" if metric == "asked" else tool if tool in Door else "tool"
            name = "" if tool in Door else tool
            for kind, outcome, sign in _MOVED[metric]:
                event = {"kind": kind, "door": door, "tool": name, "outcome": outcome}
                own = {"host": host, "project": project, **event}
                _add_figure(db, day, own, "times", sign * number)
                _add_figure(db, day, event, "times", -sign * number)


_OF_CUTS = {"results": "times", "before": "before", "after": "after"}
_MOVED = {
    "events": [("decision", "routine", 1)],
    "asked": [("decision", "routine", 1)],
    "spoke": [("decision", "surfaced", 1), ("decision", "routine", -1)],
    "memories": [("said", "memories", 1)],
    "said_tokens": [("said", "tokens", 1)],
}
"""The counters of `usage` that `count` has too, by kind and outcome. Which outcome moves makes no
difference, because the same number is added in one place and subtracted in the other."""


def _add_figure(
    db: sqlite3.Connection, day: str, place: dict[str, str], figure: str, number: int
) -> None:
    names = [place.get(name, "") for name in PLACE]
    db.execute(
        f"INSERT INTO event (id, at, written, {', '.join(PLACE)}, {figure}) "
        "VALUES (?, unixepoch(?), unixepoch(?), ?, ?, ?, ?, ?, ?, ?, ?) "
        f"ON CONFLICT (id) DO UPDATE SET {figure} = {figure} + excluded.{figure}",
        ("\t".join((day, *names)), day, day, *names, number),
    )


OWNER = Owner("shelf", [_create, _add_sum, _drop_sum, _add_events], expendable=True)


def copied_in_memory(path: Path) -> DatabaseInMemory:
    """Copy a file that cannot be written. Originals are left out because of their size."""
    database = DatabaseInMemory([OWNER])
    plan = OpenPlan(path, (OWNER,), "NORMAL", is_read_only=True)
    with closing(prepare_read_only(plan)) as db:
        for selection in ("shelf WHERE kind != 'original'", "event"):
            rows = db.execute(f"SELECT * FROM {selection}").fetchall()
            if rows:
                marks = ", ".join("?" * len(rows[0]))
                table = selection.split()[0]
                database.connection.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)
    return database
