"""The tables of `memory.db` that hold memories, and their indexes.

    scope ──< memory >── words (FTS5)      every memory has a number `n`: tenant, project and
                │                          sequence in one integer, so that a project is a range
                ├──< about >── anchor      files and symbols, joined exactly
                └── term                   how many memories of a scope hold a stem
    background                             how well memories match by chance
    trash                                  deleted, kept for 30 days

`words`, `anchor`, `about` and `term` are derived from `memory` and can be built again; so are its
columns `extra` (words that the text's form hides) and `keys` (anchors, one a line), which searching
would otherwise work out anew for every candidate.
"""

import sqlite3

from upwell.ground.db import Owner

TOKENIZER = "porter unicode61 remove_diacritics 2"
SEQUENCE_BITS = 34
PROJECT_BITS = 18
"""A memory's number has 63 bits: 34 count within a project, 18 tell projects apart, the others
tenants (17 000 million memories of 262 143 projects of 2 047 tenants)."""


def _create(db: sqlite3.Connection) -> None:
    for statement in (
        """CREATE TABLE scope (
            no INTEGER PRIMARY KEY, tenant TEXT NOT NULL, project TEXT NOT NULL,
            memories INTEGER NOT NULL DEFAULT 0, words INTEGER NOT NULL DEFAULT 0,
            last INTEGER NOT NULL DEFAULT 0, UNIQUE (tenant, project))""",
        """CREATE TABLE memory (
            n INTEGER PRIMARY KEY, tenant TEXT NOT NULL, id TEXT NOT NULL,
            namespace TEXT NOT NULL, text NOT NULL, tags TEXT NOT NULL,
            paths TEXT NOT NULL, symbols TEXT NOT NULL, project TEXT NOT NULL,
            source TEXT NOT NULL, first_line INTEGER, last_line INTEGER,
            door TEXT NOT NULL, server TEXT NOT NULL, tool TEXT NOT NULL, session TEXT NOT NULL,
            trust TEXT NOT NULL, pinned INTEGER NOT NULL, supersedes TEXT, expires_at REAL,
            content_hash TEXT NOT NULL, created_at REAL NOT NULL, updated_at REAL NOT NULL,
            viewed_at REAL, extra TEXT NOT NULL, keys TEXT NOT NULL, UNIQUE (tenant, id))""",
        "CREATE INDEX memory_hash ON memory (content_hash)",
        "CREATE INDEX memory_created ON memory (created_at)",
        "CREATE INDEX memory_expiry ON memory (expires_at) WHERE expires_at IS NOT NULL",
        "CREATE INDEX memory_pinned ON memory (n) WHERE pinned",
        "CREATE INDEX memory_supersedes ON memory (supersedes) WHERE supersedes IS NOT NULL",
        f"""CREATE VIRTUAL TABLE words USING fts5 (
            body, extra, content = '', tokenize = '{TOKENIZER}')""",
        "INSERT INTO words (words, rank) VALUES ('rank', 'bm25(1.0, 0.5)')",
        """CREATE TABLE term (
            stem TEXT NOT NULL, scope INTEGER NOT NULL, memories INTEGER NOT NULL,
            PRIMARY KEY (stem, scope)) WITHOUT ROWID""",
        """CREATE TABLE anchor (
            no INTEGER PRIMARY KEY, scope INTEGER NOT NULL, key TEXT NOT NULL,
            memories INTEGER NOT NULL DEFAULT 0, UNIQUE (key, scope))""",
        """CREATE TABLE about (
            anchor INTEGER NOT NULL, n INTEGER NOT NULL,
            PRIMARY KEY (anchor, n)) WITHOUT ROWID""",
        """CREATE TABLE background (
            key INTEGER NOT NULL, words INTEGER NOT NULL, mean REAL NOT NULL,
            spread REAL NOT NULL, memories INTEGER NOT NULL,
            PRIMARY KEY (key, words)) WITHOUT ROWID""",
        """CREATE TABLE trash (
            tenant TEXT NOT NULL, id TEXT NOT NULL, deleted_at REAL NOT NULL,
            memory TEXT NOT NULL, PRIMARY KEY (tenant, id)) WITHOUT ROWID""",
    ):
        db.execute(statement)


def _salvage(damaged: sqlite3.Connection, fresh: sqlite3.Connection) -> int:
    """Read the memories that are left and index them anew; the trash comes along."""
    from upwell.ground.salvage import copy_table, rows_left
    from upwell.memory.index import insert
    from upwell.memory.rows import COLUMNS, from_row

    saved = 0
    for row in rows_left(damaged, "memory", COLUMNS, key="n"):
        saved += len(insert(fresh, [from_row(row[1:])]))
    copy_table(damaged, fresh, "trash")
    return saved


OWNER = Owner("memory", [_create], _salvage)
