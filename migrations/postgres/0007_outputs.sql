-- The bytes of runs' output, by the position of the event that has their hash. They may be dropped: no trigger refuses it,
-- and who appends may delete them. Nobody may change them.

CREATE TABLE outputs (position bigint PRIMARY KEY, data bytea NOT NULL);
ALTER TABLE outputs ALTER COLUMN data SET STORAGE EXTERNAL;  -- compressed already
SELECT protect('outputs', '{UPDATE}');

CREATE OR REPLACE FUNCTION admit(role text, appends boolean, keeps_tokens boolean DEFAULT false) RETURNS void LANGUAGE plpgsql
    SET search_path = steno, pg_temp AS $$
BEGIN
    EXECUTE format('GRANT USAGE ON SCHEMA steno TO %I', role);
    EXECUTE format('GRANT SELECT ON meta, head, streams, parts, events, ranges, outputs, alembic_version TO %I', role);
    IF appends THEN
        EXECUTE format('GRANT SELECT ON blobs, leases TO %I', role);  -- the vault is among them
        EXECUTE format('GRANT INSERT ON events, parts, streams TO %I', role);
        EXECUTE format('GRANT INSERT, DELETE ON outputs TO %I', role);
        EXECUTE format('GRANT EXECUTE ON FUNCTION make_room, look_at_head, claim, advance, take_lease, renew_lease, '
                       'put_blob, hold_blob TO %I', role);
    END IF;
    IF keeps_tokens THEN
        EXECUTE format('GRANT SELECT ON tokens TO %I', role);
        EXECUTE format('GRANT EXECUTE ON FUNCTION put_tokens, hold_tokens TO %I', role);
    END IF;
END $$;

-- Who may read the record already may read them; who may append already may keep and drop them.
DO $$
DECLARE role text; appends boolean;
BEGIN
    FOR role, appends IN
        SELECT grantee, bool_or(privilege_type = 'INSERT') FROM information_schema.role_table_grants
         WHERE table_schema = 'steno' AND table_name = 'events' AND grantee NOT IN (current_user, 'PUBLIC')
         GROUP BY grantee HAVING bool_or(privilege_type = 'SELECT') LOOP
        PERFORM admit(role, appends);
    END LOOP;
END $$;
