"""The tables in PostgreSQL (15 or later; no extension is needed). These contain memories:

    tenant ──< scope ──< memory >── posting      words of a memory, by stem
                            ├──< about           the files and symbols that a memory is about
                            └──< memory_trigger  the situations in which a memory surfaces
    term, anchor            for each stem or key in `about`, how many memories in a scope have it
    null_score              the best scores of random queries, by scope and number of words
    trash                   deleted memories, kept for 30 days
    embedding               the vectors of memories, by model, if an embedder is configured
    embedding_model         the models, each with the gateway that is computing its vectors

These contain everything else that the machines of a team share:

    entry                   the tokens of writes that have arrived from developers' machines
    feedback, threshold     ratings, and the thresholds derived from them
    audit                   who stored or removed memories, and whose requests were denied

A scope contains the memories of one project. Every primary key begins with the tenant, so the
tables can be partitioned or distributed by tenant. No table has a sequence: a tenant's number is a
hash of the tenant's name, and memories are numbered within their scope. The high bits of a memory's
number are the scope's number (`memory/lookups.py: SEQUENCE_BITS`), so a project's memories form a
range.

Statements filter by tenant. In addition, row-level security limits every statement to the rows of
the tenant that is set in the transaction, unless the role is a superuser or has `BYPASSRLS`.
"""

import hashlib
from collections.abc import Iterator, Sequence

TENANT_SETTING = "upwell.tenant"
LOCK = 0x75_70_77_65_6C_6C
"""The key of an advisory lock. A process holds the lock while it changes tables, so processes that
start at the same time take turns.
"""

_OF_MEMORIES = (
    "tenant", "scope", "memory", "posting", "term", "anchor", "about", "memory_trigger",
    "null_score", "trash",
)  # fmt: skip
_SHARED = ("entry", "feedback", "threshold", "home_file")
_EMBEDDED = ("embedding", "embedding_model")
TABLES_OF_A_TENANT = (
    *_OF_MEMORIES, "entry", "feedback", "threshold", *_EMBEDDED, "audit",
)  # fmt: skip


def _walls(tables: Sequence[str]) -> Iterator[str]:
    """Yield the statements that set up row-level security for these tables."""
    for table in tables:
        yield f"ALTER TABLE upwell.{table} ENABLE ROW LEVEL SECURITY"
        # The policy must also apply to the owner of the tables.
        yield f"ALTER TABLE upwell.{table} FORCE ROW LEVEL SECURITY"
        # Because of the subquery, the setting is read once per statement, not once per row.
        yield (
            f"CREATE POLICY of_tenant ON upwell.{table} USING (tenant = "
            f"(SELECT nullif(current_setting('{TENANT_SETTING}', true), '')::bigint))"
        )


_CREATE = (
    """CREATE TABLE upwell.tenant (
        tenant bigint PRIMARY KEY, name text COLLATE "C" NOT NULL UNIQUE,
        version bigint NOT NULL DEFAULT 0)""",
    """CREATE TABLE upwell.scope (
        tenant bigint, no integer, project text COLLATE "C" NOT NULL,
        memories bigint NOT NULL DEFAULT 0, words bigint NOT NULL DEFAULT 0,
        tokens bigint NOT NULL DEFAULT 0, last bigint NOT NULL DEFAULT 0,
        PRIMARY KEY (tenant, no), UNIQUE (tenant, project))""",
    """CREATE TABLE upwell.memory (
        tenant bigint, n bigint, id text COLLATE "C" NOT NULL,
        namespace text COLLATE "C" NOT NULL, text text NOT NULL, raw bytea,
        tags text NOT NULL, paths text NOT NULL, symbols text NOT NULL,
        project text COLLATE "C" NOT NULL, source text NOT NULL,
        first_line integer, last_line integer, door text NOT NULL, server text NOT NULL,
        tool text NOT NULL, session text NOT NULL, trust text NOT NULL, pinned boolean NOT NULL,
        supersedes text COLLATE "C", expires_at double precision,
        content_hash text COLLATE "C" NOT NULL, created_at double precision NOT NULL,
        updated_at double precision NOT NULL, viewed_at double precision,
        triggers text NOT NULL, occurrences integer NOT NULL,
        extra text NOT NULL, keys text NOT NULL, is_turn boolean NOT NULL,
        PRIMARY KEY (tenant, n), UNIQUE (tenant, id))""",
    "CREATE INDEX memory_hash ON upwell.memory (tenant, content_hash)",
    "CREATE INDEX memory_created ON upwell.memory (tenant, created_at DESC, n DESC)",
    "CREATE INDEX memory_expiry ON upwell.memory (tenant, expires_at) WHERE expires_at IS NOT NULL",
    "CREATE INDEX memory_pinned ON upwell.memory (tenant, n) WHERE pinned",
    """CREATE INDEX memory_supersedes ON upwell.memory (tenant, supersedes)
        WHERE supersedes IS NOT NULL""",
    """CREATE TABLE upwell.posting (
        tenant bigint, stem text COLLATE "C", n bigint,
        frequency real NOT NULL, length integer NOT NULL,
        PRIMARY KEY (tenant, stem, n) INCLUDE (frequency, length))""",
    """CREATE TABLE upwell.term (
        tenant bigint, stem text COLLATE "C", scope integer, memories bigint NOT NULL,
        PRIMARY KEY (tenant, stem, scope))""",
    """CREATE TABLE upwell.anchor (
        tenant bigint, key text COLLATE "C", scope integer, memories bigint NOT NULL,
        PRIMARY KEY (tenant, key, scope))""",
    """CREATE TABLE upwell.about (
        tenant bigint, key text COLLATE "C", n bigint, PRIMARY KEY (tenant, key, n))""",
    """CREATE TABLE upwell.memory_trigger (
        tenant bigint, trigger text COLLATE "C", n bigint, PRIMARY KEY (tenant, trigger, n))""",
    """CREATE TABLE upwell.null_score (
        tenant bigint, scope integer, words integer, mean double precision NOT NULL,
        spread double precision NOT NULL, memories bigint NOT NULL,
        PRIMARY KEY (tenant, scope, words))""",
    """CREATE TABLE upwell.trash (
        tenant bigint, id text COLLATE "C", deleted_at double precision NOT NULL,
        memory text NOT NULL, PRIMARY KEY (tenant, id))""",
    *_walls(_OF_MEMORIES),
)

_SHARE = (
    # Keys are `bytea`, because `text` does not allow all bytes.
    """CREATE TABLE upwell.entry (
        tenant bigint, kind text COLLATE "C", key bytea, value bytea NOT NULL DEFAULT '',
        number bigint NOT NULL DEFAULT 0, created_at double precision NOT NULL,
        expires_at double precision NOT NULL, PRIMARY KEY (tenant, kind, key))""",
    "CREATE INDEX entry_expiry ON upwell.entry (tenant, expires_at)",
    """CREATE TABLE upwell.feedback (
        tenant bigint, surfacing text COLLATE "C", memory text COLLATE "C", rating text NOT NULL,
        at double precision NOT NULL, door text NOT NULL, tool text NOT NULL,
        score double precision NOT NULL, signals text NOT NULL,
        forgotten boolean NOT NULL DEFAULT false, PRIMARY KEY (tenant, surfacing, memory))""",
    "CREATE INDEX feedback_tool ON upwell.feedback (tenant, at)",
    "CREATE INDEX feedback_memory ON upwell.feedback (tenant, memory)",
    """CREATE TABLE upwell.threshold (
        tenant bigint, tool text COLLATE "C", shift double precision NOT NULL,
        at double precision NOT NULL, PRIMARY KEY (tenant, tool))""",
    """CREATE TABLE upwell.home_file (
        tenant bigint, name text COLLATE "C", content bytea NOT NULL,
        version bigint NOT NULL DEFAULT 1, PRIMARY KEY (tenant, name))""",
    "ALTER TABLE upwell.tenant ADD COLUMN learned bigint NOT NULL DEFAULT 0",
    *_walls(_SHARED),
)

_ACTOR = """coalesce(nullif(current_setting('upwell.actor', true), ''),
    session_user || '@' || coalesce(host(inet_client_addr()), 'local'))"""

_AUDIT = (
    """CREATE TABLE upwell.audit (
        tenant bigint, at double precision, id uuid DEFAULT gen_random_uuid(),
        actor text NOT NULL, action text NOT NULL, subject text NOT NULL, outcome text NOT NULL,
        PRIMARY KEY (tenant, at, id))""",
    *_walls(["audit"]),
    # Each statement creates one entry, however many memories it changes.
    f"""CREATE FUNCTION upwell.audit_memories() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        INSERT INTO upwell.audit (tenant, at, actor, action, subject, outcome)
        SELECT tenant, extract(epoch FROM clock_timestamp())::float8, {_ACTOR}, TG_ARGV[0],
            array_to_string((array_agg(id ORDER BY n))[1:20], ' '), 'done: ' || count(*)
        FROM changed GROUP BY tenant;
        RETURN NULL; END $$""",
    """CREATE TRIGGER audit_added AFTER INSERT ON upwell.memory REFERENCING NEW TABLE AS changed
        FOR EACH STATEMENT EXECUTE FUNCTION upwell.audit_memories('store')""",
    """CREATE TRIGGER audit_removed AFTER DELETE ON upwell.memory REFERENCING OLD TABLE AS changed
        FOR EACH STATEMENT EXECUTE FUNCTION upwell.audit_memories('remove')""",
)

_IDENTIFY = (
    # Developers' machines recognise the database by this identity, even if its address changes.
    "ALTER TABLE upwell.tenant ADD COLUMN identity uuid NOT NULL DEFAULT gen_random_uuid()",
)

_EMBED = (
    """CREATE TABLE upwell.embedding (
        tenant bigint, model bigint, n bigint, numbers bytea NOT NULL,
        PRIMARY KEY (tenant, model, n))""",
    # Vectors do not compress well.
    "ALTER TABLE upwell.embedding ALTER COLUMN numbers SET STORAGE EXTERNAL",
    "CREATE INDEX embedding_memory ON upwell.embedding (tenant, n)",
    """CREATE TABLE upwell.embedding_model (
        tenant bigint, model bigint, name text NOT NULL, dim integer NOT NULL,
        used_at double precision NOT NULL, complete bigint NOT NULL, holder text NOT NULL,
        leased_until double precision NOT NULL, PRIMARY KEY (tenant, model))""",
    *_walls(_EMBEDDED),
    # A trigger deletes the vectors of deleted memories, because replicas on an earlier version do
    # not delete from this table.
    """CREATE FUNCTION upwell.forget_embeddings() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        DELETE FROM upwell.embedding e USING changed c WHERE e.tenant = c.tenant AND e.n = c.n;
        RETURN NULL; END $$""",
    """CREATE TRIGGER forget_embeddings AFTER DELETE ON upwell.memory
        REFERENCING OLD TABLE AS changed
        FOR EACH STATEMENT EXECUTE FUNCTION upwell.forget_embeddings()""",
)

_CODE = (
    # These columns are nullable, because replicas on an earlier version do not fill them. Such
    # replicas store their vectors under other model numbers.
    """ALTER TABLE upwell.embedding ADD COLUMN code bit varying,
        ADD COLUMN namespace text COLLATE "C" """,
    # The index is empty at first, so creating it delays no search.
    """CREATE INDEX embedding_code ON upwell.embedding (tenant, model, n)
        INCLUDE (code, namespace) WHERE code IS NOT NULL""",
)

_OWN = (
    # Each home has its own files, originals and sessions.
    "DROP TABLE IF EXISTS upwell.home_file",
    "DROP TRIGGER IF EXISTS announce_learned ON upwell.tenant",
    "ALTER TABLE upwell.entry NO FORCE ROW LEVEL SECURITY",
    "DELETE FROM upwell.entry WHERE kind <> 'received'",
    "ALTER TABLE upwell.entry FORCE ROW LEVEL SECURITY",
)

_UNLOGGED = (
    # Until 0.2.0, a log of changes updated developers' machines, and a channel announced them.
    "DROP FUNCTION IF EXISTS upwell.note_changes CASCADE",
    "DROP FUNCTION IF EXISTS upwell.announce CASCADE",
    "DROP TABLE IF EXISTS upwell.change",
    """ALTER TABLE upwell.scope DROP COLUMN IF EXISTS pruned_version,
        DROP COLUMN IF EXISTS pruned_id""",
)

MIGRATIONS = (_CREATE, _SHARE, _AUDIT, _IDENTIFY, _EMBED, (), _CODE, _OWN, _UNLOGGED)
"""Each migration's statements, oldest migration first. The empty one pruned the log of changes."""


def tenant_number(name: str) -> int:
    """Return the number of a tenant: 63 bits of the SHA-256 of its name."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8]) >> 1


ENSURE_TENANT = """
    INSERT INTO upwell.tenant (tenant, name) VALUES (%(tenant)s, %(name)s)
    ON CONFLICT DO NOTHING"""
