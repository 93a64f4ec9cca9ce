"""A `ledger.db` that 0.2.0 wrote."""

import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

from upwell.app import Settings, build
from upwell.app.reporting import total
from upwell.testing import ManualClock
from upwell.usage.report import stats_of

NOW = 1_770_000_000.0
DAY = datetime.fromtimestamp(NOW, UTC).date().isoformat()
COUNTS = {
    f"{DAY}\tdecision\ttool\tRead\tsurfaced": 1,
    f"{DAY}\tdecision\ttool\tRead\troutine": 4,
    f"{DAY}\tdecision\tprompt\t\trepeated": 2,
    f"{DAY}\tsaid\ttool\tRead\tmemories": 1,
    f"{DAY}\tsaid\ttool\tRead\ttokens": 40,
    f"{DAY}\tcompressed\t\tfs__read\tresults": 1,
    f"{DAY}\tcompressed\t\tfs__read\ttokens_before": 900,
    f"{DAY}\tcompressed\t\tfs__read\ttokens_saved": 800,
    f"{DAY}\trating\ttool\tRead\thelpful": 1,
}


def write_as_0_2_0(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(
            "CREATE TABLE shelf (tenant TEXT NOT NULL, kind TEXT NOT NULL, key TEXT NOT NULL, "
            "value BLOB NOT NULL DEFAULT x'', number INTEGER NOT NULL DEFAULT 0, "
            "created_at REAL NOT NULL, expires_at REAL NOT NULL, "
            "PRIMARY KEY (tenant, kind, key)) WITHOUT ROWID"
        )
        db.execute("CREATE INDEX shelf_expiry ON shelf (expires_at)")
        db.execute("CREATE TABLE schema_version (owner TEXT PRIMARY KEY, version INTEGER NOT NULL)")
        db.execute("INSERT INTO schema_version VALUES ('shelf', 1)")
        entries: dict[tuple[str, str], tuple[bytes, int]] = {
            ("decision", "s_1"): (b"{}", 0),
            ("seen", "s\nm1:hash"): (b"", 0),
            **{("count", key): (b"", number) for key, number in COUNTS.items()},
        }
        for (kind, key), (value, number) in entries.items():
            row = ("default", kind, key, value, number, NOW, NOW + 80 * 86_400)
            db.execute("INSERT INTO shelf VALUES (?, ?, ?, ?, ?, ?, ?)", row)


async def test_an_upgrade_keeps_the_figures_and_what_sessions_were_told(tmp_path: Path) -> None:
    write_as_0_2_0(tmp_path / "ledger.db")
    clock = ManualClock(NOW + 60)
    app = await build(Settings(home=tmp_path, environment={}, clock=clock))
    try:
        counts = await app.learning.counts.since(30)
        stats = stats_of(counts)
        assert (stats.decisions, stats.surfaced, stats.memories, stats.tokens) == (7, 1, 1, 40)
        assert (stats.skips["routine"], stats.skips["repeated"]) == (4, 2)
        assert stats.ratings["helpful"] == 1
        assert total(counts)["net"] == -40
        assert await app.decisions() == []
        kept = await app._ttl_store.scan("seen")
        assert [item.key for item in kept] == ["s\nm1:hash"]
    finally:
        await app.aclose()
