-- Ranges of events that are sealed in files, from position 1 without a gap. Only the owner seals: the append role reads.

CREATE TABLE sealed (
    last bigint PRIMARY KEY,
    first bigint NOT NULL,
    hash bytea NOT NULL,
    place text NOT NULL,
    file text NOT NULL,
    size bigint NOT NULL,
    digest bytea NOT NULL
);

CREATE TABLE sealed_ids (event_id bytea PRIMARY KEY, position bigint NOT NULL);

CREATE TABLE sealed_streams (
    stream_id bigint NOT NULL,
    first bigint NOT NULL,
    last bigint NOT NULL,
    PRIMARY KEY (stream_id, first)
);

SELECT protect(one, '{UPDATE,DELETE,TRUNCATE}') FROM unnest('{sealed_ids,sealed_streams}'::text[]) AS one;
SELECT protect('sealed', '{DELETE,TRUNCATE}');
CREATE TRIGGER no_update BEFORE UPDATE OF last, first, hash, file, size, digest ON sealed
    FOR EACH STATEMENT EXECUTE FUNCTION refuse();

-- Take the partitions whose events are all sealed out of the record, to the schema steno_sealed, where they stay until
-- somebody drops them; how many. Waits half a second for readers: they would all queue behind a longer wait.
CREATE FUNCTION detach_sealed() RETURNS bigint LANGUAGE plpgsql SET search_path = steno, pg_temp
    SET lock_timeout = '500ms' AS $$
DECLARE
    one ranges%ROWTYPE;
    detached bigint := 0;
BEGIN
    FOR one IN SELECT * FROM ranges WHERE past <= (SELECT max(last) + 1 FROM sealed) ORDER BY first LOOP
        EXECUTE format('ALTER TABLE events DETACH PARTITION %I', one.name);
        CREATE SCHEMA IF NOT EXISTS steno_sealed;
        EXECUTE format('ALTER TABLE %I SET SCHEMA steno_sealed', one.name);
        DELETE FROM ranges WHERE name = one.name;
        detached := detached + 1;
    END LOOP;
    RETURN detached;
END $$;
REVOKE ALL ON FUNCTION detach_sealed FROM PUBLIC;

-- `admit` with the new tables; who may read the record already may read them.
CREATE OR REPLACE FUNCTION admit(role text, appends boolean) RETURNS void LANGUAGE plpgsql
    SET search_path = steno, pg_temp AS $$
BEGIN
    EXECUTE format('GRANT USAGE ON SCHEMA steno TO %I', role);
    EXECUTE format('GRANT SELECT ON meta, head, streams, parts, events, ranges, sealed, sealed_ids, sealed_streams, '
                   'alembic_version TO %I', role);
    IF appends THEN
        EXECUTE format('GRANT SELECT ON blobs, leases TO %I', role);  -- the vault is among them
        EXECUTE format('GRANT INSERT ON events, parts, streams TO %I', role);
        EXECUTE format('GRANT EXECUTE ON FUNCTION make_room, look_at_head, claim, advance, take_lease, renew_lease, '
                       'put_blob TO %I', role);
    END IF;
END $$;
DO $$
DECLARE role text;
BEGIN
    FOR role IN SELECT DISTINCT grantee FROM information_schema.role_table_grants
                 WHERE table_schema = 'steno' AND table_name = 'head' AND privilege_type = 'SELECT'
                   AND grantee NOT IN (current_user, 'PUBLIC') LOOP
        EXECUTE format('GRANT SELECT ON sealed, sealed_ids, sealed_streams TO %I', role);
    END LOOP;
END $$;
