"""The tables of the projections' own file; a change here is a new VERSION, and old files are built anew.

`changed` is the position a row was written at. A row that a moment of the past still needs is kept in the table of the
same name with `_was`, from `changed` up to the position where it was written again: `until`.
"""

from typing import Final

VERSION: Final = 8

RUN_COLUMNS: Final = (
    "ordinal, run_id, provider, provider_id, name, state, ended, sort_at, changed, cost, odd, user, against, archive, "
    "hidden, object, folded"
)
VM_COLUMNS: Final = (
    "ordinal, vm_id, provider_id, name, billed, ended_at, created, changed, cost, last_at, kind, spans, paid, archive, "
    "hidden, object, folded"
)

_RUNS = """
    run_id TEXT NOT NULL{unique},
    provider TEXT NOT NULL,
    provider_id TEXT,
    name TEXT,
    state TEXT NOT NULL,
    ended INTEGER NOT NULL,
    sort_at INTEGER NOT NULL,     -- when it was submitted, else first seen; microseconds
    changed INTEGER NOT NULL,
    cost INTEGER,                 -- micro-dollars; NULL: unknown
    odd BLOB,                     -- the anomaly that its cost is, JSON; NULL: none
    user TEXT,                    -- who submitted it
    against BLOB,                 -- its cost against the provider's figure, msgpack; NULL: neither charges it
    archive TEXT,                 -- the archive that alone shows it; NULL: it is live
    hidden INTEGER NOT NULL,      -- lists leave it out
    object BLOB NOT NULL,         -- the run object, JSON
    folded BLOB NOT NULL          -- the engine's own run, so that the fold can go on
"""
_VMS = """
    vm_id TEXT NOT NULL{unique},
    provider_id TEXT NOT NULL,
    name TEXT,
    billed INTEGER NOT NULL,      -- it may be billed now; never in an archive
    ended_at INTEGER,             -- microseconds; NULL: it has not ended; in an archive, the end of its bill
    created INTEGER NOT NULL,
    changed INTEGER NOT NULL,
    cost INTEGER NOT NULL,        -- micro-dollars so far
    last_at INTEGER NOT NULL,     -- the newest poll that showed it
    kind TEXT NOT NULL,           -- machines of one kind cost the same
    spans BLOB NOT NULL,          -- (since, until, micro-dollars) of stretches at one price, msgpack
    paid BLOB NOT NULL,           -- what its bill is made of, msgpack
    archive TEXT,                 -- the archive that alone shows it; NULL: it is live
    hidden INTEGER NOT NULL,      -- lists leave it out
    object BLOB NOT NULL,         -- the machine object, JSON
    folded BLOB NOT NULL          -- the engine's own machine
"""

DDL: Final = f"""
CREATE TABLE meta (key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;

-- one row a run, in order of first sight
CREATE TABLE runs (ordinal INTEGER PRIMARY KEY, {_RUNS.format(unique=" UNIQUE")});
CREATE INDEX runs_name ON runs (name, ordinal);
CREATE INDEX runs_provider_id ON runs (provider_id, provider);
CREATE INDEX runs_open ON runs (sort_at) WHERE ended = 0 AND archive IS NULL;
CREATE INDEX runs_sort ON runs (sort_at, ordinal);
CREATE INDEX runs_state ON runs (state, sort_at, ordinal);
CREATE INDEX runs_changed ON runs (changed);
CREATE INDEX runs_hidden ON runs (ordinal) WHERE hidden = 1;
CREATE INDEX runs_odd ON runs (ordinal) WHERE odd IS NOT NULL;
CREATE INDEX runs_against ON runs (run_id, name, user, against, hidden, changed);   -- all that costs are summed from

CREATE TABLE runs_was (ordinal INTEGER NOT NULL, {_RUNS.format(unique="")}, until INTEGER NOT NULL);
CREATE INDEX runs_was_id ON runs_was (run_id);

-- one row a machine, in order of first sight
CREATE TABLE vms (ordinal INTEGER PRIMARY KEY, {_VMS.format(unique=" UNIQUE")});
CREATE INDEX vms_name ON vms (name, ordinal);
CREATE INDEX vms_provider_id ON vms (provider_id);
CREATE INDEX vms_billed ON vms (ordinal) WHERE billed = 1;
CREATE INDEX vms_hidden ON vms (ordinal) WHERE hidden = 1;
CREATE INDEX vms_ended ON vms (ended_at);
CREATE INDEX vms_kind ON vms (kind, last_at);
CREATE INDEX vms_cost ON vms (archive, cost, created, changed);
CREATE INDEX vms_spans ON vms (archive, spans, changed);   -- all that the curve of what was spent is drawn from
CREATE INDEX vms_paid ON vms (vm_id, name, paid, archive, hidden, changed);   -- all that costs are summed from

CREATE TABLE vms_was (ordinal INTEGER NOT NULL, {_VMS.format(unique="")}, until INTEGER NOT NULL);
CREATE INDEX vms_was_id ON vms_was (vm_id);

CREATE TABLE anomalies (
    ordinal INTEGER PRIMARY KEY, changed INTEGER NOT NULL, subject TEXT NOT NULL, position INTEGER NOT NULL,
    archive TEXT, object BLOB NOT NULL
);
CREATE INDEX anomalies_subject ON anomalies (subject);
CREATE INDEX anomalies_position ON anomalies (position, ordinal);

-- gaps that are over; the open ones follow from the sources
CREATE TABLE blind (
    ordinal INTEGER PRIMARY KEY, changed INTEGER NOT NULL, source TEXT NOT NULL, archive TEXT,
    object BLOB NOT NULL
);
CREATE INDEX blind_source ON blind (source, ordinal);

-- what a person looks for in time: ends of runs, machines coming and going, anomalies
CREATE TABLE marks (
    ordinal INTEGER PRIMARY KEY, changed INTEGER NOT NULL, position INTEGER NOT NULL, at INTEGER NOT NULL,
    kind TEXT NOT NULL, subject TEXT NOT NULL,
    track INTEGER NOT NULL        -- of the tape: 0 anomalies, 1 ends of runs, 2 machines
);
CREATE INDEX marks_track ON marks (track, at, position);

-- the fold as it was at some positions, evenly spaced: any moment is opened from the one before it
CREATE TABLE moments (position INTEGER PRIMARY KEY, world BLOB NOT NULL, lasting BLOB NOT NULL);

-- runs that a moment's own fold took away
CREATE TABLE gone (run_id TEXT PRIMARY KEY) WITHOUT ROWID;
"""

NOTES: Final = {
    "anomalies": "ordinal, changed, subject, position, archive, object",
    "blind": "ordinal, changed, source, archive, object",
    "marks": "ordinal, changed, position, at, kind, subject, track",
}
"""Tables that only grow, with their columns."""


def seen_at(position: int) -> str:
    """Views in an empty store that show what the attached store `base` knew at one of its moments, below what the empty
    store itself gets.
    """
    found = []
    for table, columns, key in (("runs", RUN_COLUMNS, "run_id"), ("vms", VM_COLUMNS, "vm_id")):
        newer = f"AND {key} NOT IN (SELECT {key} FROM main.{table})"  # noqa: S608 - names of ours
        newer += " AND run_id NOT IN (SELECT run_id FROM main.gone)" if table == "runs" else ""
        found.append(
            f"CREATE TEMP VIEW {table} AS SELECT {columns} FROM main.{table} "  # noqa: S608
            f"UNION ALL SELECT {columns} FROM base.{table} WHERE changed <= {position} {newer} "
            f"UNION ALL SELECT {columns} FROM base.{table}_was "
            f"WHERE changed <= {position} AND until > {position} {newer}"
        )
    found += [
        f"CREATE TEMP VIEW {table} AS SELECT {columns} FROM main.{table} "  # noqa: S608
        f"UNION ALL SELECT {columns} FROM base.{table} WHERE changed <= {position}"
        for table, columns in NOTES.items()
    ]
    return ";".join(found)
