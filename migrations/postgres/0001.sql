-- The record on PostgreSQL, in the schema `steno` (search_path). Whoever appends may INSERT and SELECT; what has to change
-- in place (head, streams, leases, blobs) changes in functions that run as the owner.
-- No foreign keys: each would lock a row of `streams` or `parts` per event; `steno verify` checks what they would.

CREATE TABLE meta (key text PRIMARY KEY, value bytea NOT NULL);

CREATE TABLE head (
    id smallint PRIMARY KEY CHECK (id = 1),
    position bigint NOT NULL,
    hash bytea NOT NULL
) WITH (fillfactor = 10, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0);

CREATE TABLE streams (
    id bigint PRIMARY KEY,
    name text NOT NULL UNIQUE,
    version bigint NOT NULL,
    item_id bigint,
    since bigint
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);

CREATE TABLE parts (
    id bigint PRIMARY KEY,
    commitment bytea NOT NULL UNIQUE,
    base_id bigint,
    encoding smallint NOT NULL,
    crc bigint NOT NULL,
    data bytea NOT NULL
);
ALTER TABLE parts ALTER COLUMN data SET STORAGE EXTERNAL;  -- compressed already

-- A unique index of a partitioned table has to hold the partition's key, so a stream's version and an event's id are kept
-- unique by the head alone: every append checks them against the one before it.
CREATE TABLE events (
    position bigint PRIMARY KEY,
    stream_id bigint NOT NULL,
    version bigint NOT NULL,
    kind smallint NOT NULL,
    event_id bytea,
    observed_at bigint NOT NULL,
    took bigint NOT NULL,
    recorded_after bigint NOT NULL,
    scope_id bigint,
    body_id bigint,
    data bytea NOT NULL,
    hash bytea NOT NULL
) PARTITION BY RANGE (position);

CREATE INDEX events_stream ON events (stream_id, version) WHERE kind > 2;
CREATE INDEX events_event_id ON events (event_id) WHERE event_id IS NOT NULL;

-- The partitions of `events`: positions from `first` to before `past`.
CREATE TABLE ranges (name text PRIMARY KEY, first bigint NOT NULL UNIQUE, past bigint NOT NULL UNIQUE);

-- Vault, tokens, the engine's snapshot: private, and not of the record: they can be replaced and erased.
CREATE TABLE blobs (name text PRIMARY KEY, content bytea NOT NULL, changes bigint NOT NULL);

CREATE TABLE leases (
    name text PRIMARY KEY,
    owner uuid NOT NULL,
    token bigint NOT NULL,
    process bigint NOT NULL,
    host text NOT NULL,
    expires timestamptz NOT NULL
) WITH (fillfactor = 50);

CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the record is append-only: no % on %', lower(TG_OP), TG_TABLE_NAME USING ERRCODE = 'ST003';
END $$;

CREATE FUNCTION protect(one text, verbs text[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE verb text;
BEGIN
    FOREACH verb IN ARRAY verbs LOOP
        EXECUTE format('CREATE TRIGGER %I BEFORE %s ON %I FOR EACH STATEMENT EXECUTE FUNCTION refuse()',
                       'no_' || lower(verb), verb, one);
    END LOOP;
END $$;

SELECT protect(one, '{UPDATE,DELETE,TRUNCATE}') FROM unnest('{events,parts,meta}'::text[]) AS one;
SELECT protect(one, '{DELETE,TRUNCATE}') FROM unnest('{streams,head}'::text[]) AS one;

-- Make partitions until position `upto` has its place. Attaching locks out neither readers nor writers.
CREATE FUNCTION make_room(upto bigint, size bigint DEFAULT 10000000) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = steno, pg_temp AS $$
DECLARE
    low bigint;
    made text;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('steno make_room'));
    LOOP
        SELECT coalesce(max(past), 1) INTO low FROM ranges;
        EXIT WHEN low > upto;
        made := 'events_' || low;
        EXECUTE format('CREATE TABLE %I (LIKE events INCLUDING ALL)', made);
        EXECUTE format('ALTER TABLE events ATTACH PARTITION %I FOR VALUES FROM (%s) TO (%s)', made, low, low + size);
        PERFORM protect(made, '{UPDATE,DELETE,TRUNCATE}');
        INSERT INTO ranges VALUES (made, low, low + size);
    END LOOP;
    RETURN low;
END $$;

-- The record's end, with the highest ids and the end of the last partition. `locked`: no other append until the
-- transaction ends.
CREATE FUNCTION look_at_head(locked boolean, OUT at bigint, OUT digest bytea, OUT part bigint, OUT stream bigint,
                             OUT past bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = steno, pg_temp AS $$
BEGIN
    IF locked THEN
        PERFORM FROM head FOR UPDATE;  -- the next statement sees what the one waited for has committed
    END IF;
    SELECT h.position, h.hash, (SELECT coalesce(max(id), 0) FROM parts), (SELECT coalesce(max(id), 0) FROM streams),
           (SELECT coalesce(max(r.past), 1) FROM ranges r)
      INTO at, digest, part, stream, past FROM head h;
END $$;

-- The first step of an append that has not locked the head: lock it where the writer knows it to be. ST001: it is
-- elsewhere, and everything the writer computed is void. Rows inserted before would wait for another writer's, and that one
-- for the head.
CREATE FUNCTION claim(was bigint, was_hash bytea) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = steno, pg_temp AS $$
BEGIN
    PERFORM FROM head WHERE position = was AND hash = was_hash FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the head moved' USING ERRCODE = 'ST001';
    END IF;
END $$;

-- The last step of every append: move the head from where the writer knew it to be. ST002: a lease the
-- writer acts under is another's now.
CREATE FUNCTION advance(was bigint, was_hash bytea, now_at bigint, now_hash bytea, moved bigint[], versions bigint[],
                        items bigint[], sinces bigint[], held text[], tokens bigint[])
RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = steno, pg_temp AS $$
BEGIN
    UPDATE head SET position = now_at, hash = now_hash WHERE position = was AND hash = was_hash;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the head moved' USING ERRCODE = 'ST001';
    END IF;
    IF (SELECT count(*) FROM events e WHERE e.position > was) <> now_at - was THEN
        RAISE EXCEPTION 'positions % to % are not there', was + 1, now_at USING ERRCODE = 'ST003';
    END IF;
    IF cardinality(held) > 0 THEN
        PERFORM FROM leases l JOIN unnest(held, tokens) AS mine(name, token) USING (name, token) FOR SHARE OF l;
        IF (SELECT count(*) FROM leases l JOIN unnest(held, tokens) AS mine(name, token) USING (name, token))
           <> cardinality(held) THEN
            RAISE EXCEPTION 'a lease is lost' USING ERRCODE = 'ST002';
        END IF;
    END IF;
    UPDATE streams s SET version = m.version, item_id = m.item, since = m.since
      FROM unnest(moved, versions, items, sinces) AS m(id, version, item, since) WHERE s.id = m.id;
END $$;

-- The token of a lease that was free, or whose holder let it expire; NULL: it is held. The database's clock alone counts.
CREATE FUNCTION take_lease(wanted text, by_owner uuid, by_process bigint, by_host text, lasts interval)
RETURNS bigint LANGUAGE sql SECURITY DEFINER SET search_path = steno, pg_temp AS $$
    INSERT INTO leases AS l VALUES (wanted, by_owner, 1, by_process, by_host, clock_timestamp() + lasts)
    ON CONFLICT (name) DO UPDATE
       SET owner = by_owner, token = l.token + 1, process = by_process, host = by_host,
           expires = clock_timestamp() + lasts
     WHERE l.expires <= clock_timestamp()
    RETURNING token
$$;

-- Whether the lease is still its holder's; then it lasts that much longer. Zero releases it.
CREATE FUNCTION renew_lease(held text, by_owner uuid, mine bigint, lasts interval)
RETURNS boolean LANGUAGE sql SECURITY DEFINER SET search_path = steno, pg_temp AS $$
    WITH renewed AS (
        UPDATE leases SET expires = clock_timestamp() + lasts
         WHERE name = held AND owner = by_owner AND token = mine RETURNING 1)
    SELECT count(*) = 1 FROM renewed
$$;

CREATE FUNCTION put_blob(named text, new bytea) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = steno, pg_temp AS $$
    INSERT INTO blobs AS b VALUES (named, new, 1)
    ON CONFLICT (name) DO UPDATE SET content = new, changes = b.changes + 1
$$;

REVOKE ALL ON FUNCTION protect, make_room, look_at_head, claim, advance, take_lease, renew_lease, put_blob FROM PUBLIC;

-- Let a role append (and read), or only read.
CREATE FUNCTION admit(role text, appends boolean) RETURNS void LANGUAGE plpgsql SET search_path = steno, pg_temp AS $$
BEGIN
    EXECUTE format('GRANT USAGE ON SCHEMA steno TO %I', role);
    EXECUTE format('GRANT SELECT ON meta, head, streams, parts, events, ranges, alembic_version TO %I', role);
    IF appends THEN
        EXECUTE format('GRANT SELECT ON blobs, leases TO %I', role);  -- the vault is among them
        EXECUTE format('GRANT INSERT ON events, parts, streams TO %I', role);
        EXECUTE format('GRANT EXECUTE ON FUNCTION make_room, look_at_head, claim, advance, take_lease, renew_lease, '
                       'put_blob TO %I', role);
    END IF;
END $$;
REVOKE ALL ON FUNCTION admit FROM PUBLIC;

SELECT make_room(1);
