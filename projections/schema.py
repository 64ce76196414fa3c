"""The tables of the projections' own file; a change here is a new VERSION, and old files are built anew."""

VERSION = 1

DDL = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;

-- one row a run, in order of first sight
CREATE TABLE runs (
    ordinal INTEGER PRIMARY KEY,
    run_id TEXT NOT NULL UNIQUE,
    provider TEXT NOT NULL,
    provider_id TEXT,
    name TEXT,
    ended INTEGER NOT NULL,
    sort_at INTEGER NOT NULL,     -- when it was submitted, else first seen; microseconds
    object BLOB NOT NULL,         -- the run object, JSON
    folded BLOB NOT NULL          -- the engine's own run, so that the fold can go on
);
CREATE INDEX runs_name ON runs (name, ordinal);
CREATE INDEX runs_provider_id ON runs (provider_id, provider);
CREATE INDEX runs_open ON runs (sort_at) WHERE ended = 0;
CREATE INDEX runs_sort ON runs (sort_at);

-- one row a machine, in order of first sight
CREATE TABLE vms (
    ordinal INTEGER PRIMARY KEY,
    vm_id TEXT NOT NULL UNIQUE,
    provider_id TEXT NOT NULL,
    name TEXT,
    billed INTEGER NOT NULL,      -- it may be billed now
    ended_at INTEGER,             -- microseconds; NULL: it has not ended
    object BLOB NOT NULL          -- the machine object, JSON
);
CREATE INDEX vms_name ON vms (name, ordinal);
CREATE INDEX vms_provider_id ON vms (provider_id);
CREATE INDEX vms_billed ON vms (ordinal) WHERE billed = 1;

CREATE TABLE anomalies (ordinal INTEGER PRIMARY KEY, subject TEXT NOT NULL, object BLOB NOT NULL);
CREATE INDEX anomalies_subject ON anomalies (subject);

-- gaps that are over; the open ones follow from the sources
CREATE TABLE blind (ordinal INTEGER PRIMARY KEY, source TEXT NOT NULL, object BLOB NOT NULL);
CREATE INDEX blind_source ON blind (source, ordinal);
"""
