-- What a role may do, checked where it does it (ADR 63). A role that appends can still append a false event; it can
-- leave no record that nobody can append to or open.

-- Rows are inserted between `claim` (or `look_at_head(true)`), which fills `open`, and `advance`, which checks them and
-- empties it. Only the transaction that has the head's lock ever sees it filled.
ALTER TABLE head ADD COLUMN open bigint[];  -- the highest ids of parts and streams before this append

CREATE FUNCTION expect_open() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (SELECT open FROM steno.head) IS NULL THEN
        RAISE EXCEPTION 'the record is append-only: % gets rows in an append alone', TG_TABLE_NAME USING ERRCODE = 'ST003';
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER in_append BEFORE INSERT ON events FOR EACH STATEMENT EXECUTE FUNCTION expect_open();
CREATE TRIGGER in_append BEFORE INSERT ON parts FOR EACH STATEMENT EXECUTE FUNCTION expect_open();
CREATE TRIGGER in_append BEFORE INSERT ON streams FOR EACH STATEMENT EXECUTE FUNCTION expect_open();

CREATE FUNCTION expect_closed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (SELECT open FROM steno.head) IS NOT NULL THEN
        RAISE EXCEPTION 'the append was not finished' USING ERRCODE = 'ST003';
    END IF;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER finished AFTER UPDATE ON head DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW WHEN (NEW.open IS NOT NULL) EXECUTE FUNCTION expect_closed();

CREATE OR REPLACE FUNCTION look_at_head(locked boolean, OUT at bigint, OUT digest bytea, OUT part bigint,
                                        OUT stream bigint, OUT past bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = steno, pg_temp AS $$
BEGIN
    IF locked THEN
        PERFORM FROM head FOR UPDATE;  -- the next statement sees what the one waited for has committed
    END IF;
    SELECT h.position, h.hash, (SELECT coalesce(max(id), 0) FROM parts), (SELECT coalesce(max(id), 0) FROM streams),
           (SELECT coalesce(max(r.past), 1) FROM ranges r)
      INTO at, digest, part, stream, past FROM head h;
    IF locked THEN
        UPDATE head SET open = ARRAY[part, stream];
    END IF;
END $$;

CREATE OR REPLACE FUNCTION claim(was bigint, was_hash bytea) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = steno, pg_temp AS $$
BEGIN
    UPDATE head SET open = ARRAY[(SELECT coalesce(max(id), 0) FROM parts), (SELECT coalesce(max(id), 0) FROM streams)]
     WHERE position = was AND hash = was_hash;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the head moved' USING ERRCODE = 'ST001';
    END IF;
END $$;

-- The last step of every append. ST003: what was inserted is not what an append is: positions, ids and versions without
-- gaps, references to what is there, and the hash that the last row has.
CREATE OR REPLACE FUNCTION advance(was bigint, was_hash bytea, now_at bigint, now_hash bytea, moved bigint[],
                                   versions bigint[], items bigint[], sinces bigint[], held text[], tokens bigint[])
RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = steno, pg_temp AS $$
DECLARE
    before bigint[];
    part bigint;
    right_so boolean;
BEGIN
    SELECT open INTO before FROM head WHERE position = was AND hash = was_hash;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the head moved' USING ERRCODE = 'ST001';
    END IF;
    UPDATE head SET position = now_at, hash = now_hash, open = NULL;
    SELECT coalesce(max(id), before[1]), count(*) = coalesce(max(id), before[1]) - before[1]
           AND coalesce(bool_and(base_id IS NULL OR base_id < id), true)
      INTO part, right_so FROM parts WHERE id > before[1];
    right_so := right_so AND length(now_hash) = 32 AND (
        SELECT count(*) = coalesce(max(id), before[2]) - before[2]
               AND coalesce(bool_and(version = 0 AND item_id IS NULL AND since IS NULL), true)
          FROM streams WHERE id > before[2]
    ) AND (
        SELECT coalesce(sum(e.added), 0) = now_at - was AND coalesce(max(e.newest), was) = now_at
               AND coalesce(bool_and(coalesce(e.sound AND e.low = s.version + 1 AND e.high = s.version + e.added
                                              AND e.different = e.added AND m.version = e.high
                                              AND coalesce(m.item, 1) BETWEEN 1 AND greatest(part, 1), false)), true)
          FROM (SELECT stream_id, count(*) AS added, max(position) AS newest, min(version) AS low,
                       max(version) AS high, count(DISTINCT version) AS different,
                       bool_and(length(hash) = CASE WHEN position % 100 = 0 THEN 32 ELSE 8 END
                                AND coalesce(scope_id, 1) BETWEEN 1 AND greatest(part, 1)
                                AND coalesce(body_id, 1) BETWEEN 1 AND greatest(part, 1)) AS sound
                  FROM events WHERE position > was GROUP BY stream_id) e
          FULL JOIN unnest(moved, versions, items) AS m(id, version, item) ON m.id = e.stream_id
          LEFT JOIN streams s ON s.id = e.stream_id
    ) AND CASE WHEN now_at = was THEN now_hash = was_hash ELSE (
        SELECT hash = substr(now_hash, 1, length(hash)) FROM events WHERE position = now_at
    ) END;
    IF right_so IS NOT TRUE THEN
        RAISE EXCEPTION 'positions % to % are not an append', was + 1, now_at USING ERRCODE = 'ST003';
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

-- Partitions are made by one process at a time: a lock that no reader can take. Only the owner chooses their size.
CREATE OR REPLACE FUNCTION make_room(upto bigint, size bigint DEFAULT 10000000) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = steno, pg_temp AS $$
DECLARE
    low bigint;
    made text;
BEGIN
    IF NOT pg_has_role(session_user, current_user, 'MEMBER')
       AND (size <> 10000000 OR upto > (SELECT position + size FROM head)) THEN
        RAISE EXCEPTION 'room for position % is not needed yet', upto USING ERRCODE = 'ST003';
    END IF;
    LOCK TABLE ranges IN SHARE ROW EXCLUSIVE MODE;
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

-- A lease lasts a minute at most, whoever asks for it.
CREATE FUNCTION expect_short(lasts interval) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF lasts NOT BETWEEN interval '0' AND interval '1 minute' THEN
        RAISE EXCEPTION 'a lease lasts a minute at most, not %', lasts USING ERRCODE = 'ST003';
    END IF;
END $$;

CREATE OR REPLACE FUNCTION take_lease(wanted text, by_owner uuid, by_process bigint, by_host text, lasts interval)
RETURNS bigint LANGUAGE sql SECURITY DEFINER SET search_path = steno, pg_temp AS $$
    SELECT expect_short(lasts);
    INSERT INTO leases AS l VALUES (wanted, by_owner, 1, by_process, by_host, clock_timestamp() + lasts)
    ON CONFLICT (name) DO UPDATE
       SET owner = by_owner, token = l.token + 1, process = by_process, host = by_host,
           expires = clock_timestamp() + lasts
     WHERE l.expires <= clock_timestamp()
    RETURNING token
$$;

CREATE OR REPLACE FUNCTION renew_lease(held text, by_owner uuid, mine bigint, lasts interval)
RETURNS boolean LANGUAGE sql SECURITY DEFINER SET search_path = steno, pg_temp AS $$
    SELECT expect_short(lasts);
    WITH renewed AS (
        UPDATE leases SET expires = clock_timestamp() + lasts
         WHERE name = held AND owner = by_owner AND token = mine RETURNING 1)
    SELECT count(*) = 1 FROM renewed
$$;

-- The tokens have a table of their own: who appends does not see them. `changes` is 0 where nothing was put yet: such a
-- row is there to be locked.
CREATE TABLE tokens (LIKE blobs INCLUDING ALL);
INSERT INTO tokens SELECT * FROM blobs WHERE name = 'tokens';
DELETE FROM blobs WHERE name = 'tokens';
INSERT INTO tokens VALUES ('tokens', '', 0) ON CONFLICT DO NOTHING;
INSERT INTO blobs VALUES ('vault', '', 0), ('snapshot', '', 0) ON CONFLICT DO NOTHING;

CREATE OR REPLACE FUNCTION put_blob(named text, new bytea) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = steno, pg_temp AS $$
DECLARE old bytea;
BEGIN
    IF named = 'tokens' THEN
        RAISE EXCEPTION 'permission denied for the tokens' USING ERRCODE = '42501';
    ELSIF named = 'vault' THEN
        SELECT content INTO old FROM blobs WHERE name = named AND changes > 0 FOR UPDATE;
        IF FOUND AND convert_from(new, 'UTF8')::json ->> 'key' IS DISTINCT FROM convert_from(old, 'UTF8')::json ->> 'key' THEN
            RAISE EXCEPTION 'the key of the vault is never replaced' USING ERRCODE = 'ST003';
        END IF;
    END IF;
    INSERT INTO blobs AS b VALUES (named, new, 1)
    ON CONFLICT (name) DO UPDATE SET content = new, changes = b.changes + 1;
END $$;

CREATE FUNCTION put_tokens(named text, new bytea) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = steno, pg_temp AS $$
    UPDATE tokens SET content = new, changes = changes + 1 WHERE name = named
$$;

-- Lock a blob until the transaction ends; whether it is locked. Waits 5 s, whatever the caller has set (55P03), or not
-- at all. A row of a table in which no reader can lock a row.
CREATE FUNCTION hold_blob(named text, waits boolean) RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = steno, pg_temp SET lock_timeout = '5s' AS $$
BEGIN
    IF NOT waits THEN
        PERFORM set_config('lock_timeout', '1ms', true);
    END IF;
    INSERT INTO blobs VALUES (named, '', 0) ON CONFLICT DO NOTHING;
    PERFORM FROM blobs WHERE name = named FOR UPDATE;
    RETURN true;
EXCEPTION WHEN lock_not_available THEN
    IF waits THEN
        RAISE;
    END IF;
    RETURN false;
END $$;

CREATE FUNCTION hold_tokens(named text, waits boolean) RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = steno, pg_temp SET lock_timeout = '5s' AS $$
BEGIN
    IF waits THEN
        PERFORM FROM tokens WHERE name = named FOR UPDATE;
    ELSE
        PERFORM FROM tokens WHERE name = named FOR UPDATE SKIP LOCKED;
    END IF;
    RETURN FOUND;
END $$;

-- Let a role read; also append; also keep the tokens of the service.
DROP FUNCTION admit;
CREATE FUNCTION admit(role text, appends boolean, keeps_tokens boolean DEFAULT false) RETURNS void LANGUAGE plpgsql
    SET search_path = steno, pg_temp AS $$
BEGIN
    EXECUTE format('GRANT USAGE ON SCHEMA steno TO %I', role);
    EXECUTE format('GRANT SELECT ON meta, head, streams, parts, events, ranges, alembic_version TO %I', role);
    IF appends THEN
        EXECUTE format('GRANT SELECT ON blobs, leases TO %I', role);  -- the vault is among them
        EXECUTE format('GRANT INSERT ON events, parts, streams TO %I', role);
        EXECUTE format('GRANT EXECUTE ON FUNCTION make_room, look_at_head, claim, advance, take_lease, renew_lease, '
                       'put_blob, hold_blob TO %I', role);
    END IF;
    IF keeps_tokens THEN
        EXECUTE format('GRANT SELECT ON tokens TO %I', role);
        EXECUTE format('GRANT EXECUTE ON FUNCTION put_tokens, hold_tokens TO %I', role);
    END IF;
END $$;
REVOKE ALL ON FUNCTION admit, expect_open, expect_closed, expect_short, put_tokens, hold_blob, hold_tokens FROM PUBLIC;

DO $$
DECLARE role text;
BEGIN
    FOR role IN SELECT DISTINCT grantee FROM information_schema.role_table_grants
                 WHERE table_schema = 'steno' AND table_name = 'events' AND privilege_type = 'INSERT'
                   AND grantee NOT IN (current_user, 'PUBLIC') LOOP
        PERFORM admit(role, true);
    END LOOP;
END $$;
